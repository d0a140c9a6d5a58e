"""Gradient flow to t = ∞: exact events while patterns change, collapsed groups afterwards, the limit map at the end."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from marginflow import losses
from marginflow._core.errors import InputError
from marginflow._core.logs import parse_log_number
from marginflow._core.progress import progress
from marginflow._core.provenance import provenance
from marginflow._core.status import Outcome, Status
from marginflow.data.dataset import Dataset
from marginflow.flows import coupled, late_phase, limit_map, observed, piecewise
from marginflow.flows.interrupts import Interrupt, deferred_interrupt
from marginflow.nets.net import Net
from marginflow.nets.weights import double_weights
from marginflow.runs import Events, Limit, Run

# Default log t up to which a flow is integrated before the limit map is asked: the spread over neurons has then
# settled to better than 1e-3 of what the early phase left, and the map carries the rest.
LIMIT_LOG_TIME = 1e4
# Patterns that no theorem freezes count as frozen once t has grown by this factor (in logs) without an event.
QUIET_LOG_TIME = 10.0
QUIET_STEPS = 25  # steps without an event after which the collapsed form pays
STIFF_MARGIN = 20.0  # margins from which the explicit rule is held back by stability
LINKED = 0.01  # the early phase ends when a weight of the loss has changed by this fraction
STATIONARY = 1e-8

KINDS = np.array(["cross_on", "cross_off", "enter", "leave"])


@dataclasses.dataclass(frozen=True)
class Target:
    """What ends the flow. kind: limit, frozen, log_time or log_loss."""

    kind: Literal["limit", "frozen", "log_time", "log_loss"]
    value: float = math.nan


def target(until: Any) -> Target:
    """Target from "limit", "frozen", ("log_time", V), ("log_loss", V), "log-time=V" or "loss=V" (V may underflow)."""
    if isinstance(until, Target):
        return until
    remedy = "give limit, frozen, log-time=V or loss=V"
    if until in ("limit", "frozen"):
        return Target(until)
    try:
        if isinstance(until, str):
            name, _, text = until.partition("=")
            name = name.strip().replace("-", "_")
            if name == "log_loss":
                value = float(text)
            else:
                value = parse_log_number(text) if name == "loss" else float(text)
            name = "log_loss" if name == "loss" else name
        else:
            name, value = until[0].replace("-", "_"), float(until[1])
    except (TypeError, ValueError, IndexError, AttributeError):
        raise InputError(f"until '{until}' is not understood; {remedy}") from None
    if name not in ("log_time", "log_loss") or not math.isfinite(value):
        raise InputError(f"until '{until}' is not understood; {remedy}")
    return Target(name, value)


def flow(net: Net, theta: Mapping[str, Any], data: Dataset, *, until: Any = "limit", loss: Any = "logistic",
         mode: Literal["exact", "adaptive"] | None = None, rtol: float | None = None, max_steps: int = 100_000,
         records: int = 400, paths: bool | None = None, options: Mapping[str, Any] | None = None) -> Run:
    """Gradient flow of Σ ℓ(q_i) from θ.

    mode: "exact" (two-layer nets with a piecewise-linear activation) locates every event and collapses the late phase;
        "adaptive" (any net) is a tolerance-controlled solver that smooths hyperplanes over. Default: exact if it can.
    rtol: error per step, relative to each neuron; default 1e-8.
    paths: keep all neurons at the recorded times; default: if that is small.
    """
    asked = {**request(net, until=until, loss=loss, mode=mode, rtol=rtol, max_steps=max_steps, records=records),
             **dict(options or {})}
    goal, chosen, step_error = target(until), losses.loss(loss), asked["rtol"]
    start = double_weights(theta, net, data.d)
    if asked["mode"] == "adaptive":
        from marginflow.flows.adaptive import adaptive

        return adaptive(net, start, data, chosen, goal, rtol=step_error, max_steps=max_steps, records=records,
                        options=asked, limit_log_time=LIMIT_LOG_TIME)
    return _Exact(net, start, data, chosen, goal, step_error, max_steps, records, paths, asked).run()


def request(net: Net, *, until: Any = "limit", loss: Any = "logistic", mode: str | None = None,
            rtol: float | None = None, max_steps: int = 100_000, records: int = 400) -> dict[str, Any]:
    """What a flow is asked for, with every default filled in: the options its run records."""
    mode = ("exact" if piecewise.covers(net) else "adaptive") if mode is None else mode
    if mode not in ("exact", "adaptive"):
        raise InputError(f"mode '{mode}'; choose exact or adaptive")
    rtol = 1e-8 if rtol is None else float(rtol)
    if not 1e-13 <= rtol <= 1e-2:
        raise InputError(f"rtol {rtol:g}; give a tolerance between 1e-13 and 1e-2")
    if records < 16:
        raise InputError(f"records {records}; keep at least 16")
    return {"method": "flow", "mode": mode, "until": _spelled(target(until)), "loss": losses.loss(loss).name,
            "rtol": rtol, "max_steps": max_steps, "records": records}


def _spelled(goal: Target) -> str:
    return goal.kind if math.isnan(goal.value) else f"{goal.kind}={goal.value!r}"


class _Exact:
    """One run of the exact engines; `run` is the order of events."""

    def __init__(self, net, theta, data: Dataset, loss, goal: Target, rtol, max_steps, records, paths, options):
        self.net, self.theta0, self.data, self.goal = net, theta, data, goal
        self.rtol, self.max_steps, self.options = rtol, max_steps, options
        self.problem = piecewise.problem(net, data, loss)
        inside, self.outside = piecewise.into(self.problem, theta["W"])
        self.still_norm2 = 0.0 if self.outside is None else float((self.outside**2).sum())
        self.state = coupled.start(self.problem, inside, theta["a"].astype(float))
        self.late: late_phase.Late | None = None
        self.steps, self.quiet = 0, 0
        self.interrupt = Interrupt()
        self.events: list[tuple[int, int, str, float]] = []
        self.track = observed.Track(records)
        small = net.width * data.d * min(records, 200) <= 2_000_000
        self.paths = observed.Track(min(records, 200)) if (small if paths is None else paths) else None
        self.marks: dict[str, float | None] = {"transition": None, "collapsed": None}
        self.axes, self.absorbing = self._axes()

    def _axes(self) -> tuple[observed.Axes, bool]:
        """The classes' max-margin directions, and whether the data are orthogonally separable."""
        from marginflow import margins
        from marginflow.conditions.orthogonal_separability import orthogonal_separability

        found = {}
        for sign, solve in ((1, margins.positive), (-1, margins.negative)):
            w = solve(self.data).vector
            if w is not None and self.problem.basis is not None:
                w = w @ self.problem.basis
            found[sign] = None if w is None else np.asarray(w) / np.linalg.norm(w)
        relu = self.problem.leak == 0 and self.problem.both
        holds = relu and orthogonal_separability(self.data).status is Status.HOLDS
        return observed.Axes(found[1], found[-1]), holds

    def run(self) -> Run:
        with progress(None, "gradient flow") as meter, deferred_interrupt() as self.interrupt:
            outcome, message = self._early(meter)
            if outcome is None:
                outcome, message = self._late(meter)
        return self._record_of(outcome, message)

    # the coupled flow

    def _early(self, meter) -> tuple[Outcome | None, str]:
        problem = self.problem
        look = piecewise.weigh(problem, self.state.outputs(problem))
        V = piecewise.fields(problem, self.state.slopes, self.state.slides, look.c)
        first = np.abs(look.c)
        self._observe(look, force=True)
        speed = float(np.linalg.norm(V, axis=1).max())
        h = 0.01 / speed if speed > 0 else 1.0
        while True:
            if self._frozen():
                return None, ""
            if self.quiet >= QUIET_STEPS or look.margin(problem) > STIFF_MARGIN:
                return None, ""
            if self._stationary(look, V):
                return Outcome.CONVERGED, self._stuck(look)
            if self.interrupt.requested:
                return self._interrupted()
            if self.steps >= self.max_steps:
                return Outcome.MAX_STEPS, f"{self.steps} steps taken before the target; raise max_steps"
            got = self._step(look, V, h)
            if got is None:
                return Outcome.STALLED, f"the step size fell below rounding at log t = {self.state.log_time:.6g}"
            self.steps += 1
            self.quiet = 0 if got.events else self.quiet + 1
            self.events += got.events
            self.state, look, V, h = got.state, got.look, got.V, max(got.h, 1e-12)
            if self.marks["transition"] is None and np.max(np.abs(np.abs(look.c) / first - 1)) > LINKED:
                self.marks["transition"] = self.state.log_time
            self._observe(look)
            meter.advance(1, f"log t {self.state.log_time:.3g}, {len(self.events)} events")
            if self._reached(self.state.log_time, look.log_loss):
                self._observe(look, force=True)
                return Outcome.CONVERGED, ""

    def _step(self, look, V, h: float):
        """One step, taken again shorter while it runs past the target."""
        room = self._room(look, V)
        for _ in range(20):
            got = coupled.step(self.problem, self.state, look, V, h, self.rtol, room)
            if got is None or self.goal.kind in ("limit", "frozen"):
                return got
            if self.goal.kind == "log_time":
                over = got.state.log_time - self.goal.value
                if math.isfinite(self.state.log_time):
                    ahead, taken = (min(t - self.state.log_time, 700.0) for t in (self.goal.value, got.state.log_time))
                    part = math.expm1(ahead) / math.expm1(taken)
                else:
                    part = math.exp(-max(over, 0.0))
            else:
                over = self.goal.value - got.look.log_loss
                part = (look.log_loss - self.goal.value) / (look.log_loss - got.look.log_loss) if over > 0 else 1.0
            if over <= 1e-9 * max(1.0, abs(self.goal.value)):
                return got
            room = got.length * min(part, 1 - 1e-12)
        return got

    def _room(self, look, V) -> float:
        """The longest step that does not overshoot a target by more than the step control would notice."""
        if self.goal.kind == "log_time":
            left = self.goal.value - self.state.log_time
            if not math.isfinite(left):
                return math.exp(min(self.goal.value + look.log_loss, 700.0))
            # dt = ds/L and L falls: this much of s never passes the target, and halves what is left at least
            room = math.exp(min(self.goal.value + look.log_loss, 700.0)) * -math.expm1(-max(left, 0.0))
            return max(room, 1e-13)
        if self.goal.kind == "log_loss":
            fall = _climb(self.problem, self.state, V)
            return max((look.log_loss - self.goal.value) / fall, 1e-13) if fall > 0 else math.inf
        return math.inf

    def _reached(self, log_time: float, log_loss: float) -> bool:
        close = 1e-9
        if self.goal.kind == "log_time":
            return log_time >= self.goal.value - close * max(1.0, abs(self.goal.value))
        if self.goal.kind == "log_loss":
            return log_loss <= self.goal.value + close * max(1.0, abs(self.goal.value))
        return False

    def _frozen(self) -> bool:
        """Every neuron in an absorbing sector or off on all data (Lemma 3 of Phuong & Lampert 2021)."""
        return self.absorbing and bool(settled(self.problem, self.state).all())

    def _stationary(self, look, V) -> bool:
        state = self.state
        if not (np.abs(state.a) @ np.abs(V).sum(axis=1)) > 0 and not np.einsum("pr,pr->p", state.W, V).any():
            return True
        along = np.einsum("pr,pr->p", state.W, V) * np.sign(state.a)
        growth = along / np.maximum(np.linalg.norm(state.W, axis=1), 1e-300) if self.problem.both else np.zeros(1)
        return self._still(state.s, _climb(self.problem, state, V), float(growth.max()))

    def _still(self, s: float, climb: float, growth: float) -> bool:
        """Whether as long again at these rates changes log L by less than STATIONARY and no neuron by more than e.

        Where the loss goes to 0, -log L grows ever faster in s; on a plateau of small weights neurons grow like e^(cs).
        """
        span = max(s, 100.0 / float(self.problem.norms.max()))
        return climb * span <= STATIONARY and growth * span <= 1

    def _stuck(self, look) -> str:
        on = (self.state.slopes > 0).any()
        why = "a stationary point" if on else "every neuron is off on all data"
        return f"the loss does not go to 0: it converges to {math.exp(look.log_loss):.12g} ({why})"

    # the collapsed flow

    def _late(self, meter) -> tuple[Outcome, str]:
        certain = self._frozen()
        self.marks["collapsed"] = self.state.log_time
        if certain and self.goal.kind == "frozen":
            return Outcome.CONVERGED, ""
        self.late = late_phase.gathered(self.problem, self.state)
        if not self.late.system.groups:
            look = piecewise.weigh(self.problem, self.state.outputs(self.problem))
            return Outcome.CONVERGED, self._stuck(look)
        stop_time = self.goal.value if self.goal.kind == "log_time" else math.inf
        stop_loss = self.goal.value if self.goal.kind == "log_loss" else -math.inf

        stuck = False

        def each(late) -> bool:
            nonlocal stuck
            self.late = late
            growth = max(float(p.e @ v) for p, v in zip(late.points, late.fields, strict=True))
            stuck = self._still(late.s, late.climb[1], growth if self.problem.both else 0.0)
            self._observe(late.look)
            meter.advance(1, f"log t {late.log_time:.4g}")
            return stuck or self.interrupt.requested or self._enough(late, certain)

        while True:
            got = late_phase.stretch(self.late, self.rtol, log_time=stop_time, log_loss=stop_loss, watch=not certain,
                                     max_steps=max(self.max_steps - self.steps, 0), each=each)
            self.late = got.late
            self.steps += got.steps
            self.events += got.events
            if got.reason == "event":
                self.state = got.late.frame
                certain = self._frozen()
                if certain and self.goal.kind == "frozen":
                    return Outcome.CONVERGED, ""
                if not got.late.system.groups:
                    return Outcome.CONVERGED, self._stuck(got.late.look)
            elif got.reason in ("target", "stop"):
                self._observe(self.late.look, force=True)
                if self.interrupt.requested and got.reason == "stop":
                    return self._interrupted()
                return Outcome.CONVERGED, self._stuck(self.late.look) if stuck else ""
            elif got.reason == "steps":
                return Outcome.MAX_STEPS, f"{self.steps} steps taken before the target; raise max_steps"
            elif got.reason == "failed":
                return Outcome.STALLED, got.message

    def _interrupted(self) -> tuple[Outcome, str]:
        at = self.state.log_time if self.late is None else self.late.log_time
        return Outcome.INTERRUPTED, f"interrupted at log t = {at:.6g}, after {self.steps} steps"

    def _enough(self, late, certain: bool) -> bool:
        if self.goal.kind not in ("frozen", "limit"):
            return False
        last = self.events[-1][3] if self.events else -math.inf
        quiet = certain or late.log_time >= last + QUIET_LOG_TIME
        if self.goal.kind == "frozen":
            return quiet
        return quiet and late.log_time >= LIMIT_LOG_TIME

    # what is kept

    def _observe(self, look, force: bool = False) -> None:
        s = self.late.s if self.late is not None else self.state.s
        if force or self.track.due(s):
            row = (observed.of_late(self.problem, self.late, self.axes, self.still_norm2) if self.late is not None
                   else observed.of_state(self.problem, self.state, look, self.axes, self.still_norm2))
            self.track.add(row)
        if self.paths is not None and (force or self.paths.due(s)):
            state = self.late.state() if self.late is not None else self.state
            self.paths.add({"s": s, "log_time": state.log_time, "W": self._outside(state.W), "a": state.a})

    def _outside(self, W):
        return piecewise.outof(self.problem, W, self.outside)

    def _record_of(self, outcome: Outcome, message: str) -> Run:
        state = self.late.state() if self.late is not None else self.state
        look = self.late.look if self.late is not None else piecewise.weigh(self.problem, state.outputs(self.problem))
        theta = {"W": self._outside(state.W), "a": state.a.copy()}
        log_time, log_loss = state.log_time, look.log_loss
        limit: Limit | None = None
        if self.goal.kind == "limit" and outcome is Outcome.CONVERGED and self.late is not None and not message:
            certain = self.absorbing and bool(settled(self.problem, state).all())
            ask = limit_map.absorbed if certain else limit_map.candidate
            limit, message = ask(self.late, self.net, self.data)
            if limit is not None and (certain or limit.certificate["status"] is Status.HOLDS):
                theta, log_time = dict(limit.theta), math.inf
                log_loss = -math.inf if limit.normalised_margin > 0 else self._limit_loss(state)
        events = sorted(self.events, key=lambda event: event[3])
        last = events[-1][3] if events else -math.inf
        certain = self.absorbing and bool(settled(self.problem, state).all())
        quiet = self.late is not None and (certain or state.log_time >= last + QUIET_LOG_TIME)
        return Run(net=self.net, data=self.data, theta0=self.theta0, theta=theta, method="flow",
                   loss=self.problem.loss.name, outcome=outcome, message=message, log_time=log_time, log_loss=log_loss,
                   history=self.track.history(), options=self.options, steps=self.steps,
                   frozen_log_time=last if certain or quiet else None, events=_packed(events), limit=limit,
                   extra=self._extra(state, look, events, certain, quiet), provenance=provenance(data=self.data.sha256))

    def _limit_loss(self, state) -> float:
        """log of what is left when one class has no neuron: its examples keep ℓ(0)."""
        served = np.sign(state.a[(state.sigma > 0).any(axis=1)])
        lost = np.isin(self.problem.y, served, invert=True).sum()
        return float(self.problem.loss.log_value(np.zeros(1))[0] + math.log(lost)) if lost else -math.inf

    def _extra(self, state, look, events, certain: bool, quiet: bool) -> dict[str, Any]:
        fates = fate(self.problem, state, look, certain)
        count = {name: int((fates == name).sum()) for name in ("positive", "negative", "dead", "vanishing", "other")}
        held = np.bincount(state.slides.neuron, minlength=len(state.a))
        slid = {event[0] for event in events if event[2] == "enter"} | set(np.flatnonzero(held).tolist())
        extra: dict[str, Any] = {
            "neurons": count, "fate": fates, "frozen": "certified" if certain else "observed" if quiet else "no",
            "orthogonally_separable": self.absorbing,
            "phases": {"early_until": self.marks["transition"], "collapsed_from": self.marks["collapsed"],
                       "frozen_from": (events[-1][3] if events else None) if certain or quiet else None},
            "pattern0": _start_pattern(self.problem, self.theta0, self.outside), "pattern": state.sigma,
            "slid": len(slid), "integrated": {"log_time": state.log_time, "log_loss": look.log_loss,
                                              "W": self._outside(state.W), "a": state.a}}
        if self.paths is not None and self.paths.rows:
            extra["paths"] = {name: np.array([row[name] for row in self.paths.rows]) for name in ("log_time", "W", "a")}
        return extra


