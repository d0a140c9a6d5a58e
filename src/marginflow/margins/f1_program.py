"""The two convex programs behind an F1-max-margin: masses over fixed neurons, and neurons within fixed patterns.

Masses: `masses(Z)` is the linear program max_{a in Δ} min_i (Za)_i, with its dual α.

Patterns: for a neuron with sign s, rows with y_i = s gain from ρ and the others lose. ρ(z) = max_{S in {0,1}} S z, so
with S frozen on the gaining rows only, S_i ρ -> S_i z is a lower estimate, while -ρ(z) on the losing rows is concave
as it stands. The margin is then a concave function of (v_1, ..., v_K) jointly and

    max g  s.t.  Σ ‖v_k‖ <= T,   y_i Σ_k s_k φ_ik(v_k) >= g,   φ_ik = S_ik x_iᵀv (gaining)  or  ρ(x_iᵀv) (losing)

is a second-order cone program whose optimum is feasible for the true problem. Unlike the program over full activation
patterns it has no sign constraints: the patterns on losing rows are chosen by the program itself. Re-reading S from
the solution and solving again can only raise the margin (S_i z <= ρ(z) with equality at the new S): this is how
neurons move between cells, until none wants to.
"""

from importlib import import_module
from typing import NamedTuple

import numpy as np

from marginflow._core.status import Outcome

BAND = 0.1  # losing rows with |x_iᵀc| <= BAND ‖x_i‖ get a hinge variable at first, others when they turn out to need it


class Masses(NamedTuple):
    """max_{a in Δ} min_i (Za)_i: masses a, weights α over the rows, the program's value, how it ended."""

    mass: np.ndarray
    weights: np.ndarray
    value: float
    outcome: Outcome
    message: str


def masses(Z: np.ndarray, level: float | None = None) -> Masses:
    """The linear program over fixed features Z (rows, neurons), by the HiGHS simplex method.

    Its tolerances are absolute: `level`, a guess of the value, sets the units so that they act relative to it.
    """
    import highspy

    n, m = Z.shape
    scale = float(np.abs(Z).max()) or 1.0
    scale = min(scale, max(level, 1e-6 * scale)) if level is not None and level > 0 else scale
    # Variables (a_1..a_m, g), maximise g subject to Za - g >= 0 and Σa = 1; column-wise matrix.
    matrix = np.zeros((n + 1, m + 1))
    matrix[:n, :m] = Z / scale
    matrix[:n, m] = -1.0
    matrix[n, :m] = 1.0
    rows, columns = np.nonzero(matrix.T)[::-1]
    infinity = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = m + 1, n + 1
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.append(np.zeros(m), 1.0)
    lp.col_lower_, lp.col_upper_ = np.append(np.zeros(m), -infinity), np.full(m + 1, infinity)
    lp.row_lower_, lp.row_upper_ = np.append(np.zeros(n), 1.0), np.append(np.full(n, infinity), 1.0)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(columns, np.arange(m + 2)).astype(np.int32)
    lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.astype(np.int32), matrix.T[columns, rows]
    solver = highspy.Highs()
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("primal_feasibility_tolerance", 1e-10),
        ("dual_feasibility_tolerance", 1e-10),
    ):
        solver.setOptionValue(option, setting)
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    solution = solver.getSolution()
    if not solution.value_valid:
        return Masses(
            np.full(m, 1 / m), np.full(n, 1 / n), -np.inf, Outcome.STALLED, solver.modelStatusToString(status)
        )
    mass = np.maximum(np.asarray(solution.col_value)[:m], 0.0)
    weights = np.abs(np.asarray(solution.row_dual)[:n])
    outcome = Outcome.CONVERGED if status == highspy.HighsModelStatus.kOptimal else Outcome.STALLED
    return Masses(
        mass / mass.sum(),
        weights / (weights.sum() or 1.0),
        float(solution.col_value[m]) * scale,
        outcome,
        solver.modelStatusToString(status),
    )


class Patterned(NamedTuple):
    """Solution of the pattern program: v (K, d), α over the rows, value g/T, how it ended."""

    v: np.ndarray
    weights: np.ndarray
    value: float
    outcome: Outcome
    message: str


