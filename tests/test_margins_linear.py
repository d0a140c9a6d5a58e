"""Linear and per-class margins: laws, exact oracles, agreement with other solvers, degenerate input."""

from fractions import Fraction

import numpy as np
import pytest
from cases import CASES, having
from hypothesis import given
from hypothesis import strategies as st
from margin_oracles import attained, clarabel_margin, combined, signed, squared_distance_to_hull

import marginflow as mf
from marginflow import Outcome
from marginflow.margins import certificates, hull, rows

KINDS = ("linear", "positive", "negative")
SOLVERS = {kind: getattr(mf.margins, kind) for kind in KINDS}


def random_problem(seed: int) -> tuple[mf.Dataset, bool]:
    """A small problem of one of several shapes: separable or not, repeated rows, integer rows, norms 1e-2 to 1e2."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 30)), int(rng.integers(1, 12))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2, 2, size=(n, 1))
    y = np.sign(X @ rng.standard_normal(d)) if seed % 3 == 0 else rng.choice([-1.0, 1.0], n)
    if seed % 5 == 0:
        X[-1] = X[0]
    if seed % 7 == 0:
        X = np.round(3 * X)
    X[~X.any(axis=1)] = 1.0
    if len(np.unique(y)) < 2:
        y[0] = -y[0]
    return mf.Dataset(X, y), bool(seed % 2)


def recheck(m, Z: np.ndarray, index: np.ndarray) -> None:
    """The witnesses of a Margin in exact rational arithmetic, with no help from the library."""
    assert m.dual is not None
    off = np.setdiff1d(np.arange(len(m.dual)), index)
    assert (m.dual >= 0).all()
    assert not m.dual[off].any()
    assert m.dual.sum() == pytest.approx(1)
    square, total = combined(Z, m.dual[index])
    if m.separable:
        least, length = attained(Z, m.vector)
        assert 0 < Fraction(m.lower_bound)
        assert Fraction(m.lower_bound) ** 2 * length <= least**2
        assert least > 0
        assert square <= Fraction(m.upper_bound) ** 2 * total**2
        assert m.lower_bound <= m.value <= m.upper_bound
        assert m.certified == (m.gap <= 1e-9)
    elif m.separable is False:
        kernel = certificates.null_combination(Z[m.dual[index] > 0])
        assert kernel is not None
        assert min(kernel) > 0
        for column in zip(*Z[m.dual[index] > 0], strict=True):
            assert sum(a * Fraction(float(x)) for a, x in zip(kernel, column, strict=True)) == 0
        np.testing.assert_allclose(m.dual[index][m.dual[index] > 0], [float(a) for a in kernel], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", having("linear_margin"), ids=str)
def test_margins_known_by_hand(case, kind):
    m = SOLVERS[kind](case.data)
    known = case.facts[f"{kind}_margin"]
    assert m.certified
    assert m.outcome is Outcome.CONVERGED
    assert m.value == pytest.approx(known, rel=1e-13)
    assert m.lower_bound <= known * (1 + 4e-16)
    assert known <= m.upper_bound * (1 + 4e-16)


@pytest.mark.parametrize("case", having("separable"), ids=str)
def test_separability_known_by_construction(case):
    m = mf.margins.linear(case.data)
    assert m.separable is case.facts["separable"]
    assert m.certified
    if "contradiction" in case.facts:
        assert m.contradictory == case.facts["contradiction"]


@pytest.mark.parametrize("seed", range(40))
def test_interval_encloses_the_exact_margin(seed):
    """Small integer problems, solved in rational arithmetic over all faces of the hull."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    X = rng.integers(-4, 5, size=(n, d)).astype(float)
    X[~X.any(axis=1)] = 1.0
    data = mf.Dataset(X, np.where(np.arange(n) % 2 == 0, 1.0, -1.0))
    for kind in KINDS:
        m = SOLVERS[kind](data)
        square = squared_distance_to_hull(signed(data, kind))
        assert m.certified
        assert m.separable == (square > 0)
        assert Fraction(m.lower_bound) ** 2 <= square <= Fraction(m.upper_bound) ** 2


@pytest.mark.parametrize("block", range(10))
def test_two_hundred_problems_against_the_full_cone_program(block):
    for seed in range(20 * block, 20 * block + 20):
        data, bias = random_problem(seed)
        for kind in KINDS:
            m = SOLVERS[kind](data, bias=bias)
            Z = signed(data, kind, bias)
            index = {"linear": np.arange(data.n), "positive": data.positive, "negative": data.negative}[kind]
            recheck(m, Z, index)
            value, status = clarabel_margin(Z)
            assert m.separable is not None, (seed, kind)
            if value is not None:
                assert m.separable
                assert m.value == pytest.approx(value, rel=1e-8), (seed, kind)
            elif "PrimalInfeasible" in status:
                assert m.separable is False, (seed, kind)


