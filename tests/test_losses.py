"""Losses in logs against 60-digit arithmetic from q = -1e300 to 1e300, their gradients, and what is refused."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginflow import losses
from marginflow._core.arrays import double
from marginflow._core.errors import InputError
from marginflow.losses import exponential, logistic

MARGINS = np.concatenate([
    -np.logspace(-300, 300, 61), [0.0], np.logspace(-300, 300, 61), np.linspace(-60, 60, 241),
    20.0 + np.array([-1e-9, 0.0, 1e-9]), [-744.0, -746.0, 744.0, 746.0],
])
FAR = 2000  # e^-2000 is below the 60 digits in which it would be added to 1


def exact_log_value(q):
    if q > FAR:
        return -q
    return mpmath.log(-q) if q < -FAR else mpmath.log(mpmath.log1p(mpmath.exp(-q)))


def exact_log_slope(q):
    if q < -FAR:
        return mpmath.mpf(0)
    return -q if q > FAR else -mpmath.log1p(mpmath.exp(q))


EXACT = {
    "logistic log ℓ": (logistic.log_value, exact_log_value),
    "logistic log -ℓ'": (logistic.log_slope, exact_log_slope),
    "exponential log ℓ": (exponential.log_value, lambda q: -q),
    "exponential log -ℓ'": (exponential.log_slope, lambda q: -q),
}
every_function = pytest.mark.parametrize(("function", "exact"), EXACT.values(), ids=EXACT.keys())
every_loss = pytest.mark.parametrize("loss", [logistic, exponential], ids=lambda loss: loss.name)


def largest_error(function, exact, dtype, convert=np.asarray):
    """Of log ℓ in units of max(1, |log ℓ|): an absolute error of a log is a relative error of the loss."""
    margins = MARGINS[np.abs(MARGINS) < np.finfo(dtype).max / 2].astype(dtype)
    with mpmath.workdps(60):
        want = [exact(mpmath.mpf(float(q))) for q in margins]
        got = np.asarray(function(convert(margins)))
        assert got.dtype == dtype
        return float(max(abs(mpmath.mpf(float(g)) - w) / max(1, abs(w)) for g, w in zip(got, want, strict=True)))


@every_function
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numpy_is_exact_to_two_ulps(function, exact, dtype):
    assert largest_error(function, exact, dtype) <= 2 * np.finfo(dtype).eps


@every_function
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@double
def test_jax_is_exact_to_four_ulps(function, exact, dtype):
    import jax.numpy as jnp

    assert largest_error(function, exact, dtype, jnp.asarray) <= 4 * np.finfo(dtype).eps


@every_loss
@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 700.0, 1e6, 1e15, 1e300])
@double
def test_gradient_of_the_log_loss_is_finite_and_right(loss, size):
    """d/dq_i log Σ ℓ = -(-ℓ'(q_i))/Σ ℓ, from exact logs; at 1e6 the loss is e^-1000000."""
    import jax
    import jax.numpy as jnp

    gradient = jax.jit(jax.grad(lambda q: losses.log_total(loss, q)))
    for sign in (-1, 1):
        q = sign * size + np.array([0.0, 0.5, -1.0, 3.0]) * max(1.0, size * 1e-12)
        g = np.asarray(gradient(jnp.asarray(q)))
        with mpmath.workdps(60):
            values, slopes = ([EXACT[f"{loss.name} log {f}"][1](mpmath.mpf(float(v))) for v in q] for f in ("ℓ", "-ℓ'"))
            top = max(values)
            total = top + mpmath.log(sum(mpmath.exp(v - top) for v in values))
            want = [float(-mpmath.exp(s - total)) for s in slopes]
        assert np.isfinite(g).all()
        np.testing.assert_allclose(g, want, rtol=1e-12, atol=1e-300)


@every_loss
def test_a_single_margin_a_list_and_integers(loss):
    want = loss.log_value(np.array([2.0]))[0]
    for q in (2, 2.0, [2], np.array([2]), np.float64(2)):
        assert np.ravel(loss.log_value(q))[0] == want


@every_loss
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_weights_are_a_distribution_that_prefers_small_margins(loss, q):
    p, log_slope = losses.weights(loss, np.array(q))
    assert p.sum() == pytest.approx(1)
    assert np.isfinite(log_slope)
    order = np.argsort(q)
    assert (np.diff(p[order]) <= 1e-15).all()


@every_loss
@given(q=st.floats(-1e8, 1e8), step=st.floats(1e-3, 10))
def test_losses_fall_strictly(loss, q, step):
    before, after = loss.log_value(np.array([q, q + step]))
    assert after < before


@given(q=st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=6), copies=st.integers(1, 5))
def test_repeating_the_data_adds_log_copies(q, copies):
    once, often = (losses.log_total(logistic, np.array(q * k)) for k in (1, copies))
    assert often - once == pytest.approx(np.log(copies), abs=1e-9 + 1e-15 * abs(once))


