"""Discrete-time training: sgd, gd, ngd (loss-normalised gd) and adam, all by one compiled driver.

The gradient is carried as -∇L = e^s D with D = Σ p_i y_i ∇f_i bounded and s = log((1/n) Σ -ℓ'(q_i)) a logarithm, so
a run goes on where L is far below float range: gd multiplies D by e^(log lr + s), ngd by e^(log lr + s - log L).

The driver holds a batch of independent members (seeds, step sizes, scales, widths) and advances all of them in one
program; a single run is a batch of one. Numbers depend on the step alone: where the program returns to Python, to
draw a progress bar, record, save or be interrupted, changes nothing, so an interrupted run that is resumed ends with
the same bits.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from marginflow import losses
from marginflow._core.arrays import double, to_numpy
from marginflow._core.errors import InputError, unknown_name
from marginflow._core.logs import log_sum_exp, parse_log_number
from marginflow._core.progress import Meter, progress as progress_meter
from marginflow._core.provenance import provenance
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.flows import monitors as watching
from marginflow.flows.interrupts import deferred_interrupt
from marginflow.flows.schedules import Adaptive, Constant, schedule as named_schedule
from marginflow.nets.net import Net
from marginflow.runs import Run

METHODS = ("sgd", "gd", "ngd", "adam")
STEP_LIMIT = 1_000_000  # of a run that is given a target and no number of epochs
CHUNK_SECONDS = 0.25
SAVE_SECONDS = 20.0
RUNNING, REACHED, DIVERGED, STALLED = 0, 1, 2, 3
ORDER_STREAM = 0x0DE5  # keeps the data order independent of the initial weights drawn from the same seed


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is fixed when the program is compiled."""

    net: Net
    loss: losses.Loss
    loss_rules: tuple[Callable, Callable]  # two losses of one name are two programs
    method: str
    n: int
    batch: int | None
    replacement: bool
    schedule: Any
    target_log_loss: float
    target_log_time: float

    @property
    def per_epoch(self) -> int:
        return 1 if self.batch is None else -(-self.n // self.batch)


class State(NamedTuple):
    """A batch of members after `step` steps; every array but `step` has one row per member."""

    step: Any
    theta: dict[str, Any]
    optimiser: Any
    schedule: Any
    seed: Any
    order: Any
    gain: Any  # multiplies the output: 1, or width ratio of a masked mean-field net
    log_lr: Any
    log_time: Any
    halted: Any
    halted_at: Any


def data_order(seed, epoch, n: int, batch: int, replacement: bool = False):
    """Rows of one epoch, batch after batch; the value n stands for "no row" where batch does not divide n."""
    import jax
    import jax.numpy as jnp

    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), ORDER_STREAM), epoch)
    length = -(-n // batch) * batch
    if replacement:
        return jax.random.randint(key, (length,), 0, n, dtype=jnp.int32)
    # Random high bits and the row in the low bits, sorted: one operand sorts four times faster than a permutation
    # on CPU. Two equal high parts, which would keep their rows in order, have probability below n³/2^64.
    low = max(1, (n - 1).bit_length())
    bits = jax.random.bits(key, (n,), jnp.uint64)
    tagged = ((bits >> low) << low) | jnp.arange(n, dtype=jnp.uint64)
    rows = (jnp.sort(tagged) & jnp.uint64((1 << low) - 1)).astype(jnp.int32)
    return jnp.concatenate([rows, jnp.full((length - n,), n, jnp.int32)])


def _outputs(plan: Plan, theta, gain, X):
    return plan.net(theta, X) * gain


class Ascent(NamedTuple):
    """-∇L = e^log_slope · direction; log_loss = log of the mean loss; finite says whether all margins are."""

    direction: dict[str, Any]
    log_slope: Any
    log_loss: Any
    finite: Any


def _ascent(plan: Plan, theta, gain, X, y, present=None) -> Ascent:
    import jax
    import jax.numpy as jnp

    trained = {name: theta[name] for name in plan.net.trained}
    outputs, pull_back = jax.vjp(lambda moving: _outputs(plan, {**theta, **moving}, gain, X), trained)
    q = y * outputs
    log_slopes, log_values = plan.loss.log_slope(q), plan.loss.log_value(q)
    count = math.log(X.shape[0])
    if present is not None:
        log_slopes, log_values = (jnp.where(present, v, -jnp.inf) for v in (log_slopes, log_values))
        count = jnp.log(jnp.sum(present).astype(q.dtype))
    top = jnp.max(log_slopes)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_slopes - top)
    total = jnp.sum(weight)
    (direction,) = pull_back(y * (weight / jnp.where(total > 0, total, 1.0)))
    return Ascent(direction, top + jnp.log(total) - count, log_sum_exp(log_values) - count, jnp.isfinite(jnp.sum(q)))


