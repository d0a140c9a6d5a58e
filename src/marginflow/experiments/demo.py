"""The demo: one small data set taken along the chain."""

import dataclasses
import time
from collections.abc import Sequence

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Status
from marginflow.conditions import Checks, check
from marginflow.data import phuong2021


@dataclasses.dataclass(frozen=True)
class Demo(Record):
    """verdict: whether the data are orthogonally separable, the assumption everything else starts from."""

    verdict: Status
    report: str | None
    seconds: float
    checks: Checks

    def tables(self) -> Sequence[Table]:
        summary = (
            ("verdict", show(self.verdict)),
            ("report", show(self.report)),
            ("seconds", f"{self.seconds:.1f}"),
        )
        return [*self.checks.tables(), Table("demo", ("what", "value"), summary)]


def demo(seed: int = 0) -> Demo:
    """Check the data of Phuong & Lampert 2021."""
    start = time.perf_counter()
    checks = check(phuong2021(seed=seed))
    return Demo(checks["orthogonal_separability"].status, None, time.perf_counter() - start, checks)
