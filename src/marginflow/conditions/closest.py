"""The closest pairs of projected points of opposite classes, and a proved lower bound of their distance. NumPy only."""

import dataclasses

import numpy as np

from marginflow._core.exact import UNIT
from marginflow._core.progress import progress
from marginflow.data.dataset import Dataset
from marginflow.data.spool import gather
from marginflow.margins.rows import power_of_two

BLOCK = 1024
CANDIDATES = 200_000  # pairs within rounding of the smallest distance that are measured again from their difference


@dataclasses.dataclass(frozen=True)
class Closest:
    """Pairs (positive row, negative row) in increasing order of distance; `at_least` bounds all distances below."""

    pairs: np.ndarray
    distances: np.ndarray
    at_least: float


def at_ordinary_scale(data: Dataset) -> tuple[Dataset, float]:
    """The data times the power of two, returned too, that keeps squares of distances in float range; 1 for most."""
    factor = power_of_two(data.X)
    if factor == 1.0:
        return data, factor
    X = gather((np.asarray(block, np.float64) * factor for block in data.blocks()), np.dtype(np.float64), data.d)
    lost = ~X.any(axis=1)  # rows that are 0 beside the largest entry
    if lost.any():
        X = X.copy()
        X[lost] = np.finfo(np.float64).tiny
    return Dataset(X, data.y, data.name), factor


def closest_pairs(data: Dataset, Q: np.ndarray, keep: int = 1) -> Closest:
    """min over y_i = 1, y_j = -1 of ‖Q(x_i - x_j)‖ for a matrix Q (r, d), and one near pair from each of many rows.

    For a unit vector u of R^r, ‖Qz‖ >= |uᵀQz|: both classes are sorted along u, and a block of positives meets only
    the negatives within the best distance so far. What is left goes through BLAS as ‖a‖² + ‖b‖² - 2aᵀb.

    Bounds. Let S bound ‖Q‖_F ‖x‖. The computed a = fl(Qx) is within γ_d S of Qx. The computed square is within
    E = 8(r + 6)u S² of ‖a - b‖²: four terms of size at most S²(1 + γ) with γ_{r+3} each, doubled for room. Pairs
    within 2E of the smallest are measured again from fl(x_i - x_j), whose error is relative to the small
    difference: γ_{d+4} ‖Q‖_F ‖x_i - x_j‖. All others are at least sqrt(smallest + E) - 2γ_d S.
    """
    d, r = data.d, len(Q)
    A, size_a = _project(data, data.positive, Q)
    B, size_b = _project(data, data.negative, Q)
    S = float(np.linalg.norm(Q)) * max(size_a, size_b) * (1 + 1e-12)
    E = 8 * (r + 6) * UNIT * S**2
    gamma = 1.01 * (d + 4) * UNIT
    u = A.mean(axis=0) - B.mean(axis=0)
    u = u / np.linalg.norm(u) if u.any() else np.eye(r)[0]
    order_a, order_b = np.argsort(A @ u, kind="stable"), np.argsort(B @ u, kind="stable")
    A, B = A[order_a], B[order_b]
    at_a, at_b = A @ u, B @ u
    square_a, square_b = np.einsum("ij,ij->i", A, A), np.einsum("ij,ij->i", B, B)

    best = np.inf
    near: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    # Blocks that can be closest come first, so that the best distance is small early.
    starts = np.arange(0, len(A), BLOCK)
    middle = at_a[np.minimum(starts + BLOCK // 2, len(A) - 1)]
    gap = np.abs(at_b[np.clip(np.searchsorted(at_b, middle), 0, len(B) - 1)] - middle)
    with progress(len(starts), "closest pairs") as meter:
        for start in starts[np.argsort(gap, kind="stable")]:
            stop = min(start + BLOCK, len(A))
            reach = np.sqrt(best + 2 * E) * (1 + 1e-9) + 8 * gamma * S
            low, high = np.searchsorted(at_b, (at_a[start] - reach, at_a[stop - 1] + reach), side="left")
            for s in range(low, high, BLOCK):
                t = min(s + BLOCK, high)
                D = square_a[start:stop, None] + square_b[None, s:t] - 2 * (A[start:stop] @ B[s:t].T)
                smallest = float(D.min())
                best = min(best, smallest)
                if keep > 1:
                    column = D.argmin(axis=1)
                    near.append((np.arange(start, stop), s + column, D[np.arange(len(D)), column]))
                if smallest <= best + 2 * E:
                    i, j = np.nonzero(D <= best + 2 * E)
                    near.append((start + i, s + j, D[i, j]))
            near = _thin(near, best + 2 * E, keep)
            meter.advance()
    i, j, square = (np.concatenate(part) for part in zip(*near, strict=True))
    order = np.argsort(square, kind="stable")
    i, j, square = i[order], j[order], square[order]
    certain = int(np.count_nonzero(square <= best + 2 * E))
    rows = np.stack([data.positive[order_a[i]], data.negative[order_b[j]]], axis=1)
    measured, least = np.empty(len(rows)), np.inf
    for k in range(0, len(rows), 4096):
        plus, minus = (np.asarray(data.X[part], np.float64) for part in rows[k : k + 4096].T)
        z = plus - minus
        measured[k : k + 4096] = np.linalg.norm(z @ Q.T, axis=1)
        error = gamma * float(np.linalg.norm(Q)) * np.linalg.norm(z, axis=1)
        least = min(least, float((measured[k : k + 4096] * (1 - (r + 4) * UNIT) - error).min()))
    others = np.sqrt(max(best + E, 0.0)) if certain < CANDIDATES else np.sqrt(max(best - E, 0.0))
    at_least = max(0.0, min(least, float(others) - 2 * gamma * S))
    order = np.argsort(measured, kind="stable")
    _, first = np.unique(rows[order], axis=0, return_index=True)
    order = order[np.sort(first)]
    return Closest(rows[order][:keep], measured[order][:keep], at_least)


def _thin(near, limit: float, keep: int):
    """Of the near pairs: all within `limit` (up to CANDIDATES) and otherwise the `keep` smallest."""
    i, j, square = (np.concatenate(part) for part in zip(*near, strict=True))
    order = np.argsort(square, kind="stable")
    count = max(keep, min(int(np.count_nonzero(square <= limit)), CANDIDATES))
    order = order[:count]
    return [(i[order], j[order], square[order])]


def _project(data: Dataset, rows: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, float]:
    """Qx for the rows, and their largest norm."""
    out, size = np.empty((len(rows), len(Q))), 0.0
    for start in range(0, len(rows), 65536):
        X = np.asarray(data.X[rows[start : start + 65536]], np.float64)
        out[start : start + 65536] = X @ Q.T
        size = max(size, float(np.sqrt(np.einsum("ij,ij->i", X, X).max())))
    return out, size
