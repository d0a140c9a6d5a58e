"""Angles to an axis, with proved error bounds: what lets most pairs go unseen.

A group is a set of signed rows s_i x_i: one class, or all rows with the negative ones turned round. If the signed
rows i and j make angles θ_i, θ_j with an axis, then s_i s_j x_iᵀx_j >= ‖x_i‖‖x_j‖ cos(θ_i + θ_j) (triangle
inequality on the sphere). The axis is free: the mean of the unit rows to begin with, moved towards the widest rows
while that pays (Frank-Wolfe steps to the smallest enclosing cone).
"""

import dataclasses
import math

import numpy as np

from marginflow._core.exact import UNIT
from marginflow.conditions.unit_rows import Side, partners, unit_rows

BLOCK_BYTES = 2 * 2**20
SLOP = 4e-15  # absolute rounding of an arc cosine, of a sum of two angles and of a limit, all below 2π
RECENTRINGS = 24  # passes over the rows at most
PATIENCE = 5
SAMPLE = 1024  # rows of a class that the first axis is the mean of
WORTH = 50  # move the axis only while more than this many pairs per row would be left


@dataclasses.dataclass(frozen=True)
class Corner:
    """Pairs of `left` x `right` that the angles leave open: angle_i + angle_j >= limit."""

    kind: str  # "same" or "cross"
    left: Side
    right: Side
    limit: float

    @property
    def pairs(self) -> int:
        reach = partners(self.left, self.right, self.limit)
        if self.left is self.right:
            return int(np.maximum(reach - np.arange(1, len(reach) + 1), 0).sum())
        return int(reach.sum())

    @property
    def proved(self) -> float:
        """Every pair outside the corner has sign·cos at least this."""
        left, right = self.left.angle, self.right.angle
        widest = left[0] + right[0]
        if widest >= self.limit:
            widest = self.limit
        return math.cos(min(widest, math.pi)) - SLOP if np.isfinite(widest) else 1.0


def corners(X: np.ndarray, y: np.ndarray, tolerance: float, least: int = 1) -> list[Corner]:
    """The three corners: within I+, within I-, across. Outside them the condition is proved.

    Same class: θ_i + θ_j < arccos T proves cos > T. Across: the angle is at least π - (θ_i + θ_j), so a sum below
    π - arccos T proves cos < T. At least the `least` widest rows of each side are kept, whatever is proved.
    """
    plus, minus = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
    view = _View(X)
    axes = np.stack([view.sample_mean(plus), view.sample_mean(minus)])
    axes = np.concatenate([axes, axes[:1] - axes[1:]])
    cosine = view.cosines(axes)
    same, cross = math.acos(tolerance) - SLOP, math.pi - math.acos(tolerance) - SLOP
    found = []
    for rows, k in ((plus, 0), (minus, 1)):
        corner = _corner("same", rows, cosine[k, rows], rows, None, same, X.shape[1], least)
        found.append(_recentred(view, corner, (rows, rows), axes[k], least))
    across = []
    for k, s in ((2, 1), (0, 1), (1, -1)):
        corner = _corner("cross", plus, s * cosine[k, plus], minus, -s * cosine[k, minus], cross, X.shape[1], least)
        across.append((corner, s * axes[k]))
    best, axis = min(across, key=lambda pair: pair[0].pairs)
    found.append(_recentred(view, best, (plus, minus), axis, least))
    return found


def _corner(kind: str, rows_left, cos_left, rows_right, cos_right, limit: float, d: int, least: int) -> Corner:
    """cos_*: computed cosines of the signed rows to the axis; cos_right None when both sides are the same."""
    top_left = _upper_angles(cos_left.min(), d)
    top_right = top_left if cos_right is None else _upper_angles(cos_right.min(), d)
    left = _side(rows_left, cos_left, limit - top_right, d, least)
    right = left if cos_right is None else _side(rows_right, cos_right, limit - top_left, d, least)
    return Corner(kind, left, right, limit)


def _side(rows: np.ndarray, cosine: np.ndarray, reach: float, d: int, least: int) -> Side:
    """The rows whose angle may be `reach` or more, and the `least` widest."""
    if reach > 0:
        # A row left out has cos > cos(reach) + error + slop, so its angle is below reach for certain.
        kept = np.flatnonzero(cosine <= math.cos(min(reach, math.pi)) + _cosine_error(d) + SLOP)
        if len(kept) < least:
            kept = np.argpartition(cosine, min(least, len(rows)) - 1)[:least]
        rows, cosine = rows[kept], cosine[kept]
    angle = _upper_angles(cosine, d)
    order = np.argsort(-angle, kind="stable")
    return Side(rows[order], angle[order])


