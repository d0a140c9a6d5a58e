"""Initial weights, each a probability law written once in JAX: one net, or thousands in one compiled call.

`init(name, net, d, scale, key)` draws one θ as NumPy float64 arrays; `ensemble` draws one per key, with a leading
member axis, and member k is the draw of key k. What `scale` means is each law's own: λ for balanced, a standard
deviation for gaussian and signs, a radius for sphere, and a factor on the framework's default for uniform,
tensorflow and glorot-normal, where a mapping {array: factor} scales some arrays and leaves the others alone.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from marginflow._core.arrays import double, random_key
from marginflow._core.errors import InputError, unknown_name
from marginflow.nets.net import Net, count
from marginflow.nets.two_layer import TwoLayer

Scale = float | np.ndarray | Mapping[str, float]
# A normal cut off at two standard deviations has this standard deviation; dividing by it restores the one asked for.
TRUNCATED_NORMAL_SD = 0.87962566103423978


@dataclasses.dataclass(frozen=True)
class Law:
    """draw(net, d, scale, key) is traceable; settle repairs on the host what must hold to the last bit."""

    draw: Callable[..., dict[str, Any]]
    scale: float
    accepts: Callable[[Net], None] = lambda net: None
    settle: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = lambda theta: theta


def balanced(net: TwoLayer, d: int, scale: float | np.ndarray = 1e-3, key=0,
             spread: Literal["constant", "uniform"] = "constant") -> dict[str, np.ndarray]:
    """w_j = λ_j v_j/‖v_j‖ with v_j Gaussian, a_j = ±λ_j (theory §3).

    `scale` is λ, one number or one per neuron; with spread="uniform" λ_j is uniform on (0, λ].
    """
    if spread not in ("constant", "uniform"):
        raise unknown_name("spread", str(spread), ("constant", "uniform"))
    return init("balanced" if spread == "constant" else "balanced-spread", net, d, scale, key)


def gaussian(net: Net, d: int, scale: Scale = 1.0, key=0) -> dict[str, np.ndarray]:
    """Every weight N(0, scale²)."""
    return init("gaussian", net, d, scale, key)


def uniform(net: Net, d: int, scale: Scale = 1.0, key=0) -> dict[str, np.ndarray]:
    """PyTorch's default for linear and convolutional layers, U(±1/√fan_in) for weights and biases, times `scale`."""
    return init("uniform", net, d, scale, key)


def tensorflow(net: Net, d: int, scale: Scale = 1.0, key=0) -> dict[str, np.ndarray]:
    """TensorFlow's default, U(±√(6/(fan_in + fan_out))) with zero biases, times `scale`."""
    return init("tensorflow", net, d, scale, key)


def glorot_normal(net: Net, d: int, scale: Scale = 1.0, key=0) -> dict[str, np.ndarray]:
    """A normal of variance 2/(fan_in + fan_out) cut off at two standard deviations, zero biases, times `scale`."""
    return init("glorot-normal", net, d, scale, key)


def sphere(net: TwoLayer, d: int, scale: float | np.ndarray = 1.0, key=0) -> dict[str, np.ndarray]:
    """Neurons uniform on the sphere of radius `scale`: full support, as system C asks (theory §5).

    Both layers trained: (w_j, a_j) uniform in R^{d+1}. Input layer: w_j uniform in R^d and a_j = ±1 at random, so
    both copies of the sphere are covered. Output layer: w_j uniform and a = 0, the start of the F2 proposition.
    """
    return init("sphere", net, d, scale, key)


def signs(net: TwoLayer, d: int, scale: float = 1e-3, key=0, positive: int | None = None) -> dict[str, np.ndarray]:
    """System B: a_j = 1/√m for the first m1 = `positive` neurons and -1/√m for the others, W Gaussian of sd `scale`.

    m1 is half the width, rounded up, unless given. A mean-field net has a_j = ±1: its 1/m is in the net.
    """
    if positive is None:
        return init("signs", net, d, scale, key)
    theta = init("signs", net, d, scale, key)
    positive = count("positive neurons", positive, least=0)
    if positive > net.width:
        raise InputError(f"{positive} positive neurons in a net of width {net.width}; give at most the width")
    return {**theta, "a": np.where(np.arange(net.width) < positive, 1.0, -1.0) * np.abs(theta["a"])}


def init(name: str, net: Net, d: int, scale: Scale | None = None, key=0) -> dict[str, np.ndarray]:
    """θ drawn from the law `name`; `scale` defaults to the law's own."""
    law = _law(name, net)
    scale = _scale(name, net, d, law.scale if scale is None else scale)
    return law.settle(_draw(law, net, d, scale, key))


