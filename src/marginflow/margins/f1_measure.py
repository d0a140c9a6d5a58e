"""A finite measure on directions within a search: its margins, and adding up neurons that share a pattern."""

from typing import NamedTuple

import numpy as np

from marginflow._core.status import Outcome

SAME = 1e-6  # distance of two unit directions of one sign, below which they are one neuron


class State(NamedTuple):
    """Unit directions with signs and masses (sum 1), weights α, the margin reached (without the factor κ)."""

    v: np.ndarray
    sign: np.ndarray
    mass: np.ndarray
    weights: np.ndarray
    value: float
    outcome: Outcome


class Found(NamedTuple):
    """Where the search ended: the best state, the best weights and what pricing found for them, and whether a
    proof of the maximum is in reach."""

    state: State
    weights: np.ndarray
    found: float
    provable: bool
    outcome: Outcome
    steps: int


def features(v, sign, X, y, squared) -> np.ndarray:
    z = np.maximum(X @ v.T, 0.0)
    return y[:, None] * (np.square(z) if squared else z) * sign


def merged(v, sign, X, y) -> tuple[np.ndarray, np.ndarray]:
    group = _groups(v / np.linalg.norm(v, axis=1, keepdims=True), sign, X, y)
    total = np.zeros((group.max() + 1, v.shape[1]))
    np.add.at(total, group, v)
    return total, sign[np.unique(group, return_index=True)[1]]


def _groups(v: np.ndarray, sign: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Label of the group of each neuron: one sign and one pattern on the rows it gains from, or one direction.

    Adding up such neurons never lowers a margin: the gains are linear on the pattern, the losses -ρ are superadditive,
    and the norm of a sum is at most the sum of norms.
    """
    pattern = np.packbits((X @ v.T > 0).T & (sign[:, None] == y[None, :]), axis=1)
    same = np.unique(np.column_stack([sign > 0, pattern]), axis=0, return_inverse=True)[1].ravel()
    near = (np.linalg.norm(v[:, None] - v[None], axis=2) <= SAME) & (sign[:, None] == sign[None])
    leader = same[near.argmax(axis=1)]
    return np.unique(leader, return_inverse=True)[1]
