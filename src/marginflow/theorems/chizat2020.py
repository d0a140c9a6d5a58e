"""Chizat & Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained with the
logistic loss" (system C).
"""

import dataclasses
from typing import Any

import numpy as np

from marginflow._core.status import Status
from marginflow.data.dataset import Dataset
from marginflow.nets.two_layer import TwoLayer
from marginflow.theorems.base import (
    Assumption,
    Claim,
    Prediction,
    Theorem,
    Unpredictable,
    at_least,
    at_most,
    fact,
    trained_by,
)
from marginflow.theorems.evidence import Evidence, Subject

BIBTEX = """@inproceedings{chizat2020,
  author    = {Chizat, L{\\'e}na{\\"i}c and Bach, Francis},
  title     = {Implicit Bias of Gradient Descent for Wide Two-layer Neural Networks Trained with the Logistic
  Loss}, booktitle = {Conference on Learning Theory}, series    = {Proceedings of Machine Learning Research},
  volume    = {125}, pages     = {1305--1338}, year      = {2020}
}"""

# Initialisations whose directions have a density on the sphere of the trained weights of a unit; with both layers
# trained, balanced weights lie on the slice |a| = ‖w‖ of it.
FULL_SUPPORT = ("gaussian", "sphere", "uniform", "pytorch", "tensorflow", "glorot-normal", "signs")
SLICED = ("balanced", "balanced-spread")
CONVERGED = (
    1e-3  # relative change of the best margin over the last half of log t: the stand-in for "ν̄_t converges"
)
SHORTFALL = 0.02  # a finite width and a finite time stay below γ1; within this share of it counts as reached


