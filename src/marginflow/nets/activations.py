"""Activations, and the one home of the rule at 0.

Theory §3, Lemma A.3: the indicator is 1{wᵀx > 0}, so a ReLU has slope 0 at 0, and a leaky ReLU slope γ.
Every other part of the library asks `slope` (or differentiates `__call__`, which obeys it) and never writes
its own comparison.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow._core.logs import namespace


@dataclasses.dataclass(frozen=True)
class Activation:
    """φ and φ'. `degree`: φ(cz) = c^degree φ(z) for c > 0, or None. `leak`: slope on z <= 0 of piecewise-linear ones."""

    name: str
    value: Callable = dataclasses.field(repr=False)
    slope: Callable = dataclasses.field(repr=False)
    degree: int | None
    leak: float | None = None
    smoothness: float | None = None  # H with |φ'(z) - φ'(z')| <= H|z - z'|, where φ' is Lipschitz

    def __call__(self, z):
        xp = namespace(z)
        if xp is np:
            return self.value(np.asarray(z), np)
        return _differentiable(self)(z)

    def __eq__(self, other):
        return isinstance(other, Activation) and self.name == other.name

    def __hash__(self):
        return hash(self.name)


_WITH_RULE: dict[str, Callable] = {}


def _differentiable(activation: Activation) -> Callable:
    """The JAX function whose derivative is `slope`, so that autodiff obeys the rule at 0."""
    if activation.name not in _WITH_RULE:
        import jax
        import jax.numpy as jnp

        f = jax.custom_jvp(lambda z: activation.value(z, jnp))
        f.defjvp(lambda primals, tangents: (f(primals[0]), activation.slope(primals[0], jnp) * tangents[0]))
        _WITH_RULE[activation.name] = f
    return _WITH_RULE[activation.name]


def leaky(leak: float) -> Activation:
    """φ(z) = max(γz, z)."""
    if not 0 <= leak < 1:
        raise InputError(f"leaky ReLU with slope {leak}; give 0 < slope < 1")
    name = "relu" if leak == 0 else f"leaky:{leak:g}"
    return Activation(name, lambda z, xp: xp.where(z > 0, z, leak * z), lambda z, xp: xp.where(z > 0, 1.0, leak) + 0 * z,
                      degree=1, leak=float(leak))


def smooth_leaky(leak: float) -> Activation:
    """φ(z) = γz + (1-γ) log((1+e^z)/2): slope in [γ, 1], H = (1-γ)/4-smooth, φ(0) = 0 (theory §4)."""
    if not 0 < leak < 1:
        raise InputError(f"smoothed leaky ReLU with slope {leak}; give 0 < slope < 1")

    def value(z, xp):
        return leak * z + (1 - leak) * (xp.logaddexp(z, 0.0) - np.log(2.0))

    def slope(z, xp):
        return leak + (1 - leak) * 0.5 * (1 + xp.tanh(z / 2))

    return Activation(f"smooth-leaky:{leak:g}", value, slope, degree=None, smoothness=(1 - leak) / 4)


relu = leaky(0.0)
linear = Activation("linear", lambda z, xp: z, lambda z, xp: xp.ones_like(z), degree=1, leak=1.0)
srelu = Activation("srelu", lambda z, xp: xp.where(z > 0, z, 0.0 * z) ** 2, lambda z, xp: 2 * xp.where(z > 0, z, 0.0 * z),
                   degree=2)


def activation(spec) -> Activation:
    """An Activation from itself or its name: relu, linear, srelu, leaky:0.1, smooth-leaky:0.1."""
    if isinstance(spec, Activation):
        return spec
    head, _, argument = str(spec).partition(":")
    fixed = {"relu": relu, "linear": linear, "srelu": srelu}
    if head in fixed and not argument:
        return fixed[head]
    families = {"leaky": leaky, "smooth-leaky": smooth_leaky}
    if head in families:
        try:
            return families[head](float(argument or 0.1))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"activation '{spec}': '{argument}' is not a number; write {head}:0.1") from None
    raise unknown_name("activation", head, [*fixed, *families])