def ensemble(name: str, net: Net, d: int, scale: Scale | None = None,
             keys: Sequence[int] | np.ndarray | Any = range(1)) -> dict[str, np.ndarray]:
    """One θ per key, stacked along a leading axis, in one compiled call. `scale`: one for all, or one per key."""
    law = _law(name, net)
    scale = law.scale if scale is None else scale
    if isinstance(scale, Mapping) or np.ndim(scale) == 0:
        return law.settle(_draw_many(law, net, d, _scale(name, net, d, scale), keys, per_key=False))
    scale = np.asarray(scale, dtype=np.float64)
    if len(scale) != len(keys):
        raise InputError(f"{len(scale)} scales for {len(keys)} keys; give one scale, or one per key")
    for one in scale:
        _scale(name, net, d, one)
    return law.settle(_draw_many(law, net, d, scale, keys, per_key=True))


@double
def _draw(law: Law, net: Net, d: int, scale, key) -> dict[str, np.ndarray]:
    return {name: np.array(w) for name, w in _compiled(law, net, d, None)(scale, random_key(key)).items()}


@double
def _draw_many(law: Law, net: Net, d: int, scale, keys, per_key: bool) -> dict[str, np.ndarray]:
    import jax

    if not isinstance(keys, jax.Array):
        keys = jax.vmap(jax.random.key)(np.asarray(keys, dtype=np.int64))
    drawn = _compiled(law, net, d, (0 if per_key else None, 0))(scale, keys)
    return {name: np.array(w) for name, w in drawn.items()}


@functools.lru_cache(maxsize=64)
def _compiled(law: Law, net: Net, d: int, axes: tuple | None) -> Callable:
    import jax

    draw = functools.partial(law.draw, net, d)
    return jax.jit(draw if axes is None else jax.vmap(draw, in_axes=axes))


def _law(name: str, net: Net) -> Law:
    if name not in LAWS:
        raise unknown_name("initialisation", str(name), LAWS)
    LAWS[name].accepts(net)
    return LAWS[name]


def _scale(name: str, net: Net, d: int, scale: Scale):
    """The scale as the law wants it, every entry finite and positive (gaussian and mappings: not negative)."""
    if isinstance(scale, Mapping):
        shapes = net.shapes(d)
        if name not in MAPPED:
            raise InputError(f"initialisation '{name}' takes one scale, not one per array; use {' or '.join(MAPPED)}")
        for key in scale:
            if key not in shapes:
                raise unknown_name("weight array", str(key), shapes)
        values = np.array([float(v) for v in scale.values()])
    else:
        try:
            values = np.asarray(scale, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"scale {scale!r} is not a number; give {name} a positive scale") from None
        if values.ndim and not (name in PER_NEURON and values.shape == (getattr(net, "width", None),)):
            raise InputError(f"scale of shape {values.shape} for initialisation '{name}'; give one number"
                             + (", or one per neuron" if name in PER_NEURON else ""))
    least = 0 if name in MAPPED else np.nextafter(0, 1)
    if not (np.isfinite(values).all() and (values >= least).all()):
        raise InputError(f"scale {scale}; {name} initialisation needs a finite scale {'>= 0' if least == 0 else '> 0'}")
    return {k: float(v) for k, v in scale.items()} if isinstance(scale, Mapping) else values


def _factor(scale, name: str):
    return scale.get(name, 1.0) if isinstance(scale, Mapping) else scale


def _unit_rows(key, shape):
    """Rows uniform on the unit sphere."""
    import jax
    import jax.numpy as jnp

    v = jax.random.normal(key, shape)
    return v / jnp.linalg.norm(v, axis=-1, keepdims=True)


def _balanced(net: TwoLayer, d: int, scale, key, spread: bool = False) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    k_w, k_a = jax.random.split(key)
    size = jnp.broadcast_to(jnp.asarray(scale), (net.width,))
    if spread:
        size = size * (1.0 - jax.random.uniform(jax.random.fold_in(key, 1), (net.width,)))
    return {"W": size[:, None] * _unit_rows(k_w, (net.width, d)), "a": jax.random.rademacher(k_a, (net.width,)) * size}


