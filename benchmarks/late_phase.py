"""The collapsed late phase against the width, from a net whose patterns are frozen to log t = 10^4."""

import math
import time
from collections.abc import Iterator

import numpy as np

import marginflow as mf
from benchmarks.table import Aim, Entry, Least, Row, Run, Slope
from marginflow import losses
from marginflow.flows import coupled, late_phase, piecewise

WORK = "late phase against width"
RTOL = 1e-8
FLAT = 0.05


def frozen(data: mf.Dataset, width: int, scale: float = 1e-3) -> dict[str, np.ndarray]:
    """Balanced weights of random positive combinations of one class each: in its absorbing sector from the start."""
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(width) % 2 == 0, 1.0, -1.0)
    W = np.empty((width, data.d))
    for sign, rows in ((1.0, data.positive), (-1.0, data.negative)):
        mine = signs == sign
        W[mine] = rng.random((int(mine.sum()), len(rows))) @ data.X[rows]
    W *= scale / np.linalg.norm(W, axis=1, keepdims=True)
    return {"W": W, "a": scale * signs}


def late(data: mf.Dataset, theta: dict[str, np.ndarray], log_time: float) -> tuple[dict, float, float]:
    """(answer, seconds to sort the neurons into groups, seconds of the late phase)."""
    problem = piecewise.problem(mf.TwoLayer(len(theta["a"])), data, losses.loss("logistic"))
    began = time.perf_counter()
    inside, _ = piecewise.into(problem, theta["W"])
    state = coupled.start(problem, inside, theta["a"])
    at = late_phase.gathered(problem, state)
    sorted_at, steps, reason = time.perf_counter(), 0, ""
    while reason not in ("target", "failed"):
        got = late_phase.stretch(at, RTOL, log_time=log_time, watch=False)
        at, steps, reason = got.late, steps + got.steps, got.reason
    ended = time.perf_counter()
    alpha = sum(math.exp(point.log_alpha) for point in at.points)
    margin = at.look.margin(problem) / (2 * alpha)
    return {"groups": len(at.system.groups), "steps": steps, "outcome": reason, "normalised margin": margin}, \
        sorted_at - began, ended - sorted_at  # fmt: skip


def rows(run: Run) -> Iterator[Entry]:
    """Least work: the weights read once, when the neurons are sorted into groups; the late phase itself reads none."""
    data = mf.data.phuong2021(n=20, d=5, seed=0)
    widths = run.choose((10**2, 10**3, 10**4, 10**5, 10**6), (10, 100))
    log_time = run.choose(1e4, 30.0)
    late(data, frozen(data, widths[0]), log_time)
    points = []
    for width in widths:
        theta = frozen(data, width)
        found = [late(data, theta, log_time) for _ in range(run.choose(4, 1))]
        answer, sorting, _ = found[0]
        seconds = min(f[2] for f in found)
        points.append((float(width), seconds))
        least = Least(0.0, 8.0 * width * (data.d + 1))
        yield Row(
            WORK,
            f"width {width:,}",
            "marginflow",
            seconds,
            answer,
            least,
            note=f"sorting into groups: {sorting:.3g} s",
        )
    slope = Slope.of(
        WORK, "width", points, "two groups whatever the width; only the sorting reads every neuron"
    )
    yield slope
    yield Aim(
        WORK, "all widths", f"flat: a slope within {FLAT:g} of 0", FLAT, slope.slope, abs(slope.slope) <= FLAT
    )
