"""Activations, and the one home of the rule at 0.

Theory §3, Lemma A.3: the indicator is 1{wᵀx > 0}, so a ReLU has slope 0 at 0 and a leaky ReLU slope γ. `active` is
that indicator and `pattern` the sector; every other part of the library asks them or an activation's `slope` (or
differentiates the activation, which obeys the same rule) and never writes its own comparison.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError, unknown_name
from marginflow._core.logs import namespace


def active(z):
    """1{z > 0}: a neuron at exactly 0 is off (NumPy or JAX)."""
    return z > 0


def pattern(z):
    """The sector of pre-activations z: -1, 0 or 1 entrywise, as int8."""
    return namespace(z).sign(z).astype(np.int8)


@dataclasses.dataclass(frozen=True, eq=False)
class Activation:
    """φ and φ', both called as f(z, xp) with xp numpy or jax.numpy. Equal names are equal activations.

    degree: φ(cz) = c^degree φ(z) for all c > 0, None if there is no such degree.
    leak: the slope on z <= 0 of a piecewise-linear one. smoothness: H with |φ'(z) - φ'(z')| <= H|z - z'|.
    """

    name: str
    value: Callable = dataclasses.field(repr=False)
    slope: Callable = dataclasses.field(repr=False)
    degree: int | None
    leak: float | None = None
    smoothness: float | None = None

    def __call__(self, z):
        if hasattr(z, "detach"):
            z = to_numpy(z)
        if namespace(z) is np:
            return self.value(_real(z), np)
        return self._jax(z)

    @cached_property
    def _jax(self) -> Callable:
        """The JAX function whose derivative is `slope`, so that autodiff obeys the rule at 0."""
        import jax
        import jax.numpy as jnp

        @jax.custom_jvp
        def phi(z):
            return self.value(z, jnp)

        @phi.defjvp
        def phi_jvp(primals, tangents):
            (z,), (dz,) = primals, tangents
            return phi(z), self.slope(z, jnp) * dz

        return phi

    def __eq__(self, other):
        return isinstance(other, Activation) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


def _real(z) -> np.ndarray:
    z = np.asarray(z)
    return z if z.dtype.kind == "f" else z.astype(np.float64)


def _step(z, low: float, xp):
    """1 where active, `low` elsewhere, in the precision of z."""
    return xp.where(active(z), 1.0, low).astype(z.dtype)


def leaky(leak: float) -> Activation:
    """φ(z) = max(γz, z), 0 <= γ < 1."""
    if not 0 <= leak < 1:
        raise InputError(f"leaky ReLU with slope {leak}; give 0 <= slope < 1")
    leak = float(leak)
    if leak == 0:
        # maximum, not a product with 0: -inf gives 0, NaN stays NaN.
        return Activation("relu", lambda z, xp: xp.maximum(z, 0), lambda z, xp: _step(z, 0.0, xp), degree=1, leak=0.0)
    return Activation(f"leaky:{leak!r}", lambda z, xp: xp.maximum(leak * z, z), lambda z, xp: _step(z, leak, xp),
                      degree=1, leak=leak)


def smooth_leaky(leak: float) -> Activation:
    """φ(z) = γz + (1-γ) log((1+e^z)/2): slope in [γ, 1], H = (1-γ)/4-smooth, φ(0) = 0 (theory §4)."""
    if not 0 < leak < 1:
        raise InputError(f"smoothed leaky ReLU with slope {leak}; give 0 < slope < 1")
    leak = float(leak)

    def value(z, xp):
        return leak * z + (1 - leak) * _log_mean_exp(z, xp)

    def slope(z, xp):
        return leak + (1 - leak) * xp.exp(-xp.logaddexp(0.0, -z))

    return Activation(f"smooth-leaky:{leak!r}", value, slope, degree=None, smoothness=(1 - leak) / 4)


def _log_mean_exp(z, xp):
    """log((1+e^z)/2) to full relative accuracy.

    Taking log 2 from log(1+e^z) loses all digits near z = 0, where a small initialisation puts every neuron; there
    it is z/2 + log cosh(z/2) with log cosh u = ½ log1p(sinh² u).
    """
    size = xp.abs(z)
    near = z / 2 + 0.5 * xp.log1p(xp.sinh(xp.clip(z, -2, 2) / 2) ** 2)
    return xp.where(size < 2, near, xp.maximum(z, 0) + (xp.log1p(xp.exp(-size)) - math.log(2.0)))


relu = leaky(0.0)
linear = Activation("linear", lambda z, xp: z, lambda z, xp: xp.ones_like(z), degree=1, leak=1.0, smoothness=0.0)
# The square of a ReLU. With weights a_j = ±1 that do not move it is the S-ReLU neuron ερ(wᵀx)² of theory §5.
srelu = Activation("srelu", lambda z, xp: xp.maximum(z, 0) ** 2, lambda z, xp: 2 * xp.maximum(z, 0), degree=2,
                   smoothness=2.0)

_FIXED = {a.name: a for a in (relu, linear, srelu)}
_FAMILIES: dict[str, Callable[[float], Activation]] = {"leaky": leaky, "smooth-leaky": smooth_leaky}


def activation(spec) -> Activation:
    """An Activation from itself or its name: relu, linear, srelu, leaky:0.1, smooth-leaky:0.1."""
    if isinstance(spec, Activation):
        return spec
    head, _, argument = str(spec).partition(":")
    if head in _FIXED:
        if argument:
            raise InputError(f"activation '{spec}': {head} takes no argument; write {head}")
        return _FIXED[head]
    if head not in _FAMILIES:
        raise unknown_name("activation", head, [*_FIXED, *_FAMILIES])
    try:
        leak = float(argument or 0.1)
    except ValueError:
        raise InputError(f"activation '{spec}': '{argument}' is not a number; write {head}:0.1") from None
    return _FAMILIES[head](leak)
