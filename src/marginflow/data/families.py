"""Synthetic families of the papers. Each is a pure function of its arguments and seed."""

import numpy as np

from marginflow._core.errors import InputError
from marginflow.data.dataset import Dataset

DRAW_BYTES = 64 * 2**20


def phuong2021(n: int = 500, d: int = 20, seed: int = 0) -> Dataset:
    """Phuong & Lampert 2021, §5.1: Gaussian x kept as +1 in the first orthant, as -1 in the opposite one, if xᵀz >= 0.

    z = (1, -1, 1, -1, ...). Drawing |N(0,1)|^d with a random sign and keeping xᵀz >= 0 is the same distribution
    as rejection from R^d, at 2^(d-1) times less work.
    """
    _at_least("phuong2021", n=(n, 2), d=(d, 2), seed=(seed, 0))
    rng = np.random.default_rng(seed)
    z = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    while True:
        X, y = _first_kept(rng, z, n)
        if len(np.unique(y)) == 2:
            return Dataset(
                X, y, f"phuong2021:n={n},d={d},seed={seed}", _made("phuong2021", n=n, d=d, seed=seed)
            )


def _first_kept(rng: np.random.Generator, z: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.empty((n, len(z))), np.empty(n)
    size = min(2 * n + 16, max(1, DRAW_BYTES // (8 * len(z))))
    have = 0
    while have < n:
        sign = rng.choice([-1.0, 1.0], size=size)
        x = sign[:, None] * np.abs(rng.standard_normal((size, len(z))))
        kept = np.flatnonzero(x @ z >= 0)[: n - have]
        X[have : have + len(kept)], y[have : have + len(kept)] = x[kept], sign[kept]
        have += len(kept)
    X.flags.writeable = y.flags.writeable = False
    return X, y


def gaussian_mixture(n: int = 100, d: int = 2000, mean: float = 3.0, seed: int = 0) -> Dataset:
    """x = y·mean·e_1 + N(0, I): Gaussian class-conditional data, nearly orthogonal once d >> n²."""
    _at_least("gaussian-mixture", n=(n, 2), d=(d, 1), seed=(seed, 0))
    if not np.isfinite(mean):
        raise InputError(f"gaussian-mixture: mean={mean} is not a finite number")
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) < (n + 1) // 2, 1.0, -1.0)
    rng.shuffle(y)
    X = rng.standard_normal((n, d))
    X[:, 0] += mean * y
    X.flags.writeable = False
    name = f"gaussian-mixture:n={n},d={d},mean={mean},seed={seed}"
    return Dataset(X, y, name, _made("gaussian-mixture", n=n, d=d, mean=mean, seed=seed))


def chizat2020(
    n: int = 256, d: int = 15, k: int = 3, seed: int = 0, labels_seed: int | None = None
) -> Dataset:
    """Chizat & Bach 2020: k² clusters in the first two coordinates, half labelled -1 at random.

    Column 2 is the constant 1 (the bias), columns 3.. are uniform in [-½, ½]; d counts all of them. With
    `labels_seed` fixed, different seeds draw further points of the same problem (test sets).
    """
    _at_least("chizat2020", n=(n, 2), d=(d, 3), k=(k, 2), seed=(seed, 0))
    rng = np.random.default_rng(seed)
    label_rng = rng if labels_seed is None else np.random.default_rng(labels_seed)
    cluster_sign = np.where(np.arange(k * k) < k * k // 2, -1.0, 1.0)
    label_rng.shuffle(cluster_sign)
    delta = 1.0 / (3 * k - 1)
    cluster = rng.integers(0, k * k, size=n)
    while len(np.unique(cluster_sign[cluster])) < 2:
        cluster = rng.integers(0, k * k, size=n)
    grid = np.stack(np.divmod(np.arange(k * k), k), axis=1)
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.uniform(0, delta, n)
    X = np.empty((n, d))
    X[:, :2] = (
        delta * (1 + 3 * grid[cluster])
        - 0.5
        + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    )
    X[:, 2] = 1.0
    X[:, 3:] = rng.uniform(-0.5, 0.5, size=(n, d - 3))
    X.flags.writeable = False
    made = _made("chizat2020", n=n, d=d, k=k, seed=seed, labels_seed=labels_seed)
    name = f"chizat2020:n={n},d={d},k={k},seed={seed}" + (
        "" if labels_seed is None else f",labels_seed={labels_seed}"
    )
    return Dataset(X, cluster_sign[cluster], name, made)


def _made(family: str, **arguments) -> dict:
    return {"family": family, "arguments": arguments}


def _at_least(family: str, **bounds: tuple[float, float]) -> None:
    for name, (value, least) in bounds.items():
        if value != int(value):
            raise InputError(f"{family}: {name}={value} is not an integer")
        if value < least:
            raise InputError(f"{family}: {name}={value} is too small; give {name} >= {least}")
