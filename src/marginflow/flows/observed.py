"""What a flow records of itself: margins, norms, angles, balance, neuron paths; evenly in the clock s."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow.flows import collapsed
from marginflow.flows.coupled import State, imbalance
from marginflow.flows.late_phase import Late
from marginflow.flows.piecewise import Problem, Weighing


@dataclasses.dataclass(frozen=True, eq=False)
class Axes:
    """Unit max-margin vectors of the two classes in the flow's coordinates; None where a class has none."""

    positive: np.ndarray | None
    negative: np.ndarray | None


def _angle(gram_parts: list[tuple[float, np.ndarray, np.ndarray]], axis: np.ndarray | None) -> float:
    """Angle between the rows of a group of neurons and their best multiple of `axis`: tan² = tr(P⊥ M)/uᵀMu.

    M = Σ (k ββᵀ + D); the part across the axis is formed from β - u(uᵀβ), never as a difference of traces. An empty
    group has no part along the axis: π/2.
    """
    if axis is None:
        return math.nan
    along = across = 0.0
    for k, beta, D in gram_parts:
        b = float(axis @ beta)
        rest = beta - b * axis
        Da = D @ axis
        aDa = float(axis @ Da)
        along += k * b * b + max(aDa, 0.0)
        across += k * float(rest @ rest) + max(float(np.trace(D)) - aDa, 0.0)
    return math.atan2(math.sqrt(across), math.sqrt(along)) if along + across > 0 else math.pi / 2


def of_state(problem: Problem, state: State, look: Weighing, axes: Axes, still_norm2: float) -> dict[str, float]:
    W, a = state.W, state.a
    norms = np.einsum("pr,pr->p", W, W)
    parts: dict[int, list] = {1: [], -1: []}
    on = (state.sigma > 0).any(axis=1)
    for sign in (1, -1):
        rows = on & (np.sign(a) == sign)
        if rows.any():
            parts[sign] = [(0.0, np.zeros(problem.r), W[rows].T @ W[rows])]
    a2 = a * a
    gap = imbalance(state)
    total = float(norms.sum() + still_norm2 + (a2.sum() if problem.both else 0.0))
    return _row(problem, look, W.T @ W, total, still_norm2, parts, axes, gap, state.s, state.log_time)


def of_late(problem: Problem, late: Late, axes: Axes, still_norm2: float) -> dict[str, float]:
    look, points = late.look, late.points
    W0, a0 = late.frame.W[late.still], late.frame.a[late.still]
    gram = W0.T @ W0
    total = float(np.trace(gram)) + still_norm2 + (float(a0 @ a0) if problem.both else 0.0)
    parts: dict[int, list] = {1: [], -1: []}
    gap = late.start_gap
    for group, point in zip(late.system.groups, points, strict=True):
        alpha = math.exp(point.log_alpha)
        if problem.both:
            k, beta, D = 1 / alpha, point.beta, point.D
        else:
            W = group.W0 + np.outer(group.a0, point.beta)
            k, beta, D = 0.0, np.zeros(problem.r), W.T @ W
        piece = k * np.outer(beta, beta) + D
        gram = gram + piece
        total += float(np.trace(piece)) + (alpha if problem.both else 0.0)
        if (group.sigma > 0).any():
            parts[1 if group.a0[0] > 0 else -1].append((k, beta, D))
        if problem.both:
            gap = max(gap, collapsed.drift(group, point))
    return _row(problem, look, gram, total, still_norm2, parts, axes, gap, late.s, late.log_time)


def _row(problem, look, gram, total, still_norm2, parts, axes, gap, s, log_time) -> dict[str, float]:
    top = float(np.linalg.eigvalsh(gram)[-1])
    q = look.margin(problem)
    return {"s": s, "log_time": log_time, "log_loss": look.log_loss, "margin_min": q,
            "normalised_margin": q / total ** (1.0 if problem.both else 0.5) if total > 0 else 0.0,
            "stable_rank": (float(np.trace(gram)) + still_norm2) / top if top > 0 else 0.0,
            "angle_positive": _angle(parts[1], axes.positive), "angle_negative": _angle(parts[-1], axes.negative),
            "balance": gap, "norm_squared": total}


class Track:
    """Rows of a history, evenly spaced in s, at most `capacity`: when full every other one goes and the gap doubles."""

    def __init__(self, capacity: int, gap: float = 0.0):
        self.capacity, self.gap = capacity, gap
        self.rows: list[dict[str, Any]] = []

    def due(self, s: float) -> bool:
        return not self.rows or s >= self.rows[-1]["s"] + self.gap

    def add(self, row: Mapping[str, Any]) -> None:
        if self.rows and row["s"] <= self.rows[-1]["s"]:
            self.rows[-1] = dict(row)
            return
        if len(self.rows) >= self.capacity:
            span = self.rows[-1]["s"] - self.rows[0]["s"]
            self.gap = max(2 * self.gap, 2 * span / self.capacity)
            kept = [self.rows[0]]
            for r in self.rows[1:]:
                if r["s"] >= kept[-1]["s"] + self.gap:
                    kept.append(r)
            self.rows = kept
        self.rows.append(dict(row))

    def history(self) -> dict[str, np.ndarray]:
        """One array per quantity; a quantity this problem does not have (an angle to no axis) is left out."""
        columns = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]} if self.rows else {}
        return {name: column for name, column in columns.items() if not np.isnan(column).any()}
