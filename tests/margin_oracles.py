"""Slow, exact or second-opinion answers that the margin tests compare with. Nothing here is used by the library."""

import itertools
from fractions import Fraction

import numpy as np


def exact(A) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in np.atleast_2d(A)]


def solve_exactly(M: list[list[Fraction]], b: list[Fraction]) -> list[Fraction] | None:
    """Gauss-Jordan; None for a singular matrix."""
    rows = [[*row, value] for row, value in zip(M, b, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = next((r for r in range(k, n) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for r in range(n):
            if r != k and rows[r][k]:
                factor = rows[r][k]
                rows[r] = [x - factor * p for x, p in zip(rows[r], rows[k], strict=True)]
    return [row[-1] for row in rows]


def squared_distance_to_hull(Z) -> Fraction:
    """min ‖Σ α_i z_i‖² over the simplex, exactly: the least over all faces whose own minimiser is inside the face."""
    Z = exact(Z)
    gram = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in Z] for x in Z]
    best = min(gram[i][i] for i in range(len(Z)))
    for size in range(2, min(len(Z), len(Z[0]) + 1) + 1):
        for face in itertools.combinations(range(len(Z)), size):
            system = [[*(gram[i][j] for j in face), Fraction(1)] for i in face]
            system.append([*(Fraction(1) for _ in face), Fraction(0)])
            solution = solve_exactly(system, [Fraction(0)] * size + [Fraction(1)])
            if solution is not None and min(solution[:-1]) >= 0:
                best = min(best, -solution[-1])
    return best


def attained(Z, w) -> tuple[Fraction, Fraction]:
    """(min_i z_iᵀw, ‖w‖²) exactly."""
    w = exact(w)[0]
    products = [sum(a * b for a, b in zip(z, w, strict=True)) for z in exact(Z)]
    return min(products), sum(x * x for x in w)


def combined(Z, alpha) -> tuple[Fraction, Fraction]:
    """(‖Σ α_i z_i‖², Σ α_i) exactly."""
    alpha = exact(alpha)[0]
    p = [sum(a * x for a, x in zip(alpha, column, strict=True)) for column in zip(*exact(Z), strict=True)]
    return sum(x * x for x in p), sum(alpha)


def signed(data, kind: str, bias: bool = False) -> np.ndarray:
    X = np.asarray(data.X, dtype=np.float64)
    X = np.concatenate([X, np.ones((len(X), 1))], axis=1) if bias else X
    if kind == "linear":
        return data.y[:, None] * X
    return X[data.positive if kind == "positive" else data.negative]


def clarabel_margin(Z) -> tuple[float | None, str]:
    """(γ, status) of min ½‖w‖² s.t. Zw >= 1 over all rows at once."""
    import clarabel
    from scipy import sparse

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    m, d = Z.shape
    answer = clarabel.DefaultSolver(
        sparse.eye(d, format="csc"),
        np.zeros(d),
        sparse.csc_matrix(-Z),
        -np.ones(m),
        [clarabel.NonnegativeConeT(m)],
        settings,
    ).solve()
    status = str(answer.status)
    return (1 / np.linalg.norm(answer.x) if status in ("Solved", "AlmostSolved") else None), status
