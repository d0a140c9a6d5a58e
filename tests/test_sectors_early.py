"""The early path of one neuron: hand-made cases for every kind of event, small steps, laws."""

import numpy as np
import pytest
from cases import cloud
from hypothesis import assume, given
from hypothesis import strategies as st
from sector_oracles import small_steps, value

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.data import Dataset, phuong2021
from marginflow.sectors.early import Fate, path
from marginflow.sectors.selection import least_velocity, settle


def kinds(q):
    return list(zip(q.events.kind.tolist(), q.events.example.tolist(), strict=True))


def near(angle):
    """A unit vector in the plane, angle in degrees."""
    return [np.cos(np.radians(angle)), np.sin(np.radians(angle))]


# --- hand-made cases -------------------------------------------------------------------------------------


def test_crossing_at_the_time_worked_out_by_hand():
    # Only x_1 = e_1 pulls, with ½: w = (w_1, w_2) moves along e_1 as r(t) = A cosh t/2 + sinh t/2 from the
    # unit vector (A, -sqrt(1 - A²)); x_2 = (1, 2) switches on when r = 2 sqrt(1 - A²).
    data = Dataset([[1.0, 0.0], [1.0, 2.0], [-1.0, -0.1]], [1, 1, -1])
    A = 0.6
    q = path(data, [A, -0.8])
    assert kinds(q)[0] == ("cross_on", 1)
    t = 2 * (np.arcsinh(2 * 0.8 / 0.8) - np.arcsinh(A / 0.8))
    assert np.exp(q.events.log_time[0]) == pytest.approx(t, rel=1e-13)
    u, log_norm = q.at(t)
    np.testing.assert_allclose(np.exp(log_norm) * u, [1.6, -0.8], rtol=1e-13)


def test_crossing_off_an_opposed_example():
    # The opposed example pulls outwards faster than its own side can hold: it goes off and stays off.
    data = Dataset([[2.0, 0.0], [-1.0, 1.0]], [1, -1])
    q = path(data, near(80))
    assert kinds(q) == [("cross_off", 1)]
    assert q.fate is Fate.POSITIVE
    np.testing.assert_allclose(q.limit, [1, 0], atol=1e-15)


def test_entering_and_sliding_with_the_projected_field():
    # v = ½(1, 0) off and ½(1, 0) - ½(0.5, 2) on: x_2 = (0.5, 2) is entered from the off side and held.
    data = Dataset([[1.0, 0.0], [0.5, 2.0]], [1, -1])
    q = path(data, near(-40))
    assert kinds(q) == [("enter", 1)]
    x = data.X[1]
    projected = 0.5 * (np.array([1.0, 0.0]) - x * x[0] / (x @ x))
    np.testing.assert_allclose(q.arcs[-1].v, projected, atol=1e-15)
    assert q.arcs[-1].coefficients[1] == pytest.approx(x[0] / (x @ x))
    assert q.sector.tolist() == [1, 0]
    assert q.growth == pytest.approx(np.linalg.norm(projected))


def test_leaving_when_another_example_switches_on():
    # Sliding on x_2 = e_2 under x_1 = (1, ½) until x_3 = (1, 3) - out of reach at first - switches on and pulls the
    # neuron off the hyperplane, to the on side: c_2 would have to exceed 1.
    data = Dataset([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [1.0, 3.0, -2.0]], [1, -1, 1])
    q = path(data, [0.3, -0.2, 0.9])
    assert kinds(q)[0] == ("enter", 1)
    assert ("leave", 1) in kinds(q)
    left = kinds(q).index(("leave", 1))
    assert kinds(q)[left - 1 : left + 2].count(("cross_on", 2)) == 1, (
        "it leaves at the instant x_3 switches on"
    )
    log_time = dict(zip(kinds(q), q.events.log_time, strict=True))
    assert log_time["leave", 1] == log_time["cross_on", 2]
    assert q.arcs[-1].pattern[1] == 1


def test_two_hyperplanes_at_once():
    # The neuron runs down the line where both opposed planes meet: symmetric, so both are entered at one instant.
    data = Dataset([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, -1.0]], [1, -1, -1])
    q = path(data, [0.2, -1.0, 0.0])
    assert sorted(kinds(q)) == [("enter", 1), ("enter", 2)]
    assert q.events.log_time[0] == q.events.log_time[1]
    assert q.sector.tolist() == [1, 0, 0]
    np.testing.assert_allclose(q.limit, np.array([1.0, -1.0, 0.0]) / np.sqrt(2), atol=1e-14)
    # Off the symmetry plane they are entered one after the other, with the same end.
    r = path(data, [0.2, -1.0, 0.1])
    assert sorted(kinds(r)) == [("enter", 1), ("enter", 2)]
    assert r.events.log_time[0] < r.events.log_time[1]
    np.testing.assert_allclose(r.limit, q.limit, atol=1e-14)


