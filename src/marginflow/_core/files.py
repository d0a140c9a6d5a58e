"""Files that are either the old one or the new one, never half of either."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path beside `path`; on leaving without an error its content is on disk and takes the name `path`.

    The rename is atomic within one file system, hence the same folder. The content is flushed before the rename
    and the folder after it, so a power cut cannot leave the new name on old bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        # mkstemp makes files private; a result file gets the permissions any new file would get.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        _flush(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def write(path: str | os.PathLike, content: bytes) -> None:
    """`content` as the whole of the file `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
