"""What a sweep asks for: a TOML file, or the same as a mapping, turned into cells.

    data = "phuong2021:n=100,d=10,seed={draw}"     options of `marginflow train`, the same for every cell
    method = "flow"
    verify = ["phuong2021.theorem1"]               theorems held against every cell

    [grid]                                         every combination
    scale = [1e-3, 1e-1]
    seed = { range = [0, 20] }
    draw = [0, 1, 2]                               a name of one's own, used in data or net

    [random]                                       independent draws
    samples = 50
    width = { integers = [2, 200] }

    [[list]]                                       rows written out
    init = "balanced"

Where several of the three are given, the cells are all their combinations: list × random × grid, grid fastest.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import string
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow.flows import descents
from marginflow.nets import inits

Value = str | int | float | bool
Cell = dict[str, Value]

# name -> its type: the options of `marginflow train`, by the same names and with the same meaning.
OPTIONS: dict[str, type] = {
    "data": str,
    "label": str,
    "method": str,
    "net": str,
    "width": int,
    "activation": str,
    "train": str,
    "init": str,
    "scale": float,
    "seed": int,
    "loss": str,
    "until": str,
    "lr": float,
    "batch": int,
    "epochs": int,
    "schedule": str,
    "replacement": bool,
    "precision": str,
    "mode": str,
    "rtol": float,
}
FLOW_ONLY = ("mode", "rtol")
DESCENT_ONLY = ("lr", "batch", "epochs", "schedule", "replacement", "precision")
TEMPLATES = ("data", "net")  # may name other values of the cell in braces
MEMBERS = 8  # of one compiled program: what keeps a CPU's cache warm; a GPU wants hundreds
MOST_CELLS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Spec:
    """fixed: options that every cell shares. axes: those that differ, in order. cells: each with all its values."""

    fixed: Mapping[str, Value]
    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    verify: tuple[str, ...]
    members: int

    @property
    def fingerprint(self) -> str:
        """One hash of everything that decides the results."""
        text = json.dumps(
            {"cells": self.cells, "axes": self.axes, "verify": self.verify, "members": self.members},
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()


def read(path: str | os.PathLike) -> Spec:
    """The spec in a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the TOML file that describes the sweep") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    try:
        asked = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    try:
        return spec(asked)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def spec(asked: Mapping[str, Any]) -> Spec:
    """The spec in a mapping of the same shape as the file."""
    known = [*OPTIONS, "verify", "members", "grid", "random", "list"]
    for name in asked:
        if name not in known:
            raise unknown_name("entry of a sweep", name, known)
    fixed = {name: _value(name, asked[name]) for name in asked if name in OPTIONS}
    listed, drawn, grid = _listed(asked.get("list")), _drawn(asked.get("random")), _grid(asked.get("grid"))
    _few("cells", len(listed) * len(drawn) * len(grid))
    axes: dict[str, None] = {}
    cells = []
    for parts in itertools.product(listed, drawn, grid):
        cell: Cell = dict(fixed)
        for part in parts:
            for name, value in part.items():
                if name in cell:
                    raise InputError(f"{name} is given twice; give it in one place")
                cell[name] = value
                axes[name] = None
        cells.append(cell)
    if "data" not in fixed and "data" not in axes:
        raise InputError('data is not given; write data = "phuong2021:" or the name of a file')
    _used_names(fixed, axes, cells)
    _meaningful(cells)
    return Spec(fixed, tuple(axes), tuple(cells), _verify(asked.get("verify", ())), _members(asked))


def filled(cell: Cell, name: str) -> str:
    """The text `name` of the cell with {names} replaced by the cell's values."""
    text = str(cell[name])
    values = {key: cell[key] for key in _fields(text) if key in cell}
    return text.format(**values) if values else text


