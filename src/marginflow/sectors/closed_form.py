"""Lemma 2 of Phuong & Lampert 2021 in closed form: orthogonally separable data have one extremal sector a sign."""

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
