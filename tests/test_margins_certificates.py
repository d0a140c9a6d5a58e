"""The certificates against exact arithmetic, and against solutions that have been tampered with."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margin_oracles import attained, combined, squared_distance_to_hull

import marginflow as mf
from marginflow.margins import certificates
from marginflow.margins.rows import SignedRows, signed_rows


def as_rows(Z) -> SignedRows:
    Z = np.asarray(Z, dtype=np.float64)
    return SignedRows(Z, np.arange(len(Z)), np.ones(len(Z)), False)


@given(st.integers(0, 10**9), st.integers(1, 40), st.integers(0, 16))
def test_doubled_dot_products_stay_inside_their_bound(seed, d, cancel):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((3, d)) * 10.0 ** rng.uniform(-8, 8, size=(3, d))
    b = rng.standard_normal(d)
    if d > 1:  # make the first row nearly orthogonal to b, down to total cancellation
        A[0] -= (A[0] @ b) / (b @ b) * b * (1 - 10.0**-cancel)
    value, bound = certificates.dot2(A, b)
    for row, v, e in zip(A, value, bound, strict=True):
        exact = sum(Fraction(x) * Fraction(y) for x, y in zip(row.tolist(), b.tolist(), strict=True))
        assert abs(Fraction(float(v)) - exact) <= Fraction(float(e))
        assert e <= 2e-16 * abs(v) + 1e-28 * (np.abs(row) @ np.abs(b)) * d


@given(st.integers(0, 10**9), st.floats(-14, 0))
def test_both_bounds_hold_for_any_vectors(seed, tightness):
    """Whatever w and α are claimed: the lower bound is at most the margin w attains, the upper at least ‖Σ α_i z_i‖."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 8)), int(rng.integers(1, 5))
    Z = rng.standard_normal((n, d))
    Z[:, 0] = np.abs(Z[:, 0]) * 10.0**tightness + 10.0**tightness
    w = np.eye(d)[0] + 10.0**tightness * rng.standard_normal(d)
    alpha = rng.dirichlet(np.ones(n))
    low, high = (
        certificates.margin_from_below(as_rows(Z), w),
        certificates.margin_from_above(as_rows(Z), alpha),
    )
    least, length = attained(Z, w)
    if low > 0:
        assert least > 0
        assert Fraction(low) ** 2 * length <= least**2
        assert Fraction(low) ** 2 * length >= least**2 * Fraction(0.999) or float(least) < 1e-12
    else:
        assert least <= 0 or float(least) < 1e-12
    square, total = combined(Z, alpha)
    assert square <= Fraction(high) ** 2 * total**2
    distance = squared_distance_to_hull(Z)
    assert (Fraction(low) ** 2 if low > 0 else 0) <= distance <= Fraction(high) ** 2


PROBLEM = mf.data.phuong2021(n=80, d=6, seed=2)


@pytest.mark.parametrize("kind", ["linear", "positive", "negative"])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1e-1])
def test_a_perturbed_solution_is_refused(kind, size):
    rows = signed_rows(PROBLEM, kind, False)
    good = getattr(mf.margins, kind)(PROBLEM)
    alpha = good.dual[rows.index]
    closed = lambda low, high: high - low <= 1e-9 * high  # noqa: E731
    assert closed(
        certificates.margin_from_below(rows, good.vector), certificates.margin_from_above(rows, alpha)
    )
    rng = np.random.default_rng(0)
    for _ in range(20):
        w = good.vector + size * np.linalg.norm(good.vector) * rng.standard_normal(rows.d)
        low = certificates.margin_from_below(rows, w)
        assert low < good.lower_bound
        assert not closed(low, good.upper_bound)
        moved = np.abs(alpha + size * rng.random(rows.n))
        high = certificates.margin_from_above(rows, moved / moved.sum())
        assert high > good.upper_bound
        assert not closed(good.lower_bound, high)


def test_other_tampering_is_refused():
    rows = signed_rows(PROBLEM, "linear", False)
    good = mf.margins.linear(PROBLEM)
    assert certificates.margin_from_below(rows, -good.vector) < 0
    assert certificates.margin_from_below(rows, np.zeros(rows.d)) == 0
    assert certificates.margin_from_below(rows, np.full(rows.d, np.nan)) == 0
    negative = good.dual.copy()
    negative[np.argmin(negative)] = -1e-12
    assert certificates.margin_from_above(rows, negative) == np.inf
    assert certificates.margin_from_above(rows, np.zeros(rows.n)) == np.inf
    assert certificates.margin_from_above(rows, 7 * good.dual) == pytest.approx(good.upper_bound, rel=1e-14)
    dropped = good.dual.copy()  # a support example left out: still a bound, no longer a closed one
    dropped[np.argmax(dropped)] = 0
    assert certificates.margin_from_above(rows, dropped) > good.upper_bound * (1 + 1e-6)