def test_linear_svc_agrees():
    svm = pytest.importorskip("sklearn.svm")
    data = mf.data.phuong2021(n=60, d=4, seed=3)
    for bias in (False, True):
        w = mf.margins.linear(data, bias=bias).vector
        X = signed(data, "linear", bias) * data.y[:, None]
        flat = svm.LinearSVC(C=1e6, loss="hinge", fit_intercept=False, tol=1e-12, max_iter=2_000_000).fit(
            X, data.y
        )
        np.testing.assert_allclose(flat.coef_[0], w, rtol=1e-8, atol=1e-8 * np.linalg.norm(w))


def test_svc_agrees():
    """SVC's intercept is free; on data symmetric under (x, y) -> (-x, -y) its best value is 0 by convexity."""
    svm = pytest.importorskip("sklearn.svm")
    half = mf.data.phuong2021(n=40, d=4, seed=5)
    data = mf.Dataset(np.concatenate([half.X, -half.X]), np.concatenate([half.y, -half.y]))
    flat = svm.SVC(kernel="linear", C=1e8, tol=1e-10).fit(data.X, data.y)
    m = mf.margins.linear(data)
    np.testing.assert_allclose(flat.coef_[0], m.vector, rtol=1e-8, atol=1e-8 * np.linalg.norm(m.vector))


def test_the_identity_between_primal_and_dual():
    data = mf.data.phuong2021(n=500, d=20, seed=0)
    for kind in KINDS:
        m = SOLVERS[kind](data)
        Z = data.y[:, None] * data.X if kind == "linear" else data.X
        np.testing.assert_allclose(m.vector @ m.vector * (m.dual @ Z), m.vector, rtol=1e-11)
        assert set(np.flatnonzero(m.dual)) <= set(m.support)
        assert m.gap <= 1e-13


