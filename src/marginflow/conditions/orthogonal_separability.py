"""x_iᵀx_j > 0 within each class (i = j included), <= 0 across classes; without forming n² products.

The angles to an axis (`cones`) prove the condition for all pairs outside three corners of the table of pairs; on
cones narrower than 45° the corners are empty. The corners go through BLAS, widest rows first since violations sit
there, and the products that rounding leaves open are decided exactly (`_core.exact`).
"""

import dataclasses
import math
from typing import Any

import numpy as np

from marginflow._core import exact
from marginflow._core.errors import InputError
from marginflow._core.progress import progress
from marginflow._core.status import Status
from marginflow.conditions import device_scan
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.cones import Corner, corners
from marginflow.conditions.unit_rows import Cosines, norms
from marginflow.data.dataset import Dataset

ALL_PAIRS = 2048  # up to this many rows every pair is looked at, and the extreme cosines are those of the whole set
LOOKED_AT = 128  # otherwise at least the pairs among this many of the widest rows
LISTED = 10_000  # violating pairs that are listed; all of them are counted
DENSE = 256  # open products in a block from which the whole block is decided at once
PRECISE = 4_000_000  # products that are recomputed in twice the precision to name a smallest tolerance


@timed
def orthogonal_separability(data: Dataset, tolerance: float = 0.0, all_violations: bool = False) -> Condition:
    """Decided exactly for the numbers stored; `tolerance` T counts |cos(x_i, x_j)| <= T as zero.

    slack = measured = min(smallest same-class cosine - T, T - largest cross-class cosine) over the pairs looked
    at (all of them if `every_pair`); when the condition holds, `slack_at_least` bounds it below over all pairs.
    """
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance {tolerance}; a tolerance on cosines is at least 0 and below 1")
    scan = _scan(data, tolerance, all_violations)
    same, cross = scan.same.pair(data), scan.cross.pair(data)
    rooms = [sign * pair["cosine"] - sign * tolerance for sign, pair in ((1, same), (-1, cross)) if pair["rows"]]
    slack = min(rooms, default=math.inf) + 0.0
    witness: dict[str, Any] = {}
    if scan.worst is not None:
        kind, i, j = scan.worst
        witness |= {"kind": kind, "rows": [i, j], "labels": [int(data.y[i]), int(data.y[j])], **_product(data, i, j)}
    if all_violations:
        witness |= {"violations": scan.violations, "pairs": [list(pair) for pair in scan.listed]}
    if scan.worst is None:
        witness["slack_at_least"] = min(slack, scan.proved - tolerance)
    witness |= {"same_class": same, "cross_class": cross, "pairs_examined": scan.examined,
                "pairs_total": data.n * (data.n - 1) // 2, "every_pair": scan.every_pair}
    notes = _about_tolerance(tolerance) + _about_rounding(data, scan, tolerance, same, cross, witness)
    status = Status.HOLDS if scan.worst is None else Status.FAILS
    return Condition("orthogonal_separability", status, slack, 0.0, slack, witness, tolerance=tolerance, notes=notes)


@dataclasses.dataclass
class _Extreme:
    """The smallest value of sign·cos among the pairs seen, and where."""

    sign: int
    value: float = math.inf
    rows: tuple[int, int] | None = None

    def see(self, I: np.ndarray, J: np.ndarray, P: np.ndarray) -> float:
        """Take in a block; returns its own smallest value, in which i = j counts: it is 1 up to rounding."""
        smallest = float(P.min()) if self.sign > 0 else -float(P.max())
        if smallest < self.value:
            row, column = divmod(int(P.argmin() if self.sign > 0 else P.argmax()), P.shape[1])
            if I[row] == J[column]:  # a class of parallel rows; across classes this cannot be
                P = np.where(I[:, None] == J, np.inf, P)
                row, column = divmod(int(P.argmin()), P.shape[1])
            if self.sign * P[row, column] < self.value:
                self.value, self.rows = self.sign * float(P[row, column]), (int(I[row]), int(J[column]))
        return smallest

    def pair(self, data: Dataset) -> dict[str, Any]:
        if self.rows is None:
            return {"rows": None, "product": None, "cosine": None}
        i, j = sorted(self.rows)
        return {"rows": [i, j], **_product(data, i, j)}


def _product(data: Dataset, i: int, j: int) -> dict[str, float]:
    x, z = data.X[i], data.X[j]
    return {"product": exact.nearest(exact.dot(x, z)), "cosine": exact.cosine(x, z)}


@dataclasses.dataclass
class _Scan:
    same: _Extreme = dataclasses.field(default_factory=lambda: _Extreme(1))
    cross: _Extreme = dataclasses.field(default_factory=lambda: _Extreme(-1))
    worst: tuple[str, int, int] | None = None
    worst_value: float = math.inf
    violations: int = 0
    listed: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
    examined: int = 0
    proved: float = 1.0
    every_pair: bool = True


def _scan(data: Dataset, tolerance: float, all_violations: bool) -> _Scan:
    """Look at every pair the angles leave open; stop at the first block with a violation unless all are asked for."""
    scan, cosines = _Scan(), Cosines(data.X)
    tasks = corners(data.X, data.y, tolerance, least=data.n if data.n <= ALL_PAIRS else LOOKED_AT)
    if data.n <= ALL_PAIRS:
        tasks = [dataclasses.replace(task, limit=-math.inf) for task in tasks]
    scan.proved = min(task.proved for task in tasks)
    total = sum(task.pairs for task in tasks)
    scan.every_pair = data.n <= ALL_PAIRS
    with progress(total, "pairs of rows") as meter:
        for task in tasks:
            for I, J, P, k, s in _open_blocks(data, scan, cosines, task, tolerance, meter):
                scan.examined += (seen := _pairs(task, (k, k + len(I)), (s, s + len(J))))
                meter.advance(seen)
                if _look(data, scan, task, I, J, P, k, s, tolerance, cosines.error) and not all_violations:
                    return scan
    return scan


def _open_blocks(data: Dataset, scan: _Scan, cosines: Cosines, task: Corner, tolerance: float, meter):
    """Blocks of cosines to look at: all of the corner, or what a GPU leaves open of it."""
    if not device_scan.worth_it(task.pairs):
        yield from cosines.blocks(task.left, task.right, task.limit, least=LOOKED_AT)
        return
    extreme, threshold = (scan.same, tolerance) if task.kind == "same" else (scan.cross, -tolerance)
    for tile in device_scan.tiles(data.X, task.left, task.right, task.limit, extreme.sign):
        i, j = int(task.left.rows[tile.at[0]]), int(task.right.rows[tile.at[1]])
        if tile.smallest > threshold + cosines.error:
            scan.examined += (seen := _pairs(task, (tile.k, tile.l), (tile.s, tile.t)))
            meter.advance(seen)
            if tile.smallest < extreme.value and i != j:
                extreme.value, extreme.rows = tile.smallest, (i, j)
        else:
            yield from cosines.rectangle(task.left, task.right, (tile.k, tile.l), (tile.s, tile.t))


def _pairs(task: Corner, of_left: tuple[int, int], of_right: tuple[int, int]) -> int:
    """Pairs of the block left.rows[k:l] x right.rows[s:t]; within one class each unordered pair once, i = j never."""
    (k, l), (s, t) = of_left, of_right
    if task.left is not task.right:
        return (l - k) * (t - s)
    return int(np.maximum(t - np.maximum(np.arange(k + 1, l + 1), s), 0).sum())


def _look(data: Dataset, scan: _Scan, task: Corner, I, J, P, k: int, s: int, tolerance: float, error: float) -> bool:
    """Take one block of cosines into the scan; whether it holds a violation."""
    same = task.kind == "same"
    smallest = (scan.same if same else scan.cross).see(I, J, P)
    if smallest > (tolerance if same else -tolerance) + error:
        return False
    above = _exceeds(data.X, I, J, P, tolerance, error)
    wrong = ~above if same else above
    if same:  # each unordered pair once; i = j cannot be wrong
        wrong &= (s + np.arange(len(J)))[None, :] > (k + np.arange(len(I)))[:, None]
    count = int(np.count_nonzero(wrong))
    if not count:
        return False
    i, j = np.nonzero(wrong)
    badness = P[i, j] if same else -P[i, j]
    worst = int(badness.argmin())
    if badness[worst] < scan.worst_value or scan.worst is None:
        scan.worst_value = float(badness[worst])
        scan.worst = _pair(task.kind, I[i[worst]], J[j[worst]])
    scan.violations += count
    room = LISTED - len(scan.listed)
    scan.listed += [_pair(task.kind, I[a], J[b]) for a, b in zip(i[:room], j[:room], strict=True)]
    return True


def _pair(kind: str, i, j) -> tuple[str, int, int]:
    return kind, int(min(i, j)), int(max(i, j))


def _exceeds(X, I, J, P, tolerance: float, error: float) -> np.ndarray:
    """cos(x_i, x_j) > tolerance for each pair of the block, exactly."""
    above = P > tolerance + error
    still_open = (tolerance - error <= P) & ~above
    i, j = np.nonzero(still_open)
    if tolerance == 0 and len(i) > DENSE:
        signs = exact.block_signs(X[I], X[J])
        above[still_open] = signs[still_open] > 0
        return above
    step = max(1, 2**20 // X.shape[1])
    for k in range(0, len(i), step):
        a, b = i[k : k + step], j[k : k + step]
        above[a, b] = exact.exceeds(X[I[a]], X[J[b]], tolerance)
    return above


def _about_tolerance(tolerance: float) -> tuple[str, ...]:
    return (f"cosines of at most {tolerance:g} in size count as zero (tolerance)",) if tolerance else ()


def rounding_level(data: Dataset) -> float:
    """Cosines below this may be rounding: d + 2 roundings of each entry in the precision of the data.

    That is what rotating, centring or projecting exact data in that precision costs.
    """
    return (data.d + 2) * float(np.finfo(data.X.dtype).eps)


def _about_rounding(data, scan: _Scan, tolerance: float, same, cross, witness) -> tuple[str, ...]:
    """Say when the answer rests on rounding, and with which tolerance the condition holds."""
    level = rounding_level(data)
    if scan.worst is not None:
        if abs(witness["cosine"]) > level or witness["product"] == 0:
            return ()
        smallest = _smallest_tolerance(data, level)
        if smallest is None:
            return (f"the answer rests on rounding (|cosine| <= {level:.3g}), and no tolerance of that size makes the "
                    "condition hold",)
        value, sharp = smallest
        witness["rounding_level"], witness["holds_with_tolerance"] = level, value
        least = "the smallest" if sharp else "a"
        return (f"the answer is exact for the numbers stored but rests on rounding (|cosine| <= {level:.3g}); "
                f"{least} tolerance with which the condition holds is {value!r}",)
    close = [name for name, pair in (("same-class", same), ("cross-class", cross))
             if pair["rows"] and 0 < abs(pair["cosine"]) <= level]
    if close and not tolerance:
        witness["rounding_level"] = level
        return (f"the answer is exact for the numbers stored but rests on rounding: a {close[0]} cosine is not 0 and "
                f"at most {level:.3g}",)
    return ()


def _smallest_tolerance(data: Dataset, level: float) -> tuple[float, bool] | None:
    """(T, sharp): the condition holds with tolerance T <= level, and with none smaller (up to rounding) if sharp."""
    if _scan(data, level, all_violations=False).worst is not None:
        return None
    cosines, largest, precise = Cosines(data.X), 0.0, 0
    across = corners(data.X, data.y, 0.0)[2]
    for I, J, P, _, _ in cosines.blocks(across.left, across.right, across.limit):
        i, j = np.nonzero(P > largest - cosines.error)
        precise += len(i)
        if precise > PRECISE:
            return level, False
        step = max(1, 2**20 // data.d)
        for k in range(0, len(i), step):
            A, B = data.X[I[i[k : k + step]]], data.X[J[j[k : k + step]]]
            value, bound = exact.dot2(A, B)
            largest = max(largest, float(((value + bound) / (norms(A) * norms(B))).max()))
    # The norms and the quotient are off by at most (d + 8)u relatively: with this factor T is above every cosine.
    largest *= 1 + 2 * (data.d + 8) * exact.UNIT
    return (largest, True) if largest <= level else (level, False)
