"""The record of one max-margin problem: primal, dual and the interval they certify."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome
from marginflow._core.tolerances import SUPPORT


@dataclasses.dataclass(frozen=True, eq=False)
class Margin(Record):
    """A maximal margin γ with both of its witnesses.

    value: γ, the number to use; it lies in [lower_bound, upper_bound] whenever `certified`.
    lower_bound: the margin that `vector` (or `neurons`) attains on every row, rounding errors subtracted.
    upper_bound: the value of `dual`, rounding errors added. For kind "f1" it bounds γ only where `certified`.
    certified: both bounds are proved and meet within the tolerance of `gap`, or γ = 0 is proved.
    vector: w in normal form, y_i wᵀx_i >= 1 ("linear") or wᵀx_i >= 1 on its class ("positive", "negative");
        None where there is none. γ = 1/‖w‖.
    dual: α in the simplex over all n rows (zero off the class); w = ‖w‖² Σ α_i z_i with z_i the signed rows, and
        γ = ‖Σ α_i z_i‖. Of a non-separable problem: Gordan's α, Σ α_i z_i = 0.
    support: rows whose constraint is within `support_tolerance` of equality.
    separable: γ > 0 proved (True), γ = 0 proved (False), or neither (None).
    contradictory: two rows that alone prove γ = 0, if there are any; `message` says how. Linear and per class:
        z_i = -z_j exactly, that is x_i = x_j with different labels or x_i = -x_j with the same label. F1 and F2:
        different labels on one ray from the origin.
    neurons: the finite measure that attains an F1 margin.
    certificate: whatever else a checker needs; see the page of the problem.
    """

    kind: str
    value: float
    lower_bound: float
    upper_bound: float
    certified: bool
    vector: np.ndarray | None
    support: np.ndarray
    dual: np.ndarray | None
    outcome: Outcome
    message: str = ""
    separable: bool | None = True
    bias: bool = False
    neurons: Any = None
    support_tolerance: float = SUPPORT
    contradictory: tuple[int, int] | None = None
    certificate: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int = 0

    @property
    def gap(self) -> float:
        """(upper - lower)/upper; 0 where both vanish."""
        if self.upper_bound <= 0:
            return 0.0
        return float((self.upper_bound - self.lower_bound) / self.upper_bound)

    def table(self) -> Table:
        rows = [
            ("margin γ", f"{self.value:.12g}"),
            ("interval", f"[{self.lower_bound:.15g}, {self.upper_bound:.15g}]"),
            ("relative gap", show(self.gap)),
            ("certified", show(self.certified)),
            ("separable", "undecided" if self.separable is None else show(self.separable)),
            ("support examples", str(len(self.support))),
            ("outcome", show(self.outcome)),
            ("bias", show(self.bias)),
        ]
        if self.neurons is not None and hasattr(self.neurons, "__len__"):
            rows.append(("neurons", str(len(self.neurons))))
        if self.contradictory is not None:
            rows.append(("contradictory rows", show(self.contradictory)))
        notes = (self.message,) if self.message else ()
        return Table(f"max margin: {self.kind}", ("quantity", "value"), tuple(rows), notes)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "gap": self.gap}
