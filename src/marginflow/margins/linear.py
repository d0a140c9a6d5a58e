"""Linear and per-class hard margins (theory §2, §3) of any number of rows.

A working set of rows is solved precisely; the certificate of its w, one pass over all rows, then shows which rows it
violates, and is the answer's own when there are none. The certificate (margins.certificates) sees only w, α and the
rows.
"""

import dataclasses

import numpy as np

from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS, MARGIN_GAP, SUPPORT
from marginflow.data.dataset import Dataset
from marginflow.margins import certificates, hull, span
from marginflow.margins.base import Margin
from marginflow.margins.rows import SignedRows, refuse_beyond_range, signed_rows

WIDE = 2  # with more than this many columns per row, work in the span of the rows
RANGE = 1e140  # ratio of row norms whose squares still fit into double precision beside 1
NOTHING = 1e-10  # of the largest α_i‖z_i‖: from here on a row takes part in a combination that is to be 0
SAMPLE = 1024  # rows whose mean points the first look at the data
LONGEST = 60  # passes over the data; each strictly raises ‖w‖ of the working set, and ten is already unusual


def linear(data: Dataset, bias: bool = False) -> Margin:
    """w_max = argmin ‖w‖² s.t. y_i wᵀx̃_i >= 1 over all examples."""
    return hard_margin(signed_rows(data, "linear", bias), "linear", data.n)


def positive(data: Dataset, bias: bool = False) -> Margin:
    """w+ = argmin ‖w‖² s.t. wᵀx̃_i >= 1 over I+: the margin is the distance of 0 from the hull of the class."""
    return hard_margin(signed_rows(data, "positive", bias), "positive", data.n)


def negative(data: Dataset, bias: bool = False) -> Margin:
    """w- = argmin ‖w‖² s.t. wᵀx̃_i >= 1 over I-, with no sign flip: w- points at the negatives."""
    return hard_margin(signed_rows(data, "negative", bias), "negative", data.n)


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """A working-set solve: w and α over all listed rows, or the weights that seem to put 0 in the hull.

    attained: what the certificate says of w.
    """

    w: np.ndarray | None
    alpha: np.ndarray
    ray: np.ndarray | None
    outcome: Outcome
    message: str
    steps: int
    attained: certificates.Attained | None = None


def hard_margin(rows: SignedRows, kind: str, n: int) -> Margin:
    """max_w min_i z_iᵀw/‖w‖ over any signed rows, which are rows `index` of n examples."""
    norms = rows.norms()
    row = int(np.argmin(norms))
    if norms.max() > RANGE * norms[row] or norms[row] < 1 / RANGE:
        given = dataclasses.replace(rows, scale=1.0)  # a short row is 0 once a long one is brought near 1
        lengths = given.norms()
        if lengths.min() > 0:
            return _out_of_range(given, kind, n, lengths)
        return _zero_margin(rows, kind, n, {row: 1.0}, f"row {rows.index[row]} is zero")
    answer = _in_span(rows) if WIDE * rows.n < rows.d else working_set(rows, norms)
    if answer.w is not None:
        below = answer.attained or certificates.attained(rows, answer.w, norms)
        if below.margin > 0:
            upper = certificates.margin_from_above(rows, answer.alpha)
            return _separable(rows, kind, n, answer.w, answer, below, upper)
    return _not_separable(rows, kind, n, answer)


def _separable(
    rows: SignedRows, kind: str, n: int, w, answer: Answer, below: certificates.Attained, upper: float
) -> Margin:
    lower = below.margin
    refuse_beyond_range(upper / rows.scale, 1, f"{kind} margin")
    gap = (upper - lower) / upper
    certified = gap <= MARGIN_GAP
    value = float(min(max(1.0 / np.linalg.norm(w), lower), upper))
    message = (
        ""
        if certified
        else (
            f"the interval is proved, but its relative width {gap:.1e} is above "
            f"{MARGIN_GAP:.0e}: the data determine the margin no better in double precision"
        )
    )
    return Margin(
        kind,
        value / rows.scale,
        lower / rows.scale,
        upper / rows.scale,
        certified,
        w * rows.scale,
        rows.index[np.flatnonzero(below.values <= 1.0 + SUPPORT)],
        _spread(n, rows, answer.alpha),
        answer.outcome,
        message,
        True,
        rows.bias,
        steps=answer.steps,
    )


def _out_of_range(rows: SignedRows, kind: str, n: int, norms: np.ndarray) -> Margin:
    """The margin lies between 0 and the shortest row; no more can be said."""
    low = int(norms.argmin())
    alpha = np.zeros(rows.n)
    alpha[low] = 1.0
    message = (
        f"row {rows.index[low]} has length {norms[low]:.1e} beside others of {norms.max():.0e}: double precision "
        "cannot hold both; bring the rows to comparable size"
    )
    on, upper = rows.index[[low]], certificates.norm_bounds(rows.take([low])[0])[1]
    return Margin(
        kind, 0.0, 0.0, upper, False, None, on, _spread(n, rows, alpha), Outcome.STALLED, message, None, rows.bias
    )


