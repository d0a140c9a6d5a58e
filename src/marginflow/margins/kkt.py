"""How far a trained net is from a KKT point of  min ½‖θ‖²  s.t.  q_i(θ) >= 1  (theory §2).

θ is scaled so that q_min = 1. Multipliers λ >= 0, and a selection from the Clarke subdifferential where a neuron sits
on a hyperplane, are then chosen to make one residual least:

    ‖θ - Σ λ_i y_i h_i‖² / ‖θ‖²  +  Σ (λ_i (q_i - 1))² / ‖θ‖⁴,

the squares of stationarity and of complementarity. It is zero exactly at KKT points.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from marginflow._core.arrays import double, to_numpy
from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table, show
from marginflow._core.status import Outcome
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net, Theta
from marginflow.nets.two_layer import TwoLayer
from marginflow.nets.weights import double_weights

TIE = 1e-9  # |w_jᵀx_i| <= TIE ‖w_j‖‖x_i‖: the neuron counts as lying on the hyperplane, any slope in [φ'(0-), φ'(0+)]
EULER = 1e-6  # |θᵀ∇q_i - k q_i| above this (relative): the function is not k-homogeneous
ENTRIES = 2**27  # most entries of the matrix of gradients (1 GB)


@dataclasses.dataclass(frozen=True, eq=False)
class KKT(Record):
    """Residuals of the KKT conditions at θ scaled to q_min = 1; all are 0 at a KKT point and none depends on scale.

    stationarity: ‖θ - Σ λ_i y_i h_i‖/‖θ‖. cosine: between θ and Σ λ_i y_i h_i.
    complementarity: Σ λ_i (q_i - 1)/Σ λ_i, the average slack as the multipliers weigh it.
    feasibility: max(0, 1 - q_min) after scaling (rounding only).
    multipliers: λ over all n rows. margins: q_i of the scaled net. scale: the c of θ -> cθ.
    ties, selection: pairs (neuron, example) on a hyperplane within `tie_tolerance`, and the slope chosen for each.
    homogeneity: max_i |θᵀ∇q_i - k q_i|/|k q_i| (Euler's identity).
    Where q_min <= 0 the problem has no such point: residuals are infinite and the outcome is infeasible.
    """

    stationarity: float
    complementarity: float
    feasibility: float
    cosine: float
    multipliers: np.ndarray
    margins: np.ndarray
    scale: float
    degree: int
    ties: np.ndarray
    selection: np.ndarray
    homogeneity: float
    outcome: Outcome
    message: str = ""
    tie_tolerance: float = TIE

    def table(self) -> Table:
        acting = np.sum(self.multipliers > 1e-9 * self.multipliers.max())
        rows = (
            ("stationarity", show(self.stationarity)),
            ("complementarity", show(self.complementarity)),
            ("feasibility", show(self.feasibility)),
            ("cosine", f"{self.cosine:.12g}"),
            ("multipliers", f"{acting} of {len(self.multipliers)} positive"),
            ("ties", str(len(self.ties))),
            ("homogeneity defect", show(self.homogeneity)),
            ("outcome", show(self.outcome)),
        )
        return Table("KKT residuals", ("quantity", "value"), rows, (self.message,) if self.message else ())


def kkt(net: Net, theta: Theta, data: Dataset, tie: float = TIE) -> KKT:
    """KKT residuals of the trained arrays of a net; the arrays that training leaves alone stay as they are.

    Slopes at ties are searched for two-layer nets with a piecewise linear activation. For other nets h_i is the
    element of the subdifferential that autodiff returns, and the residual can only be too large.
    """
    if net.degree is None:
        raise InputError(f"{net} is not homogeneous in its trained weights, so it has no max-margin problem")
    if getattr(net, "outputs", 1) != 1:
        raise InputError(f"{net} has several outputs; the problem is stated for one output per example")
    arrays = double_weights(theta, net, data.d)
    fixed = {name: value for name, value in arrays.items() if name not in net.trained}
    trained = {name: arrays[name] for name in net.trained}
    pairs, columns, correction = _ties(net, arrays, data, tie)
    f, rows, H = gradients(lambda t, X: net({**fixed, **t}, X), trained, data)
    flat = np.concatenate([trained[name].ravel() for name in sorted(trained)])
    if len(pairs):
        kept = np.isin(pairs[:, 1], rows)
        pairs, columns, correction = pairs[kept], columns[kept], correction[kept]
        np.subtract.at(H, np.searchsorted(rows, pairs[:, 1]), correction[:, None] * columns)
    low = net.activation.leak if len(pairs) else 0.0  # type: ignore[attr-defined]
    return _residuals(
        flat,
        H * data.y[rows, None],
        data.y * f,
        rows,
        net.degree,
        pairs,
        (1 - low) * columns * data.y[pairs[:, 1], None] if len(pairs) else columns,
        low,
        tie,
    )


def kkt_from_gradients(theta, gradients: Sequence[Any], margins, degree: int) -> KKT:
    """KKT residuals from arrays alone, whatever made them (a torch model, a hand-written net).

    theta: the trained weights, one array or a list of arrays. gradients: ∇_θ q_i for every example, one (n, ...) array
    per array of theta, or one (n, P) matrix. margins: q_i = y_i f(x_i; θ).
    """
    theta = theta if isinstance(theta, list | tuple) else [theta]
    gradients = gradients if isinstance(gradients, list | tuple) else [gradients]
    q = to_numpy(margins, np.float64).ravel()
    flat = np.concatenate([to_numpy(t, np.float64).ravel() for t in theta])
    H = np.concatenate([to_numpy(g, np.float64).reshape(len(q), -1) for g in gradients], axis=1)
    if H.shape[1] != len(flat):
        raise InputError(
            f"gradients have {H.shape[1]} entries per example, θ has {len(flat)}; they must match"
        )
    none = np.empty((0, 2), dtype=int)
    return _residuals(flat, H, q, np.arange(len(q)), degree, none, np.empty((0, len(flat))), 0.0, TIE)


@double
def gradients(f: Callable, theta: Theta, data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(f on all rows, the rows kept, ∇_θ f on those rows, flattened by sorted name).

    Where all gradients would not fit in memory the rows of least margin are kept; the others get λ = 0, which is
    allowed and can only make the residual larger.
    """
    import jax
    import jax.numpy as jnp

    names = sorted(theta)
    weights = {name: jnp.asarray(theta[name], dtype=jnp.float64) for name in names}
    size = sum(int(np.prod(w.shape)) for w in weights.values())
    value = jax.jit(lambda t, X: f(t, X).reshape(len(X)))
    step = max(1, min(data.n, 2**22 // max(data.d, size // 64 + 1)))
    block = lambda at: jnp.asarray(data.X[at], dtype=jnp.float64)  # noqa: E731
    out = np.concatenate(
        [np.asarray(value(weights, block(slice(s, s + step)))) for s in range(0, data.n, step)]
    )
    most = max(1, ENTRIES // size)
    rows = np.sort(np.argpartition(data.y * out, most - 1)[:most]) if most < data.n else np.arange(data.n)
    one = jax.grad(lambda t, x: f(t, x[None]).reshape(()))
    many = jax.jit(
        lambda t, X: jnp.concatenate(
            [g.reshape(len(X), -1) for _, g in sorted(jax.vmap(one, (None, 0))(t, X).items())], axis=1
        )
    )
    step = max(1, min(len(rows), 2**24 // size))
    H = np.concatenate(
        [np.asarray(many(weights, block(rows[s : s + step]))) for s in range(0, len(rows), step)]
    )
    return out, rows, np.array(H)


def _ties(net: Net, theta: dict[str, np.ndarray], data: Dataset, tie: float):
    """All ties that act: (pairs (j, i), ∂f_i/∂θ per unit of slope, autodiff's slope above the least slope)."""
    total = sum(theta[name].size for name in net.trained)
    none = np.empty((0, 2), dtype=int), np.empty((0, total)), np.empty(0)
    if not isinstance(net, TwoLayer) or "W" not in net.trained or net.activation.leak in (None, 1.0):
        return none
    W, a = theta["W"], theta["a"] / (net.width if net.mean_field else 1)
    pre = np.asarray(data.X, dtype=np.float64) @ W.T
    size = np.outer(np.linalg.norm(data.X, axis=1), np.linalg.norm(W, axis=1))
    example, neuron = np.nonzero((np.abs(pre) <= tie * size) & (a != 0))
    if not len(example):
        return none
    names = sorted(net.trained)
    start = sum(theta[name].size for name in names[: names.index("W")])
    columns = np.zeros((len(example), total))
    at = start + neuron[:, None] * data.d + np.arange(data.d)
    np.put_along_axis(columns, at, a[neuron, None] * np.asarray(data.X, dtype=np.float64)[example], axis=1)
    slope = np.asarray(net.activation.slope(pre[example, neuron], np))
    return np.stack([neuron, example], axis=1), columns, slope - net.activation.leak


def _residuals(theta, G, q, rows, degree, pairs, extra, low, tie) -> KKT:
    """G: ∇q_i at the least slopes, for the kept rows; extra: what a full slope adds, one row per tie."""
    n = len(q)
    euler = float(np.max(np.abs(G @ theta - degree * q[rows]) / np.maximum(np.abs(degree * q[rows]), 1e-300)))
    q_min = float(q.min())
    if not q_min > 0:
        return KKT(
            np.inf,
            np.inf,
            np.inf,
            0.0,
            np.zeros(n),
            q,
            0.0,
            degree,
            pairs,
            np.full(len(pairs), low),
            euler,
            Outcome.INFEASIBLE,
            "some example is misclassified: no scaling of θ has q_i >= 1",
            tie,
        )
    if euler > EULER:
        raise InputError(
            f"the function is not {degree}-homogeneous in the trained weights: θᵀ∇q misses {degree}q by "
            f"{euler:.1e} relative; check the degree, and that biases are not trained"
        )
    scale = q_min ** (-1.0 / degree)
    theta, q = theta * scale, q / q_min
    length = np.linalg.norm(theta)
    step = scale ** (degree - 1)
    slack = np.maximum(q[rows] - 1.0, 0.0)
    lam, tau, outcome = _multipliers(
        theta / length,
        step * G / length,
        step * extra / length,
        slack / length**2,
        np.searchsorted(rows, pairs[:, 1]),
    )
    reached = step * (lam @ G + tau @ extra)
    stationarity = float(np.linalg.norm(theta - reached) / length)
    size = np.linalg.norm(reached)
    total = lam.sum()
    full = np.zeros(n)
    full[rows] = lam
    owner = lam[np.searchsorted(rows, pairs[:, 1])]
    share = np.divide(tau, owner, out=np.zeros(len(tau)), where=owner > 0)
    message = (
        ""
        if len(rows) == n
        else f"gradients of the {len(rows)} rows of least margin only; the others have λ = 0"
    )
    return KKT(
        stationarity,
        float(lam @ slack / total) if total > 0 else 0.0,
        max(0.0, 1.0 - float(q.min())),
        float(theta @ reached / (length * size)) if size > 0 else 0.0,
        full,
        q,
        scale,
        degree,
        pairs,
        low + (1 - low) * share,
        euler,
        outcome,
        message,
        tie,
    )


def _multipliers(target, G, extra, slack, owner):
    """argmin ‖target - λG - τE‖² + ‖slack·λ‖² over λ >= 0 and 0 <= τ_k <= λ_owner(k)."""
    from scipy.optimize import nnls

    n, T = len(G), len(extra)
    A = np.concatenate(
        [np.concatenate([G, extra]).T, np.concatenate([np.diag(slack), np.zeros((n, T))], axis=1)]
    )
    b = np.append(target, np.zeros(n))
    if len(A) > A.shape[1] + 1:  # the residual outside the span of the columns cannot be changed
        R = np.asarray(np.linalg.qr(np.column_stack([A, b]), mode="r"))
        A, b = R[:, :-1], R[:, -1]

    def best(matrix):
        try:
            return nnls(matrix, b, maxiter=50 * matrix.shape[1])[0]
        except RuntimeError:
            return None

    if T:
        lam, tau = _with_ties(A, b, n, owner, best)
    else:
        lam, tau = best(A), np.zeros(0)
    lam = np.zeros(n) if lam is None else lam
    return lam, tau, Outcome.CONVERGED if _optimal(A, b, n, owner, lam, tau) else Outcome.STALLED


def _optimal(A, b, n, owner, lam, tau) -> bool:
    """No generator of the cone makes an acute angle (within 1e-6) with the residual: no other multipliers do better.

    The generators over example i are its column plus any of its tie columns; the best takes every tie that helps.
    """
    residual = b - A @ np.append(lam, tau)
    length = np.linalg.norm(residual)
    if length <= 1e-12 * np.linalg.norm(b):
        return True
    gain = residual @ A
    reach = np.linalg.norm(A, axis=0)
    ahead, size = gain[:n].copy(), reach[:n].copy()
    np.add.at(ahead, owner, np.maximum(gain[n:], 0.0))
    np.add.at(size, owner, reach[n:])
    return bool((ahead <= 1e-6 * length * np.maximum(size, 1e-300)).all())


def _with_ties(A, b, n, owner, best):
    """An interior-point solve says which ties are at slope 0, at full slope, or between; on that face the problem is
    plain nonnegative least squares, solved exactly. The better of the two feasible answers is returned."""
    lam, tau = _interior_point(A, b, n, owner)
    top = max(lam.max(initial=0.0), 1e-300)
    zero, whole = tau <= 1e-6 * top, tau >= lam[owner] - 1e-6 * top
    for _ in range(len(owner) + 1):
        free = ~zero & ~whole
        merged = A[:, :n].copy()
        for k in np.flatnonzero(whole & ~zero):
            merged[:, owner[k]] += A[:, n + k]
        found = best(np.concatenate([merged, A[:, n:][:, free]], axis=1))
        if found is None:
            break
        exact = found[:n]
        full = np.zeros(len(owner))
        full[whole & ~zero] = exact[owner[whole & ~zero]]
        full[free] = found[n:]
        over = full > exact[owner] * (1 + 1e-12)
        if not over.any():
            new, old = (np.linalg.norm(A @ np.append(x, t) - b) for x, t in ((exact, full), (lam, tau)))
            if new <= old:
                return exact, full
            break
        whole = whole | over
        zero = zero & ~over
    return lam, tau


def _interior_point(A, b, n, owner):
    from importlib import import_module

    from scipy import sparse

    clarabel = import_module("clarabel")  # its extension module declares no types

    N, T = A.shape[1], len(owner)
    eye = sparse.eye(N, format="csr")
    below = sparse.csr_matrix(
        (
            np.concatenate([np.ones(T), -np.ones(T)]),
            (np.tile(np.arange(T), 2), np.concatenate([n + np.arange(T), owner])),
        ),
        shape=(T, N),
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(A.T @ A)),
        -A.T @ b,
        sparse.vstack([-eye, below], format="csc"),
        np.zeros(N + T),
        [clarabel.NonnegativeConeT(N + T)],
        settings,
    )
    x = np.nan_to_num(np.asarray(solver.solve().x))  # whether it is optimal is checked on the final answer
    lam = np.maximum(x[:n], 0.0)
    return lam, np.clip(x[n:], 0.0, lam[owner])
