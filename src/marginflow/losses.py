"""Losses in logs: log ℓ(q) and log(-ℓ'(q)) at margins q, exact from q = -10^300 to q = 10^300.

Below float range (q > 745) the loss itself is 0.0 while its log is an ordinary number; nothing here forms the loss.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from marginflow._core.errors import unknown_name
from marginflow._core.logs import namespace


@dataclasses.dataclass(frozen=True)
class Loss:
    """ℓ decreasing in the margin q. Both callables map an array of margins to an array of logs (NumPy or JAX)."""

    name: str
    log_value: Callable = dataclasses.field(repr=False, compare=False)
    log_slope: Callable = dataclasses.field(repr=False, compare=False)


def _softplus_log(q):
    """log log(1 + e^-q): for large q, log1p(e^-q) = e^-q(1 - e^-q/2 + ...), whose log is -q + log1p(-e^-q/2)."""
    xp = namespace(q)
    small = q > 30.0
    direct = xp.log(xp.logaddexp(0.0, -xp.where(small, 0.0, q)))
    return xp.where(small, -q - 0.5 * xp.exp(-xp.where(small, q, 30.0)), direct)


logistic = Loss("logistic", _softplus_log, lambda q: -namespace(q).logaddexp(0.0, q))
exponential = Loss("exponential", lambda q: -q, lambda q: -q)


def loss(spec) -> Loss:
    """A Loss from itself or its name."""
    if isinstance(spec, Loss):
        return spec
    known = {"logistic": logistic, "exponential": exponential}
    if spec not in known:
        raise unknown_name("loss", str(spec), known)
    return known[spec]


def log_total(loss: Loss, q, axis=-1):
    """log Σ_i ℓ(q_i)."""
    from marginflow._core.logs import log_sum_exp

    return log_sum_exp(loss.log_value(q), axis)


def weights(loss: Loss, q):
    """(p, log Σ_i -ℓ'(q_i)) with p_i = -ℓ'(q_i)/Σ -ℓ'(q_k): the field is e^log_total · Σ p_i y_i ∇f_i."""
    from marginflow._core.logs import log_sum_exp, soft_max_weights

    s = loss.log_slope(q)
    return soft_max_weights(s), log_sum_exp(s)


def checked(name: str, log_value: Callable, log_slope: Callable, at=np.linspace(-20, 40, 241)) -> Loss:
    """A user's loss, refused unless log_slope is log(-ℓ') of a decreasing loss on a grid of margins."""
    from marginflow._core.errors import InputError

    loss = Loss(name, log_value, log_slope)
    with np.errstate(over="ignore"):
        h = 1e-5
        slope = (np.exp(log_value(at + h)) - np.exp(log_value(at - h))) / (2 * h)
        want = -np.exp(log_slope(at))
    bad = ~(np.abs(slope - want) <= 1e-4 * np.abs(want) + 1e-9)
    if bad.any():
        raise InputError(f"loss '{name}': at margin {at[bad][0]:g} log_slope gives ℓ' = {want[bad][0]:.6g} but the value "
                         f"changes at {slope[bad][0]:.6g}; give log ℓ and log(-ℓ') of one decreasing loss")
    return loss
