"""Which rows can be support examples, given the proved interval of a margin, and the rank of rows. NumPy only."""

import numpy as np

from marginflow.conditions.unit_rows import norms, unit_rows
from marginflow.data.dataset import Dataset

# Singular values of the unit support examples below this fraction of the largest count as 0. Rows that are rounded
# to double precision after a computation with d of the order 10³ move their singular values by about 1e-13.
RANK_TOLERANCE = 1e-10


def rank(rows: np.ndarray) -> tuple[int, np.ndarray]:
    """How many singular values of the unit rows exceed RANK_TOLERANCE of the largest, and all of them."""
    values = np.linalg.svd(unit_rows(rows), compute_uv=False)
    return int(np.count_nonzero(values > RANK_TOLERANCE * values[0])), values


def may_touch(data: Dataset, w: np.ndarray, low: float, high: float, tolerance: float, rows: np.ndarray) -> np.ndarray:
    """Every row that can be a support example, given the proved interval [low, high] of the margin.

    w is feasible with ‖w‖ <= 1/low, the optimum w* has ‖w*‖ >= 1/high and (w - w*)ᵀw* >= 0, so
    ‖w - w*‖² <= 1/low² - 1/high²; hence |wᵀx - w*ᵀx| <= ‖x‖ sqrt(1/low² - 1/high²).
    """
    distance = np.sqrt(max((high - low) / low * ((high + low) / low), 0.0)) / high  # no square leaves float range
    touching = []
    for start in range(0, len(rows), 65536):
        part = rows[start : start + 65536]
        X = np.asarray(data.X[part], np.float64)
        size = norms(X)
        # w as stored meets its constraints up to rounding: 1e-12 is far above d u for any d in use.
        touching.append(part[X @ w - 1.0 <= size * distance + 1e-12 * (1 + size / low) + tolerance])
    return np.concatenate(touching)
