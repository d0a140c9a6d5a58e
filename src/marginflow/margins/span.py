"""Problems whose answer lies in the span of the rows: one Gram matrix is all that sees the dimension d."""

import numpy as np

from marginflow.margins.rows import SignedRows


def coordinates(base: SignedRows) -> tuple[np.ndarray, np.ndarray]:
    """(rows in at most n coordinates, their Gram matrix).

    The Cholesky factor of the Gram matrix is used while its condition number stays near 1/sqrt(u); beyond, QR.
    """
    Z = base.take(np.arange(base.n))
    gram = Z @ Z.T
    if base.d <= base.n:
        return Z, gram
    length = np.sqrt(np.diag(gram))
    try:
        F = np.linalg.cholesky(gram / np.outer(length, length))
        if np.diag(F).min() > 1e-4:
            return F * length[:, None], gram
    except np.linalg.LinAlgError:
        pass
    return np.asarray(np.linalg.qr(Z.T, mode="r")).T, gram


def equality(rows, K: np.ndarray, on: np.ndarray) -> np.ndarray | None:
    """μ with K μ = 1 over the listed rows; K is their Gram matrix, squared condition number and all, so the residual
    is taken from the rows themselves and corrected three times. None if K is singular."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        factor = cho_factor(K[np.ix_(on, on)])
    except LinAlgError:
        return None
    mu = np.zeros(rows.n)
    for _ in range(3):
        residual = 1.0 - rows.products(rows.weighted_sum(mu))[on]
        mu[on] += cho_solve(factor, residual)
    return mu[on] if np.isfinite(mu).all() else None
