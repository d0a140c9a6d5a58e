"""F1 margins: laws, independent oracles, closed form, refusals, and certificates that refuse what is not so."""

import importlib

import numpy as np
import pytest
from cases import cloud
from hypothesis import given, settings
from hypothesis import strategies as st

from marginflow import InputError, Outcome, margins
from marginflow.data import Dataset, chizat2020, phuong2021
from marginflow.margins.certificates_f1 import game_bounds, measure_from_below, weights_from_above
from marginflow.margins.f1_particles import soft_margin


def maximum_on_circle(X: np.ndarray, beta: np.ndarray) -> float:
    """max of |Σ β_i ρ(cᵀx_i)| over the unit circle: on each arc between sorted kinks the function is gᵀc."""
    angle = np.arctan2(X[:, 1], X[:, 0])
    kinks = np.sort(np.concatenate([angle + np.pi / 2, angle - np.pi / 2]) % (2 * np.pi))
    best = 0.0
    for low, high in zip(kinks, [*kinks[1:], kinks[0] + 2 * np.pi], strict=True):
        middle = (low + high) / 2
        g = beta[np.cos(middle - angle) > 0] @ X[np.cos(middle - angle) > 0]
        for sign in (1.0, -1.0):
            top = np.arctan2(sign * g[1], sign * g[0])
            inside = (top - low) % (2 * np.pi) <= high - low
            ends = [sign * (g @ [np.cos(t), np.sin(t)]) for t in (low, high)]
            best = max(best, np.linalg.norm(g) if inside else -np.inf, *ends)
    return best


def plane_program(data: Dataset) -> float:
    """γ1 in the plane by one cone program over every full activation pattern, with its sign constraints (CVXPY)."""
    cp = pytest.importorskip("cvxpy")
    X, y = data.X, data.y
    angle = np.arctan2(X[:, 1], X[:, 0])
    kinks = np.sort(np.concatenate([angle + np.pi / 2, angle - np.pi / 2]) % (2 * np.pi))
    middles = (kinks + np.append(kinks[1:], kinks[0] + 2 * np.pi)) / 2
    D = (np.cos(middles[None] - angle[:, None]) > 0).astype(float)
    V, U, g = cp.Variable((2, D.shape[1])), cp.Variable((2, D.shape[1])), cp.Variable()
    output = cp.sum(cp.multiply(D, X @ (V - U)), axis=1)
    sides = [cp.multiply(2 * D - 1, X @ W) >= 0 for W in (V, U)]
    variation = cp.sum(cp.norm(V, 2, axis=0)) + cp.sum(cp.norm(U, 2, axis=0))
    problem = cp.Problem(cp.Maximize(g), [cp.multiply(y, output) >= g, variation <= 1, *sides])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return problem.value / 2


# Orthogonally separable data: the closed form.


@pytest.mark.parametrize("data", [phuong2021(n=500, d=20), phuong2021(n=40, d=5)], ids=lambda data: data.name)
def test_orthogonally_separable_is_the_harmonic_mean_of_the_class_margins(data):
    result = margins.f1(data)
    plus, minus = margins.positive(data), margins.negative(data)
    expected = 1 / (2 * (np.linalg.norm(plus.vector) + np.linalg.norm(minus.vector)))
    assert result.value == pytest.approx(expected, rel=1e-9)
    assert result.certified
    assert result.method == "closed form"
    assert sorted(result.neurons.sign) == [-1, 1]


def test_orthonormal_rows_by_hand():
    """x_i = e_i: ‖w±‖ = √n±, so γ1 = 1/(2(√2 + √3))."""
    data = Dataset(np.eye(5), np.array([1.0, 1, -1, -1, -1]))
    assert margins.f1(data).value == pytest.approx(1 / (2 * (np.sqrt(2) + np.sqrt(3))), rel=1e-9)


def test_the_search_agrees_with_the_closed_form(monkeypatch):
    """The general solver knows nothing of orthogonal separability."""
    data = phuong2021(n=30, d=3, seed=1)
    closed = margins.f1(data)
    monkeypatch.setattr(importlib.import_module("marginflow.margins.f1"), "_two_cones", lambda *_: None)
    searched = margins.f1(data)
    assert searched.certified
    assert searched.value == pytest.approx(closed.value, rel=1e-8)


