"""The loop around the compiled program: chunks, records, progress, saving, interruption, resumption.

A run that is interrupted, or killed, and resumed from what was saved last ends with the same bits.
"""

import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow.flows import monitors as watching
from marginflow.flows import on_chip, plain_steps
from marginflow.flows.checkpoints import Checkpoints
from marginflow.flows.interrupts import Interrupt
from marginflow.flows.steps import DIVERGED, REACHED, RUNNING, Plan, State, one_thread, programs

CHUNK_SECONDS = 0.25
SAVE_SECONDS = 20.0
REPORT_SECONDS = 0.1

# Drives may run side by side, but each of them records, compiles and saves alone: eigenvalues of a batch of matrices
# wait inside the pool of XLA for threads of the same pool, so that two such calls can wait for each other for ever.
_ALONE = threading.Lock()


@dataclasses.dataclass
class Drive:
    """The loop around the compiled program: chunks, records, progress, saving, interruption."""

    plan: Plan
    state: State
    initial: Mapping[str, Any]
    X: Any
    y: Any
    chosen: tuple[watching.Monitor, ...]
    recorder: watching.Recorder
    steps: int
    save: Callable[["Drive"], None] | None = None
    solo: bool = False  # one run, not the members of an ensemble
    interrupted: bool = False
    previous: Any = None  # weights at the last record

    def run(
        self, interrupt: Interrupt, report: Callable[[int, str], None] = lambda step, status: None
    ) -> None:
        """To the end, or to the first return of the program after `interrupt` was requested."""
        on_gpu = on_chip.applies(self.plan, self.X.dtype, self.X.shape[1])
        plain = not on_gpu and not self.solo and plain_steps.applies(self.plan, self.one_thread)
        ordinary = programs().advance_alone if self.one_thread else programs().advance
        advance = on_chip.program() if on_gpu else plain_steps.program() if plain else ordinary
        if not self.recorder.rows:
            self._record()
        with _ALONE:  # no step: drives side by side compile their program once
            advance(self.plan, self.state, self.X, self.y, int(self.state.step), self.recorder.due()[1])
        chunk, saved, reported = 1, time.monotonic(), 0.0
        while not self.finished:
            step, (due_step, due) = int(self.state.step), self.recorder.due()
            ahead = step + chunk
            if on_gpu:
                ahead = on_chip.block_end(self.plan, step)
            elif plain:
                ahead = plain_steps.block_end(step)
            stop, began = min(self.steps, due_step, ahead), time.monotonic()
            self.state = advance(self.plan, self.state, self.X, self.y, stop, due)
            step = int(self.state.step)  # waits for the program
            seconds = time.monotonic() - began
            if seconds < CHUNK_SECONDS / 2:
                chunk = min(2 * chunk, 1 << 30)
            elif seconds > 2 * CHUNK_SECONDS:
                chunk = max(1, chunk // 2)
            if self.finished or step >= due_step or self._passed(due):
                self._record()
            if (now := time.monotonic()) - reported > REPORT_SECONDS:
                report(step, self._status())
                reported = now
            interrupted = interrupt.requested
            if self.save is not None and (interrupted or time.monotonic() - saved > SAVE_SECONDS):
                self.keep()
                saved = time.monotonic()
            if interrupted and not self.finished:
                self.interrupted = True
                return

    def keep(self) -> None:
        if self.save is not None:
            with _ALONE:
                self.save(self)

    @functools.cached_property
    def one_thread(self) -> bool:
        return one_thread(self.plan, sum(w.size for w in self.state.theta.values()))

    @property
    def finished(self) -> bool:
        return int(self.state.step) >= self.steps or not bool(
            np.any(np.asarray(self.state.halted) == RUNNING)
        )

    def _passed(self, due: float) -> bool:
        running = np.asarray(self.state.halted) == RUNNING
        return not np.any(running & (np.asarray(self.state.log_time) < due))

    def _record(self) -> None:
        observe = programs().observe
        state = self.state
        previous = state.theta if self.previous is None else self.previous
        with _ALONE:
            measured = observe(
                self.plan, self.chosen, state.theta, state.gain, self.initial, previous, self.X, self.y
            )
            row = {
                "step": np.asarray(state.step),
                "log_time": np.asarray(state.log_time),
                **{name: np.asarray(value) for name, value in measured.items()},
            }
        finite = np.isfinite(row["margin_min"]) & (np.asarray(state.halted) != DIVERGED)
        self._halt(~finite, DIVERGED)
        if self.solo and not finite.all():
            return  # a diverged run keeps the figures and weights of its last sound record
        for name in row.keys() - {"step", "log_time"}:
            if row[name].dtype.kind == "f":
                row[name] = np.where(finite.reshape((-1,) + (1,) * (row[name].ndim - 1)), row[name], np.nan)
        self.recorder.add(row)
        self.previous = state.theta
        if self.plan.batch is not None:
            self._halt(row["log_loss"] <= self.plan.target_log_loss, REACHED)

    def _halt(self, members: np.ndarray, code: int) -> None:
        """Mark those of `members` that still run."""
        import jax.numpy as jnp

        members = members & (np.asarray(self.state.halted) == RUNNING)
        if members.any():
            self.state = self.state._replace(
                halted=jnp.where(members, code, self.state.halted).astype(jnp.int8),
                halted_at=jnp.where(members, self.state.step, self.state.halted_at),
            )

    def _status(self) -> str:
        row = self.recorder.rows[-1]
        text = f"log-loss {float(np.median(row['log_loss'])):.4g}"
        margin = float(np.median(row["normalised_margin"]))
        return text + (f", margin {margin:.4g}" if math.isfinite(margin) else "")


def snapshot(drive: Drive) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, numbers) from which `restore` continues to the same bits."""
    import jax

    leaves = jax.tree.leaves(drive.state)
    arrays = {f"state.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"previous.{name}": np.asarray(value) for name, value in drive.previous.items()}
    arrays |= {f"history.{name}": value for name, value in watching.stacked(drive.recorder.rows).items()}
    return arrays, {"gap": drive.recorder.gap, "step": int(drive.state.step), "leaves": len(leaves)}


def keeper(checkpoints: Checkpoints, name: str, of: str) -> Callable[[Drive], None]:
    """What `Drive.save` calls: the whole state under `name`, marked with the fingerprint `of` the run."""

    def save(drive: Drive) -> None:
        arrays, numbers = snapshot(drive)
        checkpoints.save(name, arrays, {**numbers, "of": of})

    return save


def restore(drive: Drive, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(drive.state)
    found = [arrays.get(f"state.{i}") for i in range(len(leaves))]
    if numbers["leaves"] != len(leaves) or any(
        f is None or f.shape != leaf.shape or f.dtype != leaf.dtype
        for f, leaf in zip(found, leaves, strict=True)
    ):
        raise InputError(
            "the checkpoint belongs to another run (its arrays differ in number or shape); "
            "give the options of the interrupted run, or choose another --out"
        )
    drive.state = jax.tree.unflatten(structure, [jnp.asarray(f) for f in found])
    prefix = lambda head: {k[len(head) :]: v for k, v in arrays.items() if k.startswith(head)}  # noqa: E731
    drive.previous = {name: jnp.asarray(value) for name, value in prefix("previous.").items()}
    drive.recorder.rows, drive.recorder.gap = watching.unstacked(prefix("history.")), float(numbers["gap"])
