"""Primal and dual of the F1 margin driven together: master program, pricing, and the global check where it is in reach.

One round: the master program gives neurons and weights α; pricing climbs from many starts to local maxima of
|Σ α_i y_i φ(cᵀx_i)|; those above the margin enter the next master. For ReLU the master is the pattern program, whose
interior-point α is a centre of the dual optimal face, which steadies pricing as a level or bundle step would; for
S-ReLU it is the linear program over all directions kept so far.
"""

from typing import NamedTuple

import numpy as np

from marginflow._core.progress import progress
from marginflow._core.status import Outcome
from marginflow.margins.certificates_f1 import FACTOR, weights_from_above
from marginflow.margins.f1_particles import descend
from marginflow.margins.f1_program import masses, patterned
from marginflow.margins.inner import reachable
from marginflow.margins.inner_ascent import climb, values

NEGLIGIBLE = 1e-9  # share of the mass below which a neuron leaves the master
SAME = 1e-6  # distance of two unit directions of one sign, below which they are one neuron
STARTS = 200  # random starts of one pricing
OFFERS = 30  # neurons that enter per round and sign, at most
OFFER_COSINE = 0.99  # and no two of them closer than this
POOL = 400  # directions an S-ReLU master keeps


class State(NamedTuple):
    """Unit directions with signs and masses (sum 1), weights α, the margin reached (without the factor κ)."""

    v: np.ndarray
    sign: np.ndarray
    mass: np.ndarray
    weights: np.ndarray
    value: float
    outcome: Outcome


class Found(NamedTuple):
    """Where the search ended: its last state, what pricing found for its α, and the proved bound if there is one."""

    state: State
    found: float
    upper: float | None
    method: str
    outcome: Outcome
    steps: int


def search(X: np.ndarray, y: np.ndarray, squared: bool, *, count: int, rounds: int, rng: np.random.Generator,
           tolerance: float, search_gap: float, max_nodes: int | None) -> Found:
    """Rows X in coordinates of their span, of size about 1. `tolerance` rules where a proof is in reach, else `search_gap`."""
    first = descend(X, y, max(count, 2), rng, squared=squared)
    length = np.linalg.norm(first.u, axis=1)
    v, sign = first.u / length[:, None], first.sign
    program = masses(_features(v, sign, X, y, squared))
    used = program.mass > 0
    state = _master(v[used], sign[used], program.mass[used], X, y, squared)
    floor = 1e-13 * float(np.linalg.norm(X, axis=1).max()) ** (2 if squared else 1)
    activation = "srelu" if squared else "relu"
    stuck = 0
    with progress(rounds, "F1 margin") as meter:
        for steps in range(rounds + 1):
            provable = reachable(X[state.weights > 0], y[state.weights > 0], squared)
            gap = tolerance / 4 if provable else search_gap
            new_v, new_sign, found = _price(state, X, y, squared, rng)
            upper, method, closed = None, "ascent", found <= state.value * (1 + gap) + floor
            stalled = stuck >= 3
            if provable and (closed or stalled or steps == rounds):
                upper, both = weights_from_above(X, y, state.weights, activation, tolerance=tolerance / 4,
                                                 starts=state.v, max_nodes=max_nodes)
                method = both[0].method
                found = max(found, *(one.value for one in both))
                closed = found <= state.value * (1 + gap) + floor
                if not closed:
                    new_v = np.concatenate([new_v, [one.direction for one in both]])
                    new_sign = np.concatenate([new_sign, [1.0, -1.0]])
            if closed or steps == rounds or (stalled and not len(new_v)) or stuck >= 8:
                outcome = Outcome.CONVERGED if closed else Outcome.MAX_STEPS if steps == rounds else Outcome.STALLED
                return Found(state, found, upper, method, outcome, steps)
            share = np.full(len(new_v), state.mass.mean() * 1e-3)
            following = _master(np.concatenate([state.v, new_v]), np.concatenate([state.sign, new_sign]),
                                np.concatenate([state.mass, share]), X, y, squared)
            stuck = stuck + 1 if following.value <= state.value * (1 + gap / 100) else 0
            if following.value > state.value * (1 - 1e-6) or following.outcome is Outcome.CONVERGED:
                state = following
            kappa = FACTOR[squared]
            meter.advance(1, f"margin {kappa * state.value:.5g}, dual {kappa * found:.5g} (scaled rows)")
    raise AssertionError("unreachable: the last round returns")


def _features(v, sign, X, y, squared) -> np.ndarray:
    z = np.maximum(X @ v.T, 0.0)
    return y[:, None] * (np.square(z) if squared else z) * sign


def _master(v, sign, mass, X, y, squared) -> State:
    """The best measure the master program makes of these neurons; duplicates merged, unused ones dropped."""
    if squared:
        program = masses(_features(v, sign, X, y, True))
        keep = np.flatnonzero(program.mass > 0)
        if len(v) > POOL:
            worth = np.abs(values(v, X, program.weights * y, True))
            keep = np.union1d(keep, np.argsort(-worth, kind="stable")[:POOL // 2])
        else:
            keep = np.arange(len(v))
        return State(v[keep], sign[keep], program.mass[keep], program.weights, program.value, program.outcome)
    solved = patterned(v * np.maximum(mass, 1e-12)[:, None], sign, X, y)
    length = np.linalg.norm(solved.v, axis=1)
    keep = length > NEGLIGIBLE * length.sum()
    if not keep.any():
        return State(v, sign, mass, solved.weights, -np.inf, solved.outcome)
    u, sign, mass = solved.v[keep] / length[keep, None], sign[keep], length[keep]
    group = _groups(u, sign)
    merged = np.zeros((group.max() + 1, u.shape[1]))
    np.add.at(merged, group, u * mass[:, None])
    first = np.array([np.flatnonzero(group == g)[0] for g in range(len(merged))])
    mass = np.linalg.norm(merged, axis=1)
    u, sign = merged / mass[:, None], sign[first]
    mass = mass / mass.sum()
    value = float((_features(u, sign, X, y, False) @ mass).min())
    return State(u, sign, mass, solved.weights, value, solved.outcome)


def _groups(u: np.ndarray, sign: np.ndarray) -> np.ndarray:
    """Label of the cluster each neuron falls in: same sign, within SAME of the cluster's first member."""
    near = (np.linalg.norm(u[:, None] - u[None], axis=2) <= SAME) & (sign[:, None] == sign[None])
    leader = near.argmax(axis=1)
    return np.unique(leader, return_inverse=True)[1]


def _price(state: State, X, y, squared, rng) -> tuple[np.ndarray, np.ndarray, float]:
    """Local maxima of ±Σ α_i y_i φ(cᵀx_i) above the margin, best first and apart from each other; the best value."""
    offers, signs, top = [np.empty((0, X.shape[1]))], [np.empty(0)], 0.0
    for s in (1.0, -1.0):
        beta = s * state.weights * y
        starts = np.concatenate([rng.standard_normal((STARTS, X.shape[1])), state.v])
        c = climb(starts, X, beta, squared)
        g = values(c, X, beta, squared)
        top = max(top, float(g.max()))
        taken: list[int] = []
        for j in np.argsort(-g, kind="stable"):
            if g[j] <= state.value or len(taken) == OFFERS:
                break
            if not taken or (c[taken] @ c[j]).max() < OFFER_COSINE:
                taken.append(int(j))
        offers.append(c[taken])
        signs.append(np.full(len(taken), s))
    return np.concatenate(offers), np.concatenate(signs), top
