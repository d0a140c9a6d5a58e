"""An experiment is a frozen value: its fields are its parameters, its methods compute, judge and draw.

    measure   parameters → arrays (an xarray Dataset: what is saved, and all that the rest may read)
    numbers   arrays → our numbers beside the paper's, each with a written band
    draw      arrays → a figure

Change a field and the same three steps give the next figure; `reproduce` runs them and keeps everything.
"""

import abc
import ast
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from marginflow._core.errors import InputError, unknown_name
from marginflow._core.record import Record, Table, jsonable, show, show_interval
from marginflow._core.status import Status


@dataclasses.dataclass(frozen=True)
class Number(Record):
    """One number of a figure: ours, the paper's (None where it gives none), and the band ours must lie in.

    The band is written down before looking: `why` says where it comes from. `undecided` when the number could not be
    computed (a missing data set, a solver that did not converge).
    """

    name: str
    ours: float | None
    paper: float | str | None
    band: tuple[float | None, float | None]
    why: str = ""

    def __post_init__(self):
        low, high = self.band
        if low is None and high is None:
            raise ValueError(f"number '{self.name}': a band without an end judges nothing")
        if low is not None and high is not None and low > high:
            raise ValueError(f"number '{self.name}': the band {self.band} is empty")

    @property
    def status(self) -> Status:
        if self.ours is None or self.ours != self.ours:
            return Status.UNDECIDED
        low, high = self.band
        inside = (low is None or self.ours >= low) and (high is None or self.ours <= high)
        return Status.HOLDS if inside else Status.FAILS

    def to_json(self) -> dict[str, Any]:
        return {
            "ours": jsonable(self.ours),
            "paper": self.paper,
            "band": list(self.band),
            "status": self.status.value,
            "why": self.why,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Reproduction(Record):
    """A reproduced figure: its numbers, and where its data and pictures are."""

    figure: str
    title: str
    numbers: tuple[Number, ...]
    files: tuple[str, ...]
    seconds: float
    parameters: Mapping[str, Any]
    note: str = ""

    @property
    def status(self) -> Status:
        seen = {n.status for n in self.numbers}
        return next((s for s in (Status.FAILS, Status.UNDECIDED) if s in seen), Status.HOLDS)

    def table(self) -> Table:
        rows = tuple(
            (n.name, show(n.ours), show(n.paper), show_interval(*n.band), n.status.value, n.why)
            for n in self.numbers
        )
        notes = (
            *([self.note] if self.note else ()),
            *(f"wrote {f}" for f in self.files),
            f"{self.seconds:.1f} s",
        )
        return Table(
            f"{self.figure}: {self.title}",
            ("number", "ours", "paper", "band", "status", "why this band"),
            rows,
            notes,
        )

    def to_json(self) -> dict[str, Any]:
        return jsonable(
            {
                "figure": self.figure,
                "title": self.title,
                "status": self.status,
                "numbers": {n.name: n.to_json() for n in self.numbers},
                "files": list(self.files),
                "seconds": self.seconds,
                "parameters": dict(self.parameters),
                "note": self.note,
            }
        )


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """Subclasses are frozen dataclasses; `name` is `<bibkey>_fig<k>` or what the figure shows."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]  # bib key, or "" for a figure no paper has
    needs: ClassVar[tuple[str, ...]] = ()  # "mnist", "cifar10": files of theory §8.3 and §8.4

    @abc.abstractmethod
    def quick(self) -> Self:
        """A small version of the same figure, well under a minute."""

    @abc.abstractmethod
    def measure(self) -> Any:
        """Everything the figure shows, as an xarray.Dataset."""

    @abc.abstractmethod
    def numbers(self, result: Any) -> tuple[Number, ...]: ...

    @abc.abstractmethod
    def draw(self, result: Any) -> Any:
        """A matplotlib figure, made inside `report.style.drawing()`."""

    def note(self, result: Any) -> str:
        """Where ours differs from the paper's, by how much and why."""
        return ""


def override(experiment: Experiment, settings: Mapping[str, str]) -> Experiment:
    """The experiment with fields replaced by values given as text: width=200, scales=(0.1,1)."""
    fields = {f.name: f for f in dataclasses.fields(experiment)}
    changes = {}
    for name, text in settings.items():
        if name not in fields:
            raise unknown_name(f"setting of {experiment.name}", name, fields)
        changes[name] = _parse(name, text, getattr(experiment, name))
    return dataclasses.replace(experiment, **changes)


def _parse(name: str, text: str, now: Any) -> Any:
    """`text` as a value of the type of the present one."""
    if isinstance(now, str):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise InputError(f"setting {name}: '{text}' is not a value like {now!r}") from None
    if isinstance(now, tuple) and not isinstance(value, tuple):
        value = tuple(value) if isinstance(value, list) else (value,)
    if isinstance(now, float) and isinstance(value, int):
        value = float(value)
    if type(value) is not type(now):
        raise InputError(
            f"setting {name}: {text} is a {type(value).__name__}; give a {type(now).__name__} like {now!r}"
        )
    return value


def reproduce(experiment: Experiment, out: str | Path = "figures") -> Reproduction:
    """Measure, save the data, judge the numbers, draw and save the figure."""
    import json
    import time

    from marginflow._core import files
    from marginflow._core.provenance import provenance
    from marginflow.report import style

    start = time.monotonic()
    folder = files.folder(out)
    result = experiment.measure()
    result.attrs |= {
        "experiment": experiment.name,
        "parameters": json.dumps(jsonable(dataclasses.asdict(experiment))),
        "provenance": json.dumps(jsonable(provenance())),
    }
    data_path = folder / f"{experiment.name}.nc"
    files.write(data_path, bytes(result.to_netcdf(engine="scipy")))  # netCDF-3: every reader has it
    with style.drawing():
        pictures = style.save(experiment.draw(result), folder / experiment.name)
    paths = (str(data_path), *pictures, str(folder / f"{experiment.name}.json"))
    made = Reproduction(
        experiment.name,
        experiment.title,
        experiment.numbers(result),
        paths,
        time.monotonic() - start,
        dataclasses.asdict(experiment),
        experiment.note(result),
    )
    files.write(paths[-1], (json.dumps(made.to_json(), indent=1) + "\n").encode())
    return made
