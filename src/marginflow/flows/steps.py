"""One step of a descent, and the compiled program that takes many: the inner loop of every discrete method.

The gradient is carried as -∇L = e^s D with D = Σ p_i y_i ∇f_i bounded and s = log((1/n) Σ -ℓ'(q_i)) a logarithm, so
a run goes on where L is far below float range: gd multiplies D by e^(log lr + s), ngd by e^(log lr + s - log L).

A program advances a batch of independent members (seeds, step sizes, scales, widths). What happens to a member
depends on the step alone: where the program returns to Python changes no bit.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from marginflow import losses
from marginflow._core.arrays import to_numpy
from marginflow._core.logs import log_sum_exp
from marginflow.flows import monitors as watching
from marginflow.flows.schedules import Adaptive
from marginflow.nets.net import Net

RUNNING, REACHED, DIVERGED, STALLED = 0, 1, 2, 3
ORDER_STREAM = 0x0DE5  # keeps the data order independent of the initial weights drawn from the same seed
SHORT_ORDER = 1024  # below it, fewer than one permutation in eight is drawn again


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that is fixed when the program is compiled."""

    net: Net
    loss: losses.Loss
    method: str
    n: int
    batch: int | None
    replacement: bool
    schedule: Any
    target_log_loss: float
    target_log_time: float

    @property
    def per_epoch(self) -> int:
        return 1 if self.batch is None else -(-self.n // self.batch)


class State(NamedTuple):
    """A batch of members after `step` steps; every array but `step` has one row per member."""

    step: Any
    theta: dict[str, Any]  # turned
    optimiser: Any
    schedule: Any
    seed: Any
    order: Any
    gain: Any  # multiplies the output: 1, or width ratio of a masked mean-field net
    log_lr: Any
    log_time: Any
    halted: Any
    halted_at: Any


def data_order(seed, epoch, n: int, batch: int, replacement: bool = False):
    """Rows of one epoch, batch after batch; the value n stands for "no row" where batch does not divide n."""
    import jax
    import jax.numpy as jnp

    key = order_key(seed, epoch)
    length = -(-n // batch) * batch
    if replacement:
        return jax.random.randint(key, (length,), 0, n, dtype=jnp.int32)
    rows = (
        _short_permutation(key, n) if n <= SHORT_ORDER else jax.random.permutation(key, n).astype(jnp.int32)
    )
    return jnp.concatenate([rows, jnp.full((length - n,), n, jnp.int32)])


def order_key(seed, epoch):
    import jax

    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), ORDER_STREAM), epoch)


def _short_permutation(key, n: int):
    """A uniform permutation of 0..n-1, from one sort of one 32-bit operand.

    Random high bits with the row in the low bits; where two high parts are equal all of them are drawn again, so the
    order is uniform and not only nearly so. On CPU this takes a quarter of the time of `jax.random.permutation`.
    """
    import jax

    def again(carry):
        return carry[0] + 1, drawn_order(key, carry[0] + 1, n)

    return jax.lax.while_loop(lambda carry: carry[1][1], again, (0, drawn_order(key, 0, n)))[1][0]


def drawn_order(key, attempt, n: int):
    """(rows, whether two of their random high parts were equal)."""
    import jax
    import jax.numpy as jnp

    low = max(1, (n - 1).bit_length())
    bits = jax.random.bits(jax.random.fold_in(key, attempt), (n,), jnp.uint32)
    tagged = jnp.sort(((bits >> low) << low) | jnp.arange(n, dtype=jnp.uint32))
    high = tagged >> low
    return (tagged & jnp.uint32((1 << low) - 1)).astype(jnp.int32), jnp.any(high[1:] == high[:-1])


def turned(theta: Mapping[str, Any], members: bool = True) -> dict[str, Any]:
    """θ with every matrix transposed, inputs first; its own inverse.

    Weights are kept so between steps: X @ W and its gradient then need no transposition, a quarter of the time of a
    small net on CPU.
    """
    return {name: w.swapaxes(-1, -2) if w.ndim == 2 + members else w for name, w in theta.items()}


def _outputs(plan: Plan, theta, gain, X):
    return plan.net(turned(theta, members=False), X) * gain


class Ascent(NamedTuple):
    """-∇L = e^log_slope · direction; log_loss = log of the mean loss; finite says whether all margins are."""

    direction: dict[str, Any]
    log_slope: Any
    log_loss: Any
    finite: Any