class F1(Theorem):
    """Both layers of an infinitely wide net: the limit maximises the F1 margin.

    **Statement.** φ 2-homogeneous in w and balanced, logistic or exponential loss, start with full support on
    the sphere. If ∇S(ĥ(μ_t)) and the normalised measure ν̄_t converge, the limit maximises γ1 = max over ν >=
    0, ν(S) <= 1 of min_i y_i ∫ φ dν; so the margin of a net of m units tends to γ1 as m, t → ∞.

    **Assumptions.** 2-homogeneity (read from the net); A3 of the paper: φ(·, x_i) differentiable with Lipschitz
    gradient (`smooth_feature`), true for S-ReLU, *false for ReLU*, for which the theorem as proved is silent and
    the conclusion is measured, and linearly independent over i (`independent_features`); full support
    (`full_support`), stood for by an initialisation whose directions have a density; gradient flow
    (`base.trained_by`); convergence (`converged`), which is an open question: a run stands for it when its margin
    has stopped moving. **Claims.** the margin never exceeds γ1 (exact, at any width and time), and reaches it up
    to 2%, a yardstick for finite width and time: a net that falls short proves nothing about infinite ones, and
    leaves the claim open.

    **Generalisation.** With probability 1 - δ the test error is at most C_ε(r)/√n (R/Δ_r)^((r+3)/(2-ε)) +
    √(log B/n) + √(log(1/δ)/(2n)) for every r; the constants C_ε(r) and B are not given, so only R, Δ_r as a
    certified interval and the exponent at ε → 0 are predicted (`generalisation`; for r = d unless asked).
    """

    key, title, number = "chizat2020.f1", "F1 max margin (Chizat & Bach 2020)", "Theorem 3 and corollary"
    premises = (
        "gradient flow on both layers, width → ∞",
        "initial directions with full support",
        "∇S and the normalised measure converge (open)",
    )

    def covers(self, subject: Subject) -> str | None:
        net = subject.net
        if not isinstance(net, TwoLayer):
            return "the net is not a two-layer net"
        if net.activation.name not in ("relu", "srelu"):
            return f"no F1 problem for the activation {net.activation.name}; use relu or srelu"
        if net.activation.name == "relu" and net.train != "both":
            return f"only the {net.train} layer is trained"
        return None if net.train != "output" else "only the output layer is trained"

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        smooth = subject.two_layer.activation.name == "srelu"
        return (
            fact(
                "two_homogeneous",
                subject.net.degree == 2,
                "degree of f in the trained weights",
                subject.net.degree,
                2,
            ),
            fact(
                "smooth_feature",
                smooth,
                "φ(·, x) differentiable with Lipschitz gradient; ReLU features are not, S-ReLU features are",
                subject.two_layer.activation.name,
                "srelu",
            ),
            independent_features(subject),
        )

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (trained_by(evidence, "flow", "gradient_flow"), full_support(evidence), converged(evidence))

    def predict(self, subject: Subject) -> Prediction:
        f1 = subject.f1
        if f1.neurons is None or not f1.lower_bound > 0:
            raise Unpredictable(f"the F1 margin is not positive ({f1.message})")
        net, theta = classifier(f1)
        values = {
            "margin": f1.value,
            "lower_bound": f1.lower_bound,
            "upper_bound": f1.upper_bound if f1.certified else None,
            "dual_value": f1.dual_value,
            "certified": bool(f1.certified),
            "neurons": len(f1.neurons),
            "generalisation": generalisation(subject.data),
        }
        note = "" if f1.certified else "γ1 is only bounded from below; the dual value is no bound"
        return Prediction(values, net, theta, bool(f1.certified), note)

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        reached = variation_margin(evidence)
        ceiling = prediction["upper_bound"]
        claims = [
            at_most(
                "below_gamma1",
                reached,
                ceiling * (1 + 1e-9),
                "margin in F1 norm against the certified upper bound of γ1",
            )
            if ceiling is not None
            else Claim(
                "below_gamma1",
                Status.UNDECIDED,
                reached,
                None,
                "<=",
                "γ1 has no certified upper bound on these data",
            )
        ]
        target = (1 - SHORTFALL) * prediction["lower_bound"]
        claims.append(
            Claim(
                "reaches_gamma1",
                Status.HOLDS if reached >= target else Status.UNDECIDED,
                reached,
                target,
                ">=",
                f"margin in F1 norm against {1 - SHORTFALL:.0%} of γ1 >= {prediction['lower_bound']:.6g}",
            )
        )
        return tuple(claims)


