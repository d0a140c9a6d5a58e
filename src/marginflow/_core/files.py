"""Files that are either the old one or the new one, never half of either."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from marginflow._core.errors import InputError


def folder(path: str | os.PathLike) -> Path:
    """The folder `path`, made if need be; refused if nothing can be written there."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: no such folder can be made ({error.strerror}); choose another") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path}: this folder may not be written to; choose another")
    return path


def write(path: str | os.PathLike, content: bytes) -> None:
    """`content` as the whole of the file `path`, in one step.

    Written beside `path` and renamed, which is atomic within a folder. The content is flushed to disk before the
    rename and the folder after it, so that a power cut cannot leave the new name on old bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.part"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # Windows has no handle on a folder to flush
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