def _moved(theta, direction, scale):
    return {**theta, **{name: theta[name] + scale.astype(theta[name].dtype) * step for name, step in direction.items()}}


def _member_step(plan: Plan, member: State, X, y):
    """One step of one member; `member.step` is shared by all of them."""
    import jax.numpy as jnp

    if plan.batch is None:
        batch_X, batch_y, present = X, y, None
    else:
        import jax

        start = (member.step % plan.per_epoch) * plan.batch
        rows = jax.lax.dynamic_slice(member.order, (start,), (plan.batch,))
        present = None if plan.replacement or plan.n % plan.batch == 0 else rows < plan.n
        batch_X, batch_y = X[rows], y[rows]  # JAX clips the stand-in row n; `present` gives it weight 0
    ascent = _ascent(plan, member.theta, member.gain, batch_X, batch_y, present)
    factor, schedule_state = plan.schedule.log_factor(member.step, member.theta, member.schedule)
    log_lr, optimiser = member.log_lr, member.optimiser
    log_step = log_lr + factor
    stalled = jnp.asarray(False)
    if plan.method == "adam":
        gradient = {k: -(jnp.exp(ascent.log_slope).astype(g.dtype) * g) for k, g in ascent.direction.items()}
        step, optimiser = _adam().update(gradient, optimiser)
        theta = _moved(member.theta, step, -jnp.exp(log_step))
    elif isinstance(plan.schedule, Adaptive):
        theta, log_step, log_lr, stalled = _accepted(plan, member, ascent, X, y)
        log_step = log_step - ascent.log_loss
    else:
        if plan.method == "ngd":
            log_step = log_step - ascent.log_loss
        theta = _moved(member.theta, ascent.direction, jnp.exp(log_step + ascent.log_slope))

    reached = member.log_time >= plan.target_log_time
    if plan.batch is None:  # the loss at hand is the loss of the whole data set
        reached |= ascent.log_loss <= plan.target_log_loss
    finite = ascent.finite & jnp.isfinite(sum(jnp.sum(theta[name]) for name in plan.net.trained))
    verdict = jnp.where(reached, REACHED, jnp.where(~finite, DIVERGED, jnp.where(stalled, STALLED, RUNNING)))
    halted = jnp.where(member.halted == RUNNING, verdict, member.halted).astype(jnp.int8)
    moves = halted == RUNNING
    now = member.step + jnp.where(verdict == DIVERGED, 1, 0)
    return member._replace(
        theta={name: jnp.where(moves, theta[name], member.theta[name]) for name in theta},
        optimiser=optimiser, schedule=schedule_state,
        log_lr=jnp.where(moves, log_lr, member.log_lr),
        log_time=jnp.where(moves, jnp.logaddexp(member.log_time, log_step), member.log_time),
        halted=halted,
        halted_at=jnp.where((member.halted == RUNNING) & ~moves, now, member.halted_at).astype(jnp.int64))


