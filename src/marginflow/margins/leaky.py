"""The convex problem behind leaky ReLU nets with fixed output weights (theory §4 (4)).

    min m1/2 ‖v‖² + m2/2 ‖u‖²   s.t.   (m1/√m) vᵀx_i - γ(m2/√m) uᵀx_i >= 1,  i in I+,
                                       (m2/√m) uᵀx_i - γ(m1/√m) vᵀx_i >= 1,  i in I-.

In g = (√m1 v, √m2 u) it is the least-norm problem min ½‖g‖², G_iᵀg >= 1, with rows G_i = (p_i x_i, q_i x_i); its
multipliers λ give v and u. G_iᵀG_k = (p_i p_k + q_i q_k) x_iᵀx_k: only one Gram matrix sees d.
"""

import dataclasses

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS, MARGIN_GAP, SUPPORT
from marginflow.data.dataset import Dataset
from marginflow.margins import certificates, span
from marginflow.margins.base import Margin
from marginflow.margins.linear import linear, working_set
from marginflow.margins.rows import SignedRows, refuse_beyond_range

# p_i and q_i are a square root, a quotient and a product away from the integers m1, m2 and γ: four roundings, and
# one more when they multiply x_i.
COEFFICIENT_ERROR = 6 * EPS / 2


@dataclasses.dataclass(frozen=True, eq=False)
class LeakyMargin(Record):
    """The optimum of system B's problem.

    v, u: the common weights of positive and negative neurons. z = (m1/√m)v - (m2/√m)u, the linear decision boundary.
    multipliers: λ >= 0 with v = (1/√m)(Σ_{I+} λ_i x_i - γ Σ_{I-} λ_i x_i) and u with the classes exchanged.
    objective: m1/2 ‖v‖² + m2/2 ‖u‖², inside [lower_bound, upper_bound], which are proved.
    tight: rows with y_i f(x_i) = 1 within `support_tolerance`.
    z_star: the linear max-margin vector (None if there is none); ratio = ‖z‖/‖z*‖, to compare with `ratio_bound`
    = 2/(κ+γ), κ = sqrt(min(m1,m2)/max(m1,m2)).
    closed_form: all constraints are active and λ solves one linear system.
    Where the constraints contradict each other v, u, z and λ are None and the objective is infinite.
    """

    v: np.ndarray | None
    u: np.ndarray | None
    z: np.ndarray | None
    multipliers: np.ndarray | None
    objective: float
    lower_bound: float
    upper_bound: float
    certified: bool
    tight: np.ndarray
    kappa: float
    z_star: np.ndarray | None
    ratio: float | None
    ratio_bound: float
    leak: float
    positive_neurons: int
    negative_neurons: int
    closed_form: bool
    outcome: Outcome
    message: str
    linear: Margin
    support_tolerance: float = SUPPORT

    @property
    def gap(self) -> float:
        return float(1 - self.lower_bound / self.upper_bound)

    def table(self) -> Table:
        if self.v is None or self.multipliers is None:
            return Table(
                "leaky max margin", ("quantity", "value"), (("outcome", show(self.outcome)),), (self.message,)
            )
        rows = [
            ("objective", f"{self.objective:.12g}"),
            ("interval", f"[{self.lower_bound:.15g}, {self.upper_bound:.15g}]"),
            ("certified", show(self.certified)),
            (
                "‖v‖, ‖u‖, ‖z‖",
                ", ".join(show(float(np.linalg.norm(a))) for a in (self.v, self.u, self.z) if a is not None),
            ),
            (
                "multipliers",
                f"{show(float(self.multipliers.min()))} to {show(float(self.multipliers.max()))}",
            ),
            ("tight constraints", f"{len(self.tight)} of {len(self.multipliers)}"),
            ("κ", show(self.kappa)),
            ("‖z‖/‖z*‖", show(self.ratio)),
            ("2/(κ+γ)", show(self.ratio_bound)),
            ("outcome", show(self.outcome)),
        ]
        return Table(
            "leaky max margin", ("quantity", "value"), tuple(rows), (self.message,) if self.message else ()
        )


@dataclasses.dataclass(frozen=True, eq=False)
class StackedRows:
    """G_i = (p_i x_i, q_i x_i)."""

    base: SignedRows
    p: np.ndarray
    q: np.ndarray

    @property
    def n(self) -> int:
        return self.base.n

    @property
    def d(self) -> int:
        return 2 * self.base.d

    def take(self, rows) -> np.ndarray:
        Z = self.base.take(rows)
        return np.concatenate([self.p[rows, None] * Z, self.q[rows, None] * Z], axis=1)

    def products(self, w: np.ndarray) -> np.ndarray:
        half = self.base.d
        return self.p * self.base.products(w[:half]) + self.q * self.base.products(w[half:])

    def norms(self) -> np.ndarray:
        return np.hypot(self.p, self.q) * self.base.norms()

    def weighted_sum(self, weight: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [self.base.weighted_sum(self.p * weight), self.base.weighted_sum(self.q * weight)]
        )


