"""What a theorem is here: assumptions that can be tested, a prediction, and claims that can be measured.

A theorem never trains. It reads a `Subject` (net and data, before training) to test its assumptions and to
predict, and `Evidence` (weights from anywhere, with the run that made them when there is one) to measure its
claims.

Status rules, used by every theorem:
  - an assumption that fails makes the verdict `vacuous`; the claims are measured all the same;
  - otherwise a prediction that no solver certified makes it `undecided`: what the claims were measured against may
    itself be wrong;
  - otherwise a claim outside its bound makes it `fails` when every assumption is known to hold;
  - otherwise anything open (an assumption nobody can test, a limit that a short run cannot speak for) makes it
    `undecided`, and only what is left is `holds`.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Outcome, Status
from marginflow.nets.net import Net, Theta
from marginflow.theorems.evidence import Evidence, Subject

# A claim about t = ∞ measured on a limit network must agree to this, relative. The limit map is accurate to
# about 1e-9 (margins are certified to tolerances.MARGIN_GAP); 1e-7 leaves room for square roots of gaps.
LIMIT_TOLERANCE = 1e-7

# A finite-time bound on a relative error above this tells nothing: unit vectors at random are about as far apart.
LOOSEST_BOUND = 0.5


@dataclasses.dataclass(frozen=True)
class Assumption(Record):
    """One hypothesis: who tested it (`tested_by`), how far it is from holding or failing (`slack` > 0 is
    room).
    """

    name: str
    status: Status
    slack: float | None = None
    measured: Any = None
    threshold: Any = None
    tested_by: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Claim(Record):
    """One conclusion, measured against its bound: `measured` `relation` `bound`."""

    name: str
    status: Status
    measured: Any
    bound: Any
    relation: str = "<="
    note: str = ""

    @property
    def limits(self) -> str:
        """Where `measured` must lie; nothing where the weights are too early for a bound."""
        none = isinstance(self.bound, float) and np.isinf(self.bound)
        return "-" if none else f"{self.relation} {show(self.bound)}"


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction(Record):
    """What training should converge to, as numbers and, where the theorem gives one, as a usable network."""

    values: Mapping[str, Any]
    net: Net | None = None
    theta: Theta | None = None
    certified: bool = False
    note: str = ""
    function: Callable[[Any], np.ndarray] | None = None  # a classifier that is no net of finite width

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def to_json(self) -> dict[str, Any]:
        return jsonable(dict(self.values))

    def __call__(self, X):
        """The predicted classifier's outputs on the rows of X."""
        if self.function is not None:
            return self.function(np.asarray(X))
        if self.net is None or self.theta is None:
            raise ValueError("this prediction is a list of numbers, not a network")
        return self.net(self.theta, np.asarray(X))