def _accepted(plan: Plan, member: State, ascent: Ascent, X, y):
    """(θ, log step, next log lr, stalled) of the first step that `Adaptive` accepts; the tries are halvings."""
    import jax
    import jax.numpy as jnp

    rule, log_n = plan.schedule, math.log(plan.n)
    at_zero = plan.loss.log_value(jnp.zeros((), X.dtype))
    homogeneous = plan.net.degree is not None
    slack = 32 * float(np.finfo(X.dtype).eps)  # rounding of a margin and of a norm, each a few ulps

    def smoothed(theta, log_loss):
        return watching.smoothed_margin(plan.net, plan.loss, theta, jnp.minimum(log_loss + log_n, at_zero))

    before = smoothed(member.theta, ascent.log_loss) if homogeneous else None

    def attempt(carry):
        log_step, tries, _, _ = carry
        theta = _moved(member.theta, ascent.direction, jnp.exp(log_step + ascent.log_slope - ascent.log_loss))
        q = y * _outputs(plan, theta, member.gain, X)
        log_loss = log_sum_exp(plan.loss.log_value(q)) - log_n
        good = log_loss <= ascent.log_loss  # false for nan
        if homogeneous:
            was_separated = ascent.log_loss + log_n < at_zero
            good &= ~was_separated | (smoothed(theta, log_loss) >= before * (1 - slack))
        return jnp.where(good, log_step, log_step - math.log(2.0)), tries + 1, good, theta

    log_step, _, good, theta = jax.lax.while_loop(
        lambda carry: (carry[1] < rule.tries) & ~carry[2], attempt,
        (member.log_lr, jnp.asarray(0), jnp.asarray(False), dict(member.theta)))
    return theta, log_step, log_step + math.log(rule.grow), ~good


def _adam():
    import optax

    return optax.scale_by_adam()


_BATCHED = State(step=None, theta=0, optimiser=0, schedule=0, seed=0, order=0, gain=0, log_lr=0, log_time=0,
                 halted=0, halted_at=0)


@functools.lru_cache(maxsize=1)
def _programs():
    """The two compiled programs, made on first use so that importing this module does not import JAX."""
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, static_argnames="plan")
    def advance(plan: Plan, state: State, X, y, stop, record_at) -> State:
        """Steps until `stop`, or until no running member has log t below `record_at`."""
        step_all = jax.vmap(lambda member: _member_step(plan, member, X, y), in_axes=(_BATCHED,), out_axes=_BATCHED)
        reorder = jax.vmap(lambda seed, epoch: data_order(seed, epoch, plan.n, plan.batch, plan.replacement), (0, None))

        def going(state):
            return (state.step < stop) & jnp.any((state.halted == RUNNING) & (state.log_time < record_at))

        def body(state):
            if plan.batch is not None:
                epoch = state.step // plan.per_epoch
                order = jax.lax.cond(state.step % plan.per_epoch == 0, lambda: reorder(state.seed, epoch),
                                     lambda: state.order)
                state = state._replace(order=order)
            return step_all(state)._replace(step=state.step + 1)

        return jax.lax.while_loop(going, body, state)

    @functools.partial(jax.jit, static_argnames=("plan", "chosen"))
    def observe(plan: Plan, chosen, theta, gain, initial, previous, X, y):
        def one(theta, gain, initial, previous):
            q = y * _outputs(plan, theta, gain, X)
            view = watching.View(plan.net, plan.loss, theta, initial, previous, q, X, y)
            return {monitor.name: monitor.measure(view) for monitor in chosen}

        return jax.vmap(one)(theta, gain, initial, previous)

    return advance, observe


def started(plan: Plan, theta: Mapping[str, Any], seeds, log_lr, gain, dtype) -> State:
    """The state before the first step; every array of `theta` has one row per member."""
    import jax
    import jax.numpy as jnp

    members = len(seeds)
    weights = {name: jnp.asarray(to_numpy(w), dtype) for name, w in theta.items()}
    trained = {name: weights[name] for name in plan.net.trained}
    length = 0 if plan.batch is None else plan.per_epoch * plan.batch
    return State(
        step=jnp.asarray(0, jnp.int64), theta=weights,
        optimiser=jax.vmap(_adam().init)(trained) if plan.method == "adam" else (),
        schedule=jax.vmap(plan.schedule.init)(weights),
        seed=jnp.asarray(seeds, jnp.int64), order=jnp.zeros((members, length), jnp.int32),
        gain=jnp.asarray(gain, dtype), log_lr=jnp.asarray(log_lr, jnp.float64),
        log_time=jnp.full((members,), -jnp.inf), halted=jnp.zeros((members,), jnp.int8),
        halted_at=jnp.zeros((members,), jnp.int64))


