"""The early phase in closed form: one neuron's path from a tiny weight to its fate, arc by arc (theory §3.1).

A tiny neuron of sign s obeys dw/dt = |a| v, d|a|/dt = wᵀv, where v is constant between events. Hence |a| = ‖w‖
throughout, and in space the path is a polygon: on an arc w moves along v̂ = v/‖v‖ by δ = r - A, A = v̂ᵀw(0), with
r(τ) = A cosh τ + ‖w(0)‖ sinh τ, τ = ‖v‖t. The next event is the first hyperplane on that ray, a ratio test, and
its time follows from e^τ = (r + ‖w‖)/(A + ‖w(0)‖) without cancellation. Lengths are kept as logarithms, so
nothing overflows however long a neuron grows. The module is the readable reference; `basins` is the fast one.
"""

import dataclasses
from enum import StrEnum

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show
from marginflow.data.dataset import Dataset
from marginflow.runs import Events
from marginflow.sectors.patterns import charges, directions, zero_band
from marginflow.sectors.selection import SPEED_ZERO, settle

# A neuron opposed to its own field is pinned for good when it has no component across the field. Rounding
# leaves about 1e-16 times the condition of the sliding set there; a generic neuron has O(1).
ACROSS = 1e-9

# After an event, further hyperplanes this close (relative to ‖x‖‖w‖) are met at the same instant.
SAME_INSTANT = 1e-13


class Fate(StrEnum):
    """Where a tiny neuron ends: the three fates of Lemma 1, the fourth (theory §3.1), and the honest rest.

    OTHER: comes to rest where G is critical but not at a strict local optimum (only from special directions).
    UNDECIDED: the answer hangs on rounding, the cap on events was reached, or several continuations exist (a neuron
    with a component outside the span of the data that comes to 0 within it).
    """

    POSITIVE = "positive"
    NEGATIVE = "negative"
    DEAD = "dead"
    VANISHING = "vanishing"
    OTHER = "other"
    UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True, eq=False)
class Arc(Record):
    """From `time` on: direction u (unit) and log ‖w‖ at the start, the field v, and the pattern it belongs to.

    pattern_i in {-1, 0, 1}; the 0 entries are the hyperplanes the neuron slides along, with weights c there.
    """

    time: float
    log_norm: float
    u: np.ndarray
    v: np.ndarray
    pattern: np.ndarray
    coefficients: np.ndarray

    def at(self, time: float) -> tuple[np.ndarray, float]:
        """(direction, log ‖w‖) at a time on this arc."""
        speed = float(np.linalg.norm(self.v))
        tau = speed * (time - self.time)
        if speed == 0 or tau <= 0:
            return self.u, self.log_norm
        e = self.v / speed
        A = float(e @ self.u)
        across = self.u - A * e
        # e^-τ r with A + 1 = ‖across‖²/(1 - A) where A < 0, so that nothing cancels
        plus = 1 + A if A >= 0 else float(across @ across) / (1 - A)
        w = across * np.exp(-tau) + (plus / 2 - (1 - A) / 2 * np.exp(-2 * tau)) * e
        size = plus / 2 + (1 - A) / 2 * np.exp(-2 * tau)
        return w / np.linalg.norm(w), self.log_norm + tau + float(np.log(size))


@dataclasses.dataclass(frozen=True, eq=False)
class Path(Record):
    """A neuron's whole early phase. `limit`: its direction as t → ∞; `growth`: the rate at which log‖w‖ then grows."""

    sign: int
    arcs: tuple[Arc, ...]
    events: Events
    fate: Fate
    limit: np.ndarray
    sector: np.ndarray
    growth: float

    def at(self, time: float) -> tuple[np.ndarray, float]:
        """(direction, log ‖w(t)‖/‖w(0)‖) at any time t >= 0 of the early phase."""
        k = int(np.searchsorted([arc.time for arc in self.arcs], time, side="right")) - 1
        return self.arcs[max(k, 0)].at(time)

    def table(self) -> Table:
        rows = [
            (f"{np.exp(t):.6g}" if np.isfinite(t) else "0", str(kind), str(i))
            for t, kind, i in zip(self.events.log_time, self.events.kind, self.events.example, strict=True)
        ]
        return Table(
            f"early path: {self.fate.value}",
            ("time", "event", "example"),
            tuple(rows),
            (f"{len(self.arcs)} arcs; growth rate {show(self.growth)}",),
        )