def leaky(data: Dataset, leak: float, positive_neurons: int, negative_neurons: int) -> LeakyMargin:
    """System B's v, u, multipliers and boundary for m1 positive and m2 negative neurons of slope `leak` on z <= 0."""
    m1, m2 = int(positive_neurons), int(negative_neurons)
    if not 0 < leak < 1:
        raise InputError(f"leak {leak}; the problem needs a slope 0 < leak < 1")
    if m1 < 1 or m2 < 1:
        raise InputError(f"{m1} positive and {m2} negative neurons; give at least one of each sign")
    scale = float(2.0 ** -np.clip(np.round(np.log2(max(np.max(np.abs(b)) for b in data.blocks()))), -1000, 1000))
    refuse_beyond_range(1.0 / scale, 2, data.name)
    base = SignedRows(data.X, np.arange(data.n), np.ones(data.n), False, scale)
    on = data.y > 0
    a, b = np.sqrt(m1 / (m1 + m2)), np.sqrt(m2 / (m1 + m2))
    rows = StackedRows(base, np.where(on, a, -leak * a), np.where(on, -leak * b, b))
    kappa = float(np.sqrt(min(m1, m2) / max(m1, m2)))
    flat = linear(data)
    same = {
        "kappa": kappa,
        "z_star": flat.vector,
        "ratio_bound": 2 / (kappa + leak),
        "leak": leak,
        "linear": flat,
        "positive_neurons": m1,
        "negative_neurons": m2,
    }
    mu, closed, outcome, message = _multipliers(rows)
    if mu is None:
        return LeakyMargin(
            v=None,
            u=None,
            z=None,
            multipliers=None,
            objective=np.inf,
            lower_bound=0.0,
            upper_bound=np.inf,
            certified=False,
            tight=np.array([], dtype=int),
            ratio=None,
            closed_form=False,
            outcome=outcome,
            message=message,
            **same,
        )
    g = rows.weighted_sum(mu)
    low = certificates.margin_from_below(rows, g, None, COEFFICIENT_ERROR)
    high = certificates.margin_from_above(rows, mu, COEFFICIENT_ERROR)
    # From rows scaled by s back to x: v and u scale by s, multipliers and the objective by s².
    v, u = scale * g[: data.d] / np.sqrt(m1), scale * g[data.d :] / np.sqrt(m2)
    z = (m1 * v - m2 * u) / np.sqrt(m1 + m2)
    upper = scale**2 * (0.5 / low**2 * (1 + 4 * EPS) if low > 0 else np.inf)
    lower = scale**2 * 0.5 / high**2 * (1 - 4 * EPS)
    certified = bool(upper - lower <= MARGIN_GAP * upper) and np.isfinite(upper)
    if outcome is Outcome.CONVERGED and not certified:
        message = message or f"the proved interval of the objective is wider than {MARGIN_GAP:.0e} relative"
    star = flat.vector
    return LeakyMargin(
        v=v,
        u=u,
        z=z,
        multipliers=mu * scale**2,
        objective=float(scale**2 * 0.5 * (g @ g)),
        lower_bound=float(lower),
        upper_bound=float(upper),
        certified=certified,
        tight=np.flatnonzero(rows.products(g) <= 1 + SUPPORT),
        ratio=None if star is None else float(np.linalg.norm(z) / np.linalg.norm(star)),
        closed_form=closed,
        outcome=outcome,
        message=message,
        **same,
    )


def _multipliers(rows: StackedRows):
    """λ of the least-norm problem. All constraints active is tried first: K λ = 1, λ > 0 is then the optimum."""
    F, gram = span.coordinates(rows.base)
    K = (np.outer(rows.p, rows.p) + np.outer(rows.q, rows.q)) * gram
    everything = np.arange(rows.n)
    if rows.n <= 2 * rows.base.d:
        mu = span.equality(rows, K, everything)
        if mu is not None and (mu > 0).all():
            return mu, True, Outcome.CONVERGED, ""
    small = StackedRows(SignedRows(F, everything, np.ones(rows.n), False), rows.p, rows.q)
    answer = working_set(small, small.norms())
    if answer.w is None:
        return None, False, answer.outcome, "no v, u with all constraints met were found"
    mu = answer.alpha * (answer.w @ answer.w)
    on = np.flatnonzero(mu)
    better = span.equality(rows, K, on)
    if better is not None and (better > 0).all():
        mu = np.zeros(rows.n)
        mu[on] = better
    return mu, False, answer.outcome, ""
