"""Ji & Telgarsky, "Gradient descent aligns the layers of deep linear networks", ICLR 2019."""

import itertools

import numpy as np

from marginflow.nets.deep_linear import DeepLinear
from marginflow.theorems.base import (
    Assumption,
    Claim,
    Prediction,
    Theorem,
    fact,
    from_condition,
    tends_to_zero,
    trained_by,
)
from marginflow.theorems.evidence import Evidence, Subject
from marginflow.theorems.soudry2018 import angle, linear_prediction

BIBTEX = """@inproceedings{ji2019,
  author    = {Ji, Ziwei and Telgarsky, Matus},
  title     = {Gradient descent aligns the layers of deep linear networks},
  booktitle = {International Conference on Learning Representations},
  year      = {2019},
  url       = {https://openreview.net/forum?id=HJflg30qKX}
}"""


class AlignedLayers(Theorem):
    """Deep linear nets: every layer becomes rank one, neighbours align, the product is the max-margin vector.

    **Statement.** f = W_L ⋯ W_1 x, gradient flow on logistic or exponential loss, separable data, a start at
    which the loss is below its value at 0: ‖W_l‖_F → ∞, W_l/‖W_l‖ tends to rank one, v_{l+1} and u_l align,
    so that W_1/‖W_1‖ → u w_maxᵀ, and the product's direction tends to w_max. **Assumptions.** linear
    separability (`conditions.linear_separability`); gradient flow (`base.trained_by`); the loss condition, tested
    on the initial weights (`initial_loss`; a start at exactly 0 is a stationary point). **Asymptotic.** all
    claims; a finite run is measured against the band of `theorems.base.band`. **Gap.** for convergence to w_max
    itself the paper also asks that the support examples span R^d, which is not tested here: that the limit is
    w_max without it has since been shown for homogeneous nets.
    """

    key, title, number = "ji2019", "Aligned layers (Ji & Telgarsky 2019)", "Theorems 2.2 and 2.8"
    premises = (
        "gradient flow on the logistic or exponential loss",
        "initial loss below its value at zero weights",
    )

    def covers(self, subject: Subject) -> str | None:
        return None if isinstance(subject.net, DeepLinear) else "the net is not a deep linear net"

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (from_condition(subject.condition("linear_separability")),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        flow = trained_by(evidence, "flow", "gradient_flow")
        if evidence.run is None:
            return (flow, fact("initial_loss", None, "weights alone do not say where they started"))
        q = evidence.data.y * np.asarray(evidence.net(evidence.run.theta0, evidence.data.X))
        start = float(
            np.mean(np.exp(evidence.loss.log_value(q)) - np.exp(evidence.loss.log_value(np.zeros(1))))
        )
        # Along the flow the loss decreases, so a later time below the value at 0 serves as a start.
        now = evidence.log_loss - np.log(evidence.data.n) < float(evidence.loss.log_value(np.zeros(1))[0])
        return (
            flow,
            fact(
                "initial_loss",
                True if start < 0 or now else None,
                "mean loss at the start minus its value at 0"
                + ("" if start < 0 else "; below it later on the way"),
                start,
                0.0,
                -start,
            ),
        )

    def predict(self, subject: Subject) -> Prediction:
        net = subject.net
        assert isinstance(net, DeepLinear)

        def aligned(direction: np.ndarray) -> dict[str, np.ndarray]:
            first = {n: np.zeros(s) for n, s in net.shapes(subject.data.d).items()}
            for name in net.trained:
                first[name][0, :] = direction if name == net.trained[0] else np.eye(first[name].shape[1])[0]
            return first

        return linear_prediction(subject, net, aligned)

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        net, theta = evidence.net, evidence.theta
        assert isinstance(net, DeepLinear)
        layers = [np.linalg.svd(theta[name], full_matrices=False) for name in net.trained]
        rank_one = max(float(s[1] / s[0]) if len(s) > 1 else 0.0 for _, s, _ in layers)
        misaligned = [
            1 - abs(float(upper[2][0] @ lower[0][:, 0])) for lower, upper in itertools.pairwise(layers)
        ]
        w = net.end_to_end(theta)
        first = min(angle(layers[0][2][0], prediction["w_max"]), angle(-layers[0][2][0], prediction["w_max"]))
        norms = [float(np.linalg.norm(theta[name])) for name in net.trained]
        # The k-th root of a margin error is what an angle error of the product is to that of one layer.
        return (
            tends_to_zero(
                "direction",
                angle(w, prediction["w_max"]),
                evidence,
                0.5,
                "angle between W_L⋯W_1 and w_max",
                scale=2.0,
            ),
            tends_to_zero(
                "rank_one", rank_one, evidence, 1 / net.degree, "largest σ2/σ1 of a layer", scale=2.0
            ),
            tends_to_zero(
                "alignment",
                max(misaligned, default=0.0),
                evidence,
                1 / net.degree,
                "1 - |v_{l+1}ᵀu_l|, worst pair",
                scale=2.0,
            ),
            tends_to_zero(
                "first_layer",
                first,
                evidence,
                0.5,
                "angle between the top right direction of W_1 and w_max",
                scale=2.0,
            ),
            tends_to_zero(
                "equal_norms",
                max(norms) / min(norms) - 1,
                evidence,
                1 / net.degree,
                "largest over smallest ‖W_l‖_F, minus 1",
                scale=2.0,
            ),
        )


theorem = AlignedLayers()
THEOREMS = (theorem,)
