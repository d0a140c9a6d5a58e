"""SGD of many small nets on a GPU, each net's weights on chip for the whole run: one warp trains one net.

The ordinary program moves weights, activations and gradients through memory at every step; a net of theory §8.1 has
16 kB of weights, and 10,000 of them are bound by those bytes. Here a warp holds one net in its registers: neurons
lie over the 32 lanes, so that lane and neuron share w_j, a_j and the gradient, an input x_i is one number for all
lanes, and only f(x_i) = Σ_j a_j φ(w_jᵀx_i) crosses them. What is left is arithmetic.

For φ of degree 1 the gradients need one array: with s_j = Σ_i -ℓ'(q_i) y_i φ'(w_jᵀx_i) x_i they are -∂L/∂w_j = a_j s_j
and, as φ(z) = φ'(z) z, -∂L/∂a_j = w_jᵀs_j.

The numbers are those of `steps` to rounding. A member that leaves float range is sent back: the ordinary program
repeats its steps, so that it diverges at the step and with the weights that it would have had there.
"""

import functools
from typing import Any

import numpy as np

from marginflow.flows.schedules import Constant
from marginflow.flows.steps import (
    RUNNING,
    SHORT_ORDER,
    Plan,
    State,
    data_order,
    drawn_order,
    order_key,
    programs,
)
from marginflow.nets.two_layer import TwoLayer

LANES = 32
NUMBERS_PER_LANE = 192  # weights and gradient of a lane's neurons; with more they spill out of its 255 registers
WARPS = 1
EXAMPLES = 3  # trained together: their sums over lanes overlap
EPOCHS = 16  # orders drawn at once


def applies(plan: Plan, dtype: Any, d: int) -> bool:
    """Whether the kernel trains this plan on the device at hand."""
    import jax

    return jax.default_backend() == "gpu" and eligible(plan, dtype, d)


def simple(plan: Plan) -> bool:
    """SGD with a constant step on a two-layer net with φ of degree 1, and no end but a number of steps."""
    net = plan.net
    return (
        isinstance(net, TwoLayer)
        and net.outputs == 1
        and not net.mean_field
        and net.activation.leak is not None
        and plan.loss.name == "logistic"
        and plan.method == "sgd"
        and plan.batch is not None
        and isinstance(plan.schedule, Constant)
        and plan.target_log_time == np.inf
    )


def eligible(plan: Plan, dtype: Any, d: int) -> bool:
    net = plan.net
    return (
        simple(plan)
        and isinstance(net, TwoLayer)
        and np.dtype(dtype) == np.float32
        and 2 * d * neurons(net.width) // LANES <= NUMBERS_PER_LANE
    )


def _batch(plan: Plan) -> int:
    assert plan.batch is not None
    return plan.batch


def neurons(width: int) -> int:
    """Rows of W on chip: the next power of two, at least one per lane."""
    return max(LANES, 1 << (width - 1).bit_length())


