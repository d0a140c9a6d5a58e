"""x_i/‖x_i‖ with proved error bounds, and all pairwise cosines of two sets of rows in blocks through BLAS."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from marginflow._core.exact import UNIT

BLOCK = 512  # rows of a block of pairs
PARTNERS = 1024  # 512 x 1024 cosines in float64 are 4 MB: the pass that looks at them stays in cache
CACHE_BYTES = 400 * 2**20


def unit_rows(rows, dtype=np.float64) -> np.ndarray:
    """Rows divided by their norms; rows whose squares might over- or underflow are first scaled by a power of 2."""
    A = np.asarray(rows, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        squared = np.einsum("ij,ij->i", A, A)
    extreme = ~((squared > 2.0**-900) & (squared < 2.0**900))
    if extreme.any():
        A = A.copy()
        A[extreme] = np.ldexp(A[extreme], -np.frexp(np.abs(A[extreme]).max(axis=1))[1][:, None])
        squared[extreme] = np.einsum("ij,ij->i", A[extreme], A[extreme])
    return (A / np.sqrt(squared)[:, None]).astype(dtype, copy=False)


def norms(rows) -> np.ndarray:
    """‖x_i‖, without over- or underflow on the way; inf only if the norm itself is."""
    A = np.asarray(rows, np.float64)
    top = np.frexp(np.abs(A).max(axis=1))[1]
    scaled = np.ldexp(A, -top[:, None])
    return np.ldexp(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)), top)


def cosine_error(d: int, dtype=np.float64) -> float:
    """|fl(û_iᵀû_j) - cos(x_i, x_j)| for unit rows made and multiplied as here, with u the unit roundoff of dtype.

    ‖x‖ is computed with relative error at most γ_{d/2+2} and each entry of û is one division (and one rounding
    to dtype) away from exact, so each product of entries is off by a factor (1 + δ)^{d+9}, and the sum adds γ_d:
    γ_{2d+9} Σ|û_ik||û_jk| <= γ_{2d+9}(1 + small) by Cauchy-Schwarz. 2d + 16 leaves room for the second-order
    terms and for entries that underflow (each at most 2^-149 beside unit norms).
    """
    u = UNIT if dtype == np.float64 else 2.0**-24
    return (2 * d + 16) * u / (1 - (2 * d + 16) * u)


Block = tuple[np.ndarray, np.ndarray, np.ndarray, int, int]


@dataclasses.dataclass(frozen=True)
class Side:
    """Rows of one class in decreasing order of `angle`, a proved upper bound of the angle to an axis."""

    rows: np.ndarray
    angle: np.ndarray


class Cosines:
    """Blocks of cosines between sides of one matrix, which may be memory-mapped: at most ~0.5 GB is held."""

    def __init__(self, X: np.ndarray):
        self.X, self.dtype = X, X.dtype.type
        self.error = cosine_error(X.shape[1], self.dtype)
        self._buffer = np.empty(BLOCK * PARTNERS, self.dtype)

    def _units(self, side: Side, count: int):
        """k, l -> unit rows of side.rows[k:l]; computed once if they fit, else block by block."""
        if count * self.X.shape[1] * self.X.itemsize > CACHE_BYTES // 2:
            return lambda k, l: unit_rows(self.X[side.rows[k:l]], self.dtype)
        units = np.empty((count, self.X.shape[1]), self.dtype)
        for k in range(0, count, 4 * PARTNERS):
            l = min(count, k + 4 * PARTNERS)
            units[k:l] = unit_rows(self.X[side.rows[k:l]], self.dtype)
        return lambda k, l: units[k:l]

    def blocks(self, left: Side, right: Side, limit: float, least: int = 0) -> Iterator[Block]:
        """(rows i, rows j, cosines, k, s) covering every pair with angle_i + angle_j >= limit, widest first.

        Also every pair among the `least` first rows of both sides. k and s are the positions of the block's first
        rows in the two sides: with left is right, i = j comes too and some unordered pairs come twice. The cosines
        live in a buffer that the next block overwrites.
        """
        same = left is right
        reach = partners(left, right, limit)
        reach[:least] = np.maximum(reach[:least], min(least, len(right.rows)))
        stop_left = int(np.count_nonzero(reach > (np.arange(len(reach)) if same else 0)))
        if stop_left == 0:
            return
        a = self._units(left, int(reach[0]) if same else stop_left)
        b = a if same else self._units(right, int(reach[0]))
        for k in range(0, stop_left, BLOCK):
            l = min(stop_left, k + BLOCK)
            yield from self._row(left, right, (k, l), a(k, l), b, k if same else 0, int(reach[k]))

    def rectangle(self, left: Side, right: Side, of_left: tuple[int, int], of_right: tuple[int, int]):
        """The same for every pair of left.rows[k:l] and right.rows[s:t]."""
        units = lambda s, t: unit_rows(self.X[right.rows[s:t]], self.dtype)  # noqa: E731
        for k in range(*of_left, BLOCK):
            l = min(of_left[1], k + BLOCK)
            A = unit_rows(self.X[left.rows[k:l]], self.dtype)
            yield from self._row(left, right, (k, l), A, units, *of_right)

    def _row(self, left: Side, right: Side, at: tuple[int, int], A, b, first: int, last: int) -> Iterator[Block]:
        k, l = at
        for s in range(first, last, PARTNERS):
            t = min(last, s + PARTNERS)
            P = self._buffer[: (l - k) * (t - s)].reshape(l - k, t - s)
            np.matmul(A, b(s, t).T, out=P)
            yield left.rows[k:l], right.rows[s:t], P, k, s


def partners(left: Side, right: Side, limit: float) -> np.ndarray:
    """For each row of `left` how many leading rows of `right` have angle_i + angle_j >= limit; non-increasing."""
    return np.searchsorted(-right.angle, -(limit - left.angle), side="right")
