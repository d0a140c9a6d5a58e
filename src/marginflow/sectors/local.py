"""Is a direction a strict local maximum of Σ_i p_i ρ(wᵀx_i) on the sphere? (p = κ: maxima of G; p = -κ: minima.)

Let v be the least-norm velocity at u (see selection) and C = uᵀv, the value there. Lemma A.1 makes v = Cu
necessary. With all aligned examples off their hyperplanes, the function equals min_c v_cᵀw near u, so

- C > 0: it is at most vᵀw = C uᵀw < C off u: strict. An aligned example at 0 adds p|xᵀw| on one side, first order
  against the sphere's second: not a maximum.
- C <= 0: leaving u along t ⟂ u gains nothing at first order exactly when x_kᵀt = 0 for every sliding k (and
  x_kᵀt has the harmless sign where c_k is 0 or 1), and then the sphere's curvature gains -C/2 >= 0: strict
  exactly when no such t ≠ 0 exists, that is, when the sliding x_k span the complement of u.
"""

from enum import StrEnum

import numpy as np

from marginflow.sectors.selection import SPEED_ZERO, settle


class Kind(StrEnum):
    STRICT = "strict"
    NONE = "none"
    UNDECIDED = "undecided"


def at_zero(X: np.ndarray, p: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Which hyperplanes a computed critical direction lies on: its error is the field's rounding over its size."""
    norms = np.linalg.norm(X, axis=1)
    z = X @ u
    scale = float(np.abs(p) @ norms)
    value = abs(float(p @ np.maximum(z, 0.0)))
    relative = 10 * SPEED_ZERO * (1 + min(scale / value, 1e4) if value > 0 else 1.0)
    return np.abs(z) <= relative * norms


def local_kind(X: np.ndarray, p: np.ndarray, u: np.ndarray) -> Kind:
    d = X.shape[1]
    zero = at_zero(X, p, u)
    scale = float(np.abs(p) @ np.linalg.norm(X, axis=1))
    state = settle(X, p, (X @ u > 0) & ~zero, zero)
    aligned = zero & (p > 0)
    if aligned.any():
        # settle may have switched an aligned example on; as a point, u has it at 0
        return Kind.UNDECIDED if _in_span(X[aligned], X[zero & (p < 0)]) else Kind.NONE
    C = float(u @ state.v)
    if np.linalg.norm(state.v - C * u) > 1e3 * SPEED_ZERO * scale:
        return Kind.NONE
    if C > SPEED_ZERO * scale:
        return Kind.STRICT
    held = zero & (state.c > 0) & (state.c < 1)
    open_dimensions = d - 1 - (int(np.linalg.matrix_rank(X[held])) if held.any() else 0)
    if open_dimensions == 0:
        return Kind.STRICT
    one_sided = int((zero & (p < 0) & ~held).sum())
    return Kind.NONE if one_sided <= open_dimensions else Kind.UNDECIDED


def _in_span(rows: np.ndarray, basis: np.ndarray) -> bool:
    """Whether every row lies in the span of the basis rows, to 1e-9 of its length."""
    if not len(basis):
        return False
    rest = rows - (basis.T @ np.linalg.lstsq(basis.T, rows.T, rcond=None)[0]).T
    return bool((np.linalg.norm(rest, axis=1) <= 1e-9 * np.linalg.norm(rows, axis=1)).all())
