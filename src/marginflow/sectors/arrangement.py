"""Every face of the arrangement {wᵀx_i = 0} in rank at most 3, and the critical direction each could hold.

On a face the least-norm velocity v is constant, so the face holds at most one critical direction with C > 0,
v̂, and it does exactly when v̂ lies in the face. Directions with C <= 0 are strict optima only at vertices
(see `local`). Rank 2 has rays and the arcs between them; rank 3 has vertices on each circle, the arcs between
them, and the cells, every one of which touches an arc.
"""

import numpy as np

from marginflow.sectors.selection import SPEED_ZERO, settle

# Rank 3 visits about 4 n² arcs at n operations each: 800 examples take about a minute.
MOST_EXAMPLES = {1: 10**6, 2: 20_000, 3: 800}

# A hyperplane counts as through a vertex or along an arc below this angle: computed vertices carry rounding
# over the sine of the angle between their two circles. A face that should not count yields no wrong answer,
# only a candidate that `local_kind` then judges.
THROUGH = 1e-10


def fits(X: np.ndarray) -> bool:
    rank = int(np.linalg.matrix_rank(X))
    return rank <= 3 and len(X) <= MOST_EXAMPLES[rank]


def candidates(X: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Directions among which are all strict local maxima of Σ p_i ρ(wᵀx_i)."""
    right = np.linalg.svd(X, full_matrices=False)[2]
    basis = right[: int(np.linalg.matrix_rank(X))]
    Y = X @ basis.T
    norms = np.linalg.norm(Y, axis=1)
    faces = {1: _rank1, 2: _rank2, 3: _rank3}[Y.shape[1]]
    found = [u for block in faces(Y / norms[:, None]) for u in _of_faces(Y, p, norms, *block)]
    return np.array(found).reshape(-1, Y.shape[1]) @ basis


def _rank1(unit: np.ndarray):
    yield np.array([[1.0], [-1.0]]), np.zeros((2, len(unit)), bool)


def _rank2(unit: np.ndarray):
    rays = np.concatenate([[[-1, 1]], [[1, -1]]])[:, None, :] * unit[None, :, ::-1]
    rays = rays.reshape(-1, 2)
    angles = np.sort(np.arctan2(rays[:, 1], rays[:, 0]))
    middle = angles + np.diff(angles, append=angles[0] + 2 * np.pi) / 2
    yield rays, np.abs(rays @ unit.T) <= THROUGH
    yield np.stack([np.cos(middle), np.sin(middle)], axis=1), np.zeros((len(middle), len(unit)), bool)


def _rank3(unit: np.ndarray):
    """Circle by circle: its vertices, its arcs, and the cells on both sides of each arc."""
    for x in unit:
        first = np.linalg.svd(x[None])[2][1:]
        circle = unit @ first.T
        crossing = np.linalg.norm(circle, axis=1) > THROUGH
        along = np.arctan2(circle[crossing, 1], circle[crossing, 0])
        angles = np.sort(np.mod(np.concatenate([along + np.pi / 2, along - np.pi / 2]), 2 * np.pi))
        keep = np.diff(angles, prepend=angles[-1] - 2 * np.pi) > THROUGH
        angles = angles[keep] if keep.any() else angles[:1]
        point = lambda t, first=first: np.stack([np.cos(t), np.sin(t)], axis=1) @ first  # noqa: E731
        vertices, arcs = point(angles), point(angles + np.diff(angles, append=angles[0] + 2 * np.pi) / 2)
        parallel = np.broadcast_to(~crossing, (len(arcs), len(unit)))
        yield vertices, np.abs(vertices @ unit.T) <= THROUGH
        yield arcs, parallel
        # The cells beside an arc share its pattern except on the circle itself.
        nothing = np.zeros_like(parallel)
        yield arcs, nothing, np.where(parallel, np.sign(unit @ x), 0.0)
        yield arcs, nothing, np.where(parallel, -np.sign(unit @ x), 0.0)


def _of_faces(
    Y: np.ndarray, p: np.ndarray, norms: np.ndarray, points: np.ndarray, zero: np.ndarray, side=None
):
    """Critical directions of the faces that `points` represent; `side` overrides the sign of entries near 0."""
    z = points @ Y.T
    on = (z > 0) & ~zero
    if side is not None:
        on = np.where(side != 0, side > 0, on)
    if not zero.any():
        yield from _of_cells(Y, p, norms, on)
        return
    # An aligned example at 0 rules a maximum out; opposed ones must balance the field.
    fine = ~(zero & (p > 0)).any(axis=1)
    v0 = (on[fine] * p) @ Y
    simple = _may_balance(Y, p, norms, zero[fine], v0)
    for k in np.flatnonzero(fine)[simple]:
        v = settle(Y, p, on[k], zero[k]).v
        speed = float(np.linalg.norm(v))
        if zero[k].any() and np.linalg.matrix_rank(Y[zero[k]]) == Y.shape[1] - 1:
            yield points[k] / np.linalg.norm(points[k])
        elif speed > 0 and _agrees(Y, norms, v[None] / speed, on[k][None], zero[k][None])[0]:
            yield v / speed


def _may_balance(
    Y: np.ndarray, p: np.ndarray, norms: np.ndarray, zero: np.ndarray, v0: np.ndarray
) -> np.ndarray:
    """Whether the opposed examples at 0 can hold the neuron: with v_0 pushing each one inward, up to rounding.

    Necessary for sliding on one hyperplane; with several, some member must be pushed inward.
    """
    slack = 1e-9 * float(np.abs(p) @ norms)
    push = (v0 @ Y.T) / norms
    return np.any(zero & (push > -slack), axis=1)


def _of_cells(Y: np.ndarray, p: np.ndarray, norms: np.ndarray, on: np.ndarray):
    v = (on * p) @ Y
    speed = np.linalg.norm(v, axis=1)
    moving = speed > SPEED_ZERO * float(np.abs(p) @ norms)
    e = v[moving] / speed[moving, None]
    yield from e[_agrees(Y, norms, e, on[moving], np.zeros_like(on[moving]))]


def _agrees(Y: np.ndarray, norms: np.ndarray, e: np.ndarray, on: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Whether e lies in the closure of the face, up to rounding."""
    z = e @ Y.T / norms
    return np.all(zero | np.where(on, z > -1e-9, z < 1e-9), axis=1)
