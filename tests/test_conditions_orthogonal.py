"""Orthogonal separability: against the definition in fractions, on zeros, rounding, planted pairs and scale."""

import functools

import numpy as np
import pytest
from cases import having
from hypothesis import given
from hypothesis import strategies as st

import marginflow as mf
from marginflow._core import exact
from marginflow.conditions import certificates, cones, device_scan
from marginflow.conditions import orthogonal_separability as module
from marginflow.conditions.orthogonal_separability import orthogonal_separability, rounding_level
from marginflow.conditions.unit_rows import Cosines, cosine_error, unit_rows


def violations(data: mf.Dataset, tolerance: float = 0.0) -> set[tuple[int, int]]:
    """From the definition, in fractions."""
    return {(i, j) for j in range(data.n) for i in range(j)
            if exact.cosine_above(data.X[i], data.X[j], tolerance) != (data.y[i] == data.y[j])}


def random_data(seed: int, dtype=np.float64) -> mf.Dataset:
    """Small sets of five kinds: integer zeros, cones of all widths, disjoint supports, extreme scales, orthants."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 24)), int(rng.integers(1, 5))
    y = rng.permutation(np.where(np.arange(n) < n // 2, 1.0, -1.0))
    kind = seed % 5
    if kind == 0:
        X = y[:, None] * rng.integers(0, 3, (n, d))
        X[:, 0] = y * rng.integers(seed % 2, 3, n)
    elif kind == 1:
        X = y[:, None] * (np.eye(d)[0] + rng.uniform(0.2, 1.3) * rng.standard_normal((n, d)) / np.sqrt(d))
    else:
        X = np.zeros((n, 2 * d))
        for side, columns in ((y > 0, slice(0, d)), (y < 0, slice(d, 2 * d))):
            X[side, columns] = np.abs(rng.standard_normal((side.sum(), d)))
        if kind == 3:
            X *= 2.0 ** rng.integers(-30, 30, (n, 1)) if dtype == np.float32 else 2.0 ** rng.integers(-800, 800, (n, 1))
        if kind == 4:
            X -= 0.05 * rng.standard_normal(X.shape)
    X[~X.any(axis=1)] = 1.0
    return mf.Dataset(X.astype(dtype), y)


@pytest.mark.parametrize("case", having("orthogonally_separable"), ids=str)
def test_known_cases(case):
    condition = orthogonal_separability(case.data)
    assert condition.status == ("holds" if case.facts["orthogonally_separable"] else "fails")
    if "violation" in case.facts:
        assert tuple(condition.witness["rows"]) == case.facts["violation"]
    assert certificates.recheck(case.data, condition)


@pytest.mark.parametrize("pruned", [False, True, "device"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("tolerance", [0.0, 1e-3, 0.3])
def test_agrees_with_the_definition(pruned, dtype, tolerance, monkeypatch):
    if pruned:  # small sets are looked at in full; make them go the way of large ones
        monkeypatch.setattr(module, "ALL_PAIRS", 0)
        monkeypatch.setattr(module, "LOOKED_AT", 1)
        monkeypatch.setattr(cones, "WORTH", 0)
    if pruned == "device":
        monkeypatch.setattr(device_scan, "worth_it", lambda pairs: pairs > 0)
        monkeypatch.setattr(device_scan, "tiles", functools.partial(device_scan.tiles, tile=4))
    answers = set()
    for seed in range(40):
        data = random_data(seed, dtype)
        truth = violations(data, tolerance)
        first, everything = (orthogonal_separability(data, tolerance, all_violations=flag) for flag in (False, True))
        assert first.status == everything.status == ("fails" if truth else "holds"), seed
        assert {(i, j) for _, i, j in everything.witness["pairs"]} == truth, seed
        assert everything.witness["violations"] == len(truth)
        assert not truth or tuple(first.witness["rows"]) in truth
        answers.add(first.status)
    assert len(answers) == 2


@given(st.integers(0, 10_000))
def test_permuting_rows_and_swapping_classes_changes_nothing(seed):
    data = random_data(seed)
    order = np.random.default_rng(seed).permutation(data.n)
    status = orthogonal_separability(data).status
    assert orthogonal_separability(data.take(order)).status == status
    assert orthogonal_separability(mf.Dataset(data.X, -data.y)).status == status
    # A power of two per row is exact and changes no sign.
    factor = 2.0 ** np.random.default_rng(seed).integers(-20, 20, (data.n, 1))
    assert orthogonal_separability(mf.Dataset(data.X * factor, data.y)).status == status


def disjoint(zero_inside: bool = False) -> mf.Dataset:
    """Integers; cross products exactly 0: the classes live on different coordinates, mixed by a Hadamard matrix."""
    H = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], float)
    A = np.array([[1, 2, 0, 0], [2, 1, 0, 0], [3, 1, 0, 0], [0, 0, 1, 1], [0, 0, 2, 1]], float)
    if zero_inside:
        A[0], A[1] = [2, -1, 0, 0], [1, 2, 0, 0]
        A[2] = [3, 1, 0, 0]
    return mf.Dataset(A @ H, [1, 1, 1, -1, -1])


def test_exact_zeros_across_hold_and_within_fail():
    data = disjoint()
    assert ((data.X @ data.X.T)[:3, 3:] == 0).all()
    condition = orthogonal_separability(data)
    assert (condition.status, condition.slack) == ("holds", 0.0)
    broken = orthogonal_separability(disjoint(zero_inside=True))
    assert (broken.status, broken.witness["rows"], broken.witness["product"]) == ("fails", [0, 1], 0.0)
    assert broken.slack == 0.0


def test_where_naive_float64_gets_the_sign_wrong():
    # x·z = 2^54 + 1 - 2^54 = 1 > 0, computed as 0; and with -1 the other way round.
    x, z = np.array([2.0**27, 1.0, 2.0**27]), np.array([2.0**27, 1.0, -(2.0**27)])
    assert sum(x * z) == 0.0
    below = z * [1, -1, 1]
    for second, within, across in ((z, "holds", "fails"), (below, "fails", "holds")):
        third = -x - second
        far = mf.Dataset([x, second, third], [1, 1, -1])
        assert orthogonal_separability(far).status == within
        assert (orthogonal_separability(mf.Dataset([x, second], [1, -1])).status) == across


def test_lost_zeros_rest_on_rounding_and_the_tolerance_is_named():
    data = disjoint()
    rng = np.random.default_rng(3)
    turned = (mf.Dataset(data.X @ np.linalg.qr(rng.standard_normal((4, 4)))[0], data.y) for _ in range(100))
    rotated = next(r for r in turned if violations(r))  # which rotation loses a zero to the wrong side is up to BLAS
    condition = orthogonal_separability(rotated)
    assert condition.status == "fails"
    assert "rests on rounding" in condition.notes[0]
    T = condition.witness["holds_with_tolerance"]
    assert 0 < T <= rounding_level(rotated)
    assert repr(T) in condition.notes[0]
    accepted = orthogonal_separability(rotated, tolerance=T)
    assert (accepted.status, accepted.tolerance) == ("holds", T)
    assert any("tolerance" in note for note in accepted.notes)
    assert orthogonal_separability(rotated, tolerance=T * (1 - 1e-6)).status == "fails"
    assert not violations(rotated, T)
    assert violations(rotated, T * (1 - 1e-6))


def test_no_tolerance_rescues_a_lost_zero_within_a_class():
    data = disjoint(zero_inside=True)
    for seed in range(20):
        Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]
        rotated = mf.Dataset(data.X @ Q, data.y)
        if not exact.cosine_above(rotated.X[0], rotated.X[1], 0.0) and (rotated.X[0] @ rotated.X[1]) != 0:
            condition = orthogonal_separability(rotated)
            assert condition.status == "fails"
            assert "holds_with_tolerance" not in condition.witness
            return
    pytest.fail("no rotation moved the zero below 0")


def test_a_clear_violation_is_not_called_rounding():
    condition = orthogonal_separability(mf.Dataset([[1.0, 0.0], [0.1, 1.0]], [1, -1]))
    assert (condition.status, condition.notes) == ("fails", ())
    assert condition.slack == pytest.approx(-0.1 / np.sqrt(1.01), rel=1e-12)


def narrow(n: int, d: int, spread: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = spread * rng.standard_normal((n, d)) / np.sqrt(d)
    X[:, 0] += 1.0
    return X


def test_a_planted_pair_is_found_among_pruned_ones():
    n, d = 6000, 10
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = np.abs(np.random.default_rng(0).standard_normal((n, d))) * y[:, None]
    clean = orthogonal_separability(mf.Dataset(X, y))
    assert clean.status == "holds"
    assert clean.witness["pairs_examined"] < 0.6 * clean.witness["pairs_total"]
    assert 0 <= clean.witness["slack_at_least"] + 1e-12 <= clean.slack + 1e-12
    X[40], X[4042] = np.arange(d) < 5, np.arange(d) >= 5
    X[4042, 0] = -1e-9
    broken = orthogonal_separability(mf.Dataset(X, y))
    assert (broken.status, broken.witness["rows"]) == ("fails", [40, 4042])


def test_pairs_are_counted_once_and_parallel_rows_are_a_pair():
    data = mf.Dataset([[1.0, 0], [2, 0], [3, 0], [-1, 0], [-2, 0]], [1, 1, 1, -1, -1])
    witness = orthogonal_separability(data).witness
    assert witness["pairs_examined"] == witness["pairs_total"] == 10
    i, j = witness["same_class"]["rows"]
    assert i != j
    assert data.y[i] == data.y[j]
    assert witness["same_class"]["cosine"] == 1
    several = mf.data.phuong2021(n=1500, d=5)  # in several blocks, some of them on the diagonal
    witness = orthogonal_separability(several).witness
    assert witness["pairs_examined"] == witness["pairs_total"]


def test_narrow_cones_need_no_pairs_and_the_bound_is_below_every_cosine():
    n = 3000
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    data = mf.Dataset(narrow(n, 30) * y[:, None], y)
    condition = orthogonal_separability(data)
    assert condition.witness["pairs_examined"] <= 3 * module.LOOKED_AT**2
    signed = unit_rows(data.X) * y[:, None]
    smallest = (signed @ signed.T).min()
    assert 0 < condition.witness["slack_at_least"] <= smallest <= condition.slack + 1e-12


def test_a_better_axis_than_the_mean_is_found():
    # Most rows on one side of the cone: the mean is 56° from the others, but no two rows are more than 86° apart.
    rng = np.random.default_rng(0)
    angle = np.radians(np.concatenate([np.full(2000, 42.0), np.full(1000, -42.0)]) + rng.uniform(-0.5, 0.5, 3000))
    X = np.stack([np.cos(angle), np.sin(angle), 0.01 * rng.standard_normal(3000)], axis=1)
    y = np.ones(3000)
    y[:50] = y[-50:] = -1.0
    cosine = unit_rows(X) @ unit_rows(X[y > 0].mean(axis=0)[None])[0]
    assert (2 * np.degrees(np.arccos(cosine)) > 100).sum() >= 950, "the mean alone must leave many pairs"
    within, _, across = cones.corners(X * y[:, None], y, 0.0)
    assert within.pairs == across.pairs == 0


def test_memory_mapped_rows(tmp_path):
    data = random_data(11)
    np.save(tmp_path / "X.npy", data.X)
    mapped = mf.Dataset(np.load(tmp_path / "X.npy", mmap_mode="r"), data.y)
    assert isinstance(mapped.X, np.memmap)
    assert orthogonal_separability(mapped).witness == orthogonal_separability(data).witness


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_error_bound_of_cosines_holds(dtype):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((60, 40)) * 10.0 ** rng.integers(-8, 8, (60, 40))).astype(dtype)
    side = cones.Side(np.arange(60), np.full(60, np.pi))
    for I, J, P, _, _ in Cosines(X).blocks(side, side, 0.0):
        for i, j in zip(*(k.ravel()[::7] for k in np.meshgrid(I, J, indexing="ij")), strict=True):
            at = np.searchsorted(I, i), np.searchsorted(J, j)
            assert abs(float(P[at]) - exact.cosine(X[i], X[j])) <= cosine_error(40, dtype)


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_tolerances_that_make_no_sense(tolerance):
    with pytest.raises(mf.InputError, match="tolerance"):
        orthogonal_separability(random_data(1), tolerance=tolerance)


@pytest.mark.slow
def test_a_million_rows():
    import tracemalloc

    n, d = 1_000_000, 50
    rng = np.random.default_rng(0)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = np.abs(rng.standard_normal((n, d), dtype=np.float32)).astype(np.float64) * y[:, None]
    for planted in (False, True):
        if planted:
            X[123_456], X[999_990] = np.arange(d) < 25, np.arange(d) >= 25
            X[999_990, 0] = -1e-6
        data = mf.Dataset(X, y)
        tracemalloc.start()
        condition = orthogonal_separability(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**30
        assert condition.status == ("fails" if planted else "holds")
        assert condition.witness.get("rows") == ([123_456, 999_990] if planted else None)
