"""Margins re-checked with proved rounding errors. NumPy and exact integers only: no solver is known here.

Every function takes a claimed witness, trusts nothing about it, and returns a number that is a bound in exact
arithmetic on the stored floating-point data (for kernels, barring underflow).
"""

import dataclasses
import math
from fractions import Fraction
from typing import Protocol

import numpy as np

from marginflow._core.tolerances import EPS

UNIT = EPS / 2
SMALLEST = 2.0**-1074
SPLITTER = 2.0**27 + 1
EXACT_WORK = 64**4 * 60  # rows⁴ x bits of an exact kernel: 64 rows of ordinary doubles take about a second


class Rows(Protocol):
    """z_i, i < n: what a checker may ask of the signed rows of a problem."""

    @property
    def n(self) -> int: ...
    @property
    def d(self) -> int: ...
    def take(self, rows) -> np.ndarray: ...
    def products(self, w: np.ndarray) -> np.ndarray: ...
    def norms(self) -> np.ndarray: ...


def _two_product(a, b):
    """(p, e) with p + e = a·b exactly (Dekker)."""
    p = a * b
    t = SPLITTER * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLITTER * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def dot2(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(A @ b as if in twice the working precision, a proved bound on its error).

    Products are split without error, summed pairwise without error, and the N remainders e_k are added in plain
    arithmetic: |error| <= u|result| + γ_N Σ|e_k|, N = 2 columns + 2 (Ogita, Rump & Oishi 2005 for the idea; the
    bound used here is the a-posteriori one just stated). Five products a column may underflow, by half the smallest
    number each.
    """
    columns = A.shape[1]
    if columns == 0:
        return np.zeros(len(A)), np.zeros(len(A))
    s, e = _two_product(A, b[None, :])
    rest, size = e.sum(axis=1), np.abs(e).sum(axis=1)
    while s.shape[1] > 1:
        half = s.shape[1] // 2
        left, right, odd = s[:, :half], s[:, half : 2 * half], s[:, 2 * half :]
        total = left + right
        t = total - left
        e = (left - (total - t)) + (right - t)
        rest, size = rest + e.sum(axis=1), size + np.abs(e).sum(axis=1)
        s = np.concatenate([total, odd], axis=1)
    result = s[:, 0] + rest
    N = 2 * columns + 2
    return result, 1.01 * (UNIT * np.abs(result) + N * UNIT / (1 - N * UNIT) * size) + 8 * columns * SMALLEST


def norm_bounds(w: np.ndarray) -> tuple[float, float]:
    """‖w‖ from below and above: squares carry one rounding each and fsum adds them exactly."""
    top = float(np.abs(w).max(initial=0.0))
    unit = 1.0 if 1e-100 < top < 1e100 or top == 0 else 2.0 ** min(max(-math.frexp(top)[1], -1000), 1000)
    norm = math.sqrt(math.fsum(np.square(w * unit)))  # unit: no square that counts leaves float range
    return norm * (1 - 4 * UNIT) / unit, norm * (1 + 4 * UNIT) / unit


@dataclasses.dataclass(frozen=True, eq=False)
class Attained:
    """margin: min_i z_iᵀw/‖w‖ from below, proved. values: z_iᵀw as one plain pass gives them, not proved."""

    margin: float
    values: np.ndarray


def attained(rows: Rows, w: np.ndarray, norms: np.ndarray | None = None, row_error: float = 0.0) -> Attained:
    """The margin that w attains. Negative when w does not separate.

    One plain pass gives z_iᵀw within γ_{d+2}‖z_i‖‖w‖ (Cauchy-Schwarz on the usual dot-product bound); only rows
    that this leaves in doubt about being the minimum are evaluated again in doubled precision. `row_error`: the
    stored z_i stand for rows that differ from them by at most row_error·‖z_i‖.
    """
    top = float(np.abs(w).max(initial=0.0))
    if not np.isfinite(w).all() or not top:
        return Attained(0.0, np.zeros(rows.n))
    unit = 1.0 if 1e-100 < top < 1e100 else 2.0 ** -np.round(np.log2(top))
    w = w * unit
    low, high = norm_bounds(w)
    values = rows.products(w)
    least = _least(rows, w, high, values, rows.norms() if norms is None else norms, row_error)
    margin = least / (high if least >= 0 else low) * (1 - 4 * UNIT * math.copysign(1.0, least))
    return Attained(margin, values if unit == 1.0 else values / unit)


def _least(rows: Rows, w: np.ndarray, length: float, values, norms, row_error: float) -> float:
    """A proved lower bound on min_i z_iᵀw; `length` is at least ‖w‖."""
    d = rows.d
    gamma = (d + 4) * UNIT / (1 - (d + 4) * UNIT)
    # norms are themselves computed: relative error below γ_{d+2}, absorbed by the factor.
    wide = length * (1 + 2 * gamma)
    error = norms * (gamma * wide) + 2 * d * SMALLEST
    if row_error:
        values = values - norms * (row_error * wide)
    least = float((values + error).min())
    doubtful = np.flatnonzero(values - error <= least)  # the other rows lie above `least`
    step = max(1, 2**21 // d)
    for start in range(0, len(doubtful), step):
        some = doubtful[start : start + step]
        value, bound = dot2(rows.take(some), w)
        least = min(least, float(np.min(value - bound - norms[some] * (row_error * wide))))
    return least


def margin_from_below(
    rows: Rows, w: np.ndarray, norms: np.ndarray | None = None, row_error: float = 0.0
) -> float:
    """min_i z_iᵀw/‖w‖ from below: the margin that w attains. Negative when w does not separate."""
    return attained(rows, w, norms, row_error).margin


def margin_from_above(rows: Rows, alpha: np.ndarray, row_error: float = 0.0) -> float:
    """‖Σ α_i z_i‖/Σ α_i from above, for α >= 0: no vector has a larger margin (weak duality)."""
    on = np.flatnonzero(alpha)
    weight = alpha[on]
    if not len(on) or not np.isfinite(weight).all() or weight.min() < 0:
        return math.inf
    total = math.fsum(weight) * (1 - 2 * UNIT)
    p = np.zeros(rows.d)
    error = np.zeros(rows.d)
    spread = 0.0
    step = max(1, 2**22 // rows.d)
    for start in range(0, len(on), step):  # blocks of rows; between blocks one rounding each, counted below
        part = on[start : start + step]
        Z = rows.take(part)
        value, bound = dot2(np.ascontiguousarray(Z.T), alpha[part])
        p += value
        error += bound + UNIT * np.abs(p)
        if row_error:
            spread += row_error * float(alpha[part] @ np.linalg.norm(Z, axis=1)) * (1 + 1e-9)
    return (norm_bounds(np.abs(p) + error)[1] + spread) / total * (1 + 8 * UNIT)


def _integers(Z: np.ndarray) -> list[list[int]]:
    """Z times one common factor, exactly, as integers without a common divisor."""
    fractions = [[Fraction(float(x)) for x in row] for row in Z]
    denominator = max(x.denominator for row in fractions for x in row)  # powers of two: the largest is common
    numbers = [[int(x * denominator) for x in row] for row in fractions]
    divisor = math.gcd(*(x for row in numbers for x in row)) or 1
    return [[x // divisor for x in row] for row in numbers]


def _width(Z: np.ndarray) -> int:
    """Bits of the largest entry of Z as an integer multiple of the smallest power of two in it."""
    mantissa, exponent = np.frexp(Z[Z != 0])
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = exponent - 53 + np.log2((whole & -whole).astype(np.float64)).astype(int)
    return int(exponent.max() - lowest.min())


def null_combination(Z: np.ndarray) -> list[Fraction] | None:
    """The α with Σ α_i z_i = 0, Σ α_i = 1, exactly, where the rows of Z determine it uniquely; None otherwise.

    Fraction-free elimination (Bareiss) on the d x k matrix Zᵀ: for affinely independent rows with 0 in their
    affine hull its kernel is one line.
    """
    k = len(Z)
    matrix = [list(column) for column in zip(*_integers(Z), strict=True)]
    pivots: list[int] = []
    previous, top = 1, 0
    for column in range(k):
        pivot = next((r for r in range(top, len(matrix)) if matrix[r][column]), None)
        if pivot is None:
            continue
        matrix[top], matrix[pivot] = matrix[pivot], matrix[top]
        lead = matrix[top]
        for r in range(len(matrix)):
            if r != top:
                factor, row = matrix[r][column], matrix[r]
                matrix[r] = [
                    (lead[column] * a - factor * b) // previous for a, b in zip(row, lead, strict=True)
                ]
        previous = lead[column]
        pivots.append(column)
        top += 1
        if top == len(matrix):
            break
    free = [column for column in range(k) if column not in pivots]
    if len(free) != 1:
        return None
    alpha = [Fraction(0)] * k
    alpha[free[0]] = Fraction(1)
    for r, column in enumerate(pivots):
        alpha[column] = Fraction(-matrix[r][free[0]], matrix[r][column])
    total = sum(alpha)
    return [a / total for a in alpha] if total else None


def gordan(Z: np.ndarray, near: np.ndarray | None = None) -> np.ndarray | None:
    """α > 0 on all rows of Z with Σ α_i z_i = 0, proved: then no w has z_iᵀw > 0 on all of them.

    The kernel is computed in integers where the work k⁴·bits allows. Beyond, for d + 1 rows that span R^d, the
    solution of Mα = e, M = [Zᵀ; 1ᵀ], is enclosed: with R ≈ M^{-1}, r = |R||e - Mα̃| and β = ‖I - RM‖_∞ < 1,
    |α - α̃| <= r + β/(1-β) max r componentwise, so an α̃ above that radius is positive. More rows have many such α:
    `near`, a positive guess, is moved to one along d + 1 heavy rows that span, while the others keep their weights.
    Columns of zeros ask for nothing. Returns α rounded to floats.
    """
    bits = _width(Z)
    if len(Z) ** 4 * bits <= EXACT_WORK:
        exact = null_combination(Z)
        if exact is not None:
            return None if min(exact) <= 0 else np.array([float(a) for a in exact])
    Z = Z[:, Z.any(axis=0)]
    d = Z.shape[1]
    if len(Z) < d + 1 or (len(Z) > d + 1 and near is None):
        return None
    Z = Z / np.exp2(np.round(np.log2(np.abs(Z).max())))
    if near is None or len(Z) == d + 1:
        return _enclosed(Z, np.arange(d + 1), np.zeros(d + 1))
    basis = _spanning(np.concatenate([Z, np.ones((len(Z), 1))], axis=1), np.argsort(-near, kind="stable"))
    return _enclosed(Z, basis, near / near.sum()) if len(basis) == d + 1 and (near > 0).all() else None


def _spanning(A: np.ndarray, order: np.ndarray, block: int = 256) -> np.ndarray:
    """Independent rows of A, taken greedily in this order, block by block. A choice, of which a proof must follow."""
    size = A.shape[1]
    Q, chosen = np.empty((size, size)), []
    for start in range(0, len(order), block):
        rows = order[start : start + block]
        left = A[rows]
        length = np.linalg.norm(left, axis=1)
        for _ in range(2):
            left = left - (left @ Q[: len(chosen)].T) @ Q[: len(chosen)]
        for i, row in enumerate(rows):
            new = np.linalg.norm(left[i])
            if len(chosen) == size:
                return np.sort(chosen)
            if new > 1e-6 * length[i]:
                q = left[i] / new
                q -= (q @ Q[: len(chosen)].T) @ Q[: len(chosen)]
                Q[len(chosen)] = q / np.linalg.norm(q)
                left -= np.outer(left @ Q[len(chosen)], Q[len(chosen)])
                chosen.append(row)
    return np.sort(chosen)


def _enclosed(Z: np.ndarray, basis: np.ndarray, alpha: np.ndarray) -> np.ndarray | None:
    """α moved on the rows `basis` so that Σ α_i z_i = 0 and Σ α_i = 1, or None where it is not proved positive."""
    k = len(basis)
    whole = np.concatenate([Z.T, np.ones((1, len(Z)))])
    M = whole[:, basis]
    e = np.zeros(k)
    e[-1] = 1.0
    try:
        R = np.linalg.inv(M)
    except np.linalg.LinAlgError:
        return None
    alpha = alpha.copy()
    for _ in range(3):
        alpha[basis] -= R @ (_dot2_by_blocks(whole, alpha)[0] - e)
    value, bound = _dot2_by_blocks(whole, alpha)
    residual = np.abs(value - e) + bound + UNIT
    gamma = (k + 4) * UNIT / (1 - (k + 4) * UNIT)
    size = np.abs(R) @ np.abs(M)
    beta = float(np.max(np.abs(np.eye(k) - R @ M).sum(axis=1) + 2 * gamma * size.sum(axis=1)))
    if not beta < 1:
        return None
    first = (np.abs(R) @ residual) * (1 + gamma)
    radius = (first + beta / (1 - beta) * first.max()) * (1 + 1e-10)
    return alpha if (alpha[basis] > radius).all() and (alpha > 0).all() else None


def _dot2_by_blocks(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """dot2 with temporaries of some ten megabytes, whatever the size of A."""
    step = max(1, 2**17 // A.shape[1])
    value, bound = zip(*(dot2(A[k : k + step], b) for k in range(0, len(A), step)), strict=True)
    return np.concatenate(value), np.concatenate(bound)


def equal_rows(first: Rows, second: Rows) -> tuple[int, int] | None:
    """Positions (i, j) with first_i = second_j, entry by entry; None if there is no such pair.

    Rows are hashed by their bits, and a match of hashes is compared in full before it is believed.
    """
    codes = _codes(second)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    wanted = _codes(first)
    found = np.minimum(np.searchsorted(codes, wanted), second.n - 1)
    for i in np.flatnonzero(codes[found] == wanted):
        j = order[found[i]]
        if np.array_equal(first.take([i])[0], second.take([j])[0]):
            return int(i), int(j)
    return None


def _codes(rows: Rows) -> np.ndarray:
    """A 64-bit code per row; equal numbers give equal codes (-0.0 + 0.0 is 0.0)."""
    odd = np.random.default_rng(0).integers(0, 2**63, size=rows.d, dtype=np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    codes = np.empty(rows.n, np.uint64)
    step = max(1, 2**22 // rows.d)
    for start in range(0, rows.n, step):
        at = np.arange(start, min(start + step, rows.n))
        bits = (rows.take(at) + 0.0).view(np.uint64)
        codes[at] = ((bits ^ (bits >> np.uint64(29))) * odd).sum(axis=1, dtype=np.uint64)
    return codes


def kernel_margin_from_below(K: np.ndarray, error: np.ndarray, beta: np.ndarray) -> float:
    """min_i (Kβ)_i / sqrt(βᵀKβ) from below, for signed kernel values known to within |K_ij - exact| <= error_ij.

    The function g = Σ β_j y_j σ(·, x_j) has y_i ∫ σ(·, x_i) g dτ = (Kβ)_i and ‖g‖² = βᵀKβ.
    """
    size = np.abs(beta)
    values, rounding = _product(K, beta)
    doubt = (error @ size) * (1 + 2 * (len(K) + 4) * UNIT) + rounding
    least = float(np.min(values - doubt))
    square = math.fsum(beta * values) + math.fsum(size * (doubt + 4 * UNIT * np.abs(values)))
    return least / math.sqrt(square) * (1 - 8 * UNIT) if least > 0 and square > 0 else 0.0


def kernel_margin_from_above(K: np.ndarray, error: np.ndarray, alpha: np.ndarray) -> float:
    """sqrt(αᵀKα)/Σα from above, for α >= 0 and signed kernel values known to within `error`."""
    if (alpha < 0).any() or not alpha.any():
        return math.inf
    values, rounding = _product(K, alpha)
    doubt = (error @ alpha) * (1 + 2 * (len(K) + 4) * UNIT) + rounding
    square = math.fsum(alpha * values) + math.fsum(alpha * (doubt + 4 * UNIT * np.abs(values)))
    return math.sqrt(max(square, 0.0)) / (math.fsum(alpha) * (1 - 2 * UNIT)) * (1 + 8 * UNIT)


def _product(K: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(Kv, bound on its error), in doubled precision, in blocks of rows."""
    step = max(1, 2**21 // K.shape[1])
    parts = [dot2(K[start : start + step], v) for start in range(0, len(K), step)]
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
