"""Orthogonal separability against a blocked BLAS scan of all pairs, in the same process.

python benchmarks/orthogonal_separability.py [--large]
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import marginflow as mf
from marginflow.conditions.orthogonal_separability import orthogonal_separability

BLOCK = 1024


def cones(n: int, d: int, spread: float, seed: int = 0, dtype=np.float64) -> mf.Dataset:
    """x = y(e_1 + spread · g/√d): angles to the axis near arctan(spread)."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = spread * rng.standard_normal((n, d)) / np.sqrt(d)
    X[:, 0] += 1.0
    return mf.Dataset((y[:, None] * X).astype(dtype), y, f"cones:spread={spread:g}")


def orthants(n: int, d: int, sparsity: float = 0.0, seed: int = 0, dtype=np.float64) -> mf.Dataset:
    """Opposite orthants; with sparsity, most entries are shrunk, so that angles to any axis are wide."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = np.abs(rng.standard_normal((n, d), dtype=np.float32)).astype(dtype)
    if sparsity:
        X[rng.random((n, d)) < sparsity] *= 0.01
    return mf.Dataset(X * y[:, None].astype(dtype), y, f"orthants:sparsity={sparsity:g}")


def planted(data: mf.Dataset, seed: int = 0) -> tuple[mf.Dataset, tuple[int, int]]:
    """The same set with one same-class pair whose product is -1e-6 and whose other products keep their signs."""
    i, j = sorted(np.random.default_rng(seed).choice(data.positive, 2, replace=False))
    X, half = np.array(data.X), data.d // 2
    X[i], X[j] = np.arange(data.d) < half, np.arange(data.d) >= half
    X[j, 0] = -1e-6
    return mf.Dataset(X, data.y, f"{data.name}, one violation"), (int(i), int(j))


def blocked_scan(data: mf.Dataset) -> bool:
    """All pairs through BLAS, in blocks: what there is to beat."""
    plus, minus = data.X[data.positive], data.X[data.negative]
    for rows in (plus, minus):
        for i in range(0, len(rows), BLOCK):
            for j in range(i, len(rows), BLOCK):
                if (rows[i : i + BLOCK] @ rows[j : j + BLOCK].T).min() <= 0:
                    return False
    return all((plus[i : i + BLOCK] @ minus[j : j + BLOCK].T).max() <= 0
               for i in range(0, len(plus), BLOCK) for j in range(0, len(minus), BLOCK))


def fastest(call: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def rows(large: bool = False) -> list[dict[str, object]]:
    """One row per data set: seconds of both, their ratio, what was found."""
    table: list[dict[str, object]] = []
    cases = [cones(20_000, 100, 0.6), cones(20_000, 100, 0.9), orthants(20_000, 100), orthants(20_000, 100, 0.7),
             orthants(20_000, 100, 0.7, dtype=np.float32)]
    for data in cases:
        answer = orthogonal_separability(data)
        seconds = fastest(lambda data=data: orthogonal_separability(data))
        scan = fastest(lambda data=data: blocked_scan(data))
        table.append({**_about(data, answer), "seconds": seconds, "scan_seconds": scan, "speedup": scan / seconds})
    if large:
        clean = orthants(1_000_000, 50)
        broken, pair = planted(clean)
        for data in (clean, broken):
            answer = orthogonal_separability(data)
            tracemalloc.start()  # NumPy reports its arrays; the timed call above ran without it
            orthogonal_separability(data)
            used = tracemalloc.get_traced_memory()[1] / 2**20
            tracemalloc.stop()
            table.append({**_about(data, answer), "rows": answer.witness.get("rows"), "seconds": answer.seconds,
                          "planted": list(pair) if data is broken else None, "peak_mb": used})
    return table


def _about(data: mf.Dataset, answer) -> dict[str, object]:
    return {"data": data.name, "n": data.n, "d": data.d, "dtype": str(data.X.dtype), "status": answer.status.value,
            "pairs_examined": answer.witness["pairs_examined"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also a million rows, with and without a violation")
    for row in rows(parser.parse_args().large):
        cells = (f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in row.items())
        print("  ".join(cells))


if __name__ == "__main__":
    main()
