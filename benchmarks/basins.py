"""The exact basin map against small-step integration, both in JAX, float64, on the same device.

Small steps: Euler for dw/dt = |a| Σ p_i 1{w·x_i > 0} x_i on unit vectors, vmapped and jitted, until the exact path's
last event (the longest of the sample) and SETTLE more, with the step halved until AGREE of the sample lie within WITHIN
of the exact limit or MOST steps are reached. The sample is for the number of steps; all steps cost the same, so the
time is that of a few hundred on a batch wide enough for the device.
"""

import time
from collections.abc import Iterator

import numpy as np

import marginflow as mf
from benchmarks.table import Aim, Entry, Least, Row, Run, clock
from marginflow._core.arrays import double

WORK = "basin map"
SETTLE, AGREE, WITHIN, MOST = 2.0, 0.99, 0.05, 500_000
PATIENCE = 8.0  # seconds that one more halving may be expected to take


@double
def small_steps(X, p, W, steps: int, h: float):
    """(final directions, seconds) of `steps` Euler steps."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def run(W, steps, h):
        def step(_, W):
            W = W + h * (((W @ X.T > 0) * p) @ X)
            return W / jnp.linalg.norm(W, axis=1, keepdims=True)

        return jax.lax.fori_loop(0, steps, step, W)

    W = jnp.asarray(W / np.linalg.norm(W, axis=1, keepdims=True))
    run(W, 1, h).block_until_ready()
    start = time.perf_counter()
    end = run(W, steps, h).block_until_ready()
    return np.asarray(end), time.perf_counter() - start


def gaussian(n: int, d: int) -> mf.Dataset:
    rng = np.random.default_rng(0)
    return mf.Dataset(rng.standard_normal((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0))


def rows(run: Run) -> Iterator[Entry]:
    """Least work: at each event three products of the data with a vector (theory §3.1), on one reading of the data."""
    million = 1_000_000
    cases = run.choose([(100, 3, million), (100, 20, million if run.gpu else 60_000)], [(20, 3, 256)])
    sample = run.choose(2**17 if run.gpu else 128, 16)
    batch, some = run.choose(2**17 if run.gpu else 4096, 64), 200
    for n, d, directions in cases:
        data = gaussian(n, d)
        W = np.random.default_rng(1).standard_normal((directions, d))
        few = W[: min(directions, 2**18 if run.gpu else 8192)]  # as many as are advanced together
        exact, seconds, warm_up = clock(
            lambda d=data, W=W: mf.basins(d, W), warm=lambda d=data, W=few: mf.basins(d, W), patience=1.0
        )
        events = float(exact.events.sum())
        case = f"n={n}, d={d}, {max(directions, run.choose(million, directions)):,} directions"
        whole = directions / run.choose(million, directions)
        least = Least(6.0 * n * d * events / whole, 8.0 * n * d)
        undecided = exact.counts()["undecided"]
        quality = {"agreement": 1.0, "undecided": undecided, "events each": events / directions}
        note = f"{1e6 * seconds / events:.2g} µs per event"
        ours = Row(WORK, case, "marginflow", seconds / whole, quality, least, warm_up, whole, note)
        yield ours
        T = float(exact.time[:sample].max()) + SETTLE
        steps = run.choose(1000, 200)
        while True:
            end, slow = small_steps(data.X, data.y / 2, W[:sample], steps, T / steps)
            same = float((np.linalg.norm(end - exact.limit[:sample], axis=1) < WITHIN).mean())
            if same >= AGREE or 2 * steps > run.choose(MOST, 800) or 2 * slow > PATIENCE:
                break
            steps *= 2
        timed = min(steps, some)
        slow = min(small_steps(data.X, data.y / 2, W[:batch], timed, T / steps)[1] for _ in range(2))
        share = timed / steps * min(batch, directions) / (directions / whole)
        note = (
            f"{steps:,} steps; agreement: share of {sample:,} starts within {WITHIN:g} of the exact limit; "
            f"time of {timed} steps of {min(batch, directions):,} starts"
        )
        name = "small steps, vmapped in JAX"
        peer = Row(WORK, case, name, slow / share, {"agreement": same}, least, whole=share, note=note)
        yield peer
        ratio = (peer.seconds or 0.0) / (ours.seconds or 1.0)
        yield Aim(WORK, case, "100 times small steps of equal fate", 100.0, ratio, ratio >= 100, peer.method)