@dataclasses.dataclass
class Drive:
    """The loop around the compiled program: chunks, records, progress, saving, interruption."""

    plan: Plan
    state: State
    initial: Mapping[str, Any]
    X: Any
    y: Any
    chosen: tuple[watching.Monitor, ...]
    recorder: watching.Recorder
    steps: int
    save: Callable[["Drive"], None] | None = None
    interrupted: bool = False
    previous: Any = None  # weights at the last record

    def run(self, meter: Meter | None = None) -> None:
        advance, _ = _programs()
        if not self.recorder.rows:
            self._record()
        chunk, saved = 1, time.monotonic()
        with deferred_interrupt() as interrupt:
            while not self._finished():
                step, due = int(self.state.step), self.recorder.due()
                stop = min(self.steps, 1 if step == 0 else step + chunk)
                began = time.monotonic()
                due = math.inf if step == 0 else due
                self.state = advance(self.plan, self.state, self.X, self.y, stop, due)
                step = int(self.state.step)  # waits for the program
                seconds = time.monotonic() - began
                if seconds < CHUNK_SECONDS / 2:
                    chunk = min(2 * chunk, 1 << 30)
                elif seconds > 2 * CHUNK_SECONDS:
                    chunk = max(1, chunk // 2)
                if step == 1 or self._finished() or self._due(due):
                    self._record()
                if meter is not None:
                    meter.to(step, self._status())
                interrupted = interrupt.requested
                if self.save is not None and (interrupted or time.monotonic() - saved > SAVE_SECONDS):
                    self.save(self)
                    saved = time.monotonic()
                if interrupted and not self._finished():
                    self.interrupted = True
                    return

    def _finished(self) -> bool:
        return int(self.state.step) >= self.steps or not bool(np.any(np.asarray(self.state.halted) == RUNNING))

    def _due(self, due: float) -> bool:
        running = np.asarray(self.state.halted) == RUNNING
        return not np.any(running & (np.asarray(self.state.log_time) < due))

    def _record(self) -> None:
        import jax.numpy as jnp

        _, observe = _programs()
        state = self.state
        previous = state.theta if self.previous is None else self.previous
        measured = observe(self.plan, self.chosen, state.theta, state.gain, self.initial, previous, self.X, self.y)
        row = {"step": np.asarray(state.step), "log_time": np.asarray(state.log_time),
               **{name: np.asarray(value) for name, value in measured.items()}}
        halted = np.asarray(state.halted)
        finite = np.isfinite(row["margin_min"]) & (halted != DIVERGED)
        if len(halted) == 1 and not finite.all():
            return  # a diverged run keeps the figures and weights of its last sound record
        for name in row.keys() - {"step", "log_time"}:
            if row[name].dtype.kind == "f":
                row[name] = np.where(finite.reshape((-1,) + (1,) * (row[name].ndim - 1)), row[name], np.nan)
        self.recorder.add(row)
        self.previous = state.theta
        if self.plan.batch is not None:
            reached = (halted == RUNNING) & (row["log_loss"] <= self.plan.target_log_loss)
            if reached.any():
                self.state = state._replace(
                    halted=jnp.where(jnp.asarray(reached), REACHED, state.halted).astype(jnp.int8),
                    halted_at=jnp.where(jnp.asarray(reached), state.step, state.halted_at))

    def _status(self) -> str:
        row = self.recorder.rows[-1]
        text = f"log-loss {float(np.median(row['log_loss'])):.4g}"
        margin = float(np.median(row["normalised_margin"]))
        return text + (f", margin {margin:.4g}" if math.isfinite(margin) else "")


def snapshot(drive: Drive) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, numbers) from which `restore` continues to the same bits."""
    import jax

    leaves = jax.tree.leaves(drive.state)
    arrays = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"previous.{name}": np.asarray(value) for name, value in drive.previous.items()}
    arrays |= {f"history.{name}": value for name, value in drive.recorder.stacked().items()}
    return arrays, {"gap": drive.recorder.gap, "step": int(drive.state.step), "leaves": len(leaves)}


def restore(drive: Drive, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(drive.state)
    found = [arrays.get(f"state.{i}") for i in range(len(leaves))]
    if numbers["leaves"] != len(leaves) or any(f is None or f.shape != leaf.shape or f.dtype != leaf.dtype
                                               for f, leaf in zip(found, leaves, strict=True)):
        raise InputError("the checkpoint belongs to another run (its arrays differ in number or shape); "
                         "give the options of the interrupted run, or choose another --out")
    drive.state = jax.tree.unflatten(structure, [jnp.asarray(f) for f in found])
    prefix = lambda head: {k[len(head):]: v for k, v in arrays.items() if k.startswith(head)}  # noqa: E731
    drive.previous = {name: jnp.asarray(value) for name, value in prefix("previous.").items()}
    drive.recorder.restore(prefix("history."), float(numbers["gap"]))


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
        return Plan(net, self.loss, (self.loss.log_value, self.loss.log_slope), self.method, n, self.batch,
                    self.replacement, schedule, self.target_log_loss, self.target_log_time)

    def steps(self, plan: Plan) -> int:
        return STEP_LIMIT if self.epochs is None else self.epochs * plan.per_epoch

    def options(self) -> dict[str, Any]:
        return {"method": self.method, "loss": self.loss.name, "lr": self.lr, "batch": self.batch, "epochs": self.epochs,
                "until": self.until, "replacement": self.replacement, "precision": self.precision}


def request(data: Dataset, *, method="sgd", loss="logistic", lr=0.1, batch=None, epochs=None, until=None,
            replacement=False, precision="double") -> Request:
    """Options as given by a person, refused by name when they make no sense."""
    if method not in METHODS:
        raise unknown_name("method", str(method), METHODS)
    if not lr > 0 or not math.isfinite(lr):
        raise InputError(f"lr {lr}; give a step size above 0")
    if precision not in ("double", "single"):
        raise unknown_name("precision", str(precision), ("double", "single"))
    if method in ("gd", "ngd"):
        if batch is not None and batch != data.n:
            raise InputError(f"batch {batch} with method {method}, which uses all {data.n} examples at every step; "
                             "leave batch out or use sgd")
        batch = None
    else:
        batch = min(50, data.n) if batch is None else batch
        if batch < 1 or batch != int(batch):
            raise InputError(f"batch {batch}; give at least 1")
        if batch > data.n:
            raise InputError(f"batch {batch} is larger than the {data.n} examples of {data.name}; give at most {data.n}")
    target_log_loss, target_log_time = targets(until)
    if epochs is None and until is None:
        epochs = 500 if batch is not None else 1000
    if epochs is not None and (epochs < 1 or epochs != int(epochs)):
        raise InputError(f"epochs {epochs}; give at least 1")
    return Request(method, losses.loss(loss), float(lr), batch, epochs, until, bool(replacement), precision,
                   target_log_loss, target_log_time)


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


Checkpoint = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]


@double
def descend(net: Net, theta: Mapping[str, Any], data: Dataset, *, method: str = "sgd", loss: Any = "logistic",
            lr: float = 0.1, batch: int | None = None, epochs: int | None = None, until: str | None = None,
            schedule: Any = None, replacement: bool = False, precision: str = "double", seed: int = 0,
            monitors: Any = None, records: int = 256, progress: bool | None = None,
            checkpoint: Callable[[Mapping[str, np.ndarray], Mapping[str, Any]], None] | None = None,
            resume: Checkpoint | None = None, options: Mapping[str, Any] | None = None) -> Run:
    """Train by sgd, gd, ngd or adam.

    lr: the step size; for ngd the step is lr/L, and lr is where the adaptive schedule begins. until: 'loss=V' or
    'log-time=V'; log-time is the log of the accumulated step sizes (for ngd of lr/L), the discrete counterpart of
    the flow's time. schedule: 'constant' (sgd, gd, adam), 'adaptive' (ngd), 'inverse-sqrt', 'chizat2020.both',
    'chizat2020.output', or any object with their two methods. checkpoint is called with (arrays, numbers) now and
    then and at Ctrl-C; what it was last given is what `resume` takes.
    """
    import jax.numpy as jnp

    asked = request(data, method=method, loss=loss, lr=lr, batch=batch, epochs=epochs, until=until,
                    replacement=replacement, precision=precision)
    start = checked_weights(net, theta, data)
    rule = named_schedule(schedule or ("adaptive" if method == "ngd" else "constant"), net, start, data)
    if isinstance(rule, Adaptive) and method != "ngd":
        raise InputError(f"schedule adaptive with method {method}; it is defined for ngd")
    plan = asked.plan(net, data.n, rule)
    state = started(plan, {k: v[None] for k, v in start.items()}, [seed], [math.log(lr)], [1.0], asked.dtype)
    drive = Drive(plan, state, dict(state.theta), jnp.asarray(data.X, asked.dtype), jnp.asarray(data.y, asked.dtype),
                  watching.monitors(monitors, net), watching.Recorder(records), asked.steps(plan),
                  save=None if checkpoint is None else lambda drive: checkpoint(*snapshot(drive)))
    if resume is not None:
        restore(drive, *resume)
    with progress_meter(drive.steps, f"{method}", progress) as meter:
        drive.run(meter)

    history = {name: values if values.ndim == 1 else values[:, 0] for name, values in drive.recorder.stacked().items()}
    code, at, step = int(drive.state.halted[0]), int(drive.state.halted_at[0]), int(drive.state.step)
    last = drive.previous if code == DIVERGED else drive.state.theta
    outcome, message = ending(drive, code, at, history["log_loss"], asked)
    rule_record = dataclasses.asdict(rule) if dataclasses.is_dataclass(rule) else {}
    return Run(
        net=net, data=data, theta0=start, theta={name: np.asarray(value[0]) for name, value in last.items()},
        method=method, loss=asked.loss.name, outcome=outcome, message=message,
        log_time=float(history["log_time"][-1]), log_loss=float(history["log_loss"][-1]), history=history,
        options={**asked.options(), "schedule": getattr(rule, "name", type(rule).__name__), "schedule_values": rule_record,
                 "seed": seed, "records": records, **(options or {})},
        loss_reduction="mean", steps=step if code == RUNNING else at,
        provenance=provenance(data=data.sha256))


def ending(drive: Drive, code: int, at: int, log_loss: np.ndarray, asked: Request) -> tuple[Outcome, str]:
    """How a run ended, in one line."""
    step = int(drive.state.step)
    if code == DIVERGED:
        kept = int(drive.recorder.rows[-1]["step"])
        return Outcome.DIVERGED, (f"diverged at step {at}: the outputs left float range; figures and weights are those of "
                                  f"step {kept}; use a smaller lr")
    if drive.interrupted:
        return Outcome.INTERRUPTED, f"interrupted at step {step} of {drive.steps}"
    if code == STALLED:
        return Outcome.STALLED, f"at step {at} no step size lowers the loss to rounding"
    rise = float(log_loss[-1] - log_loss[0])
    if rise > math.log(10.0):
        first = int(np.argmax(log_loss - log_loss[0] > math.log(10.0)))
        where = int(drive.recorder.rows[first]["step"])
        return Outcome.DIVERGED, f"diverged: the loss passed ten times its first value by step {where}; use a smaller lr"
    if code == REACHED:
        return Outcome.CONVERGED, f"{asked.until} reached at step {at}"
    if asked.until is not None:
        return Outcome.MAX_STEPS, f"{asked.until} not reached in {step} steps"
    return Outcome.CONVERGED, f"{asked.epochs} epochs, {step} steps"


def checked_weights(net: Net, theta: Mapping[str, Any], data: Dataset) -> dict[str, np.ndarray]:
    """θ as float64 NumPy arrays of the shapes the net asks for, all finite."""
    shapes = net.shapes(data.d)
    if set(shapes) != set(theta):
        raise InputError(f"weights {sorted(theta)} given, but {net} has {sorted(shapes)}")
    arrays = {name: np.array(to_numpy(theta[name]), dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        if arrays[name].shape != tuple(shape):
            raise InputError(f"weight '{name}' has shape {arrays[name].shape}; {net} on {data.d} inputs needs {tuple(shape)}")
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"weight '{name}' has a NaN or an infinity; give finite weights")
    return arrays