def _not_separable(rows: SignedRows, kind: str, n: int, answer: Answer) -> Margin:
    """γ = 0 with proof: two opposite rows, or Gordan's α. Without a proof, the question is left open."""
    pair = certificates.equal_rows(rows, rows.negated())
    if pair is not None:
        pair = (min(pair), max(pair))
        i, j = int(rows.index[pair[0]]), int(rows.index[pair[1]])
        return _zero_margin(
            rows,
            kind,
            n,
            dict.fromkeys(pair, 0.5),
            _opposed(rows, pair, i, j),
            answer.steps,
            (i, j),
        )
    weight = answer.alpha if answer.ray is None else answer.ray
    share = weight * rows.norms()
    on = np.flatnonzero(share > NOTHING * share.max(initial=0.0))
    proof = certificates.gordan(rows.take(on), weight[on]) if len(on) else None
    if proof is not None:
        return _zero_margin(
            rows,
            kind,
            n,
            dict(zip(on.tolist(), proof, strict=True)),
            f"0 is a convex combination of {len(on)} signed rows, proved",
            answer.steps,
        )
    alpha = weight / weight.sum() if len(on) else None
    upper = np.inf if alpha is None else certificates.margin_from_above(rows, alpha)
    return Margin(
        kind,
        0.0,
        0.0,
        upper / rows.scale,
        False,
        None,
        rows.index[on],
        None if alpha is None else _spread(n, rows, alpha),
        Outcome.STALLED,
        "neither a separating vector nor a combination equal to 0 could be proved: the margin lies between 0 "
        "and the upper bound",
        None,
        rows.bias,
        steps=answer.steps,
    )


def _opposed(rows: SignedRows, pair: tuple[int, int], i: int, j: int) -> str:
    """In words, z_i = -z_j: signs that differ mean equal points, equal signs opposite points of one label."""
    if rows.sign[pair[0]] != rows.sign[pair[1]]:
        return f"rows {i} and {j} are equal points with different labels: nothing separates them"
    return f"rows {i} and {j} are opposite points with the same label: no hyperplane through the origin separates them"


def _zero_margin(rows, kind, n, weights: dict[int, float], message, steps=0, pair=None) -> Margin:
    alpha = np.zeros(rows.n)
    alpha[list(weights)] = list(weights.values())
    return Margin(
        kind,
        0.0,
        0.0,
        0.0,
        True,
        None,
        rows.index[np.flatnonzero(alpha)],
        _spread(n, rows, alpha),
        Outcome.INFEASIBLE,
        message,
        False,
        rows.bias,
        contradictory=pair,
        steps=steps,
    )


def _spread(n: int, rows: SignedRows, alpha: np.ndarray) -> np.ndarray:
    full = np.zeros(n)
    on = np.flatnonzero(alpha)
    full[rows.index[on]] = alpha[on]
    return full


def _in_span(rows: SignedRows) -> Answer:
    """The same, for fewer rows than columns: solved in n coordinates, then corrected against the rows themselves."""
    F, gram = span.coordinates(rows)
    small = SignedRows(F, np.arange(rows.n), np.ones(rows.n), False)
    answer = working_set(small, small.norms())
    if answer.w is None:
        return answer
    on = np.flatnonzero(answer.alpha)
    mu = answer.alpha * (answer.w @ answer.w)
    better = span.equality(rows, gram, on)
    if better is not None and (better > 0).all():
        mu[on] = better
    return dataclasses.replace(answer, w=rows.weighted_sum(mu), alpha=mu / mu.sum(), attained=None)


def working_set(rows: certificates.Rows, norms: np.ndarray) -> Answer:
    """Solve few rows, look at all, add the worst; every pass raises the working set's ‖w‖ until nothing is violated."""
    batch = max(64, 2 * min(rows.d, rows.n))
    batch = rows.n if rows.n <= 2 * batch else batch  # a second solve would cost more than a larger first
    some = np.arange(0, rows.n, -(-rows.n // SAMPLE))
    mean = (1.0 / norms[some]) @ rows.take(some)
    first = rows.products(mean) if mean.any() else norms
    work = np.sort(np.argpartition(first, batch - 1)[:batch])
    steps, alpha = 0, np.zeros(rows.n)
    answer = Answer(None, alpha, None, Outcome.MAX_STEPS, "", 0)
    for _ in range(LONGEST):
        found = hull.least_norm(rows.take(work))
        steps += found.steps
        if found.w is None or found.multipliers is None:
            ray = np.zeros(rows.n)
            if found.ray is not None:
                ray[work] = found.ray
            return Answer(None, alpha, ray, found.outcome, found.message, steps)
        alpha = np.zeros(rows.n)
        alpha[work] = found.multipliers / found.multipliers.sum()
        below = certificates.attained(rows, found.w, norms)
        answer = Answer(found.w, alpha, None, found.outcome, found.message, steps, below)
        allowed = np.minimum(norms * (4 * EPS * np.linalg.norm(found.w)), hull.SHOWS)
        short = np.flatnonzero(below.values < (1.0 - 1e-13) - allowed)
        short = short[~np.isin(short, work, assume_unique=True)] if len(short) else short
        if not len(short):
            return answer
        if len(short) > batch:
            short = short[np.argpartition(below.values[short], batch - 1)[:batch]]
        keep = work if len(work) <= 8 * batch else work[(found.multipliers > 0) | (below.values[work] < 2.0)]
        work = np.union1d(keep, short)
    return dataclasses.replace(answer, outcome=Outcome.MAX_STEPS, steps=steps)