def path(
    data: Dataset, w, sign: int = 1, loss="logistic", weights=None, max_events: int | None = None
) -> Path:
    """The early path of one neuron that starts in direction w with output weight of the given sign."""
    w = directions(data, w)
    if w.ndim != 1:
        raise InputError("path follows one neuron: give one direction; basins takes many")
    if sign not in (1, -1):
        raise InputError(f"sign {sign}; give 1 or -1")
    X = np.asarray(data.X, np.float64)
    p = sign * charges(data, loss, weights)
    cap = 50 * data.n + 1000 if max_events is None else max_events
    norms, scale = np.linalg.norm(X, axis=1), float(np.abs(p) @ np.linalg.norm(X, axis=1))

    rank = _rank(X[p != 0])
    u = w / np.linalg.norm(w)
    z = X @ u
    zero = np.abs(z) <= zero_band(u[None], X)[0]
    state = settle(X, p, (z > 0) & ~zero, zero)
    time, log_norm, arcs, log = 0.0, 0.0, [], []
    _note(log, 0.0, np.where(zero, 0, np.sign(z)), _pattern(state), zero)
    while True:
        speed = float(np.linalg.norm(state.v))
        resting = (not state.on.any() and not state.c.any()) or speed <= SPEED_ZERO * scale
        v = np.zeros_like(u) if resting else state.v
        arcs.append(Arc(time, log_norm, u, v, _pattern(state), state.c))
        if resting:
            fate = Fate.OTHER if state.on.any() else Fate.DEAD
            break
        e = state.v / speed
        A, beta, z = float(e @ u), X @ e, X @ u
        across = float(np.linalg.norm(u - A * e))
        pinned = A < 0 and _rank(X[state.zero & (state.c > 0) & (state.c < 1)]) == rank - 1
        if pinned or (A < 0 and across <= ACROSS):
            # With a component outside the span of the data a pinned neuron reaches 0 within it, where all
            # hyperplanes meet and the inclusion has several solutions.
            fate = Fate.VANISHING if pinned and across <= ACROSS else Fate.UNDECIDED
            break
        meets = ~state.zero & np.where(state.on, beta < 0, beta > 0) & (np.abs(beta) > SPEED_ZERO * norms)
        if not meets.any():
            fate = _fate_of_limit(X, p, e, sign)
            break
        if len(log) >= cap:
            fate = Fate.UNDECIDED
            break
        delta = np.full(len(X), np.inf)
        delta[meets] = np.maximum(-z[meets] / beta[meets], 0.0)
        step = float(delta.min())
        new = u + step * e
        time += _duration(A, across, step) / speed
        met = state.zero | (delta == step) | (meets & (np.abs(X @ new) <= SAME_INSTANT * norms))
        new -= _span_part(X[met], new)
        length = float(np.linalg.norm(new))
        u, log_norm = new / length, log_norm + float(np.log(length))
        before = _pattern(state)
        state = settle(X, p, state.on, met)
        _note(log, time, before, _pattern(state), met)
    return _finish(data, X, sign, arcs, log, fate, loss)


def _pattern(state) -> np.ndarray:
    return np.where(state.zero, 0, np.where(state.on, 1, -1)).astype(np.int8)


def _duration(A: float, across: float, step: float) -> float:
    """τ with r(τ) = A + step from ‖w‖ = 1: log(r + ρ) - log(A + 1), each conjugated where it would cancel."""

    def log_sum(r: float) -> float:
        rho = float(np.hypot(r, across))
        return float(np.log(r + rho)) if r >= 0 else float(2 * np.log(across) - np.log(rho - r))

    return log_sum(A + step) - log_sum(A)


def _span_part(rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The component of w in the span of the rows."""
    return rows.T @ np.linalg.lstsq(rows.T, w, rcond=None)[0] if len(rows) else np.zeros_like(w)


def _rank(rows: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(rows)) if len(rows) else 0


def _fate_of_limit(X: np.ndarray, p: np.ndarray, e: np.ndarray, sign: int) -> Fate:
    from marginflow.sectors.local import Kind, local_kind

    kind = local_kind(X, p, e)
    if kind is Kind.STRICT:
        return Fate.POSITIVE if sign > 0 else Fate.NEGATIVE
    return Fate.OTHER if kind is Kind.NONE else Fate.UNDECIDED


def _note(log: list, time: float, before: np.ndarray, after: np.ndarray, met: np.ndarray) -> None:
    for k in np.flatnonzero(met & (before != after)):
        kind = {(-1, 1): "cross_on", (1, -1): "cross_off"}.get(
            (int(before[k]), int(after[k])), "enter" if after[k] == 0 else "leave"
        )
        log.append((k, kind, time))


def _finish(data: Dataset, X: np.ndarray, sign: int, arcs: list[Arc], log: list, fate: Fate, loss) -> Path:
    last = arcs[-1]
    speed = float(np.linalg.norm(last.v))
    ends_on_ray = fate in (Fate.POSITIVE, Fate.NEGATIVE, Fate.OTHER) and speed > 0
    limit = last.v / speed if ends_on_ray else last.u
    growth = {True: speed, False: -speed if fate is Fate.VANISHING else 0.0}[ends_on_ray]
    sector = np.where(
        np.abs(X @ limit) <= SAME_INSTANT * np.linalg.norm(X, axis=1), 0, np.sign(X @ limit)
    ).astype(np.int8)
    sector[last.pattern == 0] = 0
    with np.errstate(divide="ignore"):
        events = Events(
            np.zeros(len(log), int),
            np.array([k for k, _, _ in log], int),
            np.array([kind for _, kind, _ in log], dtype="U9"),
            np.log([t for _, _, t in log]),
        )
    return Path(sign, tuple(arcs), events, fate, limit, sector, growth)
