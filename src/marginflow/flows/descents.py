"""Discrete-time training of one net: sgd, gd, ngd (loss-normalised gd) and adam."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow import losses
from marginflow._core.arrays import double
from marginflow._core.errors import InputError, unknown_name
from marginflow._core.logs import parse_log_number
from marginflow._core.progress import progress as progress_meter
from marginflow._core.provenance import provenance
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.flows import monitors as watching
from marginflow.flows.checkpoints import Checkpoints, continued, fingerprint
from marginflow.flows.driver import Drive, keeper, restore
from marginflow.flows.interrupts import deferred_interrupt
from marginflow.flows.schedules import Adaptive
from marginflow.flows.schedules import schedule as named_schedule
from marginflow.flows.steps import DIVERGED, REACHED, RUNNING, STALLED, Plan, started, turned
from marginflow.nets.net import Net
from marginflow.nets.weights import double_weights
from marginflow.runs import Run

METHODS = ("sgd", "gd", "ngd", "adam")
STEP_LIMIT = 1_000_000  # of a run that is given a target and no number of epochs


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of a run, checked: what turns into a Plan, and what is written beside the result."""

    method: str
    loss: losses.Loss
    lr: float
    batch: int | None
    epochs: int | None
    until: str | None
    replacement: bool
    precision: str
    target_log_loss: float
    target_log_time: float

    @property
    def dtype(self):
        return {"double": np.float64, "single": np.float32}[self.precision]

    def plan(self, net: Net, n: int, schedule) -> Plan:
        return Plan(
            net,
            self.loss,
            self.method,
            n,
            self.batch,
            self.replacement,
            schedule,
            self.target_log_loss,
            self.target_log_time,
        )

    def steps(self, plan: Plan) -> int:
        return STEP_LIMIT if self.epochs is None else self.epochs * plan.per_epoch

    def options(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "loss": self.loss.name,
            "lr": self.lr,
            "batch": self.batch,
            "epochs": self.epochs,
            "until": self.until,
            "replacement": self.replacement,
            "precision": self.precision,
        }


def request(
    data: Dataset,
    *,
    method="sgd",
    loss="logistic",
    lr=0.1,
    batch=None,
    epochs=None,
    until=None,
    replacement=False,
    precision="double",
) -> Request:
    """Options as given by a person, refused by name when they make no sense."""
    if method not in METHODS:
        raise unknown_name("method", str(method), METHODS)
    if not lr > 0 or not math.isfinite(lr):
        raise InputError(f"lr {lr}; give a step size above 0")
    if precision not in ("double", "single"):
        raise unknown_name("precision", str(precision), ("double", "single"))
    if method in ("gd", "ngd"):
        if batch is not None and batch != data.n:
            raise InputError(
                f"batch {batch} with method {method}, which uses all {data.n} examples at every step; "
                "leave batch out or use sgd"
            )
        batch = None
    else:
        batch = min(50, data.n) if batch is None else batch
        if batch < 1 or batch != int(batch):
            raise InputError(f"batch {batch}; give at least 1")
        if batch > data.n:
            raise InputError(
                f"batch {batch} is larger than the {data.n} examples of {data.name}; give at most {data.n}"
            )
    target_log_loss, target_log_time = targets(until)
    if epochs is None and until is None:
        epochs = 500 if batch is not None else 1000
    if epochs is not None and (epochs < 1 or epochs != int(epochs)):
        raise InputError(f"epochs {epochs}; give at least 1")
    return Request(
        method,
        losses.loss(loss),
        float(lr),
        batch,
        epochs,
        until,
        bool(replacement),
        precision,
        target_log_loss,
        target_log_time,
    )


def targets(until: str | None) -> tuple[float, float]:
    """(log-loss, log-time) at which a descent ends: 'loss=1e-5000', 'log-time=12.5'."""
    if until is None:
        return -math.inf, math.inf
    name, equals, value = str(until).partition("=")
    if not equals or name not in ("loss", "log-time"):
        flow_only = " (frozen and limit belong to method flow)" if name in ("frozen", "limit") else ""
        raise InputError(f"until '{until}'{flow_only}; write loss=1e-5000 or log-time=100")
    try:
        if name == "loss":
            return parse_log_number(value), math.inf
        return -math.inf, float(value)
    except ValueError as error:
        raise InputError(f"until '{until}': {error}") from None


