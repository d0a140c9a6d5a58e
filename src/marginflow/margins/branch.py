"""The global maximum of G(c) = Σ β_i ρ(cᵀx_i) over ‖c‖ <= 1 in any dimension, by branching on activation signs.

Only rows with β_i > 0 make G non-concave, and ρ(z) = max_{s in {0,1}} s z, so with their signs s fixed the problem is
convex: its dual is the distance from the point Σ s_i β_i x_i to the zonotope {Σ t_j |β_j| x_j : t in [0,1]}. A node
fixes some signs, with the half-spaces they mean, and bounds each free row by the chord of ρ over an interval
[l_i, u_i] that holds x_iᵀc in the node: ρ(z) <= κ_i (z - l_i), κ_i = u_i/(u_i - l_i). Weak duality then gives, for
every θ in a box,

    max G <= ‖Σ_i θ_i x_i‖ - Σ_free β_i κ_i l_i,

    θ_i >= β_i (on),   θ_i <= 0 (off),   θ_i = β_i κ_i (free),   -|β_j| <= θ_j <= 0 (β_j < 0).

(on: x_iᵀc >= 0 may be added with any weight; off: subtracted.) Whatever θ the iteration stops at is a proof, so no
solver is trusted. The tree has at most 2^p leaves, p the number of rows with β > 0.
"""

import numpy as np

from marginflow._core.tolerances import EPS
from marginflow.margins.arrangement import GlobalMax, lipschitz
from marginflow.margins.inner_ascent import climb, values

MAX_NODES = 20_000
BATCH = 512
STEPS = 400


def maximum(
    X: np.ndarray,
    beta: np.ndarray,
    start: np.ndarray,
    *,
    tolerance: float = 1e-10,
    max_nodes: int = MAX_NODES,
) -> GlobalMax:
    """Maximise over the unit ball from an incumbent direction; `complete` is False when `max_nodes` did not do."""
    loss = np.flatnonzero(beta < 0)
    gain = np.flatnonzero(beta > 0)
    gain = gain[np.argsort(-beta[gain] * np.linalg.norm(X[gain], axis=1), kind="stable")]
    P, N = X[gain], X[loss]
    b, w = beta[gain], -beta[loss]
    slack = lipschitz(X, beta, False)
    rounding = (2 * len(beta) + 2 * X.shape[1] + 16) * EPS * slack
    norms = np.linalg.norm(P, axis=1)
    hat = P / norms[:, None]
    cosine = hat @ hat.T
    rows = np.concatenate([P, N])
    step = 1 / max(np.linalg.norm(rows, 2) ** 2, 1e-300)
    best, value = start, float(values(start[None], X, beta)[0])
    # A node is a row of signs: 1 on, 0 off, -1 free; θ travels from parent to child as a warm start.
    signs, theta = np.full((1, len(b)), -1, dtype=np.int8), np.zeros((1, len(rows)))
    upper, nodes = -np.inf, 0
    while len(signs) and nodes < max_nodes:
        now, theta_now, signs, theta = signs[-BATCH:], theta[-BATCH:], signs[:-BATCH], theta[:-BATCH]
        nodes += len(now)
        low, high = _intervals(now, norms, cosine)
        target = value + max(tolerance * abs(value), 2 * rounding)
        theta_now, bound, c = _dual(now, theta_now, low, high, b, w, rows, step, target)
        found = values(c, X, beta)
        if found.max() > value:
            climbed = climb(c[[found.argmax()]], X, beta)
            best, value = climbed[0], float(values(climbed, X, beta)[0])
            target = value + max(tolerance * abs(value), 2 * rounding)
        done = bound <= target
        leaf = ~done & ~(now < 0).any(axis=1)
        if leaf.any():  # all signs fixed and still open: only more steps can close it
            more = _dual(
                now[leaf], theta_now[leaf], low[leaf], high[leaf], b, w, rows, step, target, 50 * STEPS
            )
            bound[leaf] = np.minimum(bound[leaf], more[1])
        closed = done | leaf
        upper = max(upper, bound[closed].max(initial=-np.inf))
        live = ~closed
        if live.any():
            # The free row whose chord overestimates most at the relaxed solution.
            z = c[live] @ P.T
            over = b * (
                high[live] / np.maximum(high[live] - low[live], 1e-300) * (z - low[live]) - np.maximum(z, 0)
            )
            pick = np.where(now[live] < 0, over, -np.inf).argmax(axis=1)
            on, off = now[live].copy(), now[live].copy()
            on[np.arange(len(on)), pick], off[np.arange(len(off)), pick] = 1, 0
            order = np.argsort(
                np.concatenate([bound[live]] * 2), kind="stable"
            )  # most promising last: taken next
            signs = np.concatenate([signs, np.concatenate([off, on])[order]])
            theta = np.concatenate([theta, np.concatenate([theta_now[live]] * 2)[order]])
    complete = not len(signs)
    return GlobalMax(best, (max(upper, value, 0.0) + rounding) if complete else np.inf, nodes, complete)


