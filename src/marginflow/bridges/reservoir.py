"""A uniform sample of the rows of a stream, of bounded size, kept in a file that only the sample's size fills.

The k-th row (k = 0, 1, ...) enters a sample of m with probability m/(k+1) and takes the place of a row drawn uniformly:
every subset of m rows of the stream is equally likely, whatever its length.
"""

import tempfile

import numpy as np

MEMORY_BYTES = (
    64 * 2**20
)  # a sample up to this size is held in memory, a larger one in an unnamed temporary file


class Places:
    """Which place of a sample of `size` each arriving row takes; -1 for none. One object serves all layers."""

    def __init__(self, size: int, seed: int = 0):
        self.size, self.seen, self._rng = size, 0, np.random.default_rng(seed)

    def next(self, rows: int) -> np.ndarray:
        """Places of the next `rows` rows."""
        k = self.seen + np.arange(rows)
        drawn = self._rng.integers(0, k + 1)
        self.seen += rows
        return np.where(k < self.size, k, np.where(drawn < self.size, drawn, -1))


class Sample:
    """Up to `size` rows of `columns` numbers, put into places as the stream decides."""

    def __init__(self, size: int, columns: int, dtype):
        self.bytes = size * columns * np.dtype(dtype).itemsize
        self.spooled = self.bytes > MEMORY_BYTES
        if self.spooled:
            file = tempfile.TemporaryFile()
            file.truncate(self.bytes)
            self._rows = np.memmap(file, dtype, mode="r+", shape=(size, columns))
        else:
            self._rows = np.empty((size, columns), dtype)

    def put(self, places: np.ndarray, rows: np.ndarray) -> None:
        """Rows with place -1 are dropped; of two rows for one place in a batch the later stays."""
        chosen = np.flatnonzero(places >= 0)
        if len(chosen):  # NumPy leaves open which of several writes to one place wins: keep the last of each
            _, last = np.unique(places[chosen][::-1], return_index=True)
            chosen = chosen[len(chosen) - 1 - last]
            self._rows[places[chosen]] = rows[chosen]

    def rows(self, seen: int) -> np.ndarray:
        """The rows filled after `seen` rows have passed."""
        return self._rows[: min(seen, len(self._rows))]
