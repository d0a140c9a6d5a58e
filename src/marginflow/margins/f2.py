"""F2-max-margin (theory §5): only output weights are free, so the problem is a hard margin in a kernel space.

γ2 = max_{‖g‖_{L²(τ)} <= 1} min_i y_i ∫ σ(cᵀx̃_i) g(c) dτ(c) = min_{α ∈ Δ} sqrt(Σ α_i α_j y_i y_j K(x_i, x_j)).
"""

import dataclasses

import numpy as np

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS, MARGIN_GAP, SUPPORT
from marginflow.data.dataset import Dataset
from marginflow.margins import certificates
from marginflow.margins.base import Margin
from marginflow.margins.kernels import kernel
from marginflow.margins.linear import hard_margin, working_set
from marginflow.margins.rows import SignedRows, power_of_two, refuse_beyond_range, signed_rows
from marginflow.nets.activations import activation as named_activation

LARGEST = 20_000  # rows of a kernel matrix: 3.2 GB


def f2(data: Dataset, bias: bool = False, activation="relu") -> Margin:
    """γ2 and its maximiser g = Σ β_j y_j σ(·, x_j). `vector` is β, scaled so that y_i ∫ σ g dτ >= 1 on every row."""
    sigma = named_activation(activation)
    if data.n > LARGEST:
        raise InputError(
            f"{data.name}: {data.n} rows; the kernel problem holds an n x n matrix, at most {LARGEST}"
        )
    rows = signed_rows(data, "linear", bias)
    refuse_beyond_range(1.0 / rows.scale, sigma.degree or 1, data.name)
    X = rows.take(np.arange(data.n)) * (np.asarray(data.y) / rows.scale)[:, None]
    facts = {"activation": sigma.name}
    zero = _contradiction(rows, X, data, sigma.degree)
    if zero is not None:
        pair, alpha = zero
        message = f"rows {pair[0]} and {pair[1]} have different labels and the same features up to a positive factor"
        return Margin(
            "f2", 0.0, 0.0, 0.0, True, None, np.array(pair), alpha, Outcome.INFEASIBLE, message, False, bias,
            contradictory=pair, certificate=facts,
        )  # fmt: skip
    scale, power = (rows.scale, sigma.degree) if sigma.degree else (1.0, 0)
    k = kernel(X * scale if power else X, sigma)
    K = np.outer(data.y, data.y) * k.values
    beta, outcome, steps = _coefficients(K)
    facts |= {"kernel": k.rule, "kernel_error": float(k.error.max()), "kernel_error_proved": k.proved}
    back = scale**power
    lower = certificates.kernel_margin_from_below(K, k.error, beta) / back if beta.any() else 0.0
    alpha = beta / beta.sum() if beta.any() else np.full(data.n, 1 / data.n)
    upper = certificates.kernel_margin_from_above(K, k.error, alpha) / back
    values = K @ beta
    if lower > 0:
        beta, values = beta / values.min(), values / values.min()
    gap = (upper - lower) / upper
    certified = bool(k.proved and gap <= MARGIN_GAP)
    value = min(max(float(np.sqrt(max(alpha @ K @ alpha, 0.0))) / back, lower), upper)
    message = (
        ""
        if certified
        else f"relative gap {gap:.1e}"
        if k.proved
        else "the kernel is a quadrature whose error is estimated, not proved; so is the interval"
    )
    return Margin(
        "f2",
        value,
        lower,
        upper,
        certified,
        beta / back if lower > 0 else None,
        np.flatnonzero((values <= 1 + SUPPORT) & (alpha > 0)) if lower > 0 else np.flatnonzero(alpha),
        alpha,
        outcome,
        message,
        True if lower > 0 and k.proved else None,
        bias,
        certificate=facts,
        steps=steps,
    )


def _coefficients(K: np.ndarray) -> tuple[np.ndarray, Outcome, int]:
    """β >= 0 of the least-norm problem in coordinates F, K = F Fᵀ."""
    length = np.sqrt(np.diag(K))
    eigenvalue, vectors = np.linalg.eigh(K / np.outer(length, length))
    keep = eigenvalue > EPS * len(K) * eigenvalue[-1]
    F = vectors[:, keep] * np.sqrt(eigenvalue[keep]) * length[:, None]
    rows = SignedRows(F, np.arange(len(F)), np.ones(len(F)), False)
    answer = working_set(rows, rows.norms())
    if answer.w is None:
        return answer.ray if answer.ray is not None else answer.alpha, Outcome.STALLED, answer.steps
    return answer.alpha * (answer.w @ answer.w), answer.outcome, answer.steps


def _contradiction(rows: SignedRows, X: np.ndarray, data: Dataset, degree: int | None):
    """(two rows, Gordan's α) where two examples cancel exactly: different labels on one point, or, for homogeneous σ,
    on one ray: then ‖x_k‖^degree σ(·, x_i) = ‖x_i‖^degree σ(·, x_k). None if there is no such pair."""
    if degree:
        from marginflow.margins.f1_zero import opposed_rays

        pair = opposed_rays(X, data.y)
    else:
        positive, negative = (
            SignedRows(rows.X, index, np.ones(len(index)), rows.bias)
            for index in (data.positive, data.negative)
        )
        found = certificates.equal_rows(positive, negative)
        pair = None if found is None else (int(data.positive[found[0]]), int(data.negative[found[1]]))
    if pair is None:
        return None
    weight = np.linalg.norm(X[list(pair)] / np.abs(X[list(pair)]).max(), axis=1) ** (degree or 0)
    alpha = np.zeros(data.n)
    alpha[list(pair)] = weight[::-1] / weight.sum()
    return (min(pair), max(pair)), alpha


def f2_finite(Z) -> Margin:
    """γ2^(m) = max min_i z_iᵀa s.t. √m ‖a‖₂ <= 1, Z of shape (n, m): signed features z_ij = y_i σ(cⱼᵀx̃_i).

    `vector` is a in normal form, min_i z_iᵀa = 1, so γ2^(m) = 1/(√m ‖a‖).
    """
    Z = to_numpy(Z, np.float64)
    if Z.ndim != 2 or Z.size == 0 or not np.isfinite(Z).all():
        raise InputError(f"features of shape {Z.shape}; give a finite n x m matrix")
    n, m = Z.shape
    flat = hard_margin(SignedRows(Z, np.arange(n), np.ones(n), False, power_of_two(Z)), "f2_finite", n)
    root = np.sqrt(m)
    return dataclasses.replace(
        flat,
        value=float(flat.value / root),
        lower_bound=float(flat.lower_bound / root * (1 - 2 * EPS)),
        upper_bound=float(flat.upper_bound / root * (1 + 2 * EPS)),
    )
