"""F1 margin on the data of Chizat & Bach 2020: gradient ascent, pyscnn, a convex program over sampled patterns.

Quality is the margin of the net that a method returns, measured for all of them by the library's certificate: a lower
bound of γ1, so larger is better. Weights and patterns are drawn from the same seeds in every run.
"""

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterator

import numpy as np

import marginflow as mf
from benchmarks.apart import apart
from benchmarks.table import Entry, Least, Row, Run, clock, faster
from marginflow.data import Dataset, chizat2020
from marginflow.margins.certificates_f1 import measure_from_below

WORK = "F1 margin"
PATIENCE = 100.0  # seconds a peer may take, its imports and warm-up included


def certified(data: Dataset, w: np.ndarray, a: np.ndarray) -> float:
    """Margin of the net Σ a_j ρ(w_jᵀx) as a measure of total variation Σ |a_j|‖w_j‖."""
    keep = (a != 0) & (np.linalg.norm(w, axis=1) > 0)
    return measure_from_below(data.X, data.y, w[keep], np.sign(a[keep]), np.abs(a[keep]))


def gradient_ascent(data: Dataset, width: int, iterations: int, seed: int = 0) -> float:
    """Chizat & Bach's ascent of the smooth margin, both layers, exponential loss, step 0.5/√t: its best margin.

    Written as tightly as NumPy allows: three n×m products per step.
    """
    X, y, d = data.X, data.y, data.d
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((width, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    b = rng.choice([-1.0, 1.0], width)
    best = (-np.inf, w, b)
    for t in range(1, iterations + 1):
        z = np.maximum(X @ w.T, 0.0)
        q = y * (z @ b) / width
        low = q.min()
        p = np.exp(low - q)
        beta = y * p / p.sum()
        if t % 10 == 0 or t == iterations:
            margin = low / (np.einsum("jd,jd->", w, w) + b @ b) * width
            if margin > best[0]:
                best = (margin, w.copy(), b.copy())
        step = 0.5 / np.sqrt(t)
        gradient_b = beta @ z
        gradient_w = ((z > 0) * beta[:, None]).T @ X * b[:, None]
        w, b = w + step * gradient_w, b + step * gradient_b
    return certified(data, best[1], best[2])


def sampled_patterns(data: Dataset, count: int, seed: int = 0) -> float:
    """Pilanci & Ergen's convex program with sign constraints over sampled activation patterns, by CVXPY."""
    import cvxpy as cp

    X, y = data.X, data.y
    g = np.random.default_rng(seed).standard_normal((count, X.shape[1]))
    D = np.unique(X @ g.T > 0, axis=1).astype(float)
    V, U = cp.Variable((X.shape[1], D.shape[1])), cp.Variable((X.shape[1], D.shape[1]))
    side = 2 * D - 1
    out = cp.sum(cp.multiply(D, X @ (V - U)), axis=1)
    constraints: list[cp.Constraint] = [
        cp.multiply(y, out) >= 1,
        cp.multiply(side, X @ V) >= 0,
        cp.multiply(side, X @ U) >= 0,
    ]
    problem = cp.Problem(
        cp.Minimize(cp.sum(cp.norm(V, 2, axis=0)) + cp.sum(cp.norm(U, 2, axis=0))), constraints
    )
    problem.solve(solver=cp.CLARABEL)
    if V.value is None or U.value is None:
        return 0.0
    w = np.concatenate([V.value.T, U.value.T])
    return certified(data, w, np.concatenate([np.ones(D.shape[1]), -np.ones(D.shape[1])]))


def scnn(data: Dataset, count: int, penalty: float = 1e-5, seed: int = 0) -> float:
    """pyscnn's augmented Lagrangian over sampled patterns. It knows the squared loss only, so the labels are
    interpolated under a small group penalty; a net that interpolates is feasible for the margin problem."""
    from scnn import metrics, models, regularizers, solvers
    from scnn.activations import sample_gate_vectors
    from scnn.optimize import optimize_model

    model = models.ConvexReLU(sample_gate_vectors(seed, data.d, count))
    with contextlib.redirect_stdout(io.StringIO()):
        net, _ = optimize_model(
            model,
            solvers.AL(model),
            metrics.Metrics(),
            np.array(data.X),
            np.array(data.y),
            regularizer=regularizers.NeuronGL1(penalty),
            dtype="float64",
            unitize_data=False,
        )
    W, a = net.parameters
    return certified(data, W, a.ravel())


# name, what it needs, method of (data, *sizes), sizes, sizes of its warm-up
Peer = tuple[str, str, Callable[..., float], tuple[int, ...], tuple[int, ...]]


def contenders(run: Run) -> list[Peer]:
    iterations, width, patterns = run.choose((40_000, 1000, 200), (50, 20, 5))
    found: list[Peer] = [
        (f"gradient ascent, {width} neurons, {iterations:,} steps", "numpy",
         gradient_ascent, (width, iterations), (20, 20)),
        (f"CVXPY, {patterns} sampled patterns", "cvxpy", sampled_patterns, (patterns,), (5,)),
        (f"pyscnn, {patterns // 2} sampled patterns", "scnn", scnn, (patterns // 2,), (5,)),
    ]  # fmt: skip
    return found[:2] if run.quick else found


def rows(run: Run) -> Iterator[Entry]:
    """Least work: the outputs of the returned neurons, once."""
    sizes = run.choose([(64, 5, 2), (128, 10, 3), (256, 15, 3)], [(16, 3, 2)])
    tiny = chizat2020(n=12, d=3, k=2)
    for n, d, k in sizes:
        data = chizat2020(n=n, d=d, k=k, seed=0)
        answer, seconds, warm_up = clock(
            lambda data=data: mf.margins.f1(data), warm=lambda: mf.margins.f1(tiny)
        )
        case = f"n={n}, d={d}"
        neurons = len(answer.neurons.mass) if hasattr(answer.neurons, "mass") else len(answer.neurons)
        least = Least(2.0 * n * d * neurons, 8.0 * d * (n + neurons))
        quality = {"margin": answer.lower_bound, "gap": answer.gap if answer.certified else None}
        ours = Row(WORK, case, "marginflow", seconds, quality, least, warm_up)
        yield ours
        peers = []
        for name, package, method, work, warm in contenders(run):
            if importlib.util.find_spec(package) is None:
                yield Row(WORK, case, name, None, {"margin": None}, least, note=f"{package} is not installed")
                continue
            margin, taken, first, note = apart(method, (data, *work), (tiny, *warm), PATIENCE)
            row = Row(WORK, case, name, taken, {"margin": margin}, least, first, note=note)
            yield row
            if taken is not None:
                peers.append(row)
        yield faster(ours, peers, 10.0, lambda row, at=ours: row.quality["margin"] >= at.quality["margin"],
                     "10 times the best peer with as large a margin")  # fmt: skip
        if peers:
            best = max(peers, key=lambda row: row.quality["margin"])
            excess = ours.quality["margin"] / best.quality["margin"] if best.quality["margin"] > 0 else None
            yield faster(ours, [best], 10.0, lambda row: True,
                         f"10 times the peer of largest margin (ours is {excess:.4g} times that margin)"
                         if excess else "10 times the peer of largest margin (which is 0)")  # fmt: skip
