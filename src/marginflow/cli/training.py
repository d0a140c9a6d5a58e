"""What `marginflow train` answers: the run's headline numbers, where it was kept, and how to go on after Ctrl-C."""

import dataclasses
import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginflow import store
from marginflow._core import files
from marginflow._core.errors import InputError
from marginflow._core.progress import progress
from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Outcome
from marginflow.cli.common import this_command
from marginflow.data import Dataset
from marginflow.flows import ensembles, train
from marginflow.flows.gradient_flow import request
from marginflow.flows.neurons import Census, census, has_census, max_margin_directions, singular_values
from marginflow.nets import Net, inits
from marginflow.runs import Run, stable_rank

GROUPS = ("positive", "negative", "dead", "vanishing", "other")
STATISTICS = ("min", "lower_quartile", "median", "upper_quartile", "max")
SPREAD = ("quantity", *(name.replace("_", " ") for name in STATISTICS))


@dataclasses.dataclass(frozen=True, eq=False)
class Trained(Record):
    run: Run
    path: str | None
    neurons: Census | None

    def table(self) -> Table:
        table = self.run.table()
        extra = (
            []
            if self.neurons is None
            else [
                ("neurons", show(self.neurons.counts)),
                *(
                    (f"angle to w{sign}", show(self.neurons.angle[k]))
                    for k, sign in (("positive", "+"), ("negative", "-"))
                ),
            ]
        )
        return Table(
            table.title,
            table.columns,
            (*table.rows, *extra),
            () if self.path is None else (f"saved in {self.path}",),
        )

    @property
    def converged(self) -> bool:
        return self.run.outcome is Outcome.CONVERGED

    @property
    def counts(self) -> Mapping[str, int | None]:
        """Neurons by what became of them; the exact flow knows each fate, which the weights alone may not show."""
        counted = dict.fromkeys(GROUPS) if self.neurons is None else self.neurons.counts
        return self.run.extra.get("neurons", counted)

    @property
    def angle(self) -> Mapping[str, float | None]:
        return dict.fromkeys(("positive", "negative")) if self.neurons is None else dict(self.neurons.angle)

    def numbers(self) -> dict[str, float | None]:
        """The headline numbers; log_time inf and log_loss -inf at the limit network."""
        last = self.run.summary()
        return {
            "log_time": self.run.log_time,
            "log_loss": self.run.log_loss,
            "normalised_margin": _finite(last["normalised_margin"]),
            "margins_min": last["margins_min"],
            "stable_rank": stable_rank(self.run.theta),
            "frozen_log_time": self.run.frozen_log_time,
        }

    def to_json(self) -> dict[str, Any]:
        run = self.run
        return jsonable(
            {
                "run": self.path,
                "method": run.method,
                "outcome": run.outcome,
                "message": run.message,
                "steps": run.steps,
                "loss_reduction": run.loss_reduction,
                **self.numbers(),
                "integrated": run.integrated,
                "neurons": self.counts,
                "angle": self.angle,
                "options": dict(run.options),
            }
        )


