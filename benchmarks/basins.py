"""The exact basin map against small-step integration, both in JAX, float64, on the same device.

    python benchmarks/basins.py [--d 3 20] [--n 100] [--directions 100000] [--sample 64]

Small steps: Euler for dw/dt = |a| Σ p_i 1{w·x_i > 0} x_i on unit vectors, vmapped and jitted, until the exact
path's last event (the longest of the sample) plus `--settle` time units, with the step halved until at least
`--agree` of the sample lies within `--within` of the exact limit or `--most` steps are reached. Printed: microseconds
per neuron of both, the share that agrees, and the ratio. Compilation is left out of both.
"""

import argparse
import json
import time

import numpy as np

import marginflow as mf
from marginflow._core.arrays import double


@double
def small_steps(X, p, W, steps: int, h: float):
    """(final directions, seconds) of `steps` Euler steps."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def run(W):
        def step(_, W):
            W = W + h * (((W @ X.T > 0) * p) @ X)
            return W / jnp.linalg.norm(W, axis=1, keepdims=True)

        return jax.lax.fori_loop(0, steps, step, W)

    W = jnp.asarray(W / np.linalg.norm(W, axis=1, keepdims=True))
    run(W).block_until_ready()
    start = time.perf_counter()
    end = run(W).block_until_ready()
    return np.asarray(end), time.perf_counter() - start


def compare(
    n: int, d: int, directions: int, sample: int, settle: float, agree: float, within: float, most: int
) -> dict:
    rng = np.random.default_rng(0)
    data = mf.Dataset(rng.standard_normal((n, d)), np.where(np.arange(n) % 2, 1.0, -1.0))
    W = rng.standard_normal((directions, d))
    mf.basins(data, W[: min(directions, 8192)])
    start = time.perf_counter()
    exact = mf.basins(data, W)
    seconds = time.perf_counter() - start
    T = float(exact.time[:sample].max()) + settle
    h = T / 1000
    while True:
        end, slow = small_steps(data.X, data.y / 2, W[:sample], round(T / h), h)
        same = float((np.linalg.norm(end - exact.limit[:sample], axis=1) < within).mean())
        if same >= agree or round(T / h) * 2 > most:
            break
        h /= 2
    fast = seconds / directions
    return {
        "n": n,
        "d": d,
        "directions": directions,
        "seconds": seconds,
        "us_per_neuron": 1e6 * fast,
        "events_mean": float(exact.events.mean()),
        "us_per_event": 1e6 * seconds / float(exact.events.sum()),
        "slid": float((exact.slid > 0).mean()),
        "slid_most": int(exact.slid.max()),
        "limits": len(exact.limits),
        "retried": exact.retried,
        "undecided": exact.counts()["undecided"],
        "small_steps": round(T / h),
        "step": h,
        "within": within,
        "agree": same,
        "us_per_neuron_small_steps": 1e6 * slow / sample,
        "ratio": slow / sample / fast,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--d", type=int, nargs="+", default=[3, 20])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--directions", type=int, default=100_000)
    parser.add_argument("--sample", type=int, default=64)
    parser.add_argument("--settle", type=float, default=2.0)
    parser.add_argument("--agree", type=float, default=0.99)
    parser.add_argument("--within", type=float, default=0.05)
    parser.add_argument("--most", type=int, default=1_000_000)
    options = parser.parse_args()
    for d in options.d:
        row = compare(
            options.n,
            d,
            options.directions,
            options.sample,
            options.settle,
            options.agree,
            options.within,
            options.most,
        )
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
