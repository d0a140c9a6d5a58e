"""Signs of dot products, ranks and dependences decided exactly for the numbers that are stored.

A stored float is a rational number m 2^e, so each question here has an answer that rounding may not change.
Filters with proved error bounds answer almost every case at the speed of BLAS; what they leave open goes to
arithmetic without error: sums of exact products (`math.fsum`), Python integers, or residues modulo a prime.
"""

import math
from fractions import Fraction

import numpy as np

UNIT = 2.0**-53  # unit roundoff of float64
PRIMES = (2147483647, 2147483629)  # the two largest primes below 2^31: products of residues fit in int64


def dot(x, y) -> Fraction:
    """xᵀy of the stored numbers."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    mx, ex = _integers(x)
    my, ey = _integers(y)
    total = sum((int(a) * int(b) << int(e)) for a, b, e in zip(mx, my, (ex - ex.min()) + (ey - ey.min()), strict=True))
    shift = int(ex.min()) + int(ey.min())
    return Fraction(total << shift) if shift >= 0 else Fraction(total, 1 << -shift)


def nearest(value: Fraction) -> float:
    """The float nearest to a fraction, ±inf beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def cosine(x, y) -> float:
    """cos(x, y), its numerator exact: an exact zero is 0, and no size of x and y over- or underflows."""
    shift = [int(np.frexp(np.abs(np.asarray(v, np.float64)).max())[1]) for v in (x, y)]
    unit = (np.ldexp(np.asarray(v, np.float64), -e) for v, e in zip((x, y), shift, strict=True))
    length = [float(np.linalg.norm(v)) for v in unit]
    return nearest(dot(x, y) / Fraction(2) ** sum(shift)) / (length[0] * length[1])


def combine(coefficients, rows) -> list[Fraction]:
    """Σ_i c_i rows_i, entry by entry; coefficients are Fractions, integers or floats."""
    rows = np.asarray(rows, np.float64)
    c = [Fraction(a) for a in coefficients]
    return [sum((a * Fraction(float(v)) for a, v in zip(c, column, strict=True)), Fraction(0)) for column in rows.T]


def dot_signs(A, B) -> np.ndarray:
    """sign(A_kᵀB_k) for every k, each decided exactly; A and B are (m, d) arrays of float64 or float32.

    First `dot2` with its bound; |x|ᵀ|y| = 0 without underflow is an exact zero. What is left is summed without
    error: each product split into its rounded value and its error, which fsum adds exactly. Where splitting
    might over- or underflow: integers.
    """
    A, B = np.atleast_2d(np.asarray(A, np.float64)), np.atleast_2d(np.asarray(B, np.float64))
    value, bound = dot2(A, B)
    sure = np.abs(value) > bound
    signs = np.where(sure, np.sign(value), 0).astype(np.int8)
    for k in np.flatnonzero(~sure):
        signs[k] = _sign(A[k], B[k])
    return signs


def dot2(A, B) -> tuple[np.ndarray, np.ndarray]:
    """(v, b) with |v_k - A_kᵀB_k| <= b_k: as if in twice the working precision (Ogita, Rump & Oishi 2005).

    Their bound is u|xᵀy| + γ_d² |x|ᵀ|y|, stated here for the computed quantities with a factor 1.1 for their own
    rounding; 8d 2^-1074 covers underflow in the splitting. Overflow gives b = inf.
    """
    A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
    d = A.shape[1]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        total, error = np.zeros(len(A)), np.zeros(len(A))
        size = np.zeros(len(A))
        for x, y in zip(A.T, B.T, strict=True):
            p, e = two_product(x, y)
            total, f = two_sum(total, p)
            error += e + f
            size += np.abs(p)
        value = total + error
        bound = 1.1 * (UNIT * np.abs(value) + (d * UNIT / (1 - d * UNIT)) ** 2 * size) + 8 * d * 2.0**-1074
    return value, np.where(np.isfinite(value) & np.isfinite(bound), bound, np.inf)


