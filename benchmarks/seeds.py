"""Seeds of theory §8.1 (n=500, d=20, width 100, SGD, batch 50, 500 epochs), in single precision.

Every method trains on the same data from the same law of initial weights with its own random orders. A step needs
two products of 50 × 20 × 100, outputs and the gradient of W: 4·50·20·100 operations, and those of the output layer.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import marginflow as mf
from benchmarks.table import Aim, Entry, Least, Row, Run, clock
from marginflow.flows import ensembles

WORK = "SGD seeds"
N, D, WIDTH, BATCH, LR, SCALE = 500, 20, 100, 50, 0.1, 0.05
STEPS = N // BATCH  # per epoch
OPERATIONS = 4.0 * BATCH * D * WIDTH + 4.0 * BATCH * WIDTH

Quality = dict[str, Any]


def ours(data: mf.Dataset, seeds: int, epochs: int) -> Quality:
    members = ensembles.grid(seeds=range(seeds), scales=[SCALE], lrs=[LR])
    found = ensembles.ensemble(mf.TwoLayer(WIDTH), data, members, init="uniform", batch=BATCH, epochs=epochs,
                               precision="single", progress=False)  # fmt: skip
    return judged(data, found.theta["W"], found.theta["a"])


def judged(data: mf.Dataset, W, a) -> Quality:
    """Mean loss, and margin over norms, of nets stacked along the first axis."""
    W, a = np.asarray(W, float).reshape(-1, WIDTH, D), np.asarray(a, float).reshape(-1, WIDTH)
    f = np.einsum("snp,sp->sn", np.maximum(np.einsum("nd,spd->snp", data.X, W), 0), a)
    q = data.y * f
    size = (W**2).sum((1, 2)) + (a**2).sum(1)
    return {
        "log loss": math.log(np.logaddexp(0, -q).mean()),
        "normalised margin": float((q.min(1) / size).mean()),
    }


def drawn(seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial weights of the framework's default law, scaled."""
    rng = np.random.default_rng(0)
    W = rng.uniform(-1, 1, (seeds, WIDTH, D)) * SCALE * D**-0.5
    a = rng.uniform(-1, 1, (seeds, WIDTH)) * SCALE * WIDTH**-0.5
    return W.astype(np.float32), a.astype(np.float32)


def numpy_loop(data: mf.Dataset, seeds: int, epochs: int) -> Quality:
    """Hand-written gradients, all nets in one product."""
    X, y = np.asarray(data.X, np.float32), np.asarray(data.y, np.float32)
    W, a = drawn(seeds)
    rng = np.random.default_rng(1)
    each = np.arange(seeds)[:, None]
    for _ in range(epochs):
        order = np.argsort(rng.random((seeds, N)), axis=1)
        for start in range(0, N, BATCH):
            rows = order[:, start : start + BATCH]
            x, labels = X[rows], y[rows]
            z = np.maximum(x @ W.transpose(0, 2, 1), 0)
            q = labels * np.einsum("sbp,sp->sb", z, a)
            c = labels / (1 + np.exp(q)) * np.float32(LR / BATCH)
            ga = np.einsum("sb,sbp->sp", c, z)
            W += a[:, :, None] * (((z > 0) * c[:, :, None]).transpose(0, 2, 1) @ x)
            a[each[:, 0]] += ga
    return judged(data, W, a)


class Torch:
    """PyTorch's ways of training many nets, on one device."""

    def __init__(self, data: mf.Dataset, device: str):
        import torch

        self.torch, self.data, self.device = torch, data, device
        self.X, self.y = (
            torch.tensor(np.array(v), dtype=torch.float32, device=device) for v in (data.X, data.y)
        )

    def single(self, epochs: int, compiled: bool) -> Quality:
        """One net: a module and an optimiser, as one writes it."""
        torch, X, y = self.torch, self.X, self.y
        W, a = drawn(1)
        net = torch.nn.Sequential(
            torch.nn.Linear(D, WIDTH, bias=False), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1, bias=False)
        ).to(self.device)
        with torch.no_grad():
            net[0].weight.copy_(torch.tensor(W[0]))
            net[2].weight.copy_(torch.tensor(a))
        optimiser = torch.optim.SGD(net.parameters(), lr=LR)

        def loss_of(x, labels):
            return torch.nn.functional.softplus(-labels * net(x).squeeze(-1)).mean()

        loss_of = torch.compile(loss_of) if compiled else loss_of
        for _ in range(epochs):
            order = torch.randperm(N, device=self.device)
            for start in range(0, N, BATCH):
                rows = order[start : start + BATCH]
                loss = loss_of(X[rows], y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return judged(self.data, net[0].weight.detach().cpu(), net[2].weight.detach().cpu())

    def mapped(self, seeds: int, epochs: int, step=None) -> Quality:
        """All nets in one call of torch.func.vmap, compiled if `step` is."""
        torch, X, y = self.torch, self.X, self.y
        step = step or self.step()
        W, a = (torch.tensor(v, device=self.device) for v in drawn(seeds))
        for _ in range(epochs):
            order = torch.argsort(torch.rand(seeds, N, device=self.device), dim=1)
            for start in range(0, N, BATCH):
                rows = order[:, start : start + BATCH]
                W, a = step(W, a, X[rows], y[rows])
        return judged(self.data, W.cpu(), a.cpu())

    def step(self, compiled: bool = False):
        torch = self.torch

        def loss(W, a, x, labels):
            return torch.nn.functional.softplus(-labels * (torch.relu(x @ W.T) @ a)).mean()

        gradient = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))

        def step(W, a, x, labels):
            gW, ga = gradient(W, a, x, labels)
            return W - LR * gW, a - LR * ga

        return torch.compile(step) if compiled else step


