"""A peer in a process of its own: one that takes too long, or whose package is broken, is a row that says so."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.table import clock


def apart(
    call: Callable[..., Any], work: tuple, warm: tuple, limit: float
) -> tuple[Any, float | None, float | None, str]:
    """(call(*work), its seconds, seconds of call(*warm), ""), or three times None and what went wrong.

    `call` must be importable by name. The limit counts from the start of the process, imports included.
    """
    context = multiprocessing.get_context("spawn")  # a copy of a process that has used JAX may wait forever
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(there, call, work, warm), daemon=True)
    process.start()
    there.close()
    try:
        if here.poll(limit):
            return here.recv()
        return None, None, None, f"stopped after {limit:g} s"
    except EOFError:
        process.join()
        return None, None, None, f"its process ended with exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
        here.close()


def _serve(pipe: Connection, call: Callable[..., Any], work: tuple, warm: tuple) -> None:
    try:
        pipe.send((*clock(lambda: call(*work), warm=lambda: call(*warm), patience=0.1), ""))
    except Exception as error:  # whatever a rival's package raises, the others go on
        pipe.send((None, None, None, f"failed: {type(error).__name__}: {error}".splitlines()[0][:200]))