@dataclasses.dataclass(frozen=True, eq=False)
class Foresight(Record):
    """A theorem held against data and a net before any training."""

    key: str
    status: Status
    assumptions: tuple[Assumption, ...]
    premises: tuple[str, ...]
    prediction: Prediction | None
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        return jsonable(
            {
                "key": self.key,
                "status": self.status,
                "message": self.message,
                "premises": self.premises,
                "assumptions": self.assumptions,
                "prediction": None if self.prediction is None else self.prediction,
            }
        )

    def table(self) -> Table:
        rows = [(f"assumption {a.name}", a.status.value, show(a.slack), a.note) for a in self.assumptions]
        if self.prediction is not None:
            rows += [(f"predicts {k}", "", show(v), "") for k, v in self.prediction.values.items()]
        notes = (*(f"given: {p}" for p in self.premises), *([self.message] if self.message else ()))
        return Table(
            f"{self.key}: {self.status.value}",
            ("what", "status", "slack / value", "note"),
            tuple(rows),
            notes,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict(Record):
    """A theorem held against weights: four-valued status, assumption by assumption and claim by claim."""

    theorem: str
    status: Status
    assumptions: tuple[Assumption, ...]
    claims: tuple[Claim, ...]
    summary: str

    def table(self) -> Table:
        rows = [
            (f"assumption {a.name}", a.status.value, show(a.measured), show(a.threshold), a.note)
            for a in self.assumptions
        ]
        rows += [(f"claim {c.name}", c.status.value, show(c.measured), c.limits, c.note) for c in self.claims]
        return Table(
            f"{self.theorem}: {self.status.value}",
            ("what", "status", "measured", "bound", "note"),
            tuple(rows),
            (self.summary,),
        )


class Theorem(abc.ABC):
    """One published statement. Subclasses carry the statement in their docstring."""

    key: str
    title: str
    number: str  # of the statement in the paper
    premises: tuple[str, ...]  # about the training procedure: taken as given by `predict`, tested by `verify`

    @abc.abstractmethod
    def covers(self, subject: Subject) -> str | None:
        """None when the net is of the kind the theorem speaks about; otherwise why not, in words."""

    @abc.abstractmethod
    def assumptions(self, subject: Subject) -> tuple[Assumption, ...]:
        """Hypotheses on data and net."""

    def training_assumptions(self, evidence: Evidence, prediction: Prediction) -> tuple[Assumption, ...]:
        """Hypotheses on initialisation and training, tested on the weights and on the run that made them."""
        return ()

    @abc.abstractmethod
    def predict(self, subject: Subject) -> Prediction:
        """The limit, without training."""

    @abc.abstractmethod
    def claims(self, evidence: Evidence, prediction: Prediction) -> tuple[Claim, ...]:
        """Every conclusion, measured."""

    def foresee(self, subject: Subject) -> Foresight:
        assumptions = self.assumptions(subject)
        prediction, message = None, ""
        try:
            prediction = self.predict(subject)
        except Unpredictable as why:
            message = str(why)
        uncertified = prediction is None or not prediction.certified
        return Foresight(
            self.key,
            status_of(assumptions, (), uncertified),
            assumptions,
            self.premises,
            prediction,
            message,
        )

    def verify(self, evidence: Evidence) -> Verdict:
        try:
            prediction = self.predict(evidence)
        except Unpredictable as why:
            assumptions = self.assumptions(evidence)
            return Verdict(
                self.key,
                status_of(assumptions, (), True),
                assumptions,
                (),
                f"{self.title}: no prediction: {why}.",
            )
        assumptions = (*self.assumptions(evidence), *self.training_assumptions(evidence, prediction))
        claims = self.claims(evidence, prediction)
        status = status_of(assumptions, claims, not prediction.certified)
        return Verdict(
            self.key, status, assumptions, claims, in_words(self.title, status, assumptions, claims, evidence)
        )


class Unpredictable(Exception):
    """The theorem has nothing to predict here: its convex problem is infeasible or the solver failed."""


def status_of(assumptions, claims, uncertified: bool = False) -> Status:
    """The rule in this module's docstring; `uncertified`: no solver vouches for the prediction."""
    if any(a.status in (Status.FAILS, Status.VACUOUS) for a in assumptions):
        return Status.VACUOUS
    if uncertified or any(a.status is Status.UNDECIDED for a in assumptions):
        return Status.UNDECIDED
    seen = {c.status for c in claims}
    return next((s for s in (Status.FAILS, Status.UNDECIDED) if s in seen), Status.HOLDS)


def in_words(title: str, status: Status, assumptions, claims, evidence: Evidence) -> str:
    """The verdict as a sentence a reader understands without the table."""
    broken = [a.name for a in assumptions if a.status is Status.FAILS]
    unknown = [a.name for a in assumptions if a.status is Status.UNDECIDED]
    failed = [c.name for c in claims if c.status is Status.FAILS]
    held = [c.name for c in claims if c.status is Status.HOLDS]
    open_ = [c.name for c in claims if c.status is Status.UNDECIDED]
    when = "at t = infinity" if evidence.at_limit else "at the weights given"
    if status is Status.HOLDS:
        many = f"all {len(claims)} claims are within their bounds"
        kept = _number(claims, "its claim is within its bound", many)
        return f"{title}: every assumption holds and {kept} {when}."
    if status is Status.FAILS:
        off = _number(failed, "lies outside its bound", "lie outside their bounds")
        return f"{title}: every assumption holds, yet {_list(failed)} {off} {when}."
    outside = f"{_list(failed)} {_number(failed, 'does', 'do')} not hold"
    if status is Status.VACUOUS:
        others = (
            f"; {_list(unknown)} could not be decided"
            if unknown
            else "; every other assumption holds"
            if len(assumptions) > len(broken)
            else ""
        )
        tail = (
            _number(claims, "its conclusion holds", f"all {len(claims)} conclusions hold") + " all the same"
            if claims and len(held) == len(claims)
            else f"{outside} either"
            if failed
            else f"{len(held)} of {len(claims)} conclusions hold and the others are open"
            if held
            else "its conclusions are open"
        )
        because = f"{_list(broken)} {_number(broken, 'fails', 'fail')}"
        return f"{title}: does not apply, because {because}{others}; measured {when}, {tail}."
    about = _list([*unknown, *open_]) if unknown or open_ else "the prediction is not certified"
    return f"{title}: cannot be decided; open: {about}{f'; {outside}' if failed else ''}."


def _number(things, one: str, many: str) -> str:
    return one if len(things) == 1 else many


def _list(names) -> str:
    names = [n.replace("_", " ") for n in names]
    return (
        names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1] if names else "nothing"
    )


def from_condition(condition: Any, note: str = "") -> Assumption:
    """A condition on the data as an assumption."""
    notes = "; ".join(x for x in (note, *getattr(condition, "notes", ())) if x)
    return Assumption(
        condition.name,
        condition.status,
        condition.slack,
        condition.measured,
        condition.threshold,
        f"conditions.{condition.name}",
        notes,
    )


