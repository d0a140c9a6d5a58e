"""Neurons of one pattern as one small system: the vector field of the late phase and its Jacobian.

Let a group be neurons with one pattern, hence one field v. With α = Σ a_j², β = Σ a_j w_j (the group computes βᵀx on
the examples it sees), e = β/α, δ_j = w_j - a_j e, ν_j = a_j/√α and D = Σ δ_j δ_jᵀ, the motion dw = a v, da = vᵀw is
exactly

    α' = 2 βᵀv,   β' = α v + β(βᵀv)/α + D v,   δ_j' = -e(vᵀδ_j) - ν_j D v/√α,   ν_j' = vᵀδ_j/√α.

Only α and β grow; D, δ and ν stay bounded. All pairs (δ_j, ν_j) obey one linear equation, so r + 1 combinations of
them are carried, [δ; ν] = T Q with orthonormal rows of Q, and D = T_δ T_δᵀ: the cost does not know the width.

The weights of the examples depend on differences of margins, numbers of size 1 between margins of size 10⁹. So
β_g = A b_g + ζ_g with A = Σ α_g, a constant b and ζ of size 1:

    ζ_g' = A [ω_g v + β_g(β_gᵀv)/(A² ω_g) - (log A)' b_g] + D v,   ω_g = α_g/A,   (log A)' = 2 Σ β_gᵀv_g/A,

and q_i - q_m = A (b_i - b_m) + ζ_i - ζ_m with the differences b_i - b_m formed once. No rounding error is multiplied
by A twice; with e as the variable BDF stops near q = 10⁷.

With the output layer fixed, w_j = w_j(0) + a_j z_g, z_g' = v; there z_g = A b_g + ζ_g and A' is the projection of the
motion on b.
"""

import dataclasses
import functools
import math

import numpy as np

from marginflow.flows.piecewise import Problem, Weighing, weigh

TAIL = 50.0  # e^-50 is below rounding: from here on both log ℓ and log(-ℓ') are -q
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_FROM_END = (1 - _NODES) / 2


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Neurons of one pattern and one sign of a. see: slopes times rows, what the group sees of the data."""

    rows: np.ndarray
    sigma: np.ndarray
    held: np.ndarray
    project: np.ndarray | None
    see: np.ndarray
    a0: np.ndarray
    W0: np.ndarray
    spread: np.ndarray  # Q, (columns of T, neurons)
    excess: float  # Σ a_j² - ‖w_j‖², conserved; 0 for balanced nets
    form: np.ndarray  # N at the start: see `drift`

    @property
    def columns(self) -> int:
        return self.spread.shape[0]


@dataclasses.dataclass(frozen=True, eq=False)
class Point:
    """One group at one time: β and α (both layers), T; or z as β, α = Σ a_j² (input layer alone)."""

    beta: np.ndarray
    log_alpha: float
    T: np.ndarray

    @property
    def e(self) -> np.ndarray:
        return self.beta * math.exp(-self.log_alpha)

    @property
    def D(self) -> np.ndarray:
        return self.T[:-1] @ self.T[:-1].T


def gather(problem: Problem, rows, sigma, held, slopes, W, a) -> tuple[Group, Point]:
    """The collapsed coordinates of the neurons `rows`, whose weights are W and a."""
    project = None
    if len(held):
        Z = problem.X[held]
        project = np.eye(problem.r) - np.linalg.pinv(Z) @ Z
    see = slopes[:, None] * problem.X
    alpha, r = float(a @ a), problem.r
    none = np.zeros((0, len(rows)))
    if not problem.both:
        return (Group(rows, sigma, held, project, see, a, W, none, 0.0, np.zeros((0, 0))),
                Point(np.zeros(r), math.log(alpha), np.zeros((r + 1, 0))))
    beta = a @ W
    T = np.zeros((r + 1, 0))
    if len(rows) > 1:
        pairs = np.concatenate([W - np.outer(a, beta / alpha), (a / math.sqrt(alpha))[:, None]], axis=1)
        Q, R = np.linalg.qr(pairs)
        none, T = Q.T, R.T
    excess = float(np.sum(a * a - np.einsum("pr,pr->p", W, W)))
    point = Point(beta, math.log(alpha), T)
    return Group(rows, sigma, held, project, see, a, W, none, excess, _lorentz(point)), point


def _lorentz(point: Point) -> np.ndarray:
    """N with a_i a_j - w_iᵀw_j = Q_iᵀ N Q_j: by w = δ + a e and a = √α ν, from T."""
    e, root = point.e, math.exp(0.5 * point.log_alpha)
    delta, nu = point.T[:-1], root * point.T[-1]
    mixed = np.outer(nu, e @ delta)
    return (1 - float(e @ e)) * np.outer(nu, nu) - mixed - mixed.T - delta.T @ delta


def drift(group: Group, point: Point) -> float:
    """How much any a_i a_j - w_iᵀw_j of the group has changed, relative to α. WWᵀ - aaᵀ is conserved by the flow."""
    if not group.columns:
        now = math.exp(point.log_alpha) * (1 - float(point.e @ point.e))
        return abs(group.excess - now) * math.exp(-point.log_alpha)
    return float(np.linalg.norm(_lorentz(point) - group.form, 2)) * math.exp(-point.log_alpha)


def scatter(group: Group, point: Point, both: bool) -> tuple[np.ndarray, np.ndarray]:
    """(W, a) of the group's neurons."""
    if not both:
        return group.W0 + np.outer(group.a0, point.beta), group.a0
    root = math.exp(0.5 * point.log_alpha)
    if not group.columns:
        a = np.sign(group.a0) * root
        return np.outer(a, point.e), a
    pairs = (point.T @ group.spread).T
    a = root * pairs[:, -1]
    return pairs[:, :-1] + np.outer(a, point.e), a


