"""The late phase: groups of equal pattern carried by SciPy's BDF, rebased as they grow, watched for pattern changes.

Each stretch starts from a fresh `collapsed.System` and ends when A = Σ α has grown tenfold, when a neuron meets a
hyperplane (unless that is excluded by proof), or at the target. A pattern change is settled by the same rule as in
the early phase and the groups are formed anew: nothing else distinguishes the collapsed flow from the coupled one.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from marginflow.flows import collapsed
from marginflow.flows import events as following
from marginflow.flows.coupled import State, assembled, imbalance
from marginflow.flows.piecewise import SIDE, Problem, Weighing, rooms

GROWTH = math.log(10.0)
STIFF = 10.0  # output from which the stiff solver is used
EXPLICIT_STEPS = 300  # or after this many explicit steps in one stretch
FINER = 1e-3  # tolerance of the explicit rule, relative to that of the stiff one
ROOT_BISECTIONS = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Late:
    """The net in collapsed form at one time. still: rows of neurons that are off on all data."""

    system: collapsed.System
    still: np.ndarray
    frame: State  # the neurons at the start of the stretch: patterns, and weights of those that are off
    x: np.ndarray
    s: float
    log_time: float
    start_gap: float = 0.0  # imbalance when the groups were formed
    stiff: bool = False

    @functools.cached_property
    def points(self) -> list[collapsed.Point]:
        return self.system.points(self.x)

    @functools.cached_property
    def look(self) -> Weighing:
        return self.system.weigh(self.x)

    @functools.cached_property
    def fields(self) -> np.ndarray:
        return self.system.fields(self.look)

    @functools.cached_property
    def climb(self) -> tuple[float, float]:
        """(-log L, its slope in s)."""
        return self.system.climb(self.x, self.look, self.system.rate_in(self.x, self.fields))

    def state(self) -> State:
        """All neurons."""
        problem = self.system.problem
        W, a = self.frame.W.copy(), self.frame.a.copy()
        for group, point in zip(self.system.groups, self.points, strict=True):
            W[group.rows], a[group.rows] = collapsed.scatter(group, point, problem.both)
        return dataclasses.replace(self.frame, W=W, a=a, s=self.s, log_time=self.log_time)


def gathered(problem: Problem, state: State) -> Late:
    """Neurons with one pattern and one sign of a become one group."""
    off = (state.slopes == 0).all(axis=1) | (state.a == 0) & (state.W == 0).all(axis=1)
    moving = np.flatnonzero(~off)
    held = state.slides.held()
    members = []
    if len(moving):
        label = np.concatenate([state.sigma[moving], np.sign(state.a[moving])[:, None].astype(np.int8)], axis=1)
        # One opaque value per row: comparing column by column would cost n passes over all neurons.
        keys = np.ascontiguousarray(label).view(np.dtype((np.void, label.shape[1]))).ravel()
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(inverse.ravel(), kind="stable")
        bounds = np.searchsorted(inverse.ravel()[order], np.arange(len(first) + 1))
        for g, at in enumerate(first):
            rows = moving[order[bounds[g] : bounds[g + 1]]]
            there = held.get(int(rows[0]), np.zeros(0, int))
            members.append(collapsed.gather(problem, rows, state.sigma[moving[at]], there,
                                            state.slopes[rows[0]], state.W[rows], state.a[rows]))
    still = np.zeros(len(problem.y))
    if not problem.both:
        # With the output layer fixed the groups' displacements start at 0: what they compute now does not move.
        still = problem.y * state.outputs(problem)
    system = collapsed.System(problem, members, still)
    unbalanced = imbalance(state) if problem.both else 0.0
    return Late(system, np.flatnonzero(off), state, system.start, state.s, state.log_time, unbalanced)


def rebased(late: Late) -> Late:
    """The same net and the same groups, measured from where they are now."""
    old = late.system
    system = collapsed.System(old.problem, list(zip(old.groups, late.points, strict=True)), old.still)
    return dataclasses.replace(late, system=system, x=system.start)


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """Where a stretch ended: reason is one of grown, event, target, stop, steps, failed."""

    late: Late
    reason: str
    steps: int
    events: list[tuple[int, int, str, float]]
    message: str = ""


def stretch(late: Late, rtol: float, *, log_time: float = math.inf, log_loss: float = -math.inf, watch: bool = True,
            max_steps: int = 100_000, each: Callable[[Late], bool] = lambda late: False) -> Stretch:
    """Integrates until the groups have grown tenfold or something happens. `each` sees every step; True stops."""
    system = late.system
    if not system.groups:
        return Stretch(late, "stop", 0, [], "every neuron is off on all data")
    try:
        solver = _solver(late, rtol, math.inf)
    except (ValueError, ArithmeticError) as error:
        return Stretch(late, "failed", 0, [], f"the stiff solver cannot start: {error}")
    steps = 0
    while steps < max_steps:
        before = late
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                message = solver.step()
        except (ValueError, ArithmeticError) as error:
            return Stretch(before, "failed", steps, [], f"the stiff solver stopped: {error}")
        if solver.status == "failed":
            return Stretch(before, "failed", steps, [], f"the stiff solver stopped: {message}")
        steps += 1
        late = _moved(before, solver.y, solver.t)
        changed = bool(watch and _broken(late).size)
        if changed:
            late = _first_broken(before, late, solver.dense_output())
        if late.log_time >= log_time or -late.climb[0] <= log_loss:
            late = _landed(before, late, rtol, log_time, log_loss)
            each(late)
            return Stretch(late, "target", steps, [])
        if changed:
            late, new = _resolved(late)
            each(late)
            return Stretch(late, "event", steps, new)
        if each(late):
            return Stretch(late, "stop", steps, [])
        stiff = late.stiff or steps >= EXPLICIT_STEPS or float(np.abs(late.look.f).max()) > STIFF
        if stiff != late.stiff or late.x[-1] >= system.log_A0 + GROWTH:
            return Stretch(dataclasses.replace(rebased(late), stiff=stiff), "grown", steps, [])
    return Stretch(late, "steps", steps, [])


def _moved(late: Late, x: np.ndarray, s: float) -> Late:
    """The same groups at the end x, s of a step that began at `late`."""
    after = dataclasses.replace(late, x=x.copy(), s=float(s))
    return dataclasses.replace(after, log_time=collapsed.later(late.log_time, *late.climb, *after.climb, s - late.s))


def _solver(late: Late, rtol: float, s_end: float):
    """SciPy's BDF once outputs are large, an explicit rule of order 8 before: as quick there and far more exact."""
    from scipy.integrate import BDF, DOP853

    system = late.system
    if not late.stiff:
        fine = max(rtol * FINER, 1e-13)
        atol: Any = system.tolerances(fine)  # one for each variable, which SciPy takes and its stubs do not
        return DOP853(system.rate, late.s, late.x, s_end, rtol=fine, atol=atol)
    atol = system.tolerances(rtol)
    return BDF(system.rate, late.s, late.x, s_end, rtol=rtol, atol=atol, jac=system.jacobian)


