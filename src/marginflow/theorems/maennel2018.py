"""Maennel, Bousquet & Gelly, "Gradient descent quantizes ReLU network features", 2018."""

from marginflow._core.status import Status
from marginflow.theorems.base import Assumption, Claim, Prediction, Theorem, at_most, from_condition
from marginflow.theorems.evidence import Evidence, Subject
from marginflow.theorems.phuong2021 import balance, gradient_flow, relu_both_layers

BIBTEX = """@article{maennel2018,
  author  = {Maennel, Hartmut and Bousquet, Olivier and Gelly, Sylvain},
  title   = {Gradient Descent Quantizes {ReLU} Network Features},
  journal = {arXiv preprint arXiv:1803.08367},
  year    = {2018}
}"""


class Lemma1(Theorem):
    """From small weights every neuron dies or ends in an extremal sector of its sign; a fourth fate is
    vanishing.

    **Statement.** ReLU net, balanced, gradient flow, λ small enough: there is a time at which each neuron is
    off on all data and frozen, or has a_j > 0 in a positive extremal sector, or a_j < 0 in a negative one.
    **The fourth fate.** A neuron pinned at a direction with s·G(w) < 0 shrinks like e^{-‖g‖t} and never
    leaves the early phase; the lemma does not name it, and `claims` count it apart. **Assumptions.** general
    position ("almost all data"); balance; λ → 0 is taken exactly: fates are those of the early phase in
    closed form (`sectors.basins`), from the initial directions.
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
        return (from_condition(subject.condition("general_position")),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (gradient_flow(evidence), balance(evidence))

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
        if evidence.run is None:
            return (
                Claim("other_fates", Status.UNDECIDED, None, 0, "<=", "needs the initial weights of a run"),
            )
        import numpy as np

        from marginflow import sectors

        W, a = np.asarray(evidence.run.theta0["W"], float), np.asarray(evidence.run.theta0["a"], float)
        fates = sectors.basins(evidence.data, W, sign=np.sign(a)).counts()
        told = ", ".join(f"{v} {k}" for k, v in fates.items())
        return (
            at_most("other_fates", fates.get("other", 0), 0, f"neurons by fate: {told}"),
            at_most(
                "vanishing",
                fates.get("vanishing", 0),
                0,
                "neurons with the fourth fate, which the lemma does not name",
            ),
        )


lemma1 = Lemma1()
THEOREMS = (lemma1,)