def tail_weigh(problem: Problem, q_ref: float, differences: np.ndarray) -> Weighing:
    """`weigh` at margins q_ref + differences, exact however large q_ref is."""
    if q_ref < TAIL or not _exponential_tail(problem.loss):
        return weigh(problem, problem.y * (q_ref + differences))
    low = differences.min()
    size = np.exp(low - differences)
    total = size.sum()
    return Weighing(problem.y * (q_ref + differences), -q_ref - float(low) + math.log(total), problem.y * size / total)


def later(log_time: float, G0: float, g0: float, G1: float, g1: float, h: float) -> float:
    """log(t + ∫ e^G ds) over a step of length h, G the cubic with values G0, G1 and slopes g0, g1 at its ends.

    Far along, G rises by millions in one step and only the last few units of it count: the integral is taken over
    the part where G is within 45 of its end value.
    """
    span = h if g1 * h <= 45 else 45 / g1
    back = span * _FROM_END
    u = 1 - back / h
    # G - G1 by the Hermite form, arranged so that nothing large is subtracted near the end
    w = back / h
    rise = (G0 - G1) * w * w * (1 + 2 * u) + h * w * (g0 * u * w - g1 * u * u)
    return float(np.logaddexp(log_time, G1 + math.log(span / 2) + math.log(_WEIGHTS @ np.exp(np.minimum(rise, 0.0)))))


@functools.cache
def _exponential_tail(loss) -> bool:
    at = np.array([TAIL, 2 * TAIL])
    return bool(np.abs(loss.log_value(at) + at).max() < 1e-12 and np.abs(loss.log_slope(at) + at).max() < 1e-12)


