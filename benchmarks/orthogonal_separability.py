"""Orthogonal separability against a scan of all pairs through BLAS, or through PyTorch on the device."""

from collections.abc import Callable, Iterator

import numpy as np

import marginflow as mf
from benchmarks.table import Aim, Entry, Least, Row, Run, clock
from marginflow.conditions.orthogonal_separability import orthogonal_separability

WORK = "orthogonal separability"
BLOCK = 1024
DEVICE_BLOCK = 8192
SCANNED = 400  # blocks of pairs that are timed; a scan of more is scaled up


def cones(n: int, d: int, spread: float, seed: int = 0, dtype: type = np.float64) -> mf.Dataset:
    """x = y(e_1 + spread · g/√d): angles to the axis near arctan(spread)."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    X = rng.standard_normal((n, d))
    X *= spread / np.sqrt(d)
    X[:, 0] += 1.0
    X *= y[:, None]
    return mf.Dataset(X.astype(dtype, copy=False), y, f"cone:spread={spread:g}")


def orthants(n: int, d: int, sparsity: float = 0.0, seed: int = 0, dtype: type = np.float64) -> mf.Dataset:
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


Pair = tuple[int, int, int, int]  # class and first row of both blocks
Parts = list  # the rows of each class, where the scan wants them: gathering and copying them is not timed


def blocks(data: mf.Dataset, block: int = BLOCK) -> list[Pair]:
    """All pairs of blocks of rows, each pair once."""
    starts = {c: range(0, len(part), block) for c, part in ((0, data.positive), (1, data.negative))}
    same = [(c, i, c, j) for c in (0, 1) for i in starts[c] for j in starts[c] if j >= i]
    return same + [(0, i, 1, j) for i in starts[0] for j in starts[1]]


def parts(data: mf.Dataset) -> Parts:
    return [data.X[data.positive], data.X[data.negative]]


def scan(parts: Parts, pairs: list[Pair]) -> bool:
    """Every product of those blocks has the sign it should have."""
    for c, i, k, j in pairs:
        product = parts[c][i : i + BLOCK] @ parts[k][j : j + BLOCK].T
        if (product.min() <= 0) if c == k else (product.max() > 0):
            return False
    return True


def torch_parts(data: mf.Dataset, device: str) -> Parts:
    import torch

    return [torch.as_tensor(np.array(part)).to(device) for part in parts(data)]


def torch_scan(parts: Parts, pairs: list[Pair], block: int = BLOCK) -> bool:
    """The same in PyTorch; the host waits once."""
    import torch

    sound = torch.tensor(True, device=parts[0].device)
    for c, i, k, j in pairs:
        product = parts[c][i : i + block] @ parts[k][j : j + block].T
        sound = sound & ((product > 0).all() if c == k else (product <= 0).all())
    return bool(sound)


def cases(run: Run) -> list[tuple[str, Callable[[], mf.Dataset]]]:
    """(narrow, near 45° or wide, data made when their turn comes: the largest fill a gigabyte)."""
    if run.quick:
        return [("narrow", lambda: cones(1500, 20, 0.6)), ("wide", lambda: orthants(1500, 20, 0.7))]
    return [
        *(("narrow", lambda n=n: cones(n, 100, 0.6)) for n in (20_000, 100_000, 1_000_000)),
        ("near 45°", lambda: cones(20_000, 100, 0.9)),  # some rows are past it
        ("narrow", lambda: orthants(20_000, 100)),
        ("wide", lambda: orthants(20_000, 100, 0.7)),
        ("wide", lambda: orthants(20_000, 100, 0.7, dtype=np.float32)),
        ("wide", lambda: orthants(40_000, 100, 0.7)),
    ]


def rows(run: Run) -> Iterator[Entry]:
    """Least work: one reading of the data, the angles to an axis, and the pairs that the angles leave open."""
    for kind, make in cases(run):
        data = make()
        precision = "single" if data.X.dtype == np.float32 else "double"
        case = f"{kind}, {data.name}, n={data.n:,}, d={data.d}, {precision}"
        answer, seconds, _ = clock(lambda data=data: orthogonal_separability(data))
        formed = answer.witness["pairs_examined"]
        least = Least(4.0 * data.n * data.d + 2.0 * data.d * formed, data.X.nbytes, precision)
        ours = Row(
            WORK, case, "marginflow", seconds, {"status": answer.status.value, "pairs formed": formed}, least
        )
        yield ours
        peers: list[tuple[str, int, Parts, Callable]] = [("scan by BLAS", BLOCK, parts(data), scan)]
        if run.gpu:
            on_device = torch_parts(data, "cuda")
            peers.append(("scan by PyTorch on the device", DEVICE_BLOCK, on_device,
                          lambda parts, pairs: torch_scan(parts, pairs, DEVICE_BLOCK)))  # fmt: skip
        for name, block, prepared, method in peers:
            every = blocks(data, block)
            part = every[:: -(-len(every) // SCANNED)]
            sound, taken, _ = clock(lambda p=prepared, part=part, f=method: f(p, part), patience=1.0)
            whole = len(part) / len(every)
            quality = {"status": ("holds" if sound else "fails") if whole == 1 else "partial",
                       "pairs formed": data.n * (data.n + 1) // 2}  # fmt: skip
            peer = Row(WORK, case, name, taken / whole, quality, least, whole=whole)
            yield peer
            needed = 100.0 if kind == "narrow" else 1.0
            ratio = (peer.seconds or 0.0) / seconds
            yield Aim(WORK, case, f"{needed:g} times the {name}", needed, ratio, ratio >= needed, name)