def responses(v: np.ndarray, sign: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y_i Σ_k s_k ρ(x_iᵀv_k) per row."""
    return y * (np.maximum(X @ v.T, 0.0) @ sign)


def patterned(
    v: np.ndarray,
    sign: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    *,
    tolerance: float = 1e-9,
    band: float = BAND,
    reach: float = np.inf,
    rounds: int = 4,
) -> Patterned:
    """Best neurons with the gaining-row patterns of the given directions `v`.

    Losing rows far from the hyperplane are taken as decided, and rows whose margin is more than `reach` times the
    smallest are left out; those that the solution crosses or violates are put back and the program is solved again, at
    most `rounds` times (each round's point is feasible whatever happens).
    """
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    cosine = (X @ (v / norm).T).T / np.linalg.norm(X, axis=1)
    gaining = sign[:, None] == y[None, :]
    on = cosine > 0
    hinged = ~gaining & (np.abs(cosine) <= band)
    now = responses(v, sign, X, y)
    level = now.min() / norm.sum()
    work = now <= reach * now.min() if level > 0 else np.ones(len(y), bool)
    typical = float(np.median(np.linalg.norm(X, axis=1)))
    total = 1.0 / max(level, 1e-6 * typical)
    best = None
    for _ in range(rounds):
        solved = _solve(X, y, sign, gaining, on, hinged, work, total, tolerance)
        if best is None or solved.value > best.value:
            best = solved
        if solved.outcome is not Outcome.CONVERGED:
            break
        z = solved.v @ X.T
        scale = np.linalg.norm(solved.v, axis=1, keepdims=True) * np.linalg.norm(X, axis=1)
        crossed = ~gaining & ~hinged & work & ((z > 0) != on) & (np.abs(z) > 1e-9 * scale)
        crossed &= np.linalg.norm(solved.v, axis=1, keepdims=True) > 1e-7 * np.abs(solved.v).sum()
        reached = responses(solved.v, sign, X, y)
        violated = ~work & (reached < reached[work].min())
        if not (crossed.any() or violated.any()):
            return solved
        hinged |= crossed
        work |= violated
    assert best is not None
    return best


def _solve(X, y, sign, gaining, on, hinged, work, total, tolerance) -> Patterned:
    full = X, y
    X, y, gaining, on, hinged = X[work], y[work], gaining[:, work], on[:, work], hinged[:, work]
    import scipy.sparse as sp

    clarabel = import_module("clarabel")  # its extension module declares no types
    (n, d), K = X.shape, len(sign)
    k_of, i_of = np.nonzero(hinged)
    H = len(k_of)
    plain = on & ~hinged
    # Columns: v (K·d), t (K), p (H), g. The block of neuron k in the margin rows is -y_i s_k x_i on its plain rows.
    coefficient = -(y[:, None] * sign[None, :]) * plain.T
    margins = sp.csr_matrix((coefficient[:, :, None] * X[:, None, :]).reshape(n, K * d))
    hinge_in_margin = sp.csr_matrix((np.ones(H), (i_of, np.arange(H))), shape=(n, H))
    hinge_of_v = sp.csr_matrix(
        (X[i_of].ravel(), (np.repeat(np.arange(H), d), (k_of[:, None] * d + np.arange(d)).ravel())),
        shape=(H, K * d),
    )
    eye = sp.identity(H, format="csr")
    cone_v = sp.csr_matrix(
        (-np.ones(K * d), ((np.arange(K)[:, None] * (d + 1) + 1 + np.arange(d)).ravel(), np.arange(K * d))),
        shape=(K * (d + 1), K * d),
    )
    cone_t = sp.csr_matrix((-np.ones(K), (np.arange(K) * (d + 1), np.arange(K))), shape=(K * (d + 1), K))
    A = sp.bmat(
        [
            [margins, None, hinge_in_margin, sp.csr_matrix(np.ones((n, 1)))],
            [hinge_of_v, sp.csr_matrix((H, K)), -eye, None],
            [None, None, -eye, None],
            [None, sp.csr_matrix(np.ones((1, K))), None, None],
            [cone_v, cone_t, None, None],
        ],
        format="csc",
    )
    b = np.zeros(n + 2 * H + 1 + K * (d + 1))
    b[n + 2 * H] = total
    q = np.zeros(K * d + K + H + 1)
    q[-1] = -1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    cones = [clarabel.NonnegativeConeT(n + 2 * H + 1)] + [clarabel.SecondOrderConeT(d + 1)] * K
    solution = clarabel.DefaultSolver(sp.csc_matrix((len(q), len(q))), q, A, b, cones, settings).solve()
    x = np.asarray(solution.x)
    v = x[: K * d].reshape(K, d)
    weights = np.maximum(np.asarray(solution.z)[:n], 0.0)
    mass = np.linalg.norm(v, axis=1).sum()
    status = str(solution.status)
    outcome = Outcome.CONVERGED if status in ("Solved", "AlmostSolved") else Outcome.STALLED
    if not np.isfinite(mass) or mass <= 0 or weights.sum() <= 0:
        return Patterned(
            np.zeros_like(v), np.full(len(work), 1 / len(work)), -np.inf, Outcome.STALLED, status
        )
    alpha = np.zeros(len(work))
    alpha[work] = weights / weights.sum()
    return Patterned(v, alpha, float(responses(v, sign, *full).min() / mass), outcome, status)