class System:
    """All groups as one flat vector: per group ζ, log ω, T; then log A. `still` are margins that do not move."""

    def __init__(self, problem: Problem, members: list[tuple[Group, Point]], still: np.ndarray):
        self.problem, self.groups = problem, [group for group, _ in members]
        points = [point for _, point in members]
        r = problem.r
        both = problem.both
        if both:
            self.log_A0 = float(np.logaddexp.reduce([p.log_alpha for p in points]))
        else:
            self.log_A0 = 0.5 * math.log(max(sum(float(p.beta @ p.beta) for p in points), 1e-200))
        self.b = [p.beta * math.exp(-self.log_A0) for p in points]
        self.mass = [problem.gain * (1.0 if both else math.exp(p.log_alpha)) for p in points]
        # q = still + A·slope + Σ heads ζ
        self.heads = [problem.y[:, None] * (m * g.see) for g, m in zip(self.groups, self.mass, strict=True)]
        slope = sum((h @ b for h, b in zip(self.heads, self.b, strict=True)), np.zeros(len(problem.y)))
        self.ref = int(np.argmin(still + math.exp(self.log_A0) * slope))
        self.still, self.slope = still, slope
        self.still_diff, self.slope_diff = still - still[self.ref], slope - slope[self.ref]
        self.push = [problem.y[:, None] * (g.see if g.project is None else g.see @ g.project) for g in self.groups]
        self.at, size = [], 0
        for g in self.groups:
            self.at.append(size)
            size += r + ((1 + (r + 1) * g.columns) if both else 0)
        self.dim = size + 1
        # All groups side by side: one product with the data however many there are.
        self.omega_at = np.array(self.at, int) + r
        self.zeta_at = self.omega_at[:, None] - np.arange(r, 0, -1)
        self.many = [(k, self.at[k] + r + 1, (r + 1, g.columns)) for k, g in enumerate(self.groups)
                     if both and g.columns]
        self.B0 = np.array(self.b).reshape(-1, r)
        none = np.zeros((len(problem.y), 0))
        self.all_heads, self.all_push = (np.concatenate([none, *part], axis=1) for part in (self.heads, self.push))
        self.start = self._pack(points)

    def _pack(self, points: list[Point]) -> np.ndarray:
        parts = []
        for point in points:
            parts.append(np.zeros(self.problem.r))
            if self.problem.both:
                parts += [[point.log_alpha - self.log_A0], point.T.ravel()]
        return np.concatenate([*parts, [self.log_A0]])

    def tolerances(self, rtol: float) -> np.ndarray:
        """Absolute tolerances: ζ counts against margins of size 1 or the group's own size if that is smaller."""
        A, r = math.exp(min(self.log_A0, 0.0)), self.problem.r
        atol = np.full(self.dim, rtol)
        for g, at in zip(self.groups, self.at, strict=True):
            atol[at : at + r] = rtol * A
            if self.problem.both and g.columns:
                T = self.start[at + r + 1 : at + r + 1 + (r + 1) * g.columns].reshape(r + 1, -1)
                scale = np.full((r + 1, g.columns), rtol)
                scale[:-1] *= max(float(np.abs(T[:-1]).max()), 1e-150)
                atol[at + r + 1 : at + r + 1 + T.size] = scale.ravel()
        return atol

    def points(self, x: np.ndarray) -> list[Point]:
        r, found, A = self.problem.r, [], math.exp(x[-1])
        for g, at, b, mass in zip(self.groups, self.at, self.b, self.mass, strict=True):
            beta = A * b + x[at : at + r]
            if self.problem.both:
                T = x[at + r + 1 : at + r + 1 + (r + 1) * g.columns].reshape(r + 1, g.columns)
                # α from the conserved Σ(a² - ‖w‖²) = α - tr D - ‖β‖²/α, which β and D know better than ω does
                half = 0.5 * (float(np.sum(T[:-1] ** 2)) + g.excess)
                alpha = half + math.hypot(half, float(np.linalg.norm(beta)))
                found.append(Point(beta, math.log(alpha) if alpha > 0 else float(x[at + r] + x[-1]), T))
            else:
                found.append(Point(beta, math.log(mass / self.problem.gain), np.zeros((r + 1, 0))))
        return found

    def weigh(self, x: np.ndarray) -> Weighing:
        A, ref = math.exp(x[-1]), self.ref
        moved = self.all_heads @ x[self.zeta_at].ravel()
        differences = self.still_diff + A * self.slope_diff + (moved - moved[ref])
        return tail_weigh(self.problem, float(self.still[ref] + A * self.slope[ref] + moved[ref]), differences)

    def fields(self, look: Weighing) -> np.ndarray:
        """v of every group, (groups, r)."""
        return (np.abs(look.c) @ self.all_push).reshape(self.zeta_at.shape)

    def rate(self, s: float, x: np.ndarray) -> np.ndarray:
        return self.rate_in(x, self.fields(self.weigh(x)))

    def rate_in(self, x: np.ndarray, V: np.ndarray) -> np.ndarray:
        """dx/ds in the fields V."""
        A = math.exp(x[-1])
        out = np.empty_like(x)
        if not self.problem.both:
            drift = self._drift(V)
            out[self.zeta_at] = V - drift * self.B0
            out[-1] = drift / A
            return out
        B, omega = self.B0 + x[self.zeta_at] / A, np.exp(x[self.omega_at])
        along = (B * V).sum(axis=1)
        growth = 2 * along.sum()
        along /= omega
        out[self.zeta_at] = A * (omega[:, None] * V + along[:, None] * B - growth * self.B0)
        out[self.omega_at] = 2 * along - growth
        for k, at, shape in self.many:
            T = x[at : at + shape[0] * shape[1]].reshape(shape)
            root = 1 / math.sqrt(A * omega[k])
            reach = V[k] @ T[:-1]
            Dv = T[:-1] @ reach
            out[at - len(Dv) - 1 : at - 1] += Dv
            block = out[at : at + T.size].reshape(shape)
            block[:-1] = (B[k] / -omega[k])[:, None] * reach - (root * Dv)[:, None] * T[-1]
            block[-1] = root * reach
        out[-1] = growth
        return out

    def climb(self, x: np.ndarray, look: Weighing, rate: np.ndarray) -> tuple[float, float]:
        """(G, dG/ds) with G = -log L: what the time t = ∫ e^G ds needs."""
        q_rate = math.exp(x[-1]) * rate[-1] * self.slope + self.all_heads @ rate[self.zeta_at].ravel()
        return -look.log_loss, float(np.abs(look.c) @ q_rate)

    def _drift(self, V) -> float:
        size = float((self.B0**2).sum())
        return float((self.B0 * V).sum()) / size if size > 1e-100 else 0.0

    def jacobian(self, s: float, x: np.ndarray):
        """Exact but for how D depends on T, a term of relative size D/α in equations that are not stiff."""
        from scipy import sparse

        r, A, both = self.problem.r, math.exp(x[-1]), self.problem.both
        look = self.weigh(x)
        V = self.fields(look)
        q, pi = self.problem.y * look.f, np.abs(look.c)
        width = 1e-6 * np.maximum(1.0, np.abs(q))
        log_slope = self.problem.loss.log_slope
        bend = np.where(q > TAIL, -1.0, (log_slope(q + width) - log_slope(q - width)) / (2 * width))
        # dπ_i = π_i (bend_i dq_i + Σ π_k dq_k); dq = heads dζ + A slope dρ. Its common part drops out in the tail.
        slack = 0.0 if q.min() > TAIL else float(self.slope[self.ref])
        dq_rho = A * (self.slope_diff + slack)
        stride = r + 1 if both else r
        core = len(self.groups) * stride + 1  # ζ and log ω of every group, then log A
        DV = np.zeros((len(self.groups), r, core))
        for g, push in enumerate(self.push):
            weighted, total = push * (pi * bend)[:, None], pi @ push
            for h, head in enumerate(self.heads):
                DV[g, :, h * stride : h * stride + r] = weighted.T @ head + np.outer(total, pi @ head)
            DV[g, :, -1] = weighted.T @ dq_rho + total * float(pi @ dq_rho)
        where = np.concatenate([*(np.arange(at, at + stride) for at in self.at), [self.dim - 1]])
        J = np.zeros((core, core))
        extra: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

        def put(rows, columns, block):
            grid = np.broadcast_arrays(np.asarray(rows)[:, None], np.asarray(columns)[None])
            extra.append((grid[0].ravel(), grid[1].ravel(), np.asarray(block).ravel()))

        if both:
            Z = [x[at : at + r] for at in self.at]
            B = [b + z / A for b, z in zip(self.b, Z, strict=True)]
            growth_v = 2 * np.einsum("gr,grc->c", B, DV)
            for h, v in enumerate(V):
                growth_v[h * stride : h * stride + r] += 2 * v / A
            growth_v[-1] -= 2 * sum(float(v @ z) for v, z in zip(V, Z, strict=True)) / A
            growth = 2 * sum(float(b @ v) for b, v in zip(B, V, strict=True))
            for g, (group, at) in enumerate(zip(self.groups, self.at, strict=True)):
                self._group_rows(g, group, at, x, A, V[g], DV[g], B[g], Z[g], growth, growth_v, J, put, where)
            J[-1] = growth_v
        else:
            size = sum(float(b @ b) for b in self.b)
            drift_v = sum(b @ dv for b, dv in zip(self.b, DV, strict=True)) / size if size > 1e-100 else np.zeros(core)
            for g in range(len(self.groups)):
                J[g * r : (g + 1) * r] = DV[g] - np.outer(self.b[g], drift_v)
            J[-1] = drift_v / A
            J[-1, -1] -= self._drift(V) / A
        put(where, where, J)
        rows, columns, values = (np.concatenate(part) for part in zip(*extra, strict=True))
        return sparse.csc_matrix((values, (rows, columns)), shape=(self.dim, self.dim))

    def _group_rows(self, g, group, at, x, A, v, dv, b, z, growth, growth_v, J, put, where):
        """Rows of group g: dζ', d(log ω)' into J, dT' through `put`."""
        r, lo = self.problem.r, g * (self.problem.r + 1)
        omega = math.exp(x[at + r])
        T = x[at + r + 1 : at + r + 1 + (r + 1) * group.columns].reshape(r + 1, group.columns)
        delta, nu = T[:-1], T[-1]
        D, root = delta @ delta.T, 1 / math.sqrt(A * omega)
        bv = float(b @ v)
        turn = (bv * np.eye(r) + np.outer(b, v)) / omega  # d(b(b·v)/ω)/db
        rows = J[lo : lo + r]
        rows += A * (omega * dv + np.outer(b / omega, b @ dv) - np.outer(self.b[g], growth_v)) + D @ dv
        rows[:, lo : lo + r] += turn
        rows[:, lo + r] += A * (omega * v - b * bv / omega)
        rows[:, -1] += A * (omega * v + b * bv / omega - growth * self.b[g]) - turn @ z
        row = J[lo + r]
        row += 2 * (b @ dv) / omega - growth_v
        row[lo : lo + r] += 2 * v / (omega * A)
        row[lo + r] -= 2 * bv / omega
        row[-1] -= 2 * float(v @ z) / (omega * A)
        if not group.columns:
            return
        e, reach, m = b / omega, v @ delta, group.columns
        Dv, Ddv, reach_v = D @ v, D @ dv, delta.T @ dv
        block = np.empty((r + 1, m, dv.shape[1]))
        block[:-1] = -e[:, None, None] * reach_v[None] - root * Ddv[:, None, :] * nu[None, :, None]
        block[-1] = root * reach_v
        # through e = b/ω and through α = A ω
        block[:-1, :, lo + r] += np.outer(e, reach)
        block[:-1, :, -1] += np.outer(z / (A * omega), reach)
        by_size = np.concatenate([0.5 * root * np.outer(Dv, nu), -0.5 * root * reach[None]])
        block[:, :, lo + r] += by_size
        block[:, :, -1] += by_size
        for i in range(r):
            block[i, :, lo + i] -= reach / (A * omega)
        base = np.arange(at + r + 1, at + r + 1 + T.size)
        put(base, where, block.reshape(T.size, -1))
        inner = np.zeros((r + 1, r + 1))
        inner[:-1, :-1] = -np.outer(e, v)
        inner[:-1, -1] = -root * Dv
        inner[-1, :-1] = root * v
        for c in range(m):
            put(base[c::m], base[c::m], inner)
