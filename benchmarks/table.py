"""What a benchmark says: a row per method and case, an aim per promise, a slope per law of growth."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Least:
    """The least work an answer to the question needs: multiply-adds count two operations. It belongs to the question.

    bytes: what must be read or written once. precision: of the matrix rate it is held against.
    """

    operations: float = 0.0
    bytes: float = 0.0
    precision: str = "double"

    def seconds(self, rates: Mapping[str, float]) -> float:
        return max(self.operations / rates[self.precision], self.bytes / rates["bandwidth"])


@dataclasses.dataclass(frozen=True)
class Row:
    """One method on one case.

    seconds: of a call whose code is loaded and compiled; None where the method was not run or gave nothing.
    warm_up: seconds of imports, compilation and the first small call; None where there is nothing of the kind.
    quality: how good the answer is, by name; the first entry is the one that the aim is judged by.
    whole: `seconds` was measured on this fraction of the work and divided by it.
    """

    work: str
    case: str
    method: str
    seconds: float | None
    quality: Mapping[str, Any]
    least: Least = Least()
    warm_up: float | None = None
    whole: float = 1.0
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Aim:
    """A promise about a case. reached: the ratio that was measured, None where no peer arrived."""

    work: str
    case: str
    promise: str
    needed: float
    reached: float | None
    met: bool | None
    against: str = ""


@dataclasses.dataclass(frozen=True)
class Slope:
    """seconds ~ variable^slope, fitted to (sizes, seconds) in logarithms. local: the slope of the last two sizes."""

    work: str
    variable: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    slope: float
    local: float
    because: str = ""

    @classmethod
    def of(cls, work: str, variable: str, points: Iterable[tuple[float, float]], because: str) -> "Slope":
        sizes, seconds = zip(*points, strict=True)
        x, y = [math.log(v) for v in sizes], [math.log(v) for v in seconds]
        mx, my = sum(x) / len(x), sum(y) / len(y)
        rise = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
        slope = rise / sum((a - mx) ** 2 for a in x)
        local = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return cls(
            work, variable, tuple(map(float, sizes)), tuple(map(float, seconds)), slope, local, because
        )


Entry = Row | Aim | Slope


@dataclasses.dataclass(frozen=True)
class Run:
    """How large a run is. quick: the smallest sizes that still go through every line; gpu: peers on the device too."""

    quick: bool = False
    gpu: bool = False

    def choose(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    @property
    def device(self) -> str:
        return "cuda" if self.gpu else "cpu"


def clock(call: Callable[[], T], warm: Callable[[], Any] | None = None, repeats: int = 3,
          patience: float = 2.0) -> tuple[T, float, float]:  # fmt: skip
    """(answer, seconds of the fastest call, seconds of the warm-up).

    The warm-up is `warm`, or else the first call, of which the repeatable part is taken off. Calls are repeated while
    they take less than `patience` seconds together.
    """
    first = _seconds(warm or call)[1]
    answer, best = _seconds(call)
    spent, done = best, 1
    while done < repeats and spent < patience:
        answer, seconds = _seconds(call)
        best, spent, done = min(best, seconds), spent + seconds, done + 1
    return answer, best, first if warm else max(first - best, 0.0)


def _seconds(call: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    answer = call()
    return answer, time.perf_counter() - start


def against_best(ours: Row, peers: Iterable[Row], good: Callable[[Row], bool]) -> tuple[float | None, str]:
    """(how many times faster ours is than the fastest peer whose answer is good enough, who that is)."""
    equal = [row for row in peers if row.seconds is not None and good(row)]
    if ours.seconds is None or not equal:
        return None, "no peer arrived at an answer of this quality"
    best = min(equal, key=lambda row: row.seconds or math.inf)
    assert best.seconds is not None
    return best.seconds / ours.seconds, best.method


def faster(ours: Row, peers: Iterable[Row], needed: float, good: Callable[[Row], bool], promise: str) -> Aim:
    """The aim "needed times faster than the best peer of equal quality"; met where no peer arrives."""
    reached, against = against_best(ours, peers, good)
    met = good(ours) and (reached is None or reached >= needed)
    return Aim(ours.work, ours.case, promise, needed, reached, met, against)