def rows(run: Run) -> Iterator[Entry]:
    data = mf.data.phuong2021(n=N, d=D, seed=0)
    epochs = run.choose(500, 2)
    counts = run.choose([1, 10, 100, 10_000], [8])
    most = run.choose(10_000 if run.gpu else 120, 8)  # trained in one go; more are as many batches again
    table: dict[int, list[Row]] = {count: [] for count in counts}
    for count in counts:
        kept = min(count, most)
        start = run.choose(2, epochs)  # the same program, whatever the number of epochs
        quality, seconds, warm_up = clock(
            lambda k=kept: ours(data, k, epochs), warm=lambda k=kept, e=start: ours(data, k, e), patience=1.0
        )
        yield _row(table, count, "marginflow", seconds, quality, epochs, warm_up, kept / count)
    for name, one, together in _peers(data, run, epochs):
        solo: tuple[Quality, float, float] | None = None
        for count in counts:
            if together is None:  # one net after the other
                solo = solo or clock(lambda one=one: one(epochs), warm=lambda one=one: one(1), patience=1.0)
                yield _row(table, count, name, solo[1], solo[0], epochs, solo[2], 1 / count)
                continue
            best = min(
                (_batched(together, size, count, epochs) for size in _sizes(count, run)),
                key=lambda found: found.seconds / found.whole,
            )
            yield _row(
                table, count, name, best.seconds, best.quality, epochs, best.warm_up, best.whole, best.size
            )
    for count in counts:
        yield from _aims(table[count], run)


def _peers(data: mf.Dataset, run: Run, epochs: int) -> Iterator[tuple[str, Any, Any]]:
    """(name, trains one net, trains many at once or None)."""
    yield "NumPy, all nets in one product", None, lambda k, e: numpy_loop(data, k, e)
    if importlib.util.find_spec("torch") is None:
        return
    torch = Torch(data, run.device)
    yield "PyTorch eager", lambda e: torch.single(e, False), None
    yield "torch.func.vmap", None, lambda k, e: torch.mapped(k, e)
    if run.quick:
        return
    yield "torch.compile", lambda e: torch.single(e, True), None
    step: Callable = torch.step(compiled=True)
    yield "torch.compile of torch.func.vmap", None, lambda k, e: torch.mapped(k, e, step)


class Batched(NamedTuple):
    """One call that trains `size` nets, which is the fraction `whole` of the work asked for."""

    size: int
    seconds: float
    whole: float
    quality: Quality
    warm_up: float


def _sizes(count: int, run: Run) -> list[int]:
    """Nets in one call: peers may train many in batches, one batch after the other, whichever size is best."""
    sizes = (10, 100, 1000) if run.gpu else (10, 100)
    return sorted({min(count, size) for size in sizes})


def _batched(together: Callable[[int, int], Quality], size: int, count: int, epochs: int) -> Batched:
    shorter = epochs if size <= 10 else max(1, epochs // 50)
    quality, seconds, warm_up = clock(
        lambda: together(size, shorter), warm=lambda: together(size, 1), patience=0.5
    )
    shown = quality if shorter == epochs else {"log loss": None, "normalised margin": None}
    return Batched(size, seconds, size / count * shorter / epochs, shown, warm_up)


def _row(table, count, method, measured, quality, epochs, warm_up, whole, size=None) -> Row:
    """measured: seconds of the fraction `whole` of the work; the row is the whole work in proportion."""
    least = Least(OPERATIONS * STEPS * epochs * count, 8.0 * N * D, "single")
    note = f"in batches of {size:,}" if size is not None and size < count else ""
    case = f"{count:,} seeds, {epochs} epochs"
    row = Row(WORK, case, method, measured / whole, quality, least, warm_up, whole, note)
    table[count].append(row)
    return row


def _aims(rows: list[Row], run: Run) -> Iterator[Aim]:
    mine, peers = rows[0], rows[1:]
    eager = [row for row in peers if row.method == "PyTorch eager"]
    if eager:
        yield _aim(mine, eager, 5.0 if run.gpu else 10.0, "PyTorch eager")
    if peers:
        yield _aim(mine, peers, 5.0 if run.gpu else 1.5, "the best peer")


def _aim(mine: Row, peers: list[Row], needed: float, whom: str) -> Aim:
    best = min(peers, key=lambda row: row.seconds or math.inf)
    ratio = (best.seconds or math.inf) / (mine.seconds or math.inf)
    return Aim(WORK, mine.case, f"{needed:g} times {whom}", needed, ratio, ratio >= needed, best.method)
