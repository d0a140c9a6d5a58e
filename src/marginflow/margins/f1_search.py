"""Primal and dual of the F1 margin driven together: master program, pricing, and the global check where it is in reach.

One round: the master program gives neurons and weights α; pricing climbs from many starts to local maxima of
|Σ α_i y_i φ(cᵀx_i)|; those above the margin enter the next master. For ReLU the master is the pattern program, whose
interior-point α is a centre of the dual optimal face, which steadies pricing as a level or bundle step would; for
S-ReLU it is the linear program over all directions kept so far.
"""

import numpy as np

from marginflow._core.progress import progress
from marginflow._core.status import Outcome
from marginflow.margins import f1_columns, f1_faces
from marginflow.margins.certificates_f1 import FACTOR, weights_from_above
from marginflow.margins.f1_measure import Found, State, features, merged
from marginflow.margins.f1_particles import descend
from marginflow.margins.f1_polish import polish
from marginflow.margins.f1_program import masses, patterned
from marginflow.margins.inner import reachable
from marginflow.margins.inner_ascent import climb, values

EXACT, ROUGH = (
    (1e-9, 1e-9),
    (1e-8, 1e-5),
)  # (accuracy of the pattern program, share of mass below which a neuron leaves)
STARTS = 200  # random starts of one pricing
OFFERS = 15  # neurons that enter per round and sign, at most
OFFER_COSINE = 0.99  # and no two of them closer than this
POOL = 400  # directions the linear master keeps
CHECK = 1e-3  # relative gap below which the global maximum is asked for
SWITCH = 3  # rounds without progress on either side after which the linear master takes over
PATIENCE = 10  # and after which the search gives up


def search(
    X: np.ndarray,
    y: np.ndarray,
    squared: bool,
    *,
    count: int,
    rounds: int,
    rng: np.random.Generator,
    tolerance: float,
    search_gap: float,
    max_nodes: int | None,
) -> Found:
    """Rows X in coordinates of their span, of size about 1.

    `tolerance` is the aim where a proof is in reach, `search_gap` elsewhere. The best measure and the best weights are
    kept apart: they need not come from the same round. Where a proof is in reach and the pattern program's accuracy
    is used up, the linear master takes over: its α is a vertex, exact to the last digits, unlike an interior point.
    """
    if f1_faces.fits(X):
        return f1_columns.generate(X, y, squared, rounds=max(rounds, 1), tolerance=tolerance / 8)
    first = descend(X, y, max(count, 2), rng, squared=squared)
    length = np.linalg.norm(first.u, axis=1)
    v, sign = first.u / length[:, None], first.sign
    program = masses(features(v, sign, X, y, squared))
    used = program.mass > 0
    v, sign = v[used], sign[used]
    state = (
        _linear_master(v, sign, X, y, True)
        if squared
        else _pattern_master(v, sign, program.mass[used], X, y, EXACT if reachable(X, y, False) else ROUGH)
    )
    state = state if squared else _polished(state, X, y)
    floor = 1e-13 * float(np.linalg.norm(X, axis=1).max()) ** (2 if squared else 1)
    activation = "srelu" if squared else "relu"
    best, dual, stuck = state, (np.inf, state.weights, state.v), 0
    with progress(rounds, "F1 margin") as meter:
        for steps in range(rounds + 1):
            on = state.weights > 0
            provable = reachable(X[on], y[on], squared)
            gap = tolerance / 4 if provable else search_gap
            new_v, new_sign, found = _price(state, X, y, squared, rng, best.value)
            if provable and found <= best.value * (1 + CHECK) + floor:
                # Climbing may have missed the maximum: the proof decides, and its directions join the offers.
                both = weights_from_above(
                    X,
                    y,
                    state.weights,
                    activation,
                    tolerance=tolerance / 4,
                    starts=state.v,
                    max_nodes=max_nodes,
                )[1]
                found = max(found, *(one.value for one in both))
                new_v = np.concatenate([new_v, [one.direction for one in both]])
                new_sign = np.concatenate([new_sign, [1.0, -1.0]])
            narrower = found < dual[0] * (1 - gap / 10)
            dual = min(dual, (found, state.weights, state.v), key=lambda one: one[0])
            closed = dual[0] <= best.value * (1 + gap) + floor
            if closed or steps == rounds or stuck >= PATIENCE or not len(new_v):
                outcome = (
                    Outcome.CONVERGED if closed else Outcome.MAX_STEPS if steps == rounds else Outcome.STALLED
                )
                return Found(best, dual[1], dual[0], provable, outcome, steps)
            v, sign = np.concatenate([state.v, new_v]), np.concatenate([state.sign, new_sign])
            if squared or (provable and stuck >= SWITCH):
                state = _linear_master(v, sign, X, y, squared, best.value)
            else:
                share = np.full(len(new_v), state.mass.mean() * 1e-3)
                state = _pattern_master(
                    v, sign, np.concatenate([state.mass, share]), X, y, EXACT if provable else ROUGH
                )
                state = _polished(state, X, y) if provable else state
            stuck = 0 if narrower or state.value > best.value * (1 + gap / 10) else stuck + 1
            best = state if state.value > best.value else best
            kappa = FACTOR[squared]
            meter.advance(1, f"margin {kappa * best.value:.5g}, dual {kappa * dual[0]:.5g} (scaled rows)")
    raise AssertionError("unreachable: the last round returns")


