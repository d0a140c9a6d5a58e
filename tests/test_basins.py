"""The basin map: the batch against the reference path and against small steps; fates; laws over many small nets."""

import json

import numpy as np
import pytest
from cases import cloud
from hypothesis import given, settings
from hypothesis import strategies as st
from sector_oracles import small_steps

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.cli import main
from marginflow.data import Dataset, phuong2021
from marginflow.sectors import early


def agrees_with_reference(data: Dataset, W, signs, basins, generic=True) -> None:
    for k, (w, s) in enumerate(zip(W, signs, strict=True)):
        q = early.path(data, w, int(s))
        assert basins.fate[k] == q.fate.value, f"direction {k}"
        np.testing.assert_allclose(basins.limit[k], q.limit, atol=1e-9)
        assert basins.time[k] == pytest.approx(q.arcs[-1].time, rel=1e-9, abs=1e-12)
        assert basins.log_growth[k] == pytest.approx(q.arcs[-1].log_norm, rel=1e-8, abs=1e-9)
        if generic:
            assert basins.slid[k] == max((a.pattern == 0).sum() for a in q.arcs)
            assert basins.events[k] >= len(q.events)


@pytest.mark.parametrize(("n", "d"), [(10, 2), (12, 3), (60, 20), (8, 10)])
def test_the_batch_follows_the_reference(n, d):
    """Generic data of every shape, more dimensions than examples included."""
    for seed in range(3):
        data = cloud(n, d, seed)
        rng = np.random.default_rng(seed + 1000)
        W, signs = rng.standard_normal((30, d)), rng.choice([-1, 1], 30)
        basins = mf.basins(data, W, signs, lanes=64)
        assert basins.retried == 0
        agrees_with_reference(data, W, signs, basins)


def test_refilled_lanes_change_nothing():
    data, W = cloud(12, 3, seed=0), np.random.default_rng(1).standard_normal((333, 3))
    one, many = mf.basins(data, W, lanes=64), mf.basins(data, W, lanes=512)
    np.testing.assert_array_equal(one.fate, many.fate)
    np.testing.assert_array_equal(one.events, many.events)
    np.testing.assert_allclose(one.limit, many.limit, atol=1e-12)
    np.testing.assert_allclose(one.time, many.time, rtol=1e-10)
    again = mf.basins(data, W, lanes=64)
    np.testing.assert_array_equal(one.limit, again.limit)


def test_rank_deficient_data_with_a_component_outside_the_span():
    """What lies outside never moves. A neuron pinned within the span comes to 0 there, where the inclusion has
    several solutions: that is said, and it happens to exactly the neurons that would vanish without it."""
    flat = Dataset([[1.0, 0.0], [-0.6, 2.0], [0.0, -1.0]], [-1, -1, 1])
    data = Dataset(np.c_[flat.X, np.zeros(3)], flat.y)
    W = np.random.default_rng(0).standard_normal((60, 3))
    basins = mf.basins(data, W, lanes=64)
    agrees_with_reference(data, W, np.ones(60, int), basins)
    assert basins.retried == 0
    assert "undecided" in basins.fate
    assert "vanishing" not in basins.fate
    inside = mf.basins(data, W * [1, 1, 0], lanes=64)
    plane = mf.basins(flat, W[:, :2], lanes=64)
    assert (inside.fate == plane.fate).all()
    np.testing.assert_allclose(inside.limit, np.c_[plane.limit, np.zeros(60)], atol=1e-12)
    assert ((plane.fate == "vanishing") >= (basins.fate == "undecided")).all()


def test_directions_in_special_position():
    """On one hyperplane, on two, on a data point, against the field: the batch decides them as the reference does."""
    data = cloud(12, 3, seed=0)
    corners = [np.cross(data.X[i], data.X[j]) for i in range(0, 12, 2) for j in range(i + 2, 12, 2)]
    edges = [np.cross(x, [0.3, 0.7, -0.2]) for x in data.X]
    # The corners lie on two negative hyperplanes: opposed for sign 1. For sign -1 two aligned ones would meet, which
    # leaves more than one solution.
    for sign, W in (
        (1, np.vstack([data.X, -data.X, corners, edges])),
        (-1, np.vstack([data.X, -data.X, edges])),
    ):
        basins = mf.basins(data, W, sign, lanes=64)
        agrees_with_reference(data, W, np.full(len(W), sign), basins, generic=False)


def test_the_fates_are_those_of_small_steps():
    data = cloud(10, 2, seed=1)
    rng = np.random.default_rng(0)
    W = rng.standard_normal((300, 2))
    for sign in (1, -1):
        basins = mf.basins(data, W, sign, lanes=64)
        U, log_norm = small_steps(data.X, sign * data.y / 2, W, 15.0, 1e-3)
        moving = np.isin(basins.fate, ["positive", "negative"])
        # After a time 15 directions agree except where two basins meet within a step.
        close = np.linalg.norm(U - basins.limit, axis=1) < 0.02
        assert close.mean() > 0.97
        grown = log_norm[close & moving] - basins.log_growth[close & moving]
        assert (grown > 0).all()
        assert (log_norm[close & (basins.fate == "vanishing")] < 0).all()


