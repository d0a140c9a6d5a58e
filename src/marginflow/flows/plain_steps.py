"""SGD of small two-layer nets on a CPU, without the bookkeeping of `steps`.

A step of a small net is a dozen short kernels, and what `steps` does besides (logarithms, the clock, who has halted)
as many again. Here a block of steps is taken without it. The numbers are those of `steps` to rounding; when a member
leaves float range, `steps` repeats the block, so that it diverges at the step and with the weights that it would have
had there.
"""

import functools
from typing import Any

import numpy as np

from marginflow.flows.on_chip import simple
from marginflow.flows.steps import ONE_THREAD, RUNNING, Plan, State, data_order, programs
from marginflow.nets.two_layer import TwoLayer

BLOCK = 1024  # steps


def block_end(step: int) -> int:
    """Where to return after `step`; repeats begin there, so that returns at times of day would change bits."""
    return (step // BLOCK + 1) * BLOCK


def applies(plan: Plan, one_thread: bool) -> bool:
    return one_thread and simple(plan)


@functools.lru_cache(maxsize=1)
def program():
    """`advance` of `steps.programs` for plans it applies to."""
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, static_argnames="plan", compiler_options=ONE_THREAD)
    def block(plan: Plan, state: State, X, y, stop) -> tuple[State, Any]:
        """Steps until `stop`, and whether all members stayed in float range."""
        net, n, per_epoch = plan.net, plan.n, plan.per_epoch
        batch = plan.batch or n
        assert isinstance(net, TwoLayer)
        leak = net.activation.leak
        assert leak is not None
        short = n - (per_epoch - 1) * batch
        uneven = not plan.replacement and n % batch != 0
        rate = jnp.exp(state.log_lr).astype(X.dtype)[:, None]
        reorder = jax.vmap(lambda seed, epoch: data_order(seed, epoch, n, batch, plan.replacement), (0, None))

        def take(carry):
            step, W, a, order, odd = carry
            at = step % per_epoch
            order = jax.lax.cond(at == 0, lambda: reorder(state.seed, step // per_epoch), lambda: order)
            rows = jax.lax.dynamic_slice_in_dim(order, at * batch, batch, axis=1)
            x, labels = X[rows], y[rows]
            z = jnp.einsum("mid,mdj->mij", x, W)
            post = net.activation(z)
            f = jnp.einsum("mij,mj->mi", post, a)
            size = jnp.where(at == per_epoch - 1, short, batch) if uneven else batch
            pull = rate / jnp.asarray(size, X.dtype) * labels / (1 + jnp.exp(labels * f))
            pull = jnp.where(rows < n, pull, 0) if uneven else pull
            odd = odd + (f - f)  # 0, or nan
            slope = jnp.where(z > 0, pull[..., None], jnp.asarray(leak, X.dtype) * pull[..., None])
            moved_W, moved_a = W, a
            if "W" in net.trained:
                moved_W = W + a[:, None, :] * jnp.einsum("mid,mij->mdj", x, slope)
            if "a" in net.trained:
                moved_a = a + jnp.einsum("mi,mij->mj", pull, post)
            return step + 1, moved_W, moved_a, order, odd

        W, a, running = state.theta["W"], state.theta["a"], state.halted == RUNNING
        odd = jnp.zeros((len(W), batch), X.dtype)
        step, W, a, order, odd = jax.lax.while_loop(
            lambda carry: carry[0] < stop, take, (state.step, W, a, state.order, odd)
        )
        sound = jnp.all(odd == 0, 1) & jnp.all(jnp.isfinite(W), (1, 2)) & jnp.all(jnp.isfinite(a), 1)
        taken = (step - state.step).astype(jnp.float64)
        theta = {
            name: jnp.where(running.reshape((-1,) + (1,) * (w.ndim - 1)), w, state.theta[name])
            for name, w in {"W": W, "a": a}.items()
        }
        passed = jnp.logaddexp(state.log_time, state.log_lr + jnp.log(taken))
        log_time = jnp.where(running, passed, state.log_time)
        return state._replace(step=step, theta=theta, order=order, log_time=log_time), jnp.all(
            sound | ~running
        )

    def advance(plan: Plan, state: State, X, y, stop, record_at) -> State:
        ordinary = programs().advance_alone
        if record_at < np.inf:  # a record due by the clock may fall on any step
            return ordinary(plan, state, X, y, stop, record_at)
        while True:  # at least once: a call that asks for no step compiles
            end = min(int(stop), block_end(int(state.step)))
            moved, sound = block(plan, state, X, y, end)
            state = moved if sound else ordinary(plan, state, X, y, end, record_at)
            if int(state.step) >= stop or not np.any(np.asarray(state.halted) == RUNNING):
                return state

    return advance