def _climb(problem, state, V) -> float:
    """d(-log L)/ds: gain · Σ ‖dθ/ds‖²."""
    total = float((state.a**2) @ (V * V).sum(axis=1))
    if problem.both:
        total += float((np.einsum("pr,pr->p", state.W, V) ** 2).sum())
    return problem.gain * total


def settled(problem: piecewise.Problem, state: coupled.State) -> np.ndarray:
    """Per neuron: on for the whole class of its sign and off on the other, or off on all data.

    On orthogonally separable data this is absorbing. Let a > 0, all of I+ on, I- off: dw/ds = a P Σ_{I+} π_i x_i, every
    held x_k is of I- and orthogonal to that sum or is let go to the off side, so wᵀx_k does not rise on I- and
    rises on I+. Off everywhere: nothing moves.
    """
    own = np.where(state.a[:, None] * problem.y > 0, 1, 0)
    right = np.all(np.where(own == 1, state.sigma == 1, state.sigma <= 0), axis=1)
    return right | np.all(state.sigma <= 0, axis=1)


def fate(problem: piecewise.Problem, state: coupled.State, look, certain: bool) -> np.ndarray:
    """dead: off on all data. vanishing: pushed towards 0. positive, negative: growing, by the sign of a."""
    V = piecewise.fields(problem, state.slopes, state.slides, look.c)
    growth = np.einsum("pr,pr->p", state.W, V) * np.sign(state.a)
    names = np.where(state.a > 0, "positive", "negative").astype("<U9")
    if problem.both:
        names[growth < 0] = "vanishing"
    names[(state.a == 0) | (growth == 0)] = "other"
    names[~(state.slopes > 0).any(axis=1)] = "dead"
    return names


def _start_pattern(problem, theta0, outside) -> np.ndarray:
    inside, _ = piecewise.into(problem, theta0["W"])
    return np.sign(inside @ problem.X.T).astype(np.int8)


def _packed(events) -> Events:
    if not events:
        return Events(np.zeros(0, int), np.zeros(0, int), np.zeros(0, KINDS.dtype), np.zeros(0))
    neuron, example, kind, when = zip(*events, strict=True)
    return Events(np.array(neuron), np.array(example), np.array(kind, KINDS.dtype), np.array(when))