def _intervals(signs: np.ndarray, norms: np.ndarray, cosine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """l <= x_iᵀc <= u in each node, from ‖c‖ <= 1 and one fixed half-space at a time.

    With σ x_kᵀc >= 0 and σ cos(x_i, x_k) < 0, weak duality gives x_iᵀc <= ‖x_i‖ sin(x_i, x_k); likewise below.
    """
    side = np.where(signs == 1, 1.0, np.where(signs == 0, -1.0, 0.0))[:, None, :] * cosine[None]
    sine = np.sqrt(np.maximum(1 - side**2, 0.0)) + 8 * EPS
    high = np.where(side < 0, sine, 1.0).min(axis=2) * norms * (1 + 4 * EPS)
    low = -np.where(side > 0, sine, 1.0).min(axis=2) * norms * (1 + 4 * EPS)
    return low, high


def _dual(signs, theta, low, high, b, w, rows, step, target, steps: int = STEPS):
    """θ, its bound (the rounding of the sums included), and the direction Σθx/‖·‖, per node.

    Accelerated projected gradient on ½‖Σθx‖² over the box.
    """
    chord = b * (high / np.maximum(high - low, 1e-300))
    on, off, free = signs == 1, signs == 0, signs < 0
    shape = (len(signs), len(w))
    least = np.concatenate(
        [np.where(on, b, np.where(off, -np.inf, chord)), np.broadcast_to(-w, shape)], axis=1
    )
    most = np.concatenate([np.where(on, np.inf, np.where(off, 0.0, chord)), np.zeros(shape)], axis=1)
    constant = np.where(free, -chord * low, 0.0).sum(axis=1)
    theta, lengths = np.clip(theta, least, most), np.linalg.norm(rows, axis=1)
    best, bound = theta.copy(), np.full(len(theta), np.inf)
    ahead, momentum = theta, 1.0
    for k in range(steps):
        new = np.clip(ahead - step * ((ahead @ rows) @ rows.T), least, most)
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        backward = np.einsum("bm,bm->b", ahead - new, new - theta) > 0
        ahead = new + np.where(backward, 0.0, (momentum - 1) / following)[:, None] * (new - theta)
        theta, momentum = new, following
        if k % 25 == 24 or k == steps - 1:
            now = np.linalg.norm(theta @ rows, axis=1) + constant
            now += 2 * (rows.shape[0] + rows.shape[1]) * EPS * (np.abs(theta) @ lengths)
            better = now < bound
            stalled = not (now < bound * (1 - 1e-13)).any()
            best[better], bound[better] = theta[better], now[better]
            if stalled or (bound <= target).all():
                break
    direction = best @ rows
    norm = np.linalg.norm(direction, axis=1, keepdims=True)
    return (
        best,
        bound,
        np.where(norm > 0, direction / np.where(norm > 0, norm, 1.0), rows[:1] / np.linalg.norm(rows[0])),
    )
