"""Activation patterns and G, the function that small neurons climb or descend (theory §3).

G(w) = Σ_i κ_i ρ(wᵀx_i), κ_i = y_i·(-ℓ'(0)): the pull of example i on a net whose outputs are still 0.
"""

import numpy as np

from marginflow._core import exact as exactly
from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.tolerances import EPS
from marginflow.data.dataset import Dataset
from marginflow.losses import loss as as_loss


def charges(data: Dataset, loss="logistic", weights=None) -> np.ndarray:
    """κ_i = y_i·(-ℓ'(0)), or y_i·weights_i for any non-negative weights on the examples."""
    if weights is None:
        return data.y * float(np.exp(as_loss(loss).log_slope(np.zeros(()))))
    weights = to_numpy(weights, np.float64)
    if (
        weights.shape != (data.n,)
        or not (weights >= 0).all()
        or not weights.any()
        or not np.isfinite(weights).all()
    ):
        raise InputError(
            f"weights of shape {weights.shape}; give one finite weight >= 0 per example ({data.n}), not all 0"
        )
    return data.y * weights


def directions(data: Dataset, w) -> np.ndarray:
    """w as float64 with last axis d, finite; refused by shape or row otherwise."""
    w = to_numpy(w, np.float64)
    if w.ndim not in (1, 2) or w.shape[-1] != data.d:
        raise InputError(f"directions of shape {w.shape}; give vectors of length d = {data.d}, one per row")
    bad = ~np.isfinite(np.atleast_2d(w)).all(axis=1) | ~np.atleast_2d(w).any(axis=1)
    if bad.any():
        raise InputError(f"direction {int(np.argmax(bad))} is zero or not finite; give non-zero vectors")
    return w


def G(data: Dataset, w, loss="logistic", weights=None):
    """G at w, or at each row of w. Homogeneous of degree 1: theory §3 looks at it on the unit sphere."""
    w = directions(data, w)
    value = np.maximum(w @ np.asarray(data.X, np.float64).T, 0.0) @ charges(data, loss, weights)
    return float(value) if w.ndim == 1 else value


def sector(data: Dataset, w, exact: bool = False) -> np.ndarray:
    """sign(Xw) in {-1, 0, 1}, one row per direction.

    w is read as a rounded vector: an entry is 0 when wᵀx_i lies within the rounding of the product and of w
    itself. With exact=True the stored w is taken at its word and every sign is decided without rounding.
    """
    w = directions(data, w)
    W, X = np.atleast_2d(w), np.asarray(data.X, np.float64)
    if exact:
        signs = np.stack([exactly.dot_signs(np.broadcast_to(row, X.shape), X) for row in W])
    else:
        z = W @ X.T
        signs = np.where(np.abs(z) <= zero_band(W, X), 0, np.sign(z)).astype(np.int8)
    return signs[0] if w.ndim == 1 else signs


def zero_band(W: np.ndarray, X: np.ndarray) -> np.ndarray:
    """How far W Xᵀ may be from its true value: γ_d for the product and 4 units for entries of W that were computed."""
    return (X.shape[1] + 8) * EPS / 2 * (np.abs(W) @ np.abs(X).T)
