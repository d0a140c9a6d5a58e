"""The F1-max-margin γ1: the best margin of an infinitely wide two-layer net of unit variation norm (theory §5).

    γ1 = κ max { min_i y_i ∫ φ(cᵀx_i) dμ(c) :  |μ|(S^{D-1}) <= 1 }  =  κ min_{α in Δ} max_{‖c‖=1} |Σ α_i y_i φ(cᵀx_i)|

with κ = ½ for ReLU and 1 for S-ReLU. Particles find where neurons sit, a linear program gives masses, the pattern
program moves them inside and between cells, its dual α prices further neurons by local ascent, and where the inner
maximum can be enclosed globally the loop goes on until the two sides meet.
"""

import dataclasses

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS, MARGIN_GAP, SUPPORT
from marginflow.data.dataset import Dataset
from marginflow.margins.base import Margin
from marginflow.margins.certificates_f1 import FACTOR, game_bounds, measure_from_below, weights_from_above
from marginflow.margins.f1_zero import opposed_rays, vanishing
from marginflow.margins.inner import degree, row_space
from marginflow.margins.rows import refuse_beyond_range

SEARCH_GAP = (
    1e-2  # without a global inner maximum: stop when no start climbs above the margin by more than this
)


@dataclasses.dataclass(frozen=True, eq=False)
class Neurons(Record):
    """A finite signed measure on unit directions: Σ_j sign_j mass_j δ(direction_j), masses summing to 1.

    As a net: a_j = sign_j sqrt(mass_j/2), w_j = sqrt(mass_j/2) direction_j has ‖θ‖² = 1 and margin γ1 (ReLU).
    """

    direction: np.ndarray
    sign: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        return len(self.mass)

    def table(self) -> Table:
        order = np.argsort(-self.mass)[:10]
        rows = tuple((str(j), show(self.mass[j]), f"{self.sign[j]:+.0f}") for j in order)
        return Table(f"{len(self)} neurons", ("neuron", "mass", "sign"), rows)


@dataclasses.dataclass(frozen=True, eq=False)
class F1Margin(Margin):
    """γ1 of theory §5 with a feasible measure (`neurons`) and weights (`dual`).

    lower_bound: the margin of `neurons`, rounding subtracted: always proved.
    dual_value: κ times the largest |Σ α_i y_i φ(cᵀx_i)| the search found for `dual`. Not a bound: a better direction
        would raise it, and it can lie below γ1.
    upper_bound: present only where the inner maximum was enclosed globally; None elsewhere, and then `certified` is
        False whatever the distance to `dual_value`.
    method: how the inner maximum was enclosed ("closed form", "cones", "signs", or "ascent": it was not).
    """

    upper_bound: float | None  # type: ignore[assignment]
    dual_value: float = float("nan")
    activation: str = "relu"
    method: str = "ascent"

    @property
    def gap(self) -> float | None:  # type: ignore[override]
        """(upper - lower)/upper of the proved interval; None without an upper bound."""
        if self.upper_bound is None:
            return None
        return (
            0.0 if self.upper_bound <= 0 else float((self.upper_bound - self.lower_bound) / self.upper_bound)
        )

    @property
    def search_gap(self) -> float:
        """(dual_value - lower_bound)/dual_value: what the search leaves open. No bound in either direction."""
        return float((self.dual_value - self.lower_bound) / self.dual_value) if self.dual_value > 0 else 0.0

    def table(self) -> Table:
        upper = "none proved" if self.upper_bound is None else f"{self.upper_bound:.12g}"
        rows = (
            ("margin γ1", f"{self.value:.12g}"),
            ("lower bound (proved)", f"{self.lower_bound:.12g}"),
            ("upper bound (proved)", upper),
            ("dual value (search, no bound)", f"{self.dual_value:.12g}"),
            ("certified", show(self.certified)),
            ("inner maximum by", self.method),
            ("separable", "undecided" if self.separable is None else show(self.separable)),
            ("neurons", str(len(self.neurons))),
            ("support examples", str(len(self.support))),
            ("activation", self.activation),
            ("bias", show(self.bias)),
            ("outcome", show(self.outcome)),
        )
        return Table("max margin: f1", ("quantity", "value"), rows, (self.message,) if self.message else ())

    def to_json(self) -> dict:
        return {**super().to_json(), "search_gap": self.search_gap}


