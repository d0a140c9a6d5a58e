"""Neurons followed through their events, given the weights of the examples.

Over one step the signed weights are a known function of time, c(θ) = k0 + k1 θ + k2 θ², θ in [0, 1]; then neurons do
not see each other, and each is carried from event to event on its own time: it meets a hyperplane, and crosses or is
held; or the coefficient of a hyperplane that holds it reaches an end of its range, and it leaves. Between events a
neuron moves by two exact arcs (the commutator-free Magnus rule of order 4 for a linear equation).
"""

import dataclasses

import numpy as np

from marginflow.flows.piecewise import SIDE, Problem, Slides, arc, slopes_of
from marginflow.sectors.selection import SPEED_ZERO, least_velocity

_GAUSS = np.array([0.5 - np.sqrt(3) / 6, 0.5 + np.sqrt(3) / 6])
_NEAR, _FAR = 0.25 + np.sqrt(3) / 6, 0.25 - np.sqrt(3) / 6
ROOT_STEPS = 60
MAX_ROUNDS = 100_000
MAX_REPEATS = 12  # events of one neuron at one instant, times one more than the dimension
Rows = np.ndarray | slice


@dataclasses.dataclass(frozen=True, eq=False)
class Followed:
    """Some neurons at the end of the step. events: (row, example, kind, θ); first: θ of each row's first event.

    settled: no neuron met the same instant's hyperplanes without end; otherwise the step counts for nothing.
    """

    W: np.ndarray
    a: np.ndarray
    sigma: np.ndarray
    held: list[np.ndarray]
    events: list[tuple[int, int, str, float]]
    first: np.ndarray
    settled: bool = True


class _Group:
    """The rows being followed, and the polynomial fields they feel under their present patterns."""

    def __init__(self, problem: Problem, poly: np.ndarray, pulls: np.ndarray, sigma: np.ndarray,
                 held: list[np.ndarray]):
        """pulls: (n, 3 r), the rows c_i x_i of every coefficient of `poly` side by side."""
        self.problem, self.poly = problem, poly
        self.sigma = sigma
        self.slides = Slides.of(problem, dict(enumerate(held)))
        free = np.ascontiguousarray(
            (slopes_of(problem, sigma) @ pulls).reshape(len(sigma), len(poly), problem.r).swapaxes(0, 1))
        self.pull = np.zeros((len(poly), 0))
        if len(self.slides):
            self.pull = np.einsum("kr,mkr->mk", self.slides.dual, free[:, self.slides.neuron])
            for m in range(len(poly)):
                np.subtract.at(free[m], self.slides.neuron, self.pull[m][:, None] * problem.X[self.slides.example])
        self.V = free

    def at(self, W, a, start, stop, rows: Rows = slice(None)):
        """Neurons at θ = stop from their values at θ = start."""
        length = (stop - start)[:, None]
        V = self.V[:, rows]
        near, far = (V[0] + t * (V[1] + t * V[2]) for t in (start[:, None] + g * length for g in _GAUSS))
        W, a = arc(self.problem, W, a, length * (_NEAR * near + _FAR * far))
        return arc(self.problem, W, a, length * (_FAR * near + _NEAR * far))

    def raw_sides(self, W, rows: Rows = slice(None)):
        """σ_k wᵀx_k: negative where a neuron is past a hyperplane of its pattern."""
        return self.sigma[rows] * (W @ self.problem.X.T)

    def scaled(self, W, raw):
        """The raw sides over ‖w‖‖x_k‖."""
        size = np.sqrt(np.einsum("pr,pr->p", W, W))
        return raw / (np.where(size > 0, size, 1.0)[:, None] * self.problem.norms)

    def speeds(self, W, a, theta):
        """d/dθ of the raw sides."""
        V = self.V[0] + theta[:, None] * (self.V[1] + theta[:, None] * self.V[2])
        return self.sigma * (a[:, None] * (V @ self.problem.X.T))

    def bounds(self, t, pairs: Rows = slice(None)):
        """(λ_k - leak)|c_k| and (1 - λ_k)|c_k| of some pairs at their times t, relative to max |c|."""
        value = lambda k: k[0] + t * (k[1] + t * k[2])  # noqa: E731
        sign = np.sign(self.poly[0, self.slides.example[pairs]])
        pull, size = -value(self.pull[:, pairs]) * sign, value(self.poly[:, self.slides.example[pairs]]) * sign
        top = np.abs(self.poly[0]).max()
        return (pull - self.problem.leak * size) / top, (size - pull) / top

    def rooms(self, theta_of_row, pairs: Rows = slice(None)):
        """Distance of λ_k to the nearer end of [leak, 1], per pair, times |c_k| and relative to max |c|."""
        return np.minimum(*self.bounds(theta_of_row[self.slides.neuron[pairs]], pairs))


