"""Two neurons for data that are not orthogonally separable: each class as its own neuron sees both classes.

For the neuron of one class, z_i = x_i, b_i = 1 on its own examples and z_i = -x_i, b_i = 0 on the others:

    min ½‖w‖² + (C/2) Σ max(0, b_i - z_iᵀw)².

As C → ∞ this is  min ½‖w‖² s.t. wᵀx_i >= 1 on the class, wᵀx_j <= 0 off it.  On orthogonally separable data the
second set of constraints is implied, since w+ is a positive combination of its own class, so the limit is w±: the
problem extends the theorem's without contradicting it. It is strongly convex and always has one solution.
"""

import dataclasses

import numpy as np

from marginflow._core.status import Outcome

GAP = 1e-9  # relative duality gap at which the answer counts as solved; Newton ends near 1e-14
STEPS = 200  # each step changes the set of active rows or ends; twenty are unusual


@dataclasses.dataclass(frozen=True, eq=False)
class SoftNeuron:
    """w and the duality gap that bounds ½‖w - w*‖² (strong convexity)."""

    w: np.ndarray
    gap: float
    outcome: Outcome
    steps: int


def soft_neuron(own: np.ndarray, other: np.ndarray, C: float) -> SoftNeuron:
    """The minimiser for the class with rows `own`, by Newton steps on the active rows with exact line search."""
    Z = np.concatenate([own, -other]).astype(np.float64)
    b = np.concatenate([np.ones(len(own)), np.zeros(len(other))])
    w, steps = np.zeros(Z.shape[1]), 0
    best = (np.inf, w)
    while steps < STEPS:
        steps += 1
        short = b - Z @ w
        active = short > 0
        gap = _relative_gap(Z, b, w, short, C)
        if gap < best[0]:
            best = (gap, w)
        if gap <= 1e-4 * GAP:
            break
        target = _solve(Z[active], b[active], C)
        direction = target - w
        length = _exact_step(w, direction, short, Z @ direction, C)
        if length == 0.0:
            break
        w = target if length == 1.0 else w + length * direction
    gap, w = best
    return SoftNeuron(w, gap, Outcome.CONVERGED if gap <= GAP else Outcome.STALLED, steps)


def _solve(A: np.ndarray, b: np.ndarray, C: float) -> np.ndarray:
    """argmin ½‖w‖² + (C/2)‖b - Aw‖², in whichever of rows and columns is fewer."""
    m, d = A.shape
    if m < d:
        return A.T @ np.linalg.solve(np.eye(m) / C + A @ A.T, b)
    return np.linalg.solve(np.eye(d) / C + A.T @ A, A.T @ b)


def _exact_step(w, direction, short, change, C: float) -> float:
    """argmin over t in [0, 1] of the objective along w + t·direction: its slope is piecewise linear and increasing."""
    slope = lambda t: float(  # noqa: E731
        (w + t * direction) @ direction - C * np.maximum(short - t * change, 0.0) @ change
    )
    if slope(0.0) >= 0:
        return 0.0
    if slope(1.0) <= 1e-14 * abs(slope(0.0)):
        return 1.0
    breaks = np.unique(
        np.clip(np.divide(short, change, out=np.ones_like(short), where=change != 0), 0.0, 1.0)
    )
    low, high = 0, len(breaks) - 1
    while low < high:  # the first break with a slope that is not negative
        middle = (low + high) // 2
        low, high = (middle + 1, high) if slope(breaks[middle]) < 0 else (low, middle)
    right = breaks[low] if slope(breaks[low]) >= 0 else 1.0
    left = breaks[low - 1] if low > 0 else 0.0
    s_left, s_right = slope(left), slope(right)
    return float(left if s_right <= s_left else left - s_left * (right - left) / (s_right - s_left))


def _relative_gap(Z, b, w, short, C: float) -> float:
    """(primal - dual)/primal at μ = C max(0, b - Zw), dual Σ b μ - ½‖Zᵀμ‖² - ‖μ‖²/(2C)."""
    mu = C * np.maximum(short, 0.0)
    penalty = mu @ mu / (2 * C)
    primal = 0.5 * (w @ w) + penalty
    reached = Z.T @ mu
    dual = b @ mu - 0.5 * (reached @ reached) - penalty
    return float((primal - dual) / primal) if primal > 0 else 0.0