def _fields(text: str) -> list[str]:
    try:
        return [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise InputError(f"'{text}': {error}; write {{name}}, and {{{{ for a brace") from None


def _used_names(fixed: Mapping[str, Value], axes: Mapping[str, None], cells: Sequence[Cell]) -> None:
    """Every {name} has a value in its cell; an axis that is no option is used by a template."""
    texts = {str(cell[t]) for cell in cells for t in TEMPLATES if t in cell}
    used = {name for text in texts for name in _fields(text)}
    for name in axes:
        if name not in OPTIONS and name not in used:
            raise unknown_name("option", name, [*OPTIONS, *(u for u in used if u)])
    for cell in cells:
        for t in TEMPLATES:
            missing = next((n for n in _fields(str(cell.get(t, ""))) if n not in cell), None)
            if missing is not None:
                raise InputError(
                    f"{t} '{cell[t]}' needs {missing or 'a name in its braces'}, which is not given"
                )


def _meaningful(cells: Sequence[Cell]) -> None:
    """No option that every cell would ignore, and no name that none of them can mean."""
    methods = {str(cell.get("method", "flow")) for cell in cells}
    for method in methods:
        if method not in ("flow", *descents.METHODS):
            raise unknown_name("method", method, ("flow", *descents.METHODS))
    for law in {str(cell["init"]) for cell in cells if "init" in cell}:
        if law not in inits.LAWS:
            raise unknown_name("initialisation", law, inits.LAWS)
    given = set().union(*cells) if cells else set()
    idle = DESCENT_ONLY if methods == {"flow"} else FLOW_ONLY if "flow" not in methods else ()
    for name in idle:
        if name in given:
            raise InputError(f"{name} has no meaning for method {', '.join(sorted(methods))}; leave it out")
    for name in ("width", "activation", "train"):
        if (
            "net" in given
            and name in given
            and not any(f"{{{name}}}" in str(c.get("net", "")) for c in cells)
        ):
            raise InputError(f"{name} beside net; write it into the net, as in two-layer:width=100")


def _value(name: str, value: Any) -> Value:
    """One value of the option `name`, of its type; of any plain type for a name of one's own."""
    kind = OPTIONS.get(name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    plain = isinstance(value, str | bool | int | float)
    right = (
        plain if kind is None else isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    )
    if not right:
        raise InputError(f"{name} = {value!r} is not {_called(kind)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name} = {value}; give a finite number")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:
        raise InputError(f"{name} = {value}; give a whole number of at most 2^53")
    return value


def _called(kind: type | None) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a number, a text, true or false") if kind else "a number, a text, true or false"


def _grid(table: Any) -> list[Cell]:
    names = _table("grid", table)
    axes = [[_value(name, v) for v in _axis(name, values)] for name, values in names.items()]
    count = math.prod(map(len, axes))
    if count > MOST_CELLS:
        raise InputError(f"the grid has {count} cells; ask for at most {MOST_CELLS}")
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*axes)]


def _axis(name: str, values: Any) -> Sequence[Any]:
    """A list, { range = [first, last + 1] }, { linear = [low, high, count] } or { geometric = [low, high, count] }."""
    if isinstance(values, list | tuple) and values:
        return values
    remedy = "a list, { range = [0, 20] }, { linear = [0, 1, 11] } or { geometric = [1e-4, 1, 9] }"
    if not isinstance(values, Mapping) or len(values) != 1:
        raise InputError(f"grid: {name} = {values!r}; give {remedy}")
    ((kind, ends),) = values.items()
    numbers = isinstance(ends, list | tuple) and all(type(e) in (int, float) for e in ends)
    if kind == "range" and numbers and 2 <= len(ends) <= 3 and all(_whole(e) for e in ends):
        found = range(*ends) if len(ends) < 3 or ends[2] else []
    elif kind in ("linear", "geometric") and numbers and len(ends) == 3 and _whole(ends[2]) and ends[2] > 0:
        _few(name, ends[2])
        if kind == "geometric" and not min(ends[:2]) > 0:
            raise InputError(f"grid: {name}: a geometric axis lies above 0, not {ends[:2]}")
        found = (np.linspace if kind == "linear" else np.geomspace)(*ends).tolist()
        found = [*map(round, found)] if OPTIONS.get(name) is int else found
        found = list(dict.fromkeys(found))
    else:
        found = []
    if not found:
        raise InputError(f"grid: {name} = {values!r}; give {remedy}")
    _few(name, len(found))
    return found


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= 2**53


