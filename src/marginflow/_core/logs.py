"""Arithmetic on logarithms. Losses reach e^-1000000 and times e^(10^9); only their logs are numbers.

NumPy and JAX alike: each function works in the namespace of its argument.
"""

import numpy as np


def namespace(x):
    """numpy for NumPy arrays and Python numbers, jax.numpy for anything JAX (tracers included)."""
    if isinstance(x, (np.ndarray, np.generic, int, float, list, tuple)):
        return np
    import jax.numpy as jnp

    return jnp


def log_sum_exp(x, axis=-1):
    """log Σ e^x, exact in the sense that the largest term is never lost; -inf for an empty sum of zeros."""
    xp = namespace(x)
    top = xp.max(x, axis=axis, keepdims=True)
    top = xp.where(xp.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return xp.squeeze(top, axis) + xp.log(xp.sum(xp.exp(x - top), axis=axis))


def soft_max_weights(x, axis=-1):
    """e^x / Σ e^x without overflow."""
    xp = namespace(x)
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def parse_log_number(text: str) -> float:
    """log of a positive decimal number such as '1e-5000' that may lie far outside float range."""
    from decimal import Decimal, InvalidOperation

    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"'{text}' is not a number") from None
    if not value.is_finite() or value <= 0:
        raise ValueError(f"'{text}' is not a positive finite number")
    exponent = value.adjusted()
    return float(np.log(float(value.scaleb(-exponent)))) + exponent * float(np.log(10.0))