def dip(u0, u1, d0, d1) -> tuple[np.ndarray, np.ndarray]:
    """(place in (0, 1), value) of the local minimum of the cubic with values u0, u1 and slopes d0, d1 at 0 and 1.

    1 and u1 where there is none strictly between.
    """
    bend, twist = 3 * (u1 - u0) - 2 * d0 - d1, 2 * (u0 - u1) + d0 + d1
    inner = bend * bend - 3 * twist * d0
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(inner, 0.0))
        # where the slope d0 + 2 bend t + 3 twist t² rises through 0, in the form that does not cancel
        place = np.where(bend > 0, -d0 / (bend + root), (root - bend) / (3 * twist))
        low = u0 + place * (d0 + place * (bend + place * twist))
        inside = (inner > 0) & (place > 0) & (place < 1)
    return np.where(inside, place, 1.0), np.where(inside, low, u1)


def follow(problem: Problem, poly: np.ndarray, W, a, sigma, held: list[np.ndarray]) -> Followed:
    """From θ = 0 to θ = 1; `poly` (3, n) is already multiplied by the length of the step."""
    W, a, sigma, held = W.copy(), a.copy(), sigma.copy(), list(held)
    theta, first = np.zeros(len(a)), np.ones(len(a))
    events: list[tuple[int, int, str, float]] = []
    going = np.arange(len(a))
    pulls = np.concatenate([c[:, None] * problem.X for c in poly], axis=1)
    repeats = np.zeros(len(a), int)
    for _ in range(MAX_ROUNDS):
        group = _Group(problem, poly, pulls, sigma[going], [held[j] for j in going])
        began = theta[going]
        stop, meets = _first_events(group, W[going], a[going], theta[going])
        W1, a1 = group.at(W[going], a[going], theta[going], stop)
        W[going], a[going], theta[going] = W1, a1, stop
        repeats[going] = np.where(stop - began <= 1e-13, repeats[going] + 1, 0)
        if np.any((meets >= 0) & (repeats[going] > MAX_REPEATS * (1 + problem.r))):
            return Followed(W, a, sigma, held, events, first, settled=False)
        for row in np.flatnonzero(meets >= 0):
            j, k = going[row], meets[row]
            t = stop[row]
            c = poly[0] + t * (poly[1] + t * poly[2])
            changes = resolve(problem, W, a, sigma, held, j, k, c)
            first[j] = min(first[j], t)
            events += [(int(j), int(example), kind, float(t)) for example, kind in changes]
        going = going[meets >= 0]
        if not len(going):
            return Followed(W, a, sigma, held, events, first)
    raise RuntimeError("a neuron met more hyperplanes than can be in one step")


def _first_events(group: _Group, W, a, start):
    """Per row: θ of its first event (1 if none) and the example it meets (-1 if none)."""
    rows = len(group.sigma)
    stop, meets = np.ones(rows), np.full(rows, -1)
    raw = group.raw_sides(W)
    end = group.at(W, a, start, np.ones(rows))
    raw_end = group.raw_sides(end[0])
    sides0, rooms0 = group.scaled(W, raw), group.rooms(start)
    # Looking at the lowest points finds excursions that are over by the end.
    looks = _dips(group, (W, a, raw), (*end, raw_end), start), np.full(rows, 0.5), np.ones(rows)
    for look in looks:
        open_rows = np.flatnonzero((meets < 0) & (look > 0))
        if not len(open_rows):
            continue
        sides1 = group.scaled(end[0][open_rows], raw_end[open_rows]) if look is looks[2] else None
        _narrow(group, W, a, start, start + look * (1 - start), stop, meets, open_rows, sides0, rooms0, sides1)
    return stop, meets


def _dips(group: _Group, begin, end, start) -> np.ndarray:
    """Per row, the first place (as a share of what is left of the step) where a condition dips below 0; 0 if none.

    begin, end: (W, a, raw sides) there.
    """
    length, one = (1 - start)[:, None], np.ones(len(start))
    speeds = [length * group.speeds(w, b, t) for (w, b, _), t in ((begin, start), (end, one))]
    place, low = dip(begin[2], end[2], *speeds)
    deep = low < -SIDE * np.linalg.norm(end[0], axis=1)[:, None] * group.problem.norms
    found = np.where(deep & (place < 1), place, np.inf).min(axis=1)
    if len(group.slides):
        neuron = group.slides.neuron
        ends = [group.bounds(t[neuron]) for t in (start, 0.5 * (1 + start), one)]
        for r0, half, r1 in zip(*ends, strict=True):
            # The quadratic through three points is the bound itself
            bend, slope = 2 * (r0 - 2 * half + r1), -3 * r0 + 4 * half - r1
            with np.errstate(divide="ignore", invalid="ignore"):
                x = -slope / (2 * bend)
                hit = (bend > 0) & (x > 0) & (x < 1) & (r0 + x * (slope + x * bend) < -SIDE)
            np.minimum.at(found, neuron[hit], x[hit])
    return np.where(np.isfinite(found), found, 0.0)


