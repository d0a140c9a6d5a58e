"""How the time of each part grows with n and d: marginflow alone, log-log slopes, each with its reason."""

from collections.abc import Callable, Iterator

import numpy as np

import marginflow as mf
from benchmarks import seeds
from benchmarks.basins import gaussian
from benchmarks.orthogonal_separability import cones, orthants
from benchmarks.table import Entry, Run, Slope, clock
from marginflow.conditions.orthogonal_separability import orthogonal_separability
from marginflow.flows import ensembles

Measured = Callable[[int], Callable[[], object]]  # size -> the call to time


def separability(make: Callable[[int], mf.Dataset]) -> Measured:
    def prepared(size: int):
        data = make(size)
        return lambda: orthogonal_separability(data)

    return prepared


def hard_margin(n: Callable[[int], int], d: Callable[[int], int]) -> Measured:
    def prepared(size: int):
        data = mf.data.phuong2021(n=n(size), d=d(size), seed=0)
        return lambda: mf.margins.positive(data)

    return prepared


def f1(n: Callable[[int], int], d: Callable[[int], int]) -> Measured:
    def prepared(size: int):
        data = mf.data.chizat2020(n=n(size), d=d(size), k=3, seed=0)
        return lambda: mf.margins.f1(data)

    return prepared


def sgd(n: Callable[[int], int], d: Callable[[int], int], epochs: int) -> Measured:
    def prepared(size: int):
        data = mf.data.phuong2021(n=n(size), d=d(size), seed=0)
        members = ensembles.grid(seeds=range(8), scales=[seeds.SCALE], lrs=[seeds.LR])
        return lambda: ensembles.ensemble(mf.TwoLayer(seeds.WIDTH), data, members, init="uniform", batch=seeds.BATCH,
                                          epochs=epochs, precision="single", progress=False)  # fmt: skip

    return prepared


def flow(n: Callable[[int], int], d: Callable[[int], int]) -> Measured:
    def prepared(size: int):
        data, net = mf.data.phuong2021(n=n(size), d=d(size), seed=0), mf.TwoLayer(40)
        theta = mf.inits.balanced(net, data.d, 1e-3, 0)
        return lambda: mf.train(net, theta, data, method="flow", until="limit")

    return prepared


def basins(n: Callable[[int], int], d: Callable[[int], int], directions: int) -> Measured:
    def prepared(size: int):
        data = gaussian(n(size), d(size))
        W = np.random.default_rng(1).standard_normal((directions, data.d))
        return lambda: mf.basins(data, W)

    return prepared


def itself(size: int) -> int:
    return size


def fixed(value: int) -> Callable[[int], int]:
    return lambda size: value


def laws(run: Run) -> list[tuple[str, str, tuple[int, ...], Measured, str]]:
    """(work, variable, sizes, what is timed, why the slope is what it is)."""
    epochs, directions = run.choose(100, 2), run.choose(4096, 64)
    return [
        ("orthogonal separability, narrow cone", "n", (20_000, 80_000, 320_000),
         separability(lambda n: cones(n, 100, 0.6)), "one pass over the rows and a sort of n angles"),
        ("orthogonal separability, narrow cone", "d", (50, 200, 800),
         separability(lambda d: cones(20_000, d, 0.6)), "one pass over the rows"),
        ("orthogonal separability, wide cone", "n", (5_000, 10_000, 20_000),
         separability(lambda n: orthants(n, 100, 0.7)), "every pair is formed: products of n²/2 pairs"),
        ("orthogonal separability, wide cone", "d", (50, 200, 800),
         separability(lambda d: orthants(8_000, d, 0.7)), "2d operations and a sign for a pair"),
        ("hard margin", "n", (1_000, 10_000, 100_000), hard_margin(itself, fixed(20)),
         "a fixed working set, then a few passes over the rows"),
        ("hard margin", "d", (10, 30, 90), hard_margin(fixed(10_000), itself),
         "the working set grows with d: d³ in its factorisation, nd in a pass"),
        ("F1 margin", "n", (32, 64, 128), f1(itself, fixed(5)),
         "the cone program couples every row with every particle and pricing looks at every pattern"),
        ("F1 margin", "d", (4, 8, 16), f1(fixed(64), itself),
         "low rank is decided by cones, higher rank by ascent: two methods, no single power"),
        ("SGD seeds", "n", (250, 500, 1000), sgd(itself, fixed(20), epochs), "n/50 steps to an epoch"),
        ("SGD seeds", "d", (10, 20, 40), sgd(fixed(500), itself, epochs),
         "products of 50 × d × 100 beside elementwise work that does not depend on d"),
        ("gradient flow to t = infinity", "n", (50, 200, 800), flow(itself, fixed(10)),
         "events: each neuron crosses of the order of n hyperplanes; the late phase looks at support examples most"),
        ("gradient flow to t = infinity", "d", (5, 10, 20), flow(fixed(200), itself),
         "the collapsed system has d + 1 unknowns to a group; the number of events hardly changes"),
        ("basin map", "n", (25, 50, 100), basins(itself, fixed(3), directions),
         "events grow like n, and each forms three products with n rows"),
        ("basin map", "d", (3, 6, 12), basins(fixed(50), itself, directions),
         "more hyperplanes are slid along at once: |Z|² and longer events beside 3nd"),
    ]  # fmt: skip


QUICK = {"hard margin", "orthogonal separability, narrow cone"}


def rows(run: Run) -> Iterator[Entry]:
    for work, variable, sizes, measured, because in laws(run):
        if run.quick and work not in QUICK:
            continue
        sizes = tuple(max(4, size // 100) for size in sizes) if run.quick and variable == "n" else sizes
        points = [(float(size), clock(measured(size), patience=0.7)[1]) for size in sizes]
        yield Slope.of(work, variable, points, because)
