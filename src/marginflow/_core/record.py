"""Every result is a frozen dataclass that can say itself: a table in a terminal, HTML in a notebook, JSON."""

import dataclasses
import html
import math
import shutil
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from itertools import zip_longest
from textwrap import fill, wrap
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Table:
    """What a record shows of itself: a title, columns, rows of text, and notes beneath."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def to_text(self, width: int | None = None) -> str:
        """Lines of `width` characters (of the terminal, or 120) where words allow it: long cells go on below."""
        width = width or shutil.get_terminal_size((120, 24)).columns
        rows = [[str(cell) for cell in row] for row in (self.columns, *self.rows)]
        widths = _fitted(list(zip(*rows, strict=True)), width)
        lines = [line for row in rows for line in _lines(row, widths)]
        lines.insert(len(_lines(rows[0], widths)), "  ".join("-" * w for w in widths))
        return "\n".join([fill(self.title, width), *lines, *(fill(note, width) for note in self.notes)])

    def to_html(self) -> str:
        esc = lambda x: html.escape(str(x))  # noqa: E731
        head = "".join(f"<th>{esc(c)}</th>" for c in self.columns)
        body = "".join("<tr>" + "".join(f"<td>{esc(c)}</td>" for c in row) + "</tr>" for row in self.rows)
        notes = "".join(f"<p>{esc(n)}</p>" for n in self.notes)
        caption = f"<caption>{esc(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _fitted(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widths of columns two spaces apart, the widest ones cut so that a line fits if that can be.

    Cut between words: a name or a path can be copied, be the line longer than the terminal.
    """
    widths = [max(map(len, column)) for column in columns]
    least = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    room, longest = width - 2 * (len(widths) - 1), max(widths, default=0)
    cut = lambda: [max(min(w, longest), low) for w, low in zip(widths, least, strict=True)]  # noqa: E731
    while sum(cut()) > room and longest > 0:
        longest -= 1
    return cut()


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [
        wrap(cell, w, break_long_words=False, break_on_hyphens=False) or [""] if len(cell) > w else [cell]
        for cell, w in zip(row, widths, strict=True)
    ]
    return ["  ".join(part.ljust(w) for part, w in zip(parts, widths, strict=True)).rstrip()
            for parts in zip_longest(*cells, fillvalue="")]  # fmt: skip


class Record:
    """Mixin for frozen dataclasses. A record defines `table()`; printing and HTML follow."""

    def table(self) -> Table:
        rows = [(f.name, show(getattr(self, f.name))) for f in dataclasses.fields(self) if f.repr]  # type: ignore[arg-type]
        return Table(type(self).__name__, ("field", "value"), tuple(rows))

    def tables(self) -> Sequence[Table]:
        return [self.table()]

    def __str__(self) -> str:
        return "\n\n".join(t.to_text() for t in self.tables())

    def __init_subclass__(cls, **kwargs: Any):
        """What the prompt shows is the table too; `dataclass` keeps a __repr__ that is there, and its own is a wall of
        arrays."""
        super().__init_subclass__(**kwargs)
        cls.__repr__ = Record.__str__

    def _repr_html_(self) -> str:
        return "".join(t.to_html() for t in self.tables())

    def to_json(self) -> dict[str, Any]:
        return {f.name: jsonable(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]


LONG_INTEGER = 10**12  # shown to six digits; JSON has them all


def show(value: Any) -> str:
    """One cell of a table: short, never a wall of numbers."""
    if value is None:
        return "-"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    if isinstance(value, int) and abs(value) >= LONG_INTEGER:
        return f"{Decimal(value):.6g}"
    if hasattr(value, "shape") and getattr(value, "ndim", 0):
        return f"array{np.shape(value)}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {show(v)}" for k, v in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(show, value)) if len(value) <= 6 else f"{len(value)} entries"
    return str(value)


def show_interval(low: float | None, high: float | None) -> str:
    """The numbers from `low` to `high` in words; None for an end that is open."""
    if low is None or high is None:
        return "any" if low == high else f"≥ {show(low)}" if high is None else f"≤ {show(high)}"
    return show(low) if low == high else f"{show(low)} to {show(high)}"


def jsonable(value: Any) -> Any:
    """JSON has no infinities and no arrays: those become strings 'inf', '-inf', 'nan' and nested lists."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        to_json = getattr(value, "to_json", None)
        return (
            to_json()
            if to_json
            else {f.name: jsonable(getattr(value, f.name)) for f in dataclasses.fields(value)}
        )
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [jsonable(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    if hasattr(value, "shape"):
        array = np.asarray(value)
        return jsonable(array.tolist() if array.ndim else array.item())
    return value if isinstance(value, str) or value is None else str(value)
