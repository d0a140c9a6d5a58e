"""The data set: rows x_i, labels y_i = ±1, a name, where it came from, and a hash of its content."""

import dataclasses
import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table
from marginflow.data.labels import signs

BLOCK_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(Record):
    """X: (n, d) float64 or float32, possibly memory-mapped; y: (n,) of ±1.

    Construction refuses, by name and row: NaN and infinities, a zero row, one class only, ragged or empty input.
    `classes` are the original labels mapped to -1 and +1.
    """

    X: np.ndarray
    y: np.ndarray
    name: str = "data"
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classes: tuple[str, str] = ("-1", "1")

    def __post_init__(self):
        X = self.X if isinstance(self.X, np.memmap) else to_numpy(self.X)
        if X.ndim != 2 or X.size == 0:
            raise InputError(f"{self.name}: X has shape {X.shape}; give a non-empty matrix with one row per example")
        if X.dtype not in (np.float64, np.float32):
            if not (np.issubdtype(X.dtype, np.number) or X.dtype == bool) or np.iscomplexobj(X):
                raise InputError(f"{self.name}: X has type {X.dtype}; give real numbers")
            X = X.astype(np.float64)
        y, classes = signs(to_numpy(self.y), self.name)
        if len(y) != len(X):
            raise InputError(f"{self.name}: X has {len(X)} rows but y has {len(y)} labels; give one label per row")
        _refuse_bad_rows(X, self.name)
        if not isinstance(X, np.memmap):
            X = np.ascontiguousarray(X)
            if X is self.X or np.shares_memory(X, to_numpy(self.X)):
                X = X.view()
            X.flags.writeable = False
        y.flags.writeable = False
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        if classes is not None:
            object.__setattr__(self, "classes", classes)

    @property
    def n(self) -> int:
        return self.X.shape[0]

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @cached_property
    def positive(self) -> np.ndarray:
        """Rows of I+."""
        return np.flatnonzero(self.y > 0)

    @cached_property
    def negative(self) -> np.ndarray:
        """Rows of I-."""
        return np.flatnonzero(self.y < 0)

    @cached_property
    def sha256(self) -> str:
        """Hash of shape, precision, X and y; equal data have equal hashes whatever file they came from."""
        h = hashlib.sha256(f"{self.X.shape}{self.X.dtype.str}".encode())
        for block in self.blocks():
            h.update(np.ascontiguousarray(block))
        h.update(np.ascontiguousarray(self.y, dtype=np.int8))
        return h.hexdigest()

    def blocks(self):
        """X in row blocks of bounded memory."""
        step = max(1, BLOCK_BYTES // (self.d * self.X.itemsize))
        for start in range(0, self.n, step):
            yield self.X[start : start + step]

    def with_bias(self) -> "Dataset":
        """x̃ = (x, 1)."""
        X = np.concatenate([self.X, np.ones((self.n, 1), self.X.dtype)], axis=1)
        return Dataset(X, self.y, f"{self.name}+bias", {**self.provenance, "bias": True}, self.classes)

    def take(self, rows) -> "Dataset":
        rows = np.asarray(rows)
        return Dataset(self.X[rows], self.y[rows], f"{self.name}[{len(rows)} rows]", dict(self.provenance), self.classes)

    def table(self) -> Table:
        rows = (("examples n", str(self.n)), ("dimension d", str(self.d)),
                ("positive / negative", f"{len(self.positive)} / {len(self.negative)}"),
                ("labels", f"-1 = {self.classes[0]}, +1 = {self.classes[1]}"),
                ("precision", str(self.X.dtype)), ("sha256", self.sha256[:16]))
        return Table(self.name, ("dataset", ""), rows)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "n": self.n, "d": self.d, "n_positive": len(self.positive),
                "n_negative": len(self.negative), "classes": list(self.classes), "dtype": str(self.X.dtype),
                "sha256": self.sha256, "provenance": dict(self.provenance)}


def _refuse_bad_rows(X: np.ndarray, name: str) -> None:
    step = max(1, BLOCK_BYTES // (X.shape[1] * X.itemsize))
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise InputError(f"{name}: row {start + row}, column {column} is {block[row, column]}; "
                             "remove the row or fill in the value")
        zero = ~block.any(axis=1)
        if zero.any():
            row = start + int(np.argmax(zero))
            raise InputError(f"{name}: row {row} is all zeros, which no homogeneous net can classify; "
                             "remove it or add a constant column")
