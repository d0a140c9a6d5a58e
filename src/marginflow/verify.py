"""The whole chain on one page: the file to read first.

    data → conditions → net → training → weights → margins → theorems → verdict

`verify` takes weights from anywhere (a run, a saved run, arrays in memory), finds the theorems that speak
about such a net, tests their assumptions on the data and on the run, measures their claims on the weights,
and gives one four-valued verdict for each. Nothing is trained here.
"""

import dataclasses
import os
from typing import Any

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Status
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net, Theta
from marginflow.runs import Run
from marginflow.theorems import Evidence, Verdict, applicable
from marginflow.theorems.phuong2021 import relu_both_layers, two_neurons

# Three routes to one number: certified margins agree to 1e-9, KKT multipliers come from a least-squares fit.
UNITY = 1e-6


@dataclasses.dataclass(frozen=True)
class Unity(Record):
    """Three papers, one number: on orthogonally separable data each is the normalised margin of one network.

    flow: q_min/‖θ‖² of the weights (system A); parameter_space: 1/(2 Σ λ_i) from the KKT multipliers of
    min ½‖θ‖² s.t. q_i >= 1 (Euler's identity: ‖θ‖² = 2 Σ λ_i at a KKT point of degree 2); f1: γ1 (system C).
    """

    status: Status
    flow: float
    parameter_space: float
    f1: float
    f1_certified: bool
    predicted: float
    largest_difference: float
    note: str

    def table(self) -> Table:
        rows = [
            ("limit of the flow, q_min/‖θ‖²", f"{self.flow:.12g}"),
            ("parameter-space max margin, 1/(2Σλ)", f"{self.parameter_space:.12g}"),
            ("F1 max margin γ1", f"{self.f1:.12g}"),
            ("1/(2(‖w+‖ + ‖w-‖))", f"{self.predicted:.12g}"),
            ("largest relative difference", show(self.largest_difference)),
        ]
        notes = (self.note,) if self.note else ()
        return Table(f"three papers, one number: {self.status.value}", ("route", "value"), tuple(rows), notes)


@dataclasses.dataclass(frozen=True, eq=False)
class Verdicts(Record):
    """Every applicable theorem against the same weights."""

    subject: str
    verdicts: tuple[Verdict, ...]
    unity: Unity | None
    silent: dict[str, str]

    @property
    def status(self) -> Status:
        """`holds` when every verdict holds; what the command line's --strict asks."""
        seen = {v.status for v in self.verdicts}
        for status in (Status.FAILS, Status.UNDECIDED, Status.VACUOUS):
            if status in seen:
                return status
        return Status.HOLDS if self.verdicts else Status.UNDECIDED

    def __getitem__(self, theorem: str) -> Verdict:
        return next(v for v in self.verdicts if v.theorem == theorem)

    def tables(self) -> list[Table]:
        head = Table(
            f"verdicts on {self.subject}",
            ("theorem", "status", "in words"),
            tuple((v.theorem, v.status.value, v.summary) for v in self.verdicts),
            tuple(f"{key} is silent: {why}" for key, why in self.silent.items()),
        )
        unity = [self.unity.table()] if self.unity is not None else []
        return [head, *(v.table() for v in self.verdicts), *unity]

    def to_json(self) -> dict[str, Any]:
        return jsonable(
            {
                "status": self.status,
                "subject": self.subject,
                "verdicts": self.verdicts,
                "unity": self.unity,
                "silent": self.silent,
            }
        )


def verify(
    what: Run | Net | str | os.PathLike,
    theta: Theta | None = None,
    data: Dataset | None = None,
    *,
    theorems=None,
    loss: str = "logistic",
) -> Verdicts:
    """Every applicable theorem against a run, the path of a saved run, or a net with its weights and data."""
    evidence, subject = collect(what, theta, data, loss)
    chosen = applicable(evidence, theorems)
    silent = {t.key: why for t in chosen if (why := t.covers(evidence)) is not None}
    verdicts = tuple(t.verify(evidence) for t in chosen if t.key not in silent)
    return Verdicts(subject, verdicts, unity(evidence), silent)


def collect(
    what: Any, theta: Theta | None, data: Dataset | None, loss: str = "logistic"
) -> tuple[Evidence, str]:
    """Evidence from whatever was given, and a name for it."""
    if isinstance(what, str | os.PathLike):
        from marginflow import store

        what = store.load(what)
    if isinstance(what, Run):
        name = f"a run of {what.method} on {what.data.name}"
        return Evidence(what.net, what.theta, what.data, what), name
    if not isinstance(what, Net):
        kinds = "a run, the path of a saved run, or a net with its weights and data"
        raise InputError(f"cannot verify a {type(what).__name__}; give {kinds}")
    if theta is None or data is None:
        raise InputError("a net alone says nothing; give verify(net, theta, data)")
    return Evidence(what, theta, data, loss=loss), f"weights of {what} on {data.name}"


def unity(evidence: Evidence) -> Unity | None:
    """The three numbers where they are comparable: a ReLU net and orthogonally separable data it separates."""
    if relu_both_layers(evidence) is not None or not evidence.separates:
        return None
    if evidence.condition("orthogonal_separability").status is not Status.HOLDS:
        return None
    prediction = two_neurons(evidence)
    f1, kkt = evidence.f1, evidence.kkt
    flow, predicted = evidence.normalised_margin, float(prediction["normalised_margin"])
    space = float(1 / (2 * kkt.multipliers.sum())) if kkt.multipliers.sum() > 0 else float("nan")
    difference = max(abs(x / f1.value - 1) for x in (flow, space, predicted))
    if not (f1.certified and prediction.certified):
        status, note = Status.UNDECIDED, "not every number is certified"
    elif difference <= UNITY:
        status, note = Status.HOLDS, ""
    elif evidence.at_limit:
        status, note = Status.FAILS, ""
    else:
        status, note = (
            Status.UNDECIDED,
            "the weights are those of a finite run; the identity is about the limit",
        )
    return Unity(status, flow, space, f1.value, bool(f1.certified), predicted, difference, note)
