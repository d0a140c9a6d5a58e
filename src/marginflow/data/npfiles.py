"""NumPy files. A .npy is memory-mapped; the members of a .npz are streamed. Nothing is ever unpickled."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from marginflow._core.errors import InputError
from marginflow.data.numbers import as_float, float_type
from marginflow.data.spool import gather

BLOCK_BYTES = 64 * 2**20


def read_npy(path: Path, label: str) -> tuple[np.ndarray, np.ndarray]:
    """X from `path`; labels from the .npy file `label`, or from `points.y.npy` (or `y.npy`) beside `points.npy`."""
    if label.endswith(".npy"):
        return _open_npy(path), np.array(_open_npy(Path(label).expanduser()))
    beside = [path.parent / f"{path.stem}.{label}.npy", path.parent / f"{label}.npy"]
    found = [p for p in beside if p.exists() and p != path]
    if not found:
        raise InputError(
            f"{path}: a .npy file holds no labels; put them in {beside[0].name} or {beside[1].name} beside "
            "it, or name their .npy file as the label"
        )
    return _open_npy(path), np.array(_open_npy(found[0]))


def _open_npy(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (ValueError, EOFError) as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise _pickled(str(path)) from None
        raise InputError(f"{path}: not a readable .npy file; save it again with numpy.save") from None


def read_npz(path: Path, label: str) -> tuple[np.ndarray, np.ndarray]:
    """X and the labels from a .npz; large members stay out of memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            for wanted in ("X", label):
                if wanted not in names:
                    option = " or name the labels with --label" if wanted == label else ""
                    raise InputError(
                        f"{path}: no array '{wanted}' in the file, which holds "
                        f"{', '.join(map(repr, names)) or 'no arrays'}; save it as '{wanted}'{option}"
                    )
            return _member(archive, "X", path), _member(archive, label, path)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise InputError(f"{path}: not a readable .npz file; save it again with numpy.savez") from None


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> np.ndarray:
    where = f"{path}, array '{name}'"
    with archive.open(f"{name}.npy") as stream:
        try:
            shape, fortran, dtype = _header(stream)
        except ValueError:
            raise InputError(f"{where}: not a readable array; save it again with numpy.savez") from None
        if dtype.hasobject:
            raise _pickled(where)
        if len(shape) != 2 or fortran or 0 in shape or dtype.kind not in "buif":
            content = np.frombuffer(_exactly(stream, int(np.prod(shape)) * dtype.itemsize, where), dtype)
            return content.reshape(shape, order="F" if fortran else "C")
        blocks = _blocks(stream, shape, dtype, where)
        return gather((as_float(b, where, start) for start, b in blocks), float_type(dtype, where), shape[1])


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _blocks(
    stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype, where: str
) -> Iterator[tuple[int, np.ndarray]]:
    width = shape[1] * dtype.itemsize
    step = max(1, BLOCK_BYTES // width)
    for start in range(0, shape[0], step):
        rows = min(step, shape[0] - start)
        yield start, np.frombuffer(_exactly(stream, rows * width, where), dtype).reshape(rows, shape[1])


def _exactly(stream: IO[bytes], size: int, where: str) -> bytes:
    content = stream.read(size)
    if len(content) != size:
        raise InputError(f"{where}: the file ends before the array does; save it again")
    return content


def _pickled(where: str) -> InputError:
    return InputError(
        f"{where}: holds Python objects, which are never unpickled; save a plain array of numbers or strings"
    )
