"""The support examples of w+ span R^d, and those of w- too."""

import numpy as np

from marginflow._core.status import Status, conjunction
from marginflow._core.tolerances import SUPPORT
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.touching import RANK_TOLERANCE, may_touch, rank
from marginflow.data.dataset import Dataset


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