def f1(
    data: Dataset,
    bias: bool = False,
    activation="relu",
    *,
    neurons: int = 100,
    rounds: int = 30,
    seed: int = 0,
    tolerance: float = MARGIN_GAP,
    search_gap: float = SEARCH_GAP,
    max_nodes: int | None = None,
) -> F1Margin:
    """The F1-max-margin of the data, with ReLU or S-ReLU units.

    neurons: particles of the first descent. rounds: pricing rounds at most. tolerance: relative width at which a
    proved interval counts as closed. search_gap: when to stop pricing where no upper bound is in reach. max_nodes:
    limit of the global inner search.
    """
    squared = degree(activation)
    full = data.with_bias() if bias else data
    X, y = np.asarray(full.X, np.float64), full.y
    problem = _Problem.of(X, y, "srelu" if squared else "relu", bias, tolerance)
    refuse_beyond_range(problem.scale, 2 if squared else 1, data.name)
    pair = opposed_rays(X, y)
    if pair is not None:
        return problem.contradiction(pair)
    none = None if squared else vanishing(X, y)
    if none is not None:
        message = f"the weighted features of {np.count_nonzero(none)} rows cancel for every direction"
        return problem.zero(none, message)
    start = None if squared else _two_cones(data, bias, problem)
    if start is not None and start.certified:
        return start
    from marginflow.margins.f1_search import search

    end = search(
        problem.rows,
        y,
        squared,
        count=neurons,
        rounds=rounds,
        rng=np.random.default_rng(seed),
        tolerance=tolerance,
        search_gap=search_gap,
        max_nodes=max_nodes,
    )
    state = end.state
    return problem.result(
        state.v,
        state.sign,
        state.mass,
        end.weights,
        end.found,
        end.outcome,
        "",
        end.steps,
        starts=state.v @ problem.basis.T,
        max_nodes=max_nodes,
        globally=end.provable,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class FiniteMargin(Record):
    """γ1^(m) = max_{a in Δ} min_i (Za)_i = min_{α in Δ} max_j (Zᵀα)_j for fixed features Z (theory §5, rates).

    lower_bound and upper_bound are what `mass` and `dual` prove, rounding counted; `certified` when they meet.
    """

    value: float
    lower_bound: float
    upper_bound: float
    certified: bool
    mass: np.ndarray
    dual: np.ndarray
    outcome: Outcome
    message: str = ""


def f1_finite(Z, tolerance: float = MARGIN_GAP) -> FiniteMargin:
    """γ1^(m) of the features z_ij = y_i φ(w_jᵀx_i), by linear program; no factor κ is applied. May be negative."""
    from marginflow.margins.f1_program import masses

    Z = to_numpy(Z, np.float64)
    if Z.ndim != 2 or Z.size == 0 or not np.isfinite(Z).all():
        raise InputError(
            f"f1_finite: features of shape {Z.shape}; give a finite matrix with a row per example"
        )
    solved = masses(Z)
    lower, upper = game_bounds(Z, solved.mass, solved.weights)
    scale = float(np.abs(Z).max())
    closed = upper - lower <= max(tolerance * abs(upper), 64 * Z.shape[0] * EPS * scale)
    return FiniteMargin(
        lower, lower, upper, bool(closed), solved.mass, solved.weights, solved.outcome, solved.message
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """Rows scaled to largest norm about 1 (by an exact power of two) in coordinates of their span."""

    X: np.ndarray  # as given (with bias column)
    y: np.ndarray
    rows: np.ndarray  # scaled, in row-space coordinates
    basis: np.ndarray
    scale: float  # rows = X·basis/scale
    activation: str
    bias: bool
    tolerance: float

    @classmethod
    def of(cls, X, y, activation, bias, tolerance) -> "_Problem":
        scale = float(2.0 ** np.clip(np.round(np.log2(np.abs(X).max())), -1000, 1000))
        rows, basis, _ = row_space(X / scale)
        return cls(X, y, np.ascontiguousarray(rows), basis, scale, activation, bias, tolerance)

    @property
    def squared(self) -> bool:
        return self.activation == "srelu"

    @property
    def units(self) -> float:
        """What a margin of the scaled rows is multiplied by to become one of X (κ not included)."""
        return self.scale**2 if self.squared else self.scale

    def result(
        self,
        v: np.ndarray,
        sign: np.ndarray,
        mass: np.ndarray,
        weights: np.ndarray,
        found: float,
        outcome: Outcome,
        message: str,
        steps: int,
        **prove,
    ) -> F1Margin:
        """The record, every bound computed afresh on X. v in row-space coordinates; `found` without κ, for `rows`.

        `prove`: options of the global inner maximum; `globally=False` leaves the upper bound out.
        """
        used = mass > 0
        v, sign, mass = v[used], sign[used], mass[used]
        c = v @ self.basis.T
        c /= np.linalg.norm(c, axis=1, keepdims=True)
        order = np.argsort(-mass, kind="stable")
        c, sign, mass = c[order], sign[order], mass[order] / mass.sum()
        rows = self.X / self.scale
        lower = measure_from_below(rows, self.y, c, sign, mass, self.activation) * self.units
        upper, method = None, "ascent"
        if prove.get("globally", True):
            bound, both = weights_from_above(
                rows, self.y, weights, self.activation, tolerance=self.tolerance / 4, **prove
            )
            upper, method = None if bound is None else bound * self.units, both[0].method
            found = max(found, *(one.value for one in both))
        reached = self.y * ((np.maximum(rows @ c.T, 0.0) ** (2 if self.squared else 1)) @ (sign * mass))
        level = reached.min()
        support = (
            np.flatnonzero(reached <= level + SUPPORT * abs(level))
            if level > 0
            else np.flatnonzero(weights > 0)
        )
        closed = upper is not None and upper - lower <= self.tolerance * upper
        if lower <= 0 and not message:
            message = "no measure with a positive margin was found, and none was excluded exactly"
        return F1Margin(
            kind="f1",
            value=lower,
            lower_bound=lower,
            upper_bound=upper,
            certified=closed,
            vector=None,
            support=support,
            dual=weights,
            outcome=outcome,
            message=message,
            separable=True if lower > 0 else None,
            bias=self.bias,
            neurons=Neurons(c, sign, mass),
            steps=steps,
            dual_value=max(found * FACTOR[self.squared] * self.units, 0.0),
            activation=self.activation,
            method=method,
        )

    def contradiction(self, pair: tuple[int, int]) -> F1Margin:
        """γ1 = 0 because two rows on one ray carry different labels: their weighted features cancel identically."""
        i, k = pair
        both = self.X[[i, k]]
        norm = np.linalg.norm(both / np.abs(both).max(), axis=1) ** (2 if self.squared else 1)
        weights = np.zeros(len(self.y))
        weights[[i, k]] = norm[::-1] / norm.sum()
        what = "are equal" if np.array_equal(self.X[i], self.X[k]) else "lie on one ray from the origin"
        message = f"rows {i} and {k} {what} and carry different labels: no net of this kind separates them"
        return self.zero(weights, message, pair)

    def zero(self, weights: np.ndarray, message: str, pair: tuple[int, int] | None = None) -> F1Margin:
        """γ1 = 0, proved by weights whose features cancel for every direction."""
        return F1Margin(
            kind="f1",
            value=0.0,
            lower_bound=0.0,
            upper_bound=0.0,
            certified=True,
            vector=None,
            support=np.flatnonzero(weights),
            dual=weights,
            outcome=Outcome.INFEASIBLE,
            separable=False,
            bias=self.bias,
            neurons=Neurons(np.zeros((0, self.X.shape[1])), np.zeros(0), np.zeros(0)),
            contradictory=pair,
            dual_value=0.0,
            activation=self.activation,
            method="closed form",
            message=message,
        )


def _two_cones(data: Dataset, bias: bool, problem: _Problem) -> F1Margin | None:
    """The closed form of orthogonally separable data: γ1 = 1/(2(‖w+‖ + ‖w-‖)), one neuron per class.

    Tried whenever the two class margins exist: the measure and the weights are built and the certificate decides.
    """
    from marginflow.margins.linear import negative, positive

    if not all(_agree(problem.X[rows]) for rows in (data.positive, data.negative)):
        return None
    each = positive(data, bias=bias), negative(data, bias=bias)
    solved = [(one.vector, one.dual) for one in each if one.vector is not None and one.dual is not None]
    witnesses = [(vector * problem.scale, dual) for vector, dual in solved]
    if len(witnesses) < 2:
        return None
    vectors, duals = map(np.stack, zip(*witnesses, strict=True))
    norm = np.linalg.norm(vectors, axis=1)
    share = norm / norm.sum()
    weights = share @ duals
    v = vectors / norm[:, None]
    both = weights_from_above(
        problem.X / problem.scale, problem.y, weights, tolerance=problem.tolerance / 4, globally=False
    )[1]
    if any(one.method != "closed form" for one in both):
        return None
    outcome = Outcome.CONVERGED if all(one.outcome is Outcome.CONVERGED for one in each) else Outcome.STALLED
    return problem.result(
        v @ problem.basis,
        np.array([1.0, -1.0]),
        share,
        weights,
        max(one.value for one in both),
        outcome,
        "orthogonally separable: one neuron per class",
        0,
    )


def _agree(X: np.ndarray) -> bool:
    """A cheap necessary sign that one cone holds the class: all rows within 90° of their mean direction."""
    unit = X / np.abs(X).max(axis=1, keepdims=True)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    return bool((unit @ unit.sum(axis=0) > 0).all())