# Oracles.


@pytest.mark.parametrize("seed", range(6))
def test_the_plane_equals_the_program_over_all_patterns(seed):
    data = cloud(8, 2, seed)
    result = margins.f1(data)
    assert result.certified
    assert result.value == pytest.approx(plane_program(data), rel=1e-7)
    # Independent of both solvers: the measure, and the weights on an enumerated circle, prove 1e-8.
    upper = maximum_on_circle(data.X, result.dual * data.y) / 2
    assert result.lower_bound <= upper * (1 + 1e-12)
    assert upper - result.lower_bound <= 1e-8 * upper
    assert result.upper_bound >= upper * (1 - 1e-12)


@pytest.mark.parametrize(("activation", "power"), [("relu", 1), ("srelu", 2)])
def test_dense_directions_stay_below_and_come_close(activation, power):
    data = cloud(7, 2, 11)
    angle = np.linspace(0, 2 * np.pi, 4001)[:-1]
    kinks = np.column_stack([-data.X[:, 1], data.X[:, 0]]) / np.linalg.norm(data.X, axis=1, keepdims=True)
    C = np.concatenate([np.column_stack([np.cos(angle), np.sin(angle)]), kinks, -kinks])
    Z = data.y[:, None] * np.maximum(data.X @ C.T, 0) ** power
    dense = margins.f1_finite(np.concatenate([Z, -Z], axis=1))
    result = margins.f1(data, activation=activation)
    factor = 0.5 if power == 1 else 1.0
    assert dense.certified
    assert result.certified
    assert factor * dense.lower_bound <= result.upper_bound
    assert result.value == pytest.approx(factor * dense.value, rel=1e-4)
    assert result.value >= factor * dense.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize(("n", "d", "bias"), [(10, 3, False), (10, 2, True), (14, 9, False), (9, 30, False)])
def test_small_problems_are_certified(n, d, bias):
    data = cloud(n, d, seed=n + d)
    result = margins.f1(data, bias=bias)
    assert result.certified
    assert result.outcome is Outcome.CONVERGED
    assert 0 < result.lower_bound <= result.upper_bound <= result.lower_bound * (1 + 1e-9)


def test_the_bias_is_a_constant_column():
    data = cloud(9, 2, 5)
    again = Dataset(np.column_stack([data.X, np.ones(9)]), data.y)
    assert margins.f1(data, bias=True).value == pytest.approx(margins.f1(again).value, rel=1e-9)


def test_ascent_only_is_never_called_a_bound():
    data = chizat2020(n=150, d=8, k=3, seed=0)
    result = margins.f1(data, rounds=2)
    assert result.upper_bound is None
    assert result.gap is None
    assert not result.certified
    assert result.lower_bound > 0
    assert result.dual_value >= result.lower_bound


def test_more_rounds_only_help_and_a_seed_fixes_the_answer():
    data = chizat2020(n=100, d=6, k=3, seed=1)
    few, more, again = (margins.f1(data, rounds=r, search_gap=1e-9) for r in (0, 4, 4))
    assert more.lower_bound >= few.lower_bound
    assert more.lower_bound == again.lower_bound
    np.testing.assert_array_equal(more.neurons.direction, again.neurons.direction)


def test_the_pattern_program_beats_masses_over_its_own_start():
    """On the paper's data the program over patterns improves the linear program over the particles it started from."""
    from marginflow.margins.f1_particles import descend
    from marginflow.margins.f1_program import masses, patterned, responses

    data = chizat2020(n=80, d=6, k=3, seed=0)
    p = descend(data.X, data.y, 40, np.random.default_rng(0))
    c = p.u / np.linalg.norm(p.u, axis=1, keepdims=True)
    over = masses(data.y[:, None] * np.maximum(data.X @ c.T, 0) * p.sign)
    used = over.mass > 0
    solved = patterned(c[used] * over.mass[used, None], p.sign[used], data.X, data.y)
    reached = responses(solved.v, p.sign[used], data.X, data.y).min() / np.linalg.norm(solved.v, axis=1).sum()
    assert solved.value == pytest.approx(reached, rel=1e-9)
    assert p.margin <= over.value * (1 + 1e-9)
    assert over.value * (1 + 1e-4) < solved.value


