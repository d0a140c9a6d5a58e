"""Phuong & Lampert, "The inductive bias of ReLU networks on orthogonally separable data", ICLR 2021 (system
A).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from marginflow._core.status import Status
from marginflow.nets.two_layer import TwoLayer
from marginflow.runs import Run
from marginflow.theorems.base import (
    Assumption,
    Claim,
    Prediction,
    Theorem,
    Unpredictable,
    at_most,
    fact,
    from_condition,
    tends_to,
    tends_to_zero,
    trained_by,
    unless_stalled,
)
from marginflow.theorems.evidence import Evidence, Subject

if TYPE_CHECKING:
    from marginflow.margins.base import Margin

BIBTEX = """@inproceedings{phuong2021,
  author    = {Phuong, Mary and Lampert, Christoph H.},
  title     = {The inductive bias of {ReLU} networks on orthogonally separable data},
  booktitle = {International Conference on Learning Representations},
  year      = {2021},
  url       = {https://openreview.net/forum?id=krz7T0xU9Z_}
}"""

# Balance |a_j| = ‖w_j‖ is conserved exactly by the flow; integrators keep it to about 1e-10 relative to ‖θ‖.
BALANCE = 1e-8
# Weights stored in a narrower type are balanced to that type's rounding at best.
NARROW = {np.float16: 2.0**-9, np.float32: 2.0**-22}


class Theorem1(Theorem):
    """ReLU nets on orthogonally separable data converge to two max-margin neurons (Theorem 1 and Corollary
    1).

    **Statement.** f = aᵀρ(Wx) of any width p, gradient flow on the logistic loss from balanced weights that
    are small enough. Then, with probability at least 1 - 2^-p over the directions at the start, W/‖W‖_F → u
    w+ᵀ + z w-ᵀ and a/‖a‖ → u‖w+‖ - z‖w-‖ with u, z >= 0 and u_j z_j = 0, and f/‖θ‖² tends to a net of width
    two.

    **Assumptions.** orthogonal separability (`conditions.orthogonal_separability`); support examples of
    either class span R^d (`conditions.support_span`; the paper suspects that it is not needed, and its own
    experiment breaks it); general position (`conditions.general_position`; where the subsets are too many,
    `general_position_on_the_way` tests on the run what Lemma A.3 needs of it: examples that one neuron lies on
    at one time are linearly independent); gradient flow (`gradient_flow`) on a loss whose derivative is bounded
    (`bounded_slope`: the logistic loss is one, the exponential is not); balance (`balance`) and smallness at the
    start. "Small enough" has no number: what it is for is that every neuron gets into an absorbing sector or
    dies, and `absorbed` tests that on the weights themselves (Lemma 3 makes it permanent). The exceptional event
    of probability 2^-p is that all die, and `survivors` tests that one does not.

    **Sharper than the paper.** With both groups non-empty and c² = 1/(‖w+‖ + ‖w-‖): ‖u‖ = c‖w+‖^-½, ‖z‖ =
    c‖w-‖^-½, f/‖θ‖² → (c²/2)(ρ(w+ᵀx) - ρ(w-ᵀx)) and q_min/‖θ‖² → 1/(2(‖w+‖ + ‖w-‖)), which no net exceeds at
    any time. If the neurons of one sign all die, the other group has the whole norm: ‖u‖ = 1/‖w+‖ and f/‖θ‖² →
    ρ(w+ᵀx)/(2‖w+‖), or the same with z and w-; the dead class is not learned.

    **Asymptotic.** All claims are about t = ∞. On a finite run errors of direction fall like (log t)^-½, and
    claims are compared with the band of `theorems.base.band`; a run too short for it is `undecided`.
    """

    key, title, number = (
        "phuong2021.theorem1",
        "Two max-margin neurons (Phuong & Lampert 2021)",
        "Theorem 1, Corollary 1",
    )
    premises = (
        "gradient flow on the logistic loss",
        "balanced initialisation |a_j| = ‖w_j‖, small enough",
        "with probability at least 1 - 2^-width over the initial directions",
    )

    def covers(self, subject: Subject) -> str | None:
        return relu_both_layers(subject)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (
            from_condition(subject.condition("orthogonal_separability")),
            from_condition(subject.condition("support_span")),
            general_position(subject),
        )

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (
            gradient_flow(evidence),
            bounded_slope(evidence),
            balance(evidence),
            absorbed(evidence),
            survivors(evidence),
        )

    def predict(self, subject: Subject) -> Prediction:
        return two_neurons(subject)

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        split = Split(evidence, prediction)
        claims = [
            tends_to_zero(
                "neurons_align", split.distance, evidence, 0.5, "‖W/‖W‖ - (u w+ᵀ + z w-ᵀ)‖", scale=2.0
            ),
            tends_to_zero(
                "output_weights", split.output_distance, evidence, 0.5, "‖a/‖a‖ - (u‖w+‖ - z‖w-‖)‖", scale=2.0
            ),
            tends_to_zero("rank_two", split.third_singular_value, evidence, 0.5, "σ3/σ1 of W"),
        ]
        groups = [
            ("positive", "‖u‖", "w+", split.positive, split.u_norm, split.u_constant, "u", "w_plus"),
            ("negative", "‖z‖", "w-", split.negative, split.z_norm, split.z_constant, "z", "w_minus"),
        ]
        alone = sum(bool(members.any()) for *_, members, _, _, _, _ in groups) == 1
        for name, symbol, vector, members, norm, constant, letter, w in groups:
            if not members.any():
                continue
            length = float(np.linalg.norm(prediction[w]))
            target = 1 / length if alone else prediction[f"{letter}_norm"]
            factor = 1 / (2 * length) if alone else prediction[f"{letter}_constant"]
            note = f"factor of ρ({vector}ᵀx) in f/‖θ‖²" + (
                "; the other group is dead, so this one has the whole norm" if alone else ""
            )
            claims += [
                tends_to(f"{name}_norm", norm, target, evidence, note=symbol),
                tends_to(f"{name}_constant", constant, factor, evidence, note=note),
            ]
        if alone:
            return tuple(claims)
        return (
            *claims,
            tends_to(
                "normalised_margin",
                evidence.normalised_margin,
                prediction["normalised_margin"],
                evidence,
                from_below=True,
                note="q_min/‖θ‖²",
            ),
        )


class Lemma2(Theorem):
    """Orthogonally separable data have exactly one extremal direction of each sign, in a sector given in
    closed form.

    **Statement.** The positive sector has σ_j = 1 where y_j = 1; where y_j = -1, σ_j = -1 if x_jᵀx_i < 0 for
    some positive i, and 0 if x_jᵀx_i = 0 for all of them. The negative one likewise with the classes swapped.

    **Assumptions.** orthogonal separability (`conditions.orthogonal_separability`). **Claims.** measured by
    searching all extremal directions of the data (`sectors.extremal` with the lemma switched off); where that
    search is not exhaustive, "exactly one" stays open.
    """

    key, title, number = (
        "phuong2021.lemma2",
        "One extremal direction of each sign (Phuong & Lampert 2021)",
        "Lemma 2",
    )
    premises = ()

    def covers(self, subject: Subject) -> str | None:
        return relu_both_layers(subject)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (from_condition(subject.condition("orthogonal_separability")),)

    def predict(self, subject: Subject) -> Prediction:
        from marginflow import sectors

        positive, negative = sectors.lemma2(subject.data, 1), sectors.lemma2(subject.data, -1)
        return Prediction(
            {
                "positive_sector": positive,
                "negative_sector": negative,
                "positive_count": 1,
                "negative_count": 1,
            },
            certified=True,
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        from marginflow import sectors

        found = sectors.extremal(evidence.data, by_lemma2=False)
        claims = []
        for sign in ("positive", "negative"):
            directions = getattr(found, sign)
            want = prediction[f"{sign}_count"]
            if len(directions) > want or (found.complete and len(directions) != want):
                status = Status.FAILS
            else:
                status = Status.HOLDS if found.complete else Status.UNDECIDED
            claims.append(
                Claim(
                    f"{sign}_directions",
                    status,
                    len(directions),
                    want,
                    "=",
                    "all directions enumerated"
                    if found.complete
                    else "too many to enumerate: none other was found, and the search was not exhaustive",
                )
            )
            off = [int(np.sum(np.asarray(e.sector) != prediction[f"{sign}_sector"])) for e in directions]
            if off:
                claims.append(
                    at_most(
                        f"{sign}_sector",
                        max(off),
                        0,
                        "entries of the sector that differ from the closed form",
                    )
                )
        return tuple(claims)


class Lemma3(Theorem):
    """The two extremal sectors absorb: a neuron of the right sign that is in one stays in it.

    **Statement.** If a_j > 0 and w_j is in the positive extremal sector at some time, it is there ever after;
    the same with signs swapped. **Assumptions.** orthogonal separability
    (`conditions.orthogonal_separability`) and gradient flow (`gradient_flow`). General position is not needed:
    let u be the part of w in the span of the opposed examples orthogonal to the whole class of w; any solution
    moves u by -Σ c_i x_i with c_i >= 0, and c_i = 0 where wᵀx_i < 0, so ‖u‖ does not grow and stays 0.
    **Claims.** over every sector event of a flow: none that takes a neuron out. Weights alone hold no history,
    so without a run the claim is open, as it is when no neuron was seen to enter.
    """

    key, title, number = "phuong2021.lemma3", "Extremal sectors absorb (Phuong & Lampert 2021)", "Lemma 3"
    premises = ("gradient flow",)

    def covers(self, subject: Subject) -> str | None:
        return relu_both_layers(subject)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (from_condition(subject.condition("orthogonal_separability")),)

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        return (gradient_flow(evidence),)

    def predict(self, subject: Subject) -> Prediction:
        from marginflow import sectors

        positive, negative = sectors.lemma2(subject.data, 1), sectors.lemma2(subject.data, -1)
        return Prediction({"positive_sector": positive, "negative_sector": negative}, certified=True)

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        run = evidence.run
        if run is None or run.events is None:
            return (Claim("escapes", Status.UNDECIDED, None, 0, "<=", "needs the events of a flow run"),)
        escapes, entered = _escapes(evidence, prediction)
        if not entered:
            note = "no neuron was seen in an absorbing sector, so that none could leave it"
            return (Claim("escapes", Status.UNDECIDED, 0, 0, "<=", note),)
        return (at_most("escapes", escapes, 0, f"{entered} neurons were seen in their absorbing sector"),)


class LemmaC1(Theorem):
    """The limit of Theorem 1 is a KKT point of min ½‖θ‖² s.t. q_i >= 1.

    **Statement.** With ‖u‖ = ‖w+‖^-½ and ‖z‖ = ‖w-‖^-½ the point (u w+ᵀ + z w-ᵀ, u‖w+‖ - z‖w-‖) is KKT, with
    multipliers α_i/‖w+‖ and α_i/‖w-‖ where w± = Σ α_i x_i. **Assumptions.** orthogonal separability
    (`conditions.orthogonal_separability`). **Claims.** the predicted point's residuals, by a routine that knows
    only the net and its gradients and finds its own multipliers; the residual with the lemma's multipliers; then
    the residual of the weights given, which is a claim about their limit.
    """

    key, title, number = "phuong2021.lemmaC1", "The limit is a KKT point (Phuong & Lampert 2021)", "Lemma C.1"
    premises = ()
    STATIONARITY = 1e-8  # of the predicted point: w± are certified to 1e-9

    def covers(self, subject: Subject) -> str | None:
        return relu_both_layers(subject)

    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        return (from_condition(subject.condition("orthogonal_separability")),)

    def predict(self, subject: Subject) -> Prediction:
        base = two_neurons(subject)
        w_plus, alpha_plus = _witness("positive", subject.positive_margin)
        w_minus, alpha_minus = _witness("negative", subject.negative_margin)
        up, um = np.linalg.norm(w_plus) ** -0.5, np.linalg.norm(w_minus) ** -0.5
        theta = {
            "W": np.stack([up * w_plus, um * w_minus]),
            "a": np.array([up * np.linalg.norm(w_plus), -um * np.linalg.norm(w_minus)]),
        }
        # w+ = Σ α̃_i x_i with α̃ = ‖w+‖² α for α in the simplex, so λ = α̃/‖w+‖ = ‖w+‖ α.
        multipliers = np.linalg.norm(w_plus) * alpha_plus + np.linalg.norm(w_minus) * alpha_minus
        return Prediction(
            {
                "w_plus": w_plus,
                "w_minus": w_minus,
                "multipliers": multipliers,
                "norm_squared": float(sum(np.sum(v**2) for v in theta.values())),
            },
            TwoLayer(2),
            theta,
            base.certified,
        )

    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        from marginflow import margins

        assert prediction.net is not None
        assert prediction.theta is not None
        point = margins.kkt(prediction.net, prediction.theta, evidence.data)
        claims = [
            unless_stalled(
                at_most(
                    "predicted_stationarity",
                    point.stationarity,
                    self.STATIONARITY,
                    "‖θ - Σ λ_i y_i h_i‖/‖θ‖ at the predicted point",
                ),
                point.outcome,
            ),
            unless_stalled(
                at_most(
                    "predicted_complementarity",
                    point.complementarity,
                    self.STATIONARITY,
                    "max λ_i(q_i - 1), relative",
                ),
                point.outcome,
            ),
            at_most(
                "multipliers",
                _residual(evidence, prediction),
                self.STATIONARITY,
                "‖θ - Σ λ_i y_i h_i‖/‖θ‖ at the predicted point with λ_i = α_i/‖w±‖",
            ),
        ]
        if evidence.separates:
            claims.append(
                unless_stalled(
                    tends_to_zero(
                        "stationarity",
                        evidence.kkt.stationarity,
                        evidence,
                        0.5,
                        "the same at the weights given",
                        tolerance=1e-6,
                    ),
                    evidence.kkt.outcome,
                )
            )
        else:
            claims.append(
                Claim(
                    "stationarity",
                    Status.UNDECIDED,
                    None,
                    None,
                    "<=",
                    "the weights do not separate the data yet",
                )
            )
        return tuple(claims)


def _residual(evidence: Evidence, prediction: Prediction) -> float:
    """‖θ - Σ λ_i y_i h_i‖/‖θ‖ with the multipliers predicted; a neuron that meets an example at 0 is off there."""
    assert prediction.theta is not None
    W, a = (np.asarray(prediction.theta[k]) for k in ("W", "a"))
    X, weight = evidence.data.X, prediction["multipliers"] * evidence.data.y
    on = np.maximum(X @ W.T, 0.0)
    reached_W = a[:, None] * ((weight[:, None] * (on > 0)).T @ X)
    off = np.hypot(np.linalg.norm(W - reached_W), np.linalg.norm(a - weight @ on))
    return float(off / np.sqrt(prediction["norm_squared"]))


def relu_both_layers(subject: Subject) -> str | None:
    if not isinstance(subject.net, TwoLayer):
        return "the net is not a two-layer net"
    if not subject.is_relu:
        return f"the activation is {subject.net.activation.name}, not ReLU"
    if subject.net.train != "both":
        return f"only the {subject.net.train} layer is trained, not both"
    return None


def two_neurons(subject: Subject) -> Prediction:
    """w±, the constants of Corollary 1 and the width-2 limit net with ‖θ‖ = 1."""
    return subject.once("two_neurons", lambda: _two_neurons(subject))


def _witness(sign: str, margin: "Margin") -> tuple[np.ndarray, np.ndarray]:
    """A class's max-margin vector and its dual weights."""
    if margin.vector is None or margin.dual is None or not np.isfinite(margin.vector).all():
        raise Unpredictable(
            f"the {sign} class has no vector with wᵀx >= 1 on all its examples ({margin.message})"
        )
    return margin.vector, margin.dual


def _two_neurons(subject: Subject) -> Prediction:
    plus, minus = subject.positive_margin, subject.negative_margin
    (w_plus, _), (w_minus, _) = _witness("positive", plus), _witness("negative", minus)
    norm_plus, norm_minus = float(np.linalg.norm(w_plus)), float(np.linalg.norm(w_minus))
    c_squared = 1 / (norm_plus + norm_minus)
    u_norm, z_norm = np.sqrt(c_squared / norm_plus), np.sqrt(c_squared / norm_minus)
    # ‖W‖_F = ‖a‖ = 1 in Theorem 1's normalisation; dividing by √2 makes ‖θ‖ = 1.
    theta = {
        "W": np.stack([u_norm * w_plus, z_norm * w_minus]) / np.sqrt(2),
        "a": np.array([u_norm * norm_plus, -z_norm * norm_minus]) / np.sqrt(2),
    }
    values = {
        "w_plus": w_plus,
        "w_minus": w_minus,
        "normalised_margin": c_squared / 2,
        "function_constant": c_squared / 2,
        "u_norm": float(u_norm),
        "z_norm": float(z_norm),
        "u_constant": c_squared / 2,
        "z_constant": c_squared / 2,
    }
    return Prediction(
        values,
        TwoLayer(2),
        theta,
        bool(plus.certified and minus.certified),
        "how u and z spread over the neurons depends on the initial weights",
    )


def full_width(prediction: Prediction, spread_plus, spread_minus) -> tuple[TwoLayer, dict[str, np.ndarray]]:
    """The member of the limit family with the given spread: non-negative vectors over all neurons, disjoint
    supports.

    Each is scaled to the norm Corollary 1 fixes; the function is the same for every spread.
    """
    u, z = np.asarray(spread_plus, float), np.asarray(spread_minus, float)
    if u.shape != z.shape or (u < 0).any() or (z < 0).any() or (u * z).any() or not u.any() or not z.any():
        raise ValueError(
            "spreads must be two non-zero, non-negative vectors of one length with disjoint supports"
        )
    u = u / np.linalg.norm(u) * prediction["u_norm"] / np.sqrt(2)
    z = z / np.linalg.norm(z) * prediction["z_norm"] / np.sqrt(2)
    w_plus, w_minus = prediction["w_plus"], prediction["w_minus"]
    theta = {
        "W": np.outer(u, w_plus) + np.outer(z, w_minus),
        "a": u * np.linalg.norm(w_plus) - z * np.linalg.norm(w_minus),
    }
    return TwoLayer(len(u)), theta


class Split:
    """Weights seen as Theorem 1 sees them: u on neurons with a_j > 0, z on neurons with a_j < 0, the rest is
    error.
    """

    def __init__(self, evidence: Evidence, prediction: Prediction):
        W, a = evidence.theta["W"], evidence.theta["a"]
        w_plus, w_minus = prediction["w_plus"], prediction["w_minus"]
        # Weights that are exactly 0 have no direction: every distance below is then that of the zero matrix.
        norm_W, norm_a = np.linalg.norm(W) or 1.0, np.linalg.norm(a) or 1.0
        u = np.where(a > 0, np.maximum(W @ w_plus, 0) / (w_plus @ w_plus), 0) / norm_W
        z = np.where(a < 0, np.maximum(W @ w_minus, 0) / (w_minus @ w_minus), 0) / norm_W
        active = (evidence.data.X @ W.T > 0).any(axis=0)
        self.positive, self.negative = (a > 0) & active & (u > 0), (a < 0) & active & (z > 0)
        self.distance = float(np.linalg.norm(W / norm_W - np.outer(u, w_plus) - np.outer(z, w_minus)))
        self.output_distance = float(
            np.linalg.norm(a / norm_a - u * np.linalg.norm(w_plus) + z * np.linalg.norm(w_minus))
        )
        s = np.linalg.svd(W, compute_uv=False)
        self.third_singular_value = float(s[2] / s[0]) if len(s) > 2 and s[0] > 0 else 0.0
        self.u_norm, self.z_norm = float(np.linalg.norm(u)), float(np.linalg.norm(z))
        scale = evidence.norm_squared or 1.0
        self.u_constant = float((a * (a > 0)) @ (W @ w_plus) / (w_plus @ w_plus) / scale)
        self.z_constant = float((-a * (a < 0)) @ (W @ w_minus) / (w_minus @ w_minus) / scale)


def gradient_flow(evidence: Evidence) -> Assumption:
    return trained_by(evidence, "flow", "gradient_flow")


def bounded_slope(evidence: Evidence) -> Assumption:
    """A loss with bounded Lipschitz derivative."""
    if evidence.run is None:
        return fact("bounded_slope", None, "weights alone do not say on which loss they were trained")
    loss = evidence.run.loss
    return fact("bounded_slope", loss == "logistic", f"derivative of the {loss} loss", loss, "logistic")


def balance(evidence: Evidence) -> Assumption:
    theta, when = (
        (evidence.last, "weights given (the flow conserves balance)")
        if evidence.run is None
        else (evidence.run.theta0, "initial weights")
    )
    W, a = np.asarray(theta["W"], float), np.asarray(theta["a"], float)
    size = np.sqrt(np.sum(W**2) + np.sum(a**2))
    worst = float(np.max(np.abs(np.abs(a) - np.linalg.norm(W, axis=1))) / (size or 1.0))
    with np.errstate(over="ignore"):
        stored = [r for t, r in NARROW.items() if all((v.astype(t) == v).all() for v in (W, a))]
    bound = max([BALANCE, *stored])
    return fact(
        "balanced",
        worst <= bound,
        f"max ||a_j| - ‖w_j‖|/‖θ‖ of the {when}",
        worst,
        bound,
        bound - worst,
    )


def general_position(subject: Subject) -> Assumption:
    """General position of all examples; where that is out of reach, of those that Lemma A.3 needs it for."""
    whole = from_condition(subject.condition("general_position"))
    if whole.status is not Status.UNDECIDED or not isinstance(subject, Evidence):
        return whole
    return subject.once("general_position_on_the_way", lambda: general_position_on_the_way(subject)) or whole


def general_position_on_the_way(evidence: Evidence) -> Assumption | None:
    """Lemma A.3 uses general position for one thing: examples with w_jᵀx_i = 0 at one time are linearly independent.
    A flow that recorded its events says which examples those were; None when there is no such flow, or they are not.
    """
    from marginflow._core import exact

    run = evidence.run
    if run is None or run.events is None or run.method != "flow":
        return None
    held: set[tuple[int, ...]] = set()
    for pattern, j in _patterns(run, evidence.data.X):
        held.add(tuple(int(i) for i in np.flatnonzero(pattern[j[0]] == 0)))
    if any(exact.dependence(evidence.data.X[list(rows)]) is not None for rows in held if rows):
        return None
    most = max(map(len, held), default=0)
    sets = len(held - {()})
    told = f"at most {most}, and all {sets} such sets are linearly independent" if sets else "never any"
    return fact(
        "general_position",
        True,
        "of all subsets of the data out of reach; Lemma A.3 needs it of examples on whose hyperplanes one neuron lies "
        f"at one time: on this run {told}",
        most,
        evidence.data.d,
        tested_by="theorems.phuong2021.general_position_on_the_way",
    )


def absorbed(evidence: Evidence) -> Assumption:
    """Every neuron is dead on all data, or has its sign's class fully on and the other class off."""
    W, a, data = evidence.last["W"], evidence.last["a"], evidence.data
    # A weight orthogonal to an example up to rounding is on the hyperplane, as sliding neurons are.
    product = data.X @ W.T
    zero = 1e-12 * np.linalg.norm(data.X, axis=1)[:, None] * np.linalg.norm(W, axis=1)[None, :]
    on, off = product > zero, product <= zero
    mine = np.where(
        a > 0,
        on[data.positive].all(axis=0) & off[data.negative].all(axis=0),
        on[data.negative].all(axis=0) & off[data.positive].all(axis=0),
    )
    stray = int(np.sum(~(mine | off.all(axis=0))))
    return fact(
        "absorbed",
        True if stray == 0 else None,
        "neurons that are neither dead nor in the absorbing sector of their sign; "
        "stands for 'initial weights small enough'",
        stray,
        0,
    )


def survivors(evidence: Evidence) -> Assumption:
    """One neuron is on for an example of its class; that all die is the event the theorem's probability excludes."""
    W, a, data = evidence.last["W"], evidence.last["a"], evidence.data
    on = data.X @ W.T > 0
    alive = np.where(a > 0, on[data.positive].any(axis=0), on[data.negative].any(axis=0)) & (a != 0)
    count = int(alive.sum())
    return fact("survivors", count > 0, "neurons on for an example of their class", count, 1, count - 0.5)


def _escapes(evidence: Evidence, prediction: Prediction) -> tuple[int, int]:
    """(neurons that left an absorbing sector, neurons seen in one), replaying the events from the initial
    pattern.
    """
    run = evidence.run
    assert run is not None
    a = np.asarray(run.theta0["a"], float)
    home = np.where(a[:, None] > 0, prediction["positive_sector"][None], prediction["negative_sector"][None])
    inside, seen, escaped = (np.zeros(len(a), bool) for _ in range(3))
    for pattern, j in _patterns(run, evidence.data.X):
        now = (pattern[j] == home[j]).all(axis=-1)
        escaped[j] |= inside[j] & ~now
        inside[j] = now
        seen[j] |= now
    return int(escaped.sum()), int(seen.sum())


UNKNOWN = 2  # the side of a hyperplane that a neuron left, when nothing later tells


def _patterns(run: Run, X: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(pattern of all neurons, the neurons it is new for): every neuron at the start, then one neuron an event."""
    assert run.events is not None
    pattern = np.sign(X @ np.asarray(run.theta0["W"], float).T).astype(int).T
    for j in range(len(pattern)):
        yield pattern, np.array([j])
    rows = [
        (int(j), int(i), str(kind))
        for j, i, kind in zip(run.events.neuron, run.events.example, run.events.kind, strict=True)
    ]
    final = np.sign(X @ np.asarray(run.theta["W"], float).T).astype(int).T
    for (j, i, _), side in zip(rows, _sides(rows, final), strict=True):
        pattern[j, i] = side
        yield pattern, np.array([j])


def _sides(rows: list[tuple[int, int, str]], final: np.ndarray) -> list[int]:
    """The sign of w_jᵀx_i after each event. A neuron that leaves a hyperplane is on the side where its next event
    with it, or else the end of the run, finds it.
    """
    before: dict[tuple[int, int], int] = {}
    sides = []
    for j, i, kind in reversed(rows):
        left = before.get((j, i), int(final[j, i]) or UNKNOWN)
        sides.append({"cross_on": 1, "cross_off": -1, "enter": 0}.get(kind, left))
        before[j, i] = {"cross_on": -1, "cross_off": 1, "enter": UNKNOWN}.get(kind, 0)
    return sides[::-1]


theorem1, lemma2, lemma3, lemmaC1 = Theorem1(), Lemma2(), Lemma3(), LemmaC1()
THEOREMS = (theorem1, lemma2, lemma3, lemmaC1)
