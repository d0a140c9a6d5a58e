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
from marginflow.margins.certificates_f1 import weights_from_above
from marginflow.margins.f1_measure import Found, State, features, merged
from marginflow.margins.f1_particles import descend
from marginflow.margins.f1_polish import polish
from marginflow.margins.f1_program import masses, patterned
from marginflow.margins.inner import InnerMax, reachable
from marginflow.margins.inner_ascent import climb, values

# Accuracy of the pattern program, share of mass below which a neuron leaves, and how far above the smallest margin a
# row may lie (as a factor) to be in the program from the start.
EXACT, ROUGH = (1e-9, 1e-9, np.inf), (1e-8, 1e-5, 1.3)
STARTS = 200  # random starts of one pricing
ROUGH_GAIN = 1e-4  # relative gain of a step at which a start of a pricing first rests
OFFERS = 15  # neurons that enter per round and sign, at most
OFFER_COSINE = 0.99  # and no two of them closer than this
CHECK = 1e-3  # relative gap below which the global maximum is asked for
SWITCH = 3  # rounds without progress on either side after which columns take over, where a proof is in reach
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

    `tolerance` is the aim where a proof is in reach, `search_gap` elsewhere.
    """

    def prove(weights: np.ndarray, starts: np.ndarray) -> tuple[InnerMax, InnerMax]:
        options = {"tolerance": tolerance / 8, "starts": starts, "max_nodes": max_nodes}
        return weights_from_above(X, y, weights, "srelu" if squared else "relu", **options)[1]

    if f1_faces.fits(X):
        oracle = f1_columns.every_face(X, squared)
        return f1_columns.generate(
            X, y, squared, oracle, prove=prove, rounds=max(rounds, 1), tolerance=tolerance / 4
        )
    first = descend(X, y, max(count, 2), rng, squared=squared)
    length = np.linalg.norm(first.u, axis=1)
    v, sign = first.u / length[:, None], first.sign
    program = masses(features(v, sign, X, y, squared))
    used = program.mass > 0
    v, sign, mass = v[used], sign[used], program.mass[used]
    climbing = f1_columns.climbing(X, squared, rng)
    if squared:
        value = float((features(v, sign, X, y, True) @ mass).min())
        start = State(v, sign, mass, program.weights, value, program.outcome)
        provable = reachable(X, y, True)
        return f1_columns.generate(
            X, y, True, climbing, start=start, prove=prove if provable else None, rounds=max(rounds, 1),
            tolerance=tolerance / 4 if provable else search_gap,
        )  # fmt: skip
    state = _pattern_master(v, sign, mass, X, y, EXACT if reachable(X, y, False) else ROUGH)
    coarse = _patterns(_polished(state, X, y), X, y, prove, rounds, rng, tolerance, search_gap)
    if coarse.outcome is Outcome.CONVERGED or not coarse.provable or coarse.steps >= rounds:
        return coarse
    # The accuracy of the pattern program is used up; the α of a linear program is exact to the last digits.
    fine = f1_columns.generate(
        X,
        y,
        False,
        climbing,
        start=coarse.state,
        prove=prove,
        rounds=rounds - coarse.steps,
        tolerance=tolerance / 4,
    )
    weights, found = min((fine.weights, fine.found), (coarse.weights, coarse.found), key=lambda one: one[1])
    return fine._replace(weights=weights, found=found, steps=fine.steps + coarse.steps)


def _patterns(state: State, X, y, prove, rounds: int, rng, tolerance: float, search_gap: float) -> Found:
    """Pattern programs and pricing in turn. The best measure and the best weights need not come from one round."""
    floor = 1e-13 * float(np.linalg.norm(X, axis=1).max())
    best, dual, stuck = state, (np.inf, state.weights), 0
    with progress(rounds, "F1 margin") as meter:
        for steps in range(rounds + 1):
            on = state.weights > 0
            provable = reachable(X[on], y[on], False)
            gap = tolerance / 4 if provable else search_gap
            new_v, new_sign, found = _price(state, X, y, rng, best.value)
            if provable and found <= best.value * (1 + CHECK) + floor:
                # Climbing may have missed the maximum: the proof decides, and its directions join the offers.
                both = prove(state.weights, state.v)
                found = max(found, *(one.value for one in both))
                new_v = np.concatenate([new_v, [one.direction for one in both]])
                new_sign = np.concatenate([new_sign, [1.0, -1.0]])
            narrower = found < dual[0] * (1 - gap / 10)
            dual = min(dual, (found, state.weights), key=lambda one: one[0])
            closed = dual[0] <= best.value * (1 + gap) + floor
            patience = SWITCH if provable else PATIENCE
            if closed or steps == rounds or stuck >= patience or not len(new_v):
                outcome = (
                    Outcome.CONVERGED if closed else Outcome.MAX_STEPS if steps == rounds else Outcome.STALLED
                )
                return Found(best, dual[1], dual[0], provable, outcome, steps)
            v, sign = np.concatenate([state.v, new_v]), np.concatenate([state.sign, new_sign])
            mass = np.concatenate([state.mass, np.full(len(new_v), state.mass.mean() * 1e-3)])
            state = _pattern_master(v, sign, mass, X, y, EXACT if provable else ROUGH)
            state = _polished(state, X, y) if provable else state
            stuck = 0 if narrower or state.value > best.value * (1 + gap / 10) else stuck + 1
            best = state if state.value > best.value else best
            meter.advance(1, f"margin {best.value / 2:.5g}, dual {dual[0] / 2:.5g} (scaled rows)")
    raise AssertionError("unreachable: the last round returns")


def _pattern_master(v, sign, mass, X, y, accuracy: tuple[float, float, float]) -> State:
    """The pattern program on these neurons; neurons of one pattern added up before and after, unused ones dropped."""
    u, sign = merged(v * np.maximum(mass, 1e-12)[:, None], sign, X, y)
    solved = patterned(u, sign, X, y, tolerance=accuracy[0], reach=accuracy[2])
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


def _price(state: State, X, y, rng, level: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Local maxima of ±Σ α_i y_i φ(cᵀx_i) above the margin, best first and apart from each other; the best value.

    All starts climb roughly; the ones that count, and the best in any case, climb on to the top.
    """
    offers, signs, top = [], [], 0.0
    for s in (1.0, -1.0):
        beta = s * state.weights * y
        c = climb(
            np.concatenate([rng.standard_normal((STARTS, X.shape[1])), state.v]), X, beta, gain=ROUGH_GAIN
        )
        g = values(c, X, beta)
        taken = [int(g.argmax())]
        for j in np.argsort(-g, kind="stable"):
            if g[j] <= level or len(taken) == OFFERS:
                break
            if (c[taken] @ c[j]).max() < OFFER_COSINE:
                taken.append(int(j))
        best = climb(c[taken], X, beta)
        reached = values(best, X, beta)
        top = max(top, float(reached.max()))
        offers.append(best[reached > level])
        signs.append(np.full(len(offers[-1]), s))
    return np.concatenate(offers), np.concatenate(signs), top
