"""max t s.t. zᵀPz >= t for the given z, over the Fantope {0 ⪯ P ⪯ I, tr P <= r}; and projections found from it.

Nothing here is trusted: `certificates` proves whatever bound the results give.
"""

import itertools
import math

import numpy as np

SEMIDEFINITE = 32  # dimension up to which the cone program is solved; beyond, mirror descent on its dual
STEPS = 600
COORDINATE_SETS = 2000


def fantope(Z: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray] | None:
    """(R, λ): the relaxation's solution P = RᵀR, rows of R in increasing order of eigenvalue, and its dual weights on
    the rows of Z; None if the solver reports none.

    P may be taken within the span of Z: the rest of R^d adds nothing to any zᵀPz.
    """
    scale = np.linalg.norm(Z, axis=1).min()
    basis = None
    if len(Z) < Z.shape[1]:
        basis = np.linalg.qr(Z.T)[0]
        Z = Z @ basis
    rank = min(rank, Z.shape[1])
    solved = (_cone_program if Z.shape[1] <= SEMIDEFINITE else _mirror_descent)(Z / scale, rank)
    if solved is None:
        return None
    values, vectors = np.linalg.eigh(solved[0])
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return (root if basis is None else root @ basis.T), solved[1]


def _cone_program(Z: np.ndarray, rank: int):
    from importlib import import_module

    from scipy import sparse

    clarabel = import_module("clarabel")  # a compiled module without type information

    m, k = Z.shape
    rows, columns = np.tril_indices(k)
    rows, columns = columns, rows  # upper triangle, column by column, off-diagonals times √2: clarabel's order
    weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
    size = len(rows)
    forms = Z[:, rows] * Z[:, columns] * weight
    identity = (rows == columns).astype(float)
    A = sparse.vstack([sparse.csc_matrix(np.hstack([-forms, np.ones((m, 1))])),
                       sparse.csc_matrix(np.append(identity, 0.0)[None]),
                       sparse.hstack([-sparse.eye(size), sparse.csc_matrix((size, 1))]),
                       sparse.hstack([sparse.eye(size), sparse.csc_matrix((size, 1))])], format="csc")
    b = np.concatenate([np.zeros(m), [rank], np.zeros(size), identity])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cost = np.append(np.zeros(size), -1.0)
    cones = [clarabel.NonnegativeConeT(m + 1), clarabel.PSDTriangleConeT(k), clarabel.PSDTriangleConeT(k)]
    solution = clarabel.DefaultSolver(sparse.csc_matrix((size + 1, size + 1)), cost, A, b, cones, settings).solve()
    if str(solution.status) not in ("Solved", "AlmostSolved"):
        return None
    P = np.zeros((k, k))
    P[rows, columns] = np.asarray(solution.x)[:size] / weight
    P = P + P.T - np.diag(np.diag(P))
    dual = np.maximum(np.asarray(solution.z)[:m], 0.0)
    return (P, dual / dual.sum()) if dual.sum() > 0 else None


def _mirror_descent(Z: np.ndarray, rank: int):
    """Entropic mirror descent on λ -> Σ r largest eigenvalues of Σ λ z zᵀ; P is the average of the projections seen."""
    m, k = Z.shape
    logs, total = np.zeros(m), np.zeros((k, k))
    best, kept = np.inf, np.full(m, 1.0 / m)
    for step in range(STEPS):
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        values, vectors = np.linalg.eigh(Z.T @ (weights[:, None] * Z))
        if values[-rank:].sum() < best:
            best, kept = values[-rank:].sum(), weights
        top = vectors[:, -rank:]
        total += top @ top.T
        gain = np.einsum("ij,ij->i", Z @ top, Z @ top)
        logs -= np.sqrt(2 * np.log(m + 1) / (step + 1)) * gain / gain.max()
    return total / STEPS, kept


def ky_fan(Z: np.ndarray, weights: np.ndarray, rank: int) -> float:
    """Square root of the r largest eigenvalues of Σ λ z zᵀ, summed: an upper bound of Δ_r up to rounding."""
    rooted = Z * np.sqrt(weights)[:, None]
    values = np.linalg.eigvalsh(rooted.T @ rooted if len(Z) >= Z.shape[1] else rooted @ rooted.T)
    return float(np.sqrt(np.maximum(values[-rank:], 0.0).sum() / weights.sum()))


def ascend(Z: np.ndarray, Q: np.ndarray, steps: int = 300, hot: float = 1.0) -> np.ndarray:
    """Raise min_z ‖Qz‖ over orthonormal r x d matrices: gradient steps on a soft minimum that hardens.

    The temperature falls from `hot` times the mean of ‖Qz‖² to a tenth of the best minimum: while hot, the gradient
    sees all pairs and can leave the basin it started in; cold, it sees the closest ones.
    """
    V = Q.T
    best, kept, mean = -np.inf, Q, None
    for step in range(steps):
        Y = Z @ V
        square = np.einsum("ij,ij->i", Y, Y)
        least = float(square.min())
        mean = float(square.mean()) if mean is None else mean
        if least > best:
            best, kept = least, V.T
        done = step / steps
        temperature = (hot * mean) ** (1 - done) * (0.1 * max(best, 1e-9 * mean)) ** done
        weights = np.exp((least - square) / temperature)
        gradient = Z.T @ ((weights / weights.sum())[:, None] * Y)
        gradient -= V @ (V.T @ gradient)
        length = np.linalg.norm(gradient)
        if length <= 1e-14 * np.sqrt(mean):
            break
        V = np.linalg.qr(V + 0.3 * (1 - done) / length * gradient)[0]
    return kept


def starts(Z: np.ndarray, rank: int, count: int, seed: int = 0) -> list[np.ndarray]:
    """Where to start ascents: the best set of coordinates, where there are few sets, and random subspaces."""
    d = Z.shape[1]
    rng = np.random.default_rng(seed)
    found = [np.linalg.qr(rng.standard_normal((d, rank)))[0].T for _ in range(count)]
    if math.comb(d, rank) <= COORDINATE_SETS:
        square = Z**2
        best = max(itertools.combinations(range(d), rank), key=lambda chosen: square[:, chosen].sum(axis=1).min())
        found.append(np.eye(d)[list(best)])
    return found
