"""Gradient flow of any net by diffrax: the loss-normalised clock, adaptive steps, no account of hyperplanes.

With ds = L dt the field is Σ π_i y_i ∇f_i, π_i = -ℓ'(q_i)/L, bounded however small the loss; log t is carried along,
d(log t)/ds = e^(-log L - log t), from a first Euler step of length e^-30 in ordinary time. At a kink of the activation
the error estimate shortens the step: no event is located, and a neuron that slides along a hyperplane is seen as one
that chatters across it, slowly. `mode="exact"` has neither limitation.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow._core.arrays import double
from marginflow._core.logs import log_sum_exp
from marginflow._core.provenance import provenance
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.flows.observed import Track
from marginflow.losses import Loss
from marginflow.nets.net import Net, trained_norm
from marginflow.runs import Run

START_LOG_TIME = -30.0
STRETCH_STEPS = 4096
STATIONARY = 1e-8


@functools.lru_cache(maxsize=16)
def _programs(net: Net, loss: Loss, rtol: float):
    """(stretch, look): one stretch of the flow up to s_end or the goal, and log L with the margins."""
    import diffrax as dfx
    import jax
    import jax.numpy as jnp

    # A mean-field net moves by m times the gradient, so that a neuron's speed does not depend on their number m.
    speed = getattr(net, "width", 1) if getattr(net, "mean_field", False) else 1

    def look(moving, args):
        still, X, y = args
        q = y * net({**still, **moving}, X)
        return q, log_sum_exp(loss.log_value(q))

    def field(s, state, args):
        moving, log_time = state
        still, X, y = args
        f, back = jax.vjp(lambda w: net({**still, **w}, X), moving)
        q = y * f
        log_loss = log_sum_exp(loss.log_value(q))
        (up,) = back(y * jnp.exp(loss.log_slope(q) - log_loss))
        return jax.tree.map(lambda g: speed * g, up), jnp.exp(jnp.minimum(-log_loss - log_time, 50.0))

    @jax.jit
    def stretch(s, s_end, h, state, args):
        answer = dfx.diffeqsolve(
            dfx.ODETerm(field), dfx.Tsit5(), s, s_end, h, state, args, throw=False,
            max_steps=STRETCH_STEPS, saveat=dfx.SaveAt(t1=True),
            stepsize_controller=dfx.PIDController(rtol=rtol, atol=rtol * 1e-3))
        assert answer.ts is not None  # saved at t1
        last = jax.tree.map(lambda w: w[-1], answer.ys)
        return (answer.ts[-1], last, answer.stats["num_accepted_steps"], answer.result == dfx.RESULTS.successful,
                answer.result == dfx.RESULTS.max_steps_reached)

    return stretch, jax.jit(look), jax.jit(field)


@double
def adaptive(net: Net, start: Mapping[str, np.ndarray], data: Dataset, loss: Loss, goal, *, rtol: float, max_steps: int,
             records: int, options: Mapping[str, Any], limit_log_time: float) -> Run:
    """The run by diffrax. until="limit" and "frozen" integrate to `limit_log_time` and claim no limit."""
    import jax.numpy as jnp

    X, y = jnp.asarray(data.X, jnp.float64), jnp.asarray(data.y, jnp.float64)
    still = {name: jnp.asarray(start[name]) for name in start if name not in net.trained}
    moving = {name: jnp.asarray(start[name]) for name in net.trained}
    goal_time = goal.value if goal.kind == "log_time" else math.inf if goal.kind == "log_loss" else limit_log_time
    goal_loss = goal.value if goal.kind == "log_loss" else -math.inf
    args = (still, X, y)
    stretch, look, field = _programs(net, loss, rtol)

    def past(state) -> float:
        """How far log t or -log L is beyond the goal."""
        over_time = float(state[1]) - goal_time
        return over_time if goal_loss == -math.inf else max(over_time, goal_loss - float(look(state[0], args)[1]))

    track = Track(records)
    ds = math.exp(START_LOG_TIME + float(look(moving, args)[1]))
    push, _ = field(0.0, (moving, jnp.full((), START_LOG_TIME, jnp.float64)), args)
    state = ({name: w + ds * push[name] for name, w in moving.items()}, jnp.full((), START_LOG_TIME, jnp.float64))
    s, span, steps = ds, 1e-2, 0
    close = 1e-9 * max(1.0, abs(goal_loss if math.isfinite(goal_loss) else goal_time))
    track.add(_row(net, still, state, s, look(state[0], args)))
    outcome, message = Outcome.MAX_STEPS, f"{max_steps} steps taken before the target; raise max_steps"
    landing = False
    while steps < max_steps:
        s1, new, taken, whole, full = stretch(s, s + span, span / 16, state, args)
        steps += int(taken)
        if not np.isfinite(float(new[1])) or not all(bool(jnp.isfinite(w).all()) for w in new[0].values()):
            outcome, message = Outcome.STALLED, f"diffrax left the range of floats after log t = {float(state[1]):.6g}"
            break
        over = past(new)
        if over > close and span > 1e-15 * s:
            # Past the goal: the stretch is taken again, shorter, by false position; near its end log t rises steeply.
            part = -past(state) / (over - past(state))
            span, landing = span * min(max(part, 0.05), 0.95), True
            continue
        s, state = float(s1), new
        track.add(_row(net, still, state, s, look(state[0], args)))
        if over >= -close:
            outcome, message = Outcome.CONVERGED, ""
            break
        if not bool(whole) and not bool(full):
            outcome, message = Outcome.STALLED, f"diffrax could not step on from log t = {float(state[1]):.6g}"
            break
        if not landing:
            span = span * 1.3 if int(taken) < 200 else span if int(taken) < 2000 else span / 4
        climb = sum(float(jnp.sum(g * g)) for g in field(s, state, args)[0].values())
        norm2 = track.rows[-1]["norm_squared"]
        if climb * s <= STATIONARY and climb <= STATIONARY * 1e-4 * max(norm2, 1e-300):
            outcome = Outcome.CONVERGED
            message = f"the loss does not go to 0: it converges to {math.exp(track.rows[-1]['log_loss']):.12g}"
            break
    last = track.rows[-1]
    if goal.kind in ("limit", "frozen") and outcome is Outcome.CONVERGED and not message:
        message = f"integrated to log t = {last['log_time']:.6g}; the adaptive mode claims no limit"
    theta = {name: np.asarray(state[0][name] if name in state[0] else still[name]) for name in start}
    return Run(net=net, data=data, theta0=start, theta=theta, method="flow", loss=loss.name, outcome=outcome,
               message=message, log_time=last["log_time"], log_loss=last["log_loss"], history=track.history(),
               options=options, steps=steps, extra={"frozen": "no"}, provenance=provenance(data=data.sha256))


def _row(net: Net, still, state, s: float, seen) -> dict[str, float]:
    q, log_loss = seen
    theta = {name: np.asarray(w) for name, w in {**still, **state[0]}.items()}
    norm = float(trained_norm(net, theta))
    row = {"s": s, "log_time": float(state[1]), "log_loss": float(log_loss), "margin_min": float(q.min()),
           "norm_squared": norm**2}
    if net.degree is not None:
        row["normalised_margin"] = row["margin_min"] / norm**net.degree if norm > 0 else 0.0
    matrix = next((w for w in theta.values() if w.ndim >= 2), None)
    if matrix is not None:
        spectrum = np.linalg.svd(matrix.reshape(len(matrix), -1), compute_uv=False)
        row["stable_rank"] = float((spectrum**2).sum() / spectrum[0] ** 2) if spectrum[0] > 0 else 0.0
    return row
