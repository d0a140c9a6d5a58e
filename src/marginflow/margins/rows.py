"""The signed rows z_i = s_i x̃_i of a problem, read in blocks: X may be larger than memory.

x̃ is x, or (x, 1) with a bias; the constant column is never stored. A power-of-two factor `scale` keeps squares
inside float range and is exact.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from marginflow.data.dataset import BLOCK_BYTES, Dataset


@dataclasses.dataclass(frozen=True, eq=False)
class SignedRows:
    """z_i = scale · sign_i · x̃_i for the listed rows of X."""

    X: np.ndarray
    index: np.ndarray  # rows of X that take part, increasing
    sign: np.ndarray  # ±1 per listed row
    bias: bool
    scale: float = 1.0

    @property
    def n(self) -> int:
        return len(self.index)

    @property
    def d(self) -> int:
        return self.X.shape[1] + self.bias

    @property
    def _whole(self) -> bool:
        return len(self.index) == len(self.X)

    def take(self, rows) -> np.ndarray:
        """The listed rows (positions in `index`) as a float64 matrix."""
        rows = np.asarray(rows, dtype=np.intp)
        Z = np.empty((len(rows), self.d))
        Z[:, : self.X.shape[1]] = self.X[self.index[rows]]
        if self.bias:
            Z[:, -1] = 1.0
        Z *= (self.scale * self.sign[rows])[:, None]
        return Z

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """(positions, rows of X in float64 without sign, scale or bias)."""
        step = max(1, BLOCK_BYTES // (8 * self.X.shape[1]))
        for start in range(0, self.n, step):
            at = slice(start, min(start + step, self.n))
            raw = self.X[at] if self._whole else self.X[self.index[at]]
            yield at, np.asarray(raw, dtype=np.float64)

    def products(self, w: np.ndarray) -> np.ndarray:
        """z_iᵀw for every row, one pass over X."""
        out = np.empty(self.n)
        head = np.ascontiguousarray(w[: self.X.shape[1]]) * self.scale
        tail = w[-1] * self.scale if self.bias else 0.0
        for at, block in self.blocks():
            out[at] = block @ head
            if self.bias:
                out[at] += tail
        out *= self.sign
        return out

    def norms(self) -> np.ndarray:
        """‖z_i‖ for every row."""
        out = np.empty(self.n)
        for at, block in self.blocks():
            block = block if self.scale == 1.0 else block * self.scale
            squares = np.einsum("ij,ij->i", block, block)
            if self.bias:
                squares += self.scale**2
            out[at] = np.sqrt(squares)
            odd = ~((squares > 1e-250) & (squares < 1e250))
            if odd.any():
                part = block[odd]
                top = np.maximum(np.abs(part).max(axis=1), self.scale if self.bias else 0.0)
                rest = np.sum((part / top[:, None]) ** 2, axis=1) + ((self.scale / top) ** 2 if self.bias else 0.0)
                out[np.arange(at.start, at.stop)[odd]] = top * np.sqrt(rest)
        return out

    def weighted_sum(self, weight: np.ndarray) -> np.ndarray:
        """Σ weight_i z_i, one pass over X."""
        weight = weight * self.sign
        total = np.zeros(self.d)
        for at, block in self.blocks():
            total[: self.X.shape[1]] += weight[at] @ block
            if self.bias:
                total[-1] += weight[at].sum()
        return total * self.scale


def signed_rows(data: Dataset, kind: str, bias: bool) -> SignedRows:
    """kind "linear": y_i x̃_i over all rows; "positive", "negative": x̃_i over one class, no sign flip."""
    if kind == "linear":
        index, sign = np.arange(data.n), np.asarray(data.y)
    else:
        index = data.positive if kind == "positive" else data.negative
        sign = np.ones(len(index))
    return SignedRows(data.X, index, sign, bias, _power_of_two(data))


def _power_of_two(data: Dataset) -> float:
    """1 for data of ordinary size; otherwise the power of two that brings the largest entry near 1."""
    top = max(float(np.abs(block).max()) for block in data.blocks())
    return 1.0 if 1e-60 < top < 1e60 else float(2.0 ** -np.clip(np.round(np.log2(top)), -1000, 1000))