def block_end(plan: Plan, step: int) -> int:
    """Where to return after `step`: a member that leaves float range is repeated from the last return, so that
    returns at times of day would change bits."""
    block = EPOCHS * plan.per_epoch
    return (step // block + 1) * block


@functools.lru_cache(maxsize=1)
def program():
    """`advance` of `steps.programs` for eligible plans, and its kernel."""
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, static_argnames=("plan", "epochs", "interpret"))
    def epochs_of(plan: Plan, state: State, X, y, stop, epochs: int, interpret: bool):
        """Steps until `stop`, at most to the end of `epochs` epochs; and whether all members stayed in float range."""
        first = state.step // plan.per_epoch
        orders = data_orders(plan, state.seed, first + jnp.arange(epochs))
        begin = state.step - first * plan.per_epoch
        end = jnp.minimum(stop - first * plan.per_epoch, epochs * plan.per_epoch)
        running = state.halted == RUNNING
        span = jnp.stack([jnp.full(len(running), begin), jnp.where(running, end, begin)], 1)
        rate = jnp.exp(state.log_lr).astype(jnp.float32)
        theta, odd = _trained(plan, state.theta, X, y, orders, span.astype(jnp.int32), rate, interpret)
        sound = ~odd & jnp.all(jnp.isfinite(theta["W"]), (1, 2)) & jnp.all(jnp.isfinite(theta["a"]), 1)
        taken = end - begin
        last = (end - 1) // plan.per_epoch
        length = state.order.shape[1]
        passed = jnp.logaddexp(state.log_time, state.log_lr + jnp.log(taken.astype(jnp.float64)))
        return state._replace(
            step=state.step + taken,
            theta=theta,
            order=jax.lax.dynamic_slice_in_dim(orders, last * length, length, axis=1),
            log_time=jnp.where(running, passed, state.log_time),
        ), jnp.all(sound | ~running)

    def advance(plan: Plan, state: State, X, y, stop, record_at, interpret: bool = False) -> State:
        otherwise = programs().advance
        if record_at < np.inf:  # a record due by the clock may fall on any step
            return otherwise(plan, state, X, y, stop, record_at)
        while int(state.step) < stop and bool(jnp.any(state.halted == RUNNING)):
            moved, sound = epochs_of(plan, state, X, y, stop, EPOCHS, interpret)
            state = moved if sound else otherwise(plan, state, X, y, moved.step, record_at)
        return state

    return advance


def data_orders(plan: Plan, seeds, epochs):
    """`data_order` of every member over several epochs, side by side.

    A loop mapped over members goes round for all while one of them has a tie, so that every order would be drawn two
    or three times; here only those with a tie are.
    """
    import jax
    import jax.numpy as jnp

    members, count = len(seeds), len(seeds) * len(epochs)
    seeds, epochs = (v.reshape(-1) for v in jnp.meshgrid(seeds, epochs, indexing="ij"))
    each = jax.vmap(lambda seed, epoch: data_order(seed, epoch, plan.n, _batch(plan), plan.replacement))
    if plan.replacement or plan.n > SHORT_ORDER:
        return each(seeds, epochs).reshape(members, -1)
    orders, tied = jax.vmap(lambda seed, epoch: drawn_order(order_key(seed, epoch), 0, plan.n))(seeds, epochs)
    length = plan.per_epoch * _batch(plan)
    orders = jnp.pad(orders, ((0, 0), (0, length - plan.n)), constant_values=plan.n)
    few = count // 4 + 16
    again = jnp.nonzero(tied, size=few, fill_value=count)[0]  # count: read as the last, written nowhere
    orders = jax.lax.cond(
        jnp.sum(tied) <= few,
        lambda: orders.at[again].set(each(seeds[again], epochs[again]), mode="drop"),
        lambda: each(seeds, epochs),
    )
    return orders.reshape(members, -1)


