"""Tables: .csv and .parquet with named columns, one of them the label. Read in blocks, so a table may exceed memory.

pyarrow reads both; without it a .csv is read by the standard library. Whatever pyarrow refuses in a .csv is read
again by the standard library, which knows the line and the column to name.
"""

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core.errors import InputError, nearest
from marginflow._core.progress import progress
from marginflow.data.numbers import as_float, place, refuse_bad_rows
from marginflow.data.spool import gather

BATCH_ROWS = 2**14
CSV_BYTES = 2**20  # of text at a time; pyarrow reads up to 32 such blocks ahead
Block = tuple[np.ndarray, np.ndarray]


def read_csv(path: Path, label: str) -> Block:
    header = _header(path)
    features = _features(path, header, label)
    blocks = _arrow_csv(path, header, label)
    try:
        return _collect(path, blocks, np.dtype(np.float64), features)
    except _Unreadable:
        return _collect(path, _plain_csv(path, header, label), np.dtype(np.float64), features)


def read_parquet(path: Path, label: str) -> Block:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"{path}: reading parquet needs pyarrow; install marginflow[parquet]") from None
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid:
        raise InputError(f"{path}: not a readable parquet file; write it again") from None
    with file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in schema.names if name not in index or name == label]
        features = _features(path, names, label)
        dtype = _parquet_type(path, schema, features)
        try:
            return _collect(path, _parquet_blocks(path, file, features, label, dtype), dtype, features)
        except (pa.ArrowInvalid, OSError):
            raise InputError(f"{path}: damaged parquet file; write it again") from None


class _Unreadable(Exception):
    """pyarrow is missing, or refused the file."""


def _collect(path: Path, blocks: Iterator[Block], dtype: np.dtype, features: Sequence[str]) -> Block:
    labels: list[np.ndarray] = []

    def matrices() -> Iterator[np.ndarray]:
        start = 0
        for X, y in blocks:
            refuse_bad_rows(X, str(path), start, features)
            start += len(X)
            labels.append(y)
            yield X

    X = gather(matrices(), dtype, len(features))
    if not len(X):
        raise InputError(f"{path}: no rows beneath the column names; add the data")
    return X, np.concatenate(labels)


def _features(path: Path, names: Sequence[str], label: str) -> list[str]:
    """The columns that are not the label."""
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise InputError(f"{path}: column '{twice}' appears twice; rename one")
    if label not in names:
        near = nearest(label, names)
        hint = f"did you mean --label {near}?" if near else "name the label column with --label"
        shown = ", ".join(f"'{n}'" for n in names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(f"{path}: no label column '{label}' among {shown}; {hint}")
    if len(names) == 1:
        raise InputError(f"{path}: no columns beside the label '{label}'; add the data")
    return [name for name in names if name != label]


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not blank."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            for cells in reader:
                if cells:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.line_num}: {error}; correct the line") from None
        except UnicodeDecodeError:
            raise InputError(
                f"{path}: near line {reader.line_num + 1}: not UTF-8 text; save it as UTF-8"
            ) from None


def _header(path: Path) -> list[str]:
    for _, cells in _rows(path):
        return [cell.strip() for cell in cells]
    raise InputError(f"{path}: the file is empty; the first line must name the columns")


def _plain_csv(path: Path, header: list[str], label: str) -> Iterator[Block]:
    rows = itertools.islice(_rows(path), 1, None)
    column = header.index(label)
    start = 0
    while batch := list(itertools.islice(rows, BATCH_ROWS)):
        X = np.empty((len(batch), len(header) - 1))
        y = []
        for k, (line, cells) in enumerate(batch):
            if len(cells) != len(header):
                raise InputError(
                    f"{path}: line {line} (row {start + k}) has {len(cells)} fields but the header has "
                    f"{len(header)}; every line needs the same columns"
                )
            y.append(cells.pop(column))
            try:
                X[k] = list(map(float, cells))
            except ValueError:
                raise _not_a_number(path, line, start + k, cells, [h for h in header if h != label]) from None
        start += len(batch)
        yield X, np.array(y, dtype=str)


def _not_a_number(path: Path, line: int, row: int, cells: list[str], names: list[str]) -> InputError:
    def number(cell: str) -> bool:
        try:
            float(cell)
        except ValueError:
            return False
        return True

    column = next(k for k, cell in enumerate(cells) if not number(cell))
    said = f"is '{cells[column]}', not a number" if cells[column].strip() else "is empty"
    return InputError(
        f"{path}: line {line}, {place(row, column, names)} {said}; correct it or drop the column"
    )


def _arrow_csv(path: Path, header: list[str], label: str) -> Iterator[Block]:
    try:
        import pyarrow as pa
        import pyarrow.csv as pc
    except ImportError:
        raise _Unreadable from None
    types = {name: pa.string() if name == label else pa.float64() for name in header}
    convert = pc.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    read = pc.ReadOptions(column_names=header, skip_rows_after_names=0, block_size=CSV_BYTES)
    try:
        with open(path, "rb") as file, progress(path.stat().st_size, f"reading {path.name}") as meter:
            _skip_first_line(file)
            with pc.open_csv(file, read_options=read, convert_options=convert) as reader:
                for batch in reader:
                    X = np.stack(
                        [batch.column(k).to_numpy() for k, n in enumerate(header) if n != label], axis=1
                    )
                    meter.to(file.tell())
                    yield X, np.array(batch.column(header.index(label)).to_pylist(), dtype=str)
    except pa.ArrowInvalid:
        raise _Unreadable from None


def _skip_first_line(file: Any) -> None:
    """Past the header: the first line that is not blank."""
    while (line := file.readline()) and not line.strip(b"\xef\xbb\xbf\r\n"):
        pass


def _parquet_type(path: Path, schema: Any, features: Sequence[str]) -> np.dtype:
    import pyarrow.types as types

    for name in features:
        kind = schema.field(name).type
        if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)):
            raise InputError(
                f"{path}: column '{name}' holds {kind}, not numbers; convert it or drop the column"
            )
    single = all(types.is_float32(schema.field(name).type) for name in features)
    return np.dtype(np.float32 if single else np.float64)


def _parquet_blocks(
    path: Path, file: Any, features: Sequence[str], label: str, dtype: np.dtype
) -> Iterator[Block]:
    start = 0
    with progress(file.metadata.num_rows, f"reading {path.name}") as meter:
        for batch in file.iter_batches(BATCH_ROWS, columns=[*features, label]):
            X = np.empty((len(batch), len(features)), dtype)
            for k, name in enumerate(features):
                column = batch.column(batch.schema.get_field_index(name))
                if column.null_count:
                    row = start + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                    raise InputError(
                        f"{path}: {place(row, k, features)} is missing; remove the row or fill in the value"
                    )
                values = column.to_numpy(zero_copy_only=False)[:, None]
                X[:, k] = as_float(values, f"{path}, column '{name}'", start)[:, 0]
            start += len(batch)
            meter.to(start)
            y = batch.column(batch.schema.get_field_index(label)).to_pylist()
            yield X, np.array(["" if v is None else v for v in y] if None in y else y)
