"""The basin map: initial direction -> fate, for many directions at once (theory §3.1)."""

import dataclasses

import numpy as np

from marginflow._core.record import Record
from marginflow.data.dataset import Dataset
from marginflow.sectors.early import path
from marginflow.sectors.patterns import directions as checked


@dataclasses.dataclass(frozen=True, eq=False)
class Basins(Record):
    """One row per direction. fate: names of `Fate`; limit: final direction; time: of the last event."""

    sign: np.ndarray
    fate: np.ndarray
    limit: np.ndarray
    events: np.ndarray
    time: np.ndarray


def basins(data: Dataset, directions, sign=None, loss="logistic", weights=None) -> Basins:
    """Fates of neurons that start in `directions`; sign: +1 (the default), -1, or one per direction."""
    W = np.atleast_2d(checked(data, directions))
    s = np.broadcast_to(np.asarray(1 if sign is None else sign, int), (len(W),))
    paths = [path(data, w, int(k), loss, weights) for w, k in zip(W, s, strict=True)]
    return Basins(s, np.array([q.fate.value for q in paths]), np.array([q.limit for q in paths]),
                  np.array([len(q.events) for q in paths]), np.array([q.arcs[-1].time for q in paths]))
