"""The last digits of a ReLU F1 margin: Newton's method on the optimality conditions of the solution's own cell.

Once it is known which rows are active (set A, weights α > 0), which are on for neuron k, and on which hyperplanes the
neuron sits (ties T_k), the optimum solves smooth equations in (v_k ⟂ x_i for i in T_k, α_A, g):

    N_kᵀ Σ_{i in A} α_i y_i s_k on_ik x_i = g N_kᵀ v_k/‖v_k‖,      Σ_k y_i s_k on_ik x_iᵀ v_k = g  (i in A),
    Σ ‖v_k‖ = 1,   Σ α_i = 1,

N_k an orthonormal basis of the complement of the ties. An interior-point solution is accurate to some eight digits of
the largest terms, which cancel when the margin is small; two or three Newton steps give the rest. The result is only
a proposal: the caller keeps it if the measured margin or gap is better.
"""

import numpy as np

STEPS = 8


def polish(
    v: np.ndarray, sign: np.ndarray, weights: np.ndarray, X: np.ndarray, y: np.ndarray, width: float = 1e-5
):
    """(v, weights) after Newton, or None where the equations have no nearby solution with α >= 0.

    `width` is the reading of the interior-point solution: |cos(x_i, v_k)| below it puts neuron k on the hyperplane of
    row i, and weights below that share of the largest are taken as zero.
    """
    rows = np.flatnonzero(weights > width * weights.max())
    if not len(rows) or not len(v):
        return None
    v = v / np.linalg.norm(v, axis=1).sum()
    cosine = (X @ v.T) / (np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(v, axis=1))
    tied = np.abs(cosine) < width
    frames = [_complement(X[tied[:, k]]) for k in range(len(v))]
    if any(frame.shape[1] == 0 for frame in frames):
        return None
    ends = np.cumsum([frame.shape[1] for frame in frames])
    parts = [slice(end - frame.shape[1], end) for end, frame in zip(ends, frames, strict=True)]
    # F[k]: active rows as seen by neuron k in its own coordinates, signed; zero where the row is off or tied.
    seen = ((cosine[rows] > 0) & ~tied[rows]) * (y[rows, None] * sign)
    F = [seen[:, [k]] * (X[rows] @ frame) for k, frame in enumerate(frames)]
    u = np.concatenate([frame.T @ v[k] for k, frame in enumerate(frames)])
    alpha = weights[rows] / weights[rows].sum()
    H = np.concatenate(F, axis=1)
    g = float((H @ u) @ alpha)
    n_u, n_a = len(u), len(alpha)
    last = np.inf
    for _ in range(STEPS):
        unit, curvature = np.empty(n_u), np.zeros((n_u, n_u))
        lengths = np.array([np.linalg.norm(u[part]) for part in parts])
        if (lengths <= 0).any():
            return None
        for part, length in zip(parts, lengths, strict=True):
            unit[part] = u[part] / length
            curvature[part, part] = (
                np.eye(part.stop - part.start) - np.outer(unit[part], unit[part])
            ) / length
        residual = np.concatenate([H.T @ alpha - g * unit, H @ u - g, [lengths.sum() - 1, alpha.sum() - 1]])
        size = np.abs(residual).max()
        if not size < last:
            break
        last, kept = size, (u.copy(), alpha.copy())
        J = np.zeros((n_u + n_a + 2, n_u + n_a + 1))
        J[:n_u, :n_u], J[:n_u, n_u : n_u + n_a], J[:n_u, -1] = -g * curvature, H.T, -unit
        J[n_u : n_u + n_a, :n_u], J[n_u : n_u + n_a, -1] = H, -1.0
        J[-2, :n_u], J[-1, n_u : n_u + n_a] = unit, 1.0
        # Columns are scaled so that g, of the size of the margin, is determined to relative accuracy.
        scale = np.concatenate([np.full(n_u, 1.0), np.full(n_a, 1.0), [max(abs(g), 1e-300)]])
        step = np.linalg.lstsq(J * scale, -residual, rcond=1e-14)[0] * scale
        u, alpha, g = u + step[:n_u], alpha + step[n_u : n_u + n_a], g + step[-1]
        if not np.isfinite(u).all() or not np.isfinite(alpha).all():
            break
    u, alpha = kept
    if alpha.min() < -1e-12:
        return None
    new = np.stack([frame @ u[part] for frame, part in zip(frames, parts, strict=True)])
    full = np.zeros(len(y))
    full[rows] = np.maximum(alpha, 0.0)
    return new, full / full.sum()


def _complement(rows: np.ndarray) -> np.ndarray:
    """Orthonormal basis (columns) of the vectors orthogonal to all rows."""
    d = rows.shape[1]
    if not len(rows):
        return np.eye(d)
    _, singular, right = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return right[int((singular > 1e-9).sum()) :].T
