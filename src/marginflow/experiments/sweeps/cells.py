"""From cells to tasks, and from a task to its results.

A task is what is computed, sent to a worker and kept as a whole: one flow, or as many descents as one compiled program
trains together. Which cells share a task depends on the spec alone, never on timing, so a sweep that was interrupted,
or spread over other machines, has the same tasks and ends with the same numbers.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marginflow import flows
from marginflow._core.record import jsonable
from marginflow._core.status import Outcome, conjunction
from marginflow._core.version import __version__
from marginflow.data import Dataset
from marginflow.data import load as load_data
from marginflow.experiments.sweeps.spec import Cell, Spec, filled
from marginflow.flows import ensembles
from marginflow.flows.neurons import Directions, census, has_census, max_margin_directions
from marginflow.nets import Net, TwoLayer, inits
from marginflow.nets import net as named_net
from marginflow.runs import Run, stable_rank
from marginflow.verify import verify

# These may differ between the members of one program. A schedule that measures its own net may not be shared.
MEMBERWISE = ("seed", "width", "scale", "lr")
SHARED_SCHEDULES = (None, "constant", "inverse-sqrt", "adaptive")
GROUPS = ("positive", "negative", "dead", "vanishing", "other")
QUANTITIES = (
    "log_time",
    "log_loss",
    "steps",
    "margin_min",
    "normalised_margin",
    "stable_rank",
    "frozen_log_time",
    "angle_positive",
    "angle_negative",
    *(f"neurons_{group}" for group in GROUPS),
)

LONGEST_MESSAGE = 500  # the store has a column of characters as wide as the longest one

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Task:
    index: int
    positions: tuple[int, ...]  # of its cells in the spec
    cells: tuple[Cell, ...]
    together: bool  # as members of one compiled program
    verify: tuple[str, ...]
    members: int


def tasks(spec: Spec) -> tuple[Task, ...]:
    """All tasks. Cells that can train together do, sorted by width so that little of the padding is wasted."""
    groups: dict[str, list[int]] = {}
    for position, cell in enumerate(spec.cells):
        groups.setdefault(_program(cell) or f"alone {position}", []).append(position)
    found: list[Task] = []
    for name, group in groups.items():
        together = not name.startswith("alone")
        ordered = (
            sorted(group, key=lambda p: (int(spec.cells[p].get("width", 100)), p)) if together else group
        )
        size = spec.members if together else 1
        for start in range(0, len(ordered), size):
            positions = tuple(ordered[start : start + size])
            cells = tuple(spec.cells[p] for p in positions)
            found.append(Task(len(found), positions, cells, together, spec.verify, spec.members))
    return tuple(found)


def _program(cell: Cell) -> str | None:
    """What members of one program have in common; None for a cell that is trained alone."""
    if cell.get("method", "flow") == "flow" or cell.get("schedule") not in SHARED_SCHEDULES:
        return None
    common = {name: value for name, value in cell.items() if name not in MEMBERWISE}
    common["data"] = filled(cell, "data")
    if "net" in cell:
        common["net"] = filled(cell, "net")
    return json.dumps(common, sort_keys=True)


def run(task: Task) -> dict[str, Any]:
    """The rows of a task, each a cell's results or why there are none; an error of one cell is that cell's alone."""
    start = time.monotonic()
    train = _together if task.together else _alone
    rows = _attempt(task, train)
    if rows is None:  # one of them cannot be trained: find out which by training each by itself
        rows = []
        for position, cell in zip(task.positions, task.cells, strict=True):
            one = dataclasses.replace(task, positions=(position,), cells=(cell,))
            rows += _attempt(one, train) or []
    return {"rows": rows, "seconds": time.monotonic() - start, "marginflow": __version__}


def _attempt(task: Task, train: Callable[[Task], list[Run]]) -> list[Row] | None:
    """Rows; None if several cells stand or fall together and one of them failed."""
    try:
        runs = train(task)
        return [
            {"cell": p, **_results(run, task.verify)} for p, run in zip(task.positions, runs, strict=True)
        ]
    except Exception as error:
        if len(task.cells) > 1:
            return None
        return [failure(task.positions[0], error)]


def failure(position: int, error: BaseException | str) -> Row:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {
        "cell": position,
        "state": "failed",
        "outcome": "",
        "message": text[:LONGEST_MESSAGE],
        "data_sha256": "",
        "quantities": {},
        "verdicts": {},
    }


def _alone(task: Task) -> list[Run]:
    (cell,) = task.cells
    data, net = read_data(filled(cell, "data"), str(cell.get("label", "y"))), net_of(cell)
    drawn = {"init": _law(cell), "scale": cell.get("scale"), "seed": cell.get("seed", 0)}
    theta = inits.init(drawn["init"], net, data.d, drawn["scale"], drawn["seed"])  # type: ignore[arg-type]
    method = str(cell.get("method", "flow"))
    options = _options(cell, ("loss", "until", "mode", "rtol") if method == "flow" else DESCENT_OPTIONS)
    if method == "flow":
        options |= {"paths": False, "records": 64}
    else:
        options |= {"seed": drawn["seed"], "progress": False, **_options(cell, ("lr",))}
    run = flows.train(net, theta, data, method=method, options=drawn, **options)
    if run.outcome is Outcome.INTERRUPTED:
        raise KeyboardInterrupt
    return [run]


DESCENT_OPTIONS = ("loss", "until", "batch", "epochs", "schedule", "replacement", "precision")


def _together(task: Task) -> list[Run]:
    first = task.cells[0]
    data, net = read_data(filled(first, "data"), str(first.get("label", "y"))), net_of(first)
    law = _law(first)
    # A last, smaller task repeats its last cell: it then runs the program that is already compiled.
    cells = [*task.cells, *[task.cells[-1]] * (task.members - len(task.cells))]
    default = inits.LAWS[law].scale
    members = ensembles.Members(
        np.array([c.get("seed", 0) for c in cells], np.int64),
        np.array([c.get("width", 100) for c in cells], np.int64) if "net" not in first else None,
        np.array([c.get("scale", default) for c in cells], float),
        np.array([c.get("lr", 0.1) for c in cells], float),
    )
    result = ensembles.ensemble(
        net,
        data,
        members,
        init=law,
        method=str(first["method"]),
        size=len(cells),
        progress=False,
        **_options(first, DESCENT_OPTIONS),
    )
    if not result.complete:
        raise KeyboardInterrupt
    return [result.member(k) for k in range(len(task.cells))]


def _options(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    return {name: cell[name] for name in names if name in cell}


def _law(cell: Cell) -> str:
    return str(cell.get("init", "balanced" if cell.get("method", "flow") == "flow" else "uniform"))


def net_of(cell: Cell) -> Net:
    if "net" in cell:
        return named_net(filled(cell, "net"))
    train: Any = cell.get("train", "both")
    return TwoLayer(int(cell.get("width", 100)), activation=cell.get("activation", "relu"), train=train)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4)
def read_data(name: str, label: str) -> Dataset:
    return load_data(name, label)


@functools.lru_cache(maxsize=4)
def _directions(name: str, label: str) -> Directions:
    return max_margin_directions(read_data(name, label))


def _results(run: Run, theorems: Sequence[str]) -> Row:
    diverged = run.outcome is Outcome.DIVERGED
    return jsonable(
        {
            "state": "failed" if diverged else "done",
            "outcome": run.outcome,
            "message": run.message[:LONGEST_MESSAGE] if run.method == "flow" else "",
            "data_sha256": run.data.sha256,
            "quantities": quantities(run),
            "verdicts": {} if diverged or not theorems else verdicts(run, theorems),
        }
    )


def quantities(run: Run) -> dict[str, float]:
    """The numbers of one run, by the names of QUANTITIES; what a net or a method does not have is left out."""
    last = run.summary()
    found = {
        "log_time": run.log_time,
        "log_loss": run.log_loss,
        "steps": run.steps,
        "margin_min": last["margins_min"],
        "normalised_margin": run.limit.normalised_margin if run.limit else last["normalised_margin"],
        "stable_rank": stable_rank(run.theta),
        "frozen_log_time": run.frozen_log_time,
    }
    if has_census(run.net):
        seen = census(run.theta, run.theta0, run.data, _directions_of(run.data))
        counts: Mapping[str, int] = run.extra.get("neurons", seen.counts)  # a flow knows every fate
        found |= {f"neurons_{group}": counts[group] for group in GROUPS}
        found |= {f"angle_{sign}": angle for sign, angle in seen.angle.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def _directions_of(data: Dataset) -> Directions:
    return _directions(data.name, str(data.provenance.get("label", "y")))


def verdicts(run: Run, theorems: Sequence[str]) -> dict[str, dict[str, str]]:
    """theorem -> its status, and that of its conclusions whatever its assumptions; nothing for a silent one."""
    return {
        v.theorem: {"status": v.status.value, "conclusions": conjunction(c.status for c in v.claims).value}
        for v in verify(run, theorems=theorems).verdicts
    }
