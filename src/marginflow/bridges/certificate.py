"""What an estimator can prove about the classifier it fitted."""

import dataclasses

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome, Status


@dataclasses.dataclass(frozen=True)
class Certificate(Record):
    """status: `holds` when the classifier is proved to be what its class promises (the t = ∞ network, a maximal
    margin); `undecided` when the proved interval is not closed; `vacuous` when an assumption fails and a fallback was
    fitted. `margin_` lies in [lower_bound, upper_bound]; an upper bound of None means that none is proved.
    """

    problem: str
    status: Status
    lower_bound: float
    upper_bound: float | None
    outcome: Outcome
    message: str = ""

    def table(self) -> Table:
        upper = "none proved" if self.upper_bound is None else show(self.upper_bound)
        rows = (
            ("status", show(self.status)),
            ("lower bound", show(self.lower_bound)),
            ("upper bound", upper),
            ("outcome", show(self.outcome)),
        )
        return Table(self.problem, ("quantity", "value"), rows, (self.message,) if self.message else ())
