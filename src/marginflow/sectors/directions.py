"""Extremal directions of both signs with their sectors: all where that can be shown, else those that were found.

A positive (negative) extremal direction is a strict local maximum (minimum) of G on the sphere (theory §3). Four
ways to them, the first that applies:

- orthogonally separable data: Lemma 2, one of each sign, in closed form;
- rank at most 3: every face of the arrangement of hyperplanes wᵀx_i = 0 is visited (`arrangement`);
- few examples: every choice of active aligned examples and every vertex of opposed ones (`patterns_of_few`);
- otherwise ascents from many directions, `complete` false.

Whichever way a candidate came, `local_kind` alone decides whether it is a strict local optimum.
"""

import dataclasses
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, jsonable, show
from marginflow._core.status import Status
from marginflow.conditions.orthogonal_separability import orthogonal_separability
from marginflow.data.dataset import Dataset
from marginflow.sectors import arrangement, search
from marginflow.sectors.closed_form import lemma2
from marginflow.sectors.local import Kind, at_zero, local_kind
from marginflow.sectors.patterns import charges

# Two candidates this close on the sphere are one direction found twice.
SAME_DIRECTION = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class Extremal(Record):
    """A strict local optimum of G. growing: s·G > 0, so neurons there grow; else they vanish (theory §3.1)."""

    direction: np.ndarray
    sector: np.ndarray
    G: float
    growing: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Extremals(Record):
    """Extremal directions of both signs, largest |G| first.

    complete: no other exists. method: lemma2, arrangement, patterns or ascents.
    undecided: candidates whose strictness hangs on rounding; `complete` is false when there are any.
    """

    positive: tuple[Extremal, ...]
    negative: tuple[Extremal, ...]
    complete: bool
    method: str
    undecided: tuple[Extremal, ...] = ()

    def table(self) -> Table:
        rows = [
            (
                name,
                show(e.G),
                "yes" if e.growing else "no (vanishing)",
                _sector_text(e.sector),
                _vector_text(e.direction),
            )
            for name, group in (
                ("positive", self.positive),
                ("negative", self.negative),
                ("undecided", self.undecided),
            )
            for e in group
        ]
        note = {True: "complete: there is no other", False: "not complete: others may exist"}[self.complete]
        return Table(
            "extremal directions",
            ("kind", "G", "growing", "sector", "direction"),
            tuple(rows),
            (f"{note} (found by {self.method})",),
        )

    def to_json(self) -> dict[str, Any]:
        return jsonable(
            {
                "positive": list(self.positive),
                "negative": list(self.negative),
                "complete": self.complete,
                "method": self.method,
                "undecided": list(self.undecided),
            }
        )


def extremal(
    data: Dataset, loss="logistic", weights=None, starts: int = 512, seed: int = 0, by_lemma2: bool = True
) -> Extremals:
    """Extremal directions of G for these data; `weights` replaces -ℓ'(0) by any non-negative weights.

    `starts` and `seed` matter only where neither theorem nor enumeration applies. With `by_lemma2` false the lemma
    is not used, so that it can be tested against the search.
    """
    if starts < 1:
        raise InputError(f"starts {starts}; give at least 1")
    X, kappa = np.asarray(data.X, np.float64), charges(data, loss, weights)
    if (
        by_lemma2
        and data.d > 1
        and (kappa != 0).all()
        and orthogonal_separability(data).status is Status.HOLDS
    ):
        return _by_lemma2(data, X, kappa)
    by_sign, exhaustive, method = {}, True, ""
    for sign in (1, -1):
        p = sign * kappa
        candidates, all_of_them, method = _candidates(X, p, starts, seed)
        exhaustive &= all_of_them
        by_sign[sign] = _examined(X, p, kappa, candidates)
    undecided = (*by_sign[1][1], *by_sign[-1][1])
    return Extremals(by_sign[1][0], by_sign[-1][0], exhaustive and not undecided, method, undecided)


def _candidates(X: np.ndarray, p: np.ndarray, starts: int, seed: int) -> tuple[np.ndarray, bool, str]:
    active = p != 0
    if arrangement.fits(X[active]):
        return arrangement.candidates(X[active], p[active]), True, "arrangement"
    if search.few(X[active], p[active]):
        return search.patterns_of_few(X[active], p[active]), True, "patterns"
    return search.ascents(X[active], p[active], starts, seed), False, "ascents"


def _examined(X: np.ndarray, p: np.ndarray, kappa: np.ndarray, candidates: np.ndarray):
    """(strict optima, undecided ones) among the candidates, each once, strongest first."""
    strict, undecided = [], []
    for u in distinct(candidates):
        kind = local_kind(X[p != 0], p[p != 0], u)
        if kind is Kind.NONE or (X.shape[1] == 1 and p @ np.maximum(X @ u, 0.0) <= 0):
            continue  # on S^0 every point is isolated: only the ones that neurons grow towards are listed
        (strict if kind is Kind.STRICT else undecided).append(record(X, p, kappa, u))
    order = lambda e: -abs(e.G)  # noqa: E731
    return tuple(sorted(strict, key=order)), tuple(sorted(undecided, key=order))


def record(X: np.ndarray, p: np.ndarray, kappa: np.ndarray, u: np.ndarray) -> Extremal:
    z = X @ u
    sector = np.where(at_zero(X, np.where(p == 0, 1.0, p), u), 0, np.sign(z)).astype(np.int8)
    value = float(kappa @ np.maximum(z, 0.0))
    return Extremal(u, sector, value, bool(p @ np.maximum(z, 0.0) > 0))


def distinct(directions: np.ndarray) -> list[np.ndarray]:
    """One of each cluster of equal directions."""
    kept: list[np.ndarray] = []
    for u in directions:
        if not kept or np.linalg.norm(np.array(kept) - u, axis=1).min() > SAME_DIRECTION:
            kept.append(u)
    return kept


def _by_lemma2(data: Dataset, X: np.ndarray, kappa: np.ndarray) -> Extremals:
    """Field and sector follow from Lemma 2: with its own class on and the other off, g = Σ_own κ_i x_i."""
    found = {}
    for sign in (1, -1):
        own = data.y == sign
        g = sign * kappa[own] @ X[own]
        speed = float(np.linalg.norm(g))
        found[sign] = (Extremal(g / speed, lemma2(data, sign), sign * speed, True),)
    return Extremals(found[1], found[-1], True, "lemma2")


def _sector_text(sector: np.ndarray) -> str:
    count = {s: int((sector == s).sum()) for s in (1, 0, -1)}
    if len(sector) > 24:
        return f"{count[1]} on, {count[0]} at 0, {count[-1]} off"
    return "".join({1: "+", 0: "0", -1: "-"}[int(s)] for s in sector)


def _vector_text(u: np.ndarray) -> str:
    head = " ".join(f"{x:.4g}" for x in u[:4])
    return head + (" ..." if len(u) > 4 else "")
