"""Gradient flow to an angle of 1e-3 between every class's neurons and its max-margin vector, and to t = ∞.

Integrators of differential equations get the flow in the clock ds = L dt, with all weights formed in logs: in t
none of them passes the range of a float. They stop when the angle is reached or their time is up; the row shows their
last angle.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import marginflow as mf
from benchmarks.table import Entry, Least, Row, Run, clock, faster
from marginflow._core.arrays import double

WORK = "gradient flow"
ANGLE = 1e-3
RTOL, ATOL = 1e-6, 1e-9
PILOT = 1e7  # log t by which the angle is reached: it falls like (log t)^(-1/2)


class TimeUp(Exception):
    pass


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A start and what the end is measured against. State vectors are W, row by row, then a."""

    data: mf.Dataset
    net: Any
    theta: dict[str, np.ndarray]
    axes: dict[int, np.ndarray]

    @classmethod
    def of(cls, n: int, d: int, width: int) -> "Problem":
        data, net = mf.data.phuong2021(n=n, d=d, seed=0), mf.TwoLayer(width)
        answers = {1: mf.margins.positive(data), -1: mf.margins.negative(data)}
        theta = {k: np.asarray(v) for k, v in mf.inits.balanced(net, d, 1e-3, 0).items()}
        return cls(
            data, net, theta, {s: answer.value * np.asarray(answer.vector) for s, answer in answers.items()}
        )

    @property
    def start(self) -> np.ndarray:
        return np.concatenate([self.theta["W"].ravel(), self.theta["a"]])

    def split(self, z):
        p, d = self.net.width, self.data.d
        return z[: p * d].reshape(p, d), z[p * d :]

    def angle(self, z: np.ndarray) -> float:
        """The larger of the classes' angles; of a class, between its stacked rows and their projections on w±."""
        W, a = self.split(np.asarray(z, float))
        found = 0.0
        for sign, axis in self.axes.items():
            rows = W[np.sign(a) == sign]
            across = rows - np.outer(rows @ axis, axis)
            found = max(found, math.atan2(float(np.linalg.norm(across)), float(np.linalg.norm(rows @ axis))))
        return found

    def field(self, xp) -> Callable:
        """dθ/ds, written once for NumPy and JAX."""
        X, y = xp.asarray(self.data.X), xp.asarray(self.data.y)

        def field(z):
            W, a = self.split(z)
            pre = X @ W.T
            on = xp.where(pre > 0, 1.0, 0.0)
            q = y * ((on * pre) @ a)
            c = y * _weights(q, xp)
            return xp.concatenate([(a[:, None] * ((on * c[:, None]).T @ X)).ravel(), (on * pre).T @ c])

        return field


def _weights(q, xp):
    """-ℓ'(q_i)/Σ ℓ for the logistic loss, from logarithms."""
    low = xp.logaddexp(0.0, -q)  # ℓ
    log_loss = xp.where(q > 30, -q, xp.log(xp.maximum(low, 1e-300)))  # log ℓ = -q - e^{-q}/2 + ...
    top = log_loss.max()
    total = top + xp.log(xp.exp(log_loss - top).sum())
    return xp.exp(-xp.logaddexp(0.0, q) - total)


@dataclasses.dataclass
class Watch:
    """Has it arrived, is its time up? The last look is what the row shows."""

    problem: Problem
    limit: float
    began: float = dataclasses.field(default_factory=time.perf_counter)
    angle: float = math.inf
    clock: float = 0.0

    def begin(self) -> None:
        """Imports and compilation are over."""
        self.began = time.perf_counter()

    def expired(self) -> bool:
        return time.perf_counter() - self.began > self.limit

    def look(self, z, s: float) -> bool:
        self.angle, self.clock = self.problem.angle(z), s
        return self.angle <= ANGLE

    def guard(self, field: Callable) -> Callable:
        def guarded(s, z):
            if self.expired():
                raise TimeUp
            return field(z)

        return guarded


