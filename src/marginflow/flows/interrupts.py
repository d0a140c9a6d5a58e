"""Ctrl-C that waits for the compiled program to return, so that what is saved is a whole state."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupt:
    requested = False


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """The first Ctrl-C sets `requested`; a second one raises KeyboardInterrupt at once."""
    asked = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # Python delivers signals to the main thread only
        return

    def handle(number, frame):
        if asked.requested:
            raise KeyboardInterrupt
        asked.requested = True

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
