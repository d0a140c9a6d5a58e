"""Thousands of nets at once: any of seeds, widths, scales and step sizes as the members of one compiled program.

Members are independent: member k draws its weights and its data order from its own seed, and its numbers are those of
the run alone, to rounding. Widths differ by masking: a two-layer net of width 30 is one of width 100 whose last
70 neurons are 0, and a neuron that is 0 stays 0 (φ(0) = 0, so neither of its gradients moves it).

Members are trained in batches: on a CPU small enough for cache and side by side, one per core, where a step is too
small to be shared by cores; on a GPU as large as memory allows, one after the other. Batches are fixed by the request,
not by timing or by the number of cores, and each is kept when it is done, so that an interrupted ensemble goes on where
it was and ends with the same bits.
"""

import dataclasses
import functools
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from marginflow._core.arrays import double
from marginflow._core.errors import InputError
from marginflow._core.progress import progress as progress_meter
from marginflow._core.provenance import provenance
from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.flows import monitors as watching
from marginflow.flows.checkpoints import Checkpoints, continued, fingerprint
from marginflow.flows.descents import Request, request
from marginflow.flows.driver import Drive, keeper, restore
from marginflow.flows.interrupts import Interrupt, deferred_interrupt
from marginflow.flows.schedules import Adaptive
from marginflow.flows.schedules import schedule as named_schedule
from marginflow.flows.steps import DIVERGED, REACHED, RUNNING, STALLED, Plan, one_thread, started, turned
from marginflow.nets import inits
from marginflow.nets.net import Net
from marginflow.nets.two_layer import TwoLayer
from marginflow.runs import Run

