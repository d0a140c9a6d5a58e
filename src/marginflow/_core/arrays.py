"""Arrays in, arrays out: NumPy, JAX and torch tensors are accepted, NumPy comes back.

JAX computes in float32 unless told otherwise, and importing marginflow changes no global setting, so each
public function that runs JAX does so inside `double()`, which is local to the call and to the thread.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def to_numpy(x: Any, dtype: Any = None) -> np.ndarray:
    """x as a NumPy array; a torch tensor is detached and moved to the host."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()  # NumPy has no bfloat16
    return np.asarray(x, dtype=dtype)


def double(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with JAX in float64, for this call only; products of float32 matrices in float32, where a GPU
    would round their entries to 10 bits."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        import jax

        with jax.enable_x64(True), jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped


def random_key(key: Any):
    """A JAX random key from an integer seed, a NumPy integer or a key."""
    import jax

    return jax.random.key(int(key)) if np.ndim(key) == 0 and isinstance(key, (int, np.integer)) else key