def test_three_planes_through_one_line_are_all_held():
    # Their normals are dependent: the coefficients are not unique, the velocity is.
    data = Dataset([[1.0, 0, 0], [1.0, 1, 0], [1.0, 1, 1], [1.0, 1, -1]], [1, -1, -1, -1])
    q = path(data, [0.2, -1.0, 0.0])
    assert q.sector.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(q.limit, np.array([1.0, -1.0, 0.0]) / np.sqrt(2), atol=1e-12)


def test_dead_at_once_and_dead_later():
    data = Dataset([[1.0, 0.0], [0.0, 1.0]], [1, -1])
    q = path(data, [-0.6, -0.8])
    assert q.fate is Fate.DEAD
    assert len(q.events) == 0
    np.testing.assert_allclose(q.limit, [-0.6, -0.8])
    # On for the opposed example only: turned away from it until it is off, then frozen where it stands.
    q = path(data, [-0.6, 0.8])
    assert q.fate is Fate.DEAD
    assert q.growth == 0
    np.testing.assert_allclose(q.limit, [-1, 0], atol=1e-14)
    assert q.at(1e6)[1] == q.arcs[-1].log_norm


def test_vanishing_shrinks_at_its_rate():
    # x_2 is opposed and stays on; it turns the neuron onto the hyperplane of x_1, which holds it: in the plane
    # that leaves only the ray through (0, 1), against the field (0, -1).
    data = Dataset([[1.0, 0.0], [-0.6, 2.0], [0.0, -1.0]], [-1, -1, 1])
    q = path(data, near(100))
    assert q.fate is Fate.VANISHING
    assert len([k for k, _ in kinds(q) if k == "enter"]) == 1
    np.testing.assert_allclose(q.limit, q.arcs[-1].u)
    rate = float(mf.sectors.G(data, q.limit))
    assert rate == pytest.approx(-1.0)
    assert q.growth == pytest.approx(rate)
    t = q.arcs[-1].time
    assert q.at(t + 7)[1] - q.at(t)[1] == pytest.approx(7 * rate)


def test_lemma_2_zero_entry_is_reached_by_the_flow():
    data = Dataset([[1.0, 0.0], [3.0, 0.0], [0.0, -2.0], [-1.0, -1.0]], [1, 1, -1, -1])
    for angle in (-60, -5, 30, 80):
        q = path(data, near(angle))
        assert q.fate is Fate.POSITIVE
        np.testing.assert_array_equal(q.sector, mf.sectors.lemma2(data, 1))


