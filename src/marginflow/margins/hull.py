"""The point of least norm in the convex hull of a few rows, to machine precision.

Primal  min ½‖w‖² s.t. z_iᵀw >= 1;  dual  max Σ μ_i - ½‖Σ μ_i z_i‖², μ >= 0;  w = Σ μ_i z_i, γ = 1/‖w‖.
Non-negative least squares finds which constraints are active, 10 to 30 times sooner than an interior-point solve
(clarabel), which is asked where that start leads nowhere; an active-set iteration on exact linear systems (QR) then
gives w and μ as precisely as the rows determine them. Both look at one constraint at a time; where thousands are active
in thousands of dimensions a dense interior-point method, which looks at all, is the start instead.
"""

import dataclasses

import numpy as np

from marginflow._core.progress import progress
from marginflow._core.status import Outcome
from marginflow._core.tolerances import EPS

LARGE = 2**20  # entries from which one constraint at a time takes too long, unless FEW of them are active
FEW = 300
ROUNDS_WORK = 2e12  # operations that an active-set iteration on large rows may spend before it hands back its best
FACE = 1e-5  # of the heaviest weight: below it a row is taken to have no part in a combination that is 0
RAY = 1e-11  # relative size of what an interior-point method takes for 0
SHOWS = 1e-11  # relative errors of a row's margin above this one would show in a certified interval


@dataclasses.dataclass(frozen=True, eq=False)
class Hull:
    """w in normal form and its multipliers μ. w is None when the rows seem to have 0 in their hull; `ray` then holds
    the weights that seem to show it (to be proved by the caller)."""

    w: np.ndarray | None
    multipliers: np.ndarray | None
    ray: np.ndarray | None
    outcome: Outcome
    message: str
    steps: int


def least_norm(Z: np.ndarray) -> Hull:
    """min ‖w‖ s.t. Zw >= 1, for rows of any norms: they are scaled to unit length and the right-hand side with them."""
    norms = np.linalg.norm(Z, axis=1)
    unit = Z / norms[:, None]
    smallest = norms.min()
    b = smallest / norms
    basis = None
    if Z.shape[1] > len(Z):  # w lies in the span of the rows
        basis, triangle = np.linalg.qr(unit.T)
        unit = triangle.T
    large, first = unit.size > LARGE, 0
    start = _nonnegative_least_squares(unit, b, FEW if large else 30 * len(unit))
    if start is None and large:
        start, ray, first = dense_interior_point(unit, b)
        if ray:
            start, more = _face(unit, b, start)
            return Hull(None, None, start / norms, Outcome.INFEASIBLE, "infeasible", first + more)
    v, mu, outcome, steps = _active_set(unit, b, np.zeros(len(unit)) if start is None else start)
    steps += first
    status = "solved" if v is not None else "infeasible"
    if outcome not in (Outcome.CONVERGED, Outcome.INFEASIBLE) and not large:
        start, status, first = _interior_point(unit, b)
        if start is not None:
            v, mu, outcome, again = _active_set(unit, b, start)
            steps += first + again
    if v is None:
        return Hull(None, None, mu / norms, outcome, status, steps)
    v = _lifted(unit, b, v, mu)
    w = v if basis is None else basis @ v
    return Hull(w / smallest, mu / (smallest * norms), None, outcome, status, steps)


def _interior_point(unit: np.ndarray, b: np.ndarray) -> tuple[np.ndarray | None, str, int]:
    """clarabel's multipliers for min ½‖v‖² s.t. unit v >= b, or None when it does not report a solution."""
    from importlib import import_module

    from scipy import sparse

    clarabel = import_module("clarabel")  # its extension module declares no types

    m, r = unit.shape
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    solver = clarabel.DefaultSolver(
        sparse.eye(r, format="csc"),
        np.zeros(r),
        sparse.csc_matrix(-unit),
        -b,
        [clarabel.NonnegativeConeT(m)],
        settings,
    )
    solution = solver.solve()
    name = str(solution.status)
    if name in ("Solved", "AlmostSolved"):
        return np.maximum(np.asarray(solution.z), 0.0), "solved", solution.iterations
    return None, "infeasible" if "PrimalInfeasible" in name else name, solution.iterations


