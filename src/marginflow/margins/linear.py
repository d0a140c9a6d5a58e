"""Linear and per-class hard margins (theory §2, §3) of any number of rows.

A working set of rows is solved precisely; one pass over all rows then finds those it violates. The interval of the
answer comes from margins.certificates, which sees only w, α and the rows.
"""

import dataclasses
from typing import Protocol

import numpy as np

from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS, MARGIN_GAP, SUPPORT
from marginflow.data.dataset import Dataset
from marginflow.margins import certificates, hull
from marginflow.margins.base import Margin
from marginflow.margins.rows import SignedRows, signed_rows

LONGEST = 60  # passes over the data; each strictly raises ‖w‖ of the working set, and ten is already unusual


def linear(data: Dataset, bias: bool = False) -> Margin:
    """w_max = argmin ‖w‖² s.t. y_i wᵀx̃_i >= 1 over all examples."""
    return _margin(data, "linear", bias)


def positive(data: Dataset, bias: bool = False) -> Margin:
    """w+ = argmin ‖w‖² s.t. wᵀx̃_i >= 1 over I+: the margin is the distance of 0 from the hull of the class."""
    return _margin(data, "positive", bias)


def negative(data: Dataset, bias: bool = False) -> Margin:
    """w- = argmin ‖w‖² s.t. wᵀx̃_i >= 1 over I-, with no sign flip: w- points at the negatives."""
    return _margin(data, "negative", bias)


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A working-set solve: w and α over all listed rows, or the weights that seem to put 0 in the hull."""

    w: np.ndarray | None
    alpha: np.ndarray
    ray: np.ndarray | None
    outcome: Outcome
    message: str
    steps: int


def _margin(data: Dataset, kind: str, bias: bool) -> Margin:
    rows = signed_rows(data, kind, bias)
    norms = rows.norms()
    answer = working_set(rows, norms)
    if answer.w is not None:
        lower = certificates.margin_from_below(rows, answer.w, norms)
        upper = certificates.margin_from_above(rows, answer.alpha)
        if lower > 0:
            return _separable(data, kind, bias, rows, answer, lower, upper)
    return _not_separable(data, kind, bias, rows, answer)


def _separable(data, kind, bias, rows: SignedRows, answer: Answer, lower: float, upper: float) -> Margin:
    w = answer.w * rows.scale
    values = rows.products(answer.w)
    gap = (upper - lower) / upper
    certified = gap <= MARGIN_GAP
    value = min(max(1.0 / np.linalg.norm(answer.w), lower), upper)
    message = "" if certified else (f"relative gap {gap:.1e} above {MARGIN_GAP:.0e}: the interval is proved, its middle "
                                    f"digits are not ({answer.outcome.value})")
    return Margin(kind, value / rows.scale, lower / rows.scale, upper / rows.scale, certified, w,
                  rows.index[np.flatnonzero(values <= 1.0 + SUPPORT)], _spread(data, rows, answer.alpha),
                  answer.outcome, message, True, bias, steps=answer.steps)


def _not_separable(data, kind, bias, rows: SignedRows, answer: Answer) -> Margin:
    pair = certificates.contradictory(rows)
    alpha = None
    if pair is not None:
        alpha = np.zeros(rows.n)
        alpha[list(pair)] = 0.5
    else:
        weight = answer.ray if answer.ray is not None else answer.alpha
        on = np.flatnonzero(weight > 0)
        proof = certificates.gordan(rows.take(on)) if len(on) else None
        if proof is not None:
            alpha = np.zeros(rows.n)
            alpha[on] = proof
    contradictory = None if pair is None else (int(rows.index[pair[0]]), int(rows.index[pair[1]]))
    if alpha is not None:
        on = np.flatnonzero(alpha)
        message = (f"rows {contradictory[0]} and {contradictory[1]} contradict each other" if contradictory else
                   f"0 is a convex combination of {len(on)} signed rows, proved exactly")
        return Margin(kind, 0.0, 0.0, 0.0, True, None, rows.index[on], _spread(data, rows, alpha), Outcome.INFEASIBLE,
                      message, False, bias, contradictory=contradictory, steps=answer.steps)
    weight = answer.ray if answer.ray is not None else answer.alpha
    upper = certificates.margin_from_above(rows, weight / weight.sum()) if weight.sum() > 0 else float("inf")
    return Margin(kind, 0.0, 0.0, upper / rows.scale, False, None, rows.index[np.flatnonzero(weight)],
                  _spread(data, rows, weight / max(weight.sum(), 1e-300)), Outcome.STALLED,
                  "neither a separating vector nor a combination equal to 0 could be proved: the margin lies between 0 "
                  "and the upper bound", None, bias, steps=answer.steps)


def _spread(data: Dataset, rows: SignedRows, alpha: np.ndarray) -> np.ndarray:
    full = np.zeros(data.n)
    full[rows.index] = alpha
    return full


class Summable(certificates.Rows, Protocol):
    def weighted_sum(self, weight: np.ndarray) -> np.ndarray: ...


def working_set(rows: Summable, norms: np.ndarray) -> Answer:
    """Solve few rows, look at all, add the worst; every pass raises the working set's ‖w‖ until nothing is violated."""
    batch = min(rows.n, max(64, 2 * min(rows.d, rows.n)))
    weight = 1.0 / norms
    mean = rows.weighted_sum(weight / weight.sum())
    length = np.linalg.norm(mean)
    first = rows.products(mean / length) if length > 0 else norms
    work = np.sort(np.argpartition(first, batch - 1)[:batch])
    steps, alpha = 0, np.zeros(rows.n)
    answer = None
    for _ in range(LONGEST):
        found = hull.least_norm(rows.take(work))
        steps += found.steps
        if found.w is None:
            ray = np.zeros(rows.n)
            ray[work] = found.ray
            return Answer(None, alpha, ray, found.outcome, found.message, steps)
        alpha = np.zeros(rows.n)
        alpha[work] = found.multipliers / found.multipliers.sum()
        answer = Answer(found.w, alpha, None, found.outcome, found.message, steps)
        values = rows.products(found.w)
        allowed = 1.0 - 1e-13 - 4 * EPS * norms * np.linalg.norm(found.w)
        short = np.flatnonzero(values < allowed)
        short = np.setdiff1d(short, work, assume_unique=True)
        if not len(short):
            return answer
        if len(short) > batch:
            short = short[np.argpartition(values[short], batch - 1)[:batch]]
        keep = work if len(work) <= 8 * batch else work[(found.multipliers > 0) | (values[work] < 2.0)]
        work = np.union1d(keep, short)
    return dataclasses.replace(answer, outcome=Outcome.MAX_STEPS, steps=steps)
