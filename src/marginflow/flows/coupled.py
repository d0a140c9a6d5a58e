"""The coupled flow with exact events: all neurons, the loss-normalised clock, sliding.

One step is the commutator-free Runge-Kutta rule of order 4 of Celledoni, Marthinsen and Owren (2003) on the fields:
every stage is a composition of exact arcs, so balance is kept to rounding. The weights of the examples along the step
then follow as a quadratic; the neurons that met a hyperplane under their frozen patterns are taken back to the start
and followed through their events (events.py). The others did not feel those events; the turn this omits is at most

    ½ h max‖x_i‖ max_i |Δf_i|,

Δf the change of the outputs by the correction, because ‖Δv‖ <= Σ π_i |Δq_i| ‖x_i‖ grows from 0 over the step. A step is
accepted when that is within tolerance: tiny neurons may meet many hyperplanes in one step, a large one ends it.
"""

import dataclasses
import math

import numpy as np

from marginflow.flows import events as following
from marginflow.flows.piecewise import SIDE, Problem, Slides, Weighing, arc, fields, rooms, slopes_of, weigh

ORDER = 4
SHRINK, GROW, SAFETY = 0.2, 4.0, 0.85


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """All neurons at one time. sigma in {-1, 0, 1}: 0 on the hyperplanes that hold a neuron."""

    W: np.ndarray
    a: np.ndarray
    sigma: np.ndarray
    slopes: np.ndarray
    slides: Slides
    s: float
    log_time: float

    def outputs(self, problem: Problem) -> np.ndarray:
        return outputs(problem, self.W, self.a, self.slopes)


def imbalance(state: State) -> float:
    """max |a_j² - ‖w_j‖²| relative to max ‖(w_j, a_j)‖²."""
    w2, a2 = np.einsum("pr,pr->p", state.W, state.W), state.a**2
    size = float((a2 + w2).max())
    return float(np.abs(a2 - w2).max()) / size if size > 0 else 0.0


def outputs(problem: Problem, W, a, slopes) -> np.ndarray:
    return problem.gain * (a @ (slopes * (W @ problem.X.T)))


def start(problem: Problem, W: np.ndarray, a: np.ndarray) -> State:
    """The state at t = 0; hyperplanes that pass through a neuron are settled by the same rule as at an event."""
    U = W @ problem.X.T
    size = np.linalg.norm(W, axis=1)[:, None] * problem.norms
    sigma = np.where(np.abs(U) <= SIDE * size, 0, np.sign(U)).astype(np.int8)
    look = weigh(problem, outputs(problem, W, a, slopes_of(problem, sigma)))
    held: dict[int, np.ndarray] = {}
    for j in np.flatnonzero((sigma == 0).any(axis=1) & (size.max(axis=1) > 0)):
        zeros = np.flatnonzero(sigma[j] == 0)
        sigma[j] = following.settle_zeros(problem, 1.0 if a[j] >= 0 else -1.0, sigma[j], zeros, look.c)
        held[int(j)] = zeros[sigma[j, zeros] == 0]
    return assembled(problem, W, a, sigma, held, 0.0, -math.inf)


def assembled(problem, W, a, sigma, held: dict[int, np.ndarray], s: float, log_time: float) -> State:
    return State(W, a, sigma, slopes_of(problem, sigma), Slides.of(problem, held), s, log_time)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """What one accepted step gave. events: (neuron, example, kind, log t); h: the size the next one may try."""

    state: State
    look: Weighing
    V: np.ndarray
    events: list[tuple[int, int, str, float]]
    h: float
    length: float
    rejected: int


def step(problem: Problem, state: State, look: Weighing, V: np.ndarray, h: float, rtol: float,
         h_max: float = math.inf) -> Step | None:
    """One accepted step from `state`, at most h_max long; None when the step size underflows."""
    rejected = 0
    smallest = 1e-14 * max(state.s, 1e-3)
    while True:
        h = min(h, h_max)
        if h < smallest:
            return None
        trial = _trial(problem, state, look, V, h)
        if trial is None:  # overflow
            h *= SHRINK
            rejected += 1
            continue
        W, a, end, V5, mid, logs, error = trial
        if error > rtol:
            h *= max(SHRINK, SAFETY * (rtol / error) ** (1 / ORDER))
            rejected += 1
            continue
        grown = min(GROW, SAFETY * (rtol / max(error, 1e-300)) ** (1 / ORDER))
        meeting = _meeting(problem, state, (W, a, end, V5), V, mid, h)
        if not len(meeting):
            new = dataclasses.replace(state, W=W, a=a, s=state.s + h,
                                      log_time=_later(state.log_time, math.log(h) + _log_mean(logs)))
            return Step(new, end, V5, [], h * grown, h, rejected)
        poly = h * np.stack([look.c, -3 * look.c + 4 * mid - end.c, 2 * look.c - 4 * mid + 2 * end.c])
        held_before = state.slides.held()
        got = following.follow(problem, poly, state.W[meeting], state.a[meeting], state.sigma[meeting],
                               [held_before.get(int(j), np.zeros(0, int)) for j in meeting])
        if not got.settled:
            h *= 0.5
            rejected += 1
            continue
        slopes = slopes_of(problem, got.sigma)
        shift = problem.gain * (got.a[:, None] * slopes * (got.W @ problem.X.T)
                                - a[meeting, None] * state.slopes[meeting] * (W[meeting] @ problem.X.T))
        unseen = 0.5 * h * problem.norms.max()
        turn = unseen * np.abs(shift.sum(axis=0)).max()
        if turn > rtol and len(got.events):
            alone = unseen * np.abs(shift).max(axis=1)
            heavy = alone > rtol / (2 * len(meeting))
            early = float(got.first[heavy].min()) if heavy.any() else 1.0
            # Ending just past the event lets the next trial see it with almost nothing to correct.
            h *= 0.5 if early > 0.999 else max(early * (1 + 1e-6), 1e-6)
            rejected += 1
            continue
        W, a, sigma = W.copy(), a.copy(), state.sigma.copy()
        W[meeting], a[meeting], sigma[meeting] = got.W, got.a, got.sigma
        held = {**held_before, **{int(j): Z for j, Z in zip(meeting, got.held, strict=True)}}
        when = [(int(meeting[row]), k, kind, _later(state.log_time, _log_part(logs, theta, h)))
                for row, k, kind, theta in got.events]
        when.sort(key=lambda event: event[3])
        new = assembled(problem, W, a, sigma, held, state.s + h, _later(state.log_time, math.log(h) + _log_mean(logs)))
        end = weigh(problem, new.outputs(problem))
        V5 = fields(problem, new.slopes, new.slides, end.c)
        grown = min(grown, SAFETY * math.sqrt(rtol / max(turn, 1e-300)))
        return Step(new, end, V5, when, h * max(grown, SHRINK), h, rejected)