def _linear_master(v, sign, X, y, squared, level=None) -> State:
    """Masses over all directions offered; of many, those without mass and far from their price are let go."""
    program = masses(features(v, sign, X, y, squared), level)
    keep = np.arange(len(v))
    if len(v) > POOL:
        price = sign * values(v, X, program.weights * y, squared)
        keep = np.union1d(np.flatnonzero(program.mass > 0), np.argsort(-price, kind="stable")[: POOL // 2])
    return State(v[keep], sign[keep], program.mass[keep], program.weights, program.value, program.outcome)


def _pattern_master(v, sign, mass, X, y, accuracy: tuple[float, float]) -> State:
    """The pattern program on these neurons; neurons of one pattern added up before and after, unused ones dropped."""
    u, sign = merged(v * np.maximum(mass, 1e-12)[:, None], sign, X, y)
    solved = patterned(u, sign, X, y, tolerance=accuracy[0])
    length = np.linalg.norm(solved.v, axis=1)
    keep = length > accuracy[1] * length.sum()
    if not keep.any():
        return State(v, np.ones(len(v)), mass, solved.weights, -np.inf, solved.outcome)
    u, sign = merged(solved.v[keep], sign[keep], X, y)
    mass = np.linalg.norm(u, axis=1)
    u, mass = u / mass[:, None], mass / mass.sum()
    value = float((features(u, sign, X, y, False) @ mass).min())
    return State(u, sign, mass, solved.weights, value, solved.outcome)


def _polished(state: State, X, y) -> State:
    """The state after Newton, with the first reading of ties and active rows that gives no smaller margin."""
    for width in (1e-5, 1e-4, 1e-6, 1e-3):
        proposal = polish(state.v * state.mass[:, None], state.sign, state.weights, X, y, width)
        if proposal is None:
            continue
        v, weights = proposal
        length = np.linalg.norm(v, axis=1)
        if not (length > 0).all():
            continue
        u, mass = v / length[:, None], length / length.sum()
        value = float((features(u, state.sign, X, y, False) @ mass).min())
        if value > state.value * (1 - 1e-12):
            return State(u, state.sign, mass, weights, value, state.outcome)
    return state


def _price(state: State, X, y, squared, rng, level: float) -> tuple[np.ndarray, np.ndarray, float]:
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
            if g[j] <= level or len(taken) == OFFERS:
                break
            if not taken or (c[taken] @ c[j]).max() < OFFER_COSINE:
                taken.append(int(j))
        offers.append(c[taken])
        signs.append(np.full(len(taken), s))
    return np.concatenate(offers), np.concatenate(signs), top
