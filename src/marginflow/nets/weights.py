"""Weights in and out as safetensors: named arrays and a header of text. Reading one executes nothing."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core import files
from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow.nets.net import Net, Theta


def save_weights(path: str | os.PathLike, theta: Theta, metadata: Mapping[str, str] | None = None) -> None:
    """θ as the safetensors file `path`, replacing what was there in one step."""
    files.write(path, to_bytes(theta, metadata))


def load_weights(path: str | os.PathLike, net: Net | None = None, d: int | None = None) -> dict[str, np.ndarray]:
    """θ from a safetensors file, every number finite; with `net` and `d`, exactly that net's arrays and shapes."""
    theta, _ = read(path)
    for name, w in theta.items():
        if w.dtype.kind != "f":
            raise InputError(f"{path}: tensor '{name}' holds {w.dtype}; give floating-point weights")
    check_finite(theta, str(path))
    if net is not None:
        if d is None:
            raise TypeError("load_weights: a net's shapes depend on d; pass d as well")
        check_shapes(theta, net, d, str(path))
    return theta


def double_weights(theta: Theta, net: Net, d: int) -> dict[str, np.ndarray]:
    """θ in float64: finite, and exactly this net's arrays and shapes, or a refusal."""
    if not isinstance(theta, Mapping):
        raise InputError(f"weights are a {type(theta).__name__}; give a dict of arrays, such as inits.balanced returns")
    arrays = {}
    for name, w in theta.items():
        try:
            arrays[name] = np.array(to_numpy(w), np.float64)
        except (TypeError, ValueError):
            raise InputError(f"weights: tensor '{name}' is not an array of numbers") from None
    check_shapes(arrays, net, d)
    check_finite(arrays)
    return arrays


def check_finite(theta: Mapping[str, np.ndarray], where: str = "weights") -> None:
    """Refuse NaN and infinities, naming the first."""
    for name, w in theta.items():
        if not np.isfinite(w).all():
            at = tuple(map(int, np.argwhere(~np.isfinite(w))[0]))
            raise InputError(f"{where}: tensor '{name}' is {w[at]} at {list(at)}; weights must be finite, and a run "
                             "that diverged has none")


def check_shapes(theta: Theta, net: Net, d: int, where: str = "weights") -> None:
    """Refuse weights that are not this net's, naming the first tensor that differs."""
    shapes = net.shapes(d)
    for name, want in shapes.items():
        if name not in theta:
            raise InputError(f"{where}: tensor '{name}' is missing (found: {', '.join(sorted(theta)) or 'none'}); "
                             f"{net} needs {name} of shape {want}")
        got = tuple(np.shape(theta[name]))
        if got != want:
            other = f"set its sizes to match, or give other data than in R^{d}"
            remedy = "store the transpose" if got == want[::-1] else other
            raise InputError(f"{where}: tensor '{name}' has shape {got}, the net needs {want}; {remedy}")
    extra = sorted(set(theta) - set(shapes))
    if extra:
        raise InputError(f"{where}: tensor '{extra[0]}' is no weight of {net}; its weights are {', '.join(shapes)}")


def to_bytes(arrays: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The safetensors file of these arrays. Arrays are laid out row by row first: the format has no strides."""
    from safetensors.numpy import save

    plain = {}
    for name, w in arrays.items():
        w = np.asarray(to_numpy(w), order="C")
        if w.dtype.kind not in "fiub":
            raise InputError(f"tensor '{name}' holds {w.dtype}; a weight file holds numbers and booleans")
        plain[name] = w.astype(w.dtype.newbyteorder("="), copy=False)
    return save(plain, dict(metadata) if metadata else None)


def read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a .safetensors file")
    try:
        with safe_open(path, framework="np") as file:
            return {name: _tensor(file, name, path) for name in file.keys()}, dict(file.metadata() or {})
    except SafetensorError as error:
        raise InputError(f"{path}: not a whole safetensors file ({_one_line(error)}); save or copy it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or _one_line(error)}); check the file") from None


def _tensor(file: Any, name: str, path: Path) -> np.ndarray:
    try:
        return file.get_tensor(name)
    except (TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path}: tensor '{name}' has a type NumPy lacks ({_one_line(error)}); "
                         "store it as float32 or float64") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
