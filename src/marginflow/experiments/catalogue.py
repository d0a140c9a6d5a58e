"""The list of figures, and reproducing one or all of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, jsonable
from marginflow._core.status import Status
from marginflow.experiments import FIGURES, experiment
from marginflow.experiments.base import Experiment, Reproduction, override, reproduce


@dataclasses.dataclass(frozen=True)
class Listing(Record):
    figures: tuple[Experiment, ...]

    def table(self) -> Table:
        rows = tuple((e.name, e.title, e.paper or "-", ", ".join(e.needs) or "-") for e in self.figures)
        return Table("figures", ("name", "shows", "paper", "needs files"), rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "figures": [
                {
                    "name": e.name,
                    "title": e.title,
                    "paper": e.paper,
                    "needs": list(e.needs),
                    "parameters": jsonable(dataclasses.asdict(e)),
                }
                for e in self.figures
            ]
        }


@dataclasses.dataclass(frozen=True)
class Reproductions(Record):
    """All figures. `skipped`: name -> the files it needs and could not find."""

    made: tuple[Reproduction, ...]
    skipped: Mapping[str, str]

    @property
    def status(self) -> Status:
        seen = {m.status for m in self.made}
        return next((s for s in (Status.FAILS, Status.UNDECIDED) if s in seen), Status.HOLDS)

    def tables(self) -> list[Table]:
        rows = tuple((m.figure, m.status.value, str(len(m.numbers)), f"{m.seconds:.1f}") for m in self.made)
        rows += tuple((name, "skipped", "-", "-") for name in self.skipped)
        notes = tuple(f"{name} skipped: {why}" for name, why in self.skipped.items())
        return [
            *(m.table() for m in self.made),
            Table("all figures", ("figure", "status", "numbers", "seconds"), rows, notes),
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "figures": [m.to_json() for m in self.made],
            "skipped": dict(self.skipped),
        }


def listing() -> Listing:
    return Listing(tuple(experiment(name) for name in FIGURES))


def reproduce_one(
    chosen: Experiment,
    *,
    quick: bool = False,
    out: str = "figures",
    settings: Mapping[str, str] | None = None,
) -> Reproduction:
    small = chosen.quick() if quick else chosen
    return reproduce(override(small, settings or {}), Path(out))


def reproduce_all(
    *, quick: bool = False, out: str = "figures", settings: Mapping[str, str] | None = None
) -> Reproductions:
    """Every figure; those whose files are missing are skipped and named, never silently."""
    made, skipped = [], {}
    for name in FIGURES:
        chosen = experiment(name)
        known = {f.name for f in dataclasses.fields(chosen)}
        mine = {k: v for k, v in (settings or {}).items() if k in known}
        try:
            made.append(reproduce_one(chosen, quick=quick, out=out, settings=mine))
        except InputError as error:
            if not chosen.needs:
                raise
            skipped[name] = str(error)
    return Reproductions(tuple(made), skipped)