# Enough to spread the cost of starting each small kernel, few enough for the activations to stay in cache.
CPU_BATCH = 10
GPU_BYTES = 8 * 2**30
OUTCOMES = {
    RUNNING: Outcome.CONVERGED,
    REACHED: Outcome.CONVERGED,
    DIVERGED: Outcome.DIVERGED,
    STALLED: Outcome.STALLED,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """What differs between the members: one entry each."""

    seed: np.ndarray
    width: np.ndarray | None
    scale: np.ndarray
    lr: np.ndarray

    def __len__(self) -> int:
        return len(self.seed)

    def take(self, rows) -> "Members":
        return Members(
            self.seed[rows], None if self.width is None else self.width[rows], self.scale[rows], self.lr[rows]
        )


def grid(
    *,
    seeds: Sequence[int] = (0,),
    widths: Sequence[int] | None = None,
    scales: Sequence[float] = (1e-3,),
    lrs: Sequence[float] = (0.1,),
) -> Members:
    """Every combination, seeds fastest."""
    axes = [
        np.asarray(lrs, float),
        np.asarray(scales, float),
        np.asarray([0] if widths is None else widths),
        np.asarray(seeds),
    ]
    for name, axis in zip(("lrs", "scales", "widths", "seeds"), axes, strict=True):
        if axis.ndim != 1 or axis.size == 0:
            raise InputError(f"{name}: give a list of at least one value")
    lr, scale, width, seed = (m.reshape(-1) for m in np.meshgrid(*axes, indexing="ij"))
    return Members(seed.astype(np.int64), None if widths is None else width.astype(np.int64), scale, lr)


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble(Record):
    """Trained members, one row each; histories are (records, members). Widths below the net's are padded with 0.

    A diverged member keeps its last finite weights; its records from then on are nan and `outcomes` names it.
    """

    net: Net
    data: Dataset
    members: Members
    theta0: Mapping[str, np.ndarray]
    theta: Mapping[str, np.ndarray]
    outcomes: tuple[Outcome, ...]
    steps: np.ndarray
    log_time: np.ndarray
    log_loss: np.ndarray
    history: Mapping[str, np.ndarray]
    options: Mapping[str, Any]
    complete: bool = True
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.members)

    def member(self, k: int) -> Run:
        """Member k as the run it would have been alone."""
        if not -len(self) <= k < len(self):
            raise InputError(f"member {k} of {len(self)}; give 0 to {len(self) - 1}")
        width = None if self.members.width is None else int(self.members.width[k])
        net = self.net if width is None else dataclasses.replace(self.net, width=width)  # type: ignore[type-var]

        def cut(theta: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            if width is None:
                return {n: w[k] for n, w in theta.items()}
            return {n: w[k][..., :width] if n == "a" else w[k][:width] for n, w in theta.items()}

        options = {
            **self.options,
            "seed": int(self.members.seed[k]),
            "scale": float(self.members.scale[k]),
            "lr": float(self.members.lr[k]),
        }
        return Run(
            net=net,
            data=self.data,
            theta0=cut(self.theta0),
            theta=cut(self.theta),
            method=self.options["method"],
            loss=self.options["loss"],
            outcome=self.outcomes[k],
            message=f"member {k} of an ensemble",
            log_time=float(self.log_time[k]),
            log_loss=float(self.log_loss[k]),
            history={n: v if v.ndim == 1 else v[:, k] for n, v in self.history.items()},
            options=options,
            loss_reduction="mean",
            steps=int(self.steps[k]),
            provenance=self.provenance,
        )

    @staticmethod
    def spread(values: Any) -> dict[str, float]:
        """Median, quartiles and extremes over the members that did not diverge."""
        values = np.asarray(values, dtype=np.float64)
        values = values[np.isfinite(values)]
        if not len(values):
            return {}
        q = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
        return dict(
            zip(("min", "lower_quartile", "median", "upper_quartile", "max"), map(float, q), strict=True)
        )

    def table(self) -> Table:
        rows = [
            ("net", str(self.net)),
            ("data", self.data.name),
            ("members", str(len(self))),
            ("diverged", str(sum(o is Outcome.DIVERGED for o in self.outcomes))),
        ]
        for name in ("log_loss", "normalised_margin", "stable_rank"):
            if name in self.history and (spread := self.spread(self.history[name][-1])):
                rows.append(
                    (name, f"median {show(spread['median'])}, {show(spread['min'])} to {show(spread['max'])}")
                )
        return Table("ensemble", ("quantity", "value"), tuple(rows))

    def to_json(self) -> dict[str, Any]:
        return jsonable(
            {
                "net": str(self.net),
                "data": self.data.to_json(),
                "members": len(self),
                "seed": self.members.seed,
                "width": self.members.width,
                "scale": self.members.scale,
                "lr": self.members.lr,
                "outcome": list(self.outcomes),
                "log_loss": self.log_loss,
                "log_time": self.log_time,
                "options": dict(self.options),
                "complete": self.complete,
            }
        )

    def to_xarray(self) -> Any:
        """Weights, histories and what differs between members, over the dimension `member`."""
        import json

        import xarray

        columns = {
            "seed": self.members.seed,
            "scale": self.members.scale,
            "lr": self.members.lr,
            "steps": self.steps,
            "log_time": self.log_time,
            "log_loss": self.log_loss,
            **({} if self.members.width is None else {"width": self.members.width}),
        }
        variables: dict[str, Any] = {
            f"final_{n}" if n in self.history else n: ("member", v) for n, v in columns.items()
        }
        variables["outcome"] = ("member", np.array([str(o) for o in self.outcomes]))
        for role, theta in (("theta", self.theta), ("theta0", self.theta0)):
            for name, w in theta.items():
                variables[f"{role}_{name}"] = (("member", *(f"{name}_{i}" for i in range(1, w.ndim))), w)
        for name, v in self.history.items():
            dims = ("record", "member", *(f"{name}_{i}" for i in range(2, v.ndim)))
            variables[f"history_{name}"] = (dims[: v.ndim], v)
        variables = {
            n: (dims, v.astype(np.int32) if v.dtype == np.int64 else v) for n, (dims, v) in variables.items()
        }
        attributes = {
            "title": "marginflow ensemble",
            "net": str(self.net),
            "data": self.data.name,
            "data_sha256": self.data.sha256,
            "options": json.dumps(jsonable(dict(self.options))),
        }
        return xarray.Dataset(variables, attrs=attributes)


@double
def ensemble(
    net: Net,
    data: Dataset,
    members: Members,
    *,
    init: str = "balanced",
    method: str = "sgd",
    loss: Any = "logistic",
    batch: int | None = None,
    epochs: int | None = None,
    until: str | None = None,
    schedule: Any = None,
    replacement: bool = False,
    precision: str = "double",
    monitors: Any = None,
    records: int = 64,
    size: int | None = None,
    progress: bool | None = None,
    checkpoints: Checkpoints | None = None,
) -> Ensemble:
    """Train every member of `members`, `size` of them at a time; the other options are those of `descents.descend`."""
    import jax

    if len(members) == 0:
        raise InputError("no members; give at least one seed")
    if not (np.isfinite(members.lr).all() and (members.lr > 0).all()):
        raise InputError(f"lr {members.lr[~(members.lr > 0)][0]}; give step sizes above 0")
    if (members.seed < 0).any() or (members.seed >= 2**32).any():
        raise InputError("seeds: give whole numbers from 0 to 4294967295")
    net = _widest(net, members)
    asked = request(
        data,
        method=method,
        loss=loss,
        lr=float(members.lr[0]),
        batch=batch,
        epochs=epochs,
        until=until,
        replacement=replacement,
        precision=precision,
    )
    theta0 = initial_weights(net, data.d, members, init)
    rule = named_schedule(
        schedule or ("adaptive" if method == "ngd" else "constant"), net, _first(theta0), data
    )
    if isinstance(rule, Adaptive) and method != "ngd":
        raise InputError(f"schedule adaptive with method {method}; it is defined for ngd")
    plan = asked.plan(net, data.n, rule)
    size = size or (
        cpu_batch(len(members))
        if jax.default_backend() == "cpu"
        else gpu_batch(net, data, asked, len(members))
    )
    options = {
        **asked.options(),
        "schedule": getattr(rule, "name", type(rule).__name__),
        "init": init,
        "records": records,
        "size": size,
    }
    options.pop("lr")
    of = fingerprint(
        {**options, "schedule": repr(rule), "net": str(net), "data": data.sha256},
        {**theta0, "seed": members.seed, "lr": members.lr},
    )
    work = _Work(
        plan, asked, data, members, theta0, watching.monitors(monitors, net), records, size, of, checkpoints
    )
    finished = _train_all(work, progress)
    return _collected(net, data, members, theta0, finished, options, work)


def initial_weights(net: Net, d: int, members: Members, init: str) -> dict[str, np.ndarray]:
    """θ of every member, drawn as the run alone would draw it, padded to the widest."""
    theta = {name: np.zeros((len(members), *shape)) for name, shape in net.shapes(d).items()}
    if members.width is None:
        return inits.ensemble(init, net, d, members.scale, members.seed)
    for width in np.unique(members.width):
        rows = np.flatnonzero(members.width == width)
        narrow = dataclasses.replace(net, width=int(width))  # type: ignore[type-var]
        drawn = inits.ensemble(init, narrow, d, members.scale[rows], members.seed[rows])
        theta["W"][rows, :width] = drawn["W"]
        theta["a"][rows, ..., :width] = drawn["a"]
    return theta


def cpu_batch(members: int) -> int:
    """Members per batch with which an even number of workers has least to do; a batch costs as one member more."""

    def each_does(size: int) -> int:
        batches = -(-members // size)
        return -(-batches // 2) * (size + 1)

    return min(range(CPU_BATCH, 0, -1), key=each_does)


def gpu_batch(net: Net, data: Dataset, asked: Request, members: int) -> int:
    """As many members as fit: weights, gradients and the activations of the largest pass, four copies of each."""
    weights = sum(math.prod(shape) for shape in net.shapes(data.d).values())
    units = sum(shape[0] for shape in net.shapes(data.d).values())
    item = np.dtype(asked.dtype).itemsize
    return max(1, min(members, int(GPU_BYTES / (4 * item * (weights + units * data.n)))))


def _first(theta: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: w[0] for name, w in theta.items()}


def _widest(net: Net, members: Members) -> Net:
    if members.width is None:
        return net
    if not isinstance(net, TwoLayer):
        raise InputError(f"widths of {net}; only two-layer nets can differ in width")
    if (members.width < 1).any():
        raise InputError(f"width {members.width.min()}; give widths of at least 1")
    return dataclasses.replace(net, width=int(members.width.max()))


@dataclasses.dataclass(frozen=True)
class _Work:
    """All batches, and how to train one of them."""

    plan: Plan
    asked: Request
    data: Dataset
    members: Members
    theta0: Mapping[str, np.ndarray]
    chosen: tuple[watching.Monitor, ...]
    records: int
    size: int
    of: str
    checkpoints: Checkpoints | None

    @property
    def batches(self) -> int:
        return -(-len(self.members) // self.size)

    def rows(self, index: int) -> np.ndarray:
        """Members of one batch; the last one is filled up with repeats so that one program serves all."""
        rows = np.arange(index * self.size, (index + 1) * self.size)
        return np.minimum(rows, len(self.members) - 1) if self.batches > 1 else rows[: len(self.members)]

    def drive(self, index: int) -> Drive:
        import jax.numpy as jnp

        rows = self.rows(index)
        part = self.members.take(rows)
        theta = {name: w[rows] for name, w in self.theta0.items()}
        gain = np.ones(len(rows))
        if part.width is not None and getattr(self.plan.net, "mean_field", False):
            gain = self.plan.net.width / part.width  # type: ignore[attr-defined]
        state = started(self.plan, theta, part.seed, np.log(part.lr), gain, self.asked.dtype)
        dtype, steps = self.asked.dtype, self.asked.steps(self.plan)
        return Drive(
            self.plan,
            state,
            dict(state.theta),
            jnp.asarray(self.data.X, dtype),
            jnp.asarray(self.data.y, dtype),
            self.chosen,
            watching.StepRecorder(steps, self.records),
            steps,
        )

    def train(self, index: int, interrupt: Interrupt, report) -> Drive | None:
        """The finished drive of one batch, from where it was left; None if interrupted before the end."""
        name, drive = f"batch-{index:06d}", self.drive(index)
        if self.checkpoints is not None:
            drive.save = keeper(self.checkpoints, name, self.of)
            if (kept := continued(self.checkpoints, name, self.of)) is not None:
                restore(drive, *kept)
        drive.run(interrupt, report)
        if drive.interrupted:
            return None
        drive.keep()
        return drive

    def workers(self) -> int:
        """Batches that are trained at a time."""
        weights = sum(math.prod(shape) for shape in self.plan.net.shapes(self.data.d).values())
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(self.batches, cores) if one_thread(self.plan, weights * self.size) else 1


def _train_all(work: _Work, progress: bool | None) -> list[Drive | None]:
    steps = work.asked.steps(work.plan)
    label = f"{work.asked.method} × {len(work.members)}"
    at, one_at_a_time = [0] * work.batches, threading.Lock()
    with (
        progress_meter(steps * work.batches, label, progress) as meter,
        deferred_interrupt() as interrupt,
        ThreadPoolExecutor(work.workers()) as pool,
    ):

        def report(index: int, step: int, note: str | None = None) -> None:
            with one_at_a_time:
                at[index] = step
                meter.to(sum(at), note)

        @double  # settings of JAX belong to a thread
        def train(index: int) -> Drive | None:
            if interrupt.requested:
                return None
            try:
                drive = work.train(index, interrupt, functools.partial(report, index))
            except BaseException:
                interrupt.requested = True  # the others stop at their next return
                raise
            report(index, steps)
            return drive

        try:
            return list(pool.map(train, range(work.batches)))
        except BaseException:
            interrupt.requested = True
            raise


def _collected(
    net: Net, data: Dataset, members: Members, theta0, finished: list[Drive | None], options, work: _Work
) -> Ensemble:
    """Members of the batches that are done, in order; without the repeats of the last one."""
    parts = [
        (work.rows(i)[: max(0, len(members) - i * work.size)], drive)
        for i, drive in enumerate(finished)
        if drive is not None
    ]
    if not parts:
        raise KeyboardInterrupt  # nothing to show yet; what was begun is in the checkpoints
    rows = np.concatenate([r for r, _ in parts])
    join = lambda of: np.concatenate([np.asarray(of(drive))[: len(r)] for r, drive in parts])  # noqa: E731
    history = _histories(parts)
    halted, step = (
        join(lambda d: d.state.halted),
        join(lambda d: np.full(len(d.state.halted), int(d.state.step))),
    )
    outcomes = tuple(
        Outcome.MAX_STEPS if code == RUNNING and work.asked.until is not None else OUTCOMES[int(code)]
        for code in halted
    )
    return Ensemble(
        net=net,
        data=data,
        members=members.take(rows),
        theta0={name: w[rows] for name, w in theta0.items()},
        theta={name: join(lambda d, n=name: turned(d.state.theta)[n]) for name in theta0},
        outcomes=outcomes,
        steps=np.where(halted == RUNNING, step, join(lambda d: d.state.halted_at)),
        log_time=join(lambda d: d.state.log_time),
        log_loss=_last_finite(history["log_loss"]),
        history=history,
        options=options,
        complete=len(rows) == len(members),
        provenance=provenance(data=data.sha256),
    )


def _last_finite(values: np.ndarray) -> np.ndarray:
    """Each column's last finite entry: a diverged member is quoted where it was still sound."""
    finite = np.isfinite(values)
    last = len(values) - 1 - np.argmax(finite[::-1], axis=0)
    return values[last, np.arange(values.shape[1])]


def _histories(parts) -> dict[str, np.ndarray]:
    """(records, members) of all batches. A batch that ended early repeats its last row: nothing moves after it."""
    stacks = [watching.stacked(drive.recorder.rows) for _, drive in parts]
    longest = max(stacks, key=lambda h: len(h["step"]))
    length = len(longest["step"])

    def filled(values: np.ndarray, members: int) -> np.ndarray:
        values = values[:, :members]
        return np.concatenate([values, np.repeat(values[-1:], length - len(values), axis=0)])

    joined = {
        name: np.concatenate(
            [filled(h[name], len(r)) for h, (r, _) in zip(stacks, parts, strict=True)], axis=1
        )
        for name in longest
        if name != "step"
    }
    return {"step": longest["step"], **joined}
