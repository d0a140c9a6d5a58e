"""A matrix whose rows arrive in blocks: in memory while it is small, past that in a temporary memory-mapped file.

The file has no name on disk and goes when the last array that maps it goes.
"""

import tempfile
from collections.abc import Iterable

import numpy as np

MEMORY_BYTES = 512 * 2**20


def gather(blocks: Iterable[np.ndarray], dtype: np.dtype, columns: int) -> np.ndarray:
    """The (n, columns) array of all rows, read-only; a memory map once it is larger than MEMORY_BYTES."""
    dtype = np.dtype(dtype)
    held: list[np.ndarray] = []
    rows, file = 0, None
    for block in blocks:
        block = np.ascontiguousarray(block, dtype)
        rows += len(block)
        if file is None:
            held.append(block)
            if rows * columns * dtype.itemsize > MEMORY_BYTES:
                file = tempfile.TemporaryFile()
                for earlier in held:
                    file.write(earlier.data.cast("B"))
                held.clear()
        elif block.size:
            file.write(block.data.cast("B"))
    if file is None:
        matrix = np.concatenate(held) if held else np.empty((0, columns), dtype)
        matrix.flags.writeable = False
        return matrix
    file.flush()
    return np.memmap(file, dtype, mode="r", shape=(rows, columns))
