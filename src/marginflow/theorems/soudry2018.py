"""Soudry, Hoffer, Nacson, Gunasekar & Srebro, "The implicit bias of gradient descent on separable data", JMLR
2018.
"""

import numpy as np

from marginflow.nets import Linear
from marginflow.theorems.base import (
    Assumption,
    Claim,
    Prediction,
    Theorem,
    Unpredictable,
    fact,
    from_condition,
    tends_to,
    tends_to_zero,
)
from marginflow.theorems.evidence import Evidence, Subject

BIBTEX = """@article{soudry2018,
  author  = {Soudry, Daniel and Hoffer, Elad and Nacson, Mor Shpigel and Gunasekar, Suriya and Srebro,
  Nathan}, title   = {The Implicit Bias of Gradient Descent on Separable Data}, journal = {Journal of Machine
  Learning Research}, volume  = {19}, number  = {70}, pages   = {1--57}, year    = {2018}
}"""


class MaxMarginDirection(Theorem):
    """Logistic regression on separable data converges in direction to the max-margin vector.

    **Statement.** f(x) = wᵀx, gradient flow (or descent with a small step) on the logistic or exponential
    loss, linearly separable data: w/‖w‖ → w_max/‖w_max‖, w_max = argmin ‖w‖² s.t. y_i wᵀx_i >= 1, at rate
    1/log t in direction. **Assumptions.** linear separability (`conditions.linear_separability`); gradient
    flow, or descent with a step below 2/β, β = σ_max(X)²/4 the smoothness of Σ ℓ for the logistic loss
    (`small_step`). **Asymptotic.** both claims; a finite run is measured against the band of
    `theorems.base.band`. **Gap.** on degenerate data the rate is log log t/log t.
    """

    key, title, number = "soudry2018", "Linear max margin (Soudry et al. 2018)", "Theorem 3"
    premises = (
        "gradient flow or descent with a small enough step",
        "logistic or exponential loss, any initial weights",
    )

    def covers(self, subject: Subject) -> str | None:
        return None if isinstance(subject.net, Linear) else "the net is not a linear predictor"

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (from_condition(subject.condition("linear_separability")),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (small_step(evidence),)

    def predict(self, subject: Subject) -> Prediction:
        return linear_prediction(subject, Linear(), lambda w: {"w": w})

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        w = evidence.theta["w"]
        return (
            tends_to_zero(
                "direction",
                angle(w, prediction["w_max"]),
                evidence,
                1.0,
                "angle between w and w_max",
                scale=4.0,
            ),
            tends_to(
                "normalised_margin",
                evidence.normalised_margin,
                prediction["normalised_margin"],
                evidence,
                from_below=True,
                note="q_min/‖w‖",
            ),
        )


def small_step(evidence: Evidence) -> Assumption:
    """Gradient flow, or full-batch descent whose step is below 2 over the smoothness of the loss."""
    run = evidence.run
    if run is None:
        return fact("small_step", None, "weights alone do not say how they were trained")
    if run.method == "flow":
        return fact("small_step", True, "gradient flow", run.method, "flow or gd")
    if run.method != "gd":
        return fact("small_step", False, f"trained by {run.method}", run.method, "flow or gd")
    step = run.options.get("lr")
    if run.loss != "logistic" or not isinstance(step, int | float):
        note = "no bound on the step: the loss is not smooth, or the step is not one recorded number"
        return fact("small_step", None, note, step, None)
    smoothness = float(np.linalg.norm(evidence.data.X, 2)) ** 2 / 4
    bound = 2 / smoothness * (evidence.data.n if run.loss_reduction == "mean" else 1)
    return fact("small_step", step < bound, "step against 2/β", step, bound, 1 - step / bound)


def linear_prediction(subject: Subject, net, as_theta) -> Prediction:
    margin = subject.linear_margin
    if margin.vector is None:
        raise Unpredictable(
            f"the data are not linearly separable ({margin.message})"
            if margin.message
            else "the data are not linearly separable"
        )
    direction = margin.vector / np.linalg.norm(margin.vector)
    return Prediction(
        {"w_max": margin.vector, "normalised_margin": margin.value},
        net,
        as_theta(direction),
        bool(margin.certified),
    )


def angle(v, w) -> float:
    """Angle in radians, accurate near 0: 2 atan2(‖v̂ - ŵ‖, ‖v̂ + ŵ‖)."""
    size_v, size_w = np.linalg.norm(v), np.linalg.norm(w)
    if size_v == 0 or size_w == 0:
        return np.nan
    v, w = v / size_v, w / size_w
    return float(2 * np.arctan2(np.linalg.norm(v - w), np.linalg.norm(v + w)))


theorem = MaxMarginDirection()
THEOREMS = (theorem,)
