"""Conic particle descent: where do the neurons of an F1-max-margin measure sit?

A particle u with sign s carries mass ‖u‖² in direction u/‖u‖, so its contribution to the output is
s‖u‖ρ(uᵀx) for ReLU and sρ(uᵀx)² for S-ReLU: 2-homogeneous, smooth in u wherever no uᵀx changes sign. The measure
is normalised inside the objective, margins q_i = y_i Σ_j s_j ... / Σ_j ‖u_j‖², so that no constraint is left and
L-BFGS applies. The minimum over rows is softened to -τ log mean e^{-q/τ}, an error of at most τ log n, and τ falls
by stages. The result only has to place neurons; exact masses come from a linear program.
"""

from typing import NamedTuple

import numpy as np


class Particles(NamedTuple):
    """Unnormalised neurons, their output signs ±1, and the hard normalised margin they reach (γ1's ½ not applied)."""

    u: np.ndarray
    sign: np.ndarray
    margin: float


def soft_margin(u: np.ndarray, sign: np.ndarray, X: np.ndarray, y: np.ndarray, tau: float, squared: bool):
    """(soft margin, its gradient in u, hard margin): three n×m matrix products."""
    active = X @ u.T
    np.maximum(active, 0.0, out=active)
    norm2 = np.einsum("jd,jd->j", u, u)
    mass = norm2.sum()
    norm = np.sqrt(norm2)
    if squared:
        q = y * (np.square(active) @ sign) / mass
    else:
        q = y * (active @ (sign * norm)) / mass
    low = q.min()
    weight = np.exp((low - q) / tau)
    total = weight.sum()
    soft = low - tau * np.log(total / len(q))
    weight /= total
    beta = weight * y
    average = weight @ q
    if squared:
        gradient = (2 * sign)[:, None] * ((active * beta[:, None]).T @ X)
    else:
        response = beta @ active
        slope = (active > 0) * beta[:, None]
        gradient = (sign * norm)[:, None] * (slope.T @ X)
        gradient += (sign * response / np.maximum(norm, 1e-300))[:, None] * u
    gradient -= 2 * average * u
    return soft, gradient / mass, low


def descend(
    X: np.ndarray,
    y: np.ndarray,
    count: int,
    rng: np.random.Generator,
    *,
    squared: bool = False,
    stages: int = 5,
    steps: int = 150,
    start: Particles | None = None,
) -> Particles:
    """`count` particles from random directions (or from `start`), annealed from τ = scale/10 to scale/10·4^(1-stages).

    `scale` is the margin first seen where it is positive, else the scale of the features, so that the schedule does
    not depend on the units of X.
    """
    from scipy.optimize import minimize

    n, d = X.shape
    features = float(np.sqrt(np.mean(np.square(X).sum(axis=1)) / d))
    features = features**2 if squared else features
    if start is None:
        # Half of the particles point along signed examples: on high-dimensional data random directions see little.
        u = rng.standard_normal((count, d))
        rows = rng.integers(0, n, size=count // 2)
        pull = X[rows] / np.linalg.norm(X[rows], axis=1, keepdims=True) * np.sqrt(d)
        u[: count // 2] = 0.5 * u[: count // 2] + pull
        sign = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
        sign[: count // 2] = y[rows]
        u /= np.linalg.norm(u, axis=1, keepdims=True) * np.sqrt(count)
    else:
        u, sign = start.u, start.sign
    best = Particles(u, sign, -np.inf)
    tau = features / 10
    for _ in range(stages):

        def objective(flat: np.ndarray, tau: float = tau):
            soft, gradient, _ = soft_margin(flat.reshape(-1, d), sign, X, y, tau, squared)
            return -soft / tau, -gradient.ravel() / tau

        found = minimize(
            objective,
            u.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxfun": 2 * steps, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-9},
        )
        u = found.x.reshape(u.shape)
        u = u / np.sqrt(np.square(u).sum())
        low = soft_margin(u, sign, X, y, tau, squared)[2]
        if low > best.margin:
            best = Particles(u, sign, float(low))
        tau = min(tau / 4, low / 4) if low > 0 else tau / 4
    return best