def fact(
    name: str,
    true: bool | None,
    note: str,
    measured: Any = None,
    threshold: Any = None,
    slack: float | None = None,
    tested_by: str = "",
) -> Assumption:
    """An assumption with a yes-or-no answer; None when there is nothing to read it from."""
    status = Status.UNDECIDED if true is None else Status.HOLDS if true else Status.FAILS
    return Assumption(name, status, slack, measured, threshold, tested_by, note)


def trained_by(evidence: Evidence, method: str, name: str, note: str = "") -> Assumption:
    """The training procedure, read from the run; weights alone do not say."""
    if evidence.run is None:
        return fact(name, None, "weights alone do not say how they were trained", None, method)
    used = evidence.run.method
    return fact(name, used == method, _join(f"trained by {used}", note), used, method)


def at_most(name: str, measured: float, bound: float, note: str = "") -> Claim:
    return Claim(name, _compare(measured, bound), float(measured), float(bound), "<=", note)


def at_least(name: str, measured: float, bound: float, note: str = "") -> Claim:
    return Claim(name, _compare(-measured, -bound), float(measured), float(bound), ">=", note)


def _compare(measured: float, bound: float) -> Status:
    if not (np.isfinite(measured) and not np.isnan(bound)):
        return Status.UNDECIDED
    return Status.HOLDS if measured <= bound else Status.FAILS


def band(evidence: Evidence) -> float:
    """How far from its limit a relative margin may still be: (2 log 2n + ‖θ(0)‖²)/log(1/L), 0 at t = ∞.

    A soft minimum over n margins at loss level L is log(n)/log(1/L) away from the minimum, and what
    initialisation left orthogonal to the limit keeps its size while ‖θ‖² grows like log(1/L). This is a
    yardstick for finite runs, not part of any theorem, so leaving it proves nothing: such a claim is
    `undecided`.
    """
    if evidence.at_limit:
        return 0.0
    depth = -evidence.log_loss
    if not depth > 0:
        return np.inf
    return (2 * np.log(2 * evidence.data.n) + evidence.initial_norm_squared) / depth


def tends_to_zero(
    name: str,
    measured: float,
    evidence: Evidence,
    order: float = 1.0,
    note: str = "",
    scale: float = 1.0,
    tolerance: float = LIMIT_TOLERANCE,
) -> Claim:
    """A relative error that vanishes as t → ∞, like band^order on the way: directions ½, margins 1."""
    if evidence.at_limit:
        return at_most(name, measured, tolerance, note)
    bound = scale * band(evidence) ** order
    if not np.isfinite(measured):
        return Claim(name, Status.UNDECIDED, measured, bound, "<=", note)
    if bound > LOOSEST_BOUND:
        return Claim(
            name,
            Status.UNDECIDED,
            float(measured),
            float(bound),
            "<=",
            _join(
                note,
                f"a statement about t = infinity; log(1/L) = {-evidence.log_loss:.3g} is too small to "
                f"test it",
            ),
        )
    status = Status.HOLDS if measured <= bound else Status.UNDECIDED
    return Claim(
        name,
        status,
        float(measured),
        float(bound),
        "<=",
        _join(note, "finite-time band, not part of the theorem"),
    )


def in_the_limit(claim: Claim, evidence: Evidence) -> Claim:
    """A bound on the limit, measured on weights that may only be on the way there: missing it proves nothing."""
    if evidence.at_limit or claim.status is not Status.FAILS:
        return claim
    return dataclasses.replace(
        claim, status=Status.UNDECIDED, note=_join(claim.note, "a bound on the limit, not on the way there")
    )


def unless_stalled(claim: Claim, outcome: Outcome) -> Claim:
    """A residual at multipliers that a solver left unfinished bounds the true one from above, and refutes nothing."""
    if outcome is Outcome.CONVERGED or claim.status is not Status.FAILS:
        return claim
    return dataclasses.replace(
        claim,
        status=Status.UNDECIDED,
        note=_join(claim.note, f"the fit of the multipliers ended with: {outcome.value}"),
    )


def tends_to(
    name: str, measured: float, target: float, evidence: Evidence, from_below: bool = False, note: str = ""
) -> Claim:
    """A number that tends to `target`. With `from_below` no weights at all exceed the target, so that one that does
    refutes it at any time.
    """
    error = abs(measured - target) / abs(target)
    text = _join(f"{measured:.9g} against {target:.9g}", note)
    if from_below and not evidence.at_limit and measured > target * (1 + LIMIT_TOLERANCE):
        return Claim(
            name,
            Status.FAILS,
            error,
            LIMIT_TOLERANCE,
            "<=",
            _join(text, "above its limit, which no weights should exceed"),
        )
    return tends_to_zero(name, error, evidence, note=text)


def _join(*parts: str) -> str:
    return "; ".join(p for p in parts if p)
