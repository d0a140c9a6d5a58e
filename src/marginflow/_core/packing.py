"""Nested values as JSON beside named arrays, and back to equal values. Unpacking runs no code from the file.

JSON's own values stand for themselves. Everything else is an object with the key "$": arrays (by name), floats
that JSON lacks, tuples, mappings with other keys, statuses, and the frozen records of this library, whose class is
looked up among the library's own dataclasses.
"""

import dataclasses
import importlib
import math
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.status import Outcome, Status

MARK = "$"
PACKAGE = "marginflow"
_ENUMS: dict[str, type[Enum]] = {"Outcome": Outcome, "Status": Status}


class Damaged(ValueError):
    """The packed form contradicts itself; the caller knows which file to name."""


def pack(value: Any, where: str = "value") -> tuple[Any, dict[str, np.ndarray]]:
    """(JSON, arrays): what `unpack` turns back into `value`. `where` names the value in errors and array names."""
    arrays: dict[str, np.ndarray] = {}
    return _pack(value, where, arrays), arrays


def unpack(packed: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(packed, list):
        return [unpack(v, arrays) for v in packed]
    if not isinstance(packed, dict):
        return packed
    if MARK not in packed:
        return {k: unpack(v, arrays) for k, v in packed.items()}
    try:
        return _READERS[packed[MARK]](packed, arrays)
    except (KeyError, TypeError, AttributeError, ImportError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"a value of kind '{packed[MARK]}' cannot be read ({type(error).__name__}: {error})") from error


def _pack(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, Enum):
        name = type(value).__name__
        if _ENUMS.get(name) is not type(value):
            raise _unsavable(where, value)
        return {MARK: "enum", "type": name, "value": value.value}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {MARK: "float", "value": str(float(value))}
    if isinstance(value, list | tuple):
        items = [_pack(v, f"{where}.{k}", arrays) for k, v in enumerate(value)]
        if isinstance(value, list):
            return items
        if hasattr(value, "_fields"):
            raise _unsavable(where, value)  # a named tuple would come back without its names
        return {MARK: "tuple", "items": items}
    if isinstance(value, Mapping):
        return _pack_mapping(value, where, arrays)
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _pack_record(value, where, arrays)
    if hasattr(value, "dtype") or hasattr(value, "detach"):
        return _pack_array(value, where, arrays)
    raise _unsavable(where, value)


def _pack_mapping(value: Mapping, where: str, arrays: dict[str, np.ndarray]) -> Any:
    if all(isinstance(k, str) and not isinstance(k, Enum) for k in value) and MARK not in value:
        return {k: _pack(v, f"{where}.{k}", arrays) for k, v in value.items()}
    pairs = [[_pack(k, f"{where} (a key)", arrays), _pack(v, f"{where}.{k}", arrays)] for k, v in value.items()]
    return {MARK: "items", "items": pairs}


def _pack_record(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    cls = type(value)
    if _is_ours(cls.__module__):
        fields = {f.name: _pack(getattr(value, f.name), f"{where}.{f.name}", arrays)
                  for f in dataclasses.fields(value) if f.init}
        return {MARK: "record", "type": f"{cls.__module__}:{cls.__qualname__}", "fields": fields}
    raise _unsavable(where, value)


def _pack_array(value: Any, where: str, arrays: dict[str, np.ndarray]) -> Any:
    if "jax" in sys.modules and _is_key(value):
        import jax

        return {MARK: "key", "impl": str(jax.random.key_impl(value)),
                "data": _pack_array(jax.random.key_data(value), where, arrays)}
    array = to_numpy(value)
    if array.dtype.kind in "UO":
        if array.dtype.kind == "O" and not all(isinstance(v, str) for v in array.ravel()):
            raise _unsavable(where, value)
        words, codes = np.unique(array.astype(str), return_inverse=True)
        return {MARK: "words", "words": words.tolist(), "width": array.astype(str).dtype.itemsize // 4,
                "codes": _pack_array(codes.reshape(array.shape).astype(np.int32), where, arrays)}
    if array.dtype.kind not in "fiub":
        raise _unsavable(where, value)
    name = where
    while name in arrays:
        name += "'"
    arrays[name] = np.array(array, order="C")
    return {MARK: "array", "name": name, "scalar": isinstance(value, np.generic)}


def _is_key(value: Any) -> bool:
    import jax

    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def _is_ours(module: str) -> bool:
    return module == PACKAGE or module.startswith(PACKAGE + ".")


def _unsavable(where: str, value: Any) -> InputError:
    return InputError(f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved; "
                      "numbers, text, arrays, and tuples, lists, mappings and records of them can")


def _array(packed: dict, arrays: Mapping[str, np.ndarray]) -> Any:
    array = arrays[packed["name"]]
    return array[()] if packed["scalar"] else array


def _words(packed: dict, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    words = np.array(packed["words"], dtype=f"U{max(1, int(packed['width']))}")
    codes = unpack(packed["codes"], arrays)
    return words[codes] if len(words) else np.empty(codes.shape, words.dtype)


def _record(packed: dict, arrays: Mapping[str, np.ndarray]) -> Any:
    module, _, name = packed["type"].partition(":")
    if not _is_ours(module):
        raise Damaged(f"'{packed['type']}' is no record of {PACKAGE}")
    cls = getattr(importlib.import_module(module), name)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__ == module):
        raise Damaged(f"'{packed['type']}' is no record of {PACKAGE}")
    return cls(**{k: unpack(v, arrays) for k, v in packed["fields"].items()})


def _key(packed: dict, arrays: Mapping[str, np.ndarray]) -> Any:
    import jax

    return jax.random.wrap_key_data(unpack(packed["data"], arrays), impl=packed["impl"])


_READERS = {
    "array": _array,
    "words": _words,
    "key": _key,
    "record": _record,
    "enum": lambda p, arrays: _ENUMS[p["type"]](p["value"]),
    "float": lambda p, arrays: float(p["value"]),
    "tuple": lambda p, arrays: tuple(unpack(v, arrays) for v in p["items"]),
    "items": lambda p, arrays: {unpack(k, arrays): unpack(v, arrays) for k, v in p["items"]},
}