def _narrow(group: _Group, W, a, start, hi, stop, meets, live, sides0, rooms0, sides1=None):
    """Brings `stop` down to the first event in [start, hi] of the rows `live` that have one.

    sides1: the sides of those rows at hi, where they are known.
    """
    slides = group.slides
    for _ in range(len(sides0[0]) + len(slides) + 1):
        if sides1 is None:
            W1, _ = group.at(W[live], a[live], start[live], hi[live], live)
            sides1 = group.scaled(W1, group.raw_sides(W1, live))
        cost, pick = np.full(len(live), np.inf), np.full(len(live), -1)
        late = np.full(len(live), np.nan)  # the chosen quantity at hi
        past = sides1 < -SIDE
        if past.any():
            with np.errstate(divide="ignore", invalid="ignore"):
                near = np.maximum(sides0[live], 0)
                ahead = np.where(past, near / (near - sides1), np.inf)
            pick = np.argmin(ahead, axis=1)
            each = np.arange(len(live))
            cost, late = ahead[each, pick], sides1[each, pick]
        pair_of = np.full(len(live), -1)
        if len(slides):
            rooms1 = group.rooms(hi)
            position = {int(row): i for i, row in enumerate(live)}
            for q in np.flatnonzero(rooms1 < -SIDE):
                i = position.get(int(slides.neuron[q]))
                if i is None:
                    continue
                r0 = max(rooms0[q], 0.0)
                estimate = r0 / (r0 - rooms1[q])
                if estimate < cost[i]:
                    cost[i], pick[i], pair_of[i], late[i] = estimate, slides.example[q], q, rooms1[q]
        found = np.isfinite(cost)
        live, pick, pair_of, late = live[found], pick[found], pair_of[found], late[found]
        if not len(live):
            return
        early = np.where(pair_of >= 0, rooms0[pair_of] if len(slides) else 0.0, sides0[live, pick])
        root = _roots(group, W, a, start, hi, live, pick, pair_of, early, late)
        stop[live], meets[live] = root, pick
        hi[live], sides1 = root, None


def _roots(group: _Group, W, a, start, hi, live, pick, pair_of, early, late):
    """θ where the chosen quantity of each live row is -SIDE/2, from its values at both ends.

    Newton's method for a hyperplane, false position (Illinois) for the coefficient of one that holds, bisection
    wherever these leave the bracket or are slow. Below 0 and not at it: there the quantity is falling, so that what the
    neuron does next is not in doubt, even if it starts on the hyperplane and rises from it first.
    """
    problem = group.problem
    Xk, scale = problem.X[pick], problem.norms[pick]
    sign = group.sigma[live, pick].astype(float)
    theta, ends = np.array(start), pair_of >= 0
    W0, a0, from_, V = W[live], a[live], start[live], group.V[:, live]
    along = np.einsum("mpr,pr->mp", V, Xk)  # of the field, at θ: a polynomial

    def value(t):
        W1, a1 = group.at(W0, a0, from_, t, live)
        size = np.sqrt(np.einsum("pr,pr->p", W1, W1))
        size = np.where(size > 0, size, 1.0) * scale
        g = sign * np.einsum("pr,pr->p", W1, Xk) / size
        slope = sign * a1 * (along[0] + t * (along[1] + t * along[2])) / size
        if ends.any():
            theta[live] = t
            g[ends] = group.rooms(theta, pair_of[ends])
        return g + SIDE / 2, slope

    lo, up = from_.copy(), hi[live].copy()
    g_lo, g_up = np.maximum(early + SIDE / 2, 0.0), late + SIDE / 2
    done = g_lo <= 0
    root = np.where(done, lo, up)
    last = np.zeros(len(live), int)
    with np.errstate(divide="ignore", invalid="ignore"):
        ahead = lo + (up - lo) * g_lo / (g_lo - g_up)
        for step in range(ROOT_STEPS):
            if done.all():
                break
            middle = 0.5 * (lo + up)
            t = middle if step % 4 == 3 else np.where((ahead >= lo) & (ahead <= up), ahead, middle)
            g, slope = value(t)
            below = g < 0
            g_up = np.where(below, g, np.where(~below & (last == 1), 0.5 * g_up, g_up))
            g_lo = np.where(~below, g, np.where(below & (last == -1), 0.5 * g_lo, g_lo))
            up, lo = np.where(below, t, up), np.where(below, lo, t)
            last = np.where(below, -1, 1)
            now = (np.abs(g) <= SIDE / 16) | (up - lo <= 4e-16)
            root = np.where(done, root, np.where(now, t, up))
            done |= now
            ahead = np.where(ends, lo + (up - lo) * g_lo / (g_lo - g_up), t - g / slope)
    return root


