"""Local maxima of G(c) = Σ β_i φ(cᵀx_i) on the unit sphere, from many starts at once.

ReLU: G = P - N, the difference of two convex functions, P from the rows with β > 0. Replacing P by its tangent at the
current c leaves max_{‖c‖<=1} gᵀc - N(c), whose dual is a projection onto a zonotope,
min_{t in [0,1]} ‖g - Σ_j t_j |β_j| x_j‖; its residual is the next direction. Each step raises G, and the number of
possible g is finite. S-ReLU: ∇G is Lipschitz, so c <- (∇G(c) + L c)/‖.‖ raises G when L dominates the concave part.
"""

import numpy as np

GAIN = 1e-9  # relative gain of one step below which a climb is at its top


def values(C: np.ndarray, X: np.ndarray, beta: np.ndarray, squared: bool = False) -> np.ndarray:
    """G at each row of C (as given, not normalised)."""
    z = np.maximum(C @ X.T, 0.0)
    return (np.square(z) if squared else z) @ beta


def climb(
    C: np.ndarray, X: np.ndarray, beta: np.ndarray, squared: bool = False, steps: int = 30, gain: float = GAIN
) -> np.ndarray:
    """Directions (rows, unit) at least as good as the starts C. ReLU: a start rests once a step gains below `gain`."""
    live = beta != 0
    X, beta = X[live], beta[live]
    C = C / np.linalg.norm(C, axis=1, keepdims=True)
    return _power(C, X, beta, 8 * steps) if squared else _tangents(C, X, beta, steps, gain)


def _tangents(C: np.ndarray, X: np.ndarray, beta: np.ndarray, steps: int, least: float) -> np.ndarray:
    gain, loss = beta > 0, beta < 0
    G, W = X[gain] * beta[gain, None], X[loss] * -beta[loss, None]
    lipschitz = float(np.linalg.norm(W, 2)) ** 2 if len(W) else 1.0
    best, value = C.copy(), values(C, X, beta)
    t = (C @ X[loss].T > 0).astype(float)
    going = np.arange(len(C))
    for _ in range(steps):
        target = ((C[going] @ X[gain].T) > 0) @ G
        t[going], residual = _project(target, W, t[going], lipschitz)
        norm = np.linalg.norm(residual, axis=1)
        moved = norm > 1e-12 * np.linalg.norm(target, axis=1).max(initial=1e-300)
        C[going[moved]] = residual[moved] / norm[moved, None]
        new = values(C[going], X, beta)
        better = moved & (new > value[going] * (1 + least) + 1e-300)
        best[going[better]], value[going[better]] = C[going[better]], new[better]
        going = going[better]
        if not len(going):
            break
    return best


def _project(target: np.ndarray, W: np.ndarray, t: np.ndarray, lipschitz: float, steps: int = 60):
    """min over t in [0,1]^m of ‖target - tW‖, row by row, by accelerated projected gradient with restart."""
    if not len(W):
        return t, target
    ahead, momentum = t, 1.0
    for _ in range(steps):
        new = np.clip(ahead + ((target - ahead @ W) @ W.T) / lipschitz, 0.0, 1.0)
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        backward = np.einsum("bm,bm->b", ahead - new, new - t) > 0
        factor = np.where(backward, 0.0, (momentum - 1) / following)[:, None]
        ahead, t, momentum = new + factor * (new - t), new, following
    return t, target - t @ W


def _power(C: np.ndarray, X: np.ndarray, beta: np.ndarray, steps: int) -> np.ndarray:
    loss = beta < 0
    shift = 2 * np.linalg.norm(X[loss] * np.sqrt(-beta[loss, None]), 2) ** 2 if loss.any() else 0.0
    best, value = C.copy(), values(C, X, beta, squared=True)
    for _ in range(steps):
        gradient = 2 * ((np.maximum(C @ X.T, 0.0) * beta) @ X) + shift * C
        norm = np.linalg.norm(gradient, axis=1, keepdims=True)
        C = np.where(norm > 0, gradient / np.where(norm > 0, norm, 1.0), C)
        new = values(C, X, beta, squared=True)
        better = new > value
        best[better] = C[better]
        done = np.max(np.abs(new - value), initial=0.0) <= 1e-13 * np.max(np.abs(value), initial=0.0)
        value = np.maximum(value, new)
        if done:
            break
    return best
