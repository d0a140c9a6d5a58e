"""Lyu & Li, "Gradient descent maximizes the margin of homogeneous neural networks", ICLR 2020."""

import numpy as np

from marginflow._core.status import Status
from marginflow.theorems.base import (
    Assumption,
    Claim,
    Prediction,
    Theorem,
    at_most,
    fact,
    tends_to_zero,
    trained_by,
    unless_stalled,
)
from marginflow.theorems.evidence import Evidence, Subject

BIBTEX = """@inproceedings{lyu2020,
  author    = {Lyu, Kaifeng and Li, Jian},
  title     = {Gradient Descent Maximizes the Margin of Homogeneous Neural Networks},
  booktitle = {International Conference on Learning Representations},
  year      = {2020},
  url       = {https://openreview.net/forum?id=SJeLIgBKPS}
}"""

# Sampled values of a smoothed margin carry rounding of about n eps q; a fall below this is not a fall.
MONOTONE = 1e-6


class MarginMaximisation(Theorem):
    """Homogeneous nets: once the data are fitted the smoothed normalised margin never falls, and limits are
    KKT points.

    **Statement.** f of degree k in θ, gradient flow on the logistic or exponential loss. From the first time
    at which L < ℓ(0) on, the smoothed margin ℓ^-1(L)/‖θ‖^k does not decrease, and every limit direction of
    θ/‖θ‖ is, scaled to q_min = 1, a KKT point of min ½‖θ‖² s.t. q_i >= 1. A KKT point need not be a local
    optimum.

    **Assumptions.** homogeneity (read from the net); separation reached (read from the weights); gradient flow
    (`flow_or_small_step`). A full-batch descent follows the flow when its step is small enough, which no number
    says, so that it stays open; stochastic and adaptive methods are another matter. **Asymptotic.** the KKT
    claim; on a finite run its residuals fall with 1/log(1/L), and are compared with `theorems.base.band`.
    """

    key, title, number = "lyu2020", "Margin maximisation (Lyu & Li 2020)", "Theorems 4.1 and 4.4"
    premises = (
        "gradient flow (or descent with a small enough step) on the logistic or exponential loss",
        "the data are separated at some time",
    )

    def covers(self, subject: Subject) -> str | None:
        return None if subject.net.degree else "the net is not homogeneous in its trained weights"

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        degree = subject.net.degree
        return (fact("homogeneity", bool(degree), f"f(x; cθ) = c^{degree} f(x; θ)", degree, None),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        separated = evidence.separates
        return (
            flow_or_small_step(evidence),
            fact(
                "separation",
                separated,
                "q_min of the weights",
                float(evidence.margins.min()),
                0.0,
                float(evidence.margins.min()),
            ),
        )

    def predict(self, subject: Subject) -> Prediction:
        return Prediction(
            {"degree": subject.net.degree, "stationarity": 0.0},
            certified=True,
            note="any KKT point may be the limit; other theorems say which",
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        claims = [self._monotone(evidence)]
        if not evidence.separates:
            return (
                *claims,
                Claim(
                    "kkt_stationarity",
                    Status.UNDECIDED,
                    None,
                    None,
                    "<=",
                    "the weights do not separate the data",
                ),
            )
        kkt = evidence.kkt
        found = (
            tends_to_zero(
                "kkt_stationarity",
                kkt.stationarity,
                evidence,
                0.5,
                "‖θ - Σ λ_i y_i h_i‖/‖θ‖",
                tolerance=1e-6,
                scale=2.0,
            ),
            tends_to_zero(
                "kkt_alignment",
                1 - kkt.cosine,
                evidence,
                1.0,
                "1 - cos(θ, Σ λ_i y_i h_i)",
                tolerance=1e-6,
                scale=2.0,
            ),
        )
        return (*claims, *(unless_stalled(claim, kkt.outcome) for claim in found))

    @staticmethod
    def _monotone(evidence: Evidence) -> Claim:
        gamma = smoothed_margins(evidence)
        if gamma is None or np.sum(np.isfinite(gamma)) < 2:
            note = "needs a run that recorded the loss and the weights' norm after separation"
            return Claim("margin_monotone", Status.UNDECIDED, None, MONOTONE, "<=", note)
        gamma = np.asarray(gamma, float)
        gamma = gamma[np.isfinite(gamma)]
        fall = float(np.max(np.maximum.accumulate(gamma) - gamma) / gamma.max())
        return at_most(
            "margin_monotone",
            fall,
            MONOTONE,
            "largest fall of the smoothed normalised margin, relative, over recorded times",
        )


def flow_or_small_step(evidence: Evidence) -> Assumption:
    """Gradient flow; open for a full-batch descent, whose step may be small enough."""
    run = evidence.run
    if run is None or run.method not in ("gd", "ngd"):
        return trained_by(evidence, "flow", "gradient_flow")
    note = f"trained by {run.method}: as the flow when its step is small enough, and no number says what is"
    return fact("gradient_flow", None, note, run.method, "flow")


def smoothed_margins(evidence: Evidence) -> np.ndarray | None:
    """ℓ^-1(L)/‖θ‖^k over the recorded times with L < ℓ(0); as recorded, or from log L and ‖θ‖².

    The inverse of log ℓ is found by Newton's method, whose start -log L is exact for the exponential loss; for
    the logistic one eight steps reach rounding.
    """
    run = evidence.run
    history = {} if run is None else run.history
    if "smoothed_margin" in history:
        return np.asarray(history["smoothed_margin"], float)
    if run is None or not {"norm_squared", "weight_norm"} & set(history):
        return None
    squared = (
        history["norm_squared"]
        if "norm_squared" in history
        else np.asarray(history["weight_norm"], float) ** 2
    )
    log_total = np.asarray(history["log_loss"], float)
    if run.loss_reduction == "mean":
        log_total = log_total + np.log(evidence.data.n)
    fitted = log_total < float(evidence.loss.log_value(np.zeros(1))[0])
    log_total = log_total[fitted]
    q = -log_total
    for _ in range(8):
        rate = np.exp(evidence.loss.log_slope(q) - evidence.loss.log_value(q))
        q = q + (evidence.loss.log_value(q) - log_total) / rate
    assert evidence.net.degree
    return q / np.asarray(squared, float)[fitted] ** (evidence.net.degree / 2)


theorem = MarginMaximisation()
THEOREMS = (theorem,)