def resolve(problem: Problem, W, a, sigma, held, j: int, k: int, c: np.ndarray) -> list[tuple[int, str]]:
    """The pattern of neuron j just after it meets example k (in place), and what changed: (example, kind).

    With s = sign(a_j) the opposed examples, s c_k < 0, contribute a concave function of w, and the velocity is the
    admissible one of least norm (sectors/selection.py). An aligned hyperplane is crossed: both of its one-sided
    velocities point the same way. Where a sliding ends the velocity is continuous, and the end that λ_k has reached
    says which side is next: asking for the least norm again would compare two speeds that are both 0 to rounding.
    """
    Z, before = held[j], int(sigma[j, k])
    s = 1.0 if a[j] >= 0 else -1.0
    if k in Z:
        sigma[j, k] = _released(problem, s, sigma[j], Z, k, c)
        held[j] = Z[Z != k]
        return [(k, "leave")]
    crossed = s * c[k] >= 0
    if crossed:
        sigma[j, k] = -before
        zeros = Z
    else:
        zeros = np.append(Z, k)
    changes = [(k, "cross_on" if before < 0 else "cross_off")] if crossed else []
    if not crossed and len(zeros) == 1 and before != 0:
        # One opposed hyperplane: it is crossed if the velocities on both of its sides point the same way
        slopes = slopes_of(problem, sigma[j])
        slopes[k] = 0.0
        pull = s * float((slopes * c) @ (problem.X @ problem.X[k]))
        size = abs(c[k]) * problem.norms[k] ** 2
        if (pull < problem.leak * size) if before > 0 else (pull > size):
            sigma[j, k] = -before
            return [(k, "cross_off" if before > 0 else "cross_on")]
    if len(zeros):
        settled = settle_zeros(problem, s, sigma[j], zeros, c)
        for i in zeros:
            was, now = i in Z, int(settled[i])
            if was and now:
                changes.append((int(i), "leave"))
            elif not was and now == 0:
                changes.append((int(i), "enter"))
            elif not was:
                kind = "cross_on" if now > 0 else "cross_off"
                if now != before:
                    changes.append((int(i), kind))
            sigma[j, i] = now
        held[j] = zeros[settled[zeros] == 0]
        if len(held[j]):
            X = problem.X[held[j]]
            w = W[j] - np.linalg.pinv(X) @ (X @ W[j])
            W[j] = w * (np.linalg.norm(W[j]) / (np.linalg.norm(w) or 1.0))
    return changes


def _released(problem: Problem, s: float, sigma: np.ndarray, Z: np.ndarray, k: int, c: np.ndarray) -> int:
    """The side to which a neuron leaves the hyperplane of x_k: λ_k past 1 means on, below the leak off.

    For an aligned example, held only because the field ran along its hyperplane, it is the other way round.
    """
    free = (slopes_of(problem, sigma) * c) @ problem.X
    pull = -float((np.linalg.pinv(problem.X[Z]).T @ free)[np.flatnonzero(Z == k)[0]]) * np.sign(c[k])
    up = abs(c[k]) - pull < pull - problem.leak * abs(c[k])
    return 1 if up == (s * c[k] < 0) else -1


def settle_zeros(problem: Problem, s: float, sigma: np.ndarray, zeros: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Sector signs with those of `zeros` decided: 0 held (or moving along), ±1 leaving to that side."""
    X, leak = problem.X, problem.leak
    sigma = sigma.copy()
    sigma[zeros] = 0
    slopes = slopes_of(problem, sigma)
    slopes[zeros] = leak
    opposed, aligned = zeros[s * c[zeros] < 0], zeros[s * c[zeros] >= 0]
    scale = float(np.abs(c) @ problem.norms)
    while True:
        rows = (1 - leak) * np.abs(c[opposed])[:, None] * X[opposed]
        v, part = least_velocity(s * ((slopes * c) @ X), rows, scale)
        pull = X[aligned] @ v
        rising = aligned[(pull > SPEED_ZERO * problem.norms[aligned] * scale) & (slopes[aligned] < 1)]
        if not len(rising):
            break
        slopes[rising[0]] = 1.0
    speed = X[zeros] @ v
    still = np.abs(speed) <= SPEED_ZERO * problem.norms[zeros] * scale
    sigma[zeros] = np.where(still, 0, np.sign(speed))
    sliding = opposed[(part > 0) & (part < 1)]
    sigma[sliding] = 0
    return sigma
