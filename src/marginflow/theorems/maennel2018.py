"""Maennel, Bousquet & Gelly, "Gradient descent quantizes ReLU network features", 2018."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from marginflow._core.status import Status
from marginflow.sectors.early import Fate
from marginflow.theorems.base import Assumption, Claim, Prediction, Theorem, at_most, fact
from marginflow.theorems.evidence import Evidence, Subject
from marginflow.theorems.phuong2021 import (
    balance,
    bounded_slope,
    general_position,
    gradient_flow,
    relu_both_layers,
)

if TYPE_CHECKING:
    from marginflow.sectors.basin_map import Basins

BIBTEX = """@article{maennel2018,
  author  = {Maennel, Hartmut and Bousquet, Olivier and Gelly, Sylvain},
  title   = {Gradient Descent Quantizes {ReLU} Network Features},
  journal = {arXiv preprint arXiv:1803.08367},
  year    = {2018}
}"""


NUDGE = 1e-6  # moves a direction off a set of measure zero, and far beyond rounding


class Lemma1(Theorem):
    """From small weights every neuron dies or ends in an extremal sector of its sign; a fourth fate is
    vanishing.

    **Statement.** ReLU net, balanced, gradient flow, λ small enough: there is a time at which each neuron is
    off on all data and frozen, or has a_j > 0 in a positive extremal sector, or a_j < 0 in a negative one.

    **The fourth fate.** An extremal direction, a strict maximum of s·G, may have s·G < 0. A neuron drawn to one is
    in an extremal sector, as the lemma says, but shrinks like e^{-‖g‖t} instead of growing and never leaves the
    early phase ("vanishing"). Such neurons are counted, and pinned at an extremal direction is what they must be.

    **Assumptions.** general position ("almost all data": `phuong2021.general_position`); gradient flow
    (`phuong2021.gradient_flow`) on a loss with bounded Lipschitz derivative (`phuong2021.bounded_slope`);
    balance (`phuong2021.balance`); "almost all initial directions" (`generic_directions`: one that rests where G is
    critical and not extremal must not do so by chance alone). **Asymptotic.** λ → 0 is taken exactly: fates are
    those of the early phase in closed form (`sectors.basins`), from the initial directions of the run. How small
    a given λ must be, no number says.
    """

    key, title, number = (
        "maennel2018.lemma1",
        "Neurons die or reach extremal sectors (Maennel et al. 2018)",
        "Lemma 1 of Phuong & Lampert; Lemma 5",
    )
    premises = ("gradient flow", "balanced initialisation, small enough", "for almost all initial directions")

    def covers(self, subject: Subject) -> str | None:
        return relu_both_layers(subject)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (general_position(subject),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (
            gradient_flow(evidence),
            bounded_slope(evidence),
            balance(evidence),
            generic_directions(evidence),
        )

    def predict(self, subject: Subject) -> Prediction:
        found = subject.extremal
        values = {
            "positive_directions": [e.direction for e in found.positive],
            "negative_directions": [e.direction for e in found.negative],
            "positive_sectors": [e.sector for e in found.positive],
            "negative_sectors": [e.sector for e in found.negative],
            "complete": found.complete,
        }
        return Prediction(
            values,
            certified=bool(found.complete),
            note="" if found.complete else "the list of extremal directions may be incomplete",
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        fates = _fates(evidence)
        if fates is None:
            note = "needs the initial weights of a run"
            return (Claim("extremal_or_dead", Status.UNDECIDED, None, 0, "<=", note),)
        counts = fates.counts()
        told = "neurons by fate: " + ", ".join(f"{v} {k}" for k, v in counts.items())
        vanishing = fates.fate == Fate.VANISHING.value
        stray = int((fates.fate == Fate.OTHER.value).sum() + (vanishing & (fates.end < 0)).sum())
        claim = at_most("extremal_or_dead", stray, 0, told)
        if not stray and counts["undecided"]:
            claim = dataclasses.replace(claim, status=Status.UNDECIDED)
        ends = [fates.limits[k] for k in fates.end[vanishing] if k >= 0]
        growing = sum(e.growing for e in ends)
        note = (
            f"those not at an extremal direction with s·G < 0, of {int(vanishing.sum())} with the fourth fate"
        )
        return (claim, at_most("vanishing_are_pinned", int(vanishing.sum()) - len(ends) + growing, 0, note))


def _fates(evidence: Evidence) -> "Basins | None":
    """The early phase from the initial directions of the run; neurons that start at 0 stay there and are left out."""
    run = evidence.run
    if run is None:
        return None
    from marginflow import sectors

    W, a = np.asarray(run.theta0["W"], float), np.asarray(run.theta0["a"], float)
    moving = (a != 0) & W.any(axis=1)
    if not moving.any():
        return None
    return evidence.once(
        "fates", lambda: sectors.basins(evidence.data, W[moving], sign=np.sign(a[moving]).astype(int))
    )


def generic_directions(evidence: Evidence) -> Assumption:
    """Directions that come to rest at a critical direction that is no extremum, and no longer do when moved by 1e-6."""
    fates = _fates(evidence)
    if fates is None:
        return fact("generic_directions", None, "weights alone do not say where they started")
    rest = np.flatnonzero(fates.fate == Fate.OTHER.value)
    special = 0
    if len(rest):
        from marginflow import sectors

        W, a = (np.asarray(evidence.run.theta0[k], float) for k in ("W", "a"))  # type: ignore[union-attr]
        moving = (a != 0) & W.any(axis=1)
        W, a = W[moving][rest], a[moving][rest]
        W = W / np.linalg.norm(W, axis=1, keepdims=True)
        W = W + NUDGE * np.random.default_rng(0).standard_normal(W.shape)
        moved = sectors.basins(evidence.data, W, sign=np.sign(a).astype(int))
        special = int((moved.fate != Fate.OTHER.value).sum())
    note = "initial directions that rest at a critical direction of G, and no longer do when moved a little"
    return fact("generic_directions", special == 0, note, special, 0)


lemma1 = Lemma1()
THEOREMS = (lemma1,)
