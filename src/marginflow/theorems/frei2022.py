"""Frei, Vardi, Bartlett, Srebro & Hu, "Implicit bias in leaky ReLU networks trained on high-dimensional data"
(system B).
"""

import numpy as np

from marginflow._core.status import Outcome, Status
from marginflow.nets.two_layer import TwoLayer
from marginflow.theorems.base import (
    LIMIT_TOLERANCE,
    Assumption,
    Claim,
    Prediction,
    Theorem,
    Unpredictable,
    at_least,
    at_most,
    fact,
    from_condition,
    in_the_limit,
    tends_to_zero,
    trained_by,
    unless_stalled,
)
from marginflow.theorems.evidence import Evidence, Subject

BIBTEX = """@inproceedings{frei2022,
  author    = {Frei, Spencer and Vardi, Gal and Bartlett, Peter L. and Srebro, Nathan and Hu, Wei},
  title     = {Implicit Bias in Leaky {ReLU} Networks Trained on High-Dimensional Data},
  booktitle = {International Conference on Learning Representations},
  year      = {2023},
  note      = {arXiv:2210.07082}
}"""

PROBES = 4096  # random inputs on which item (5) compares the sign of the net with its linear boundary


class Flow(Theorem):
    """Gradient flow of leaky ReLU nets on nearly orthogonal data ends at rank two with a linear boundary
    (Theorem 3.2).

    **Statement.** f = Σ a_j φ(w_jᵀx), φ(z) = max(γz, z), a_j = ±1/√m fixed (m1 positive, m2 negative), W
    trained. Any KKT point of min ½‖W‖² s.t. q_i >= 1, so any limit of the flow that separates, has: (1) all
    q_i = 1; (2) equal rows v for positive and u for negative neurons, multipliers in (1/(2R_max²),
    3/(2γ²R_min²)); (3) it is the global optimum; (4) (v, u) solves a convex problem; (5) sign f = sign zᵀx
    with z = (m1/√m)v - (m2/√m)u; (6) y_i zᵀx_i >= 1 and ‖z‖ <= 2/(κ+γ)‖z*‖, z* the linear max-margin vector,
    κ = (min(m1,m2)/max(m1,m2))^½.

    **Assumptions.** near-orthogonality with constant 3γ^-3 (`conditions.near_orthogonality`, constant
    frei2022.flow): very strong, and the conclusions are seen to hold far outside it; output weights ±1/√m
    (`fixed_output`); a KKT point (`reached_kkt`), however it was found: how the weights were trained is not asked.
    **Asymptotic.** all claims; see `base.band`. The constant is recalled from the published version.
    """

    key, title, number = "frei2022.flow", "Rank two and a linear boundary (Frei et al. 2022)", "Theorem 3.2"
    premises = (
        "gradient flow on the input layer, logistic or exponential loss",
        "the flow separates the data at some time",
        "output weights ±1/√m, half of them positive unless weights are given",
    )

    def covers(self, subject: Subject) -> str | None:
        return leaky_input_layer(subject, smooth=False)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        condition = subject.condition("near_orthogonality", constant="frei2022.flow", leak=subject.leak)
        return (from_condition(condition),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (fixed_output(evidence), reached_kkt(evidence))

    def predict(self, subject: Subject) -> Prediction:
        m1, m2 = signs_of(subject)
        return subject.once(("leaky", m1, m2), lambda: rank_two(subject, m1, m2))

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        if not evidence.separates:
            note = "the weights do not separate the data, so they are no stand-in for a limit"
            return (Claim("equal_margins", Status.UNDECIDED, float(evidence.margins.min()), 0.0, ">", note),)
        W, a, data = evidence.theta["W"], evidence.theta["a"], evidence.data
        q = evidence.margins
        W = W / q.min()  # f is of degree one in W: q_min = 1
        m = len(a)
        plus, minus = W[a > 0], W[a < 0]
        m1, m2 = len(plus), len(minus)
        v, u = plus.mean(axis=0), minus.mean(axis=0)
        size = np.linalg.norm(W) / np.sqrt(m)
        spread = max(np.linalg.norm(plus - v, axis=1).max(), np.linalg.norm(minus - u, axis=1).max()) / size
        s = np.linalg.svd(W, compute_uv=False)
        apart = np.sqrt(
            m1 * np.sum((v - prediction["v"]) ** 2) + m2 * np.sum((u - prediction["u"]) ** 2)
        ) / np.linalg.norm(W)
        optimum = m1 * np.sum(prediction["v"] ** 2) + m2 * np.sum(prediction["u"] ** 2)
        z = (m1 * v - m2 * u) / np.sqrt(m)
        radii = np.linalg.norm(data.X, axis=1)
        low, high = 1 / (2 * radii.max() ** 2), 3 / (2 * slope_floor(evidence) ** 2 * radii.min() ** 2)
        multipliers = evidence.kkt.multipliers
        inside = min(multipliers.min() / low, high / multipliers.max())
        return (
            tends_to_zero(
                "equal_margins", q.max() / q.min() - 1, evidence, 1.0, "(1) max q_i/min q_i - 1", scale=2.0
            ),
            tends_to_zero(
                "equal_rows",
                spread,
                evidence,
                0.5,
                "(2) largest deviation of a row from its group's mean",
                scale=2.0,
            ),
            tends_to_zero(
                "rank_two", float(s[2] / s[0]) if len(s) > 2 else 0.0, evidence, 0.5, "(2) σ3/σ1 of W"
            ),
            self._multipliers(inside, evidence, low, high),
            self._optimum(float(np.sum(W**2) / optimum - 1), evidence),
            tends_to_zero(
                "convex_problem",
                apart,
                evidence,
                0.5,
                "(4) distance of the rows' means from (v, u)",
                scale=2.0,
            ),
            in_the_limit(
                at_most(
                    "linear_boundary",
                    disagreement(evidence, z),
                    0.0 if evidence.at_limit else 0.01,
                    f"(5) share of {PROBES} random inputs and all examples where sign f differs from sign zᵀx",
                ),
                evidence,
            ),
            tends_to_zero(
                "z_feasible",
                max(0.0, 1 - float((data.y * (data.X @ z)).min())),
                evidence,
                0.5,
                "(6) shortfall of y_i zᵀx_i >= 1",
            ),
            in_the_limit(
                at_most(
                    "z_norm",
                    np.linalg.norm(z) / prediction["z_star_norm"],
                    prediction["z_bound"],
                    "(6) ‖z‖/‖z*‖ against 2/(κ+γ)",
                ),
                evidence,
            ),
        )

    @staticmethod
    def _optimum(excess: float, evidence: Evidence) -> Claim:
        """Weights with q_min = 1 and a smaller norm than the optimum refute it, at any time."""
        note = "(3) ‖W‖²/optimum - 1"
        if excess < -LIMIT_TOLERANCE:
            return Claim(
                "global_optimum", Status.FAILS, excess, 0.0, ">=", f"{note}; a better point than the optimum"
            )
        return tends_to_zero("global_optimum", max(excess, 0.0), evidence, 1.0, note, scale=2.0)

    @staticmethod
    def _multipliers(inside: float, evidence: Evidence, low: float, high: float) -> Claim:
        note = f"(2) all λ_i in ({low:.3g}, {high:.3g}); distance to the nearer end as a factor"
        if not evidence.at_limit and evidence.kkt.stationarity > 0.1:
            return Claim(
                "multipliers",
                Status.UNDECIDED,
                inside,
                1.0,
                ">=",
                note + "; too far from a KKT point to have multipliers",
            )
        claim = in_the_limit(at_least("multipliers", inside, 1.0, note), evidence)
        return unless_stalled(claim, evidence.kkt.outcome)


class Descent(Theorem):
    """One step of gradient descent from a tiny start already collapses the stable rank, for good (Theorem
    4.2).

    **Statement.** γ-leaky H-smooth activation, a_j = ±1/√m fixed, nearly orthogonal data, small step α, start
    with standard deviation ω small enough: the stable rank ‖W‖_F²/‖W‖_2² is bounded by a constant for every t
    >= 1, and L <= ε for t of order n/(αε).

    **A number for the constant.** W(t) - W(0) = Σ_i c_ji a_j y_i x_i with c_ji in [γ C_i, C_i]. Testing it on
    a and Σ C_i y_i x_i gives, with η = n max|x_iᵀx_k|/R_min² < γ, S = Σ C_i²‖x_i‖²: ‖W(t) - W(0)‖_F² <=
    (1+η)S and ‖W(t) - W(0)‖_2² >= (γ-η)²S/(1+η), hence stable rank at most (1+η)²/(γ-η)² where W(0) is
    negligible; its share is added to numerator and taken from denominator.

    **Assumptions.** near-orthogonality with constant 5γ^-2 C_R, C_R = 10R²/γ² + 10, R = R_max/R_min; the step
    (`step_size`) and start (`initial_scale`) bounds; gradient descent on the logistic loss (`gradient_descent`);
    output weights ±1/√m (`fixed_output`). Constants recalled from the published version.

    **A number for the rate.** The same test of the gradient gives ‖∇L‖² >= c G²/n with c = (γ-η)² R_min²/(1+η)
    and G = mean(-ℓ'). While no q_i is below -0.3, ℓ <= -2ℓ' and L <= 2G; with a step below 1/β, which the bound
    on α implies, each step lowers L by at least (α/2)‖∇L‖² >= αcL²/(8n), so L(t) <= 8n/(αct) for all t >= 1, and
    L <= ε from t = 8n/(αcε) on. Nothing here is asymptotic.
    """

    key, title, number = (
        "frei2022.descent",
        "One step collapses the stable rank (Frei et al. 2022)",
        "Theorem 4.2",
    )
    premises = (
        "gradient descent on the input layer, logistic loss",
        "step and initial scale below their bounds",
    )

    def covers(self, subject: Subject) -> str | None:
        return leaky_input_layer(subject, smooth=True)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (
            from_condition(
                subject.condition(
                    "near_orthogonality", constant="frei2022.descent", leak=slope_floor(subject)
                )
            ),
        )

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        run = evidence.run
        common = (fixed_output(evidence),)
        if run is None:
            return (*common, trained_by(evidence, "gd", "gradient_descent"))
        step, omega = run.options.get("lr"), float(np.sqrt(np.mean(np.asarray(run.theta0["W"], float) ** 2)))
        bound = prediction["step_bound"]
        out = [
            *common,
            trained_by(evidence, "gd", "gradient_descent"),
            fact(
                "logistic_loss",
                run.loss == "logistic",
                f"trained on the {run.loss} loss",
                run.loss,
                "logistic",
            ),
        ]
        if step is None:
            return (*out, fact("step_size", None, "the run does not record one fixed step", None, bound))
        start = initial_bound(evidence, prediction, float(step))
        return (
            *out,
            fact(
                "step_size", step <= bound, "α <= γ²/(5nR_max²R²C_R max(1,H))", step, bound, 1 - step / bound
            ),
            fact(
                "initial_scale",
                omega <= start,
                "ω against its bound at δ = 0.01",
                omega,
                start,
                1 - omega / start,
            ),
        )

    def predict(self, subject: Subject) -> Prediction:
        leak = slope_floor(subject)
        radii = np.linalg.norm(subject.data.X, axis=1)
        ratio = float(radii.max() / radii.min())
        c_r = 10 * ratio**2 / leak**2 + 10
        smoothness = subject.net.activation.smoothness  # type: ignore[attr-defined]
        n = subject.data.n
        eta = n * largest_inner_product(subject) / float(radii.min()) ** 2
        rank = (1 + eta) ** 2 / (leak - eta) ** 2 if eta < leak else np.inf
        values = {
            "stable_rank_bound": rank,
            "eta": eta,
            "C_R": c_r,
            "leak": leak,
            "rate_constant": 8 * n * (1 + eta) / ((leak - eta) * radii.min()) ** 2 if eta < leak else np.inf,
            "step_bound": leak**2 / (5 * n * radii.max() ** 2 * ratio**2 * c_r * max(1.0, smoothness)),
        }
        return Prediction(
            values, certified=True, note="" if np.isfinite(rank) else "inner products too large for a number"
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        run = evidence.run
        initial = np.asarray(run.theta0["W"]) if run is not None else np.zeros_like(evidence.theta["W"])
        bound = rank_bound(evidence.last["W"], initial, prediction)
        rank = float(np.sum(evidence.last["W"] ** 2) / np.linalg.norm(evidence.last["W"], 2) ** 2)
        claims = [_finite_bound("stable_rank_now", rank, bound, "‖W‖_F²/‖W‖_2² of the weights given")]
        history = {} if run is None else run.history
        steps, ranks = history.get("step"), history.get("stable_rank")
        if steps is None or ranks is None:
            return (
                *claims,
                Claim(
                    "stable_rank_always",
                    Status.UNDECIDED,
                    None,
                    bound,
                    "<=",
                    "needs a run that recorded stable_rank",
                ),
            )
        ranks, sizes = np.asarray(ranks, float), np.asarray(history.get("weight_norm", ()), float)
        after = np.asarray(steps) >= 1
        before = f"; {ranks[0]:.4g} before training" if not after[0] else ""
        if not after.any() or len(sizes) != len(ranks):
            note = "needs records of stable_rank and weight_norm after the first step"
            claims.append(Claim("stable_rank_always", Status.UNDECIDED, None, bound, "<=", note))
        else:
            bounds = np.array([rank_bound(size, initial, prediction) for size in sizes[after]])
            worst = int(np.argmax(ranks[after] / bounds))
            note = f"at the recorded step nearest its bound, from step 1 on; largest {ranks[after].max():.4g}{before}"
            claims.append(
                _finite_bound("stable_rank_always", float(ranks[after][worst]), float(bounds[worst]), note)
            )
        step = run.options.get("lr") if run is not None else None
        if not after.any() or not isinstance(step, int | float) or "log_loss" not in history:
            note = "needs records of the loss after the first step, and one step size"
            return (*claims, Claim("loss_rate", Status.UNDECIDED, None, 1.0, "<=", note))
        t, loss = np.asarray(steps, float)[after], np.exp(np.asarray(history["log_loss"], float)[after])
        if run is not None and run.loss_reduction == "sum":
            loss = loss / evidence.data.n
        rate = float(np.max(t * loss) * step / prediction["rate_constant"])
        note = "largest L(t)·αct/(8n) over the recorded steps, L the mean loss"
        claims.append(
            _finite_bound("loss_rate", rate, 1.0 if prediction["eta"] < prediction["leak"] else np.inf, note)
        )
        return tuple(claims)


def leaky_input_layer(subject: Subject, smooth: bool) -> str | None:
    net = subject.net
    if not isinstance(net, TwoLayer):
        return "the net is not a two-layer net"
    if net.train != "input":
        return "the output layer is trained; the theorem fixes it at ±1/√m"
    if smooth:
        return (
            None
            if net.activation.smoothness is not None
            else f"the activation {net.activation.name} is not smooth"
        )
    if net.activation.leak is None or not 0 < net.activation.leak < 1:
        return f"the activation is {net.activation.name}, not leaky ReLU"
    return None


def slope_floor(subject: Subject) -> float:
    """γ: the least slope of a leaky ReLU, smoothed or not: its slope at -∞."""
    return float(subject.two_layer.activation.slope(np.float64(-1e9), np))


def signs_of(subject: Subject) -> tuple[int, int]:
    if isinstance(subject, Evidence):
        a = subject.theta["a"]
        return int(np.sum(a > 0)), int(np.sum(a < 0))
    width = subject.two_layer.width
    return (width + 1) // 2, width // 2


def rank_two(subject: Subject, m1: int, m2: int) -> Prediction:
    from marginflow import margins

    if m1 == 0 or m2 == 0:
        raise Unpredictable("all output weights have one sign; the theorem needs both")
    leak = slope_floor(subject)
    solution = margins.leaky(subject.data, leak, m1, m2)
    if solution.v is None or solution.u is None:
        raise Unpredictable(solution.message)
    kappa = np.sqrt(min(m1, m2) / max(m1, m2))
    star = subject.linear_margin
    if star.vector is None:
        raise Unpredictable("the data are not linearly separable")
    m = m1 + m2
    theta = {
        "W": np.concatenate([np.tile(solution.v, (m1, 1)), np.tile(solution.u, (m2, 1))]),
        "a": np.concatenate([np.ones(m1), -np.ones(m2)]) / np.sqrt(m),
    }
    values = {
        "v": solution.v,
        "u": solution.u,
        "z": solution.z,
        "rank": 2,
        "multipliers": solution.multipliers,
        "kappa": float(kappa),
        "z_star_norm": float(np.linalg.norm(star.vector)),
        "z_bound": float(2 / (kappa + leak)),
    }
    net = TwoLayer(m, subject.two_layer.activation, train="input")
    return Prediction(values, net, theta, bool(solution.certified and star.certified))


def fixed_output(evidence: Evidence) -> Assumption:
    a = evidence.theta["a"]
    off = float(np.max(np.abs(np.abs(a) * np.sqrt(len(a)) - 1)))
    return fact("fixed_output", off <= 1e-6, "output weights are ±1/√m", off, 1e-6, 1e-6 - off)


def reached_kkt(evidence: Evidence) -> Assumption:
    """The theorem speaks of KKT points; a limit is one when its residual is at solver accuracy."""
    if not evidence.separates:
        return fact("kkt_point", None, "the weights do not separate the data")
    residual = evidence.kkt.stationarity
    if residual <= 1e-6:
        return fact(
            "kkt_point", True, "stationarity residual of the weights", residual, 1e-6, 1e-6 - residual
        )
    stalled = evidence.kkt.outcome is not Outcome.CONVERGED
    note = (
        "the weights are on the way to a KKT point; claims use the finite-time band"
        if not evidence.at_limit
        else "the multipliers could not be fitted"
        if stalled
        else "the limit is no KKT point"
    )
    return fact(
        "kkt_point",
        False if evidence.at_limit and not stalled else None,
        note,
        residual,
        1e-6,
        1e-6 - residual,
    )


def disagreement(evidence: Evidence, z: np.ndarray) -> float:
    """Share of probes where sign f and sign zᵀx differ: Gaussian in R^d, and Gaussian in the span of the
    data, where it matters.
    """
    rng = np.random.default_rng(0)
    data = evidence.data
    half = PROBES // 2
    probes = np.concatenate(
        [rng.standard_normal((half, data.d)), rng.standard_normal((half, data.n)) @ data.X, data.X]
    )
    f, line = np.asarray(evidence.net(evidence.theta, probes)), probes @ z
    # Rows equal to LIMIT_TOLERANCE leave signs within it of the boundary open.
    clear = np.abs(line) > LIMIT_TOLERANCE * np.linalg.norm(probes, axis=1) * np.linalg.norm(z)
    return float(np.mean(clear & (np.sign(f) != np.sign(line))))


def largest_inner_product(subject: Subject) -> float:
    X = subject.data.X
    G = np.abs(X @ X.T)
    np.fill_diagonal(G, 0.0)
    return float(G.max())


def rank_bound(W, initial: np.ndarray, prediction: Prediction) -> float:
    """(√((1+η)S) + ‖W0‖_F)²/((γ-η)√S/√(1+η) - ‖W0‖_2)², S from below by (‖W‖_F - ‖W0‖_F)²/(1+η)."""
    eta, leak = prediction["eta"], prediction["leak"]
    size = float(np.linalg.norm(W)) if np.ndim(W) else float(W)
    start_f, start_2 = float(np.linalg.norm(initial)), float(np.linalg.norm(initial, 2))
    moved = max(size - start_f, 0.0)
    denominator = (leak - eta) / (1 + eta) * moved - start_2
    return ((moved + start_f) / denominator) ** 2 if denominator > 0 else np.inf


def initial_bound(evidence: Evidence, prediction: Prediction, step: float, delta: float = 0.01) -> float:
    radii = np.linalg.norm(evidence.data.X, axis=1)
    m, d = evidence.theta["W"].shape
    ratio = radii.max() / radii.min()
    return float(
        step
        * prediction["leak"] ** 2
        * radii.min()
        / (72 * ratio * prediction["C_R"] * evidence.data.n * np.sqrt(m * d * np.log(4 * m / delta)))
    )


def _finite_bound(name: str, measured: float, bound: float, note: str) -> Claim:
    if not np.isfinite(bound):
        return Claim(
            name,
            Status.UNDECIDED,
            measured,
            None,
            "<=",
            note + "; no bound here: the data are too far from orthogonal, or the start too large",
        )
    return at_most(name, measured, bound, note)


flow, descent = Flow(), Descent()
THEOREMS = (flow, descent)
