"""Numbers of other types as float64, exactly or not at all; the refusals that name a row and a column."""

from collections.abc import Sequence

import numpy as np

from marginflow._core.errors import InputError

LARGEST_EXACT = 2**53


def float_type(dtype: np.dtype, where: str) -> np.dtype:
    """float32 and float64 stay as they are; every other real type is read as float64."""
    native = dtype.newbyteorder("=")
    if native in (np.float64, np.float32):
        return native
    if dtype.kind in "buif" or dtype.name == "bfloat16":
        return np.dtype(np.float64)
    raise InputError(
        f"{where}: X has type {dtype}, which is not a type of real numbers; convert it to float64 first"
    )


def as_float(
    block: np.ndarray, where: str, start: int = 0, columns: Sequence[str] | None = None
) -> np.ndarray:
    """`block` in its float type. An integer or extended float that float64 cannot hold is refused, never rounded."""
    target = float_type(block.dtype, where)
    if block.dtype == target:
        return block
    with np.errstate(over="ignore"):
        result = block.astype(target)
    if block.dtype.kind in "ui" and block.dtype.itemsize == 8:
        inexact = ~_exact_integers(block)
    elif block.dtype.kind == "f" and block.dtype.itemsize > 8:
        inexact = (result.astype(block.dtype) != block) & np.isfinite(block)
    else:
        return result
    if inexact.any():
        row, column = np.argwhere(inexact)[0]
        raise InputError(
            f"{where}: {place(start + row, column, columns)} is {block[row, column]}, which float64 cannot "
            "hold exactly; rescale the column or convert it to float64 yourself"
        )
    return result


def _exact_integers(block: np.ndarray) -> np.ndarray:
    """An integer is a float64 when its odd part is at most 2^53."""
    size = np.abs(block).astype(np.uint64)  # |int64 min| wraps to itself, which reads as 2^63 unsigned
    large = size > LARGEST_EXACT
    exact = np.ones(block.shape, dtype=bool)
    if large.any():
        suspect = size[large]
        lowest_bit = suspect & (~suspect + np.uint64(1))
        exact[large] = suspect // lowest_bit <= LARGEST_EXACT
    return exact


def refuse_bad_rows(
    block: np.ndarray, where: str, start: int = 0, columns: Sequence[str] | None = None
) -> None:
    """Refuse NaN, infinities and a zero row, by row and column. `start` is the row number of block[0]."""
    finite = np.isfinite(block)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"{where}: {place(start + row, column, columns)} is {block[row, column]}; "
            "remove the row or fill in the value"
        )
    zero = ~block.any(axis=1)
    if zero.any():
        row = start + int(np.argmax(zero))
        raise InputError(
            f"{where}: row {row} is all zeros, which no homogeneous net can classify; "
            "remove it or add a constant column"
        )


def place(row: int, column: int, columns: Sequence[str] | None = None) -> str:
    """Rows and columns are counted from 0, as NumPy counts them."""
    return f"row {row}, column {column}" + (f" ('{columns[column]}')" if columns else "")
