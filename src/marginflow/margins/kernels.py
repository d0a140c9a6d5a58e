"""K(x, x') = ∫ σ(cᵀx) σ(cᵀx') dτ(c), τ uniform on the unit sphere of R^D (theory §5), with the error of each entry.

Only the projection of c on the plane of x and x' matters: ρ(cos θ, sin θ), θ uniform, ρ² ~ Beta(1, (D-2)/2). For σ of
degree k the integral over ρ is a moment, E ρ² = 2/D or E ρ⁴ = 8/(D(D+2)), and that over θ is a function of the angle ψ.
"""

import dataclasses

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.tolerances import EPS
from marginflow.nets.activations import Activation


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """Values, |value - exact| <= error entrywise; `proved` says whether that error is a bound or an estimate."""

    values: np.ndarray
    error: np.ndarray
    proved: bool
    rule: str


def kernel(X: np.ndarray, activation: Activation, nodes: int = 64) -> Kernel:
    """The kernel matrix of the rows of X: in closed form for (leaky) ReLU, linear and S-ReLU, else by quadrature."""
    X = np.asarray(X, dtype=np.float64)
    if activation.leak is not None:
        return _leaky(X, activation.leak)
    if activation.name == "srelu":
        return _srelu(X)
    if X.shape[1] < 2:
        raise InputError(
            f"the kernel of '{activation.name}' needs dimension 2 or more; append a constant column"
        )
    coarse, fine = (_quadrature(X, activation, count) for count in (nodes // 2, nodes))
    return Kernel(fine, np.abs(fine - coarse) + 64 * EPS * np.abs(fine), False, f"quadrature:{nodes}")


def between(X: np.ndarray, Z: np.ndarray, activation: Activation) -> np.ndarray:
    """K(x_i, z_j) for two sets of rows, in closed form; an activation without one is refused."""
    X, Z = np.asarray(X, dtype=np.float64), np.asarray(Z, dtype=np.float64)
    if activation.leak is not None:
        return _leaky_values(_angles(X, Z), X.shape[1], activation.leak)
    if activation.name == "srelu":
        return _srelu_values(_angles(X, Z), X.shape[1])
    raise InputError(f"the kernel of '{activation.name}' has no closed form; use relu, leaky:γ, linear or srelu")


def _angles(X: np.ndarray, Z: np.ndarray | None = None):
    """(‖x‖‖z‖, cos ψ, sin ψ, π - ψ), z the rows of Z or of X itself.

    K is Lipschitz in cos ψ, so ψ near 0 needs no special care. A zero row has K = 0 with everything.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    others = norms if Z is None else np.sqrt(np.einsum("ij,ij->i", Z, Z))
    size = np.outer(norms, others)
    cosine = np.clip((X @ (X if Z is None else Z).T) / np.where(size > 0, size, 1.0), -1.0, 1.0)
    if Z is None:
        np.fill_diagonal(cosine, 1.0)
    psi = np.arccos(cosine)
    return size, cosine, np.sqrt((1 - cosine) * (1 + cosine)), np.pi - psi


def _leaky(X: np.ndarray, leak: float) -> Kernel:
    """σ(z) = γz + (1-γ)ρ(z) and E zρ(z') = ½ E zz' give K = γ xᵀx'/D + (1-γ)² ‖x‖‖x'‖ (sin ψ + (π-ψ) cos ψ)/(2πD).

    Error: cos ψ is off by at most (2D+8)u (a dot product and two norms), J(c) = sin ψ + (π-ψ) cos ψ has |J'| <= π and
    J <= π, the library functions and products add less than 16u relative, ‖x‖‖x'‖ another (D+4)u.
    """
    D, angles = X.shape[1], _angles(X)
    return Kernel(_leaky_values(angles, D, leak), (4 * D + 40) * EPS / 2 / D * angles[0], True, "closed form")


def _leaky_values(angles, D: int, leak: float) -> np.ndarray:
    size, cosine, sine, rest = angles
    J = sine + rest * cosine
    return size * (leak / D * cosine + (1 - leak) ** 2 / (2 * np.pi * D) * J)


def _srelu(X: np.ndarray) -> Kernel:
    """K = (‖x‖‖x'‖)² J/(2πD(D+2)), J = 3 sin ψ cos ψ + (π-ψ)(1 + 2 cos² ψ), |dJ/dcos ψ| <= 4π, J <= 3π."""
    D, angles = X.shape[1], _angles(X)
    error = (14 * D + 140) * EPS / 2 / (2 * D * (D + 2)) * angles[0] ** 2
    return Kernel(_srelu_values(angles, D), error, True, "closed form")


def _srelu_values(angles, D: int) -> np.ndarray:
    size, cosine, sine, rest = angles
    J = 3 * sine * cosine + rest * (1 + 2 * cosine**2)
    return size**2 * J / (2 * np.pi * D * (D + 2))


def _quadrature(X: np.ndarray, activation: Activation, count: int) -> np.ndarray:
    """Gauss-Jacobi in ρ², the periodic trapezoidal rule in θ (spectrally accurate for smooth σ)."""
    from scipy.special import roots_jacobi

    n, D = X.shape
    if D == 2:
        rho, weight = np.ones(1), np.ones(1)
    else:  # ρ² = (1 + t)/2 has density proportional to (1 - t)^((D-4)/2)
        t, weight = roots_jacobi(max(8, count // 2), (D - 4) / 2, 0.0)
        rho, weight = np.sqrt((1 + t) / 2), weight / weight.sum()
    theta = 2 * np.pi * (np.arange(2 * count) + 0.5) / (2 * count)
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    rest = _angles(X)[3]
    psi = np.pi - rest
    values = np.empty((n, n))
    radius = rho[:, None, None]
    for i in range(n):
        first = activation(radius * norms[i] * np.cos(theta))
        second = activation(radius * norms[i:, None] * np.cos(theta[None, :] - psi[i, i:, None]))
        first = np.broadcast_to(first, second.shape)
        values[i, i:] = values[i:, i] = np.einsum("r,rjt,rjt->j", weight, first, second) / len(theta)
    return values
