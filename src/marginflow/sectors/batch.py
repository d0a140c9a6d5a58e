"""The early phase of many neurons at once: fixed shapes, one event per lane and pass, on CPU and GPU.

A lane carries w (unit, in coordinates of the span of the data), the multipliers μ with v = Σ μ_i x_i its
least-norm velocity, the side of every hyperplane, and for the sliding set Z a table of slots: which examples,
their coefficients c, and the inverse M of their Gram matrix. One pass is: matrix products for v, wᵀx_i and vᵀx_i,
the ratio test, the step, and one stretch of the homotopy that carries μ to its new value while the pull
q = ±p_k x_k of the example just met is added gradually. With g = (x_kᵀx_l)_{l ∈ Z} the sliding examples answer by
-M g times that pull; the stretch stops early when k itself begins to slide (x_kᵀv = 0) or when a coefficient
reaches 0 or 1 and its hyperplane leaves. A hyperplane that left too early is met again at once with step 0, so the
sequence ends at the least-norm velocity, which is unique; `early` finds the same one by solving the bounded
problem anew.

Lanes are the last axis everywhere: every small operation is then one vectorised loop over lanes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

OFF, ON, SLIDING = 0, 1, 2
RUNNING, RAY, DEAD, PINNED, RESTING, UNSURE, SPLIT, CROWDED = range(8)

PASSES = 24  # per call: long enough to hide the call, short enough that finished lanes do not idle


class Problem(NamedTuple):
    """What is shared by all lanes. X: (n, r) rows in the span, gram XXᵀ, p charges; the rest are thresholds."""

    X: Any
    gram: Any
    p: Any
    norms: Any
    scale: Any
    zero: Any
    across: Any
    cap: Any
    mix: Any  # random odd integers: a pattern's fingerprint is Σ mix·side


class Lanes(NamedTuple):
    w: Any  # (r, B)
    outside: Any  # (B,) length of w outside the span of the data
    mu: Any  # (n, B) v = Xᵀμ
    side: Any  # (n, B) OFF, ON, SLIDING
    slot: Any  # (m, B) example in the slot, -1 if free
    inverse: Any  # (m, m, B) of the Gram matrix of the occupied slots, 0 elsewhere
    c: Any  # (m, B)
    pending: Any  # (B,) example whose pull is being added or taken away, -1 if none
    done: Any  # (B,) share of it that is in
    code: Any
    events: Any
    time: Any
    log_norm: Any
    most: Any  # largest sliding set seen


def start(problem: Problem, w, outside, slots: int) -> Lanes:
    """Lanes at the directions w (r, B); a direction on a hyperplane starts on its off side and may leave it at once."""
    B = w.shape[1]
    z = problem.X @ w
    on = z > problem.zero * problem.norms[:, None]
    f = lambda *shape: jnp.zeros((*shape, B))  # noqa: E731
    i = lambda value: jnp.full((B,), value, jnp.int32)  # noqa: E731
    return Lanes(
        w,
        outside,
        jnp.where(on, problem.p[:, None], 0.0),
        on.astype(jnp.int8),
        jnp.full((slots, B), -1, jnp.int32),
        f(slots, slots),
        f(slots),
        i(-1),
        f(),
        i(RUNNING),
        i(0),
        f(),
        f(),
        i(0),
    )


def refresh(problem: Problem, s: Lanes) -> Lanes:
    """M, c, μ and the position from their definitions, so that rounding does not outlive a call."""
    used = s.slot >= 0
    rows = jnp.maximum(s.slot, 0)
    both = used[:, None] & used[None]
    gram = jnp.where(both, problem.gram[rows[:, None], rows[None]], jnp.eye(s.slot.shape[0])[..., None])
    # M carries the rounding of at most PASSES updates: one Newton step squares that error away.
    inverse = jnp.where(both, 2 * s.inverse - _times(s.inverse, _times(gram, s.inverse)), 0.0)
    k = jnp.maximum(s.pending, 0)
    was_on = _pick(s.side, k) == ON
    free = jnp.where(s.side == ON, problem.p[:, None], 0.0)
    # While a pull is being added, `side` still shows the old side of that example.
    part = jnp.where(s.pending >= 0, jnp.where(was_on, 1 - s.done, s.done) * problem.p[k], _pick(free, k))
    free = _put(free, k, part)
    strength = jnp.where(used, -problem.p[rows], 1.0)
    c = _apply(inverse, _pick_slots(problem.X @ (problem.X.T @ free), s.slot)) / strength
    mu = _put_slots(free, s.slot, -strength * c)
    back = _put_slots(jnp.zeros_like(free), s.slot, -_apply(inverse, _pick_slots(problem.X @ s.w, s.slot)))
    unsure = (used & ~((c > -1e-6) & (c < 1 + 1e-6))).any(0) | ~jnp.isfinite(mu).all(0)
    code = jnp.where(unsure & (s.code == RUNNING), UNSURE, s.code)
    return s._replace(w=s.w + problem.X.T @ back, mu=mu, inverse=inverse, c=c, code=code)


def one_pass(problem: Problem, s: Lanes) -> Lanes:
    v = problem.X.T @ s.mu
    beta = problem.X @ v
    after = _stretch(problem, _advance(problem, s, v, beta), beta)
    return jax.tree.map(lambda new, old: new.astype(old.dtype), after, s)


def _advance(problem: Problem, s: Lanes, v, beta) -> Lanes:
    """To the next hyperplane, for lanes with nothing pending; classify the lanes that meet none."""
    free = (s.code == RUNNING) & (s.pending < 0)
    speed = jnp.sqrt(jnp.sum(v * v, 0))
    safe = jnp.where(speed > 0, speed, 1.0)
    e = v / safe
    A = jnp.sum(e * s.w, 0)
    residual = s.w - A * e
    across = jnp.sqrt(jnp.sum(residual * residual, 0) + s.outside**2)
    z = problem.X @ s.w
    threshold = (problem.zero * problem.scale * problem.norms)[:, None]
    moving = ((s.side == ON) & (beta < -threshold)) | ((s.side == OFF) & (beta > threshold))
    delta = jnp.where(moving, jnp.maximum(-z / jnp.where(moving, beta, 1.0), 0.0), jnp.inf)
    step = jnp.min(delta, 0)
    n = s.side.shape[0]
    k = jnp.min(jnp.where(delta == step, jnp.arange(n, dtype=jnp.int32)[:, None], n - 1), 0)

    full = (s.slot >= 0).sum(0) == s.w.shape[0] - 1
    any_on = (s.side == ON).any(0)
    still = ~any_on | (speed <= problem.zero * problem.scale)
    opposed = (A < 0) & (across <= problem.across)
    code = jnp.where(
        still,
        jnp.where(any_on, RESTING, DEAD),
        jnp.where(
            opposed,
            jnp.where(full, PINNED, UNSURE),
            # Held in the span but not outside it: it reaches 0 there, where all hyperplanes meet.
            jnp.where(
                full & (A < 0),
                SPLIT,
                jnp.where(jnp.isinf(step), RAY, jnp.where(s.events >= problem.cap, UNSURE, RUNNING)),
            ),
        ),
    )
    code = jnp.where(free, code, s.code)
    go = free & (code == RUNNING)

    length = jnp.where(go, step, 0.0) * safe
    new = s.w + length * e
    norm = jnp.where(go, jnp.sqrt(jnp.sum(new * new, 0) + s.outside**2), 1.0)
    duration = (_log_sum(A + length, across) - _log_sum(A, across)) / safe
    keep = lambda a, b: jnp.where(go, a, b)  # noqa: E731
    return s._replace(
        w=keep(new / norm, s.w),
        outside=keep(s.outside / norm, s.outside),
        code=code,
        pending=keep(k, s.pending),
        done=keep(0.0, s.done),
        events=keep(s.events + 1, s.events),
        time=keep(s.time + duration, s.time),
        log_norm=keep(s.log_norm + jnp.log(norm), s.log_norm),
    )


def _log_sum(r, across):
    """log(r + sqrt(r² + across²)) without cancellation."""
    rho = jnp.sqrt(r * r + across * across)
    return jnp.where(r >= 0, jnp.log(rho + jnp.abs(r)), 2 * jnp.log(across) - jnp.log(rho + jnp.abs(r)))


def _stretch(problem: Problem, s: Lanes, beta) -> Lanes:
    """One stretch of the homotopy in the pending pull, up to the next change of the sliding set."""
    live = (s.code == RUNNING) & (s.pending >= 0)
    k = jnp.maximum(s.pending, 0)
    p = problem.p[k]
    was_on = _pick(s.side, k) == ON
    signed = jnp.where(was_on, -p, p)  # q = signed x_k
    used = s.slot >= 0
    rows = jnp.maximum(s.slot, 0)
    strength = jnp.where(used, -problem.p[rows], 1.0)

    g = jnp.where(used, problem.gram[rows, k[None]], 0.0)
    coordinates = _apply(s.inverse, g)  # of x_k's projection on the sliding rows
    size2 = problem.norms[k] ** 2 - jnp.sum(g * coordinates, 0)  # ‖P x_k‖²
    rate = signed * coordinates / strength  # of c
    moves = used & (rate != 0)
    room = jnp.where(rate > 0, 1 - s.c, -s.c) / jnp.where(moves, rate, 1.0)
    to_bound = jnp.where(moves, jnp.maximum(room, 0.0), jnp.inf)
    first = jnp.min(to_bound, 0)
    slots = jnp.arange(s.slot.shape[0], dtype=jnp.int32)[:, None]
    j = jnp.min(jnp.where(to_bound == first, slots, s.slot.shape[0] - 1), 0)
    pull, drift = _pick(beta, k), signed * size2
    slides = (p < 0) & (drift * pull < 0)
    to_slide = jnp.where(slides, -pull / jnp.where(slides, drift, 1.0), jnp.inf)
    left = 1 - s.done
    enters = live & (to_slide <= jnp.minimum(left, first))
    leaves = live & ~enters & (first < left)
    ends = live & ~enters & ~leaves

    t = jnp.where(live, jnp.minimum(left, jnp.minimum(first, to_slide)), 0.0)
    c = jnp.clip(s.c + t * rate, 0.0, 1.0)
    done = s.done + t
    share = jnp.where(was_on, 1 - done, done)

    # k enters: the inverse Gram matrix grows by its border.
    place = jnp.min(jnp.where(used, s.slot.shape[0] - 1, slots), 0)
    into = (slots == place) & enters
    border = jnp.where(into, -1.0, coordinates)
    grown = border / jnp.where(size2 > 0, size2, 1.0)
    # Slot j leaves: its row and column are eliminated.
    out = (slots == j) & leaves
    column = jnp.sum(jnp.where(out[None], s.inverse, 0.0), 1)
    corner = jnp.sum(jnp.where(out, column, 0.0), 0)
    shrunk = -column / jnp.where(corner > 0, corner, 1.0)
    left_factor = jnp.where(enters, border, jnp.where(leaves, column, 0.0))
    right_factor = jnp.where(enters, grown, jnp.where(leaves, shrunk, 0.0))
    inverse = s.inverse + left_factor[:, None] * right_factor[None]
    inverse = jnp.where((out[:, None] | out[None]), 0.0, inverse)

    example = jnp.sum(jnp.where(out, s.slot, 0), 0)
    upper = (out & (rate > 0)).any(0)
    mu = _put_slots(s.mu, s.slot, -strength * c)
    mu = _put(mu, k, jnp.where(live, share * p, _pick(mu, k)))
    side = _put(
        s.side, k, jnp.where(enters, SLIDING, jnp.where(ends, jnp.where(was_on, OFF, ON), _pick(s.side, k)))
    )
    side = _put(side, example, jnp.where(leaves, jnp.where(upper, ON, OFF), _pick(side, example)))
    slot = jnp.where(into, k, jnp.where(out, -1, s.slot))
    return s._replace(
        mu=mu,
        side=side,
        slot=slot,
        inverse=inverse,
        c=jnp.where(into, share, jnp.where(out, 0.0, c)),
        done=done,
        pending=jnp.where(enters | ends, -1, s.pending),
        events=s.events + leaves,
        most=jnp.maximum(s.most, (slot >= 0).sum(0)),
        code=jnp.where(enters & used.all(0), CROWDED, s.code),
    )


def _pick(table, k):
    """table[k_b, b] for every lane b."""
    return jnp.take_along_axis(table, k[None], 0)[0]


def _put(table, k, value):
    return table.at[k, jnp.arange(k.shape[0])].set(value.astype(table.dtype))


def _pick_slots(table, slot):
    return jnp.where(slot >= 0, jnp.take_along_axis(table, jnp.maximum(slot, 0), 0), 0.0)


def _put_slots(table, slot, value):
    """table[slot_jb, b] = value_jb where the slot is occupied."""
    row = jnp.where(slot >= 0, slot, table.shape[0])
    return table.at[row, jnp.arange(slot.shape[1])[None]].set(value, mode="drop")


def _apply(matrix, vector):
    return jnp.sum(matrix * vector[None], 1)


def _times(A, B):
    return jnp.moveaxis(jnp.moveaxis(A, 2, 0) @ jnp.moveaxis(B, 2, 0), 0, 2)


def call(problem: Problem, lanes: Lanes, finished, w, outside, passes: int = PASSES):
    """Refill the finished lanes with new directions, make `passes` passes, refresh; (lanes, v, fingerprints)."""
    fresh = start(problem, w, outside, lanes.slot.shape[0])
    lanes = jax.tree.map(lambda new, old: jnp.where(finished, new, old), fresh, lanes)
    lanes = jax.lax.fori_loop(0, passes, lambda _, s: one_pass(problem, s), lanes)
    lanes = refresh(problem, lanes)
    return lanes, problem.X.T @ lanes.mu, jnp.sum(problem.mix[:, None] * lanes.side, 0)


advance_many = jax.jit(call, static_argnames=("passes",), donate_argnums=(1,))