def _trial(problem: Problem, state: State, look: Weighing, V1: np.ndarray, h: float):
    """The step under frozen patterns, or None if it overflows."""
    W0, a0, slopes, slides = state.W, state.a, state.slopes, state.slides

    def felt(W, a):
        seen = weigh(problem, outputs(problem, W, a, slopes))
        return seen, fields(problem, slopes, slides, seen.c)

    with np.errstate(over="ignore", invalid="ignore"):
        W2, a2 = arc(problem, W0, a0, 0.5 * h * V1)
        seen2, V2 = felt(W2, a2)
        seen3, V3 = felt(*arc(problem, W0, a0, 0.5 * h * V2))
        _, V4 = felt(*arc(problem, W2, a2, h * (V3 - 0.5 * V1)))
        W, a = arc(problem, W0, a0, h / 12 * (3 * V1 + 2 * V2 + 2 * V3 - V4))
        W, a = arc(problem, W, a, h / 12 * (-V1 + 2 * V2 + 2 * V3 + 3 * V4))
        end, V5 = felt(W, a)
        # The embedded rule with weights (1, 2, 2, 0, 1)/6 has order 3; it differs by this rapidity.
        error = h / 6 * float(np.linalg.norm(V4 - V5, axis=1).max())
    if not (np.isfinite(error) and np.isfinite(end.log_loss)):
        return None
    logs = -np.array([look.log_loss, _log_half(seen2.log_loss, seen3.log_loss), end.log_loss])
    return W, a, end, V5, 0.5 * (seen2.c + seen3.c), logs, error


def _log_half(x: float, y: float) -> float:
    return -float(np.logaddexp(-x, -y) - math.log(2))


def _log_mean(logs: np.ndarray) -> float:
    """log of Simpson's mean of e^logs over the step: dt = ds/L."""
    top = logs.max()
    return float(top + np.log(np.exp(logs - top) @ np.array([1, 4, 1]) / 6))


def _log_part(logs: np.ndarray, theta: float, h: float) -> float:
    """log ∫_0^θ e^logs h dθ by the same quadratic."""
    if theta <= 0:
        return -math.inf
    top = logs.max()
    x, m, z = np.exp(logs - top)
    part = theta * (x + theta * ((-3 * x + 4 * m - z) / 2 + theta * (2 * x - 4 * m + 2 * z) / 3))
    return float(top + math.log(h) + math.log(max(part, 1e-300)))


def _later(log_time: float, log_more: float) -> float:
    return float(np.logaddexp(log_time, log_more))


def _meeting(problem: Problem, state: State, trial, V: np.ndarray, mid: np.ndarray, h: float) -> np.ndarray:
    """Neurons that met a hyperplane, or whose sliding ended, within a step under frozen patterns.

    wᵀx_k is judged by the cubic with its values and slopes at both ends, λ_k at the ends and in the middle. What dips
    below 0 and comes back by less than the error of that cubic, O(h⁴), is missed.
    """
    W, a, end, V5 = trial
    band = SIDE * np.maximum(np.linalg.norm(W, axis=1), 1e-300)[:, None] * problem.norms
    before, after = (state.sigma * (w @ problem.X.T) for w in (state.W, W))
    speeds = (state.sigma * (h * b[:, None] * (v @ problem.X.T)) for b, v in ((state.a, V), (a, V5)))
    met = np.any(np.minimum(after, following.dip(before, after, *speeds)[1]) < -band, axis=1)
    for c in (mid, end.c) if len(state.slides) else ():
        gone = rooms(problem, state.slopes, state.slides, c).min(axis=0) < -SIDE * np.abs(c).max()
        met[state.slides.neuron[gone]] = True
    return np.flatnonzero(met)
