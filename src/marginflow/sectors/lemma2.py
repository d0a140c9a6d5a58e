"""Lemma 2 of Phuong & Lampert 2021 in closed form: on orthogonally separable data there is one extremal sector a sign."""

import numpy as np

from marginflow._core import exact
from marginflow._core.errors import InputError
from marginflow.data.dataset import Dataset


def lemma2(data: Dataset, sign: int) -> np.ndarray:
    """σ_j = 1 on the class of `sign`; on the other class -1 if x_jᵀx_i < 0 for some i of that class, 0 if none.

    Products are decided exactly: whether an opposite example is orthogonal to the whole class is a yes or no.
    The statement is Lemma 2 only on orthogonally separable data; this function evaluates the formula.
    """
    if sign not in (1, -1):
        raise InputError(f"sign {sign}; give 1 or -1")
    X = np.asarray(data.X, np.float64)
    own, other = np.flatnonzero(data.y == sign), np.flatnonzero(data.y != sign)
    sigma = np.ones(data.n, np.int8)
    for j in other:
        signs = exact.dot_signs(np.broadcast_to(X[j], (len(own), data.d)), X[own])
        sigma[j] = -1 if (signs < 0).any() else 0
    return sigma


def orthogonally_separable(data: Dataset) -> bool:
    """Same-class products > 0 and cross products <= 0, each decided exactly (theory §1)."""
    X = np.asarray(data.X, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        K, size = X @ X.T, np.abs(X) @ np.abs(X).T
    same = np.equal.outer(data.y, data.y)
    sure = np.abs(K) > 1.01 * (data.d + 2) * exact.UNIT * size
    if (sure & (same != (K > 0))).any():
        return False
    i, j = np.nonzero(~sure)
    signs = exact.dot_signs(X[i], X[j]) if len(i) else np.zeros(0)
    return bool(np.where(same[i, j], signs > 0, signs <= 0).all())
