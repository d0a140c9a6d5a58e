"""The early phase of many neurons at once: fixed shapes, one event per lane and pass, on CPU and GPU.

A lane carries w (unit, in coordinates of the span of the data), the least-norm velocity v, the side of every
hyperplane, and for the sliding set Z a table of slots: the rows x_k, their dual basis D (D_k ∈ span, D_kᵀx_l =
δ_kl) and the coefficients c. One pass is: two matrix products for wᵀx_i and vᵀx_i, the ratio test, the step, and
one stretch of the homotopy that carries v to its new value while the pull q = ±p_k x_k of the example just met is
added gradually. Along it v moves by P q, c by Dq/|p|, and it stops early when k itself begins to slide (kᵀv = 0)
or a coefficient reaches a bound and its hyperplane leaves. A hyperplane that left too early is met again at once
with step 0, so the sequence ends at the least-norm velocity, which is unique; `early` finds the same one by
solving the bounded problem anew.

Lanes are the last axis everywhere: every small operation is then one vectorised loop over lanes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

OFF, ON, SLIDING = 0, 1, 2
RUNNING, RAY, DEAD, PINNED, RESTING, UNSURE = range(6)

PASSES = 24  # per call: long enough to hide the call, short enough that finished lanes do not idle


class Problem(NamedTuple):
    """What is shared by all lanes. X: (n, r) rows in the span; p charges; the rest are thresholds."""

    X: Any
    p: Any
    norms: Any
    scale: Any
    zero: Any
    across: Any
    cap: Any
    mix: Any  # random odd integers: a pattern's fingerprint is Σ mix·side


class Lanes(NamedTuple):
    w: Any  # (r, B)
    outside: Any  # (B,) length of w outside the span of the data, constant up to normalisation
    v: Any  # (r, B)
    side: Any  # (n, B) OFF, ON, SLIDING
    slot: Any  # (m, B) example in the slot, -1 if free
    rows: Any  # (m, r, B)
    dual: Any  # (m, r, B)
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
    r, B = w.shape
    z = problem.X @ w
    side = jnp.where(z > problem.zero * problem.norms[:, None], ON, OFF).astype(jnp.int8)
    f = lambda *shape: jnp.zeros((*shape, B))  # noqa: E731
    i = lambda value: jnp.full((B,), value, jnp.int32)  # noqa: E731
    v = problem.X.T @ jnp.where(side == ON, problem.p[:, None], 0.0)
    return Lanes(w, outside, v, side, jnp.full((slots, B), -1, jnp.int32), f(slots, r), f(slots, r), f(slots),
                 i(-1), f(), i(RUNNING), i(0), f(), f(), i(0))


def refresh(problem: Problem, lanes: Lanes) -> Lanes:
    """v, the dual basis and the coefficients from their definitions: rounding does not outlive a call."""
    m = lanes.slot.shape[0]
    used = lanes.slot >= 0
    gram = jnp.einsum("irb,jrb->bij", lanes.rows, lanes.rows)
    gram = gram + jnp.eye(m) * (~used).T[:, None, :]
    dual = jnp.moveaxis(jnp.linalg.solve(gram, jnp.moveaxis(lanes.rows, 2, 0)), 0, 2)
    pull = jnp.where(lanes.side == ON, problem.p[:, None], 0.0)
    # While a pull is being added, `side` still shows the old side of that example.
    k = jnp.maximum(lanes.pending, 0)
    was_on = jnp.take_along_axis(lanes.side, k[None], 0)[0] == ON
    share = jnp.where(lanes.pending >= 0, jnp.where(was_on, -lanes.done, lanes.done), 0.0) * problem.p[k]
    v0 = problem.X.T @ pull + share * problem.X[k].T
    strength = -problem.p[jnp.maximum(lanes.slot, 0)]
    coordinates = jnp.sum(dual * v0, axis=1)
    v = v0 - jnp.sum(coordinates[:, None] * lanes.rows, axis=0)
    c = jnp.where(used, coordinates / strength, 0.0)
    unsure = (used & ((c < -1e-6) | (c > 1 + 1e-6))).any(0) | ~jnp.isfinite(v).all(0)
    code = jnp.where(unsure & (lanes.code == RUNNING), UNSURE, lanes.code)
    return lanes._replace(v=v, dual=jnp.where(used[:, None], dual, 0.0), c=c, code=code)


def one_pass(problem: Problem, lanes: Lanes) -> Lanes:
    after = _stretch(problem, _advance(problem, lanes))
    return jax.tree.map(lambda new, old: new.astype(old.dtype), after, lanes)


def _advance(problem: Problem, s: Lanes) -> Lanes:
    """To the next hyperplane, for lanes with nothing pending; classify the lanes that have none."""
    free = (s.code == RUNNING) & (s.pending < 0)
    size2 = jnp.sum(s.v * s.v, 0)
    speed = jnp.sqrt(size2)
    safe = jnp.where(speed > 0, speed, 1.0)
    e = s.v / safe
    A = jnp.sum(e * s.w, 0)
    residual = s.w - A * e
    across = jnp.sqrt(jnp.sum(residual * residual, 0) + s.outside**2)
    z, beta = problem.X @ s.w, problem.X @ s.v
    threshold = (problem.zero * problem.scale * problem.norms)[:, None]
    towards = jnp.where(s.side == ON, -beta, beta)
    moving = (s.side != SLIDING) & (towards > threshold)
    delta = jnp.where(moving, jnp.maximum(-z / jnp.where(moving, beta, 1.0), 0.0), jnp.inf)
    step = jnp.min(delta, 0)
    k = jnp.argmax(delta == step, axis=0).astype(jnp.int32)

    held = (s.slot >= 0).sum(0)
    full = held == s.w.shape[0] - 1
    any_on = (s.side == ON).any(0)
    still = ~any_on | (speed <= problem.zero * problem.scale)
    opposed = (A < 0) & (across <= problem.across)
    code = jnp.where(still, jnp.where(any_on, RESTING, DEAD),
           jnp.where(opposed, jnp.where(full, PINNED, UNSURE),
           jnp.where(jnp.isinf(step), RAY,
           jnp.where(s.events >= problem.cap, UNSURE, RUNNING))))
    code = jnp.where(free, code, s.code).astype(jnp.int32)
    go = free & (code == RUNNING)

    length = jnp.where(go, step, 0.0) * safe
    new = s.w + length * e
    new = new - jnp.sum(jnp.sum(s.dual * new, 1)[:, None] * s.rows, 0)
    # Held on every hyperplane but with a component outside the span: the step ends at 0 within the span.
    new = jnp.where(full & (A < 0), 0.0, new)
    norm = jnp.sqrt(jnp.sum(new * new, 0) + s.outside**2)
    norm = jnp.where(go, norm, 1.0)
    duration = (_log_sum(A + length, across) - _log_sum(A, across)) / safe
    keep = lambda a, b: jnp.where(go, a, b)  # noqa: E731
    return s._replace(
        w=keep(new / norm, s.w), outside=keep(s.outside / norm, s.outside), code=code,
        pending=keep(k, s.pending), done=keep(0.0, s.done), events=keep(s.events + 1, s.events),
        time=keep(s.time + duration, s.time), log_norm=keep(s.log_norm + jnp.log(norm), s.log_norm))


def _log_sum(r, across):
    """log(r + sqrt(r² + across²)) without cancellation."""
    rho = jnp.sqrt(r * r + across * across)
    return jnp.where(r >= 0, jnp.log(rho + jnp.abs(r)), 2 * jnp.log(across) - jnp.log(rho + jnp.abs(r)))


def _stretch(problem: Problem, s: Lanes) -> Lanes:
    """One stretch of the homotopy in the pending pull, up to the next change of the sliding set."""
    live = (s.code == RUNNING) & (s.pending >= 0)
    k = jnp.maximum(s.pending, 0)
    x, p = problem.X[k].T, problem.p[k]
    hit = jnp.arange(s.side.shape[0], dtype=jnp.int32)[:, None] == k
    was_on = (hit & (s.side == ON)).any(0)
    signed = jnp.where(was_on, -p, p)  # q = signed x
    used = s.slot >= 0
    strength = jnp.where(used, -problem.p[jnp.maximum(s.slot, 0)], 1.0)

    coordinates = jnp.sum(s.dual * x, 1)  # of x_k in the sliding rows
    across = x - jnp.sum(coordinates[:, None] * s.rows, 0)  # P x_k
    size2 = jnp.sum(across * across, 0)
    rate = signed * coordinates / strength  # of c
    to_bound = jnp.where(used & (rate != 0), jnp.maximum(jnp.where(rate > 0, 1 - s.c, -s.c) / jnp.where(rate != 0, rate, 1.0), 0.0),
                         jnp.inf)
    first = jnp.min(to_bound, 0)
    j = jnp.argmax(to_bound == first, axis=0)
    pull = jnp.sum(x * s.v, 0)
    drift = signed * size2
    slides = (p < 0) & (drift * pull < 0)
    to_slide = jnp.where(slides, -pull / jnp.where(slides, drift, 1.0), jnp.inf)
    left = 1 - s.done
    t = jnp.minimum(left, jnp.minimum(first, to_slide))
    enters = live & (to_slide <= jnp.minimum(left, first))
    leaves = live & ~enters & (first < left)
    ends = live & ~enters & ~leaves

    t = jnp.where(live, t, 0.0)
    v = s.v + t * signed * across
    c = jnp.where(used, jnp.clip(s.c + t * rate, 0.0, 1.0), 0.0)
    done = s.done + t

    # k enters: a free slot takes it; the other dual vectors lose their part along it.
    slots = jnp.arange(s.slot.shape[0])[:, None]
    place = jnp.argmax(~used, axis=0)
    into = (slots == place) & enters
    overflow = enters & used.all(0)
    own = across / jnp.where(size2 > 0, size2, 1.0)
    dual = jnp.where(enters, s.dual - coordinates[:, None] * own, s.dual)
    dual = jnp.where(into[:, None], own, dual)
    rows = jnp.where(into[:, None], x, s.rows)
    c = jnp.where(into, jnp.where(was_on, 1 - done, done), c)
    slot = jnp.where(into, k, s.slot)

    # slot j leaves: its dual direction is handed back to the others.
    out = (slots == j) & leaves
    gone = jnp.sum(jnp.where(out[:, None], s.dual, 0.0), 0)
    gone2 = jnp.sum(gone * gone, 0)
    shared = jnp.sum(s.dual * gone, 1) / jnp.where(gone2 > 0, gone2, 1.0)
    dual = jnp.where(leaves, s.dual - shared[:, None] * gone, dual)
    dual = jnp.where(out[:, None], 0.0, dual)
    rows = jnp.where(out[:, None], 0.0, rows)
    example = jnp.sum(jnp.where(out, s.slot, 0), 0)
    upper = (out & (rate > 0)).any(0)
    slot = jnp.where(out, -1, slot)
    c = jnp.where(out, 0.0, c)

    index = jnp.arange(s.side.shape[0], dtype=jnp.int32)[:, None]
    flipped = jnp.where(was_on, OFF, ON)
    side = jnp.where(hit & (enters | ends), jnp.where(enters, SLIDING, flipped), s.side)
    side = jnp.where((index == example) & leaves, jnp.where(upper, ON, OFF), side).astype(jnp.int8)
    return s._replace(
        v=v, c=c, slot=slot, rows=rows, dual=dual, side=side, done=done,
        pending=jnp.where(enters | ends, -1, s.pending), events=s.events + leaves,
        most=jnp.maximum(s.most, (slot >= 0).sum(0)), code=jnp.where(overflow, UNSURE, s.code))


def call(problem: Problem, lanes: Lanes, finished, w, outside, passes: int = PASSES):
    """Refill the finished lanes with new directions, make `passes` passes, refresh; (lanes, fingerprints)."""
    fresh = start(problem, w, outside, lanes.slot.shape[0])
    lanes = jax.tree.map(lambda new, old: jnp.where(finished, new, old), fresh, lanes)
    lanes = jax.lax.fori_loop(0, passes, lambda _, s: one_pass(problem, s), lanes)
    lanes = refresh(problem, lanes)
    return lanes, jnp.sum(problem.mix[:, None] * lanes.side, 0)


advance_many = jax.jit(call, static_argnames=("passes",), donate_argnums=(1,))
