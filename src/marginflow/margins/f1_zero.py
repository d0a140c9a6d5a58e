"""When is γ1 = 0? Exactly when some weights α make Σ α_i y_i φ(cᵀx_i) vanish for every c (no net separates then).

ρ(z) = (z + |z|)/2, and Σ α_i y_i |cᵀx_i| has a kink at each hyperplane x_iᵀc = 0, which only rows on the same line
through 0 can cancel. So for ReLU the function vanishes exactly when

    Σ α_i y_i x_i = 0    and    Σ over each line of α_i y_i ‖x_i‖ = 0.

Rows may be rescaled, so with u a row of the line this asks for 0 in the convex hull of the vectors y_i (±u, e_line): a
linear separability problem in d + (number of lines) dimensions, which the linear margin decides with exact proof.
Two rows with different labels on one ray are its smallest solution, and one for S-ReLU too.
"""

from fractions import Fraction

import numpy as np

CLOSE = 1e-12  # directions that differ by more are on different lines; those within are compared exactly


def opposed_rays(X: np.ndarray, y: np.ndarray) -> tuple[int, int] | None:
    """Two rows with different labels on one ray from the origin, decided in exact arithmetic; the first, or None."""
    line, side = lines(X)
    ray = 2 * line + (side > 0)
    order = np.lexsort((y, ray))
    change = np.flatnonzero((np.diff(ray[order]) == 0) & (np.diff(y[order]) != 0))
    pairs = [sorted((int(order[k]), int(order[k + 1]))) for k in change]
    return min(((i, k) for i, k in pairs), default=None)


def vanishing(X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """α in the simplex with Σ α_i y_i ρ(cᵀx_i) = 0 for all c, proved to exist exactly beside its rounding; or None."""
    from marginflow.margins.linear import hard_margin
    from marginflow.margins.rows import SignedRows

    line, side = lines(X)
    mixed = np.array([len(np.unique(y[line == one])) > 1 for one in range(line.max() + 1)])
    rows = np.flatnonzero(mixed[line])
    if not len(rows):
        return None
    named, first = np.unique(line, return_index=True)
    reference = X[first[line[rows]]]  # each line's by its own power of two: exact, and no square leaves float range
    reference = np.ldexp(reference, -np.frexp(np.abs(reference).max(axis=1, keepdims=True))[1])
    which = (line[rows][:, None] == named[mixed][None, :]).astype(float)
    lifted = np.hstack([side[rows, None] * side[first[line[rows]], None] * reference, which])
    margin = hard_margin(SignedRows(lifted, np.arange(len(rows)), y[rows], False), "linear", len(rows))
    if margin.separable is not False or margin.dual is None:
        return None
    at = np.abs(reference).argmax(axis=1)[:, None]
    length = np.abs(np.take_along_axis(X[rows], at, 1) / np.take_along_axis(reference, at, 1))[:, 0]
    weights = np.zeros(len(y))
    weights[rows] = margin.dual / (length / length.min())
    return weights / weights.sum()


def lines(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the line through 0 that each row lies on, numbered; +1 or -1 for its side), decided in exact arithmetic."""
    largest = np.take_along_axis(X, np.abs(X).argmax(axis=1)[:, None], axis=1)
    unit, side = X / largest, np.sign(largest[:, 0])
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    key = unit @ direction
    order = np.argsort(key, kind="stable")
    width = CLOSE * np.abs(direction).sum()
    line = np.full(len(X), -1)
    for place, i in enumerate(order):
        if line[i] >= 0:
            continue
        line[i] = line.max() + 1
        for k in order[place + 1 :]:
            if key[k] - key[i] > width:
                break
            if line[k] < 0 and np.abs(unit[i] - unit[k]).max() <= CLOSE and _one_line(X[i], X[k]):
                line[k] = line[i]
    return line, side


def _one_line(a: np.ndarray, b: np.ndarray) -> bool:
    if np.array_equal(a, b):
        return True
    at = int(np.abs(a).argmax())
    p, q = Fraction(float(a[at])), Fraction(float(b[at]))
    return all(Fraction(float(s)) * q == Fraction(float(t)) * p for s, t in zip(a, b, strict=True))
