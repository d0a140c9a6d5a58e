"""The F1 margin by linear programs over directions, each priced by its best directions and their neighbours.

The linear program over the directions so far gives masses and weights α, both to the last digits (a vertex). The local
maxima of |Σ α_i y_i φ(cᵀx_i)| for this α enter, and so do their neighbours at distance ε along the face of the
arrangement {x_iᵀc = 0} they lie in. Inside a face a direction that is off by ε loses only O(ε²) of the price, and the
next best directions lie between the neighbours: with ε of the size of the square root of the gap, each round multiplies
the gap by a small factor where directions alone, as cutting planes, would crawl. Nothing has to be guessed about which
rows or neurons are active in the end.

Local maxima come from every face of the arrangement where these can be listed (`f1_faces`), else from local ascent.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from marginflow._core.progress import progress
from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS
from marginflow.margins import f1_faces
from marginflow.margins.certificates_f1 import FACTOR
from marginflow.margins.f1_measure import Found, State, features, merged
from marginflow.margins.f1_program import masses
from marginflow.margins.inner import InnerMax
from marginflow.margins.inner_ascent import climb, values

NEAR = 0.1  # local maxima within this share of the margin are priced
OFFERS = 60  # of one sign, at most
STEPS = (1.0, 0.1, 0.01)  # distances of the neighbours, in units of the square root of the relative gap
FINEST = 1e-8
TIED = 1e-7  # cosine below which a climbed direction lies on a hyperplane
APART = 1 - 1e-12  # cosine above which two climbed directions are one
STARTS = 200  # random starts of one climb
NEIGHBOURS = 600  # of one sign and round, at most
POOL = 1000  # columns kept beside those with mass
PATIENCE = 6  # rounds without progress on either side


class Offer(NamedTuple):
    """Unit directions, their values Σ β_i φ, and per direction the tangent vectors of its face as rows."""

    directions: np.ndarray
    reached: np.ndarray
    tangents: list[np.ndarray]


Oracle = Callable[
    [np.ndarray, np.ndarray, float], Offer
]  # of β, directions to start from, and the level to exceed
Proof = Callable[[np.ndarray, np.ndarray], tuple[InnerMax, InnerMax]]  # of α and directions to start from


def every_face(X: np.ndarray, squared: bool) -> Oracle:
    """All local maxima, rank <= 3."""
    arrangement = f1_faces.faces(X)
    return lambda beta, starts, level: Offer(*f1_faces.best_points(arrangement, X, beta, squared, level))


def climbing(X: np.ndarray, squared: bool, rng: np.random.Generator) -> Oracle:
    """The local maxima that ascent finds from random directions and from the neurons."""

    def offer(beta: np.ndarray, starts: np.ndarray, level: float) -> Offer:
        c = climb(np.concatenate([starts, rng.standard_normal((STARTS, X.shape[1]))]), X, beta, squared)
        reached = values(c, X, beta, squared)
        kept: list[int] = []
        for k in np.argsort(-reached, kind="stable"):
            if reached[k] <= level or len(kept) == OFFERS:
                break
            if not kept or (c[kept] @ c[k]).max() < APART:
                kept.append(int(k))
        return Offer(c[kept], reached[kept], [_tangents(c[k], X) for k in kept])

    return offer


def generate(
    X: np.ndarray,
    y: np.ndarray,
    squared: bool,
    oracle: Oracle,
    *,
    start: State | None = None,
    prove: Proof | None = None,
    rounds: int,
    tolerance: float,
) -> Found:
    """Columns until the two sides meet within `tolerance`, or `rounds` programs. Rows X span R^r.

    `prove` is asked when the oracle knows nothing better any more, and the direction it found joins the offers.
    """
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    v, sign = np.concatenate([unit, -unit, unit, -unit]), np.repeat([1.0, -1.0], 2 * len(X))
    if start is not None:
        v, sign = np.concatenate([v, start.v]), np.concatenate([sign, start.sign])
    floor = 8 * EPS * float(np.linalg.norm(X, axis=1).max()) ** (2 if squared else 1)
    best, dual, stuck = start, (np.inf, np.full(len(y), 1 / len(y))), 0
    with progress(rounds, "F1 margin") as meter:
        for steps in range(1, rounds + 1):
            program = masses(features(v, sign, X, y, squared), None if best is None else best.value)
            state = _state(v, sign, program, X, y, squared)
            gained = best is None or state.value > best.value * (1 + tolerance / 10)
            best = state if best is None or state.value > best.value else best
            level = (1 - NEAR) * max(best.value, 0.0)
            offers = [oracle(s * program.weights * y, state.v, level) for s in (1.0, -1.0)]
            found = max([float(one.reached.max()) for one in offers if len(one.reached)], default=0.0)
            if prove is not None and found <= best.value * (1 + tolerance) + floor:
                tops = prove(program.weights, state.v)
                offers = [_joined(one, top, X) for one, top in zip(offers, tops, strict=True)]
                found = max(found, *(top.value for top in tops))
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
                return Found(best, dual[1], dual[0], prove is not None, outcome, steps)
            width = np.sqrt(max(found - best.value, 0.0) / found) if found > 0 else 1.0
            price = sign * values(v, X, program.weights * y, squared)
            keep = np.union1d(np.flatnonzero(program.mass > 0), np.argsort(-price, kind="stable")[:POOL])
            fresh = [_with_neighbours(one, width) for one in offers]
            v = np.concatenate([v[keep], state.v, *fresh])
            signs = np.repeat([1.0, -1.0], [len(c) for c in fresh])
            sign = np.concatenate([sign[keep], state.sign, signs])
            kappa = FACTOR[squared]
            meter.advance(1, f"margin {kappa * best.value:.5g}, dual {kappa * dual[0]:.5g} (scaled rows)")
    raise AssertionError("unreachable: the last round returns")


def _state(v, sign, program, X, y, squared) -> State:
    """The program's measure; for ReLU, neurons of one pattern added up."""
    used = program.mass > 0
    u, s, mass = v[used], sign[used], program.mass[used]
    if not squared:
        u, s = merged(u * mass[:, None], s, X, y)
        length = np.linalg.norm(u, axis=1)
        u, s, mass = u[length > 0] / length[length > 0, None], s[length > 0], length[length > 0]
    mass = mass / mass.sum()
    value = float((features(u, s, X, y, squared) @ mass).min())
    return State(u, s, mass, program.weights, value, program.outcome)


def _joined(offer: Offer, top: InnerMax, X: np.ndarray) -> Offer:
    c = top.direction
    return Offer(
        np.concatenate([offer.directions, c[None]]),
        np.append(offer.reached, top.value),
        [*offer.tangents, _tangents(c, X)],
    )


def _tangents(c: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Orthonormal rows, orthogonal to c and to the rows whose hyperplanes it lies on."""
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    _, singular, right = np.linalg.svd(np.concatenate([c[None], unit[np.abs(unit @ c) <= TIED]]))
    return right[int((singular > 1e-9).sum()) :]


def _with_neighbours(offer: Offer, width: float) -> np.ndarray:
    C, chosen = offer.directions, np.argsort(-offer.reached, kind="stable")[:OFFERS]
    out = [C[chosen]]
    for k in chosen[: max(1, NEIGHBOURS // (2 * len(STEPS) * C.shape[1]))]:
        for step in STEPS:
            move = max(step * width, FINEST) * offer.tangents[k]
            out += [C[k] + move, C[k] - move]
    points = np.concatenate(out)
    return points / np.linalg.norm(points, axis=1, keepdims=True)
