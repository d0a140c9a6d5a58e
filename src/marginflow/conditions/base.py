"""What a condition answers: a status, the number it was read from, the threshold, the room left, and a witness."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Status, conjunction
from marginflow.data.dataset import Dataset


@dataclasses.dataclass(frozen=True)
class Condition(Record):
    """One condition of theory §1 on one data set.

    slack is positive when the condition holds with room and negative when it fails, and does not change when the
    data are multiplied by a constant; 0 is the boundary, where `status` alone decides (a cross-class product of
    exactly 0 is allowed, a same-class one is not). None where no such number exists.
    witness holds what `certificates.recheck` needs to prove the status again from the definition.
    """

    name: str
    status: Status
    measured: float | None
    threshold: float | None
    slack: float | None
    witness: Mapping[str, Any]
    seconds: float = 0.0
    tolerance: float = 0.0
    notes: tuple[str, ...] = ()

    def table(self) -> Table:
        rows = [(key, show(getattr(self, key))) for key in ("status", "measured", "threshold", "slack", "tolerance")]
        rows += [(key, show(value)) for key, value in self.witness.items()]
        return Table(self.name, ("quantity", "value"), tuple(rows), self.notes)


@dataclasses.dataclass(frozen=True)
class Checks(Record):
    """The conditions of one data set, by name."""

    dataset: Mapping[str, Any]
    conditions: Mapping[str, Condition]

    @property
    def status(self) -> Status:
        return conjunction(c.status for c in self.conditions.values())

    def __getitem__(self, name: str) -> Condition:
        return self.conditions[name]

    def table(self) -> Table:
        rows = [(c.name, show(c.status), show(c.measured), show(c.threshold), show(c.slack), _headline(c.witness),
                 f"{c.seconds:.3f}") for c in self.conditions.values()]
        columns = ("condition", "status", "measured", "threshold", "slack", "witness", "seconds")
        title = "{name}: {n} examples in R^{d}, {n_positive} positive, {n_negative} negative".format(**self.dataset)
        notes = tuple(f"{c.name}: {note}" for c in self.conditions.values() for note in c.notes)
        return Table(title, columns, tuple(rows), notes)

    def to_json(self) -> dict[str, Any]:
        conditions = {name: _without_name(condition) for name, condition in self.conditions.items()}
        return jsonable({"dataset": self.dataset, "conditions": conditions})


def _without_name(condition: Condition) -> dict[str, Any]:
    return {f.name: getattr(condition, f.name) for f in dataclasses.fields(condition) if f.name != "name"}


def _headline(witness: Mapping[str, Any]) -> str:
    """The part of a witness that fits a table cell: which rows, else the first entry."""
    kind = f"{witness['kind']}: " if "kind" in witness else ""
    for key in ("rows", "pair"):
        if key in witness:
            return f"{kind}{key} {show(witness[key])}"
    return next((f"{k} {show(v)}" for k, v in witness.items()), "-")


def timed(check: Callable[..., Condition]) -> Callable[..., Condition]:
    """Fill in `seconds`."""

    @functools.wraps(check)
    def wrapped(data: Dataset, *args: Any, **options: Any) -> Condition:
        start = time.perf_counter()
        condition = check(data, *args, **options)
        return dataclasses.replace(condition, seconds=time.perf_counter() - start)

    return wrapped