def _finite(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def one(
    net: Net,
    data: Dataset,
    method: str,
    init: str,
    scale: float | None,
    seed: int,
    out: str,
    options: Mapping[str, Any],
) -> Trained:
    folder = store.prepare(out) if out else None
    theta = inits.init(init, net, data.d, scale, seed)
    drawn = _drawn(init, scale, seed)
    if method == "flow":
        run = train(net, theta, data, method="flow", options=drawn, **options)
        if run.outcome is Outcome.INTERRUPTED:
            _leave_flow(run, folder)
    else:
        kept = None if folder is None else store.CheckpointFolder(folder)
        run = train(net, theta, data, method=method, seed=seed, checkpoints=kept, options=drawn, **options)
    if run.outcome is Outcome.INTERRUPTED:
        _leave(folder)
    if folder is not None:
        store.save(run, folder)
        _forget(folder)
    return _counted(run, folder)


def _drawn(init: str, scale: float | None, seed: int) -> dict[str, Any]:
    return {"init": init, "scale": inits.LAWS[init].scale if scale is None else scale, "seed": seed}


def _counted(run: Run, folder: Path | None) -> Trained:
    neurons = None
    if has_census(run.net):
        neurons = census(run.theta, run.theta0, run.data, max_margin_directions(run.data))
    return Trained(run, None if folder is None else str(folder), neurons)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedMany(Record):
    """Every seed's numbers, and their spread over the seeds that did not diverge."""

    ensemble: ensembles.Ensemble
    path: str | None
    singular_values: np.ndarray | None
    neurons: tuple[Census, ...] | None

    @property
    def converged(self) -> bool:
        return all(outcome is Outcome.CONVERGED for outcome in self.ensemble.outcomes)

    def columns(self) -> dict[str, np.ndarray]:
        """One number per seed under each name."""
        e = self.ensemble
        found = {
            "log_loss": e.log_loss,
            "margins_min": e.history["margin_min"][-1],
            "normalised_margin": e.history["normalised_margin"][-1],
        }
        if "stable_rank" in e.history:
            found["stable_rank"] = e.history["stable_rank"][-1]
        if self.singular_values is not None:
            second_to_third = (
                self.singular_values[:, 1] / np.maximum(self.singular_values[:, 2], np.finfo(float).tiny)
                if self.singular_values.shape[1] > 2
                else np.full(len(e), np.inf)
            )
            found["singular_value_2_over_3"] = second_to_third
        if self.neurons is not None:
            number = lambda x: math.nan if x is None else x  # noqa: E731
            found["median_alignment"] = np.array([number(c.median_alignment) for c in self.neurons])
            found["fraction_above_0.9"] = np.array([number(c.fraction_above(0.9)) for c in self.neurons])
            for side in ("positive", "negative"):
                found[f"angle_{side}"] = np.array([number(c.angle[side]) for c in self.neurons])
        return found

    def table(self) -> Table:
        e = self.ensemble
        rows = [
            (name, *(f"{spread[s]:.5g}" for s in STATISTICS))
            for name, values in self.columns().items()
            if (spread := e.spread(values))
        ]
        if self.singular_values is not None:
            for k in range(min(4, self.singular_values.shape[1])):
                spread = e.spread(self.singular_values[:, k])
                rows.append((f"singular value {k + 1} of W", *(f"{spread[s]:.5g}" for s in STATISTICS)))
        diverged = sum(o is Outcome.DIVERGED for o in e.outcomes)
        notes = [f"{len(e)} seeds, {diverged} diverged; {e.options['method']}, {e.net}, {e.data.name}"]
        if self.path is not None:
            notes.append(f"saved in {self.path}")
        return Table(
            f"{len(e)} seeds",
            SPREAD,
            tuple(rows),
            tuple(notes),
        )

    def to_json(self) -> dict[str, Any]:
        e, columns = self.ensemble, self.columns()
        clean = lambda values: [_finite(v) for v in values]  # noqa: E731
        median = lambda name: e.spread(columns[name]).get("median") if name in columns else None  # noqa: E731
        neurons = {
            k: None if self.neurons is None else float(np.median([c.counts[k] for c in self.neurons]))
            for k in GROUPS
        }
        return jsonable(
            {
                "run": self.path,
                "method": e.options["method"],
                "log_time": float(np.median(e.log_time)),
                **{
                    name: median(name)
                    for name in ("log_loss", "normalised_margin", "margins_min", "stable_rank")
                },
                "frozen_log_time": None,
                "neurons": neurons,
                "angle": {side: median(f"angle_{side}") for side in ("positive", "negative")},
                "spread": {name: e.spread(values) for name, values in columns.items()},
                "seeds": {
                    "seed": e.members.seed,
                    "outcome": list(e.outcomes),
                    "steps": e.steps,
                    **{name: clean(values) for name, values in columns.items()},
                    "singular_values": self.singular_values,
                },
                "options": dict(e.options),
            }
        )


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedFlows(Record):
    """A gradient flow per seed, each a run of its own that verify and report take, and the spread of their numbers."""

    flows: tuple[Trained, ...]
    seeds: tuple[int, ...]
    path: str | None

    @property
    def converged(self) -> bool:
        return all(flow.converged for flow in self.flows)

    def columns(self) -> dict[str, np.ndarray]:
        """One number per seed under each name; nan where a flow has none."""
        number = lambda x: math.nan if x is None else float(x)  # noqa: E731
        numbers = [flow.numbers() for flow in self.flows]
        found = {name: np.array([number(row[name]) for row in numbers]) for name in numbers[0]}
        for side in ("positive", "negative"):
            found[f"angle_{side}"] = np.array([number(flow.angle[side]) for flow in self.flows])
        return found

    def table(self) -> Table:
        rows = [(name, *(show(middle) for middle in _five(values))) for name, values in self.columns().items()]
        ended = Counter(str(flow.run.outcome) for flow in self.flows)
        first = self.flows[0].run
        notes = [f"{len(self.flows)} gradient flows, {first.net}, {first.data.name}; "
                 + ", ".join(f"{count} {name}" for name, count in ended.items())]  # fmt: skip
        if self.path is not None:
            notes.append(f"saved in {self.path}{os.sep}seed-{self.seeds[0]} ... seed-{self.seeds[-1]}")
        return Table(f"{len(self.flows)} seeds", SPREAD, tuple(rows), tuple(notes))

    def to_json(self) -> dict[str, Any]:
        columns = self.columns()
        middle = {name: _five(values)[2] for name, values in columns.items()}
        counts = {group: [flow.counts[group] for flow in self.flows] for group in GROUPS}
        known = lambda row: [v for v in row if v is not None]  # noqa: E731
        return jsonable(
            {
                "run": self.path,
                "method": "flow",
                **{name: value for name, value in middle.items() if not name.startswith("angle")},
                "neurons": {k: float(np.median(known(v))) if known(v) else None for k, v in counts.items()},
                "angle": {side: middle[f"angle_{side}"] for side in ("positive", "negative")},
                "spread": {
                    name: dict(zip(STATISTICS, _five(values), strict=True)) for name, values in columns.items()
                },
                "seeds": {
                    "seed": self.seeds,
                    "run": [flow.path for flow in self.flows],
                    "outcome": [flow.run.outcome for flow in self.flows],
                    "message": [flow.run.message for flow in self.flows],
                    **{name: [None if np.isnan(v) else v for v in values] for name, values in columns.items()},
                },
                "options": {k: v for k, v in self.flows[0].run.options.items() if k != "seed"},
            }
        )


def _five(values: np.ndarray) -> list[float | None]:
    """Extremes, quartiles and median by nearest rank, so that log t = inf is a value like others; nan is left out."""
    known = values[~np.isnan(values)]
    if not len(known):
        return [None] * 5
    return [float(v) for v in np.quantile(known, (0, 0.25, 0.5, 0.75, 1), method="nearest")]


def flows(
    net: Net,
    data: Dataset,
    init: str,
    scale: float | None,
    seeds: Sequence[int],
    out: str,
    options: Mapping[str, Any],
) -> TrainedFlows:
    """One flow after the other. Those that an earlier call with these options left in `out` are read, not repeated."""
    asked = request(net, **options)
    done = []
    with progress(len(seeds), "gradient flows") as meter:
        for seed in seeds:
            folder = Path(out) / f"seed-{seed}" if out else None
            kept = None if folder is None else _kept(folder, net, data, {**asked, **_drawn(init, scale, seed)})
            done.append(kept or one(net, data, "flow", init, scale, seed, str(folder or ""), options))
            meter.advance(1, f"seed {seed}")
    return TrainedFlows(tuple(done), tuple(seeds), out or None)


def _kept(folder: Path, net: Net, data: Dataset, options: Mapping[str, Any]) -> Trained | None:
    """The run saved in `folder`, if it is this one and not one that was interrupted."""
    if not store.is_run(folder):
        return None
    run = store.load(folder)
    same = run.net == net and run.data.sha256 == data.sha256 and run.options == options
    if not same:
        raise InputError(f"{folder} holds another run; give the options it was made with, or choose another --out")
    return None if run.outcome is Outcome.INTERRUPTED else _counted(run, folder)


def many(
    net: Net,
    data: Dataset,
    method: str,
    init: str,
    scale: float | None,
    seeds: Sequence[int],
    out: str,
    options: Mapping[str, Any],
) -> TrainedMany:
    folder = files.folder(out) if out else None
    options = dict(options)
    scale = inits.LAWS[init].scale if scale is None and init in inits.LAWS else scale
    members = ensembles.grid(
        seeds=seeds, scales=[1.0 if scale is None else scale], lrs=[options.pop("lr", 0.1)]
    )
    kept = None if folder is None else store.CheckpointFolder(folder)
    result = ensembles.ensemble(net, data, members, init=init, method=method, checkpoints=kept, **options)
    if not result.complete:
        _leave(folder)
    two_layer = has_census(net)
    directions = max_margin_directions(data) if two_layer else None
    neurons = (
        None
        if directions is None
        else tuple(
            census(
                {k: w[i] for k, w in result.theta.items()},
                {k: w[i] for k, w in result.theta0.items()},
                data,
                directions,
            )
            for i in range(len(result))
        )
    )
    values = singular_values(result.theta["W"]) if two_layer else None
    if folder is not None:
        files.write(
            folder / store.ENSEMBLE,
            bytes(result.to_xarray().to_netcdf(engine="scipy", format="NETCDF3_64BIT")),
        )
        _forget(folder)
    return TrainedMany(result, None if folder is None else str(folder / store.ENSEMBLE), values, neurons)


def _leave(folder: Path | None) -> None:
    """After Ctrl-C: what was kept, and the command that goes on from it."""
    if folder is None:
        print("marginflow: interrupted; nothing was kept (give --out to keep and resume)", file=sys.stderr)
    else:
        print(f"marginflow: interrupted; kept in {folder}; to resume, repeat: {this_command()}", file=sys.stderr)
    raise SystemExit(130)


def _leave_flow(run: Run, folder: Path | None) -> None:
    """After Ctrl-C: where the flow was. Its engines keep no checkpoints; the run itself is an ordinary one."""
    if folder is None:
        print(f"marginflow: {run.message}; nothing was kept (give --out to keep it)", file=sys.stderr)
    else:
        store.save(run, folder)
        print(f"marginflow: {run.message}; kept in {folder}, to be verified and reported as it is; this flow starts "
              f"again, and flows of other seeds that ended are kept: {this_command()}", file=sys.stderr)  # fmt: skip
    raise SystemExit(130)


def _forget(folder: Path) -> None:
    """The checkpoints of a run that is finished and saved."""
    for path in folder.glob("checkpoint-*.safetensors"):
        path.unlink(missing_ok=True)
