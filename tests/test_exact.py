"""Exact signs and ranks, against rational arithmetic written the long way."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from marginflow._core import exact

ANY = st.floats(allow_nan=False, allow_infinity=False, width=64, allow_subnormal=True)
SMALL = st.integers(-3, 3).map(float)


def rational(x, y) -> Fraction:
    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)), Fraction(0))


def sign(value) -> int:
    return (value > 0) - (value < 0)


def rank_over_the_rationals(X) -> int:
    rows, rank = [[Fraction(float(v)) for v in row] for row in X], 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


@given(hnp.arrays(np.float64, (2, 5), elements=ANY | SMALL))
def test_sign_is_that_of_the_rational_sum(pair):
    x, y = pair
    truth = rational(x, y)
    assert exact.dot(x, y) == truth
    assert exact.dot_signs(x, y)[0] == sign(truth)
    assert exact.block_signs(x[None], y[None])[0, 0] == sign(truth)


@given(hnp.arrays(np.float32, (2, 4), elements=st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_sign_in_single_precision(pair):
    assert exact.dot_signs(*pair)[0] == sign(rational(*pair))


def test_naive_float64_gets_these_signs_wrong():
    x, y = np.array([1e16, 1.0, -1e16]), np.ones(3)
    assert x @ y == 0.0
    assert exact.dot_signs(x, y)[0] == 1
    # 0.1 · 3 - 0.3 · 1: the stored 0.1 is above 1/10 and the stored 0.3 below 3/10.
    x, y = np.array([0.1, -0.3]), np.array([3.0, 1.0])
    assert exact.dot_signs(x, y)[0] == sign(rational(x, y)) == 1


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-160, 1e160, 1.7e308])
def test_subnormal_and_huge_products_keep_their_sign(size):
    A = np.array([[size, size, 0.0], [size, -size, 0.0], [size, size, size], [-size, 0.0, 0.0]])
    B = np.array([[size, size, 1.0], [size, size, 1.0], [-size, 0.0, size / 2 or size], [size, 1.0, 1.0]])
    assert exact.dot_signs(A, B).tolist() == [sign(rational(x, y)) for x, y in zip(A, B, strict=True)]


@given(hnp.arrays(np.float64, (2, 3, 6), elements=st.floats(-1e3, 1e3)))
def test_the_bound_of_dot2_is_a_bound(pair):
    A, B = pair
    value, bound = exact.dot2(A, B)
    for k in range(3):
        assert abs(Fraction(float(value[k])) - rational(A[k], B[k])) <= Fraction(float(bound[k]))


@given(hnp.arrays(np.float64, (9, 3), elements=SMALL), st.floats(0.5, 2))
def test_blocks_agree_with_pairs(rows, factor):
    A, B = rows[:4] * factor, rows[4:]  # off the grid of integers, zeros kept
    expected = [[sign(rational(x, y)) for y in B] for x in A]
    assert exact.block_signs(A, B).tolist() == expected


TOLERANCES = st.sampled_from([0.0, 1e-17, 0.5, 0.999, 2.0**-0.5])


@given(hnp.arrays(np.float64, (2, 3), elements=SMALL.filter(bool)), TOLERANCES)
def test_cosine_above_a_tolerance(pair, tolerance):
    x, y = pair
    product = rational(x, y)
    truth = product > 0 and product**2 > Fraction(tolerance) ** 2 * rational(x, x) * rational(y, y)
    assert exact.cosine_above(x, y, tolerance) == truth
    assert exact.exceeds(x[None], y[None], tolerance)[0] == truth


def test_cosine_of_extreme_rows():
    assert exact.cosine([1e300, 0.0], [1e300, 1e300]) == pytest.approx(2**-0.5, rel=1e-15)
    assert exact.cosine([5e-324, 0.0], [0.0, 1e308]) == 0.0


def rank_mod_a_prime(X):
    p = exact.PRIMES[0]
    return int(exact.ranks_mod(exact.residues(X, p)[None], p)[0])


@given(hnp.arrays(np.float64, (4, 4), elements=SMALL | st.sampled_from([0.1, -0.3, 1e-320, 1e200])))
def test_rank_and_dependence(X):
    rank = rank_over_the_rationals(X)
    assert rank_mod_a_prime(X) <= rank
    coefficients = exact.rational_dependence(X)
    assert (coefficients is None) == (rank == 4)
    if coefficients is not None:
        assert any(coefficients)
        assert not any(exact.combine(coefficients, X))


@given(hnp.arrays(np.float64, (3, 5), elements=SMALL))
def test_rank_modulo_a_prime_is_the_rank_of_small_integers(X):
    # Minors are below 3! · 3³ in size, far below the prime.
    assert rank_mod_a_prime(X) == rank_over_the_rationals(X)


def test_residues_of_floats():
    p = exact.PRIMES[0]
    r = exact.residues(np.array([[0.5, -3.0, 0.0, 2.0**-1074]]))[0]
    assert (2 * r[0]) % p == 1
    assert r[1] == p - 3
    assert r[2] == 0
    assert int(r[3]) * pow(2, 1074, p) % p == 1


def test_grid_bits_are_the_width_of_the_integers():
    X = np.array([[3.0, 4.0, 0.0], [0.5, 8.0, 1.0], [0.75, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert exact.grid_bits(X).tolist() == [3, 5, 2, 0]
    assert exact.grid_bits(np.array([[0.1, 1.0]]))[0] >= 53
