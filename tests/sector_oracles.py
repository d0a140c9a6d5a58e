"""Independent, slow ways to what `marginflow.sectors` computes: small steps, fine grids, random probing.

Nothing here imports the package: G, its field and the rule at 0 are written out again from their definitions.
"""

import numpy as np


def small_steps(X, p, W, T, h):
    """Explicit Euler for dw/dt = |a| Σ p_i 1{w·x_i > 0} x_i with |a| = ‖w‖, all rows of W at once.

    Returns unit directions and log ‖w(T)‖/‖w(0)‖. Homogeneity lets every step be taken from a unit vector.
    """
    W = W / np.linalg.norm(W, axis=1, keepdims=True)
    log_norm = np.zeros(len(W))
    for _ in range(round(T / h)):
        W = W + h * ((W @ X.T > 0) * p) @ X
        size = np.linalg.norm(W, axis=1)
        log_norm += np.log(size)
        W /= size[:, None]
    return W, log_norm


def value(X, p, U):
    """Σ p_i ρ(u·x_i) for each row of U."""
    return np.maximum(U @ X.T, 0) @ p


def circle(m):
    t = np.linspace(0, 2 * np.pi, m, endpoint=False)
    return np.stack([np.cos(t), np.sin(t)], axis=1)


def grid_maxima_2d(X, p, m=200_000):
    """Strict local maxima on a fine grid of the circle; plateaus are not strict."""
    U = circle(m)
    f = value(X, p, U)
    top = (f > np.roll(f, 1)) & (f > np.roll(f, -1))
    return U[top]


def climbs(X, p, starts=1500, steps=4000, seed=0, from_=None):
    """Where diminishing subgradient steps on the sphere end, from random directions or from given ones: attracting
    critical points.

    Steps of order 1/k average the fields on both sides of a ridge, so ridges askew to any grid show no false
    peaks; what is left of the error is of order 1/steps. Directions that are off on all data are dropped.
    """
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((starts, X.shape[1])) if from_ is None else from_
    U = U / np.linalg.norm(U, axis=1, keepdims=True)
    scale = np.abs(p) @ np.linalg.norm(X, axis=1)
    for k in range(steps):
        U = U + 0.5 / (scale * (1 + k / 200)) * ((U @ X.T > 0) * p) @ X
        U /= np.linalg.norm(U, axis=1, keepdims=True)
    alive = (U @ X.T > 1e-2 * np.linalg.norm(X, axis=1)).any(axis=1)
    return U[alive]


def is_strict_maximum(X, p, u, count=4000, seed=0):
    """u beats random unit vectors all around it, at a distance within which no other hyperplane lies."""
    rng = np.random.default_rng(seed)
    angle = np.abs(X @ u) / np.linalg.norm(X, axis=1)
    radius = 0.3 * min(0.01, angle[angle > 1e-9].min(initial=1.0))
    t = rng.standard_normal((count, len(u)))
    t -= (t @ u)[:, None] * u
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    around = u * np.cos(radius) + t * np.sin(radius)
    return bool((value(X, p, around) < value(X, p, u[None])[0]).all())
