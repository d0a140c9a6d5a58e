"""What became of the neurons of a two-layer net: who serves which class, who is off, and how near w+ and w- they are.

Counted from the weights alone, so that runs of every method, and weights from anywhere, are counted alike.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow import margins
from marginflow._core.record import Record, Table, show
from marginflow.data.dataset import Dataset
from marginflow.nets.activations import active
from marginflow.nets.two_layer import TwoLayer


@dataclasses.dataclass(frozen=True, eq=False)
class Directions:
    """w+ and w- of theory §3, each None where its class lies in no open half-space."""

    positive: np.ndarray | None
    negative: np.ndarray | None


def max_margin_directions(data: Dataset) -> Directions:
    return Directions(margins.positive(data).vector, margins.negative(data).vector)


@dataclasses.dataclass(frozen=True, eq=False)
class Census(Record):
    """positive: a_j > 0 and active on every positive example; negative: a_j < 0 and active on every negative one.
    dead: active on none. vanishing: of the others, those smaller than they began. other: the rest.

    angle: radians between w± and Σ a_j w_j over the group, the vector that makes its outputs. alignment: cosine of
    each neuron that is not dead with w+ (a_j > 0) or w- (a_j < 0), nan elsewhere.
    """

    positive: int
    negative: int
    dead: int
    vanishing: int
    other: int
    angle: Mapping[str, float | None]
    alignment: np.ndarray

    @property
    def counts(self) -> dict[str, int]:
        return {k: getattr(self, k) for k in ("positive", "negative", "dead", "vanishing", "other")}

    @property
    def median_alignment(self) -> float | None:
        seen = self.alignment[np.isfinite(self.alignment)]
        return float(np.median(seen)) if len(seen) else None

    def fraction_above(self, cosine: float = 0.9) -> float | None:
        """Of the neurons that are not dead, the share whose alignment is above `cosine`."""
        seen = self.alignment[np.isfinite(self.alignment)]
        return float(np.mean(seen > cosine)) if len(seen) else None

    def table(self) -> Table:
        rows = [(k, str(v)) for k, v in self.counts.items()]
        rows += [(f"angle {k}", show(v)) for k, v in self.angle.items()]
        rows.append(
            ("alignment", f"median {show(self.median_alignment)}, above 0.9: {show(self.fraction_above())}")
        )
        return Table("neurons", ("group", "value"), tuple(rows))


def census(
    theta: Mapping[str, Any], initial: Mapping[str, Any], data: Dataset, directions: Directions
) -> Census:
    # in units of the largest weight: a run that diverged may be near the end of float range
    unit = max(float(np.max(np.abs(theta["W"]))), float(np.max(np.abs(theta["a"]))), np.finfo(float).tiny)
    theta, initial = ({k: np.asarray(t[k], np.float64) / unit for k in ("W", "a")} for t in (theta, initial))
    W, a = theta["W"], theta["a"]
    on = active(data.X @ W.T)
    positive = (a > 0) & on[data.positive].all(axis=0)
    negative = (a < 0) & on[data.negative].all(axis=0)
    dead = ~on.any(axis=0)
    rest = ~(positive | negative | dead)
    size = lambda t: np.hypot(np.linalg.norm(t["W"], axis=1), np.abs(t["a"]))  # noqa: E731
    vanishing = rest & (size(theta) < size(initial))
    angle = {
        "positive": _angle(a[positive] @ W[positive], directions.positive, 1.0),
        "negative": _angle(a[negative] @ W[negative], directions.negative, -1.0),
    }
    alignment = np.full(len(a), np.nan)
    for sign, vector in ((1.0, directions.positive), (-1.0, directions.negative)):
        rows = (np.sign(a) == sign) & ~dead
        if vector is not None and rows.any():
            alignment[rows] = W[rows] @ vector / (np.linalg.norm(W[rows], axis=1) * np.linalg.norm(vector))
    counts = (int(group.sum()) for group in (positive, negative, dead, vanishing, rest & ~vanishing))
    return Census(*counts, angle=angle, alignment=alignment)


def _angle(outputs: np.ndarray, vector: np.ndarray | None, sign: float) -> float | None:
    if vector is None or not outputs.any():
        return None
    outputs = outputs / np.abs(outputs).max()  # its norm may be below float range
    # atan2 of the two half-chords: exact for small angles too, where acos of a cosine loses half the digits
    u, v = sign * outputs / np.linalg.norm(outputs), vector / np.linalg.norm(vector)
    return float(2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)))


def has_census(net: Any) -> bool:
    return isinstance(net, TwoLayer) and net.outputs == 1


def singular_values(W: np.ndarray, count: int = 10) -> np.ndarray:
    """The largest singular values, over any leading axes."""
    return np.linalg.svd(np.asarray(W, np.float64), compute_uv=False)[..., :count]