def _cosine_error(d: int) -> float:
    """cos = fl(xᵀc)/(fl‖x‖ fl‖c‖): γ_d from the product, γ_{d/2+2} from each norm, three more roundings, and twice
    (d/2 + 3)u more where a row had to be scaled to unit length first: below (3d + 32)u in all."""
    return (3 * d + 32) * UNIT


def _upper_angles(cosine, d: int):
    """Proved upper bounds of the angles with these computed cosines."""
    return np.arccos(np.clip(cosine - _cosine_error(d), -1.0, 1.0)) + SLOP


def _recentred(view: "_View", best: Corner, rows: tuple[np.ndarray, np.ndarray], axis, least: int) -> Corner:
    """`best`, or the corner of a better axis; gives up after PATIENCE steps that improve nothing."""
    if not axis.any():  # no direction to start from
        return best
    turn = 1.0 if best.kind == "same" else -1.0
    count = len(rows[0]) + (len(rows[1]) if turn < 0 else 0)
    fewest, c, widest, improved = best.pairs, unit_rows(axis[None])[0], _widest(best), 0
    for step in range(RECENTRINGS):
        if fewest <= WORTH * count:
            break
        sign, row = widest
        c = c + (sign * unit_rows(view.X[row : row + 1])[0] - c) / (step + 2)
        if not c.any():
            break
        cosine = view.cosines(c[None])[0]
        right = None if turn > 0 else -cosine[rows[1]]
        corner = _corner(best.kind, rows[0], cosine[rows[0]], rows[1], right, best.limit, view.X.shape[1], least)
        widest, pairs = _widest(corner), corner.pairs
        if pairs < fewest:
            best, fewest, improved = corner, pairs, step
        elif step - improved >= PATIENCE:
            break
    return best


def _widest(corner: Corner) -> tuple[float, int]:
    """(sign, row) of the widest row of the group."""
    if corner.kind == "same" or corner.left.angle[0] >= corner.right.angle[0]:
        return 1.0, int(corner.left.rows[0])
    return -1.0, int(corner.right.rows[0])


class _View:
    """Passes over the rows in blocks that stay in cache; the first one computes the norms."""

    def __init__(self, X: np.ndarray):
        self.X = X
        self.norm: np.ndarray | None = None

    def sample_mean(self, rows: np.ndarray) -> np.ndarray:
        """Sum of the unit rows of an even sample (any axis is valid; this one is cheap); one row if the sum is 0."""
        units = unit_rows(self.X[rows[:: max(1, len(rows) // SAMPLE)]])
        total = units.sum(axis=0)
        return total if total.any() else units[0]

    def cosines(self, axes: np.ndarray) -> np.ndarray:
        """cos(x_i, c) for each axis c: (axes, rows). An axis of zeros gives cosine 0, which proves nothing wrong."""
        lengths = np.sqrt(np.einsum("ij,ij->i", axes, axes))
        out = np.empty((len(axes), len(self.X)))
        first, norm = self.norm is None, np.empty(len(self.X)) if self.norm is None else self.norm
        step = max(64, BLOCK_BYTES // (8 * self.X.shape[1]))
        for start in range(0, len(self.X), step):
            stop = min(len(self.X), start + step)
            A = np.asarray(self.X[start:stop], np.float64)
            if first:
                with np.errstate(over="ignore", under="ignore"):
                    norm[start:stop] = np.einsum("ij,ij->i", A, A)
                np.sqrt(norm[start:stop], out=norm[start:stop])
            if not (norm[start:stop].min() > 2.0**-450 and norm[start:stop].max() < 2.0**450):
                A = unit_rows(A)
                out[:, start:stop] = axes @ A.T / np.sqrt(np.einsum("ij,ij->i", A, A))
            else:
                np.matmul(axes, A.T, out=out[:, start:stop])
                out[:, start:stop] /= norm[start:stop]
        self.norm = norm
        out /= np.where(lengths == 0, 1.0, lengths)[:, None]
        return out