@pytest.mark.parametrize("d", [2, 5, 80])
def test_gordan_accepts_a_simplex_around_zero_and_nothing_else(d):
    rng = np.random.default_rng(d)
    Z = rng.standard_normal((d, d))
    Z = np.concatenate([Z, -(rng.random(d) + 0.1)[None] @ Z])
    alpha = certificates.gordan(Z)
    assert alpha is not None
    assert (alpha > 0).all()
    assert np.linalg.norm(alpha @ Z) < 1e-12
    moved = Z.copy()
    moved[-1] *= -1  # 0 is now outside the hull
    assert certificates.gordan(moved) is None
    assert certificates.gordan(Z[1:]) is None
    outside = Z + 3 * np.abs(Z).max() * np.ones(d)
    assert certificates.gordan(outside) is None


def test_gordan_is_exact_where_floats_cannot_tell():
    """0 lies on an edge only if the third coordinate is exactly right; one unit in the last place moves it off."""
    Z = np.array([[1.0, 0.1], [-1.0, -0.1]])
    assert certificates.gordan(Z) is not None
    Z[1, 1] = np.nextafter(-0.1, 0)
    assert certificates.gordan(Z) is None


def test_enclosure_needs_room_for_its_rounding():
    """d + 1 rows whose hull touches 0 to within rounding: the float enclosure must not claim a positive α."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((91, 90))
    weights = rng.random(90)
    weights[0] = 0.0
    Z[-1] = -weights @ Z[:-1]
    assert certificates.gordan(Z) is None
    weights[0] = 0.5
    Z[-1] = -weights @ Z[:-1]
    assert certificates.gordan(Z) is not None


def test_gordan_moves_a_guess_on_many_rows_to_a_combination_that_is_exactly_zero():
    """More than d + 1 rows, too many for integers: proved from a guess near by, not from one of another sign."""
    rng = np.random.default_rng(2)
    Z, alpha = rng.standard_normal((150, 40)), rng.random(150) + 0.1
    Z[:40] -= (alpha @ Z) / (40 * alpha[:40, None])
    Z[:, 7] = 0.0  # a column of zeros asks for nothing
    near = alpha * (1 + 1e-9 * rng.standard_normal(150))
    proved = certificates.gordan(Z, near)
    assert proved is not None
    assert (proved > 0).all()
    np.testing.assert_allclose(proved, alpha / alpha.sum(), rtol=1e-6)
    total = [sum(Fraction(a) * Fraction(z) for a, z in zip(proved, column, strict=True)) for column in Z.T]
    assert max(map(abs, total)) < 1e-15
    assert certificates.gordan(Z) is None
    assert certificates.gordan(Z, np.roll(near, 1) ** 9) is None
    near[3] *= -1
    assert certificates.gordan(Z, near) is None


def test_equal_rows_are_found_and_compared_in_full():
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((500, 7)), rng.standard_normal((300, 7))
    assert certificates.equal_rows(as_rows(A), as_rows(B)) is None
    B[123] = A[456]
    assert certificates.equal_rows(as_rows(A), as_rows(B)) == (456, 123)
    B[123, 6] = np.nextafter(B[123, 6], 9)
    assert certificates.equal_rows(as_rows(A), as_rows(B)) is None
    A[3], B[5] = 0.0, -0.0
    assert certificates.equal_rows(as_rows(A), as_rows(B)) == (3, 5)


def test_kernel_bounds_hold_for_any_coefficients():
    rng = np.random.default_rng(2)
    F = rng.standard_normal((6, 4))
    F[:, 0] = np.abs(F[:, 0]) + 0.3
    K, error = F @ F.T, np.full((6, 6), 1e-13)
    distance = squared_distance_to_hull(F)
    for _ in range(50):
        beta = rng.dirichlet(np.ones(6) * 0.3)
        low = certificates.kernel_margin_from_below(K, error, beta)
        high = certificates.kernel_margin_from_above(K, error, beta)
        assert (Fraction(low) ** 2 if low > 0 else 0) <= distance <= Fraction(high) ** 2
    assert certificates.kernel_margin_from_above(K, error, -np.ones(6)) == np.inf


def test_certificates_import_no_solver():
    import subprocess
    import sys

    code = (
        "import sys, types, importlib.util as u, marginflow._core.tolerances;"
        "s = u.spec_from_file_location('c', sys.argv[1]); m = u.module_from_spec(s); s.loader.exec_module(m);"
        "bad = {'scipy', 'clarabel', 'highspy', 'jax'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code, certificates.__file__], check=True)
