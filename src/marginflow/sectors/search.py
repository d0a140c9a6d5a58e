"""Critical directions of Σ_i p_i ρ(wᵀx_i) in any dimension.

Fix which aligned examples (p > 0) are on. What is left is a concave function of w, so its largest value on
the ball is the distance of v_on = Σ_on p_i x_i from the zonotope {Σ c_k |p_k| x_k : 0 <= c <= 1} of the opposed
examples, reached at the direction of the least-norm difference: one small convex problem per choice. It is
critical when it switches on exactly the chosen examples, and choosing what it switches on instead raises the
value, which is the ascent.
"""

import itertools
import math

import numpy as np

from marginflow.sectors.selection import least_velocity

MOST_ALIGNED = 12  # 2^12 choices of active aligned examples, a second or two
MOST_VERTICES = 20_000  # subsets of d - 1 opposed examples


def few(X: np.ndarray, p: np.ndarray) -> bool:
    """Whether both classes are small enough to be enumerated as the aligned one, and so are the vertices."""
    d = X.shape[1]
    sizes = [int((p > 0).sum()), int((p < 0).sum())]
    return max(sizes) <= MOST_ALIGNED and all(math.comb(m, d - 1) <= MOST_VERTICES for m in sizes)


def patterns_of_few(X: np.ndarray, p: np.ndarray) -> np.ndarray:
    """All strict local maxima are among these: C > 0 by choices of aligned examples, C <= 0 by vertices."""
    aligned = np.flatnonzero(p > 0)
    choices = (np.array(bits) for bits in itertools.product([False, True], repeat=len(aligned)) if any(bits))
    found = [
        u
        for bits in choices
        if (u := _peak(X, p, aligned[bits])) is not None and np.array_equal(X[aligned] @ u > 0, bits)
    ]
    return np.array(found + list(_vertices(X, p))).reshape(-1, X.shape[1])


def ascents(X: np.ndarray, p: np.ndarray, starts: int, seed: int) -> np.ndarray:
    """Where the ascent ends from random directions and from each aligned example; each pattern is solved once."""
    aligned = np.flatnonzero(p > 0)
    rng = np.random.default_rng(seed)
    first = np.concatenate([rng.standard_normal((starts, X.shape[1])), X[aligned]])
    ends: dict[bytes, np.ndarray | None] = {}
    for bits in first @ X[aligned].T > 0:
        trail = []
        while bits.tobytes() not in ends:
            trail.append(bits.tobytes())
            ends[trail[-1]] = None
            u = _peak(X, p, aligned[bits]) if bits.any() else None
            if u is None:
                break
            new = X[aligned] @ u > 0
            if np.array_equal(new, bits):
                ends[trail[-1]] = u
                break
            bits = new
    return np.array([u for u in ends.values() if u is not None]).reshape(-1, X.shape[1])


def _peak(X: np.ndarray, p: np.ndarray, on: np.ndarray) -> np.ndarray | None:
    """The best direction with the aligned examples `on` counted as active, or None when no direction gains."""
    opposed = np.flatnonzero(p < 0)
    scale = float(np.abs(p) @ np.linalg.norm(X, axis=1))
    v = least_velocity(p[on] @ X[on], -p[opposed, None] * X[opposed], scale).v
    speed = float(np.linalg.norm(v))
    return v / speed if speed > 1e-12 * scale else None


def _vertices(X: np.ndarray, p: np.ndarray):
    """Both unit normals of every d - 1 independent opposed examples."""
    d, opposed = X.shape[1], np.flatnonzero(p < 0)
    for subset in itertools.combinations(opposed, d - 1):
        _, singular, right = np.linalg.svd(X[list(subset)], full_matrices=True)
        if d == 1 or singular[-1] > 1e-12 * singular[0]:
            yield right[-1]
            yield -right[-1]
