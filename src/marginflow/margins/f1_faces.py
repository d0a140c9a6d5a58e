"""Every face of the arrangement {x_iᵀc = 0} on the sphere of R^r, r <= 3, and the best direction within each.

On a face (fixed signs of all x_iᵀc, some of them 0) Σ β_i φ(cᵀx_i) is gᵀc (ReLU) or cᵀMc (S-ReLU). A maximum inside
the face can only sit at ĝ, or at an eigenvector of M, both taken in the span of the face; so the maximum over the
sphere is among those points that lie in their face and the vertices. The faces do not depend on β and are
enumerated once. This places neurons; a face that rounding hides is missed here but not by the proof (`arrangement`).
"""

import dataclasses

import numpy as np

from marginflow.margins.inner_ascent import values

RANK = 3
MOST_ROWS = {1: 10**5, 2: 1000, 3: 60}  # rank 3 has about n² cells of n rows each; 60 rows: 3,500 cells, 2 MB
SAME = 1e-10  # sine below which a direction is on a hyperplane, and two rows share theirs
INSIDE = 1e-12  # cosine by which a direction may lie outside its face


@dataclasses.dataclass(frozen=True, eq=False)
class Faces:
    """Faces of one dimension f: `on` (F, n) rows positive there, `off` rows negative, `frame` (F, r, f+1) the span."""

    on: np.ndarray
    off: np.ndarray
    frame: np.ndarray


def fits(X: np.ndarray) -> bool:
    return X.shape[1] <= RANK and len(X) <= MOST_ROWS[X.shape[1]]


def faces(X: np.ndarray) -> list[Faces]:
    """Faces of every dimension, of rows X that span R^r, r <= 3: vertices first."""
    n, r = X.shape
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    normals = _lines(unit)
    if r == 1:
        return [_gather(unit, np.array([[1.0], [-1.0]]), np.zeros((2, n), bool), np.ones((2, 1, 1)))]
    if r == 2:
        ends, middles = _around(normals)
        tied = np.abs(ends @ unit.T) <= SAME
        plane = np.broadcast_to(np.eye(2), (len(middles), 2, 2))
        nothing = np.zeros((len(middles), n), bool)
        return [_gather(unit, ends, tied, ends[:, :, None]), _gather(unit, middles, nothing, plane)]
    blocks: tuple[list, list, list] = ([], [], [])
    for x in normals:
        plane = np.linalg.svd(x[None])[2][1:]
        along = _sine(unit, x) <= SAME
        others = _lines(_unit(unit[~along] @ plane.T))
        ends, middles = (points @ plane for points in _around(others))
        tied = (np.abs(ends @ unit.T) <= SAME) | along
        blocks[0].append(_gather(unit, ends, tied, ends[:, :, None]))
        spans = np.broadcast_to(plane.T, (len(middles), 3, 2))
        blocks[1].append(_gather(unit, middles, np.broadcast_to(along, (len(middles), n)), spans))
        # The two cells beside an arc have its signs except on the rows of this circle itself.
        for side in (1.0, -1.0):
            z = np.where(along, side * (unit @ x), middles @ unit.T)
            blocks[2].append(Faces(z > 0, z < 0, np.broadcast_to(np.eye(3), (len(z), 3, 3))))
    joined = []
    for block in blocks:
        on, off = (np.concatenate([getattr(one, name) for one in block]) for name in ("on", "off"))
        first = np.unique(np.packbits(np.hstack([on, off]), axis=1), axis=0, return_index=True)[1]
        joined.append(Faces(on[first], off[first], np.concatenate([one.frame for one in block])[first]))
    return joined


def best_points(
    arrangement: list[Faces], X: np.ndarray, beta: np.ndarray, squared: bool, level: float
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """(unit directions with Σ β_i φ > level, their values, per direction the tangent vectors of its face as rows)."""
    lengths = np.linalg.norm(X, axis=1)
    points, tangents = [], []
    for one in arrangement:
        if one.frame.shape[2] == 1:
            inside = one.frame[:, :, 0]
            frame = one.frame
        else:
            tops = _quadratic(one, X, beta) if squared else _linear(one, X, beta)
            face = np.tile(np.arange(len(one.on)), len(tops) // len(one.on))
            z = tops @ X.T / lengths
            fine = ~((one.on[face] & (z < -INSIDE)) | (one.off[face] & (z > INSIDE))).any(axis=1)
            fine &= tops.any(axis=1)
            inside, frame = tops[fine], one.frame[face[fine]]
        for c, basis in zip(inside, frame, strict=True):
            points.append(c)
            tangents.append((c, basis))
    C = np.array(points).reshape(-1, X.shape[1])
    reached = values(C, X, beta, squared)
    chosen = np.flatnonzero(reached > level)
    return C[chosen], reached[chosen], [_tangent(*tangents[k]) for k in chosen]


def _linear(one: Faces, X: np.ndarray, beta: np.ndarray) -> np.ndarray:
    g = (one.on * beta) @ X
    return _unit(np.einsum("frk,fk->fr", one.frame, np.einsum("frk,fr->fk", one.frame, g)))


def _quadratic(one: Faces, X: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Both orientations of every top eigenvector; where it is not unique, the boundary of the face has one too."""
    M = np.einsum("fi,ir,is->frs", one.on * beta, X, X, optimize=True)
    inner = np.einsum("frk,frs,fsl->fkl", one.frame, M, one.frame, optimize=True)
    top = np.einsum("frk,fk->fr", one.frame, np.linalg.eigh(inner)[1][:, :, -1])
    return np.concatenate([top, -top])


def _tangent(c: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Orthonormal rows: the part of the span of `basis` orthogonal to c."""
    if basis.shape[1] == 1:
        return np.empty((0, len(c)))
    return (basis @ np.linalg.svd((c @ basis)[None])[2][1:].T).T


def _unit(v: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    return np.where(norm > 0, v / np.where(norm > 0, norm, 1.0), 0.0)


def _lines(unit: np.ndarray) -> np.ndarray:
    """One of each class of rows that lie on one line through 0."""
    kept: list[int] = []
    for i, row in enumerate(unit):
        if not kept or (_sine(unit[kept], row) > SAME).all():
            kept.append(i)
    return unit[kept]


def _sine(unit: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.linalg.norm(unit - np.outer(unit @ row, row), axis=1)


def _around(normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """On the circle: the zeros of the given normals, and the middles of the arcs between them."""
    angle = np.arctan2(normals[:, 1], normals[:, 0])
    zeros = np.sort(np.concatenate([angle + np.pi / 2, angle - np.pi / 2]) % (2 * np.pi))
    middles = zeros + np.diff(zeros, append=zeros[0] + 2 * np.pi) / 2
    return tuple(np.stack([np.cos(t), np.sin(t)], axis=1) for t in (zeros, middles))  # type: ignore[return-value]


def _gather(unit: np.ndarray, points: np.ndarray, tied: np.ndarray, frame: np.ndarray) -> Faces:
    z = points @ unit.T
    return Faces((z > 0) & ~tied, (z < 0) & ~tied, frame)
