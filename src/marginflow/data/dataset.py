"""The data set: rows x_i, labels y_i = ±1, a name, where it came from, and a hash of its content."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table
from marginflow.data.labels import signs
from marginflow.data.numbers import as_float, float_type, refuse_bad_rows
from marginflow.data.spool import gather

BLOCK_BYTES = 64 * 2**20


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(Record):
    """X: (n, d) float64 or float32, possibly memory-mapped; y: (n,) of ±1. Both are read-only.

    Arrays, tensors and data frames are accepted. float32 and float64 are kept; integers and booleans become
    float64, and an integer that float64 cannot hold is refused. An array that its owner could still write to is
    copied; a read-only array or a memory map is not.
    Refused, by name and row: NaN and infinities, a zero row, one class only, ragged or empty input.
    `classes` are the original labels mapped to -1 and +1.
    """

    X: np.ndarray
    y: np.ndarray
    name: str = "data"
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classes: tuple[str, str] = ("-1", "1")

    def __post_init__(self):
        X = _matrix(self.X, self.name)
        y, classes = signs(_array(self.y, "y", self.name), self.name)
        if len(y) != len(X):
            raise InputError(
                f"{self.name}: X has {len(X)} rows but y has {len(y)} labels; give one label per row"
            )
        for start, block in _row_blocks(X):
            refuse_bad_rows(block, self.name, start)
        y.flags.writeable = False
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "provenance", dict(self.provenance))
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
            h.update(np.ascontiguousarray(block + 0.0).data)  # -0.0 and 0.0 are the same number
        h.update(self.y.astype(np.int8).data)
        return h.hexdigest()

    def blocks(self) -> Iterator[np.ndarray]:
        """X in row blocks of bounded memory."""
        return (block for _, block in _row_blocks(self.X))

    def with_bias(self) -> "Dataset":
        """x̃ = (x, 1)."""
        X = gather(
            (np.concatenate([b, np.ones((len(b), 1), b.dtype)], axis=1) for b in self.blocks()),
            self.X.dtype,
            self.d + 1,
        )
        return Dataset(X, self.y, f"{self.name}+bias", {**self.provenance, "bias": True}, self.classes)

    def take(self, rows) -> "Dataset":
        """The examples of `rows`: indices, or one boolean per example."""
        rows = np.arange(self.n)[np.asarray(rows)]
        return Dataset(
            self.X[rows], self.y[rows], f"{self.name}[{len(rows)} rows]", self.provenance, self.classes
        )

    def table(self) -> Table:
        rows = (
            ("examples n", str(self.n)),
            ("dimension d", str(self.d)),
            ("positive / negative", f"{len(self.positive)} / {len(self.negative)}"),
            ("labels", f"-1 = {self.classes[0]}, +1 = {self.classes[1]}"),
            ("precision", str(self.X.dtype)),
            ("sha256", self.sha256[:16]),
        )
        return Table(self.name, ("dataset", ""), rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "n": self.n,
            "d": self.d,
            "n_positive": len(self.positive),
            "n_negative": len(self.negative),
            "classes": list(self.classes),
            "dtype": str(self.X.dtype),
            "sha256": self.sha256,
            "provenance": dict(self.provenance),
        }


def _matrix(given: Any, name: str) -> np.ndarray:
    """`given` as a read-only float matrix that nobody else can change."""
    X = _array(given, "X", name)
    if X.ndim != 2 or X.size == 0:
        raise InputError(f"{name}: X has shape {X.shape}; give a non-empty matrix with one row per example")
    target = float_type(X.dtype, name)
    if X.dtype != target:
        X = gather((as_float(block, name, start) for start, block in _row_blocks(X)), target, X.shape[1])
    if isinstance(X, np.memmap):
        X = X.view()
    else:
        X = np.ascontiguousarray(X)
        X = X.copy() if _writable(X) else X.view()
    X.flags.writeable = False
    return X


def _array(given: Any, which: str, name: str) -> np.ndarray:
    if isinstance(given, np.ndarray):
        return given
    try:
        return to_numpy(given)
    except ValueError:
        raise InputError(f"{name}: {which} is ragged or not an array; give rows of equal length") from None


def _writable(array: Any) -> bool:
    """Whether some holder of the same memory may still write to it."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _row_blocks(X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    step = max(1, BLOCK_BYTES // (X.shape[1] * X.itemsize))
    return ((start, X[start : start + step]) for start in range(0, len(X), step))
