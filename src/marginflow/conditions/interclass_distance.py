"""Δ_r = max over rank-r orthogonal projections P of min_{y_i ≠ y_j} ‖P(x_i - x_j)‖, as a certified interval.

With Z = {x_i - x_j : y_i = 1, y_j = -1}, ‖Pz‖² = zᵀPz is linear in P, and the projections of rank r are the extreme
points of the Fantope {0 ⪯ P ⪯ I, tr P = r}. For every λ in the simplex over Z,
    Δ_r² <= max_P Σ λ_z zᵀPz = the sum of the r largest eigenvalues of Σ λ_z z zᵀ   (Ky Fan),
so any λ proves an upper bound, and any orthonormal r x d matrix a lower one. The search only looks for good ones; the
interval is proved by `certificates`, which knows neither the search nor its solver. The relaxation may leave a true
gap: rank-r matrices are fewer than the Fantope.
"""

import math

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.progress import progress
from marginflow._core.status import Outcome, Status
from marginflow.conditions import certificates
from marginflow.conditions.base import Condition, timed
from marginflow.conditions.closest import at_ordinary_scale, closest_pairs
from marginflow.conditions.fantope import ascend, fantope, ky_fan, starts
from marginflow.conditions.unit_rows import norms
from marginflow.data.dataset import Dataset

ROUNDS = 40  # passes over all pairs at most, fewer when a pass is expensive
BUDGET = 4e11  # multiplications spent on those passes: some ten seconds
ADDED = 24  # pairs a pass may add to the working set
WORKING = 240
SAMPLE = 96  # rows of each class, STARTS ascents: about a second in dimensions below a hundred
STARTS = 8
PATIENCE = 4  # rounds without progress that end the search
CLOSED = 1e-6  # relative gap, and relative progress that counts


@timed
def interclass_distance(data: Dataset, rank: int | None = None) -> Condition:
    """measured: the proved lower bound of Δ_r (r = d unless `rank` says otherwise: then P = I and the bounds meet);
    threshold: 0; slack: measured / max ‖x_i‖.

    holds: a projection that keeps the classes apart is proved; fails: equal points with different labels, Δ_r = 0.
    """
    r = data.d if rank is None else rank
    if not 1 <= r <= data.d:
        raise InputError(f"rank {r}; give a rank between 1 and the dimension {data.d}")
    given, (data, factor) = data, at_ordinary_scale(data)
    search = _Search(data, r)
    i, j = search.closest
    if np.array_equal(given.X[i], given.X[j]):
        witness = {"kind": "equal points with different labels", "rows": [i, j], "interval": [0.0, 0.0], "rank": r}
        return Condition("interclass_distance", Status.FAILS, 0.0, 0.0, 0.0, witness)
    search.run()
    lower = certificates.projected_distance(data, search.projection)
    upper = certificates.fantope_bound(data, search.pairs, search.weights, r)
    size = max(float(norms(block).max()) for block in data.blocks())
    with np.errstate(over="ignore"):
        slack, lower, upper = lower / size, lower / factor, upper / factor
    if not upper < math.inf or 0 < upper < np.finfo(float).tiny:
        raise InputError(
            f"{given.name}: the distance of the classes is beyond float range; multiply the data by a power of ten "
            "that brings their largest entry near 1, which changes nothing else"
        )
    witness = {"interval": [lower, upper], "rank": r, "projection": search.projection, "pairs": search.pairs,
               "weights": search.weights, "outcome": search.outcome}
    notes = (f"Δ_{r} lies in [{lower:.6g}, {upper:.6g}]",)
    return Condition("interclass_distance", Status.HOLDS if lower > 0 else Status.UNDECIDED, lower, 0.0, slack,
                     witness, notes=notes)


