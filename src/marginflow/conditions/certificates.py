"""Every witness proved again from the definition alone: NumPy, integers and fractions; no solver is known here.

`recheck(data, condition)` trusts nothing but the data: it returns True only if the witness proves the status.
"""

from fractions import Fraction

import numpy as np

from marginflow._core import exact
from marginflow._core.exact import UNIT
from marginflow._core.status import Status
from marginflow.conditions.base import Condition
from marginflow.conditions.closest import at_ordinary_scale, closest_pairs
from marginflow.data.dataset import Dataset

BLOCK = 512


def recheck(data: Dataset, condition: Condition) -> bool:
    """Whether the witness proves the status. `undecided` claims nothing and is never confirmed."""
    if condition.status not in (Status.HOLDS, Status.FAILS):
        return False
    return _CHECKS[condition.name](data, condition)


def separates(data: Dataset, w) -> bool:
    """y_i wᵀx_i > 0 for every i, with exact signs."""
    w = np.asarray(w, np.float64)
    if w.shape != (data.d,) or not np.isfinite(w).all():
        return False
    step = max(1, 2**20 // data.d)
    for k in range(0, data.n, step):
        X = np.asarray(data.X[k : k + step], np.float64)
        if (exact.dot_signs(X, np.broadcast_to(w, X.shape)) != data.y[k : k + step]).any():
            return False
    return True


def gordan(data: Dataset, support, alpha) -> bool:
    """Some α > 0 on `support` has Σ α_i y_i x_i = 0 exactly, and the one given is it up to rounding.

    Σ of the support's weights must be 1 to rounding. Then either the rows' kernel, computed in integers, is a line
    of positive vectors; or (more than d rows, too large for that) a solution of Σ α_i (y_i x_i, 1) = (0, 1) is enclosed
    in a ball of positive vectors around the given one (see `margins.certificates.gordan`).
    """
    from marginflow.margins.certificates import gordan as proof

    support, alpha = np.asarray(support), np.asarray(alpha, np.float64)
    if len(np.unique(support)) != len(support) or support.min() < 0 or support.max() >= data.n or not (alpha > 0).all():
        return False
    Z = np.asarray(data.X[support], np.float64) * data.y[support][:, None]
    proved = proof(Z, alpha)
    return proved is not None and bool(np.allclose(proved, alpha, rtol=1e-6, atol=1e-12))


def violates_orthogonality(data: Dataset, i: int, j: int, tolerance: float = 0.0) -> bool:
    """Whether the pair breaks orthogonal separability, from exact products."""
    above = exact.cosine_above(data.X[i], data.X[j], tolerance)
    return not above if data.y[i] == data.y[j] else above


def orthogonally_separable(data: Dataset, tolerance: float = 0.0) -> bool:
    """Every pair from the definition, without the angles that spared them: n² products, each sign exact."""
    for k in range(0, data.n, BLOCK):
        A, ya = np.asarray(data.X[k : k + BLOCK], np.float64), data.y[k : k + BLOCK]
        for s in range(k, data.n, BLOCK):
            B, yb = np.asarray(data.X[s : s + BLOCK], np.float64), data.y[s : s + BLOCK]
            same = ya[:, None] == yb[None, :]
            if tolerance == 0:
                above = exact.block_signs(A, B) > 0
            else:
                i, j = np.indices(same.shape).reshape(2, -1)
                above = exact.exceeds(A[i], B[j], tolerance).reshape(same.shape)
            if (above != same).any():
                return False
    return True


def projected_distance(data: Dataset, projection) -> float:
    """A proved lower bound of min ‖P(x_i - x_j)‖ over opposite classes, P the projection onto the rows of Q.

    ‖Pz‖ >= ‖Qz‖/‖Q‖₂ and ‖Q‖₂² <= 1 + ‖QQᵀ - I‖_F, whatever Q is.
    """
    Q = np.asarray(projection, np.float64)
    off = float(np.linalg.norm(Q @ Q.T - np.eye(len(Q)))) + len(Q) * (data.d + 4) * UNIT * float((Q**2).sum())
    return float(closest_pairs(data, Q).at_least / np.sqrt(1 + off) * (1 - 8 * UNIT))


def fantope_bound(data: Dataset, pairs, weights, rank: int) -> float:
    """A proved upper bound of Δ_r: the square root of the r largest eigenvalues of Σ λ_z z zᵀ, summed (Ky Fan).

    The matrix of the rows √λ z and their Gram matrix have the same nonzero eigenvalues; M is the smaller one. With a
    computed M ≈ VΛVᵀ, the sum of the r largest eigenvalues of the true M is at most ‖V‖₂² times that of Λ+
    (Ostrowski) plus r times the norms of M - VΛVᵀ and of the rounding in M and in that residual, all below
    4 γ_{m+d+2k+16} Σ λ‖z‖² in the Frobenius norm.
    """
    pairs, weights = np.asarray(pairs), np.asarray(weights, np.float64)
    if (weights < 0).any() or not weights.sum() > 0 or (data.y[pairs[:, 0]] == data.y[pairs[:, 1]]).any():
        return np.inf
    Z = np.asarray(data.X[pairs[:, 0]], np.float64) - np.asarray(data.X[pairs[:, 1]], np.float64)
    rooted = Z * np.sqrt(weights / weights.sum())[:, None]
    M = rooted.T @ rooted if len(Z) >= data.d else rooted @ rooted.T
    values, V = np.linalg.eigh(M)
    k = len(M)
    rounding = 4 * (len(Z) + data.d + 2 * k + 16) * UNIT * float(np.einsum("ij,ij->", rooted, rooted))
    residual = float(np.linalg.norm(M - (V * values) @ V.T)) + rounding
    stretch = 1 + float(np.linalg.norm(V.T @ V - np.eye(k))) + k * (k + 4) * UNIT
    total = stretch * float(np.maximum(values[-rank:], 0.0).sum()) + rank * residual
    return float(np.sqrt(total)) * (1 + (rank + 8) * UNIT)


def nearly_orthogonal(data: Dataset, i: int, j: int, constant: str, leak: float) -> bool:
    """Whether the inequality holds for this pair and the true extreme norms, in fractions."""
    from marginflow.conditions.near_orthogonality import CONSTANTS

    squares = [exact.dot(x, x) for x in data.X]
    least, most = min(squares), max(squares)
    product = abs(exact.dot(data.X[i], data.X[j]))
    return least >= CONSTANTS[constant](Fraction(leak), most / least) * (most / least) * data.n * product


def _linear(data: Dataset, condition: Condition) -> bool:
    w = condition.witness
    if condition.status is Status.HOLDS:
        return separates(data, w["w"])
    if "rows" in w:
        i, j = w["rows"]
        return i != j and bool(np.array_equal(data.y[i] * data.X[i], -data.y[j] * data.X[j]))
    return gordan(data, w["support"], w["alpha"])


def _orthogonal(data: Dataset, condition: Condition) -> bool:
    if condition.status is Status.FAILS:
        i, j = condition.witness["rows"]
        return violates_orthogonality(data, i, j, condition.tolerance)
    return orthogonally_separable(data, condition.tolerance)


def _nearly(data: Dataset, condition: Condition) -> bool:
    w = condition.witness
    if condition.status is Status.FAILS:
        i, j = w["pair"]
    else:
        pairs = ((i, j) for i in range(data.n) for j in range(i))
        i, j = max(pairs, key=lambda pair: abs(exact.dot(data.X[pair[0]], data.X[pair[1]])))
    holds = nearly_orthogonal(data, i, j, w["constant"], w["leak"])
    return i != j and holds == (condition.status is Status.HOLDS)


def _position(data: Dataset, condition: Condition) -> bool:
    """fails: Σ c_i (x_i, 1) = 0 with the stated coefficients; holds: every subset has full rank in fractions."""
    from itertools import combinations

    from marginflow.conditions.general_position import homogeneous

    if condition.status is Status.FAILS and "column" in condition.witness:
        return _on_a_coordinate_plane(data, condition.witness)
    if condition.status is Status.FAILS:
        rows, c = condition.witness["rows"], [Fraction(a) for a in condition.witness["coefficients"]]
        distinct = len(set(rows)) == len(rows) <= min(data.d, data.n) + 1
        return distinct and all(c) and not any(exact.combine(c, homogeneous(data, rows)))
    size = min(data.d, data.n) + 1
    return all(exact.dependence(homogeneous(data, rows)) is None for rows in combinations(range(-1, data.n), size))


def _on_a_coordinate_plane(data: Dataset, witness) -> bool:
    """d + 1 points with one value of one coordinate lie on a flat of dimension d - 1. Row -1 is the point 0."""
    rows, column, value = witness["rows"], witness["column"], witness["value"]
    entries = [0.0 if i < 0 else float(data.X[i, column]) for i in rows]
    return len(set(rows)) == len(rows) == data.d + 1 and min(rows) >= -1 and all(x == value for x in entries)


def _span(data: Dataset, condition: Condition) -> bool:
    """The margin's interval from w and α, the rows that it lets touch the margin, and the ranks of both sets of rows.

    A class without w must have 0 in its hull.
    """
    from marginflow.conditions.touching import may_touch, rank
    from marginflow.margins.certificates import gordan as zero_in_hull
    from marginflow.margins.certificates import margin_from_above, margin_from_below
    from marginflow.margins.rows import signed_rows

    short = 0
    for kind, rows in (("positive", data.positive), ("negative", data.negative)):
        side = condition.witness[kind]
        if side["rank"] is None:
            continue
        if side["w"] is None:
            on = np.asarray(side["alpha_rows"])
            if not np.isin(on, rows).all() or zero_in_hull(np.asarray(data.X[on], np.float64)) is None:
                return False
            short += 1
            continue
        signed, alpha = signed_rows(data, kind, False), np.zeros(data.n)
        alpha[side["alpha_rows"]] = side["alpha"]
        w = np.asarray(side["w"], np.float64)
        low = margin_from_below(signed, w)
        high = margin_from_above(signed, alpha[rows])
        if alpha[data.y != data.y[rows[0]]].any() or not 0 < low <= high or high - low > 1e-6 * high:
            return False
        touching = may_touch(data, w, low / signed.scale, high / signed.scale, side["support_tolerance"], rows)
        support = np.asarray(side["support"])
        if not np.isin(support, touching).all():
            return False
        if condition.status is Status.HOLDS and rank(data.X[support])[0] < data.d:
            return False
        short += min(len(touching), rank(data.X[touching])[0]) < data.d
    return condition.status is Status.HOLDS or short > 0


def _distance(data: Dataset, condition: Condition) -> bool:
    w = condition.witness
    if condition.status is Status.FAILS:
        i, j = w["rows"]
        return data.y[i] != data.y[j] and bool(np.array_equal(data.X[i], data.X[j]))
    data, factor = at_ordinary_scale(data)
    low, high = (bound * factor for bound in w["interval"])
    return (len(w["projection"]) == w["rank"] and 0 < low <= projected_distance(data, w["projection"]) * (1 + 1e-12)
            and high >= fantope_bound(data, w["pairs"], w["weights"], w["rank"]) * (1 - 1e-12))


_CHECKS = {"linear_separability": _linear, "orthogonal_separability": _orthogonal, "near_orthogonality": _nearly,
           "general_position": _position, "support_span": _span, "interclass_distance": _distance}