# Laws.


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_rotation_flip_scale_and_order(seed):
    rng = np.random.default_rng(seed)
    data = Dataset(rng.standard_normal((7, 3)), np.array([1.0, -1, 1, -1, 1, -1, 1]))
    base = margins.f1(data)
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    order = rng.permutation(7)
    changed = {
        "rotated": Dataset(data.X @ Q, data.y),
        "flipped": Dataset(data.X, -data.y),
        "permuted": Dataset(data.X[order], data.y[order]),
    }
    for name, other in changed.items():
        found = margins.f1(other)
        # What holds for any solver: proved intervals of one number must meet.
        assert found.lower_bound <= base.upper_bound * (1 + 1e-12), name
        assert base.lower_bound <= found.upper_bound * (1 + 1e-12), name


@pytest.mark.parametrize("factor", [1e-12, 0.3, 1e12])
@pytest.mark.parametrize(("activation", "power"), [("relu", 1), ("srelu", 2)])
def test_homogeneous_in_the_data(factor, activation, power):
    data = cloud(6, 2, 3)
    scaled = Dataset(data.X * factor, data.y)
    assert margins.f1(scaled, activation=activation).value == pytest.approx(
        factor**power * margins.f1(data, activation=activation).value, rel=1e-8
    )


def test_a_redundant_example_changes_nothing_and_a_new_one_never_helps():
    data = cloud(8, 3, 2)
    base = margins.f1(data)
    doubled = margins.f1(Dataset(np.vstack([data.X, data.X[0]]), np.append(data.y, data.y[0])))
    fewer = margins.f1(data.take(np.arange(7)))
    assert doubled.value == pytest.approx(base.value, rel=1e-8)
    assert fewer.upper_bound >= base.lower_bound


def test_gradient_of_the_soft_margin():
    rng = np.random.default_rng(0)
    data = cloud(9, 3, 0)
    for squared in (False, True):
        u, sign = rng.standard_normal((4, 3)), np.array([1.0, -1, 1, -1])
        _, gradient, _ = soft_margin(u, sign, data.X, data.y, 0.3, squared)
        step = 1e-6 * rng.standard_normal(u.shape)
        ahead, behind = (soft_margin(u + s * step, sign, data.X, data.y, 0.3, squared)[0] for s in (1, -1))
        assert (ahead - behind) / 2 == pytest.approx((gradient * step).sum(), rel=1e-5)


# Fixed directions.


def test_finite_margin_of_a_matrix_game():
    """Matching pennies with a bonus: value by hand, (ad - bc)/(a + d - b - c)."""
    result = margins.f1_finite([[3.0, -1.0], [-2.0, 1.0]])
    assert result.value == pytest.approx((3 * 1 - 2) / (3 + 1 + 1 + 2), rel=1e-12)
    assert result.certified


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_finite_margin_is_enclosed(seed, n, m, scale):
    Z = scale * np.random.default_rng(seed).standard_normal((n, m))
    result = margins.f1_finite(Z)
    assert result.certified
    low, high = game_bounds(Z, result.mass, result.dual)
    assert (Z @ result.mass).min() >= low
    assert (Z.T @ result.dual).max() <= high
    pure = max((Z[:, j].min() for j in range(m)), default=-np.inf)
    assert result.upper_bound >= pure


# Refusals.


def test_equal_points_with_different_labels():
    data = Dataset(np.array([[1.0, 2], [0.5, -1], [1.0, 2]]), np.array([1.0, 1, -1]))
    result = margins.f1(data)
    assert (result.value, result.certified, result.separable) == (0.0, True, False)
    assert result.contradictory == (0, 2)
    assert result.outcome is Outcome.INFEASIBLE
    assert "rows 0 and 2" in result.message


