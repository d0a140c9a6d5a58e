"""The signed rows z_i = s_i x̃_i of a problem, read in blocks: X may be larger than memory.

x̃ is x, or (x, 1) with a bias; the constant column is never stored. A power-of-two factor `scale` keeps squares
inside float range and is exact.
"""

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from marginflow._core.errors import InputError
from marginflow.data.dataset import BLOCK_BYTES, Dataset

ORDINARY = (1e-60, 1e60)  # sizes whose squares stay far inside float range
LARGEST = 999  # log2 of margins, up or down, at which the vectors of size 1/margin still have all their digits


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

    def take(self, rows) -> np.ndarray:
        """The listed rows (positions in `index`) as a float64 matrix."""
        rows = np.asarray(rows, dtype=np.intp)
        Z = np.empty((len(rows), self.d))
        Z[:, : self.X.shape[1]] = self.X[self.index[rows]]
        if self.bias:
            Z[:, -1] = 1.0
        Z *= (self.scale * self.sign[rows])[:, None]
        return Z

    def negated(self) -> "SignedRows":
        return dataclasses.replace(self, sign=-self.sign)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray | slice]]:
        """(positions, a run of X in float64 without sign, scale or bias, which rows of the run are meant).

        Runs are contiguous: multiplying a few rows too many costs less than gathering the ones that count.
        """
        everything = len(self.index) == len(self.X)
        step = max(1, BLOCK_BYTES // (8 * self.X.shape[1]))
        for low in range(0, len(self.X), step):
            high = min(low + step, len(self.X))
            start, stop = np.searchsorted(self.index, (low, high))
            if start < stop:
                run = np.asarray(self.X[low:high], dtype=np.float64)
                yield slice(start, stop), run, slice(None) if everything else self.index[start:stop] - low

    def products(self, w: np.ndarray) -> np.ndarray:
        """z_iᵀw for every row, one pass over X."""
        out = np.empty(self.n)
        head = np.ascontiguousarray(w[: self.X.shape[1]]) * self.scale
        for at, run, chosen in self.blocks():
            out[at] = (run @ head)[chosen]
        if self.bias:
            out += w[-1] * self.scale
        out *= self.sign
        return out

    def norms(self) -> np.ndarray:
        """‖z_i‖ for every row; one pass over X, the first time."""
        return self._norms

    @cached_property
    def _norms(self) -> np.ndarray:
        out = np.empty(self.n)
        for at, run, chosen in self.blocks():
            run = run if self.scale == 1.0 else run * self.scale
            with np.errstate(over="ignore"):
                squares = np.linalg.vecdot(run, run)[chosen]
            if self.bias:
                squares += self.scale**2
            out[at] = np.sqrt(squares)
            odd = np.flatnonzero(~((squares > 1e-250) & (squares < 1e250)))
            if len(odd):  # squares left float range: scale each row by its largest entry first
                part = run[chosen][odd]
                top = np.maximum(np.abs(part).max(axis=1), self.scale if self.bias else 0.0)
                unit = np.where(top > 0, top, 1.0)
                rest = np.sum((part / unit[:, None]) ** 2, axis=1) + (
                    (self.scale / unit) ** 2 if self.bias else 0.0
                )
                out[at.start + odd] = top * np.sqrt(rest)
        return out

    def weighted_sum(self, weight: np.ndarray) -> np.ndarray:
        """Σ weight_i z_i, one pass over X."""
        weight = weight * (self.sign * self.scale)
        total = np.zeros(self.d)
        for at, run, chosen in self.blocks():
            full = np.zeros(len(run))
            full[chosen] = weight[at]
            total[: self.X.shape[1]] += full @ run
        if self.bias:
            total[-1] = weight.sum()
        return total


def signed_rows(data: Dataset, kind: str, bias: bool) -> SignedRows:
    """kind "linear": y_i x̃_i over all rows; "positive", "negative": x̃_i over one class, no sign flip."""
    if kind == "linear":
        index, sign = np.arange(data.n), np.asarray(data.y)
    else:
        index = data.positive if kind == "positive" else data.negative
        sign = np.ones(len(index))
    rows = SignedRows(data.X, index, sign, bias)
    if ORDINARY[0] < rows.norms().max() < ORDINARY[1]:
        return rows
    scale = power_of_two(data.X)
    if bias and scale > 1.0:
        scale = 1.0  # the column of ones is the largest
    refuse_beyond_range(1.0 / scale, 1, data.name)
    return dataclasses.replace(rows, scale=scale)


def refuse_beyond_range(size: float, power: int, name: str) -> None:
    """A margin of the order of size^power must be a float, and the vector that attains it too."""
    if size > 0 and abs(power * np.log2(size)) > LARGEST:
        raise InputError(
            f"{name}: a margin near 1e{power * np.log10(size):+.0f}, or the vector that attains it, is beyond float "
            "range; multiply the data by a power of ten that brings their largest entry near 1, which changes "
            "nothing else"
        )


def power_of_two(X: np.ndarray) -> float:
    """1 for data of ordinary size; otherwise the power of two that brings the largest entry near 1."""
    step = max(
        1, BLOCK_BYTES // (64 * X.shape[1])
    )  # small enough for the second look to find the block in cache
    blocks = (X[start : start + step] for start in range(0, len(X), step))
    top = max(max(float(block.max()), -float(block.min())) for block in blocks)
    return (
        1.0
        if ORDINARY[0] < top < ORDINARY[1] or top == 0
        else float(2.0 ** -np.clip(np.round(np.log2(top)), -1000, 1000))
    )
