"""Projected interclass distance: exact where it is known, an honest interval elsewhere."""

import dataclasses

import numpy as np
import pytest
from cases import CASES

import marginflow as mf
from marginflow.conditions import certificates
from marginflow.conditions.closest import closest_pairs
from marginflow.conditions.interclass_distance import interclass_distance


def all_differences(data: mf.Dataset) -> np.ndarray:
    return (data.X[data.positive][:, None] - data.X[data.negative][None]).reshape(-1, data.d)


@pytest.mark.parametrize("name", ["phuong2021-small", "chizat2020", "plane", "cloud-wide", "phuong2021-float32"])
def test_full_rank_is_the_distance_of_the_closest_pair(name):
    data = CASES[name].data
    condition = interclass_distance(data)
    truth = np.linalg.norm(all_differences(mf.Dataset(data.X.astype(float), data.y)), axis=1).min()
    low, high = condition.witness["interval"]
    assert low <= truth * (1 + 1e-15)
    assert high >= truth * (1 - 1e-15)
    assert high - low <= 1e-9 * truth
    assert certificates.recheck(data, condition)


def test_an_angle_scan_of_the_plane_lies_in_the_interval():
    data = mf.Dataset(CASES["chizat2020"].data.X[:, :2], CASES["chizat2020"].data.y)
    angles = np.linspace(0, np.pi, 20_001)
    lines = np.stack([np.cos(angles), np.sin(angles)])
    scanned = np.abs(all_differences(data) @ lines).min(axis=0).max()
    low, high = interclass_distance(data, rank=1).witness["interval"]
    assert scanned <= high
    assert low <= scanned + np.pi / 40_000 * np.linalg.norm(all_differences(data), axis=1).max()


def test_the_relaxation_is_tight_where_one_pair_decides():
    # Classes at ±e_1 with a little noise: the best projections contain e_1.
    rng = np.random.default_rng(0)
    y = np.where(np.arange(30) % 2 == 0, 1.0, -1.0)
    data = mf.Dataset(0.05 * rng.standard_normal((30, 4)) + y[:, None] * np.eye(4)[0], y)
    low, high = interclass_distance(data, rank=2).witness["interval"]
    assert high - low <= 1e-3 * high


def test_the_first_two_coordinates_of_the_clusters_are_found():
    data = mf.data.chizat2020(n=96, d=6, k=2, seed=0)
    known = np.linalg.norm(all_differences(data)[:, :2], axis=1).min()
    condition = interclass_distance(data, rank=2)
    low, high = condition.witness["interval"]
    assert (1 - 1e-9) * known <= low <= high
    assert condition.slack > 0
    assert certificates.recheck(data, condition)
    Q = condition.witness["projection"]
    assert np.allclose(Q @ Q.T, np.eye(2), atol=1e-12)
    assert low <= np.linalg.norm(all_differences(data) @ Q.T, axis=1).min() * (1 + 1e-12)


def test_bounds_grow_with_the_rank():
    data = mf.data.chizat2020(n=40, d=4, k=2, seed=1)
    intervals = [interclass_distance(data, rank=r).witness["interval"] for r in range(1, 5)]
    assert all(low <= high for low, high in intervals)
    assert all(intervals[r][0] <= intervals[r + 1][1] for r in range(3))
    assert intervals[3][0] >= max(low for low, _ in intervals) * (1 - 1e-12)


def test_any_weights_give_an_upper_bound_and_any_projection_a_lower_one():
    data = mf.data.chizat2020(n=40, d=4, k=2, seed=1)
    rng = np.random.default_rng(0)
    low, high = interclass_distance(data, rank=2).witness["interval"]
    for _ in range(20):
        pairs = np.stack([rng.choice(data.positive, 6), rng.choice(data.negative, 6)], axis=1)
        assert certificates.fantope_bound(data, pairs, rng.random(6), 2) >= low
        Q = np.linalg.qr(rng.standard_normal((4, 2)))[0].T
        assert certificates.projected_distance(data, Q) <= high
        # A matrix that stretches is not a projection, and gains nothing.
        assert certificates.projected_distance(data, 3 * Q) <= certificates.projected_distance(data, Q) * (1 + 1e-9)


def test_a_perturbed_witness_is_refused():
    data = mf.data.chizat2020(n=40, d=4, k=2, seed=1)
    condition = interclass_distance(data, rank=2)
    low, high = condition.witness["interval"]
    for change in ({"interval": [low * 1.001, high]}, {"interval": [low, high * 0.999]}, {"rank": 1},
                   {"pairs": condition.witness["pairs"][:, ::-1][:, [0, 0]]},
                   {"projection": condition.witness["projection"] + 0.05}):
        assert not certificates.recheck(data, dataclasses.replace(condition, witness={**condition.witness, **change}))


def test_equal_points_with_different_labels():
    data = CASES["contradiction"].data
    condition = interclass_distance(data, rank=1)
    assert (condition.status, condition.measured) == ("fails", 0.0)
    assert tuple(sorted(condition.witness["rows"])) == CASES["contradiction"].facts["contradiction"]
    assert certificates.recheck(data, condition)


@pytest.mark.parametrize("seed", range(8))
def test_closest_pairs_are_closest(seed):
    rng = np.random.default_rng(seed)
    n, d, r = 1500, 4, int(rng.integers(1, 5))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = rng.standard_normal((n, d)) + (seed % 3) * y[:, None] + 1e6 * (seed == 5)
    data, Q = mf.Dataset(X, y), np.linalg.qr(rng.standard_normal((d, r)))[0].T
    truth = np.linalg.norm(all_differences(data) @ Q.T, axis=1).min()
    found = closest_pairs(data, Q, keep=5)
    assert found.distances[0] == pytest.approx(truth, rel=1e-9)
    assert found.at_least <= truth * (1 + 1e-9)
    assert found.at_least >= truth - 1e-8 * (1 + 1e6 * (seed == 5)) * (1 + truth) - 1e-12
    i, j = found.pairs[0]
    assert (data.y[i], data.y[j]) == (1, -1)
    assert (np.diff(found.distances) >= 0).all()


@pytest.mark.parametrize("rank", [0, 6])
def test_rank_out_of_range(rank):
    with pytest.raises(mf.InputError, match="rank"):
        interclass_distance(CASES["phuong2021-small"].data, rank=rank)