@pytest.mark.parametrize(("activation", "power"), [("relu", 1), ("srelu", 2)])
def test_one_ray_with_two_labels_is_separable_only_with_a_bias(activation, power):
    data = Dataset(np.array([[1.0, 2], [3.0, 6]]), np.array([1.0, -1]))
    result = margins.f1(data, activation=activation)
    assert result.separable is False
    C = np.random.default_rng(0).standard_normal((50, 2))
    # Its weights cancel the features identically.
    assert np.abs(np.maximum(C @ data.X.T, 0) ** power @ (result.dual * data.y)).max() < 1e-14
    assert margins.f1(data, bias=True, activation=activation).lower_bound > 0


def test_antipodal_rows_that_sum_to_zero_are_not_called_separable():
    """Σ (ρ(cᵀx_i) - ρ(-cᵀx_i)) = cᵀ Σ x_i = 0: γ1 = 0 although no two rows lie on one ray."""
    half = np.array([[1.0, 0], [0, 1], [-1, -1]])
    result = margins.f1(Dataset(np.vstack([half, -half]), np.repeat([1.0, -1.0], 3)))
    assert result.value <= 1e-12
    assert result.separable is not True or result.lower_bound > 0
    assert result.upper_bound is None or result.upper_bound <= 1e-9


def test_unknown_units_are_refused():
    with pytest.raises(InputError, match="relu and srelu"):
        margins.f1(cloud(6, 2, 0), activation="leaky:0.1")


# Mutations: a certificate that accepts everything would pass the tests above.


def test_the_measure_certificate_refuses_or_lowers():
    data = cloud(9, 3, 4)
    result = margins.f1(data)
    c, s, m = result.neurons.direction, result.neurons.sign, result.neurons.mass
    assert measure_from_below(data.X, data.y, c, s, m) == result.lower_bound
    assert m.min() > 0
    for k in np.flatnonzero(m > 1e-3):
        bent, flipped = c.copy(), s.copy()
        bent[k] = -bent[k]
        flipped[k] = -flipped[k]
        assert measure_from_below(data.X, data.y, bent, s, m) < result.lower_bound * (1 - 1e-6)
        assert measure_from_below(data.X, data.y, c, flipped, m) < result.lower_bound * (1 - 1e-6)
    # Mass and length are paid for: a longer neuron is not a better one.
    assert measure_from_below(data.X, data.y, 10 * c, s, m) == pytest.approx(result.lower_bound, rel=1e-12)
    with pytest.raises(ValueError, match="measure"):
        measure_from_below(data.X, data.y, c, s, -m)
    with pytest.raises(ValueError, match="measure"):
        measure_from_below(data.X, data.y, c, 2 * s, m)


def test_the_weights_certificate_rises_when_weights_are_wrong():
    data = cloud(9, 3, 4)
    result = margins.f1(data)
    rng = np.random.default_rng(0)
    for _ in range(5):
        other = np.abs(result.dual * np.exp(0.3 * rng.standard_normal(9)))
        bound, _ = weights_from_above(data.X, data.y, other)
        assert bound >= result.lower_bound
        assert bound > result.upper_bound * (1 + 1e-6)
    with pytest.raises(ValueError, match="weights"):
        weights_from_above(data.X, data.y, -result.dual)


def test_lower_bounds_hold_in_exact_arithmetic():
    from fractions import Fraction

    data = cloud(6, 2, 9)
    result = margins.f1(data)
    F = np.vectorize(Fraction, otypes=[object])
    X, c, m = F(data.X), F(result.neurons.direction), F(result.neurons.mass)
    z = np.maximum(X @ c.T, 0)
    reached = min(
        int(data.y[i]) * sum(int(s) * w * v for s, w, v in zip(result.neurons.sign, m, z[i], strict=True))
        for i in range(6)
    )
    # Total variation Σ m ‖c‖ <= Σ m (1 + ‖c‖²)/2, exactly.
    total = sum(w * (1 + sum(e * e for e in row)) / 2 for w, row in zip(m, c, strict=True))
    assert Fraction(result.lower_bound) <= reached / total / 2