def _broken(late: Late) -> np.ndarray:
    """Neurons past a hyperplane of their pattern, or pushed off one that holds them."""
    problem, state = late.system.problem, late.state()
    size = np.linalg.norm(state.W, axis=1)
    sides = state.sigma * (state.W @ problem.X.T)
    bad = np.any(sides < -SIDE * np.where(size > 0, size, 1.0)[:, None] * problem.norms, axis=1)
    bad[late.still] = False
    if len(state.slides):
        c = late.look.c
        gone = rooms(problem, state.slopes, state.slides, c).min(axis=0) < -SIDE * np.abs(c).max()
        bad[state.slides.neuron[gone]] = True
    return np.flatnonzero(bad)


def _first_broken(before: Late, after: Late, dense) -> Late:
    """The first pattern change between two steps, by bisection on the dense output."""
    lo, hi = before.s, after.s

    def at(s):
        return dataclasses.replace(after, x=dense(s), s=s)

    for _ in range(ROOT_BISECTIONS):
        middle = 0.5 * (lo + hi)
        if middle in (lo, hi):
            break
        lo, hi = (lo, middle) if _broken(at(middle)).size else (middle, hi)
    return _moved(before, dense(hi), hi)


def _resolved(there: Late) -> tuple[Late, list[tuple[int, int, str, float]]]:
    """The groups after a pattern change, and what changed."""
    problem, when = there.system.problem, there.log_time
    state, look = there.state(), there.look
    sigma, held = state.sigma.copy(), {j: Z for j, Z in state.slides.held().items()}
    W, a = state.W.copy(), state.a.copy()
    slots = [held.get(j, np.zeros(0, int)) for j in range(len(a))]
    found = []
    for j in _broken(there):
        for k in _reasons(problem, state, look.c, int(j)):
            changes = following.resolve(problem, W, a, sigma, slots, int(j), k, look.c)
            found += [(int(j), int(i), kind, when) for i, kind in changes]
    new = assembled(problem, W, a, sigma, {j: Z for j, Z in enumerate(slots) if len(Z)}, there.s, when)
    return gathered(problem, new), found


def _reasons(problem: Problem, state: State, c: np.ndarray, j: int) -> list[int]:
    """The examples whose hyperplane neuron j has passed, or one that no longer holds it."""
    size = np.linalg.norm(state.W[j]) or 1.0
    passed = np.flatnonzero(state.sigma[j] * (problem.X @ state.W[j]) < -SIDE * size * problem.norms)
    if len(passed):
        return [int(k) for k in passed]
    pairs = state.slides.neuron == j
    room = rooms(problem, state.slopes, state.slides, c).min(axis=0)
    return [int(k) for k in state.slides.example[pairs & (room < -SIDE * np.abs(c).max())]][:1]


def _landed(before: Late, after: Late, rtol: float, log_time: float, log_loss: float) -> Late:
    """A point between two steps at the target, integrated to and not interpolated: margins of size 10⁹ leave an
    interpolant no digits to spare."""
    lo, hi = before, after

    def overshoot(late: Late) -> float:
        return max(late.log_time - log_time, log_loss + late.climb[0])

    for _ in range(8):
        if overshoot(hi) <= 1e-9 * max(1.0, abs(hi.log_time)):
            break
        gap = overshoot(hi) - overshoot(lo)
        part = min(max(-overshoot(lo) / gap, 1e-3), 1.0) if gap > 0 else 0.5
        s = lo.s + part * (hi.s - lo.s)
        if not lo.s < s < hi.s:
            break
        solver = _solver(lo, rtol, s)
        middle = lo
        while solver.status == "running":
            solver.step()
            middle = _moved(middle, solver.y, solver.t)
        if solver.status == "failed":
            break
        lo, hi = (lo, middle) if overshoot(middle) >= 0 else (middle, hi)
    return hi
