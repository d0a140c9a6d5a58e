"""The support examples of w+ span R^d, and those of w- too."""

import numpy as np

from marginflow._core.status import Status, conjunction
from marginflow._core.tolerances import SUPPORT
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.unit_rows import norms, unit_rows
from marginflow.data.dataset import Dataset

# Singular values of the unit support examples below this fraction of the largest count as 0. Rows that are rounded
# to double precision after a computation with d of the order 10³ move their singular values by about 1e-13.
RANK_TOLERANCE = 1e-10


@timed
def support_span(data: Dataset) -> Condition:
    """measured: the smaller of the two ranks; threshold: d.

    slack: smallest singular value of the unit support examples over the largest when they span, (rank - d)/d when
    they do not (rank 0 where 0 is in the hull of a class, so that no max-margin vector exists). Which rows are
    support examples is known up to the certified interval of the margin: rows that may touch the margin bound the
    rank from above, rows within the support tolerance give the rank that is reported.
    """
    from marginflow.margins import negative, positive

    sides = {"positive": _side(data, positive(data), data.positive),
             "negative": _side(data, negative(data), data.negative)}
    status = conjunction(side.pop("status") for side in sides.values())
    ranks = [side["rank"] for side in sides.values()]
    witness = {"ranks": ranks, **sides}
    if None in ranks:
        return Condition("support_span", status, None, float(data.d), None, witness,
                         notes=("a class has no certified max-margin vector",))
    least = min(ranks)
    slack = min(side["smallest_ratio"] for side in sides.values()) if least == data.d else (least - data.d) / data.d
    notes = (f"rank counts singular values above {RANK_TOLERANCE:g} of the largest; support examples are those whose "
             f"constraint is within {SUPPORT:g} of equality",)
    notes += tuple(f"{name} class: {side['message']}" for name, side in sides.items() if "message" in side)
    return Condition("support_span", status, float(least), float(data.d), slack, witness, notes=notes)


def _side(data: Dataset, margin, rows: np.ndarray) -> dict:
    if margin.separable is False:
        weighted = np.flatnonzero(margin.dual)
        return {"status": Status.FAILS, "rank": 0, "message": f"no such vector exists: {margin.message}", "w": None,
                "smallest_ratio": 0.0, "alpha_rows": weighted, "alpha": margin.dual[weighted]}
    if not margin.certified or margin.vector is None:
        return {"status": Status.UNDECIDED, "rank": None, "message": margin.message or margin.outcome.value}
    found, values = rank(data.X[margin.support])
    touching = may_touch(data, margin.vector, margin.lower_bound, margin.upper_bound, margin.support_tolerance, rows)
    upper = min(len(touching), data.d)
    if found < upper and len(touching) > len(margin.support):
        upper = rank(data.X[touching])[0]
    decided = upper < data.d or len(touching) == len(margin.support)
    status = Status.HOLDS if found == data.d else Status.FAILS if decided else Status.UNDECIDED
    weighted = np.flatnonzero(margin.dual)
    return {"status": status, "rank": found, "rank_at_most": max(found, upper), "support": margin.support,
            "smallest_ratio": float(values[found - 1] / values[0]),
            "largest_dropped_ratio": float(values[found] / values[0]) if found < len(values) else 0.0,
            "margin": [margin.lower_bound, margin.upper_bound], "support_tolerance": margin.support_tolerance,
            "w": margin.vector, "alpha_rows": weighted, "alpha": margin.dual[weighted]}


def rank(rows: np.ndarray) -> tuple[int, np.ndarray]:
    """How many singular values of the unit rows exceed RANK_TOLERANCE of the largest, and all of them."""
    values = np.linalg.svd(unit_rows(rows), compute_uv=False)
    return int(np.count_nonzero(values > RANK_TOLERANCE * values[0])), values


def may_touch(data: Dataset, w: np.ndarray, low: float, high: float, tolerance: float, rows: np.ndarray) -> np.ndarray:
    """Every row that can be a support example, given the proved interval [low, high] of the margin.

    w is feasible with ‖w‖ <= 1/low, the optimum w* has ‖w*‖ >= 1/high and (w - w*)ᵀw* >= 0, so
    ‖w - w*‖² <= 1/low² - 1/high²; hence |wᵀx - w*ᵀx| <= ‖x‖ sqrt(1/low² - 1/high²).
    """
    distance = np.sqrt(max((high - low) * (high + low), 0.0)) / (low * high)
    touching = []
    for start in range(0, len(rows), 65536):
        part = rows[start : start + 65536]
        X = np.asarray(data.X[part], np.float64)
        size = norms(X)
        # w as stored meets its constraints up to rounding: 1e-12 is far above d u for any d in use.
        touching.append(part[X @ w - 1.0 <= size * distance + 1e-12 * (1 + size / low) + tolerance])
    return np.concatenate(touching)