def scipy_solver(name: str) -> Callable[[Problem, Watch], bool]:
    def solve(problem: Problem, watch: Watch) -> bool:
        from scipy import integrate

        watch.begin()
        solver = getattr(integrate, name)(
            watch.guard(problem.field(np)), 0.0, problem.start, math.inf, rtol=RTOL, atol=ATOL
        )
        while solver.status == "running":
            solver.step()
            if watch.look(solver.y, float(solver.t)):
                return True
        return False

    return solve


def in_time(problem: Problem, watch: Watch) -> bool:
    """BDF on the flow as it is usually written, in t. It cannot arrive: t would have to pass the range of a float."""
    from scipy import integrate

    watch.begin()
    X, y = problem.data.X, problem.data.y

    def field(z):
        W, a = problem.split(z)
        pre = X @ W.T
        act = np.maximum(pre, 0)
        c = y / (1 + np.exp(np.minimum(y * (act @ a), 700.0)))
        return np.concatenate([(a[:, None] * (((pre > 0) * c[:, None]).T @ X)).ravel(), act.T @ c])

    solver = integrate.BDF(watch.guard(field), 0.0, problem.start, 1e300, rtol=RTOL, atol=ATOL)
    while solver.status == "running":
        solver.step()
        if watch.look(solver.y, float(solver.t)):
            return True
    return False


@double
def diffrax(problem: Problem, watch: Watch) -> bool:
    """Kvaerno5 in short pieces, so that the clock can be read."""
    import diffrax as dfx
    import equinox as eqx
    import jax.numpy as jnp

    field = problem.field(jnp)
    term = dfx.ODETerm(lambda s, z, args: field(z))

    @eqx.filter_jit
    def piece(s, end, z):
        found = dfx.diffeqsolve(term, dfx.Kvaerno5(), s, end, None, z, max_steps=16, throw=False,
                                stepsize_controller=dfx.PIDController(rtol=RTOL, atol=ATOL))  # fmt: skip
        assert found.ys is not None
        return found.ys[-1], found.result == dfx.RESULTS.successful

    s, h, z = 0.0, 1e-2, jnp.asarray(problem.start)
    piece(jnp.asarray(s), jnp.asarray(s + h), z)
    watch.begin()
    while not watch.expired() and h > 1e-12:
        end, good = piece(jnp.asarray(s), jnp.asarray(s + h), z)
        if not bool(good):
            h /= 4
            continue
        s, z, h = s + h, end, 1.5 * h
        if watch.look(np.asarray(z), s):
            return True
    return False


def torchdiffeq(problem: Problem, watch: Watch) -> bool:
    """dopri5, its only kind of adaptive method: explicit."""
    import torch
    from torchdiffeq import odeint

    X, y = (torch.tensor(np.array(v), dtype=torch.float64) for v in (problem.data.X, problem.data.y))

    def field(z):
        W, a = problem.split(z)
        z1 = torch.relu(X @ W.T)
        q = y * (z1 @ a)
        low = torch.where(q > 30, -q, torch.log(torch.nn.functional.softplus(-q)))
        c = y * torch.exp(-torch.nn.functional.softplus(q) - torch.logsumexp(low, 0))
        return torch.cat([(a[:, None] * (((z1 > 0) * c[:, None]).T @ X)).ravel(), z1.T @ c])

    watch.begin()
    s, z, guarded = 0.0, torch.tensor(problem.start), watch.guard(field)
    with torch.no_grad():
        while True:
            path: Any = odeint(
                guarded, z, torch.tensor([s, s + 0.25], dtype=torch.float64), rtol=RTOL, atol=ATOL
            )
            z = path[-1]
            s += 0.25
            if watch.look(z.numpy(), s):
                return True


def normalised_descent(problem: Problem, watch: Watch) -> bool:
    """Gradient descent on -log L with the step 1/(2‖θ‖²), about the largest that stays stable."""
    watch.begin()
    field, z, s, k = problem.field(np), problem.start, 0.0, 0
    while True:
        size = float(z @ z)
        step = min(0.1, 0.5 / size)
        z = z + step * field(z)
        s, k = s + step, k + 1
        if k % 50 == 0 and (watch.look(z, s) or watch.expired()):
            return watch.angle <= ANGLE


