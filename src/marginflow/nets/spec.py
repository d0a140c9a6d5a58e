"""Architectures by name: from a command line ("deep-linear:depth=3,width=20") or from the JSON of a saved run.

Only the classes listed here are ever constructed, and only with numbers, names and tuples of them.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from marginflow._core.errors import InputError, unknown_name
from marginflow.nets.activations import Activation
from marginflow.nets.convolutional import Convolutional
from marginflow.nets.deep_linear import DeepLinear, Linear
from marginflow.nets.net import Net
from marginflow.nets.residual import Residual
from marginflow.nets.two_layer import TwoLayer

NETS: dict[str, type[Net]] = {c.kind: c for c in (TwoLayer, Linear, DeepLinear, Residual, Convolutional)}


def net(spec: Net | str | Mapping[str, Any]) -> Net:
    """A net from itself, its text (`str(net)`) or its JSON (`net.spec()`)."""
    if isinstance(spec, Net):
        return spec
    if isinstance(spec, str):
        kind, _, rest = spec.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part.strip()]
        bad = next((key for key, equals, _ in pairs if not equals), None)
        if bad is not None:
            raise InputError(f"net '{spec}': '{bad}' has no value; write {bad}=VALUE")
        fields = {key.strip(): value.strip() for key, _, value in pairs}
    else:
        fields = dict(spec)
        kind = str(fields.pop("net", ""))
    if kind not in NETS:
        raise unknown_name("net", kind, NETS)
    return _make(NETS[kind], fields)


def _make(cls: type[Net], fields: Mapping[str, Any]) -> Net:
    hints = typing.get_type_hints(cls)
    declared = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in fields:
        if name not in declared:
            raise unknown_name(f"field of the {cls.kind} net", name, declared)
    missing = [n for n, f in declared.items() if f.default is dataclasses.MISSING and n not in fields]
    if missing:
        raise InputError(f"net '{cls.kind}': {missing[0]} is not given; write {cls.kind}:{missing[0]}=VALUE")
    return cls(**{name: _read(f"{cls.kind} net: {name}", value, hints[name]) for name, value in fields.items()})


def _read(where: str, value: Any, hint: Any) -> Any:
    """`value`, which may be text, as the type its field declares."""
    if typing.get_origin(hint) is tuple:
        parts = value.split("-") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise InputError(f"{where} is {value!r}; write whole numbers joined by '-'")
        return tuple(_whole(where, part) for part in parts)
    if hint is bool:
        known = {"true": True, "false": False}
        if str(value).lower() not in known:
            raise InputError(f"{where} is {value!r}; write true or false")
        return known[str(value).lower()]
    if hint is int:
        return _whole(where, value)
    if hint is Activation or isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Literal:
        return value
    raise TypeError(f"{where}: no reader for {hint}")


def _whole(where: str, value: Any) -> int:
    try:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"{where} is {value!r}; give a whole number") from None
