"""The folder of a sweep: what it is, what is done, and who is writing.

    sweep.json       the spec, and what began it
    parts/NNNNNN.json   the results of one task, put there in one step when the task is done
    results.nc       everything so far, read by xarray; replaced in one step, made from the parts
    lock             held by the process that writes

A task is done when its part is there: nothing else is believed. Parts are written by one process, so workers need
no access to the folder.
"""

import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from marginflow._core import files
from marginflow._core.errors import InputError
from marginflow._core.record import jsonable
from marginflow._core.version import __version__
from marginflow.experiments.sweeps.cells import QUANTITIES, Row, Task
from marginflow.experiments.sweeps.spec import Spec, spec

FORMAT, VERSION = "marginflow-sweep", 1
BEAT_SECONDS = 30.0
STALE_SECONDS = 4 * BEAT_SECONDS  # of a lock held on another host: it is touched every BEAT_SECONDS


class Folder:
    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.parts = self.path / "parts"
        self.results = self.path / "results.nc"

    # what the sweep is

    def begin(self, asked: Any, wanted: Spec, provenance: Any) -> None:
        """Claim an empty folder for this sweep, or find that it is the same one."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path}: a file is in the way; give the name of a folder")
        if self.manifest_path.exists():
            manifest = self.manifest()
            if manifest["fingerprint"] != wanted.fingerprint:
                raise InputError(
                    f"{self.path}: holds another sweep; give the spec it was begun with, or a new folder"
                )
            if manifest["marginflow"] != __version__:
                raise InputError(
                    f"{self.path}: begun by marginflow {manifest['marginflow']}, this is {__version__}; "
                    "go on with that version, or give a new folder"
                )
            return
        foreign = [p.name for p in self.path.iterdir() if p.name != "lock" and not p.name.endswith(".part")]
        if foreign:
            raise InputError(f"{self.path}: holds '{min(foreign)}' and no sweep; give a new folder")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "marginflow": __version__,
            "fingerprint": wanted.fingerprint,
            "cells": len(wanted.cells),
            "spec": asked,
            "provenance": provenance,
        }
        self._write(self.manifest_path, (json.dumps(jsonable(manifest), indent=1) + "\n").encode())

    @property
    def manifest_path(self) -> Path:
        return self.path / "sweep.json"

    def manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads(self.manifest_path.read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT or manifest["version"] != VERSION:
                raise ValueError(f"format {manifest['format']} {manifest['version']}")
            return manifest
        except FileNotFoundError:
            raise InputError(f"{self.path}: no sweep here; give the folder that --out named") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{self.manifest_path}: cannot be read ({error}); begin again in a new folder"
            ) from None

    # what is done

    def part(self, task: Task) -> Path:
        return self.parts / f"{task.index:06d}.json"

    def keep(self, task: Task, result: dict[str, Any]) -> None:
        self._write(self.part(task), (json.dumps(jsonable(result), allow_nan=False) + "\n").encode())

    def kept(self, task: Task) -> list[Row] | None:
        """The rows of a finished task, None if it is not finished."""
        path = self.part(task)
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            if sorted(r["cell"] for r in rows) == sorted(task.positions):
                return rows
            reason = "not of this task"
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error)
        raise InputError(f"{path}: damaged ({reason}); remove the file, and its cells are computed again")

    def snapshot(self, wanted: Spec, rows: dict[int, Row]) -> None:
        content = bytes(dataset(wanted, rows).to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
        self._write(self.results, content)

    def sweep_up(self) -> None:
        """Remove what a killed process left half written."""
        for folder in (self.path, self.parts):
            for path in folder.glob(".*.part") if folder.is_dir() else ():
                with suppress(OSError):
                    path.unlink()

    def _write(self, path: Path, content: bytes) -> None:
        try:
            files.write(path, content)
        except OSError as error:
            _full(path, error)

    # who is writing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process. The kernel lets go of the lock of a process that was killed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / "lock", "a+")
        except OSError as error:
            _full(self.path, error)
        with file:
            if not _take(file):
                raise InputError(
                    f"{self.path}: {_holder(file)} is writing here; wait for it, or give another folder"
                )
            if _fresh_elsewhere(file):  # file systems that keep locks per host
                raise InputError(
                    f"{self.path}: {_holder(file)} is writing here; wait for it, or remove {self.path / 'lock'} "
                    f"if it is gone for more than {STALE_SECONDS:.0f} s"
                )
            _sign(file, f"pid {os.getpid()} on {socket.gethostname()}")
            try:
                yield
            finally:
                _sign(file, "")

    def beat(self) -> None:
        with suppress(OSError):
            os.utime(self.path / "lock")


def _full(path: Path, error: OSError) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise InputError(
            f"{path}: the disk is full; what was done is kept; free some space and repeat the command"
        ) from None
    raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _take(file: Any) -> bool:
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            file.seek(2**30)  # a byte beyond the text, which stays readable
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        return True
    except OSError:
        return False


def _holder(file: Any) -> str:
    file.seek(0)
    return file.read().strip() or "another process"


def _fresh_elsewhere(file: Any) -> bool:
    holder = _holder(file)
    host = holder.rpartition(" on ")[2]
    fresh = time.time() - os.fstat(file.fileno()).st_mtime < STALE_SECONDS
    return holder != "another process" and host != socket.gethostname() and fresh


def _sign(file: Any, text: str) -> None:
    with suppress(OSError):  # the lock holds without a name in it
        file.seek(0)
        file.truncate()
        file.write(text)
        file.flush()


def load(path: str | os.PathLike) -> Any:
    """Everything a sweep has so far as an xarray.Dataset over the dimension `cell`, read from its parts."""
    from marginflow.experiments.sweeps.cells import tasks

    folder = Folder(path)
    wanted = spec(folder.manifest()["spec"])
    rows = {row["cell"]: row for task in tasks(wanted) for row in folder.kept(task) or ()}
    return dataset(wanted, rows)


def dataset(wanted: Spec, rows: dict[int, Row]) -> Any:
    """One entry per cell of the spec, done or not: axes as coordinates, results as variables.

    state: done, failed (an error, or a run that diverged) or pending. Numbers that a cell lacks are nan.
    """
    import xarray

    count = len(wanted.cells)
    found = [rows.get(k) for k in range(count)]
    text = lambda name, default: np.array([default if r is None else str(r[name]) for r in found], dtype=str)  # noqa: E731
    variables: dict[str, Any] = {
        "state": ("cell", text("state", "pending")),
        "outcome": ("cell", text("outcome", "")),
        "message": ("cell", text("message", "")),
        "data_sha256": ("cell", text("data_sha256", "")),
    }
    for name in QUANTITIES:
        values = [np.nan if r is None else float(r["quantities"].get(name, np.nan)) for r in found]
        variables[name] = ("cell", np.array(values, float))
    coordinates: dict[str, Any] = {
        name if name not in variables else f"{name}_": (
            "cell",
            _column([cell.get(name) for cell in wanted.cells]),
        )
        for name in wanted.axes
    }
    if wanted.verify:
        coordinates["theorem"] = ("theorem", np.array(wanted.verify, dtype=str))
        for name in ("status", "conclusions"):
            table = [
                ["" if r is None else r["verdicts"].get(key, {}).get(name, "") for key in wanted.verify]
                for r in found
            ]
            variables[f"verdict_{name}"] = (("cell", "theorem"), np.array(table, dtype=str))
    attributes = {
        "title": "marginflow sweep",
        "axes": json.dumps(wanted.axes),
        "fixed": json.dumps(dict(wanted.fixed)),
        "fingerprint": wanted.fingerprint,
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _column(values: list[Any]) -> np.ndarray:
    """Numbers where all are numbers (nan where a cell has none), texts otherwise."""
    present = [v for v in values if v is not None]
    if present and all(type(v) is bool for v in present) and len(present) == len(values):
        return np.array(values, np.int8)
    if all(type(v) in (int, float) for v in present):
        whole = len(present) == len(values) and all(type(v) is int and abs(v) < 2**31 for v in values)
        return (
            np.array(values, np.int32)
            if whole
            else np.array([np.nan if v is None else v for v in values], float)
        )
    return np.array(["" if v is None else str(v) for v in values], dtype=str)