def block_signs(A, B) -> np.ndarray:
    """sign(A_iᵀB_j) for every pair, each decided exactly; made for blocks in which very many products are 0.

    Rows on a common grid (integer data) need one exact matrix product; disjoint supports show as |x|ᵀ|y| = 0.
    """
    A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
    d = A.shape[1]
    tame = all(_tame(M) for M in (A, B))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        value = A @ B.T
        if tame and grid_bits(A).max() + grid_bits(B).max() + math.ceil(math.log2(d)) <= 53:
            return np.sign(value).astype(np.int8)
        size = np.abs(A) @ np.abs(B).T
        # |fl(xᵀy) - xᵀy| <= γ_d |x|ᵀ|y| for any order of summation; d + 2 covers the rounding of `size` itself.
        sure = (np.abs(value) > 1.01 * (d + 2) * UNIT * size + d * 2.0**-1074) & np.isfinite(size)
    signs = np.where(sure, np.sign(value), 0).astype(np.int8)
    i, j = np.nonzero(~sure & (size != 0) if tame else ~sure)
    step = max(1, 2**20 // d)
    for k in range(0, len(i), step):
        a, b = i[k : k + step], j[k : k + step]
        signs[a, b] = dot_signs(A[a], B[b])
    return signs


def _tame(M: np.ndarray) -> bool:
    """No product or sum of products of such entries over- or underflows."""
    size = np.abs(M)
    return size.max(initial=0.0) < 2.0**400 and np.where(size == 0, 1.0, size).min(initial=1.0) > 2.0**-400


def exceeds(A, B, tolerance: float) -> np.ndarray:
    """Whether A_kᵀB_k > tolerance ‖A_k‖‖B_k‖, for every k, decided exactly for stored numbers and tolerance >= 0."""
    if tolerance == 0:
        return dot_signs(A, B) > 0
    A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
    value, bound = dot2(A, B)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        sizes = np.einsum("kd,kd->k", A, A), np.einsum("kd,kd->k", B, B)
        line = tolerance * np.sqrt(sizes[0]) * np.sqrt(sizes[1])
        open_ = ~(np.abs(value - line) > bound + (A.shape[1] + 8) * 2 * UNIT * line)
    open_ |= np.any([~((s > 2.0**-900) & (s < 2.0**900)) for s in sizes], axis=0)
    result = value > line
    for k in np.flatnonzero(open_):
        result[k] = cosine_above(A[k], B[k], tolerance)
    return result


def _sign(x: np.ndarray, y: np.ndarray) -> int:
    both = (x != 0) & (y != 0)
    if not both.any():
        return 0
    x, y = x[both], y[both]
    exponents = np.frexp(x)[1] + np.frexp(y)[1]
    # The error term of a product is a multiple of 2^(exponents - 106) and must not fall below 2^-1074; the
    # split multiplies by 2^27 and must not overflow.
    if exponents.min() < -960 or max(np.frexp(x)[1].max(), np.frexp(y)[1].max(), exponents.max()) > 960:
        return _compare(dot(x, y), 0)
    product, error = two_product(x, y)
    return _compare(math.fsum(np.concatenate([product, error])), 0.0)


def two_product(x, y):
    """(p, e) with p = fl(xy) and p + e = xy exactly, barring over- and underflow (Dekker 1971)."""
    p = x * y
    x1, x2 = _split(x)
    y1, y2 = _split(y)
    return p, x2 * y2 - (((p - x1 * y1) - x2 * y1) - x1 * y2)


def two_sum(a, b):
    """(s, e) with s = fl(a + b) and s + e = a + b exactly, barring overflow (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _split(x):
    c = 134217729.0 * x  # 2^27 + 1
    high = c - (c - x)
    return high, x - high


def _compare(a, b) -> int:
    return int(a > b) - int(a < b)


def cosine_above(x, y, tolerance: float) -> bool:
    """Whether xᵀy > tolerance · ‖x‖‖y‖, decided exactly for the stored numbers and the stored tolerance >= 0."""
    product = dot(x, y)
    if tolerance == 0 or product <= 0:
        return product > 0
    return product**2 > Fraction(tolerance) ** 2 * dot(x, x) * dot(y, y)


def _integers(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m, e) with x = m 2^e, m an int64 of at most 53 bits; subnormals included. e = 0 where x = 0."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    m = np.ldexp(mantissa, 53).astype(np.int64)
    return m, np.where(m == 0, 0, exponent - 53)


def integer_rows(X) -> list[list[int]]:
    """Each row times the power of two that makes it a vector of integers: dependences among rows are unchanged."""
    m, e = _integers(np.atleast_2d(X))
    rows = []
    for mk, ek in zip(m, e, strict=True):
        low = int(ek[mk != 0].min(initial=0)) if (mk != 0).any() else 0
        rows.append([int(a) << (int(b) - low) if a else 0 for a, b in zip(mk, ek, strict=True)])
    return rows


def grid_bits(X) -> np.ndarray:
    """For each row the w with x = 2^l z, z integers below 2^w in size.

    If w_i + w_j + log2(d) <= 53, then every partial sum of z_iᵀz_j is an integer below 2^53: BLAS computes the
    product without error, in whatever order it adds.
    """
    m, e = _integers(X)
    zero = m == 0
    low = np.where(zero, 4096, e + _trailing_zeros(m)).min(axis=1)
    high = np.where(zero, -4096, np.frexp(np.asarray(X, np.float64))[1]).max(axis=1)
    return np.where(zero.all(axis=1), 0, high - low)


def _trailing_zeros(m: np.ndarray) -> np.ndarray:
    lowest = m & -m
    return np.where(m == 0, 0, np.frexp(lowest.astype(np.float64))[1] - 1)


def residues(X, p: int = PRIMES[0]) -> np.ndarray:
    """The stored numbers as residues mod p: 2 is invertible, so every float has one."""
    m, e = _integers(X)
    exponents, where = np.unique(e, return_inverse=True)
    powers = np.array([pow(2, int(k), p) for k in exponents], dtype=np.int64)
    return (m % p) * powers[where.reshape(e.shape)] % p


def ranks_mod(matrices: np.ndarray, p: int = PRIMES[0]) -> np.ndarray:
    """Rank mod p of each matrix of a batch (b, r, c) of residues. A lower bound for the rank over the rationals."""
    M = np.array(matrices, dtype=np.int64)
    batch, rows, columns = M.shape
    rank = np.zeros(batch, dtype=np.int64)
    index, position = np.arange(batch), np.arange(rows)
    for c in range(columns):
        usable = (M[:, :, c] != 0) & (position[None, :] >= rank[:, None])
        found = usable.any(axis=1)
        if not found.any():
            if (rank == rows).all():
                break
            continue
        k, pivot, top = index[found], usable[found].argmax(axis=1), rank[found]
        M[k, pivot], M[k, top] = M[k, top], M[k, pivot]
        row = M[k, top] * inverse(M[k, top, c], p)[:, None] % p
        factor = np.where(position[None, :] > top[:, None], M[k, :, c], 0)
        M[k] = (M[k] - factor[:, :, None] * row[:, None, :] % p) % p
        rank[found] += 1
    return rank


def inverse(a: np.ndarray, p: int) -> np.ndarray:
    """a^(p-2) mod p (Fermat)."""
    result, base, k = np.ones_like(a), a % p, p - 2
    while k:
        if k & 1:
            result = result * base % p
        base, k = base * base % p, k >> 1
    return result


def dependence(X) -> list[int] | None:
    """Integers c, not all 0, with Σ c_i x_i = 0 up to positive powers of two per row; None if the rows are independent.

    `rational_dependence` undoes the powers of two. Fraction-free elimination (Bareiss) on [Z | I].
    """
    Z = integer_rows(X)
    n, d = len(Z), len(Z[0])
    M = [row + [int(i == k) for k in range(n)] for i, row in enumerate(Z)]
    done, previous = 0, 1
    for column in range(d):
        pivot = next((i for i in range(done, n) if M[i][column]), None)
        if pivot is None:
            continue
        M[done], M[pivot] = M[pivot], M[done]
        top = M[done]
        for i in range(done + 1, n):
            head = M[i][column]
            M[i] = [(top[column] * a - head * b) // previous for a, b in zip(M[i], top, strict=True)]
        previous, done = top[column], done + 1
        if done == n:
            return None
    return M[done][d:]


def rational_dependence(X) -> list[Fraction] | None:
    """Fractions c, not all 0, with Σ c_i x_i = 0 exactly; None if the rows are linearly independent."""
    X = np.atleast_2d(np.asarray(X, np.float64))
    c = dependence(X)
    if c is None:
        return None
    scaled = []
    for row, integers, coefficient in zip(X, integer_rows(X), c, strict=True):
        k = next((k for k, v in enumerate(integers) if v), None)
        power = 1 if k is None else Fraction(integers[k]) / Fraction(float(row[k]))
        scaled.append(Fraction(coefficient * power))
    return scaled
