"""The global maximum of G(c) = Σ β_i φ(cᵀx_i) on the unit sphere of R^r, r small, by enumerating cells as cones.

The sphere is covered by simplicial cones; a cone that could hold more than the best known value is cut along a
hyperplane x_iᵀc = 0 that crosses it, or in half when none matters. So the cells of the arrangement are enumerated
only where they count, and in finitely many cuts each cone lies in one cell.

Bound on a cone with unit generators v_1..v_r, Gram matrix Γ: write c = Σ μ_k v_k, μ >= 0. For β_i > 0 convexity and
homogeneity give ρ(cᵀx_i) <= Σ μ_k ρ(v_kᵀx_i); for β_i < 0, -ρ(z) <= -t z for any t in [0, 1] and t is 1 or 0 by the
side of the cone's centre. Hence G(c) <= bᵀμ with b computed at the generators. All generators of a cone lie in one
orthant, so Γ >= 0 and 1 = μᵀΓμ >= max(‖μ‖², min_ab Γ_ab (Σμ)²), while Σμ >= 1:

    G(c) <= min(‖b_+‖, max_k b_k / sqrt(min Γ))   if some b_k > 0,   else max_k b_k.

S-ReLU: the squares give G(c) <= μᵀQμ with Q_ab = Σ_+ β_i ρ(z_ia)ρ(z_ib) - Σ_- |β_i| t_i z_ia z_ib, where t_i = 1 is
allowed only if the row is positive on the whole cone; then max Q_ab / min Γ or max Q_ab. Where G is flat over a cell
this converges slowly, so the largest eigenvalue of Σ_+ β_i x_i x_iᵀ - Σ_- t_i |β_i| x_i x_iᵀ, over the gaining rows
that are positive somewhere in the cone, is used as well.

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
TOUCH = 1e-10
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
    slack = lipschitz(X, beta, squared)
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
            keep = bound > value + max(tolerance * abs(value), 8 * (m + r) * EPS * slack)
            upper = max(upper, bound[~keep].max(initial=-np.inf))
            if r == 1:
                upper = max(upper, bound.max())
            elif keep.any():
                following.append(
                    _cut(chunk[keep], z[keep], gram[keep], straddle[keep], curvature[keep], edges)
                )
        nodes += len(cones)
        depth += 1
        cones = np.concatenate(following) if following else cones[:0]
    complete = not len(cones)
    if not complete:
        upper = np.inf
    rounding = (4 * depth + 2 * (m + 3 * r) + 16) * EPS * slack
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
        live = t + ((most > touch) & (beta > 0)) * beta
        M = np.einsum("bm,mi,mj->bij", live, X, X, optimize=True)
        error = 8 * (len(beta) + X.shape[1]) * EPS * (np.abs(live) @ np.square(X).sum(axis=1))
        whole = np.linalg.eigvalsh(M)[:, -1] + error
        norm = np.where(whole > 0, np.minimum(norm, whole), norm)
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


def _cut(cones, z, gram, straddle, curvature, edges) -> np.ndarray:
    """Two children per cone: cut on the row that loses most, or through the middle of the longest edge."""
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