def _trained(plan: Plan, theta, X, y, orders, span, rate, interpret: bool):
    """Weights after the steps `span` of `orders`, and whether an output was not finite; one row per member."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    members, d, width = theta["W"].shape
    more = neurons(width) - width
    W, a = jnp.pad(theta["W"], ((0, 0), (0, 0), (0, more))), jnp.pad(theta["a"], ((0, 0), (0, more)))
    rows = packed(X, y)
    batch = _batch(plan)
    short = batch if plan.replacement else plan.n - (plan.per_epoch - 1) * batch
    rates = jnp.stack([rate / batch, rate / short], 1)
    whole = lambda array: pl.BlockSpec(array.shape, lambda m: (0,) * array.ndim)  # noqa: E731
    own = lambda array: pl.BlockSpec((None, *array.shape[1:]), lambda m: (m,) + (0,) * (array.ndim - 1))  # noqa: E731
    W, a, odd = pl.pallas_call(
        functools.partial(_kernel, plan, d),
        grid=(members,),
        in_specs=[whole(rows), own(orders), own(span), own(rates), own(W), own(a)],
        out_specs=[own(W), own(a), pl.BlockSpec((1,), lambda m: (m,))],
        out_shape=[
            jax.ShapeDtypeStruct(W.shape, W.dtype),
            jax.ShapeDtypeStruct(a.shape, a.dtype),
            jax.ShapeDtypeStruct((members,), jnp.float32),
        ],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
    )(rows, orders, span, rates, W, a)
    return {"W": W[..., :width], "a": a[:, :width]}, odd != 0


def packed(X, y):
    """(x_i, y_i), then zeros for "no row"; two numbers in a word, which halves the loads."""
    import jax
    import jax.numpy as jnp

    rows = jnp.concatenate([X, y[:, None]], 1)
    rows = jnp.pad(rows, ((0, 1), (0, rows.shape[1] % 2)))
    return jax.lax.bitcast_convert_type(rows.reshape(len(rows), -1, 2), jnp.int64)


def _kernel(plan: Plan, d: int, rows_ref, order_ref, span_ref, rate_ref, W_in, a_in, W_out, a_out, odd_out):
    import jax
    import jax.numpy as jnp

    # A plain number is an int64 to the loops, which Triton does not take beside an int32.
    at = lambda k: jnp.int32(k)  # noqa: E731
    net, batch = plan.net, _batch(plan)
    assert isinstance(net, TwoLayer)
    assert net.activation.leak is not None
    leak = net.activation.leak
    groups = -(-batch // EXAMPLES)

    def example(row):
        """x and y of one row, numbers shared by all lanes."""
        words = [rows_ref[row, at(k)] for k in range(rows_ref.shape[1])]
        halves = [half for word in words for half in (word, word >> 32)]
        return [jax.lax.bitcast_convert_type(half.astype(jnp.int32), jnp.float32) for half in halves[: d + 1]]

    def found(t, g):
        """Rows of one group; past the batch, and past the last step, they are not used."""
        last = at(order_ref.shape[0] - 1)
        place = [jnp.minimum(t * batch + g * EXAMPLES + k, last) for k in range(EXAMPLES)]
        return tuple(order_ref[p] for p in place)

    def step(t, carry):
        def group(g, carry):
            s, odd, now = carry
            ends = g == groups - 1
            following = found(jnp.where(ends, t + 1, t), jnp.where(ends, at(0), g + 1))  # under way meanwhile
            inside = [g * EXAMPLES + k < batch for k in range(EXAMPLES)]
            examples = [example(jnp.where(use, row, at(plan.n))) for use, row in zip(inside, now, strict=True)]
            z = [_sum(x * w for x, w in zip(xy, W, strict=False)) for xy in examples]
            f = [jnp.sum(a * (jnp.maximum(v, 0.0) if leak == 0 else jnp.where(v > 0, v, leak * v))) for v in z]
            for xy, v, out in zip(examples, z, f, strict=True):
                odd += out - out  # 0, or nan
                pull = xy[d] / (1.0 + jnp.exp(xy[d] * out))
                slope = jnp.where(v > 0, pull, leak * pull)
                s = tuple(total + x * slope for total, x in zip(s, xy, strict=False))
            return s, odd, following

        W, a, odd, now = carry
        zeros = tuple(jnp.zeros_like(w) for w in W)
        s, odd, now = jax.lax.fori_loop(at(0), at(groups), group, (zeros, odd, now))
        rate = jnp.where(t % at(plan.per_epoch) == plan.per_epoch - 1, rate_ref[at(1)], rate_ref[at(0)])
        pull = rate * _sum(w * total for w, total in zip(W, s, strict=True))
        if "W" in net.trained:
            W = tuple(w + rate * (a * total) for w, total in zip(W, s, strict=True))
        if "a" in net.trained:
            a = a + pull
        return W, a, odd, now

    begin = span_ref[at(0)]
    carry = tuple(W_in[at(k), :] for k in range(d)), a_in[:], jnp.float32(0.0), found(begin, at(0))
    W, a, odd, _ = jax.lax.fori_loop(begin, span_ref[at(1)], step, carry)
    for k in range(d):
        W_out[at(k), :] = W[k]
    a_out[:] = a
    odd_out[at(0)] = jnp.where(odd == 0, 0.0, 1.0)


def _sum(terms):
    return functools.reduce(lambda total, term: total + term, terms)
