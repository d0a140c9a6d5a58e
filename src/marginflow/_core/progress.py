"""Progress on standard error: nothing for the first two seconds, then a bar with ETA, only on a terminal.

Work inside other work draws nothing: the outermost bar is the one that knows when all is done.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

DELAY_SECONDS = 2.0
_INSIDE: ContextVar[bool] = ContextVar("inside another progress", default=False)


class Meter:
    """`advance(n)`, `status(text)`: cheap to call often; draws at most ten times a second."""

    def __init__(self, total: float | None, label: str, enabled: bool | None = None):
        self.total, self.label, self.done, self.text = total, label, 0.0, ""
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self.start, self.drawn, self.bar, self.task = time.monotonic(), 0.0, None, None

    def advance(self, amount: float = 1.0, status: str | None = None) -> None:
        self.done += amount
        self._draw(status)

    def to(self, done: float, status: str | None = None) -> None:
        self.done = done
        self._draw(status)

    def _draw(self, status: str | None) -> None:
        self.text = self.text if status is None else status
        now = time.monotonic()
        if not self.enabled or now - self.start < DELAY_SECONDS or now - self.drawn < 0.1:
            return
        self.drawn = now
        if self.bar is None:
            self.bar, self.task = _bar(self.label, self.total)
            self.bar.start()
        self.bar.update(self.task, completed=self.done, note=self.text)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _bar(label: str, total: float | None) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    return bar, bar.add_task(label, total=total, note="")


@contextmanager
def progress(total: float | None, label: str, enabled: bool | None = None) -> Iterator[Meter]:
    meter = Meter(total, label, False if _INSIDE.get() else enabled)
    token = _INSIDE.set(True)
    try:
        yield meter
    finally:
        _INSIDE.reset(token)
        meter.close()
