"""Running a sweep: tasks that are not done yet, here or on a cluster, each kept as soon as it is done.

Scheduling is dask's. This process alone writes; a worker that is lost costs the tasks it held, which dask gives to
another one; a task that loses three workers in a row is recorded as failed.
"""

import dataclasses
import os
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marginflow._core.errors import InputError
from marginflow._core.progress import progress as progress_meter
from marginflow._core.provenance import provenance
from marginflow._core.record import Record, Table
from marginflow._core.version import __version__
from marginflow.experiments.sweeps import cells
from marginflow.experiments.sweeps.cells import Row, Task
from marginflow.experiments.sweeps.folder import BEAT_SECONDS, Folder, dataset
from marginflow.experiments.sweeps.spec import Spec, filled, read, spec

SNAPSHOT_SECONDS = 30.0
CONNECT_SECONDS = 20


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep(Record):
    """done: cells with results. failed: with an error, or a run that diverged. resumed: those of an earlier call."""

    out: str
    cells: int
    done: int
    failed: int
    resumed: int
    seconds: float
    store: str
    dataset: Any
    messages: tuple[str, ...]

    @property
    def pending(self) -> int:
        return self.cells - self.done - self.failed

    def table(self) -> Table:
        rows = [
            ("cells", str(self.cells)),
            ("done", str(self.done)),
            ("failed", str(self.failed)),
            ("done before", str(self.resumed)),
            ("seconds", f"{self.seconds:.1f}"),
            ("out", self.out),
            ("store", self.store),
        ]
        return Table("sweep", ("quantity", "value"), tuple(rows), self.messages)

    def to_json(self) -> dict[str, Any]:
        names = ("done", "failed", "out", "cells", "pending", "resumed", "seconds", "store")
        return {**{name: getattr(self, name) for name in names}, "messages": list(self.messages)}