def test_declared_constants():
    assert (logistic.slope_bound, logistic.lipschitz) == (1.0, 0.25)
    assert np.isinf([exponential.slope_bound, exponential.lipschitz]).all()


def test_names():
    assert losses.loss("logistic") is logistic
    assert losses.loss(exponential) is exponential
    with pytest.raises(InputError, match="did you mean 'logistic'"):
        losses.loss("logistc")


# A loss of the user's own: ℓ(q) = (log(1 + e^-q))², whose slope is 2 log(1 + e^-q) σ(-q).


def squared_value(q):
    return 2 * logistic.log_value(q)


def squared_slope(q):
    return np.log(2.0) + logistic.log_value(q) + logistic.log_slope(q)


def test_a_users_loss_is_taken():
    mine = losses.checked("squared-logistic", squared_value, squared_slope)
    assert mine.log_value(np.array([1e6]))[0] == pytest.approx(-2e6)
    again = losses.checked("logistic again", logistic.log_value, logistic.log_slope, slope_bound=1, lipschitz=0.25)
    assert again != logistic
    same_name = losses.checked("squared-logistic", logistic.log_value, logistic.log_slope)
    assert same_name != mine


def in_place(q):
    q = q.copy()
    q[q > 1e300] = 1e300
    return squared_value(q)


REFUSED = {
    "slope of another loss": (squared_value, logistic.log_slope, {}, "one falling loss"),
    "rising loss": (lambda q: squared_value(-q), squared_slope, {}, "one falling loss"),
    "not in logs": (lambda q: np.log(np.logaddexp(0, -np.asarray(q))), logistic.log_slope, {}, "at margin 1000"),
    "no slope": (logistic.log_value, lambda q: np.where(q > 1, -np.inf, logistic.log_slope(q)), {}, "not finite"),
    "slope bound too low": (logistic.log_value, logistic.log_slope, {"slope_bound": 0.9}, "slope_bound is 0.9"),
    "Lipschitz too low": (logistic.log_value, logistic.log_slope, {"lipschitz": 0.2}, "is 0.2"),
    "unbounded slope": (exponential.log_value, exponential.log_slope, {"slope_bound": 5.0}, "slope_bound"),
    "NumPy only": (in_place, squared_slope, {}, "does not accept JAX arrays"),
    "two formulas": (
        lambda q: squared_value(q) + (0 if isinstance(q, np.ndarray) else 0.1),
        squared_slope,
        {},
        "differs between NumPy and JAX",
    ),
}


@pytest.mark.parametrize(("value", "slope", "constants", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_loss_is_refused(value, slope, constants, says):
    with pytest.raises(InputError, match=says) as refusal:
        losses.checked("mine", value, slope, **constants)
    assert "\n" not in str(refusal.value)


def test_a_known_name_is_refused():
    with pytest.raises(InputError, match="exists already"):
        losses.checked("logistic", squared_value, squared_slope)
