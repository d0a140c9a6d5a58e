"""R_min² >= C · R² · n · max_{i≠j} |x_iᵀx_j|, R = R_max/R_min, with the constant C of a theorem of system B."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from marginflow._core import exact
from marginflow._core.errors import InputError, unknown_name
from marginflow._core.progress import progress
from marginflow._core.status import Status
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.unit_rows import BLOCK, PARTNERS, norms
from marginflow.data.dataset import Dataset

# Constants by theorem, as functions of γ and R² (theory §4); exact for Fractions.
CONSTANTS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "frei2022.flow": lambda leak, R2: 3 / leak**3,
    "frei2022.descent": lambda leak, R2: 5 / leak**2 * (10 * R2 / leak**2 + 10),
}
EVERY_PAIR = 20_000  # beyond, a pair that refutes the condition ends the scan
CLOSE = 4096  # rows or pairs within rounding of an extreme that are compared as fractions


@timed
def near_orthogonality(data: Dataset, constant: str = "frei2022.flow", leak: float = 0.5) -> Condition:
    """measured: R_min²/(R² n max|x_iᵀx_j|); threshold: C; slack: measured/C - 1.

    The witness holds both sides of the inequality, the pair with the largest |x_iᵀx_j| and the two extreme rows.
    The status is decided with rounding-error bounds, and by exact arithmetic where these leave it open.
    """
    if constant not in CONSTANTS:
        raise unknown_name("constant", constant, CONSTANTS)
    if not 0 < leak < 1:
        raise InputError(f"leak {leak}; the slope γ of a leaky ReLU lies between 0 and 1")
    bound = CONSTANTS[constant]
    # A power of two near 1/R_max changes nothing (the condition is scale-free) and keeps squares in range.
    longest = max(float(np.abs(block).max()) for block in data.blocks())
    scan = _Scan(data, float(2.0 ** -np.clip(np.frexp(longest)[1], -1000, 1000)), Fraction(leak), bound)
    scan.run()
    i, j = scan.pair
    sides = _Sides.of(data, scan.shortest, scan.longest, i, j, Fraction(leak), bound)
    status = scan.status()
    if status is None:
        status = scan.decide_exactly()
    witness = {"pair": [i, j], "product": exact.nearest(exact.dot(data.X[i], data.X[j])),
               "left": exact.nearest(sides.left),
               "right": exact.nearest(sides.right), "R": math.sqrt(exact.nearest(sides.R2)),
               "rows_of_extreme_norm": [scan.shortest, scan.longest], "constant": constant, "leak": leak,
               "every_pair": scan.every_pair}
    ratio = exact.nearest(sides.left * sides.C / sides.right) if sides.right else math.inf
    notes: tuple[str, ...] = ()
    if not scan.every_pair:
        notes = ("the scan ended at the first pair that refutes the condition: measured and slack are upper bounds",)
    if status is Status.UNDECIDED:
        notes += (f"both sides agree to rounding on more than {CLOSE} rows or pairs",)
    C = exact.nearest(sides.C)
    return Condition("near_orthogonality", status, ratio, C, ratio / C - 1, witness, notes=notes)


@dataclasses.dataclass(frozen=True)
class _Sides:
    """Both sides of the inequality for given extreme rows and pair, exactly."""

    left: Fraction
    right: Fraction
    R2: Fraction
    C: Fraction

    @classmethod
    def of(cls, data: Dataset, shortest: int, longest: int, i: int, j: int, leak: Fraction, bound) -> "_Sides":
        least, most = (exact.dot(data.X[k], data.X[k]) for k in (shortest, longest))
        C = bound(leak, most / least)
        return cls(least, C * (most / least) * data.n * abs(exact.dot(data.X[i], data.X[j])), most / least, C)


class _Scan:
    """Largest |x_iᵀx_j| over i < j of the scaled rows, with the error bounds that decide the inequality."""

    def __init__(self, data: Dataset, scale: float, leak: Fraction, bound):
        self.data, self.scale, self.leak, self.bound = data, scale, leak, bound
        self.squared = np.concatenate([norms(np.asarray(block, np.float64) * scale) ** 2 for block in data.blocks()])
        self.shortest, self.longest = int(self.squared.argmin()), int(self.squared.argmax())
        # Relative error of a squared norm: γ_d, the root, its square, the scaling (exact). Products: γ_d ‖x_i‖‖x_j‖,
        # with ‖x_i‖‖x_j‖ <= R_max².
        self.relative = (data.d + 16) * exact.UNIT
        self.error = self.relative * float(self.squared.max()) * 1.01 + data.d * 2.0**-1074
        self.largest, self.pair, self.every_pair = -1.0, (0, 1), True

    def run(self) -> None:
        n = self.data.n
        with progress(n * (n + 1) / 2, "pairs of rows") as meter:
            for k in range(0, n, BLOCK):
                A = np.asarray(self.data.X[k : k + BLOCK], np.float64) * self.scale
                for s in range(k, n, PARTNERS):
                    P = A @ (np.asarray(self.data.X[s : s + PARTNERS], np.float64) * self.scale).T
                    self._see(P, k, s)
                    meter.advance(P.size)
                    if n > EVERY_PAIR and self.status() is Status.FAILS:
                        self.every_pair = False
                        return

    def _see(self, P: np.ndarray, k: int, s: int) -> None:
        if s < k + len(P):  # the block meets the diagonal: keep i < j
            i, j = k + np.arange(P.shape[0]), s + np.arange(P.shape[1])
            P[j[None, :] <= i[:, None]] = 0.0
        for at in (int(P.argmax()), int(P.argmin())):
            i, j = divmod(at, P.shape[1])
            if abs(P[i, j]) > self.largest and k + i < s + j:
                self.largest, self.pair = abs(float(P[i, j])), (k + i, s + j)

    def status(self) -> Status | None:
        """The status if the error bounds decide it. Both sides as R_min⁴ against C n R_max² max|x_iᵀx_j|."""
        least, most = float(self.squared[self.shortest]), float(self.squared[self.longest])
        if least < 2.0**-900:  # the scaled rows differ by more than float range: no bound covers underflow
            return None
        C = float(self.bound(self.leak, Fraction(most) / Fraction(least)))
        room = 8 * self.relative  # two squared norms on each side, C(R²), and a few roundings
        right = C * self.data.n * most
        if least**2 * (1 + room) < right * (1 - room) * (self.largest - self.error):
            return Status.FAILS
        if least**2 * (1 - room) > right * (1 + room) * (self.largest + self.error):
            return Status.HOLDS
        return None

    def decide_exactly(self) -> Status:
        """Compare everything that is within rounding of an extreme as fractions."""
        X, square = self.data.X, lambda k: exact.dot(self.data.X[k], self.data.X[k])
        room = 1 + 4 * self.relative
        short = np.flatnonzero(self.squared <= self.squared.min() * room)
        long = np.flatnonzero(self.squared >= self.squared.max() / room)
        pairs = self._close_pairs()
        if pairs is None or max(len(short), len(long)) > CLOSE:
            return Status.UNDECIDED
        product = {pair: abs(exact.dot(X[pair[0]], X[pair[1]])) for pair in pairs}
        self.shortest, self.longest = int(min(short, key=square)), int(max(long, key=square))
        self.pair = max(product, key=lambda pair: product[pair])
        sides = _Sides.of(self.data, self.shortest, self.longest, *self.pair, self.leak, self.bound)
        return Status.HOLDS if sides.left >= sides.right else Status.FAILS

    def _close_pairs(self) -> list[tuple[int, int]] | None:
        n, found = self.data.n, []
        for k in range(0, n, BLOCK):
            A = np.asarray(self.data.X[k : k + BLOCK], np.float64) * self.scale
            P = np.abs(A @ (np.asarray(self.data.X[k:], np.float64) * self.scale).T)
            i, j = np.nonzero(P >= self.largest - 2 * self.error)
            found += [(k + int(a), k + int(b)) for a, b in zip(i, j, strict=True) if a < b]
            if len(found) > CLOSE:
                return None
        return found