@double
def descend(
    net: Net,
    theta: Mapping[str, Any],
    data: Dataset,
    *,
    method: str = "sgd",
    loss: Any = "logistic",
    lr: float = 0.1,
    batch: int | None = None,
    epochs: int | None = None,
    until: str | None = None,
    schedule: Any = None,
    replacement: bool = False,
    precision: str = "double",
    seed: int = 0,
    monitors: Any = None,
    records: int = 256,
    progress: bool | None = None,
    checkpoints: Checkpoints | None = None,
    options: Mapping[str, Any] | None = None,
) -> Run:
    """Train by sgd, gd, ngd or adam.

    lr: the step size; for ngd the step is lr/L, and lr is where the adaptive schedule begins. until: 'loss=V' or
    'log-time=V'; log-time is the log of the accumulated step sizes (for ngd of lr/L), the discrete counterpart of
    the flow's time. schedule: 'constant' (sgd, gd, adam), 'adaptive' (ngd), 'inverse-sqrt', 'chizat2020.both',
    'chizat2020.output', or any object with their two methods. checkpoints: where the state is kept now and then and
    at Ctrl-C; the same call with the same checkpoints goes on from there and ends with the same bits.
    """
    import jax.numpy as jnp

    asked = request(
        data,
        method=method,
        loss=loss,
        lr=lr,
        batch=batch,
        epochs=epochs,
        until=until,
        replacement=replacement,
        precision=precision,
    )
    start = double_weights(theta, net, data.d)
    rule = named_schedule(schedule or ("adaptive" if method == "ngd" else "constant"), net, start, data)
    if isinstance(rule, Adaptive) and method != "ngd":
        raise InputError(f"schedule adaptive with method {method}; it is defined for ngd")
    plan = asked.plan(net, data.n, rule)
    state = started(plan, {k: v[None] for k, v in start.items()}, [seed], [math.log(lr)], [1.0], asked.dtype)
    drive = Drive(
        plan,
        state,
        dict(state.theta),
        jnp.asarray(data.X, asked.dtype),
        jnp.asarray(data.y, asked.dtype),
        watching.monitors(monitors, net),
        watching.LogTimeRecorder(records),
        asked.steps(plan),
        solo=True,
    )
    if checkpoints is not None:
        of = fingerprint(
            {
                **asked.options(),
                "schedule": repr(rule),
                "net": str(net),
                "data": data.sha256,
                "seed": seed,
                "records": records,
                "monitors": [m.name for m in drive.chosen],
            },
            start,
        )
        drive.save = keeper(checkpoints, "run", of)
        if (kept := continued(checkpoints, "run", of)) is not None:
            restore(drive, *kept)
    with progress_meter(drive.steps, method, progress) as meter, deferred_interrupt() as interrupt:
        drive.run(interrupt, meter.to)

    history = {
        name: values if values.ndim == 1 else values[:, 0]
        for name, values in watching.stacked(drive.recorder.rows).items()
    }
    code, at, step = int(drive.state.halted[0]), int(drive.state.halted_at[0]), int(drive.state.step)
    last = turned(drive.previous if code == DIVERGED else drive.state.theta)
    outcome, message = ending(drive, code, at, history["log_loss"], asked)
    rule_record = dataclasses.asdict(rule) if dataclasses.is_dataclass(rule) else {}  # type: ignore[arg-type]
    return Run(
        net=net,
        data=data,
        theta0=start,
        theta={name: np.asarray(value[0]) for name, value in last.items()},
        method=method,
        loss=asked.loss.name,
        outcome=outcome,
        message=message,
        log_time=float(history["log_time"][-1]),
        log_loss=float(history["log_loss"][-1]),
        history=history,
        options={
            **asked.options(),
            "schedule": getattr(rule, "name", type(rule).__name__),
            "schedule_values": rule_record,
            "seed": seed,
            "records": records,
            **(options or {}),
        },
        loss_reduction="mean",
        steps=step if code == RUNNING else at,
        provenance=provenance(data=data.sha256),
    )


def ending(drive: Drive, code: int, at: int, log_loss: np.ndarray, asked: Request) -> tuple[Outcome, str]:
    """How a run ended, in one line."""
    step = int(drive.state.step)
    if code == DIVERGED:
        kept = int(drive.recorder.rows[-1]["step"])
        return Outcome.DIVERGED, (
            f"diverged at step {at}: the outputs left float range; figures and weights are those of "
            f"step {kept}; use a smaller lr"
        )
    if drive.interrupted:
        return Outcome.INTERRUPTED, f"interrupted at step {step} of {drive.steps}"
    if code == STALLED:
        return Outcome.STALLED, f"at step {at} no step size lowers the loss to rounding"
    rise = float(log_loss[-1] - log_loss[0])
    if rise > math.log(10.0):
        first = int(np.argmax(log_loss - log_loss[0] > math.log(10.0)))
        where = int(drive.recorder.rows[first]["step"])
        return (
            Outcome.DIVERGED,
            f"diverged: the loss passed ten times its first value by step {where}; use a smaller lr",
        )
    if code == REACHED:
        return Outcome.CONVERGED, f"{asked.until} reached at step {at}"
    if asked.until is not None:
        return Outcome.MAX_STEPS, f"{asked.until} not reached in {step} steps"
    return Outcome.CONVERGED, f"{asked.epochs} epochs, {step} steps"
