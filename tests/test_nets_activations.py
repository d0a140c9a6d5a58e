"""Activations against exact arithmetic, and their declared degree, leak and smoothness."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginflow import nets
from marginflow._core.arrays import double

ALL = [nets.relu, nets.linear, nets.srelu, *map(nets.leaky, (0.1, 0.9)), *map(nets.smooth_leaky, (0.5, 0.01))]
every_activation = pytest.mark.parametrize("phi", ALL, ids=str)
EXACT = {
    "relu": lambda z: max(z, 0),
    "linear": lambda z: z,
    "srelu": lambda z: max(z, 0) ** 2,
    "leaky": lambda z, g: max(z, g * z),
    "smooth-leaky": lambda z, g: g * z + (1 - g) * mpmath.log((1 + mpmath.exp(z)) / 2),
}
POINTS = np.concatenate([s * np.logspace(-30, 2.5, 66) for s in (-1, 1)])


def exact(phi, z):
    head, _, leak = phi.name.partition(":")
    with mpmath.workdps(80):
        return EXACT[head](mpmath.mpf(z), *([mpmath.mpf(float(leak))] if leak else []))


@every_activation
def test_value_to_full_relative_accuracy(phi):
    """Small z matters as much as large: a small initialisation puts every neuron there. Eight ulps are allowed."""
    for z, got in zip(POINTS, phi(POINTS), strict=True):
        want = exact(phi, z)
        assert abs(mpmath.mpf(float(got)) - want) <= 8 * 2.0**-52 * abs(want)


@every_activation
def test_slope_is_the_derivative(phi):
    smooth = np.abs(POINTS) > 1e-8
    for z in POINTS[smooth][::5]:
        with mpmath.workdps(60):
            h = mpmath.mpf(abs(z)) * mpmath.mpf(10) ** -20
            want = (exact(phi, mpmath.mpf(float(z)) + h) - exact(phi, mpmath.mpf(float(z)) - h)) / (2 * h)
        assert float(phi.slope(np.asarray(z), np)) == pytest.approx(float(want), rel=1e-12, abs=1e-300)


@every_activation
@given(z=st.floats(-1e3, 1e3), power=st.integers(-30, 30))
def test_declared_degree(phi, z, power):
    if phi.degree is None:
        return
    c = 2.0**power
    assert float(phi(c * z)) == c**phi.degree * float(phi(z))


@every_activation
def test_declared_leak_is_the_slope_at_and_below_zero(phi):
    if phi.leak is not None:
        assert np.all(phi.slope(np.array([0.0, -0.0, -1.0, -1e6]), np) == phi.leak)


@every_activation
@given(a=st.floats(-50, 50), b=st.floats(-50, 50))
def test_declared_smoothness(phi, a, b):
    if phi.smoothness is not None:
        difference = abs(phi.slope(np.asarray(a), np) - phi.slope(np.asarray(b), np))
        assert difference <= phi.smoothness * abs(a - b) + 1e-15 * (1 + abs(a) + abs(b))


def test_smoothness_is_attained():
    """H = (1-γ)/4 is the slope's steepest, at 0: a smaller constant would be wrong."""
    phi, h = nets.smooth_leaky(0.2), 1e-4
    steepest = float(phi.slope(np.asarray(h), np) - phi.slope(np.asarray(-h), np)) / (2 * h)
    assert steepest == pytest.approx(phi.smoothness, rel=1e-6)


@every_activation
@double
def test_numpy_and_jax_agree(phi):
    import jax
    import jax.numpy as jnp

    z = np.concatenate([POINTS, [0.0, -0.0]])
    np.testing.assert_allclose(phi(jnp.asarray(z)), phi(z), rtol=4e-15, atol=0)
    np.testing.assert_allclose(jax.vmap(jax.grad(phi))(jnp.asarray(z)), phi.slope(z, np), rtol=4e-15, atol=0)


@every_activation
def test_precision_and_non_finite_values_pass_through(phi):
    import jax
    import jax.numpy as jnp

    assert phi(np.float32([1.5, -2.0])).dtype == np.float32
    assert phi.slope(np.float32([1.5, -2.0]), np).dtype == np.float32
    assert jax.grad(phi)(jnp.float32(1.5)).dtype == jnp.float32
    assert np.isnan(phi(np.array([np.nan]))[0])
    assert phi(np.array([np.inf]))[0] == np.inf
    assert phi(np.array([2, -2])).dtype == np.float64


def test_names_identify_activations():
    for phi in ALL:
        assert nets.activation(phi.name) == phi
        assert nets.activation(str(phi)) == phi
        assert nets.activation(phi) is phi
    assert nets.leaky(0) == nets.relu
    assert len({*ALL}) == len(ALL)
