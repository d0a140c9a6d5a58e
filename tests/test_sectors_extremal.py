"""Extremal directions against fine grids, climbs and random probing; Lemma 2; completeness; the command."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sector_oracles import circle, climbs, grid_maxima_2d, is_strict_maximum, value

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.cli import main
from marginflow.data import Dataset, phuong2021
from marginflow.sectors import arrangement, search
from marginflow.sectors.closed_form import lemma2
from marginflow.sectors.directions import distinct
from marginflow.sectors.local import Kind, local_kind


def cloud(seed: int, d: int, least: int = 4, most: int = 12) -> Dataset:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(least, most + 1))
    return Dataset(rng.standard_normal((n, d)), np.where(rng.permutation(n) % 2, 1.0, -1.0), f"cloud-{seed}")


def by_sign(data: Dataset):
    found = mf.extremal(data)
    assert found.complete
    assert not found.undecided
    for sign, group in ((1, found.positive), (-1, found.negative)):
        yield sign * data.y / 2, np.array([e.direction for e in group]).reshape(-1, data.d), group


def distances(A, B):
    return np.linalg.norm(A[:, None] - B[None], axis=2)


@pytest.mark.parametrize("seed", range(50))
def test_in_the_plane_exactly_the_maxima_of_a_fine_grid(seed):
    data = cloud(seed, 2)
    for p, found, _ in by_sign(data):
        grid = grid_maxima_2d(data.X, p)
        assert len(grid) == len(found)
        if len(found):
            assert distances(grid, found).min(axis=0).max() < 1e-4
            assert distances(grid, found).min(axis=1).max() < 1e-4


def check_in_space(seed: int, starts: int) -> tuple[int, int]:
    data = cloud(seed, 3)
    reached = total = 0
    for p, found, group in by_sign(data):
        ends = climbs(data.X, p, starts=starts, seed=seed)
        if len(ends):
            assert len(found), "climbs end somewhere, yet nothing was found"
            far = distances(ends, found).min(axis=1) >= 0.02
            if far.any():  # a weak field along a ridge: some are still on their way, and go on from there
                ends[far] = climbs(data.X, p, steps=60_000, from_=ends[far])
            assert distances(ends, found).min(axis=1).max() < 0.02, (
                "a climb ends where no direction was found"
            )
            reached += int((distances(ends, found).min(axis=0) < 0.02).sum())
        total += len(found)
        for u, e in zip(found, group, strict=True):
            assert is_strict_maximum(data.X, p, u), "not a strict local maximum"
            assert e.G == pytest.approx(float(mf.sectors.G(data, u)), abs=1e-12)
            assert e.growing == (value(data.X, p, u[None])[0] > 0)
    return reached, total


def test_in_space_none_missed_none_extra():
    counts = np.array([check_in_space(seed, 400) for seed in range(10)]).sum(axis=0)
    assert counts[0] >= 0.8 * counts[1], "the climbs see too few of the directions to say anything"


@pytest.mark.slow
def test_in_space_none_missed_none_extra_on_fifty_sets():
    counts = np.array([check_in_space(seed, 1500) for seed in range(50)]).sum(axis=0)
    assert counts[0] >= 0.95 * counts[1]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("d", [2, 3])
def test_the_arrangement_and_the_patterns_of_few_agree(seed, d):
    data = cloud(seed, d, 5, 9)
    for sign in (1, -1):
        p = sign * data.y / 2
        ways = [
            [u for u in distinct(way(data.X, p)) if local_kind(data.X, p, u) is Kind.STRICT]
            for way in (arrangement.candidates, search.patterns_of_few)
        ]
        assert len(ways[0]) == len(ways[1])
        if ways[0]:
            assert distances(np.array(ways[0]), np.array(ways[1])).min(axis=1).max() < 1e-9


def test_few_examples_in_many_dimensions_are_complete_and_basins_end_nowhere_else():
    rng = np.random.default_rng(3)
    data = Dataset(rng.standard_normal((12, 5)), np.where(np.arange(12) % 2, 1.0, -1.0))
    found = mf.extremal(data)
    assert found.complete
    assert found.method == "patterns"
    W = rng.standard_normal((2000, 5))
    for sign, group in ((1, found.positive), (-1, found.negative)):
        basins = mf.basins(data, W, sign)
        known = np.array([e.direction for e in group])
        ends = np.array([e.direction for e in basins.limits])
        assert distances(ends, known).min(axis=1).max() < 1e-9
        for u in known:
            assert is_strict_maximum(data.X, sign * data.y / 2, u)


def test_ascents_are_never_called_complete():
    rng = np.random.default_rng(0)
    data = Dataset(rng.standard_normal((40, 8)), np.where(np.arange(40) % 2, 1.0, -1.0))
    found = mf.extremal(data, starts=50)
    assert not found.complete
    assert found.method == "ascents"
    assert found.positive
    for e in found.positive:
        assert is_strict_maximum(data.X, data.y / 2, e.direction)


# --- Lemma 2 ---------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 3), st.integers(3, 10))
def test_lemma_2_is_what_the_enumeration_finds(seed, d, n):
    data = phuong2021(n=n, d=d, seed=seed)
    found = mf.extremal(data)
    assert found.method == "lemma2"
    for sign, group in ((1, found.positive), (-1, found.negative)):
        p = sign * data.y / 2
        seen = [
            u for u in distinct(arrangement.candidates(data.X, p)) if local_kind(data.X, p, u) is Kind.STRICT
        ]
        assert len(seen) == len(group) == 1
        np.testing.assert_allclose(seen[0], group[0].direction, atol=1e-10)
        np.testing.assert_array_equal(group[0].sector, lemma2(data, sign))
        np.testing.assert_array_equal(group[0].sector, mf.sectors.sector(data, group[0].direction))


def test_an_opposite_example_orthogonal_to_the_whole_class_has_entry_0():
    # (0, -2) is orthogonal to the only positive direction, (-1, -1) is not.
    data = Dataset([[1.0, 0.0], [3.0, 0.0], [0.0, -2.0], [-1.0, -1.0]], [1, 1, -1, -1])
    np.testing.assert_array_equal(lemma2(data, 1), [1, 1, 0, -1])
    np.testing.assert_array_equal(lemma2(data, -1), [-1, -1, 1, 1])
    found = mf.extremal(data)
    np.testing.assert_array_equal(found.positive[0].sector, [1, 1, 0, -1])
    np.testing.assert_allclose(found.positive[0].direction, [1, 0])
    p = data.y / 2
    assert is_strict_maximum(data.X, p, found.positive[0].direction)
    # The enumeration, which knows no lemma, agrees in spite of the tie.
    seen = [u for u in distinct(arrangement.candidates(data.X, p)) if local_kind(data.X, p, u) is Kind.STRICT]
    np.testing.assert_allclose(seen, [[1, 0]], atol=1e-12)


def test_lemma_2_on_the_family_of_the_paper():
    data = phuong2021(n=500, d=20, seed=0)
    found = mf.extremal(data)
    assert found.complete
    assert [len(found.positive), len(found.negative)] == [1, 1]
    np.testing.assert_array_equal(found.positive[0].sector, data.y)
    np.testing.assert_array_equal(found.negative[0].sector, -data.y)


# --- strictness in special position ----------------------------------------------------------------------


def test_a_saddle_at_an_orthogonal_example_of_the_same_class_is_no_maximum():
    X, p = np.eye(2), np.array([0.5, 0.5])
    assert local_kind(X, p, np.array([1.0, 0.0])) is Kind.NONE
    assert local_kind(X, p, np.array([1.0, 1.0]) / np.sqrt(2)) is Kind.STRICT


def test_the_plateau_of_dead_directions_holds_no_extremal_direction():
    data = Dataset([[1.0, 0.1], [1.0, -0.1], [0.9, 0.3]], [1, -1, 1])
    assert local_kind(data.X, data.y / 2, np.array([-1.0, 0.0])) is Kind.NONE
    assert local_kind(data.X, -data.y / 2, np.array([-1.0, 0.0])) is Kind.NONE


@pytest.mark.parametrize("seed", range(5))
def test_data_in_a_plane_of_space(seed):
    flat = cloud(seed, 2)
    data = Dataset(
        np.c_[flat.X, np.zeros(flat.n)]
        @ np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0],
        flat.y,
    )
    for sign, plane, space in zip(
        (1, -1), *[(f.positive, f.negative) for f in map(mf.extremal, (flat, data))], strict=True
    ):
        # In space a pinned direction of the plane gains by leaving it; the growing ones stay maxima.
        assert [e.G for e in plane if e.growing] == pytest.approx([e.G for e in space])
        assert all(is_strict_maximum(data.X, sign * data.y / 2, e.direction) for e in space)


def test_one_dimension():
    found = mf.extremal(Dataset([[1.0], [2.0], [-1.0]], [1, 1, -1]))
    assert [e.direction.tolist() for e in found.positive] == [[1.0]]
    assert [e.direction.tolist() for e in found.negative] == [[-1.0]]


@given(st.integers(0, 10**6))
def test_relabelling_swaps_the_signs_and_rotation_carries_along(seed):
    data = cloud(seed, 2)
    swapped = mf.extremal(Dataset(data.X, -data.y))
    found = mf.extremal(data)
    assert [e.G for e in found.positive] == pytest.approx([-e.G for e in swapped.negative])
    c, s = circle(360)[seed % 360]
    turned = mf.extremal(Dataset(data.X @ np.array([[c, s], [-s, c]]), data.y))
    assert [e.G for e in found.positive] == pytest.approx([e.G for e in turned.positive])


def test_weights_replace_the_slope_of_the_loss():
    data = cloud(1, 3)
    halves = mf.extremal(data, weights=np.full(data.n, 0.5))
    assert [e.G for e in halves.positive] == pytest.approx([e.G for e in mf.extremal(data).positive])
    alone = np.zeros(data.n)
    alone[data.positive[0]] = 1.0
    only = mf.extremal(data, weights=alone)
    x = data.X[data.positive[0]]
    assert len(only.positive) == 1
    np.testing.assert_allclose(only.positive[0].direction, x / np.linalg.norm(x))


def test_weights_are_checked():
    with pytest.raises(InputError, match="weights"):
        mf.extremal(cloud(0, 2), weights=np.full(3, -1.0))


# --- the command -----------------------------------------------------------------------------------------


def test_the_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["extremal", "phuong2021:n=30,d=3,seed=1", "--json"])
    assert stop.value.code == 0
    out = json.loads(capsys.readouterr().out)
    assert out["complete"] is True
    assert set(out["positive"][0]) >= {"direction", "sector", "G"}
    assert len(out["positive"][0]["sector"]) == 30
    assert out["negative"][0]["G"] < 0 < out["positive"][0]["G"]


def test_strict_wants_every_direction(capsys):
    for family, code in (("phuong2021:n=30,d=3,seed=1", 0), ("chizat2020:n=40,d=6,k=3,seed=0", 1)):
        with pytest.raises(SystemExit) as stop:
            main(["extremal", family, "--starts", "4", "--json", "--strict"])
        assert stop.value.code == code == int(not json.loads(capsys.readouterr().out)["complete"])
