"""∃w: y_i wᵀx_i > 0 for all i. Shown by such a w; refuted by α in the simplex with Σ α_i y_i x_i = 0 (Gordan)."""

import numpy as np

from marginflow._core.status import Status
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.unit_rows import norms
from marginflow.data.dataset import Dataset


@timed
def linear_separability(data: Dataset) -> Condition:
    """measured: γ = max over ‖w‖ <= 1 of min_i y_i wᵀx_i, which is 0 exactly when no w separates; slack: γ / max ‖x_i‖.

    witness of `holds`: w in normal form; of `fails`: the rows and weights α of a combination equal to 0, proved to
    exist exactly beside the rounded α shown. Equal points with different labels are such a combination.
    """
    from marginflow.margins import linear

    margin = linear(data)
    if margin.separable:
        slack = margin.value / max(float(norms(block).max()) for block in data.blocks())
        witness = {"w": margin.vector, "margin": [margin.lower_bound, margin.upper_bound]}
        notes = () if margin.certified else (f"separation is proved, its margin only to an interval: {margin.message}",)
        return Condition("linear_separability", Status.HOLDS, margin.value, 0.0, slack, witness, notes=notes)
    alpha = np.zeros(data.n) if margin.dual is None else margin.dual
    rows = np.flatnonzero(alpha)
    witness = {"support": rows, "alpha": alpha[rows]}
    if margin.separable is None:
        witness["margin"] = [0.0, margin.upper_bound]
        return Condition("linear_separability", Status.UNDECIDED, None, 0.0, None, witness, notes=(margin.message,))
    notes: tuple[str, ...] = ()
    if margin.contradictory is not None:
        i, j = margin.contradictory
        witness = {"kind": _contradiction(data, i, j), "rows": [i, j], **witness}
        notes = (f"rows {i} and {j} are {witness['kind']}",)
    return Condition("linear_separability", Status.FAILS, 0.0, 0.0, 0.0, witness, notes=notes)


def _contradiction(data: Dataset, i: int, j: int) -> str:
    return "equal points with different labels" if data.y[i] != data.y[j] else "opposite points with the same label"
