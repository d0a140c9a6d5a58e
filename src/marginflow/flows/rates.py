"""The two dynamics behind the rate propositions of Chizat & Bach (theory §5): directions fixed, their own step sizes.

Both are subgradient-like ascents of the soft margin F of the features z_ij. They are tiny (one n × m product each
way a step), so a run is one compiled scan and every iterate's margin is looked at.

Both layers: r_j > 0 always, because a step multiplies it by 1 + 2η(Zᵀp)_j >= 1 - 2/16. So log r is carried: r² grows
like e^{γ√t} and would overflow; F needs only β = ‖r²/m‖_1 and ā = r²/‖r²‖_1.
"""

from typing import Literal

import numpy as np

from marginflow._core.arrays import double, to_numpy
from marginflow._core.errors import InputError
from marginflow._core.provenance import provenance
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net, Theta
from marginflow.nets.two_layer import TwoLayer
from marginflow.runs import Run

HUGE = 1e280  # β beyond this acts as ∞ in the soft minimum, and must stay finite for 0·β to be 0


@double
def rate_run(
    net: Net,
    theta: Theta,
    data: Dataset,
    *,
    kind: Literal["both", "output"] = "both",
    steps: int = 10_000,
    records: int = 256,
) -> Run:
    """Run one of the two dynamics from the directions (and, for "both", output signs) in theta.

    history: step t, best_margin = max_{s<t} min_i z_iᵀā(s), log_beta, soft_min_B = (√t/4) Σ η/β / Σ η (both only).
    """
    if not isinstance(net, TwoLayer):
        raise InputError(f"the rate dynamics are those of two-layer nets, not of {net}; choose another method")
    if kind not in ("both", "output"):
        raise InputError(f"rate '{kind}'; choose both or output")
    if steps < 1:
        raise InputError(f"steps {steps}; give at least 1")
    W, a = to_numpy(theta["W"], np.float64), to_numpy(theta["a"], np.float64)
    directions = W / np.linalg.norm(W, axis=1, keepdims=True)
    sign = np.where(a < 0, -1.0, 1.0)
    Z = data.y[:, None] * np.asarray(net.activation(data.X @ directions.T))
    if kind == "both":
        Z = Z * sign
    if not np.abs(Z).max() > 0:
        raise InputError(
            "every feature is 0 on the data, so no step size is defined; choose other directions"
        )
    weights, series = _both(Z, steps) if kind == "both" else _output(Z, steps)
    keep = np.unique(np.round(np.geomspace(1, steps, records)).astype(int)) - 1
    history = {name: np.asarray(values)[keep] for name, values in series.items()}
    history = {"step": keep + 1, "log_time": np.log(keep + 1.0), **history}
    a_final = np.asarray(weights) * (sign if kind == "both" else 1.0)
    options = {"method": f"rate-{kind}", "steps": steps, "records": records}
    return Run(
        net=net,
        data=data,
        theta0={"W": directions, "a": sign},
        theta={"W": directions, "a": a_final},
        method=f"rate-{kind}",
        loss="exponential",
        outcome=Outcome.CONVERGED,
        message=f"{steps} steps",
        log_time=float(np.log(steps)),
        log_loss=float(series["log_loss"][-1]),
        history=history,
        options=options,
        loss_reduction="mean",
        steps=steps,
        provenance=provenance(data=data.sha256),
    )


def _both(Z: np.ndarray, steps: int):
    import jax
    import jax.numpy as jnp

    n, m = Z.shape
    z_max = np.abs(Z).max()
    rows = jnp.asarray(Z)

    def step(state, s):
        log_r, best, eta_sum, error_sum = state
        log_mass = jax.nn.logsumexp(2 * log_r)
        share = jnp.exp(2 * log_r - log_mass)
        beta = jnp.minimum(jnp.exp(log_mass - jnp.log(m)), HUGE)
        margins = rows @ share
        excess = -beta * (margins - margins.min())
        p = jax.nn.softmax(excess)
        eta = 1 / (16 * z_max * jnp.sqrt(s + 1.0))
        best = jnp.maximum(best, margins.min())
        eta_sum, error_sum = eta_sum + eta, error_sum + eta / beta
        b = jnp.sqrt(s + 1.0) / 4 * error_sum / eta_sum
        log_loss = jax.nn.logsumexp(excess) - beta * margins.min() - jnp.log(n)  # excess <= 0: no cancellation
        log_r = log_r + jnp.log1p(2 * eta * (p @ rows))
        out = {
            "best_margin": best,
            "margin_min": margins.min(),
            "log_beta": log_mass - jnp.log(m),
            "soft_min_B": b,
            "log_loss": log_loss,
        }
        return (log_r, best, eta_sum, error_sum), (out, None)

    start = (jnp.zeros(m), -jnp.inf, 0.0, 0.0)
    (log_r, *_), (series, _) = jax.jit(
        lambda: jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.float64))
    )()
    return jax.nn.softmax(2 * log_r), jax.device_get(series)


def _output(Z: np.ndarray, steps: int):
    """In ā = a/β and log β: the step is β times a bounded vector, so β grows like a product and would overflow."""
    import jax
    import jax.numpy as jnp

    n, m = Z.shape
    z_max = np.abs(Z).max()
    rows = jnp.asarray(Z)

    def step(state, s):
        a_bar, log_beta, best = state
        beta = jnp.minimum(jnp.exp(log_beta), HUGE)
        margins = rows @ a_bar
        excess = -beta * (margins - margins.min())
        p = jax.nn.softmax(excess)
        best = jnp.maximum(best, margins.min())
        log_loss = jax.nn.logsumexp(excess) - beta * margins.min() - jnp.log(n)  # excess <= 0: no cancellation
        moved = a_bar + jnp.sqrt(2.0) / (z_max * jnp.sqrt(s + 1.0)) * (p @ rows) / m
        growth = jnp.maximum(1.0, jnp.sqrt(m) * jnp.linalg.norm(moved))
        out = {"best_margin": best, "margin_min": margins.min(), "log_beta": log_beta, "log_loss": log_loss}
        return (moved / growth, log_beta + jnp.log(growth), best), out

    start = (jnp.zeros(m), jnp.zeros(()), -jnp.inf)
    (a_bar, *_), series = jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.float64)))()
    return a_bar, jax.device_get(series)
