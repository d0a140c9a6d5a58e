"""Step sizes as data: the log of the factor that multiplies the learning rate before step k = 0, 1, 2, ...

A schedule is a frozen value with two pure functions, `init(theta)` and `log_factor(k, theta, state)`; new schedules
need nothing else. `Adaptive` is apart: it asks the driver to try, judge and retry (Lyu & Li 2020).
"""

import dataclasses
import math
from typing import Any, ClassVar, Protocol

import numpy as np

from marginflow._core.errors import InputError, unknown_name


class Schedule(Protocol):
    def init(self, theta: Any) -> Any: ...

    def log_factor(self, k: Any, theta: Any, state: Any) -> tuple[Any, Any]: ...


@dataclasses.dataclass(frozen=True)
class Constant:
    """η(k) = lr."""

    name: ClassVar[str] = "constant"

    def init(self, theta):
        return ()

    def log_factor(self, k, theta, state):
        return 0.0, state


@dataclasses.dataclass(frozen=True)
class InverseSqrt:
    """η(k) = lr/√(k+1), the step of the experiments of Chizat & Bach 2020 (theory §8.5)."""

    name: ClassVar[str] = "inverse-sqrt"

    def init(self, theta):
        return ()

    def log_factor(self, k, theta, state):
        import jax.numpy as jnp

        return -0.5 * jnp.log1p(jnp.asarray(k, jnp.float64)), state


@dataclasses.dataclass(frozen=True)
class ChizatBoth:
    """η(k) = 1/(16 ‖z‖_∞ √(k+1)): both layers, simplified (theory §5). With lr = m it is the step of r ← r + η m ∇F."""

    z_max: float
    name: ClassVar[str] = "chizat2020.both"

    def init(self, theta):
        return ()

    def log_factor(self, k, theta, state):
        import jax.numpy as jnp

        return -math.log(16 * self.z_max) - 0.5 * jnp.log1p(jnp.asarray(k, jnp.float64)), state


@dataclasses.dataclass(frozen=True)
class ChizatOutput:
    """η(k) = β(k)√2/(‖z‖_∞ √(k+1)), β(k) = max(1, max_{s≤k} √m‖r(s)/m‖₂): output layer only (theory §5), lr = m."""

    z_max: float
    name: ClassVar[str] = "chizat2020.output"

    def init(self, theta):
        import jax.numpy as jnp

        return jnp.ones((), jnp.float64)

    def log_factor(self, k, theta, state):
        import jax.numpy as jnp

        r = theta["a"].astype(jnp.float64)
        beta = jnp.maximum(state, jnp.linalg.norm(r) / math.sqrt(r.shape[-1]))
        log_eta = (
            jnp.log(beta)
            + 0.5 * math.log(2.0)
            - math.log(self.z_max)
            - 0.5 * jnp.log1p(jnp.asarray(k, jnp.float64))
        )
        return log_eta, beta


@dataclasses.dataclass(frozen=True)
class Adaptive:
    """Lyu & Li's practice for loss-normalised descent: the step grows by `grow` after a step that is accepted, and is
    halved and tried again after one that is not.

    A step is accepted when the loss does not rise and, once every example is classified (and the net is
    homogeneous), the smoothed normalised margin ℓ⁻¹(L)/‖θ‖^k does not fall. Both hold for every small enough step,
    because both hold along the flow; the second keeps the discrete path inside the regime of their theorem.
    """

    grow: float = 2 ** (1 / 5)
    tries: int = 60
    name: ClassVar[str] = "adaptive"

    def init(self, theta):
        return ()

    def log_factor(self, k, theta, state):
        return 0.0, state


def schedule(spec, net, theta, data) -> Any:
    """A schedule from itself or its name; those of theory §5 measure ‖z‖_∞ = max |φ(w_jᵀx_i)| on this net and data."""
    if not isinstance(spec, str):
        return spec
    plain = {s.name: s for s in (Constant, InverseSqrt, Adaptive)}
    if spec in plain:
        return plain[spec]()
    measured = {s.name: s for s in (ChizatBoth, ChizatOutput)}
    if spec not in measured:
        raise unknown_name("schedule", spec, [*plain, *measured])
    return measured[spec](feature_bound(net, theta, data))


def feature_bound(net, theta, data) -> float:
    """‖z‖_∞, z_ij = y_i φ(w_jᵀx_i)."""
    if not hasattr(net, "activation") or "W" not in theta:
        raise InputError(
            "the schedules of Chizat & Bach are defined for two-layer nets; use constant or inverse-sqrt"
        )
    z_max = float(np.max(np.abs(net.activation(np.asarray(data.X) @ np.asarray(theta["W"]).T))))
    if not z_max > 0:
        raise InputError(
            "every feature is 0 on the data, so no step size is defined; choose other initial weights"
        )
    return z_max
