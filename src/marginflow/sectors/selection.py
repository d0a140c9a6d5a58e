"""Which velocity a neuron takes where several fields meet: the element of least norm.

Let p_i = s·κ_i be the charges a neuron of sign s feels. At w, with Z the hyperplanes wᵀx_k = 0 of opposed
examples (p_k < 0), the admissible velocities are v_0 - Σ_Z c_k |p_k| x_k, 0 <= c_k <= 1, with v_0 the pull of
the examples that are on. The opposed examples contribute a concave function of w, so between crossings of
aligned hyperplanes (p > 0) the path is the gradient flow of a convex function, whose solution is unique and
whose right derivative is the admissible velocity of least norm. Its optimality conditions say the rest:
0 < c_k < 1 is sliding (vᵀx_k = 0, Lemma A.3's projection), c_k = 0 leaves to the off side or grazes
(vᵀx_k <= 0), c_k = 1 leaves to the on side or grazes (vᵀx_k >= 0). docs/flows/early-phase.md has the proof.
"""

from typing import NamedTuple

import numpy as np

# x_kᵀv counts as 0 below this times ‖x_k‖ times the size of the fields that make up v: a few hundred roundings.
SPEED_ZERO = 1e-13


class Least(NamedTuple):
    v: np.ndarray
    c: np.ndarray


def least_velocity(v0: np.ndarray, rows: np.ndarray, scale: float) -> Least:
    """argmin ‖v_0 - Σ c_k rows_k‖ over 0 <= c <= 1, by active sets (Stark & Parker 1995); rows_k = |p_k| x_k.

    Each pass frees the coefficient that violates its condition most, then solves on the free set, stopping at
    the first bound. The norm falls strictly, so no active set comes twice and the loop ends.
    """
    m = len(rows)
    c, free = np.zeros(m), np.zeros(m, bool)
    if m == 0:
        return Least(v0, c)
    tolerance = SPEED_ZERO * np.linalg.norm(rows, axis=1) * scale
    v, best = v0, np.inf
    while True:
        pull = rows @ v
        wrong = np.where(free, 0.0, np.where(c <= 0.0, pull, -pull))
        k = int(np.argmax(wrong - tolerance))
        size = float(v @ v)
        if wrong[k] <= tolerance[k] or size >= best:
            return Least(v, c)
        best = size
        free[k] = True
        while free.any():
            F = np.flatnonzero(free)
            target = np.linalg.lstsq(rows[F].T, v0 - (c * ~free) @ rows, rcond=None)[0]
            step = target - c[F]
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(step > 0, (1 - c[F]) / step, np.where(step < 0, -c[F] / step, np.inf))
            j = int(np.argmin(room))
            if room[j] >= 1:
                c[F] = target
                break
            c[F] = np.clip(c[F] + max(room[j], 0.0) * step, 0, 1)
            c[F[j]] = 1.0 if step[j] > 0 else 0.0
            free[F[j]] = False
        v = v0 - c @ rows


class Settled(NamedTuple):
    """The pattern just after an instant: velocity, which examples are on, which stay at 0, coefficients c there."""

    v: np.ndarray
    on: np.ndarray
    zero: np.ndarray
    c: np.ndarray


def settle(X: np.ndarray, p: np.ndarray, on: np.ndarray, zero: np.ndarray) -> Settled:
    """The velocity and pattern that a neuron takes at a point with wᵀx_k = 0 for k in `zero` (a mask).

    `on` says which side an aligned example at 0 comes from. It changes sides when the velocity says so; each
    change makes ‖v‖ strictly larger (the least-norm velocity is monotone in v_0), so the loop ends. Where two
    aligned hyperplanes meet at one instant more than one continuation may exist; the stronger pull goes first.
    """
    on = on.copy()
    norms = np.linalg.norm(X, axis=1)
    scale = float(np.abs(p) @ norms)
    opposed, aligned = np.flatnonzero(zero & (p < 0)), np.flatnonzero(zero & (p >= 0))
    on[opposed] = False
    while True:
        v, c = least_velocity((p * on) @ X, -p[opposed, None] * X[opposed], scale)
        pull = X[aligned] @ v * np.where(on[aligned], -1.0, 1.0)
        if not len(aligned) or not (pull > SPEED_ZERO * norms[aligned] * scale).any():
            break
        k = aligned[int(np.argmax(pull))]
        on[k] = ~on[k]
    still = np.abs(X @ v) <= SPEED_ZERO * norms * scale
    sliding = np.zeros(len(X), bool)
    sliding[opposed[(c > 0) & (c < 1)]] = True
    coefficient = np.zeros(len(X))
    coefficient[opposed] = c
    stays = zero & (still | sliding)
    on[opposed] = (X[opposed] @ v > 0) & ~stays[opposed]
    return Settled(v, on, stays, np.where(stays, coefficient, 0.0))
