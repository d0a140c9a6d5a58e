"""The global maximum of G(c) = Σ β_i φ(cᵀx_i) on the unit sphere of R^r, r small, by enumerating cells as cones.

The sphere is covered by simplicial cones; a cone that could hold more than the best known value is cut along a
hyperplane x_iᵀc = 0 that crosses it, or in half while many cross it and none matters. So the cells of the arrangement
are enumerated only where they count, and in finitely many cuts each cone lies in one cell.

Bound on a cone with unit generators v_1..v_r, Gram matrix Γ: write c = Σ μ_k v_k, μ >= 0. For β_i > 0 convexity and
homogeneity give ρ(cᵀx_i) <= Σ μ_k ρ(v_kᵀx_i); for β_i < 0, -ρ(z) <= -t z for any t in [0, 1] and t is 1 or 0 by the
side of the cone's centre. Hence G(c) <= bᵀμ with b computed at the generators. All generators of a cone lie in one
orthant, so Γ >= 0 and 1 = μᵀΓμ >= max(‖μ‖², min_ab Γ_ab (Σμ)²), while Σμ >= 1:

    G(c) <= min(‖b_+‖, max_k b_k / sqrt(min Γ))   if some b_k > 0,   else max_k b_k.

S-ReLU: the squares give G(c) <= μᵀQμ with Q_ab = Σ_+ β_i ρ(z_ia)ρ(z_ib) - Σ_- |β_i| t_i z_ia z_ib, where t_i = 1 is
allowed only if the row is positive on the whole cone; then max Q_ab / min Γ or max Q_ab.

A cone inside one cell needs no further cut: there G is gᵀc or cᵀMc, and its maximum over the cone is the largest of the
values at the critical points of the faces, `_exact`. Such a point is ĝ or a top eigenvector within the span of the
generators of the face (a local maximum inside a face has no larger eigenvalue beside it), and counts only if it has
no negative coordinate in them. When in doubt it counts: its value bounds the whole span. What is computed is exact
for a g or M, and for generators, perturbed by rounding, which moves a maximum no further than it moves G.

None of this needs a generator to lie exactly on its hyperplane. Rounding moves a new generator by at most 4 eps from
the edge it cuts, so that a cone of depth D may leave a crack of width 4 D eps to its neighbour; the Lipschitz constant
of G times that width is added to the bound, together with the rounding error of the sums.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np

from marginflow._core.tolerances import EPS
from marginflow.margins.inner_ascent import values

MAX_CONES = 400_000
TOUCH = 1e-10  # S-ReLU: a row this close to its hyperplane, per length, costs the square of it
TOUCH_LINEAR = 8 * EPS  # ReLU: generators that were cut onto a hyperplane are this close to it
INSIDE = (
    1e-7  # a coordinate this negative, beside the largest, still counts as inside: it costs the square of it
)
THIN = 1e-8  # generators closer to dependent than this have no coordinates worth asking
FEW = 2  # times the rank: a cone that so few rows cross is cut along them; in one cell the maximum is exact
CHUNK = 4_000_000  # entries of one (cones, generators, rows) array


class GlobalMax(NamedTuple):
    """Best direction found, the bound on every direction, cones looked at, and whether the search was completed."""

    direction: np.ndarray
    upper: float
    nodes: int
    complete: bool


def lipschitz(X: np.ndarray, beta: np.ndarray, squared: bool) -> float:
    """|G(c) - G(c')| <= lipschitz · ‖c - c'‖ on the unit ball."""
    norm = np.linalg.norm(X, axis=1)
    return float(np.abs(beta) @ (2 * norm**2 if squared else norm)) * (1 + len(beta) * EPS)


def maximum(
    X: np.ndarray,
    beta: np.ndarray,
    start: np.ndarray,
    *,
    squared: bool = False,
    tolerance: float = 1e-11,
    max_cones: int = MAX_CONES,
) -> GlobalMax:
    """Maximise over the sphere of R^r, X of shape (m, r), from an incumbent direction `start`."""
    m, r = X.shape
    slack, norms = lipschitz(X, beta, squared), np.linalg.norm(X, axis=1)
    best, value = start, float(values(start[None], X, beta, squared)[0])
    signs = np.array(np.meshgrid(*[[1.0, -1.0]] * r, indexing="ij")).reshape(r, -1).T
    cones = signs[:, None, :] * np.eye(r)[None]
    edges = np.array(list(combinations(range(r), 2))).reshape(-1, 2)
    upper, nodes, depth = -np.inf, 0, 0
    while len(cones) and nodes < max_cones:
        following = []
        step = max(1, CHUNK // (r * m))
        for chunk in (cones[i : i + step] for i in range(0, len(cones), step)):
            z = chunk @ X.T
            at = np.unravel_index(
                np.argmax(seen := values(chunk.reshape(-1, r), X, beta, squared)), chunk.shape[:2]
            )
            if seen.max() > value:
                best, value = chunk[at], float(seen.max())
            gram = np.einsum("bkr,blr->bkl", chunk, chunk)
            bound, straddle, curvature = _bounds(z, gram, X, beta, squared)
            threshold = value + max(tolerance * abs(value), 8 * (m + r) * EPS * slack)
            whole = np.flatnonzero((bound > threshold) & _one_side(z, norms, squared).all(axis=1))
            if len(whole) and r > 1:
                exact, points = _exact(chunk[whole], z[whole], X, beta, squared)
                bound[whole] = np.minimum(bound[whole], exact)
                reached = values(points, X, beta, squared)
                if reached.max(initial=-np.inf) > value:
                    best, value = points[reached.argmax()], float(reached.max())
            keep = bound > value + max(tolerance * abs(value), 8 * (m + r) * EPS * slack)
            upper = max(upper, bound[~keep].max(initial=-np.inf))
            if r == 1:
                upper = max(upper, bound.max())
            elif keep.any():
                crossing = ~_one_side(z[keep], norms, squared)
                few = crossing.any(axis=1) & (crossing.sum(axis=1) <= FEW * r)
                loss = np.where(crossing, straddle[keep], 0.0)
                bend = np.where(few, 0.0, curvature[keep])
                following.append(_cut(chunk[keep], z[keep], gram[keep], loss, bend, edges))
        nodes += len(cones)
        depth += 1
        cones = np.concatenate(following) if following else cones[:0]
    complete = not len(cones)
    if not complete:
        upper = np.inf
    cracks = 4 * depth * EPS * slack if r > 2 else 0.0  # neighbouring arcs share their end, bit for bit
    rounding = cracks + (m + 6 * r + 16) * EPS * float(np.abs(beta) @ (norms**2 if squared else norms))
    return GlobalMax(best, max(upper, value) + rounding, nodes, complete)


def _bounds(z: np.ndarray, gram: np.ndarray, X: np.ndarray, beta: np.ndarray, squared: bool):
    """Per cone: the bound; per cone and row: how much the row loses by straddling; per cone: the loss by curvature."""
    positive = np.maximum(z, 0.0)
    least, most = z.min(axis=1), z.max(axis=1)
    width = gram.min(axis=(1, 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(width > 0, 1 / np.sqrt(np.maximum(width, 0)), 1e150)
    if squared:
        # A row within TOUCH of its hyperplane counts as on the side it touches, for |β_i| (TOUCH ‖x_i‖)² at most.
        touch = TOUCH * np.linalg.norm(X, axis=1)
        t = ((least >= -touch) & (beta < 0)) * beta
        gain = np.maximum(beta, 0.0)
        Q = np.einsum("bkm,blm->bkl", positive * gain, positive) + np.einsum(
            "bkm,blm->bkl", z * t[:, None, :], z
        )
        top = Q.max(axis=(1, 2))
        norm = np.where(top > 0, np.linalg.norm(np.maximum(Q, 0), axis=(1, 2)), np.inf)
        flat = np.where(top > 0, top * stretch**2, top)
        straddle = (
            np.abs(beta) * np.minimum(np.maximum(most, 0), np.maximum(-least, 0)) * np.maximum(most, -least)
        )
    else:
        on = z.sum(axis=1) > 0
        b = positive @ np.maximum(beta, 0.0) + np.einsum("bkm,bm->bk", z, on * np.minimum(beta, 0.0))
        top = b.max(axis=1)
        norm = np.where(top > 0, np.linalg.norm(np.maximum(b, 0), axis=1), np.inf)
        flat = np.where(top > 0, top * stretch, top)
        straddle = np.abs(beta) * np.minimum(np.maximum(most, 0), np.maximum(-least, 0))
    bound = np.minimum(norm, flat) + (np.abs(beta) @ np.square(touch) if squared else 0.0)
    # An overflow proves nothing about its cone.
    bound = np.where(np.isnan(bound), np.inf, bound)
    return bound, straddle, bound - top


def _one_side(z: np.ndarray, norms: np.ndarray, squared: bool) -> np.ndarray:
    """Whether a row has one sign on the generators, up to what the bound can absorb; per cone and row."""
    touch = (TOUCH if squared else TOUCH_LINEAR) * norms
    return (z.min(axis=1) >= -touch) | (z.max(axis=1) <= touch)


def _exact(cones, z, X, beta, squared) -> tuple[np.ndarray, np.ndarray]:
    """(max of G over each cone that lies in one cell, all rounding added; the points where it may be attained)."""
    r, m = X.shape[1], len(X)
    touch = (TOUCH if squared else TOUCH_LINEAR) * np.linalg.norm(X, axis=1)
    live = (z.sum(axis=1) > 0) * beta
    size = np.square(X).sum(axis=1) if squared else np.linalg.norm(X, axis=1)
    # Sums of m products; bases, eigenvalues and norms of r x r arrays; rows taken to be on the side they touch.
    error = (m + 32 * r) * EPS / 2 * (np.abs(live) @ size) + np.abs(beta) @ (touch**2 if squared else touch)
    form = np.einsum("bm,mi,mj->bij", live, X, X, optimize=True) if squared else live @ X
    points = [cones.reshape(-1, r)]
    if squared:
        top = np.einsum("bkr,brs,bks->bk", cones, form, cones, optimize=True).max(axis=1)
    else:
        top = np.einsum("bkr,br->bk", cones, form).max(axis=1)
    for k in range(2, r + 1):
        for face in combinations(range(r), k):
            basis, triangle = np.linalg.qr(cones[:, face, :].transpose(0, 2, 1))
            if squared:
                inner = np.einsum("brk,brs,bsl->bkl", basis, form, basis, optimize=True)
                each, vectors = np.linalg.eigh(inner)
                most, direction = each[:, -1], vectors[:, :, -1]
            else:
                inner = np.einsum("brk,br->bk", basis, form)
                most = np.linalg.norm(inner, axis=1)
                direction = inner / np.where(most > 0, most, 1.0)[:, None]
            thin = np.abs(np.diagonal(triangle, axis1=1, axis2=2)).min(axis=1) < THIN
            triangle = np.where(thin[:, None, None], np.eye(k), triangle)
            share = np.linalg.solve(triangle, direction[:, :, None])[:, :, 0]
            allowed = -INSIDE * np.abs(share).max(axis=1)
            inside = share.min(axis=1) >= allowed
            if squared:
                inside |= (-share).min(axis=1) >= allowed
                direction = np.where((share.sum(axis=1) < 0)[:, None], -direction, direction)
            top = np.maximum(top, np.where(inside | thin, most, -np.inf))
            points.append(np.einsum("brk,bk->br", basis, direction)[inside | thin])
    return top + error, np.concatenate(points)


def _cut(cones, z, gram, straddle, curvature, edges) -> np.ndarray:
    """Two children per cone: cut on the row that loses more than curvature does, or through the longest edge."""
    count = np.arange(len(cones))
    row = straddle.argmax(axis=1)
    by_row = straddle[count, row] > curvature
    at_row = z[count, :, row]
    ends = at_row[:, edges]
    crossing = np.where(ends[..., 0] * ends[..., 1] < 0, np.abs(ends[..., 0] - ends[..., 1]), -np.inf)
    edge = np.where(by_row, crossing.argmax(axis=1), gram[:, edges[:, 0], edges[:, 1]].argmin(axis=1))
    by_row &= crossing[count, edge] > 0
    a, b = edges[edge].T
    za, zb = np.abs(at_row[count, a]), np.abs(at_row[count, b])
    p, q = np.where(by_row, zb, 1.0), np.where(by_row, za, 1.0)
    new = p[:, None] * cones[count, a] + q[:, None] * cones[count, b]
    new /= np.linalg.norm(new, axis=1, keepdims=True)
    first, second = cones.copy(), cones.copy()
    first[count, a], second[count, b] = new, new
    return np.concatenate([first, second])