def _balance(theta: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """|a_j| = ‖w_j‖ of the W that is stored, not of the one intended: the balance is then exact to the last bit.

    Rows are scaled by a power of two, which is exact, so that λ = 1e-200 does not underflow in its square.
    """
    W = theta["W"]
    _, exponent = np.frexp(np.abs(W).max(axis=-1))
    norm = np.ldexp(np.linalg.norm(np.ldexp(W, -exponent[..., None]), axis=-1), exponent)
    return {"W": W, "a": np.copysign(norm, theta["a"])}


def _cut(stream, net: Net, d: int, size: Mapping[str, float], scale) -> dict[str, Any]:
    """One stream of random numbers cut into the net's arrays, each times its size and scale.

    One draw compiles many times faster than a draw per array.
    """
    cut, start = {}, 0
    for name, shape in net.shapes(d).items():
        stop = start + math.prod(shape)
        cut[name] = _factor(scale, name) * size[name] * stream[start:stop].reshape(shape)
        start = stop
    return cut


def _total(net: Net, d: int) -> tuple[int]:
    return (sum(math.prod(shape) for shape in net.shapes(d).values()),)


def _gaussian(net: Net, d: int, scale, key) -> dict[str, Any]:
    import jax

    return _cut(jax.random.normal(key, _total(net, d)), net, d, dict.fromkeys(net.shapes(d), 1.0), scale)


def _uniform(net: Net, d: int, scale, key) -> dict[str, Any]:
    import jax

    limits = {name: fan_in**-0.5 for name, (fan_in, _) in net.fans(d).items()}
    return _cut(jax.random.uniform(key, _total(net, d), minval=-1.0, maxval=1.0), net, d, limits, scale)


def _tensorflow(net: Net, d: int, scale, key) -> dict[str, Any]:
    import jax

    limits = {name: 0.0 if name in net.biases else (6 / sum(fans)) ** 0.5 for name, fans in net.fans(d).items()}
    return _cut(jax.random.uniform(key, _total(net, d), minval=-1.0, maxval=1.0), net, d, limits, scale)


def _glorot_normal(net: Net, d: int, scale, key) -> dict[str, Any]:
    import jax

    sd = {name: 0.0 if name in net.biases else (2 / sum(fans)) ** 0.5 / TRUNCATED_NORMAL_SD
          for name, fans in net.fans(d).items()}
    return _cut(jax.random.truncated_normal(key, -2.0, 2.0, _total(net, d)), net, d, sd, scale)


def _sphere(net: TwoLayer, d: int, scale, key) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    size = jnp.broadcast_to(jnp.asarray(scale), (net.width,))
    k_w, k_a = jax.random.split(key)
    if net.train == "both":
        point = size[:, None] * _unit_rows(k_w, (net.width, d + 1))
        return {"W": point[:, :d], "a": point[:, d]}
    W = size[:, None] * _unit_rows(k_w, (net.width, d))
    if net.train == "input":
        return {"W": W, "a": jax.random.rademacher(k_a, (net.width,)).astype(W.dtype)}
    return {"W": W, "a": jnp.zeros(net.width, W.dtype)}


def _signs(net: TwoLayer, d: int, scale, key) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    sign = jnp.where(jnp.arange(net.width) < (net.width + 1) // 2, 1.0, -1.0)
    return {"W": scale * jax.random.normal(key, (net.width, d)), "a": sign if net.mean_field else sign / net.width**0.5}


def _two_layer(what: str, train: str | None = None) -> Callable[[Net], None]:
    def accepts(net: Net) -> None:
        if not isinstance(net, TwoLayer) or net.outputs != 1:
            raise InputError(f"{what} initialisation is defined for two-layer nets with one output, not for {net}; "
                             "use gaussian or uniform")
        if train is not None and net.train != train:
            raise InputError(f"{what} initialisation fixes the output layer; make the net with train='{train}'")

    return accepts


LAWS: dict[str, Law] = {
    "balanced": Law(_balanced, 1e-3, _two_layer("balanced"), _balance),
    "balanced-spread": Law(lambda *a: _balanced(*a, spread=True), 1e-3, _two_layer("balanced"), _balance),
    "gaussian": Law(_gaussian, 1.0),
    "uniform": Law(_uniform, 1.0),
    "pytorch": Law(_uniform, 1.0),
    "tensorflow": Law(_tensorflow, 1.0),
    "glorot-normal": Law(_glorot_normal, 1.0),
    "sphere": Law(_sphere, 1.0, _two_layer("sphere")),
    "signs": Law(_signs, 1e-3, _two_layer("signs", "input")),
}
MAPPED = ("gaussian", "uniform", "pytorch", "tensorflow", "glorot-normal")
PER_NEURON = ("balanced", "balanced-spread", "sphere")
