"""Weights from other people's files. Only numbers are read: no file is ever allowed to run code.

.safetensors holds numbers by construction. .pt and .pth are zip archives around a pickle, and a pickle is a program:
torch.load runs with weights_only, which refuses whatever is not a tensor, a number, a string or a container of them.
TorchScript archives are code and are refused before torch sees them.
"""

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow.bridges.architecture import EXAMPLE, build, layers

NESTED = ("state_dict", "model_state_dict", "model")  # where training loops keep the weights in a checkpoint
SUFFIXES = (".safetensors", ".pt", ".pth")


def require_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise InputError(f"inspect needs PyTorch ({error}); install marginflow[torch]") from None
    return torch


def load_model(path: str | Path, architecture: Any = None) -> Any:
    """A torch.nn.Module from a file of weights and a description; (W, a) of a two-layer net needs no description."""
    return from_weights(read_weights(path), architecture, str(path))


def read_weights(path: str | Path) -> dict[str, np.ndarray]:
    """Every tensor of a file by name, in the order of the layers."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: not a kind of file that can be read; give {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(
            f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}; check the path"
        )
    if path.suffix == ".safetensors":
        from marginflow.nets.weights import load_weights

        found = load_weights(path)
        return {name: found[name] for name in sorted(found, key=_natural)}
    return _from_pickle(path)


def _from_pickle(path: Path) -> dict[str, np.ndarray]:
    torch = require_torch()
    _refuse_torchscript(path)
    try:
        with (
            warnings.catch_warnings()
        ):  # torch remarks on pickle protocols; what matters is whether it refuses
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a file that it cannot or will not read
        raise InputError(f"{path}: {_why(error)}") from None
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    tensors = content if isinstance(content, Mapping) else {}
    tensors = {str(k): v for k, v in tensors.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    if not tensors:
        kind = type(content).__name__
        raise InputError(f"{path}: holds a {kind} without weights; save model.state_dict() with torch.save")
    for name, value in tensors.items():
        if value.layout is not torch.strided or value.is_quantized:
            raise InputError(f"{path}: tensor '{name}' is sparse or quantised; store it dense")
        if not bool(torch.isfinite(value).all()):
            raise InputError(
                f"{path}: tensor '{name}' holds NaN or infinity; give the weights of a run that converged"
            )
    half = (torch.float16, torch.bfloat16)
    return {name: (v.float() if v.dtype in half else v).detach().numpy() for name, v in tensors.items()}


def _refuse_torchscript(path: Path) -> None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            parts = [name.split("/") for name in archive.namelist()]
        if any("code" in p[:-1] or p[-1] == "constants.pkl" for p in parts):
            raise InputError(
                f"{path}: a TorchScript archive, which is a program; save model.state_dict() instead"
            )


def _why(error: Exception) -> str:
    text = " ".join(str(error).split())
    forbidden = re.search(r"(?:GLOBAL|global:?|class) ([\w.]+)", text)
    if "weights_only" in text.lower() or "unsupported" in text.lower() or "Unpickl" in type(error).__name__:
        what = f" ({forbidden.group(1)})" if forbidden else ""
        return (
            f"a pickle that holds more than weights{what}, which could execute code: it was not opened; "
            "save model.state_dict() with torch.save, or a .safetensors file"
        )
    return f"not a whole PyTorch file ({type(error).__name__}: {text[:120]}); save or copy it again"


def _natural(name: str) -> list:
    """Sort key in which layer 10 comes after layer 2."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def from_weights(weights: Mapping[str, np.ndarray], architecture: Any = None, where: str = "weights") -> Any:
    """The module whose layers the description lists, with these weights.

    Tensors are matched in order: the k-th tensor of rank two or more belongs to the k-th weighted layer.
    """
    torch = require_torch()
    if architecture is None:
        if not {"W", "a"} <= set(weights):
            found = ", ".join(f"{k} {tuple(v.shape)}" for k, v in list(weights.items())[:6])
            raise InputError(f"{where}: which layers are these ({found})? Give --architecture {EXAMPLE}")
        weights = {
            "0.weight": weights["W"],
            "1.weight": np.reshape(weights["a"], (-1, weights["W"].shape[0])),
        }
        width, d = weights["0.weight"].shape
        architecture = [{"linear": [d, width]}, "relu", {"linear": [width, len(weights["1.weight"])]}]
    chain = layers(architecture)
    weighted = [layer for layer in chain if layer.weighted]
    matrices = [name for name, w in weights.items() if w.ndim >= 2]
    if len(matrices) != len(weighted):
        raise InputError(
            f"{where}: {len(matrices)} weight tensors ({', '.join(matrices[:6])}) but the architecture has "
            f"{len(weighted)} layers with weights; describe the same net"
        )
    values: list[tuple[np.ndarray, np.ndarray | None]] = []
    for layer, name in zip(weighted, matrices, strict=True):
        if weights[name].shape != layer.shape:
            raise InputError(
                f"{where}: tensor '{name}' has shape {weights[name].shape}, the architecture needs {layer.shape}"
            )
        values.append((weights[name], _bias(weights, name, layer.bias, layer.shape[0], where)))
    known = {*matrices, *(_bias_name(m) for m in matrices)}
    extra = [name for name in weights if name not in known]
    if extra:
        raise InputError(
            f"{where}: tensor '{extra[0]}' belongs to no layer described; describe the whole net"
        )
    model = build(chain, [bias is not None for _, bias in values])
    if any(weight.dtype == np.float64 for weight, _ in values):
        model = model.double()
    modules = [m for m in model if hasattr(m, "weight")]
    with torch.no_grad():
        for module, (weight, bias) in zip(modules, values, strict=True):
            module.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
            if bias is not None:
                module.bias.copy_(torch.from_numpy(np.ascontiguousarray(bias)))
    return model.eval()


def _bias_name(matrix: str) -> str:
    return matrix[: -len("weight")] + "bias" if matrix.endswith("weight") else matrix + "_bias"


def _bias(weights, matrix: str, wanted: bool | None, size: int, where: str) -> np.ndarray | None:
    name = _bias_name(matrix)
    found = weights.get(name)
    if wanted is not None and wanted is not (found is not None):
        there = "has no" if found is None else "has a"
        raise InputError(
            f"{where}: the file {there} tensor '{name}', the architecture says bias={str(wanted).lower()}"
        )
    if found is not None and found.shape != (size,):
        raise InputError(f"{where}: tensor '{name}' has shape {found.shape}, the layer needs ({size},)")
    return found