@given(st.integers(0, 10**6), st.integers(-400, 400), st.sampled_from(KINDS))
def test_scaling_the_data_scales_the_margin(seed, exponent, kind):
    data = mf.data.phuong2021(n=12, d=3, seed=seed)
    scale = 2.0**exponent  # exact, so nothing else may change
    base, scaled = SOLVERS[kind](data), SOLVERS[kind](mf.Dataset(data.X * scale, data.y))
    assert scaled.certified
    assert scaled.value == pytest.approx(base.value * scale, rel=1e-13)
    np.testing.assert_allclose(scaled.vector * scale, base.vector, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(scaled.support, base.support)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_scale_free(scale, kind):
    data = mf.data.phuong2021(n=200, d=10, seed=1)
    base, scaled = SOLVERS[kind](data), SOLVERS[kind](mf.Dataset(data.X * scale, data.y))
    assert scaled.certified
    assert scaled.value / scale == pytest.approx(base.value, rel=1e-12)
    np.testing.assert_array_equal(scaled.support, base.support)


@given(st.integers(0, 10**6))
def test_rotation_permutation_and_label_flip(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(3, 15)), int(rng.integers(2, 6))
    X = rng.standard_normal((n, d))
    y = np.sign(X @ rng.standard_normal(d) + 1e-9)
    y[0], y[1] = 1.0, -1.0
    base = mf.margins.linear(mf.Dataset(X, y))
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    order = rng.permutation(n)
    other = mf.margins.linear(mf.Dataset((X @ Q.T)[order], y[order]))
    flipped = mf.margins.linear(mf.Dataset(X, -y))
    assert base.separable == other.separable == flipped.separable
    if base.separable and base.certified:
        assert other.value == pytest.approx(base.value, rel=1e-9)
        np.testing.assert_allclose(
            other.vector, Q @ base.vector, rtol=1e-6, atol=1e-6 * np.linalg.norm(base.vector)
        )
        np.testing.assert_allclose(
            flipped.vector, -base.vector, rtol=1e-9, atol=1e-9 * np.linalg.norm(base.vector)
        )
    mirrored = mf.Dataset(X, -y)
    assert mf.margins.positive(mirrored).value == mf.margins.negative(mf.Dataset(X, y)).value


def test_repeated_rows_change_nothing():
    data = mf.data.phuong2021(n=40, d=5, seed=0)
    again = mf.Dataset(np.repeat(data.X, 30, axis=0), np.repeat(data.y, 30))
    for kind in KINDS:
        one, many = SOLVERS[kind](data), SOLVERS[kind](again)
        assert many.certified
        assert many.value == pytest.approx(one.value, rel=1e-13)
        np.testing.assert_array_equal(np.unique(many.support // 30), one.support)


def test_collinear_support_vectors():
    X = np.array([[1.0, t] for t in range(-8, 9)] + [[-1.0, t] for t in range(-8, 9)])
    m = mf.margins.linear(mf.Dataset(X, np.sign(X[:, 0])))
    assert m.certified
    assert m.value == pytest.approx(1.0, rel=1e-14)
    assert len(m.support) == len(X)
    np.testing.assert_allclose(m.vector, [1, 0], atol=1e-13)


def test_one_example_per_class():
    X = np.array([[3.0, 4.0], [-1.0, 2.0]])
    data = mf.Dataset(X, [1, -1])
    assert mf.margins.positive(data).value == pytest.approx(5.0, rel=1e-14)
    assert mf.margins.negative(data).value == pytest.approx(5**0.5, rel=1e-14)
    np.testing.assert_allclose(mf.margins.positive(data).vector, X[0] / 25, rtol=1e-14)


def test_more_columns_than_rows_agrees_with_the_dual_solved_densely():
    data = mf.data.gaussian_mixture(n=30, d=3000, seed=2)
    m = mf.margins.linear(data)
    assert m.certified
    assert m.gap < 1e-12
    # d >> n: all constraints are active, so w solves Zw = 1 with least norm.
    Z = signed(data, "linear")
    np.testing.assert_allclose(m.vector, np.linalg.pinv(Z) @ np.ones(30), rtol=1e-9, atol=1e-12)


def with_relative_margin(margin: float, n: int, d: int, seed: int) -> np.ndarray:
    """Unit vectors orthogonal to e_1 with `margin` (and a little more) added along it."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d))
    Z[:, 0] = 0
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    Z[:, 0] = margin * (1 + rng.random(n))
    return Z


@pytest.mark.parametrize("margin", [1e-3, 1e-6, 1e-9, 1e-12, 1e-14])
@pytest.mark.parametrize("seed", range(3))
def test_tiny_margins_are_right_or_not_certified(margin, seed):
    Z = with_relative_margin(margin, 6, 3, seed)
    y = np.where(np.arange(6) % 2 == 0, 1.0, -1.0)
    m = mf.margins.linear(mf.Dataset(y[:, None] * Z, y))
    square = squared_distance_to_hull(Z)
    assert m.separable is not False
    assert Fraction(m.lower_bound) ** 2 <= square <= Fraction(m.upper_bound) ** 2
    assert m.certified == (m.gap <= 1e-9)
    if m.certified:
        assert m.value == pytest.approx(float(square) ** 0.5, rel=1e-9)


def test_rows_of_very_different_norms():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 10))
    y = np.sign(X @ rng.standard_normal(10))
    X *= 10.0 ** rng.uniform(-6, 6, size=(200, 1))
    m = mf.margins.linear(mf.Dataset(X, y))
    assert m.separable
    assert m.certified
    recheck(m, y[:, None] * X, np.arange(200))


def test_zero_in_the_hull_of_a_single_class():
    data = mf.Dataset([[1.0, 0], [-1, 0], [0, 1.0], [2, 1]], [1, 1, 1, -1])
    m = mf.margins.positive(data)
    assert m.separable is False
    assert m.certified
    assert m.contradictory == (0, 1)
    assert m.vector is None
    assert m.outcome is Outcome.INFEASIBLE
    assert mf.margins.negative(data).separable


def test_a_contradiction_is_called_by_its_name():
    """z_i = -z_j has two readings; a bias leaves only one of them."""
    equal = mf.Dataset([[1.0, 2], [0, 1], [1, 2]], [1, 1, -1])
    opposite = mf.Dataset([[1.0, 2], [2, -1], [-1, -2]], [1, -1, 1])
    for data, bias, words in (
        (equal, False, "equal points with different labels"),
        (equal, True, "equal points with different labels"),
        (opposite, False, "opposite points with the same label"),
    ):
        m = mf.margins.linear(data, bias=bias)
        assert m.contradictory == (0, 2)
        assert m.message.startswith(f"rows 0 and 2 are {words}")
        if not bias:
            witness = mf.check(data).conditions["linear_separability"].witness
            assert (witness["kind"], witness["rows"]) == (words, [0, 2])
    assert mf.margins.linear(opposite, bias=True).contradictory is None
    assert "opposite points with the same label" in mf.margins.positive(opposite).message


@pytest.mark.parametrize("d", [12, 90])
def test_not_separable_is_proved_exactly_or_by_enclosure(d):
    rng = np.random.default_rng(d)
    data = mf.Dataset(rng.standard_normal((6 * d, d)), rng.choice([-1.0, 1.0], 6 * d))
    m = mf.margins.linear(data)
    assert m.separable is False
    assert m.certified
    assert np.linalg.norm(m.dual @ signed(data, "linear")) < 1e-13


@pytest.mark.parametrize("seed", range(6))
def test_the_start_for_large_problems_leads_to_the_same_answers(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n, d = 60 + 40 * seed, 5 + 7 * seed
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, size=(n, 1))
    data = mf.Dataset(X, np.sign(X @ rng.standard_normal(d) + (3.0 if seed % 2 else 0.0)))
    usual = mf.margins.linear(data)
    monkeypatch.setattr(hull, "LARGE", 0)
    monkeypatch.setattr(hull, "FEW", 1)
    monkeypatch.setattr(hull, "_interior_point", None)
    large = mf.margins.linear(data)
    assert large.separable == usual.separable == (seed % 2 == 0)
    assert large.certified
    assert large.value == pytest.approx(usual.value, rel=1e-9)
    if large.separable:
        np.testing.assert_allclose(
            large.vector, usual.vector, rtol=1e-7, atol=1e-9 * np.abs(usual.vector).max()
        )
    else:
        assert np.abs((np.asarray(large.dual) * data.y) @ data.X).max() < 1e-12


def test_an_interior_point_that_is_stopped_early_proves_nothing_false(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    data = mf.Dataset(X, np.sign(X @ rng.standard_normal(6)))
    right = mf.margins.linear(data)
    start = hull.dense_interior_point
    monkeypatch.setattr(hull, "LARGE", 0)
    monkeypatch.setattr(hull, "FEW", 1)
    monkeypatch.setattr(hull, "ROUNDS_WORK", 0)
    monkeypatch.setattr(hull, "dense_interior_point", lambda unit, b: start(unit, b, rounds=1))
    starved = mf.margins.linear(data)
    assert starved.lower_bound <= right.upper_bound
    assert starved.upper_bound >= right.lower_bound
    assert starved.separable in (True, None)


def test_what_cannot_be_proved_is_left_open():
    """Rank 8 up to rounding, in R^30: rounding may have made these rows separable, and no proof decides it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 8)) @ rng.standard_normal((8, 30))
    m = mf.margins.linear(mf.Dataset(X, rng.choice([-1.0, 1.0], 80)))
    assert m.separable is None
    assert not m.certified
    assert m.outcome is Outcome.STALLED
    assert m.lower_bound == 0
    assert m.upper_bound < 1e-12


def test_blocks_files_and_single_precision(tmp_path, monkeypatch):
    data = mf.data.phuong2021(n=700, d=6, seed=4)
    whole = {kind: SOLVERS[kind](data, bias=True) for kind in KINDS}
    monkeypatch.setattr(rows, "BLOCK_BYTES", 4096)
    np.save(tmp_path / "X.npy", data.X)
    mapped = mf.Dataset(np.load(tmp_path / "X.npy", mmap_mode="r"), data.y)
    for kind in KINDS:
        m = SOLVERS[kind](mapped, bias=True)
        assert m.value == pytest.approx(whole[kind].value, rel=1e-14)
        np.testing.assert_array_equal(m.support, whole[kind].support)
    single = mf.Dataset(data.X.astype(np.float32), data.y)
    m = mf.margins.linear(single)
    assert m.certified
    recheck(m, signed(single, "linear"), np.arange(data.n))


def test_many_rows_keep_a_small_working_set():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60_000, 10))
    X[:, 0] = np.abs(X[:, 0]) + 0.1
    y = rng.choice([-1.0, 1.0], 60_000)
    m = mf.margins.linear(mf.Dataset(X * y[:, None], y))
    assert m.certified
    assert m.gap < 1e-12
    assert m.steps < 200


def test_the_record_prints_and_serialises():
    import json

    m = mf.margins.linear(CASES["plane"].data)
    assert "certified" in str(m)
    assert "<table>" in m._repr_html_()
    document = json.loads(json.dumps(m.to_json(), allow_nan=False))
    assert {
        "value",
        "lower_bound",
        "upper_bound",
        "certified",
        "vector",
        "support",
        "dual",
        "neurons",
    } <= set(document)