class F2(Theorem):
    """Output layer only: the limit is the F2 (kernel) max-margin classifier.

    **Statement.** Directions fixed at a full-support draw, only output weights trained: the classifier tends
    to the max margin one in the RKHS of the kernel K = ∫ σσ dτ, margin γ2; at width m, to γ2^(m) = max over
    √m‖a‖ <= 1 of min z_iᵀa.

    **Assumptions.** γ2 > 0 (`margins.f2`); directions with full support (`full_support`); gradient flow or full-batch
    descent (`plain_descent`: in the output weights alone the problem is logistic regression on features).
    **Claims.** the margin never exceeds γ2^(m) (exact), reaches it up to the finite-time band, and γ2^(m) is
    near γ2, within 4·√(log n/m) relative, a Monte-Carlo yardstick. Features are those of the weights as they are,
    divided by the root mean square length of the w_j: a Gaussian draw has the kernel of the sphere times a constant.

    **Generalisation.** The bound of `F1` with r = d only.
    """

    key, title, number = "chizat2020.f2", "F2 max margin (Chizat & Bach 2020)", "§5"
    premises = ("gradient flow or descent on the output layer", "directions uniform on the sphere, width → ∞")

    def covers(self, subject: Subject) -> str | None:
        net = subject.net
        if not isinstance(net, TwoLayer) or net.train != "output":
            return "not a two-layer net of which only the output layer is trained"
        return None if net.activation.name == "relu" else f"no closed-form kernel for {net.activation.name}"

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        f2 = subject.f2
        return (
            fact(
                "kernel_separability",
                f2.separable,
                "γ2 > 0, by its certified interval",
                f2.lower_bound,
                0.0,
                f2.lower_bound,
                "margins.f2",
            ),
        )

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (plain_descent(evidence), full_support(evidence))

    def predict(self, subject: Subject) -> Prediction:
        f2 = subject.f2
        if not f2.lower_bound > 0 or f2.vector is None:
            raise Unpredictable(f"γ2 is not positive ({f2.message})")
        return Prediction(
            {
                "margin": f2.value,
                "lower_bound": f2.lower_bound,
                "upper_bound": f2.upper_bound,
                "dual": f2.dual,
                "generalisation": generalisation(subject.data),
            },
            certified=bool(f2.certified),
            function=KernelClassifier(subject.data, np.asarray(f2.vector), subject.two_layer.activation),
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        from marginflow import margins
        from marginflow.theorems.base import tends_to_zero

        W, a = evidence.theta["W"], evidence.theta["a"]
        m = len(a)
        length = float(np.sqrt(np.sum(W**2) / m))
        if not length > 0:
            note = "all directions are 0"
            return (Claim("reaches_finite_gamma2", Status.UNDECIDED, None, None, "<=", note),)
        Z = evidence.data.y[:, None] * np.asarray(
            evidence.two_layer.activation(evidence.data.X @ (W / length).T)
        )
        finite = margins.f2_finite(Z)
        scale = np.sqrt(m) * np.linalg.norm(a)
        reached = float((Z @ a).min() / scale) if scale > 0 else 0.0
        claims = [
            at_most(
                "below_finite_gamma2",
                reached,
                finite.upper_bound * (1 + 1e-9),
                "margin with √m‖a‖ = 1 against the upper bound of γ2^(m)",
            )
        ]
        if not finite.certified:
            note = "γ2^(m) is not certified"
            claims.append(Claim("reaches_finite_gamma2", Status.UNDECIDED, reached, None, ">=", note))
        elif finite.lower_bound > 0:
            claims.append(
                tends_to_zero(
                    "reaches_finite_gamma2",
                    1 - reached / finite.value,
                    evidence,
                    1.0,
                    "shortfall from γ2^(m), relative",
                    scale=4.0,
                )
            )
        spread = 4 * np.sqrt(np.log(evidence.data.n) / m)
        gap = abs(finite.value / prediction["margin"] - 1)
        claims.append(
            Claim(
                "finite_width",
                Status.HOLDS if gap <= spread else Status.UNDECIDED,
                gap,
                spread,
                "<=",
                "|γ2^(m)/γ2 - 1|",
            )
        )
        return tuple(claims)


class RateBoth(Theorem):
    """Both layers, simplified: the best margin comes within log(t)/√t of γ1^(m).

    **Statement.** Directions fixed, F(r) = -log mean_i exp(-(1/m) Σ_j z_ij r_j²), ascent with η(t) =
    1/(16‖z‖_∞√(t+1)) from r(0) ∝ 1, a = r²/m, β = ‖a‖_1: max over s < t of min_i z_iᵀ a(s)/β(s) is at least
    γ1^(m) - ‖z‖_∞/√t (8 log m + log t + 1) - 4B log n/√t. **B** has no value in the paper beyond being finite
    when γ1^(m) > 0. It comes from the soft minimum, whose error at time s is log(n)/β(s); averaged with
    weights η(s) that is (log n) Σ η/β / Σ η, so B(t) = (√t/4) Σ η/β / Σ η is measured and its largest value
    so far is used and stated.
    **Assumptions.** γ1^(m) > 0 (`margins.f1_finite`), without which B need not be finite; the dynamics are those of the
    statement: the theorem is silent about other runs.
    """

    key, title, number = "chizat2020.rate_both", "Rate, both layers (Chizat & Bach 2020)", "Proposition in §4"
    premises = ("the simplified dynamics with fixed directions and its own step size",)
    kind = "both"

    def covers(self, subject: Subject) -> str | None:
        if not isinstance(subject.net, TwoLayer) or not subject.net.degree:
            return "the net is not a homogeneous two-layer net"
        if isinstance(subject, Evidence) and (
            subject.run is None or subject.run.method != f"rate-{self.kind}"
        ):
            return f"the weights do not come from its own dynamics (method rate-{self.kind})"
        return None

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return ()

    def predict(self, subject: Subject) -> Prediction:
        return Prediction(
            {"exponent": -0.5}, certified=True, note="the curve depends on the directions drawn; see claims"
        )

    def finite(self, evidence: Evidence):
        """(features z_ij, the maximal margin of these directions)."""
        run = evidence.run
        assert run is not None  # see `covers`
        from marginflow import margins

        Z = unit_features(evidence)
        if self.kind == "both":
            Z = Z * np.sign(np.asarray(run.theta0["a"]))  # r² is non-negative: the sign of a unit is fixed
        return Z, margins.f1_finite(Z) if self.kind == "both" else margins.f2_finite(Z)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        gamma = evidence.once(self.key, lambda: self.finite(evidence))[1]
        positive = (
            True
            if gamma.lower_bound > 0
            else False
            if gamma.upper_bound <= 0 or getattr(gamma, "separable", None) is False
            else None
        )
        note = "the directions drawn separate the data: their maximal margin"
        name = f"margins.f{1 if self.kind == 'both' else 2}_finite"
        return (fact("finite_separability", positive, note, gamma.lower_bound, 0.0, gamma.lower_bound, name),)

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        run = evidence.run
        assert run is not None  # see `covers`
        Z, finite = evidence.once(self.key, lambda: self.finite(evidence))
        best, bound, note = self.curves(run.history, Z, finite.lower_bound)
        worst = float(np.min(best - bound))
        claims = [
            at_least(
                "above_bound",
                worst,
                0.0,
                f"least distance of the best margin above the bound, over {len(best)} recorded times; {note}",
            ),
            at_most(
                "below_finite_gamma",
                float(best[-1]),
                finite.upper_bound * (1 + 1e-9),
                "best margin against the optimum of these directions",
            ),
        ]
        return tuple(claims)

    def curves(self, history, Z, gamma: float) -> tuple[np.ndarray, np.ndarray, str]:
        """(best margin, bound) at the recorded times t >= 1, and what was measured for the bound."""
        n, m = Z.shape
        t = np.asarray(history["step"], float)
        z = float(np.abs(Z).max())
        b = np.maximum.accumulate(np.asarray(history["soft_min_B"], float))
        bound = gamma - z / np.sqrt(t) * (8 * np.log(m) + np.log(t) + 1) - 4 * b * np.log(n) / np.sqrt(t)
        return np.asarray(history["best_margin"], float), bound, f"B = {b[-1]:.4g} measured"


class RateOutput(RateBoth):
    """Output layer only: the best margin comes within 1/√t of γ2^(m).

    **Statement.** F(r) = -log mean_i exp(-(1/m) Σ_j z_ij r_j), r(0) = 0, a = r/m, β(t) = max(1, max_s
    √m‖a(s)‖_2), η(t) = β(t)√2/(‖z‖_∞√(t+1)): max over s < t of min_i z_iᵀ a(s)/β(s) is at least γ2^(m) -
    ‖z‖_∞/√t (2√2 + √3 log n/γ2^(m)). **Assumption.** γ2^(m) > 0 (`margins.f2_finite`). No free constant.
    """

    key, title, number = (
        "chizat2020.rate_output",
        "Rate, output layer (Chizat & Bach 2020)",
        "Proposition in §5",
    )
    kind = "output"

    def curves(self, history, Z, gamma: float) -> tuple[np.ndarray, np.ndarray, str]:
        t = np.asarray(history["step"], float)
        z = float(np.abs(Z).max())
        bound = (
            gamma - z / np.sqrt(t) * (2 * np.sqrt(2) + np.sqrt(3) * np.log(Z.shape[0]) / gamma)
            if gamma > 0
            else np.full(len(t), -np.inf)
        )
        return np.asarray(history["best_margin"], float), bound, f"γ2^(m) >= {gamma:.4g}"


def classifier(f1) -> tuple[TwoLayer, dict[str, np.ndarray]]:
    """The F1-max-margin classifier as a net with ‖θ‖ = 1 over its trained weights and q_min = γ1."""
    neurons = f1.neurons
    if f1.activation == "srelu":  # mass ‖w‖² on the sphere of w; the output signs are fixed
        theta = {
            "W": np.sqrt(neurons.mass)[:, None] * neurons.direction,
            "a": np.asarray(neurons.sign, float),
        }
        return TwoLayer(len(neurons), activation="srelu", train="input"), theta  # type: ignore[arg-type]
    half = np.sqrt(neurons.mass / 2)
    return TwoLayer(len(neurons)), {"W": half[:, None] * neurons.direction, "a": half * neurons.sign}


def variation_margin(evidence: Evidence) -> float:
    """q_min over the F1 norm of the net: Σ_j ½(a_j² + ‖w_j‖²) ≥ Σ_j |a_j|‖w_j‖ for ReLU on the sphere ‖(a,
    w)‖ = 1.

    A unit (b, c) of the sphere contributes at most ½ρ(ĉᵀx), so γ1's normalisation is mass 2|a_j|‖w_j‖ for a
    unit (a_j, w_j); for S-ReLU the mass is |a_j|‖w_j‖².
    """
    W, a = evidence.theta["W"], evidence.theta["a"]
    length = np.linalg.norm(W, axis=1)
    degree = evidence.two_layer.activation.degree
    mass = float(np.sum(2 * np.abs(a) * length if degree == 1 else np.abs(a) * length**2))
    if evidence.two_layer.mean_field:
        mass /= len(a)
    return float(evidence.margins.min() / mass) if mass > 0 else -np.inf


def unit_features(evidence: Evidence) -> np.ndarray:
    """z_ij = y_i σ(ĉ_jᵀx_i) with directions on the sphere."""
    W = np.asarray(evidence.theta["W"])
    directions = W / np.linalg.norm(W, axis=1, keepdims=True)
    return evidence.data.y[:, None] * np.asarray(
        evidence.two_layer.activation(evidence.data.X @ directions.T)
    )


@dataclasses.dataclass(frozen=True, eq=False)
class KernelClassifier:
    """f(x) = Σ_i β_i y_i K(x_i, x), the F2-max-margin function in normal form: y_i f(x_i) >= 1 on the data."""

    data: Dataset
    coefficients: np.ndarray
    activation: Any

    def __call__(self, X) -> np.ndarray:
        from marginflow.margins.kernels import between

        return between(np.asarray(X, float), self.data.X, self.activation) @ (self.coefficients * self.data.y)


def generalisation(data: Dataset, rank: int | None = None) -> dict[str, Any]:
    """What can be computed of the generalisation bound: R, the certified interval of Δ_r, the exponent at ε → 0.

    r = d unless `rank` says otherwise; smaller ranks, which the F1 bound allows, cost a search for the projection.
    """
    from marginflow.conditions import check

    r = data.d if rank is None else rank
    distance = check(data, conditions=["interclass_distance"], rank=r).conditions["interclass_distance"]
    lower, upper = distance.witness["interval"]
    radius = float(np.linalg.norm(data.X, axis=1).max())
    return {
        "rank": r,
        "R": radius,
        "interclass_distance": [lower, upper],
        "exponent": (r + 3) / 2,
        "R_over_distance_at_most": radius / lower if lower > 0 else None,
    }


def independent_features(subject: Subject) -> Assumption:
    """φ(·, x_i) linearly independent, decided from the rays of the examples in exact arithmetic.

    Each feature has its kink on its own hyperplane wᵀx_i = 0, so a combination that vanishes lives on examples that
    share a line through 0: one ray twice is dependent at once. Of k lines with both rays only the smooth sums are
    left, wᵀx for ReLU and (wᵀx)² for S-ReLU: independent iff the x, or the x xᵀ, are.
    """
    from marginflow._core import exact
    from marginflow.margins.f1_zero import lines

    X = np.asarray(subject.data.X, np.float64)
    line, side = lines(X)
    rays, counts = np.unique(2 * line + (side > 0), return_counts=True)
    note = "φ(·, x_1), …, φ(·, x_n) are linearly independent functions of w: "
    if (counts > 1).any():
        rows = np.flatnonzero(2 * line + (side > 0) == rays[counts > 1][0])
        told = f"rows {rows[0]} and {rows[1]} lie on one ray from 0"
        return fact("independent_features", False, note + told, int(counts.max()), 1)
    both = [np.flatnonzero(line == k)[0] for k in np.unique(line) if np.sum(line == k) == 2]
    if not both:
        return fact("independent_features", True, note + "no two rows on a line through 0", 1, 1)
    V = X[both] / np.abs(X[both]).max(axis=1, keepdims=True)
    smooth = V if subject.is_relu else np.einsum("ki,kj->kij", V, V).reshape(len(V), -1)
    told = f"{len(both)} lines through 0 with rows on either side"
    dependent = (
        len(both) > np.linalg.matrix_rank(smooth)
        if not subject.is_relu
        else exact.dependence(X[both]) is not None
    )
    return fact(
        "independent_features", not dependent, note + told, len(both), int(np.linalg.matrix_rank(smooth))
    )


def plain_descent(evidence: Evidence) -> Assumption:
    run = evidence.run
    if run is None:
        return fact("plain_descent", None, "weights alone do not say how they were trained")
    kinds = ("flow", "gd", "ngd", "rate-output")
    return fact(
        "plain_descent", run.method in kinds, f"trained by {run.method}", run.method, ", ".join(kinds)
    )


def full_support(evidence: Evidence) -> Assumption:
    run = evidence.run
    init = None if run is None else run.options.get("init")
    if init not in (*FULL_SUPPORT, *SLICED):
        return fact("full_support", None, "the distribution of the initial directions is not known")
    full = init in FULL_SUPPORT or evidence.two_layer.train != "both"
    note = (
        "a finite width stands for the limit of many units"
        if full
        else "|a| = ‖w‖ is a slice of the sphere of (w, a), not all of it"
    )
    return fact("full_support", full, f"initialised by '{init}'; {note}", init)


def converged(evidence: Evidence) -> Assumption:
    """The margin's relative change over the last half of log t; convergence itself is an open question of the
    paper.
    """
    run = evidence.run
    if run is None:
        return fact("convergence", None, "weights alone do not say whether training has converged")
    gamma, t = (
        np.asarray(run.history.get("normalised_margin", ()), float),
        np.asarray(run.history.get("log_time", ()), float),
    )
    if evidence.at_limit:
        return fact("convergence", True, "the run ended at a certified limit")
    late = t >= t[-1] / 2 if len(t) else np.zeros(0, bool)
    if late.sum() < 3 or not gamma[-1] > 0:
        return fact("convergence", None, "the run is too short to see whether the margin has stopped moving")
    change = float(np.ptp(gamma[late]) / gamma[-1])
    return fact(
        "convergence",
        True if change <= CONVERGED else None,
        "change of the normalised margin over the last half of log t (convergence is assumed "
        "by the theorem and open)",
        change,
        CONVERGED,
        CONVERGED - change,
    )


f1, f2, rate_both, rate_output = F1(), F2(), RateBoth(), RateOutput()
THEOREMS = (f1, f2, rate_both, rate_output)