def sweep(
    asked: str | os.PathLike | Mapping[str, Any],
    out: str | os.PathLike,
    *,
    cluster: str | None = None,
    workers: int | None = None,
    retry: bool = False,
    progress: bool | None = None,
) -> Sweep:
    """Run every cell that `out` does not hold yet.

    asked: a TOML file, or the same as a mapping. cluster: the address of a dask scheduler. workers: processes on this
    machine; without either, everything runs in this process. retry: compute failed cells again.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers {workers}; give at least 1")
    if cluster is not None and workers is not None:
        raise InputError("both a cluster and local workers; give one of them")
    if isinstance(asked, Mapping):
        wanted = spec(asked)
    else:
        wanted, asked = read(asked), tomllib.loads(Path(asked).read_text(encoding="utf-8"))
    start, folder = time.monotonic(), Folder(out)
    with folder.locked():
        folder.begin(asked, wanted, provenance())
        folder.sweep_up()
        rows, pending = _kept(folder, cells.tasks(wanted), retry)
        before = len(rows)
        if not folder.results.exists():
            folder.snapshot(wanted, rows)
        if cluster is None:
            _possible(wanted)
        try:
            with _workers(cluster, workers, len(pending)) as results:
                _run(folder, wanted, pending, results, rows, progress)
        finally:
            folder.snapshot(wanted, rows)
    states = [row["state"] for row in rows.values()]
    return Sweep(
        str(out),
        len(wanted.cells),
        states.count("done"),
        states.count("failed"),
        before,
        time.monotonic() - start,
        str(folder.results),
        dataset(wanted, rows),
        tuple(_reasons(rows)),
    )


def _kept(folder: Folder, tasks: Sequence[Task], retry: bool) -> tuple[dict[int, Row], list[Task]]:
    """What is done, by cell, and the tasks that are left."""
    rows, pending = {}, []
    for task in tasks:
        kept = folder.kept(task)
        if kept is None or (retry and any(row["state"] == "failed" for row in kept)):
            pending.append(task)
        else:
            rows |= {row["cell"]: row for row in kept}
    return rows, pending


def _possible(wanted: Spec) -> None:
    """Data or a net that all cells share and that cannot be had are an error of the request, not of each cell."""
    names = {(filled(cell, "data"), str(cell.get("label", "y"))) for cell in wanted.cells}
    if len(names) == 1:
        cells.read_data(*names.pop())
    if not {"net", "activation", "train"} & set(wanted.axes):
        first = wanted.cells[0]
        cells.net_of(first if "net" in first else {**first, "width": 1})


class _Unchanged:
    """Refuses results from data that changed on disk since others were computed from them."""

    def __init__(self, wanted: Spec, rows: Mapping[int, Row]):
        self.wanted, self.seen = wanted, {}
        for row in rows.values():
            self(row)

    def __call__(self, row: Row) -> None:
        cell = self.wanted.cells[row["cell"]]
        name, now = (filled(cell, "data"), cell.get("label")), row["data_sha256"]
        before = self.seen.setdefault(name, now) if now else now
        if before != now:
            raise InputError(
                f"{name[0]}: changed since the sweep began (sha256 {now[:16]} instead of {before[:16]}); "
                "put the original back, or begin again in a new folder"
            )


def _run(folder: Folder, wanted: Spec, pending, results, rows: dict[int, Row], progress: bool | None) -> None:
    count = sum(len(task.cells) for task in pending)
    failed = sum(row["state"] == "failed" for row in rows.values())
    unchanged = _Unchanged(wanted, rows)
    written = beat = time.monotonic()
    label = "sweep" if not rows else f"sweep, {len(rows)} cells done before"
    with progress_meter(count, label, progress) as meter:
        for task, result in results(pending):
            for row in result["rows"]:
                unchanged(row)
            folder.keep(task, result)
            rows |= {row["cell"]: row for row in result["rows"]}
            failed += sum(row["state"] == "failed" for row in result["rows"])
            meter.advance(len(task.cells), f"{failed} failed" if failed else "")
            now = time.monotonic()
            if now - beat > BEAT_SECONDS:
                folder.beat()
                beat = now
            if now - written > SNAPSHOT_SECONDS:
                folder.snapshot(wanted, rows)
                written = time.monotonic()


def _reasons(rows: Mapping[int, Row], most: int = 5) -> Iterator[str]:
    """Why cells failed, each reason once with how often and where first."""
    seen: dict[str, list[int]] = {}
    for k in sorted(rows):
        if rows[k]["state"] == "failed":
            seen.setdefault(rows[k]["message"] or rows[k]["outcome"], []).append(k)
    for reason, where in [*seen.items()][:most]:
        yield f"{len(where)} failed: {reason} (first: cell {where[0]})"
    if len(seen) > most:
        yield f"and {len(seen) - most} other reasons; see the variable message of the store"


@contextmanager
def _workers(cluster: str | None, workers: int | None, tasks: int) -> Iterator[Any]:
    """A function from tasks to pairs (task, result), in the order they are finished."""
    if (cluster is None and workers is None) or tasks == 0:
        yield lambda pending: ((task, cells.run(task)) for task in pending)
        return
    try:
        import distributed
    except ImportError:
        raise InputError("dask.distributed is not installed; pip install 'marginflow[cluster]'") from None
    with _client(distributed, cluster, workers) as client:
        yield lambda pending: _distributed(distributed, client, pending)


@contextmanager
def _client(distributed: Any, address: str | None, workers: int | None) -> Iterator[Any]:
    if address is None:
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with distributed.LocalCluster(**options) as here, distributed.Client(here) as client:
            yield client
        return
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"cluster {address}: {' '.join(str(error).split())}; start a dask scheduler there"
        ) from None
    with client:
        yield client


def _distributed(
    distributed: Any, client: Any, pending: Sequence[Task]
) -> Iterator[tuple[Task, dict[str, Any]]]:
    futures = {future: task for task in pending for future in [client.submit(cells.run, task, pure=False)]}
    try:
        for future in distributed.as_completed(list(futures)):
            task = futures.pop(future)
            yield task, _result(future, task)
            future.release()
    except OSError:  # what dask raises when the scheduler does not answer
        raise InputError(LOST) from None


LOST = "the cluster was lost; what was done is kept; repeat the command when it is back"


def _result(future: Any, task: Task) -> dict[str, Any]:
    if future.status == "error":  # of dask, not of a cell: a worker that died again and again
        error = future.exception()
        return {"rows": [cells.failure(p, error) for p in task.positions], "seconds": 0.0}
    if future.status != "finished":
        raise InputError(LOST)
    result = future.result()
    if result["marginflow"] != __version__:
        raise InputError(
            f"a worker has marginflow {result['marginflow']}, this is {__version__}; install one of them"
        )
    return result
