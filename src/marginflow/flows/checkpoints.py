"""What interrupted work is continued from: named pairs of arrays and values, wherever they are kept."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import jsonable

Kept = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]


class Checkpoints(Protocol):
    """`save` must replace what the name held in one step; `load` gives None for a name never saved."""

    def save(self, name: str, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None: ...

    def load(self, name: str) -> Kept | None: ...


def fingerprint(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """One hash of all that decides the numbers of a run, so that a checkpoint is never continued by another run."""
    h = hashlib.sha256(json.dumps(jsonable(dict(description)), sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        h.update(f"{name}{array.dtype.str}{array.shape}".encode())
        h.update(array.tobytes())
    return h.hexdigest()


def continued(checkpoints: Checkpoints, name: str, of: str) -> Kept | None:
    """What `name` holds, refused unless it belongs to the run with this fingerprint."""
    kept = checkpoints.load(name)
    if kept is not None and kept[1].get("of") != of:
        raise InputError(
            "the checkpoint belongs to a run with other options, data or initial weights; give the options "
            "of the interrupted run, or another place for this one"
        )
    return kept
