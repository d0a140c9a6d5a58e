"""The record of one training run: what every later link (verify, report, store) reads.

Histories are dicts of NumPy arrays that share the leading axis `log_time`; no run needs its trainer to be read.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net


@dataclasses.dataclass(frozen=True)
class Events:
    """Sector events in order of time: neuron j meets the hyperplane of example i.

    kind: cross_on, cross_off, enter, leave.
    """

    neuron: np.ndarray
    example: np.ndarray
    kind: np.ndarray
    log_time: np.ndarray

    def __len__(self) -> int:
        return len(self.neuron)


@dataclasses.dataclass(frozen=True)
class Limit(Record):
    """The t = ∞ network: direction θ/‖θ‖ of all neurons, what certifies it, and how far the run still is from it."""

    theta: Mapping[str, np.ndarray]
    normalised_margin: float
    method: str
    certificate: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Run(Record):
    """One trained net.

    theta: the weights at `log_time`; with log_time = inf the limit direction, ‖θ‖ = 1.
    log_loss: log Σ_i ℓ(q_i) for flows, log mean for sgd/gd/ngd (`loss_reduction` says which); -inf at the limit.
    history: arrays over recorded times, at least log_time, log_loss, margin_min, normalised_margin.
    options: everything needed to repeat the run (method, steps, tolerances, seed, init, scale, ...).
    """

    net: Net
    data: Dataset
    theta0: Mapping[str, np.ndarray]
    theta: Mapping[str, np.ndarray]
    method: str
    loss: str
    outcome: Outcome
    message: str
    log_time: float
    log_loss: float
    history: Mapping[str, np.ndarray]
    options: Mapping[str, Any]
    loss_reduction: str = "sum"
    steps: int = 0
    frozen_log_time: float | None = None
    events: Events | None = None
    limit: Limit | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # e.g. phases, fates, pattern history
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def integrated(self) -> dict[str, Any]:
        """The last integrated moment: where the run was when the limit map took over."""
        names = {
            "log_time": "log_time",
            "log_loss": "log_loss",
            "margins_min": "margin_min",
            "normalised_margin": "normalised_margin",
            "stable_rank": "stable_rank",
        }
        series = {name: np.asarray(self.history.get(key, ())) for name, key in names.items()}
        return {name: v[-1] if v.ndim == 1 and len(v) else None for name, v in series.items()}

    def summary(self) -> dict[str, Any]:
        """The headline numbers, from the record alone; at t = ∞ those of the limit network."""
        last = self.integrated
        if self.limit is not None:
            last |= {
                "margins_min": np.inf,
                "normalised_margin": self.limit.normalised_margin,
                "stable_rank": stable_rank(self.limit.theta),
            }
        return {
            "method": self.method,
            "outcome": self.outcome,
            "message": self.message,
            **last,
            "log_time": self.log_time,
            "log_loss": self.log_loss,
            "frozen_log_time": self.frozen_log_time,
            "events": None if self.events is None else len(self.events),
        }

    def table(self) -> Table:
        rows = [
            ("data", self.data.name),
            ("net", str(self.net)),
            *((k, show(v)) for k, v in self.summary().items() if v != ""),
        ]
        return Table("run", ("quantity", "value"), tuple(rows))

    def to_json(self) -> dict[str, Any]:
        from marginflow._core.record import jsonable

        return jsonable(
            {
                "data": self.data.to_json(),
                "net": repr(self.net),
                **self.summary(),
                "options": dict(self.options),
            }
        )


def stable_rank(theta: Mapping[str, Any]) -> float | None:
    """‖W‖_F²/‖W‖₂² of the first layer; None where there is no such matrix, or it is 0 or not finite."""
    W = theta.get("W")
    if W is None or np.ndim(W) != 2 or not np.any(W) or not np.all(np.isfinite(W)):
        return None
    s = np.linalg.svd(np.asarray(W, float), compute_uv=False)
    return float(np.sum((s / s[0]) ** 2))
