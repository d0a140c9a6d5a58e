"""The machine a run was made on, and the two rates that floors are computed from."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import marginflow as mf

PACKAGES = ("marginflow", "numpy", "scipy", "jax", "diffrax", "clarabel", "highspy", "cvxpy", "scikit-learn", "torch",
            "torchdiffeq", "pyscnn")  # fmt: skip


def describe(gpu: bool = False) -> dict[str, Any]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    versions["marginflow"] = mf.__version__  # also where it is only on the path
    found = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "load": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }
    if gpu:
        import jax

        found["device"] = jax.devices("gpu")[0].device_kind
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def rates(gpu: bool = False, size: int = 2048, megabytes: int = 256) -> dict[str, float]:
    """Operations per second of one large product in each precision, bytes per second read and written; best of five.

    On random numbers: processors are quicker on zeros and ones."""
    return _device_rates(size, megabytes) if gpu else _host_rates(size, megabytes)


def _host_rates(size: int, megabytes: int) -> dict[str, float]:
    found = {}
    for name, dtype in (("single", np.float32), ("double", np.float64)):
        A = np.random.default_rng(0).random((size, size), dtype)
        found[name] = 2.0 * size**3 / _best(lambda A=A: A @ A)
    source = np.ones(megabytes * 2**17)
    target = np.empty_like(source)
    found["bandwidth"] = 2.0 * source.nbytes / _best(lambda: np.copyto(target, source))
    return found


def _device_rates(size: int, megabytes: int) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    found = {}
    with jax.enable_x64(True):
        for name, dtype in (("single", jnp.float32), ("double", jnp.float64)):
            A = jax.random.uniform(jax.random.key(0), (4 * size, 4 * size), dtype)
            product = jax.jit(lambda A: jnp.matmul(A, A, precision="highest"))
            found[name] = 2.0 * (4 * size) ** 3 / _best(lambda A=A, f=product: f(A).block_until_ready())
        source = jnp.ones(megabytes * 2**21, jnp.float32)  # eight times as much: far beyond the cache
        shifted = jax.jit(lambda v: v + 1)
        found["bandwidth"] = 2.0 * source.nbytes / _best(lambda: shifted(source).block_until_ready())
    return found


def _best(call: Callable[[], Any], times: int = 5) -> float:
    call()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)