def dense_interior_point(unit: np.ndarray, b: np.ndarray, rounds: int = 100) -> tuple[np.ndarray, bool, int]:
    """(multipliers, whether they are a ray that seems to put 0 in the hull, rounds).

    Mehrotra's predictor and corrector on v = unitᵀz, unit v - s = b, s_i z_i = 0, s and z >= 0, each round one
    factorisation of I + unitᵀ diag(z/s) unit. Where no v exists z grows without bound while unitᵀz/Σz tends to 0.
    """
    from scipy.linalg import cho_factor, cho_solve

    m, r = unit.shape
    v, z = np.zeros(r), np.ones(m)
    s = np.ones(m)
    diagonal = np.arange(r)
    with progress(None, f"interior point, {m} rows of {r}") as meter:
        for step in range(1, rounds + 1):
            combined = unit.T @ z
            dual, primal, mean = combined - v, b - unit @ v + s, float(s @ z) / m
            towards_zero = float(np.linalg.norm(combined) / z.sum())
            if towards_zero <= RAY:
                return z, True, step
            exact = np.linalg.norm(dual) <= RAY * (1 + z.sum()) and np.abs(primal).max() <= RAY
            if exact and m * mean <= RAY * float(b @ z):
                break
            root = unit * np.sqrt(z / s)[:, None]
            K = root.T @ root  # of one array with itself: BLAS does half the work
            K[diagonal, diagonal] += 1.0 + 1e-15 * K.diagonal().max()  # what rounding has taken from the identity
            try:
                factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
            except np.linalg.LinAlgError:
                break

            def towards(target, s=s, z=z, dual=dual, primal=primal, factor=factor):
                dv = cho_solve(factor, dual + unit.T @ ((target + z * primal) / s), check_finite=False)
                ds = unit @ dv - primal
                return dv, ds, (target - z * ds) / s

            _, ds, dz = towards(-s * z)
            reach = [_longest(s, ds), _longest(z, dz)]
            centre = (float((s + reach[0] * ds) @ (z + reach[1] * dz)) / m / mean) ** 3
            dv, ds, dz = towards(centre * mean - s * z - ds * dz)
            go = min(1.0, 0.995 * min(_longest(s, ds), _longest(z, dz)))
            v, s, z = v + go * dv, s + go * ds, z + go * dz
            meter.advance(1, f"round {step}, gap {m * mean:.1e}, hull within {towards_zero:.1e} of 0")
    return z, False, step


def _face(unit: np.ndarray, b: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, int]:
    """The ray z without the rows that no combination equal to 0 can use: their weights fall behind, round by round.

    On the rows that are left the method ends in the middle of all such combinations, where every weight is positive.
    """
    on, steps = np.arange(len(z)), 0
    for _ in range(5):
        on_face = z > FACE * z.max()
        if on_face.all():
            break
        left = unit[on[on_face]]
        again, ray, more = dense_interior_point(left[:, left.any(axis=0)], b[on[on_face]])
        steps += more
        if not ray:
            break
        on, z = on[on_face], again
    whole = np.zeros(len(unit))
    whole[on] = z
    return whole, steps


def _longest(x: np.ndarray, dx: np.ndarray) -> float:
    """The longest step up to 1 that keeps x + step dx >= 0."""
    falls = dx < 0
    return min(1.0, float((x[falls] / -dx[falls]).min(initial=np.inf)))


def _nonnegative_least_squares(unit: np.ndarray, b: np.ndarray, rounds: int) -> np.ndarray | None:
    """Multipliers from min ‖[unitᵀ; bᵀ] μ - e‖, μ >= 0 (the least-distance form of the same problem).

    Its residual r gives v = -r_head/r_last and multipliers μ/r_last. It works down to margins that an
    interior-point method calls infeasible. None: not in so many rounds.
    """
    from scipy.optimize import nnls

    matrix = np.concatenate([unit.T, b[None]])
    target = np.zeros(len(matrix))
    target[-1] = 1.0
    try:
        mu, _ = nnls(matrix, target, maxiter=rounds)
    except RuntimeError:
        return None
    last = 1.0 - b @ mu
    return mu / last if last > 0 else mu