PEERS: tuple[tuple[str, Callable[[Problem, Watch], bool]], ...] = (
    ("SciPy BDF in t", in_time),
    ("SciPy BDF", scipy_solver("BDF")),
    ("SciPy LSODA", scipy_solver("LSODA")),
    ("diffrax Kvaerno5", diffrax),
    ("torchdiffeq dopri5", torchdiffeq),
    ("loss-normalised gradient descent", normalised_descent),
)


def rows(run: Run) -> Iterator[Entry]:
    """Least work: the field at the end, once."""
    cases = run.choose([(40, 5, 10, 10.0), (500, 20, 100, 10.0)], [(12, 3, 4, 0.3)])
    for n, d, width, limit in cases:
        yield from _case(Problem.of(n, d, width), limit, run)


def _case(problem: Problem, limit: float, run: Run) -> Iterator[Entry]:
    data, net = problem.data, problem.net
    least = Least(8.0 * data.n * data.d * net.width, 8.0 * (data.n * data.d + net.width * (data.d + 1)))
    about = f"n={data.n}, d={data.d}, width {net.width}"

    def flow(until):
        return mf.train(net, problem.theta, data, method="flow", until=until)

    pilot = flow(("log_time", PILOT))
    angles = np.fmax(pilot.history["angle_positive"], pilot.history["angle_negative"])
    there = np.flatnonzero(angles <= ANGLE)
    arrival = float(pilot.history["log_time"][there[0] if there.size else -1])
    end, seconds, _ = clock(
        lambda: flow(("log_time", arrival)), warm=lambda: None, repeats=run.choose(3, 1), patience=3.0
    )
    reached = problem.angle(np.concatenate([np.ravel(end.theta["W"]), end.theta["a"]]))
    quality = {"angle": reached, "log t": arrival, "normalised margin": end.summary()["normalised_margin"]}
    ours = Row(WORK, f"{about}, to angle {ANGLE:g}", "marginflow", seconds, quality, least)
    yield ours
    peers = []
    for name, method in PEERS:
        if run.quick and method is diffrax:  # half a minute of compilation on a slow machine
            continue
        watch = Watch(problem, limit)
        try:
            arrived = method(problem, watch)
            why = "" if arrived else "its time was up" if watch.expired() else "it stopped"
        except TimeUp:
            arrived, why = False, "its time was up"
        except ImportError as error:
            yield Row(
                WORK, ours.case, name, None, {"angle": None}, least, note=f"not installed: {error.name}"
            )
            continue
        taken = time.perf_counter() - watch.began
        at = "t" if method is in_time else "s"
        note = "" if arrived else f"{why} after {taken:.0f} s, at {at} = {watch.clock:.3g}"
        peers.append(
            Row(WORK, ours.case, name, taken if arrived else None, {"angle": watch.angle}, least, note=note)
        )
        yield peers[-1]
    yield faster(ours, peers, 100.0, lambda row: row.quality["angle"] <= ANGLE * 1.01,
                 "100 times the best peer, or none arrives")  # fmt: skip
    limit_run, seconds, _ = clock(
        lambda: flow("limit"), warm=lambda: None, repeats=run.choose(3, 1), patience=3.0
    )
    norms = (1 / solve(data).value for solve in (mf.margins.positive, mf.margins.negative))
    predicted = 1 / (2 * sum(norms))
    got = limit_run.summary()["normalised_margin"]
    at_end = problem.angle(np.concatenate([np.ravel(limit_run.theta["W"]), limit_run.theta["a"]]))
    off = abs(got / predicted - 1)
    quality = {"angle": at_end, "log t": math.inf, "normalised margin": got, "off the predicted margin": off}
    case = f"{about}, to t = infinity"
    yield Row(WORK, case, "marginflow", seconds, quality, least, note="no integrator has this row")