def _ascent(plan: Plan, theta, gain, X, y, present=None) -> Ascent:
    import jax
    import jax.numpy as jnp

    trained = {name: theta[name] for name in plan.net.trained}
    outputs, pull_back = jax.vjp(lambda moving: _outputs(plan, {**theta, **moving}, gain, X), trained)
    q = y * outputs
    log_slopes, log_values = plan.loss.log_slope(q), plan.loss.log_value(q)
    count = math.log(X.shape[0])
    if present is not None:
        log_slopes, log_values = (jnp.where(present, v, -jnp.inf) for v in (log_slopes, log_values))
        count = jnp.log(jnp.sum(present).astype(q.dtype))
    top = jnp.max(log_slopes)
    top = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_slopes - top)
    total = jnp.sum(weight)
    (direction,) = pull_back(y * (weight / jnp.where(total > 0, total, 1.0)))
    return Ascent(
        direction, top + jnp.log(total) - count, log_sum_exp(log_values) - count, jnp.isfinite(jnp.sum(q))
    )


def _moved(theta, direction, scale):
    return {
        **theta,
        **{name: theta[name] + scale.astype(theta[name].dtype) * step for name, step in direction.items()},
    }


def _member_step(plan: Plan, member: State, X, y):
    """One step of one member; `member.step` is shared by all of them."""
    import jax.numpy as jnp

    if plan.batch is None:
        batch_X, batch_y, present = X, y, None
    else:
        import jax

        start = (member.step % plan.per_epoch) * plan.batch
        rows = jax.lax.dynamic_slice(member.order, (start,), (plan.batch,))
        present = None if plan.replacement or plan.n % plan.batch == 0 else rows < plan.n
        batch_X, batch_y = X[rows], y[rows]  # JAX clips the stand-in row n; `present` gives it weight 0
    ascent = _ascent(plan, member.theta, member.gain, batch_X, batch_y, present)
    factor, schedule_state = plan.schedule.log_factor(member.step, member.theta, member.schedule)
    log_lr, optimiser = member.log_lr, member.optimiser
    log_step = log_lr + factor
    stalled = jnp.asarray(False)
    if plan.method == "adam":
        gradient = {k: -(jnp.exp(ascent.log_slope).astype(g.dtype) * g) for k, g in ascent.direction.items()}
        step, optimiser = _adam().update(gradient, optimiser)
        theta = _moved(member.theta, step, -jnp.exp(log_step))
    elif isinstance(plan.schedule, Adaptive):
        theta, log_step, log_lr, stalled = _accepted(plan, member, ascent, X, y)
        log_step = log_step - ascent.log_loss
    else:
        if plan.method == "ngd":
            log_step = log_step - ascent.log_loss
        theta = _moved(member.theta, ascent.direction, jnp.exp(log_step + ascent.log_slope))

    reached = member.log_time >= plan.target_log_time
    if plan.batch is None:  # the loss at hand is the loss of the whole data set
        reached |= ascent.log_loss <= plan.target_log_loss
    finite = ascent.finite & jnp.isfinite(sum(jnp.sum(theta[name]) for name in plan.net.trained))
    verdict = jnp.where(reached, REACHED, jnp.where(~finite, DIVERGED, jnp.where(stalled, STALLED, RUNNING)))
    halted = jnp.where(member.halted == RUNNING, verdict, member.halted).astype(jnp.int8)
    moves = halted == RUNNING
    now = member.step + jnp.where(verdict == DIVERGED, 1, 0)
    return member._replace(
        theta={name: jnp.where(moves, theta[name], member.theta[name]) for name in theta},
        optimiser=optimiser,
        schedule=schedule_state,
        log_lr=jnp.where(moves, log_lr, member.log_lr),
        log_time=jnp.where(moves, jnp.logaddexp(member.log_time, log_step), member.log_time),
        halted=halted,
        halted_at=jnp.where((member.halted == RUNNING) & ~moves, now, member.halted_at).astype(jnp.int64),
    )


def _accepted(plan: Plan, member: State, ascent: Ascent, X, y):
    """(θ, log step, next log lr, stalled) of the first step that `Adaptive` accepts; the tries are halvings."""
    import jax
    import jax.numpy as jnp

    rule, log_n = plan.schedule, math.log(plan.n)
    at_zero = plan.loss.log_value(jnp.zeros((), X.dtype))
    homogeneous = plan.net.degree is not None
    slack = 32 * float(np.finfo(X.dtype).eps)  # rounding of a margin and of a norm, each a few ulps

    def smoothed(theta, log_loss):
        return watching.smoothed_margin(plan.net, plan.loss, theta, jnp.minimum(log_loss + log_n, at_zero))

    before = smoothed(member.theta, ascent.log_loss) if homogeneous else 0.0

    def attempt(carry):
        log_step, tries, _, _ = carry
        theta = _moved(member.theta, ascent.direction, jnp.exp(log_step + ascent.log_slope - ascent.log_loss))
        q = y * _outputs(plan, theta, member.gain, X)
        log_loss = log_sum_exp(plan.loss.log_value(q)) - log_n
        good = log_loss <= ascent.log_loss  # false for nan
        if homogeneous:
            was_separated = ascent.log_loss + log_n < at_zero
            good &= ~was_separated | (smoothed(theta, log_loss) >= before * (1 - slack))
        return jnp.where(good, log_step, log_step - math.log(2.0)), tries + 1, good, theta

    log_step, _, good, theta = jax.lax.while_loop(
        lambda carry: (carry[1] < rule.tries) & ~carry[2],
        attempt,
        (member.log_lr, jnp.asarray(0), jnp.asarray(False), dict(member.theta)),
    )
    return theta, log_step, log_step + math.log(rule.grow), ~good