def _active_set(unit, b, mu):
    """Exact solution from nearly right multipliers: a dual active-set iteration on max bᵀμ - ½‖unitᵀμ‖², μ >= 0.

    Each round solves the equality problem on the active rows P by QR, v = unit_Pᵀ (unit_P unit_Pᵀ)^{-1} b_P; steps
    back to the feasible side when a multiplier turns negative; adds the most violated row when none does. A new row
    that depends on P gives a ray of multipliers that keeps v and raises bᵀμ: follow it until a multiplier vanishes;
    if none ever does, the ray shows 0 in the hull. Stops when no violation is above its rounding error.
    Returns (v, μ, outcome, rounds); v is None and μ the ray when the outcome is infeasible.
    """
    active = np.flatnonzero(mu > 1e-7 * mu.max(initial=0.0))
    if not len(active):
        active = np.array([int(np.argmax(b))])
    solved = _equality(unit[active], b[active])
    if solved is None:
        active = _independent(unit, active, mu)
    current = np.zeros(len(mu))
    current[active] = mu[active]
    best = (-np.inf, None, current)
    limit = 3 * sum(unit.shape) + 30
    if unit.size > LARGE:
        limit = min(limit, int(ROUNDS_WORK / (4.0 * len(active) ** 2 * unit.shape[1])) + 10)
    for step in range(limit):
        if step or solved is None:
            solved = _equality(unit[active], b[active])
        if solved is None:  # the last row, just added, depends on the others
            coefficients = np.linalg.lstsq(unit[active[:-1]].T, unit[active[-1]])[0]
            ray = np.append(-coefficients, 1.0)
            ray[np.abs(ray) <= 1e-11 * np.abs(ray).max()] = 0.0
            if (ray >= 0).all():
                current[:] = 0.0
                current[active] = ray
                return None, current, Outcome.INFEASIBLE, step + 1
            active = _advance(active, current, ray)
            continue
        v, nu = solved
        if (nu <= 0).any():
            active = _advance(active, current, nu - current[active], 1.0)
            if not len(active):
                active = np.array([int(np.argmax(b))])
            continue
        current[:] = 0.0
        current[active] = nu
        slack = unit @ v - b
        slack[active] = 0.0
        worst = int(np.argmin(slack))
        if slack[worst] > best[0]:
            best = (float(slack[worst]), v, current.copy())
        if slack[worst] >= -(8 * EPS * np.linalg.norm(v) + 4 * EPS * b[worst]):
            return v, current, Outcome.CONVERGED, step + 1
        active = np.append(active, worst)
    return best[1], best[2], Outcome.MAX_STEPS, limit


def _lifted(unit, b, v, mu) -> np.ndarray:
    """v moved to the feasible side of the rows whose b drowns in the rounding of their product with v.

    Such rows are far longer than the shortest: b plus that rounding costs ‖v‖ nothing that shows, while b minus it
    would be a large part of their margin. Where no row is so long, v is returned as it is.
    """
    rounding = 8 * EPS * np.linalg.norm(v)
    drowned = rounding > SHOWS * b
    if not drowned.any():
        return v
    above, _, outcome, _ = _active_set(unit, np.where(drowned, b + rounding, b), mu)
    return above if above is not None and outcome is Outcome.CONVERGED else v


def _advance(active, current, direction, longest=np.inf):
    """Move the multipliers until one vanishes (or by `longest`); those at 0 leave. Returns the new active set."""
    now = current[active]
    falls = direction < 0
    ratio = np.where(falls, now / np.where(falls, -direction, 1.0), np.inf)
    reach = min(float(ratio.min()), longest)
    now = now + reach * direction
    keep = (ratio > reach) & (now > 0)
    current[:] = 0.0
    current[active[keep]] = now[keep]
    return active[keep]


def _equality(A: np.ndarray, b: np.ndarray):
    """(v, ν): the shortest v with Av = b and ν with v = Aᵀν, refined once; None when A has dependent rows."""
    from scipy.linalg import lapack

    solve = lapack.dtrtrs  # type: ignore[attr-defined]  # on a small R its wrapper takes ten times as long
    k, r = A.shape
    if k > r:
        return None
    Q, R = np.linalg.qr(A.T)
    if np.abs(R.diagonal()).min() <= 4 * EPS * max(k, r) ** 0.5:
        return None
    y = solve(R, b, trans=1)[0]
    v = Q @ y
    y = y + solve(R, b - A @ v, trans=1)[0]
    v = v + Q @ solve(R, b - A @ v, trans=1)[0]
    return v, solve(R, y)[0]


def _independent(unit: np.ndarray, active: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """A numerically independent subset of the active rows, the heavier ones first."""
    if len(active) <= 1:
        return active
    order = active[np.argsort(-weight[active], kind="stable")]
    chosen: list[int] = []
    Q = np.empty((min(unit.shape[1], len(order)), unit.shape[1]))
    for row in order:
        k = len(chosen)
        if k == len(Q):
            break
        z = unit[row].copy()
        for _ in range(2):
            z -= Q[:k].T @ (Q[:k] @ z)
        length = np.linalg.norm(z)
        if length > 1e-12:
            Q[k] = z / length
            chosen.append(int(row))
    return np.array(chosen, dtype=np.intp)
