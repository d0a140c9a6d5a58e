"""The F1 margin in rank at most 3: linear programs over directions, priced by every face of the arrangement.

The linear program over the directions so far gives masses and weights α, both to the last digits (a vertex). The best
direction within each face for this α enters, and so do its neighbours at distance ε along its face. Inside a face a
direction that is off by ε loses only O(ε²) of the price, and the next best directions lie between their neighbours:
with ε of the size of the square root of the gap, each round multiplies the gap by a small factor where directions
alone, as cutting planes, would crawl. Nothing has to be guessed about which rows or neurons are active in the end.
"""

import numpy as np

from marginflow._core.progress import progress
from marginflow._core.status import Outcome
from marginflow.margins import f1_faces
from marginflow.margins.certificates_f1 import FACTOR
from marginflow.margins.f1_measure import Found, State, features, merged
from marginflow.margins.f1_program import masses
from marginflow.margins.inner_ascent import values

NEAR = 0.1  # faces whose best value is within this share of the margin are priced
OFFERS = 60  # of one sign, at most
STEPS = (1.0, 0.1, 0.01)  # distances of the neighbours, in units of the square root of the relative gap
FINEST = 1e-8
POOL = 2000  # columns kept
PATIENCE = 6  # rounds without progress on either side


def generate(X: np.ndarray, y: np.ndarray, squared: bool, *, rounds: int, tolerance: float) -> Found:
    """Columns until the two sides meet within `tolerance`, or `rounds` programs. Rows X span R^r, r <= 3."""
    arrangement = f1_faces.faces(X)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    v, sign = np.concatenate([unit, -unit, unit, -unit]), np.repeat([1.0, -1.0], 2 * len(X))
    floor = 1e-13 * float(np.linalg.norm(X, axis=1).max()) ** (2 if squared else 1)
    best, dual, stuck = None, (np.inf, np.full(len(y), 1 / len(y))), 0
    with progress(rounds, "F1 margin") as meter:
        for steps in range(1, rounds + 1):
            program = masses(features(v, sign, X, y, squared), None if best is None else best.value)
            state = _state(v, sign, program, X, y, squared)
            gained = best is None or state.value > best.value * (1 + tolerance / 10)
            best = state if best is None or state.value > best.value else best
            level = (1 - NEAR) * max(best.value, 0.0)
            offers = [
                f1_faces.best_points(arrangement, X, s * program.weights * y, squared, level) for s in (1, -1)
            ]
            found = max([reached.max() for _, reached, _ in offers if len(reached)], default=0.0)
            gained |= found < dual[0] * (1 - tolerance / 10)
            dual = min(dual, (found, program.weights), key=lambda one: one[0])
            closed = dual[0] <= best.value * (1 + tolerance) + floor
            stuck = 0 if gained else stuck + 1
            if closed or steps == rounds or stuck >= PATIENCE:
                outcome = (
                    Outcome.CONVERGED
                    if closed
                    else Outcome.STALLED
                    if stuck >= PATIENCE
                    else Outcome.MAX_STEPS
                )
                return Found(best, dual[1], dual[0], True, outcome, steps)
            width = np.sqrt(max(found - best.value, 0.0) / found) if found > 0 else 1.0
            price = sign * values(v, X, program.weights * y, squared)
            keep = np.union1d(np.flatnonzero(program.mass > 0), np.argsort(-price, kind="stable")[:POOL])
            fresh = [_with_neighbours(*offer, width) for offer in offers]
            v = np.concatenate([v[keep], state.v, *fresh])
            signs = np.repeat([1.0, -1.0], [len(c) for c in fresh])
            sign = np.concatenate([sign[keep], state.sign, signs])
            kappa = FACTOR[squared]
            meter.advance(1, f"margin {kappa * best.value:.5g}, dual {kappa * dual[0]:.5g} (scaled rows)")
    raise AssertionError("unreachable: the last round returns")


def _state(v, sign, program, X, y, squared) -> State:
    used = program.mass > 0
    u, s, mass = v[used], sign[used], program.mass[used]
    if not squared:
        u, s = merged(u * mass[:, None], s, X, y)
        length = np.linalg.norm(u, axis=1)
        u, s, mass = u[length > 0] / length[length > 0, None], s[length > 0], length[length > 0]
    mass = mass / mass.sum()
    value = float((features(u, s, X, y, squared) @ mass).min())
    return State(u, s, mass, program.weights, value, program.outcome)


def _with_neighbours(
    C: np.ndarray, reached: np.ndarray, tangents: list[np.ndarray], width: float
) -> np.ndarray:
    chosen = np.argsort(-reached, kind="stable")[:OFFERS]
    out = [C[chosen]]
    for k in chosen:
        for step in STEPS:
            move = max(step * width, FINEST) * tangents[k]
            out += [C[k] + move, C[k] - move]
    out = np.concatenate(out)
    return out / np.linalg.norm(out, axis=1, keepdims=True)