def _adam():
    import optax

    return optax.scale_by_adam()


# The axis of the members in every part of the state; the step is shared.
_MEMBERS: Any = State(None, *[0] * (len(State._fields) - 1))  # type: ignore[arg-type]


ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}
SMALL_STEP = 3e7  # operations; with fewer, handing parts of a step to other threads costs more than it saves


def one_thread(plan: Plan, weights: int) -> bool:
    """Whether a step of a batch with so many weights in all is best taken by one thread; batches then run side by side.

    It follows from the request alone, as the order of summation, and so the last bit, may follow from it.
    """
    import jax

    operations = 4.0 * weights * (plan.n if plan.batch is None else plan.batch)
    return jax.default_backend() == "cpu" and operations < SMALL_STEP


class Programs(NamedTuple):
    advance: Any
    observe: Any
    advance_alone: Any  # the same steps, all in the thread that takes them (CPU)


@functools.lru_cache(maxsize=1)
def programs() -> Programs:
    """The compiled programs, made on first use so that importing this module does not import JAX."""
    import jax
    import jax.numpy as jnp

    def advance(plan: Plan, state: State, X, y, stop, record_at) -> State:
        """Steps until `stop`, or until no running member has log t below `record_at`."""
        step_all = jax.vmap(
            lambda member: _member_step(plan, member, X, y), in_axes=(_MEMBERS,), out_axes=_MEMBERS
        )
        reorder = jax.vmap(
            lambda seed, epoch: data_order(seed, epoch, plan.n, plan.batch or plan.n, plan.replacement),
            (0, None),
        )

        def going(state):
            return (state.step < stop) & jnp.any((state.halted == RUNNING) & (state.log_time < record_at))

        def body(state):
            if plan.batch is not None:
                epoch = state.step // plan.per_epoch
                order = jax.lax.cond(
                    state.step % plan.per_epoch == 0, lambda: reorder(state.seed, epoch), lambda: state.order
                )
                state = state._replace(order=order)
            return step_all(state)._replace(step=state.step + 1)

        return jax.lax.while_loop(going, body, state)

    @functools.partial(jax.jit, static_argnames=("plan", "chosen"))
    def observe(plan: Plan, chosen, theta, gain, initial, previous, X, y):
        def one(theta, gain, initial, previous):
            q = y * _outputs(plan, theta, gain, X)
            now, first, before = (turned(weights, members=False) for weights in (theta, initial, previous))
            view = watching.View(plan.net, plan.loss, now, first, before, q, X, y)
            return {monitor.name: monitor.measure(view) for monitor in chosen}

        return jax.vmap(one)(theta, gain, initial, previous)

    return Programs(
        jax.jit(advance, static_argnames="plan"),
        observe,
        jax.jit(advance, static_argnames="plan", compiler_options=ONE_THREAD),
    )


def started(plan: Plan, theta: Mapping[str, Any], seeds, log_lr, gain, dtype) -> State:
    """The state before the first step; every array of `theta` has one row per member."""
    import jax
    import jax.numpy as jnp

    members = len(seeds)
    weights = turned({name: jnp.asarray(to_numpy(w), dtype) for name, w in theta.items()})
    trained = {name: weights[name] for name in plan.net.trained}
    length = 0 if plan.batch is None else plan.per_epoch * plan.batch
    return State(
        step=jnp.asarray(0, jnp.int64),
        theta=weights,
        optimiser=jax.vmap(_adam().init)(trained) if plan.method == "adam" else (),
        schedule=jax.vmap(plan.schedule.init)(weights),
        seed=jnp.asarray(seeds, jnp.int64),
        order=jnp.zeros((members, length), jnp.int32),
        gain=jnp.asarray(gain, dtype),
        log_lr=jnp.asarray(log_lr, jnp.float64),
        log_time=jnp.full((members,), -jnp.inf, jnp.float64),  # typed: a weak type compiles the program twice
        halted=jnp.zeros((members,), jnp.int8),
        halted_at=jnp.zeros((members,), jnp.int64),
    )
