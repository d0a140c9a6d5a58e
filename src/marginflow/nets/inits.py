"""Initial weights. Every function takes (net, d, ..., key) and returns θ as NumPy float64 arrays."""

import numpy as np

from marginflow._core.arrays import double, random_key
from marginflow._core.errors import InputError
from marginflow.nets.net import Net
from marginflow.nets.two_layer import TwoLayer


@double
def balanced(net: TwoLayer, d: int, scale=1e-3, key=0) -> dict[str, np.ndarray]:
    """w_j = λ_j v_j/‖v_j‖ with v_j Gaussian, a_j = ±λ_j (theory §3). `scale` is λ, one number or one per neuron."""
    import jax

    if not isinstance(net, TwoLayer):
        raise InputError("balanced initialisation is defined for two-layer nets; use gaussian or uniform")
    lam = np.broadcast_to(np.asarray(scale, dtype=np.float64), (net.width,))
    if not (lam > 0).all():
        raise InputError(f"scale {scale}; balanced initialisation needs λ > 0")
    k_w, k_a = jax.random.split(random_key(key))
    v = np.asarray(jax.random.normal(k_w, (net.width, d)))
    sign = np.asarray(jax.random.rademacher(k_a, (net.width,)), dtype=np.float64)
    W = lam[:, None] * v / np.linalg.norm(v, axis=1, keepdims=True)
    # |a_j| = ‖w_j‖ as stored, not as intended: the balance is then exact to the last bit.
    return {"W": W, "a": sign * np.linalg.norm(W, axis=1)}


@double
def gaussian(net: Net, d: int, scale: float = 1.0, key=0) -> dict[str, np.ndarray]:
    """Every weight N(0, scale²)."""
    import jax

    shapes = net.shapes(d)
    keys = jax.random.split(random_key(key), len(shapes))
    return {name: scale * np.asarray(jax.random.normal(k, shape)) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}
