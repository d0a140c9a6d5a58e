"""Losses in logs: log ℓ(q) and log(-ℓ'(q)) at margins q, ordinary numbers from q = -10^300 to q = 10^300.

Past q = 745 the loss itself is 0.0 in floating point while its log is about -q; nothing here ever forms the loss.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from marginflow._core.arrays import double, to_numpy
from marginflow._core.errors import InputError, unknown_name
from marginflow._core.logs import log_sum_exp, namespace, soft_max_weights


@dataclasses.dataclass(frozen=True)
class Loss:
    """ℓ, strictly decreasing in the margin q. Both callables map an array of margins to logs (NumPy or JAX).

    slope_bound: sup |ℓ'|. lipschitz: the Lipschitz constant of ℓ'. Both infinite where there is none (theory §3 asks
    for finite ones).
    """

    name: str
    log_value: Callable = dataclasses.field(repr=False)
    log_slope: Callable = dataclasses.field(repr=False)
    slope_bound: float = math.inf
    lipschitz: float = math.inf


# With u = e^-q: log log(1+u) = log u + log(1 - u/2 + u²/3 - ...) = -q - u/2 + O(u²). At q = 20 the dropped 5u²/24 is
# below 1e-18 and the kept part has full accuracy in float32 and float64 alike.
_FAR = 20.0


def _log_softplus(q):
    """log log(1 + e^-q). Each branch sees a harmless argument where the other is taken, for the sake of gradients."""
    xp, q = _floating(q)
    far = q > _FAR
    near = xp.where(far, 0.0, q)
    return xp.where(far, -q - 0.5 * xp.exp(-xp.where(far, q, _FAR)), xp.log(xp.logaddexp(0.0, -near)))


def _log_sigmoid(q):
    """log σ(-q) = -log(1 + e^q)."""
    xp, q = _floating(q)
    return -xp.logaddexp(0.0, q)


def _minus(q):
    return -_floating(q)[1]


def _floating(q):
    xp = namespace(q)
    q = xp.asarray(q)
    return xp, q if xp.issubdtype(q.dtype, np.floating) else q.astype(float)


logistic = Loss("logistic", _log_softplus, _log_sigmoid, slope_bound=1.0, lipschitz=0.25)
exponential = Loss("exponential", _minus, _minus)

_KNOWN = {loss.name: loss for loss in (logistic, exponential)}


def loss(spec) -> Loss:
    """A Loss from itself or its name."""
    if isinstance(spec, Loss):
        return spec
    if spec not in _KNOWN:
        raise unknown_name("loss", str(spec), _KNOWN)
    return _KNOWN[spec]


def log_total(loss: Loss, q, axis=-1):
    """log Σ_i ℓ(q_i)."""
    return log_sum_exp(loss.log_value(q), axis)


def weights(loss: Loss, q):
    """(p, log Σ_i -ℓ'(q_i)) with p_i = -ℓ'(q_i)/Σ_k -ℓ'(q_k): minus the gradient is e^(that log) · Σ p_i y_i ∇f_i."""
    s = loss.log_slope(q)
    return soft_max_weights(s), log_sum_exp(s)


def checked(name: str, log_value: Callable, log_slope: Callable, slope_bound: float = math.inf,
            lipschitz: float = math.inf) -> Loss:
    """A user's loss, refused unless the pair is log ℓ and log(-ℓ') of one decreasing loss, as far as margins can show.

    Tested on margins from -10^6 to 10^6: both logs finite; log ℓ falls over every interval by the integral of
    -ℓ'/ℓ = e^(log_slope - log_value), which stays within float range where ℓ has left it; the declared constants
    are not exceeded; JAX and NumPy agree. A grid cannot prove any of this for the margins between its points.
    """
    if name in _KNOWN:
        raise InputError(f"loss '{name}' exists already; give yours another name")
    candidate = Loss(name, log_value, log_slope, float(slope_bound), float(lipschitz))
    middle = np.concatenate([np.linspace(-50.0, 50.0, 1001), [s * 10.0**k for s in (-1, 1) for k in range(2, 7)]])
    half = 0.02
    with np.errstate(all="ignore"):
        values, slopes = (np.array([to_numpy(f(middle + k * half), float) for k in (-1, -0.5, 0, 0.5, 1)])
                          for f in (log_value, log_slope))
        for what, logs in (("log_value", values), ("log_slope", slopes)):
            bad = ~np.isfinite(logs).all(axis=0)
            if bad.any():
                raise InputError(f"loss '{name}': {what} is not finite at margin {middle[bad][0]:g}; give the log of a "
                                 "positive quantity, computed in logs")
        # Boole's rule over [q - h, q + h]: error of order h^7, far below the tolerance at h = 0.02.
        fall = 2 * half / 90 * np.array([7, 32, 12, 32, 7]) @ np.exp(slopes - values)
        seen = values[0] - values[-1]
        tolerance = 1e-6 * np.abs(fall) + 1e-15 * np.abs(values).max(axis=0) * 8
        bad = ~(np.abs(seen - fall) <= tolerance)
        if bad.any():
            raise InputError(f"loss '{name}': about margin {middle[bad][0]:g} log_value falls by {seen[bad][0]:.6g} "
                             f"where log_slope gives {fall[bad][0]:.6g}; give log ℓ and log(-ℓ') of one falling loss")
        _refuse_excess(name, "slope_bound", slope_bound, np.exp(slopes[2]), middle)
        # The mean slope of -ℓ' over an interval is at most its Lipschitz constant.
        mean_change = np.abs(np.exp(slopes[-1]) - np.exp(slopes[0])) / (2 * half)
        _refuse_excess(name, "lipschitz", lipschitz, mean_change, middle)
    _refuse_other_namespace(candidate, middle, values[2], slopes[2])
    return candidate


def _refuse_excess(name: str, what: str, declared: float, found: np.ndarray, at: np.ndarray) -> None:
    worst = int(np.nanargmax(found))
    if found[worst] > declared * (1 + 1e-9) + 1e-12:
        raise InputError(f"loss '{name}': {what} is {declared:g} but {found[worst]:.6g} is reached at margin "
                         f"{at[worst]:g}; raise it, or leave it infinite")


@double
def _refuse_other_namespace(loss: Loss, at: np.ndarray, *want: np.ndarray) -> None:
    import jax.numpy as jnp

    for what, f, expected in zip(("log_value", "log_slope"), (loss.log_value, loss.log_slope), want, strict=True):
        try:
            got = np.asarray(f(jnp.asarray(at)))
        except Exception as error:
            raise InputError(f"loss '{loss.name}': {what} does not accept JAX arrays ({type(error).__name__}); write "
                             "it with operators and the functions of marginflow.losses.namespace(q)") from error
        if not np.allclose(got, expected, rtol=1e-9, atol=1e-9):
            raise InputError(f"loss '{loss.name}': {what} differs between NumPy and JAX; use one formula for both")