class _Search:
    """Column generation: solve the relaxation over a working set of pairs, look at all pairs, add the closest ones."""

    def __init__(self, data: Dataset, rank: int):
        self.data, self.rank = data, rank
        nearest = closest_pairs(data, np.eye(data.d), keep=1 if rank == data.d else ADDED)
        self.closest = (int(nearest.pairs[0, 0]), int(nearest.pairs[0, 1]))
        # To begin with: P = first r coordinates, and the closest pair alone, which says Δ_r <= Δ_d.
        self.projection = self.found = np.eye(data.d)[:rank]
        self.lower = -1.0
        self.pairs, self.weights, self.upper = nearest.pairs[:1], np.ones(1), float(nearest.distances[0])
        self.work = nearest.pairs
        # Few rows in a large dimension: all differences lie in the span of the rows, and the search stays in it.
        small = data.n < data.d and rank <= data.n
        self.basis = np.linalg.qr(np.asarray(data.X, np.float64).T)[0].T if small else None
        self.outcome = Outcome.CONVERGED

    def run(self) -> None:
        if self.rank == self.data.d:
            return
        self.outcome, stale = Outcome.MAX_STEPS, 0
        self._begin()
        rounds = self._rounds()
        with progress(rounds, "interclass distance") as meter:
            for _ in range(rounds):
                before = self.lower, self.upper
                new = self._round()
                if new is None:
                    self.outcome = Outcome.STALLED
                    return
                gained = self.lower > before[0] * (1 + CLOSED) or self.upper < before[1] * (1 - CLOSED)
                stale = 0 if gained else stale + 1
                meter.advance(status=f"[{self.lower:.4g}, {self.upper:.4g}]")
                if self.upper - self.lower <= CLOSED * self.upper or stale >= PATIENCE or not new:
                    self.outcome = Outcome.CONVERGED
                    return

    def _begin(self) -> None:
        """Ascents from many starts on all pairs of a sample; a working set of close pairs knows too little for that."""
        sample = [rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE] for rows in (self.data.positive, self.data.negative)]
        plus, minus = (self._coordinates(rows) for rows in sample)
        Z = (plus[:, None] - minus[None]).reshape(-1, plus.shape[1])
        found = [ascend(Z, Q) for Q in starts(Z, self.rank, STARTS)]
        least = [np.einsum("ij,ij->i", Z @ Q.T, Z @ Q.T).min() for Q in found]
        for k in np.argsort(least)[-3:]:
            self._look(found[k])

    def _rounds(self) -> int:
        one_pass = 4.0 * len(self.data.positive) * len(self.data.negative) * (self.rank + 8)
        return int(np.clip(BUDGET / one_pass, 1, ROUNDS))

    def _round(self) -> int | None:
        """One solve and one look at all pairs; how many pairs were new to the working set."""
        Z = self._differences()
        solved = fantope(Z, self.rank)
        if solved is None:
            return None
        root, weights = solved
        kept = weights > 1e-12 * weights.max()
        upper = ky_fan(Z[kept], weights[kept], self.rank)
        if upper < self.upper:
            self.upper, self.pairs, self.weights = upper, self.work[kept], weights[kept]
        new = self._look(root[np.einsum("ij,ij->i", root, root) > 1e-9], candidate=False)
        for Q in (np.linalg.qr(root[-self.rank :].T)[0].T, self.found):
            new += self._look(ascend(Z, Q, hot=0.1))
        return new

    def _look(self, Q: np.ndarray, candidate: bool = True) -> int:
        """Add the pairs closest under Q, given in the coordinates of the search; how many were new."""
        coordinates, Q = Q, Q if self.basis is None else Q @ self.basis
        nearest = closest_pairs(self.data, Q, keep=ADDED)
        if candidate and nearest.distances[0] > self.lower:
            self.projection, self.found, self.lower = Q, coordinates, float(nearest.distances[0])
        before = len(self.work)
        self.work = np.unique(np.concatenate([self.work, nearest.pairs]), axis=0)
        new = len(self.work) - before
        if len(self.work) > WORKING:  # keep the pairs that are short or that the last dual used
            Z = self._differences()
            size = np.minimum(np.linalg.norm(Z @ coordinates.T, axis=1), np.linalg.norm(Z @ self.found.T, axis=1))
            used = (self.work[:, None] == self.pairs[None]).all(axis=2).any(axis=1)
            self.work = self.work[np.argsort(np.where(used, -1.0, size), kind="stable")[:WORKING]]
        return new

    def _coordinates(self, rows: np.ndarray) -> np.ndarray:
        X = np.asarray(self.data.X[rows], np.float64)
        return X if self.basis is None else X @ self.basis.T

    def _differences(self) -> np.ndarray:
        return self._coordinates(self.work[:, 0]) - self._coordinates(self.work[:, 1])
