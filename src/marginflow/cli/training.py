"""What `marginflow train` answers: the run's headline numbers, where it was kept, and how to go on after Ctrl-C."""

import dataclasses
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginflow import store
from marginflow._core import files
from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Outcome
from marginflow.data import Dataset
from marginflow.flows import ensembles, train
from marginflow.flows.neurons import Census, census, has_census, max_margin_directions, singular_values
from marginflow.nets import Net, inits
from marginflow.runs import Run

GROUPS = ("positive", "negative", "dead", "vanishing", "other")


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

    def to_json(self) -> dict[str, Any]:
        run, last = self.run, self.run.summary()
        counts = None if self.neurons is None else self.neurons.counts
        # the exact flow knows each neuron's fate, which the weights alone may not show
        counts = run.extra.get("neurons", counts) or dict.fromkeys(GROUPS)
        return jsonable(
            {
                "run": self.path,
                "method": run.method,
                "outcome": run.outcome,
                "message": run.message,
                "steps": run.steps,
                "log_time": run.log_time,
                "log_loss": run.log_loss,
                "loss_reduction": run.loss_reduction,
                "normalised_margin": _finite(last["normalised_margin"]),
                "margins_min": last["margins_min"],
                "stable_rank": _finite(_stable_rank(run)),
                "frozen_log_time": run.frozen_log_time,
                "integrated": run.integrated,
                "neurons": counts,
                "angle": {"positive": None, "negative": None}
                if self.neurons is None
                else dict(self.neurons.angle),
                "options": dict(run.options),
            }
        )


def _finite(value: Any) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def _stable_rank(run: Run) -> float | None:
    """‖W‖_F²/‖W‖₂² of the first layer, from the weights themselves."""
    W = run.theta.get("W")
    if W is None or np.ndim(W) != 2 or not np.any(W):
        return None
    values = singular_values(W, min(W.shape))
    return float(np.sum((values / values[0]) ** 2))


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
    folder = Path(out) if out else None
    theta = inits.init(init, net, data.d, scale, seed)
    drawn = {"init": init, "scale": inits.LAWS[init].scale if scale is None else scale, "seed": seed}
    if method == "flow":
        run = train(net, theta, data, method="flow", options=drawn, **options)
    else:
        kept = None if folder is None else store.CheckpointFolder(folder)
        run = train(net, theta, data, method=method, seed=seed, checkpoints=kept, options=drawn, **options)
    if run.outcome is Outcome.INTERRUPTED:
        _leave(folder)
    neurons = census(run.theta, run.theta0, data, max_margin_directions(data)) if has_census(net) else None
    if folder is not None:
        store.save(run, folder)
        _forget(folder)
    return Trained(run, None if folder is None else str(folder), neurons)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedMany(Record):
    """Every seed's numbers, and their spread over the seeds that did not diverge."""

    ensemble: ensembles.Ensemble
    path: str | None
    singular_values: np.ndarray | None
    neurons: tuple[Census, ...] | None

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
        stats = ("min", "lower_quartile", "median", "upper_quartile", "max")
        rows = [
            (name, *(f"{spread[s]:.5g}" for s in stats))
            for name, values in self.columns().items()
            if (spread := e.spread(values))
        ]
        if self.singular_values is not None:
            for k in range(min(4, self.singular_values.shape[1])):
                spread = e.spread(self.singular_values[:, k])
                rows.append((f"singular value {k + 1} of W", *(f"{spread[s]:.5g}" for s in stats)))
        diverged = sum(o is Outcome.DIVERGED for o in e.outcomes)
        notes = [f"{len(e)} seeds, {diverged} diverged; {e.options['method']}, {e.net}, {e.data.name}"]
        if self.path is not None:
            notes.append(f"saved in {self.path}")
        return Table(
            f"{len(e)} seeds",
            ("quantity", "min", "lower quartile", "median", "upper quartile", "max"),
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
    folder = Path(out) if out else None
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
            folder / "ensemble.nc",
            bytes(result.to_xarray().to_netcdf(engine="scipy", format="NETCDF3_64BIT")),
        )
        _forget(folder)
    return TrainedMany(result, None if folder is None else str(folder / "ensemble.nc"), values, neurons)


def _leave(folder: Path | None) -> None:
    """After Ctrl-C: what was kept, and the command that goes on from it."""
    if folder is None:
        print("marginflow: interrupted; nothing was kept (give --out to keep and resume)", file=sys.stderr)
    else:
        command = shlex.join(["marginflow", *sys.argv[1:]])
        print(f"marginflow: interrupted; kept in {folder}; to resume, repeat: {command}", file=sys.stderr)
    raise SystemExit(130)


def _forget(folder: Path) -> None:
    """The checkpoints of a run that is finished and saved."""
    for path in folder.glob("checkpoint-*.safetensors"):
        path.unlink(missing_ok=True)
