"""DATA: a file or a built-in family, named by one string.

`points.csv`, `phuong2021:n=500,d=20,seed=0`, `digits:0,1`: a family is a function; its options are the function's
keyword arguments, and bare items are its *classes.
"""

import importlib
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow.data.dataset import Dataset

# name -> the function, or "module:function" for one that is imported when it is asked for
FAMILIES: dict[str, Callable[..., Dataset] | str] = {
    "phuong2021": "marginflow.data.families:phuong2021",
    "gaussian-mixture": "marginflow.data.families:gaussian_mixture",
    "chizat2020": "marginflow.data.families:chizat2020",
    "digits": "marginflow.data.sklearn_digits:digits",
    "mnist": "marginflow.data.images:mnist",
    "cifar10": "marginflow.data.images:cifar10",
}

READERS = {
    ".npz": "npfiles:read_npz",
    ".npy": "npfiles:read_npy",
    ".csv": "tables:read_csv",
    ".parquet": "tables:read_parquet",
}


def register(name: str, family: Callable[..., Dataset] | str) -> None:
    """Make `family` (or "module:function") available as DATA under `name`."""
    FAMILIES[name] = family


def load(spec: str, label: str = "y") -> Dataset:
    """The data set that `spec` names. `label` is the label column, or the label array of a .npz or .npy."""
    spec = str(spec)
    head = spec.partition(":")[0]
    try:
        return _family(spec) if head in FAMILIES else _file(spec, label)
    except MemoryError as error:
        raise InputError(
            f"{spec}: does not fit in memory ({error}); make it smaller or give it as a .npy file"
        ) from None


def _file(spec: str, label: str) -> Dataset:
    if not spec.strip():
        raise InputError("the name of the data set is empty; give a file or a family such as phuong2021:")
    path = Path(spec).expanduser()
    suffix = path.suffix.lower()
    if suffix not in READERS:
        if path.exists() or (suffix and ":" not in spec):
            raise InputError(f"{spec}: not a kind of file that can be read; give {', '.join(READERS)}")
        raise unknown_name("data set", spec.partition(":")[0], FAMILIES)
    if not path.is_file():
        raise InputError(
            f"{spec}: {'a folder, not a file' if path.is_dir() else 'no such file'}; check the path"
        )
    try:
        if path.stat().st_size == 0:
            raise InputError(f"{spec}: the file is empty")
        module, _, name = READERS[suffix].partition(":")
        X, y = getattr(importlib.import_module(f"marginflow.data.{module}"), name)(path, label)
    except OSError as error:
        raise InputError(f"{spec}: cannot be read: {error.strerror or error}") from None
    if isinstance(X, np.ndarray) and X.flags.writeable and not isinstance(X, np.memmap):
        X.flags.writeable = False  # ours alone: nothing to copy
    return Dataset(X, y, spec, {"file": str(path.absolute()), "label": label})


def _family(spec: str) -> Dataset:
    head, _, rest = spec.partition(":")
    function = FAMILIES[head]
    if isinstance(function, str):
        module, _, name = function.partition(":")
        function = getattr(importlib.import_module(module), name)
    parameters = inspect.signature(function, eval_str=True).parameters
    takes_classes = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    known = {name: p for name, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}
    classes: list[str] = []
    options: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals and takes_classes:
            classes.append(name)
        elif not equals:
            raise InputError(
                f"{head}: '{item}' is not an option; write name=value with a name among {', '.join(known)}"
            )
        elif name not in known:
            raise unknown_name(f"option of {head}", name, known)
        elif name in options:
            raise InputError(f"{head}: {name} is given twice")
        else:
            options[name] = _value(head, name, text, known[name].annotation)
    return function(*classes, **options)


def _value(family: str, name: str, text: str, annotation: Any) -> Any:
    kinds = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    if int in kinds:
        return _number(family, name, text, "an integer", _integer)
    if float in kinds:
        return _number(family, name, text, "a finite number", _finite)
    return text


def _number(family: str, name: str, text: str, what: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise InputError(f"{family}: {name}={text or '(nothing)'} is not {what}") from None


def _integer(text: str) -> int:
    """'1000000' or '1e6'."""
    try:
        return int(text)
    except ValueError:
        value = float(text)
        if not value.is_integer():
            raise
        return int(value)


def _finite(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value