def _few(name: str, count: int) -> None:
    """Before anything of that length is made."""
    if count > MOST_CELLS:
        raise InputError(f"{name}: {count} values; ask for at most {MOST_CELLS}")


def _drawn(table: Any) -> list[Cell]:
    """Each axis has a stream of its own, so more samples keep the first ones and another axis changes none."""
    names = dict(_table("random", table))
    if not names:
        return [{}]
    samples, seed = names.pop("samples", None), names.pop("seed", 0)
    if isinstance(seed, Mapping):
        names["seed"], seed = seed, 0
    if type(samples) is not int or samples < 1:
        raise InputError(f"random: samples = {samples!r}; give how many draws")
    _few("random: samples", samples)
    if type(seed) is not int or seed < 0:
        raise InputError(f"random: seed = {seed!r}; give a whole number of at least 0")
    columns = {}
    for name, law in names.items():
        stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
        columns[name] = [_value(name, v) for v in _draws(name, law, stream, samples)]
    return [{name: column[k] for name, column in columns.items()} for k in range(samples)]


def _draws(name: str, law: Any, stream: np.random.Generator, samples: int) -> list[Any]:
    remedy = (
        "{ uniform = [0, 1] }, { log-uniform = [1e-4, 1] }, { integers = [2, 200] } or { choice = [...] }"
    )
    if isinstance(law, Mapping) and len(law) == 1:
        ((kind, of),) = law.items()
        kind = kind.replace("_", "-")
        if kind == "choice" and isinstance(of, list | tuple) and of:
            return [of[k] for k in stream.integers(len(of), size=samples)]
        pair = isinstance(of, list | tuple) and len(of) == 2 and all(type(e) in (int, float) for e in of)
        if pair and of[0] <= of[1]:
            low, high = of
            if kind == "integers" and type(low) is int and type(high) is int:
                return stream.integers(low, high, endpoint=True, size=samples).tolist()
            if kind == "uniform":
                return stream.uniform(low, high, samples).tolist()
            if kind == "log-uniform" and low > 0:
                return np.exp(stream.uniform(math.log(low), math.log(high), samples)).tolist()
    raise InputError(f"random: {name} = {law!r}; give {remedy}")


def _listed(rows: Any) -> list[Cell]:
    if rows is None:
        return [{}]
    if not isinstance(rows, list | tuple) or not rows or not all(isinstance(r, Mapping) and r for r in rows):
        raise InputError("list: write each row as [[list]] with name = value beneath")
    return [{name: _value(name, v) for name, v in row.items()} for row in rows]


def _table(name: str, table: Any) -> Mapping[str, Any]:
    if table is None:
        return {}
    if not isinstance(table, Mapping) or not table:
        raise InputError(f"{name}: write [{name}] with name = values beneath")
    return table


def _verify(keys: Any) -> tuple[str, ...]:
    from marginflow.theorems import THEOREMS

    keys = [keys] if isinstance(keys, str) else keys
    if not isinstance(keys, list | tuple):
        raise InputError(f"verify = {keys!r}; give a list of theorems")
    for key in keys:
        if key not in THEOREMS:
            raise unknown_name("theorem", str(key), THEOREMS)
    return tuple(keys)


def _members(asked: Mapping[str, Any]) -> int:
    members = asked.get("members", MEMBERS)
    if type(members) is not int or not 1 <= members <= 65536:
        raise InputError(
            f"members = {members!r}; give how many cells one compiled program trains, 1 to 65536"
        )
    return members