def test_a_saddle_is_called_other():
    data = Dataset([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [1, 1, -1])
    q = path(data, near(-30))
    assert q.fate is Fate.OTHER
    np.testing.assert_allclose(q.limit, [1, 0], atol=1e-15)


def test_a_neuron_against_its_field_without_a_hold_is_undecided():
    # Exactly opposite to the pull: the true path shrinks for ever, any rounding turns it round.
    data = Dataset([[1.0, 0.0], [0.0, -1.0]], [1, -1])
    assert path(data, [0.0, -1.0]).fate is Fate.UNDECIDED


def test_the_cap_on_events_is_said():
    data = cloud(60, 3, seed=0)
    full = path(data, [1.0, 2.0, 3.0])
    assert len(full.events) > 10
    assert path(data, [1.0, 2.0, 3.0], max_events=5).fate is Fate.UNDECIDED


@pytest.mark.parametrize(("w", "sign", "message"), [([1.0, 2.0], 2, "sign"), ([[1.0, 2.0]], 1, "one neuron")])
def test_refusals(w, sign, message):
    with pytest.raises(InputError, match=message):
        path(cloud(4, 2, seed=0), w, sign)


# --- against small steps ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "seed"), [(8, 2, 0), (8, 2, 1), (12, 3, 0), (12, 3, 2), (30, 10, 0)])
def test_small_steps_come_to_the_path(n, d, seed):
    """Euler's error is of order h, sliding included: two step sizes show both the closeness and the order."""
    data = cloud(n, d, seed)
    W = np.random.default_rng(seed + 100).standard_normal((24, d))
    for sign in (1, -1):
        paths = [path(data, w, sign) for w in W]
        T = 1.5
        exact = [q.at(T) for q in paths]
        errors = []
        for h in (4e-4, 1e-4):
            U, log_norm = small_steps(data.X, sign * data.y / 2, W, T, h)
            errors.append(
                [
                    np.linalg.norm(U - [u for u, _ in exact], axis=1).max(),
                    np.abs(log_norm - [g for _, g in exact]).max(),
                ]
            )
        assert max(errors[1]) < 4e-3
        assert errors[1][0] < 0.5 * errors[0][0]
        assert errors[1][1] < 0.5 * errors[0][1]


def test_on_generic_data_most_neurons_slide():
    slid = []
    for seed in range(5):
        data = cloud(12, 3, seed)
        W = np.random.default_rng(seed).standard_normal((40, 3))
        slid += [any((arc.pattern == 0).any() for arc in path(data, w).arcs) for w in W]
    assert np.mean(slid) > 0.7


# --- the selection ---------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 8))
def test_least_velocity_meets_its_optimality_conditions(seed, d, m):
    rng = np.random.default_rng(seed)
    rows = rng.integers(-2, 3, (m, d)).astype(float)  # often dependent, often zero products
    v0 = rng.integers(-3, 4, d).astype(float)
    scale = 1 + np.abs(v0).sum() + np.abs(rows).sum()
    v, c = least_velocity(v0, rows, scale)
    np.testing.assert_allclose(v, v0 - c @ rows, atol=1e-12)
    assert ((c >= 0) & (c <= 1)).all()
    pull = rows @ v
    assert (pull[c <= 0] <= 1e-9).all()
    assert (pull[c >= 1] >= -1e-9).all()
    assert (np.abs(pull[(c > 0) & (c < 1)]) <= 1e-9).all()


@given(st.integers(0, 10**6))
def test_settled_states_are_consistent(seed):
    """After settling every hyperplane at 0 is either held or left on the side its flag says."""
    rng = np.random.default_rng(seed)
    X, p = rng.standard_normal((7, 4)), rng.choice([-0.5, 0.5], 7)
    zero = rng.random(7) < 0.4
    state = settle(X, p, rng.random(7) < 0.5, zero)
    speed = X @ state.v
    moved = zero & ~state.zero
    assert (state.on[moved] == (speed[moved] > 0)).all()
    assert (np.abs(speed[state.zero]) < 1e-10).all()


# --- laws ------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([1, -1]))
def test_the_value_of_g_never_falls_and_patterns_are_those_of_the_direction(seed, d, sign):
    data = cloud(10, d, seed)
    q = path(data, np.random.default_rng(seed + 1).standard_normal(d), sign)
    times = np.array([arc.time for arc in q.arcs])
    assert (np.diff(times) >= 0).all()
    samples = np.unique(np.concatenate([times, (times[1:] + times[:-1]) / 2, times[-1] + np.arange(4)]))
    along = [q.at(t)[0] for t in samples]
    values = sign * np.array([mf.sectors.G(data, u) for u in along])
    assert (np.diff(values) >= -1e-12).all()
    for arc, after in zip(q.arcs, [*q.arcs[1:], None], strict=True):
        t = arc.time + 1e-3 if after is None else (arc.time + after.time) / 2
        z = data.X @ arc.at(t)[0]
        assume(after is None or after.time - arc.time > 1e-9)
        assert (z[arc.pattern > 0] > -1e-12).all()
        assert (z[arc.pattern < 0] < 1e-12).all()
        assert (np.abs(z[arc.pattern == 0]) < 1e-12).all()


@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_scale_of_the_start_does_not_matter(seed, scale):
    data, w = cloud(8, 3, seed), np.random.default_rng(seed).standard_normal(3)
    q, r = path(data, w), path(data, scale * w)
    assert kinds(q) == kinds(r)
    np.testing.assert_allclose(q.events.log_time, r.events.log_time, atol=1e-9)


@given(st.integers(0, 10**6))
def test_flipping_labels_and_sign_changes_nothing(seed):
    data, w = cloud(8, 3, seed), np.random.default_rng(seed).standard_normal(3)
    q, r = path(data, w, 1), path(Dataset(data.X, -data.y), w, -1)
    assert kinds(q) == kinds(r)
    np.testing.assert_array_equal(q.events.log_time, r.events.log_time)
    np.testing.assert_array_equal(q.limit, r.limit)


@given(st.integers(0, 10**6), st.integers(2, 5))
def test_lemma_b1_and_lemma_3_along_early_paths(seed, d):
    """Orthogonally separable data: an own-class example once on stays on, and the extremal sector absorbs."""
    data = phuong2021(n=12, d=d, seed=seed)
    for sign in (1, -1):
        q = path(data, np.random.default_rng(seed).standard_normal(d), sign)
        own = data.y == sign
        patterns = np.array([arc.pattern for arc in q.arcs])
        assert (np.diff((patterns[:, own] > 0).astype(int), axis=0) >= 0).all()
        inside = (patterns == mf.sectors.lemma2(data, sign)).all(axis=1)
        assert (np.diff(inside.astype(int)) >= 0).all()
        started_on = (data.X[own] @ q.arcs[0].u > 0).any()
        if started_on:
            assert q.fate is (Fate.POSITIVE if sign > 0 else Fate.NEGATIVE)
            assert inside[-1]


def test_growth_past_the_range_of_floats():
    data = cloud(10, 3, seed=1)
    q = path(data, [1.0, 0.3, -0.2])
    u, log_norm = q.at(1e7)
    assert log_norm > 1e5
    assert np.isfinite(log_norm)
    np.testing.assert_allclose(u, q.limit, atol=1e-14)
    assert value(data.X, data.y / 2, u[None])[0] == pytest.approx(q.growth)
