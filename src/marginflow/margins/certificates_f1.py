"""F1 margins re-checked from the claimed measure and the claimed weights alone; no solver is known here.

Below: a finite measure of total variation M has margin min_i y_i Σ_j s_j m_j φ(c_jᵀx_i)/M, and every rounding error is
counted against it. Above: for weights α >= 0 no measure beats max_c |Σ α_i y_i φ(cᵀx_i)|/Σα, a bound only where that
maximum is enclosed (`inner_max` proves it by a closed form, by cones or by sign branching, in plain NumPy).
"""

import math

import numpy as np

from marginflow._core.tolerances import EPS
from marginflow.margins.inner import InnerMax, degree, inner_max

# φ((b,c),x) = bρ(cᵀx) with b² + ‖c‖² = 1 is largest at |b| = ‖c‖ = 1/√2, hence ½ for ReLU; φ = ±ρ(wᵀx)² needs none.
UNDERFLOW = 2.0**-1060  # more than the products of one term lose together when they leave float range
FACTOR = {False: 0.5, True: 1.0}


def measure_from_below(
    X: np.ndarray,
    y: np.ndarray,
    directions: np.ndarray,
    signs: np.ndarray,
    masses: np.ndarray,
    activation="relu",
) -> float:
    """The margin this measure attains on these rows, rounding errors subtracted; never below 0, the empty measure's.

    Directions need not have unit norm: the total variation is Σ m_j ‖c_j‖ (or ‖c_j‖² for S-ReLU). Raises ValueError
    on a negative mass, a sign that is not ±1 or anything not finite: that is not a measure.
    """
    squared = degree(activation)
    arrays = (X, y, directions, signs, masses)
    if not all(np.isfinite(a).all() for a in arrays) or (masses < 0).any() or (np.abs(signs) != 1).any():
        raise ValueError("not a finite measure: masses must be >= 0, signs ±1, everything finite")
    if not len(masses):
        return 0.0
    d, K = X.shape[1], len(masses)
    norms, lengths = np.linalg.norm(directions, axis=1), np.linalg.norm(X, axis=1)
    total = math.fsum(masses * (norms**2 if squared else norms)) * (1 + 2 * (d + 8) * EPS)
    if total <= 0:
        return 0.0
    z = np.maximum(X @ directions.T, 0.0)
    terms = (np.square(z) if squared else z) * masses
    margins = y * (terms @ signs)
    # |fl(cᵀx) - cᵀx| <= γ_d |c|ᵀ|x|, ρ does not increase it; the square at most triples it; then K terms are added.
    spread = np.abs(X) @ np.abs(directions).T
    per_term = d * EPS * (3 * spread * lengths[:, None] * norms if squared else spread)
    error = 1.01 * (per_term @ masses + (K + 4) * EPS * terms.sum(axis=1)) + UNDERFLOW * (K * d + 1)
    low = float((margins - error).min())
    return max(FACTOR[squared] * low / total * (1 - 4 * EPS), 0.0) if low > 0 else 0.0


def weights_from_above(
    X: np.ndarray, y: np.ndarray, alpha: np.ndarray, activation="relu", **options
) -> tuple[float | None, tuple[InnerMax, InnerMax]]:
    """(a bound no measure exceeds, or None where a maximum is not enclosed; the two inner maxima)."""
    squared = degree(activation)
    if (alpha < 0).any() or not np.isfinite(alpha).all() or alpha.sum() <= 0:
        raise ValueError("weights must be >= 0, finite, and not all zero")
    beta = alpha * y
    both = (
        inner_max(X, beta, activation=activation, **options),
        inner_max(X, -beta, activation=activation, **options),
    )
    if any(one.upper_bound is None for one in both):
        return None, both
    total = math.fsum(alpha) * (1 - 2 * EPS)
    top = max(one.upper_bound for one in both)  # type: ignore[type-var]
    return max(FACTOR[squared] * float(top) / total * (1 + 4 * EPS), 0.0), both


def game_bounds(Z: np.ndarray, mass: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """min_i (Za)_i/Σa from below, max_j (Zᵀα)_j/Σα from above, for a, α >= 0: around the game's value."""
    if (mass < 0).any() or (weights < 0).any():
        raise ValueError("masses and weights must be >= 0")

    def side(M: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = math.fsum(a)
        error = 1.01 * (len(a) + 4) * EPS * (np.abs(M) @ a) / total
        return (M @ a) / total, error

    low, low_error = side(Z, mass)
    high, high_error = side(Z.T, weights)
    return float((low - low_error).min()), float((high + high_error).max())
