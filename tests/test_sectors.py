"""Activation patterns and G: definitions, exact zeros, refusals."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow.data import Dataset
from marginflow.sectors import G, charges, sector


def exact_sector(X, w):
    signs = []
    for x in X:
        dot = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, w, strict=True))
        signs.append((dot > 0) - (dot < 0))
    return np.array(signs)


def small(seed: int, n: int = 8, d: int = 3) -> Dataset:
    rng = np.random.default_rng(seed)
    return Dataset(rng.standard_normal((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0))


def test_g_is_its_definition():
    data = Dataset([[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0]], [1, -1, 1])
    assert G(data, [3.0, 4.0]) == pytest.approx(0.5 * (3.0 - 8.0))
    assert G(data, [3.0, 4.0], loss="exponential") == pytest.approx(3.0 - 8.0)
    assert G(data, [-1.0, 0.0], weights=[1.0, 1.0, 2.0]) == pytest.approx(2.0)
    np.testing.assert_allclose(charges(data), [0.5, -0.5, 0.5])


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_g_is_homogeneous_and_linear_on_a_sector(seed, c):
    data = small(seed)
    w = np.random.default_rng(seed + 1).standard_normal(3)
    assert G(data, c * w) == pytest.approx(c * G(data, w), rel=1e-12, abs=1e-15)
    on = sector(data, w) > 0
    assert G(data, w) == pytest.approx(float((charges(data) * on) @ data.X @ w), rel=1e-12, abs=1e-14)


def test_g_and_sector_of_many_directions_are_those_of_each():
    data = small(0)
    W = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(G(data, W), [G(data, w) for w in W], rtol=1e-13)
    np.testing.assert_array_equal(sector(data, W), [sector(data, w) for w in W])


@given(st.integers(0, 10**6))
def test_the_exact_sector_is_that_of_rational_arithmetic(seed):
    rng = np.random.default_rng(seed)
    data = Dataset(rng.integers(-3, 4, (6, 3)) + np.array([0.0, 0.0, 0.1]), [1, -1, 1, -1, 1, -1])
    w = rng.integers(-3, 4, 3) + np.array([0.0, 0.1, 0.0])
    np.testing.assert_array_equal(sector(data, w, exact=True), exact_sector(data.X, w))


def test_a_computed_vector_on_a_hyperplane_is_read_as_on_it():
    data = Dataset([[0.1, 0.2, 0.3], [1.0, 0.0, 0.0]], [1, -1])
    w = np.cross(data.X[0], [0.7, -0.4, 0.2])
    w = w / np.linalg.norm(w) * 0.3
    assert sector(data, w)[0] == 0
    assert sector(data, w, exact=True)[0] == exact_sector(data.X, w)[0]
    # A clear sign stays one, however small the numbers.
    assert sector(data, 1e-200 * data.X[0])[0] == 1


@pytest.mark.parametrize(
    ("w", "message"),
    [([1.0, 2.0], "length d = 3"), ([0.0, 0.0, 0.0], "zero"), ([[1.0, 0, 0], [np.nan, 0, 0]], "direction 1")],
)
def test_bad_directions_are_refused(w, message):
    with pytest.raises(InputError, match=message):
        mf.sectors.G(small(0), w)
