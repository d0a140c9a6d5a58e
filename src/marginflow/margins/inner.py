"""max over unit c of G(c) = Σ β_i φ(cᵀx_i): the extremal-direction problem, and the inner problem of the F1 margin.

Four ways, the first that applies: a closed form when the rows with β > 0 agree and the others oppose them; cones for
rank <= CONE_RANK; branching on activation signs up to BRANCH_ROWS rows with β > 0; else the best of many local
ascents, which proves nothing and says so.
"""

import dataclasses

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record
from marginflow._core.tolerances import EPS, MARGIN_GAP
from marginflow.margins import arrangement, branch
from marginflow.margins.inner_ascent import climb, values

CONE_RANK = 4  # cones multiply by about 10 per dimension: 10^4 in R^4 (under a second), 10^6 in R^6
BRANCH_ROWS = 40  # 2^p leaves at worst; random problems of p = 20 in R^15 need some 10^4 nodes
STARTS = 200


@dataclasses.dataclass(frozen=True, eq=False)
class InnerMax(Record):
    """The largest G found and what is proved about it.

    value: G(direction), a lower bound of the maximum up to the rounding of one evaluation.
    upper_bound: no unit vector exceeds it (rounding included), or None where nothing is proved.
    certified: value and upper_bound meet within the relative tolerance asked for, or within rounding of 0.
    method: "closed form", "cones", "signs" or "ascent"; nodes: cones or sign nodes looked at.
    """

    value: float
    direction: np.ndarray
    upper_bound: float | None
    certified: bool
    method: str
    nodes: int = 0


def degree(activation) -> bool:
    """Whether φ is the squared ReLU; refuses activations whose inner problem is not solved here."""
    name = getattr(activation, "name", activation)
    if name not in ("relu", "srelu"):
        raise InputError(
            f"activation '{name}': F1 margins and extremal directions are solved for relu and srelu"
        )
    return name == "srelu"


def reachable(X: np.ndarray, beta: np.ndarray, squared: bool) -> bool:
    """Whether the global maximum for these rows (in coordinates of their span) is within the stated sizes."""
    return X.shape[1] <= CONE_RANK or (
        not squared and max(int((beta > 0).sum()), int((beta < 0).sum())) <= BRANCH_ROWS
    )


def inner_max(
    X,
    beta,
    *,
    activation="relu",
    tolerance: float = MARGIN_GAP,
    starts=None,
    seed: int = 0,
    max_nodes: int | None = None,
    globally: bool = True,
) -> InnerMax:
    """Maximise Σ β_i φ(cᵀx_i) over ‖c‖ = 1.

    `starts`: further directions (rows) to climb from. `globally=False`: only the closed form and local ascent.
    `max_nodes` limits the cones or sign nodes.
    """
    squared = degree(activation)
    X, beta = to_numpy(X, np.float64), to_numpy(beta, np.float64)
    live = beta != 0
    if not live.any():
        return InnerMax(0.0, np.eye(X.shape[1])[0], 0.0, True, "closed form")
    X, beta = X[live], beta[live]
    extra = (
        np.empty((0, X.shape[1])) if starts is None else to_numpy(starts, np.float64).reshape(-1, X.shape[1])
    )
    if not squared:
        closed = _aligned(X, beta, tolerance)
        if closed is not None:
            return closed
    reduced, basis, lost = row_space(X)
    rank = reduced.shape[1]
    rng = np.random.default_rng(seed)
    points = [rng.standard_normal((STARTS, rank)), reduced, -reduced, extra @ basis]
    found = climb(_nonzero(np.concatenate(points)), reduced, beta, squared)
    start = found[values(found, reduced, beta, squared).argmax()]
    small = rank <= CONE_RANK or (not squared and int((beta > 0).sum()) <= BRANCH_ROWS)
    if not globally or not small:
        direction = _unit(basis @ start)
        return InnerMax(float(values(direction[None], X, beta, squared)[0]), direction, None, False, "ascent")
    if rank <= CONE_RANK:
        method, top = (
            "cones",
            arrangement.maximum(
                reduced,
                beta,
                start,
                squared=squared,
                tolerance=tolerance / 100,
                max_cones=max_nodes or arrangement.MAX_CONES // (8 if squared else 1),
            ),
        )
    else:
        method, top = (
            "signs",
            branch.maximum(
                reduced, beta, start, tolerance=tolerance / 10, max_nodes=max_nodes or branch.MAX_NODES
            ),
        )
    direction = _unit(basis @ top.direction)
    value = float(values(direction[None], X, beta, squared)[0])
    slack = arrangement.lipschitz(X, beta, squared)
    upper = None
    if top.complete:
        # c -> basisᵀc shortens up to rounding; G moves by at most |β| times what the reduction changes in x_i.
        change = np.abs(beta) @ (2 * lost * np.linalg.norm(X, axis=1) if squared else lost)
        upper = float(top.upper * (1 + 64 * rank * EPS) + 2 * change)
    certified = upper is not None and upper - value <= max(tolerance * abs(value), 1e3 * EPS * slack)
    return InnerMax(value, direction, upper, certified, method, top.nodes)


def row_space(X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates of the rows in an orthonormal basis of their span, the basis (d, rank), and ‖x_i - reduced_i‖."""
    _, singular, right = np.linalg.svd(X, full_matrices=False)
    rank = max(1, int((singular > max(X.shape) * EPS * singular[0]).sum()))
    if rank == X.shape[1]:
        return X, np.eye(rank), np.zeros(len(X))
    basis = right[:rank].T
    reduced = X @ basis
    rounding = 8 * (X.shape[1] + rank) * EPS * np.linalg.norm(X, axis=1)
    return reduced, basis, np.linalg.norm(X - reduced @ basis.T, axis=1) + rounding


def _aligned(X: np.ndarray, beta: np.ndarray, tolerance: float) -> InnerMax | None:
    """Closed form: p = Σ_+ β_i x_i is optimal when the x_i with β > 0 agree pairwise and the others oppose p.

    For any signs s on the gaining rows, ‖Σ s_i β_i x_i‖² <= ‖p‖² + 2 Σ_{i<k} β_i β_k (x_iᵀx_k)_-, because what is left
    out enters the square of ‖p‖ with non-negative products; and the losing rows only lower G.
    """
    gain = beta > 0
    if not gain.any():
        return None
    W = X[gain] * beta[gain, None]
    p = W.sum(axis=0)
    norm = float(np.linalg.norm(p))
    if norm == 0:
        return None
    direction = p / norm
    value = float(values(direction[None], X, beta)[0])
    if value < norm * (1 - 1e-6):
        return None
    lengths = np.linalg.norm(W, axis=1)
    gram = W @ W.T
    against = np.maximum(-gram, 0.0)
    np.fill_diagonal(against, 0.0)
    rounding = 4 * (X.shape[1] + len(W)) * EPS * lengths.sum() ** 2
    upper = float(np.sqrt(norm**2 + against.sum() + rounding) * (1 + 8 * EPS))
    return (
        InnerMax(value, direction, upper, True, "closed form") if upper - value <= tolerance * value else None
    )


def _unit(c: np.ndarray) -> np.ndarray:
    return c / np.linalg.norm(c)


def _nonzero(points: np.ndarray) -> np.ndarray:
    return points[np.linalg.norm(points, axis=1) > 0]