def test_all_four_fates_occur_and_are_counted():
    # Vanishing: held on x_1 with x_2 on (see the early path); dead: the third quadrant.
    data = Dataset([[1.0, 0.0], [-0.6, 2.0], [0.0, -1.0]], [-1, -1, 1])
    t = np.linspace(0, 2 * np.pi, 720, endpoint=False) + 1e-3
    W = np.stack([np.cos(t), np.sin(t)], axis=1)
    up, down = mf.basins(data, W, lanes=256), mf.basins(data, W, -1, lanes=256)
    assert set(up.fate) == {"positive", "vanishing"}
    assert set(down.fate) <= {"negative", "dead", "vanishing"}
    assert sum(up.counts().values()) == 720
    agrees_with_reference(data, W[::6], np.ones(120), mf.basins(data, W[::6], lanes=256))
    for limit, number in zip(up.limits, np.bincount(up.end[up.end >= 0]), strict=True):
        assert number > 0
        assert limit.growing == (limit.G > 0)


def test_ends_are_extremal_directions():
    data = cloud(12, 3, seed=1)
    found = mf.extremal(data)
    basins = mf.basins(data, np.random.default_rng(0).standard_normal((3000, 3)), lanes=64)
    known = np.array([e.direction for e in found.positive])
    for end in basins.limits:
        assert np.linalg.norm(known - end.direction, axis=1).min() < 1e-9
    arrived = basins.end >= 0
    np.testing.assert_allclose(
        basins.limit[arrived], np.array([e.direction for e in basins.limits])[basins.end[arrived]], atol=1e-9
    )


def lost_nets(data: Dataset, width: int, nets: int, seed: int) -> tuple[int, np.ndarray]:
    """How many of `nets` random balanced nets lose every neuron, from one basin map; and which neurons are lost."""
    rng = np.random.default_rng(seed)
    W, signs = rng.standard_normal((width * nets, data.d)), rng.choice([-1, 1], width * nets)
    lost = ~np.isin(mf.basins(data, W, signs, lanes=1024).fate, ["positive", "negative"])
    return int(lost.reshape(nets, width).all(axis=1).sum()), lost


@pytest.mark.parametrize("width", [1, 2, 3])
def test_all_neurons_are_lost_with_probability_at_most_two_to_the_minus_width(width):
    """Lemma B.1's count. The bound is for one net; over N nets the count may exceed its mean by 4 deviations."""
    nets = 3000
    lost, _ = lost_nets(phuong2021(n=20, d=3, seed=0), width, nets, width)
    bound = 2.0**-width
    assert lost <= nets * bound + 4 * np.sqrt(nets * bound * (1 - bound))


@pytest.mark.slow
def test_a_hundred_thousand_small_nets():
    for seed, d in ((0, 2), (1, 5), (2, 10)):
        data = phuong2021(n=20, d=d, seed=seed)
        for width in (1, 2, 4):
            lost, _ = lost_nets(data, width, 100_000, seed)
            bound = 2.0**-width
            assert lost <= 100_000 * bound + 4 * np.sqrt(100_000 * bound * (1 - bound))


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_lemma_b1_over_many_neurons(seed):
    """Orthogonally separable data: one own-class example on at the start is enough never to be lost."""
    data = phuong2021(n=12, d=3, seed=seed)
    W = np.random.default_rng(seed).standard_normal((64, 3))
    for sign in (1, -1):
        fate = mf.basins(data, W, sign, lanes=64).fate
        on = (W @ data.X[data.y == sign].T > 0).any(axis=1)
        assert (fate[on] == ("positive" if sign > 0 else "negative")).all()
        assert set(fate[~on]) <= {"dead", "positive", "negative"}


def test_the_cap_and_the_refusals():
    data, W = cloud(12, 3, seed=0), np.random.default_rng(0).standard_normal((20, 3))
    capped = mf.basins(data, W, max_events=2, lanes=64)
    assert "undecided" in capped.fate
    with pytest.raises(InputError, match="sign"):
        mf.basins(data, W, 0)
    with pytest.raises(InputError, match="sign"):
        mf.basins(data, W, [1, -1])
    with pytest.raises(InputError, match="length d = 3"):
        mf.basins(data, W[:, :2])


def test_one_direction_and_a_weight_of_zero():
    data = cloud(10, 3, seed=0)
    assert mf.basins(data, [1.0, 2.0, 3.0]).fate.shape == (1,)
    weights = np.where(np.arange(10) < 5, 1.0, 0.0)
    W = np.random.default_rng(0).standard_normal((20, 3))
    some, part = mf.basins(data, W, weights=weights), mf.basins(data.take(range(5)), W, weights=np.ones(5))
    np.testing.assert_allclose(some.limit, part.limit, atol=1e-9)


def test_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["basins", "phuong2021:n=20,d=3,seed=0", "--directions", "200", "--json", "--strict"])
    assert stop.value.code == 0
    out = json.loads(capsys.readouterr().out)
    assert out["directions"] == 200
    assert sum(out["fates"].values()) == 200
    assert sum(end["neurons"] for end in out["limits"]) == 200 - out["fates"]["dead"]
    with pytest.raises(SystemExit) as stop:
        main(["basins", "phuong2021:n=20,d=3,seed=0", "--sign", "up"])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
