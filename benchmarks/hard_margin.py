"""Hard margins against LinearSVC, SVC, CVXPY and clarabel.

Quality is the relative shortfall of the margin that a solver's w attains, proved by the library's certificate (which
knows no solver) and measured against the proved upper bound of the dual: 0 is optimal, above 1 does not separate.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

import marginflow as mf
from benchmarks.table import Entry, Least, Row, Run, clock, faster
from marginflow.margins import certificates
from marginflow.margins.rows import signed_rows

WORK = "hard margin"
EQUAL_GAP = 1e-6  # shortfall up to which an answer counts as optimal
PATIENCE = 12.0  # seconds; a peer expected to take longer is left out, and the row says what was expected


def linear_svc(data: mf.Dataset, kind: str, C: float) -> np.ndarray:
    """No intercept. The per-class problem has one class only: flipping a row and its label leaves its constraint."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    X, y = _two_classes(data, kind)
    solver = LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the shortfall says it
        return solver.fit(X, y).coef_[0]


def svc(data: mf.Dataset, kind: str) -> np.ndarray:
    """SVC has a free intercept; the flipped copy of every row makes its best value 0, at twice the rows."""
    from sklearn.svm import SVC

    X, y = _two_classes(data, kind)
    both, labels = np.concatenate([X, -X]), np.concatenate([y, -y])
    return SVC(kernel="linear", C=1e6, tol=1e-8, cache_size=1000).fit(both, labels).coef_[0]


def clarabel(data: mf.Dataset, kind: str) -> np.ndarray:
    import clarabel as solver
    from scipy import sparse

    Z = _signed(data, kind)
    settings = solver.DefaultSettings()  # type: ignore[attr-defined]
    settings.verbose = False
    n, d = Z.shape
    problem = solver.DefaultSolver(  # type: ignore[attr-defined]
        sparse.eye(d, format="csc"),
        np.zeros(d),
        sparse.csc_matrix(-Z),
        -np.ones(n),
        [solver.NonnegativeConeT(n)],  # type: ignore[attr-defined]
        settings,
    )
    return np.asarray(problem.solve().x)


def cvxpy(data: mf.Dataset, kind: str) -> np.ndarray:
    import cvxpy as cp

    w = cp.Variable(data.d)
    cp.Problem(cp.Minimize(cp.sum_squares(w)), [_signed(data, kind) @ w >= 1]).solve(solver="CLARABEL")
    return np.asarray(w.value)


def _signed(data: mf.Dataset, kind: str) -> np.ndarray:
    rows = signed_rows(data, kind, False)
    return rows.take(np.arange(rows.n))


def _two_classes(data: mf.Dataset, kind: str) -> tuple[np.ndarray, np.ndarray]:
    if kind == "linear":
        return data.X, data.y
    Z = _signed(data, kind)
    y = np.where(np.arange(len(Z)) % 2 == 0, 1.0, -1.0)
    return Z * y[:, None], y


# name, solver, growth of its time with n: what decides whether the next size is worth waiting for
PEERS: tuple[tuple[str, Callable[[mf.Dataset, str], np.ndarray], float], ...] = (
    ("LinearSVC C=1", lambda data, kind: linear_svc(data, kind, 1.0), 1.0),
    ("LinearSVC C=100", lambda data, kind: linear_svc(data, kind, 100.0), 1.0),
    ("SVC C=1e6", svc, 2.0),
    ("clarabel", clarabel, 1.0),
    ("CVXPY + clarabel", cvxpy, 1.0),
)


@dataclasses.dataclass
class Expectation:
    """What a peer needed last time, and what that lets one expect."""

    power: float
    n: int = 0
    seconds: float = 0.0

    def at(self, n: int) -> float:
        return self.seconds * (n / self.n) ** self.power if self.n else 0.0


def rows(run: Run) -> Iterator[Entry]:
    """Least work: one pass over the rows, which proves that none is violated."""
    sizes = run.choose([(1_000, 20), (20_000, 50), (100_000, 50), (1_000_000, 50)], [(200, 5)])
    for kind in ("positive", "linear"):
        expected = {name: Expectation(power) for name, _, power in PEERS}
        for n, d in sizes:
            if kind == "linear" and n == 1_000_000:
                continue
            data = mf.data.phuong2021(n=n, d=d, seed=0)
            yield from _one(data, kind, expected)


def _one(data: mf.Dataset, kind: str, expected: dict[str, Expectation]) -> Iterator[Entry]:
    problem, few = signed_rows(data, kind, False), data.take(np.arange(min(data.n, 100)))
    solve = getattr(mf.margins, kind)
    answer, seconds, warm_up = clock(lambda: solve(data), warm=lambda: solve(few))
    case = f"{kind}, n={data.n:,}, d={data.d}"
    least = Least(2.0 * problem.n * data.d, 8.0 * problem.n * data.d)
    norms = problem.norms()

    def shortfall(w: np.ndarray) -> dict[str, float]:
        return {"shortfall": 1 - certificates.margin_from_below(problem, w, norms) / answer.upper_bound}

    ours = Row(WORK, case, "marginflow", seconds, shortfall(answer.vector), least, warm_up)
    yield ours
    peers = []
    for name, method, _ in PEERS:
        wait = expected[name].at(data.n)
        if wait > PATIENCE:
            yield Row(
                WORK,
                case,
                name,
                None,
                {"shortfall": None},
                least,
                note=f"not run: about {wait:.0f} s expected",
            )
            continue
        w, taken, warm_up = clock(
            lambda m=method: m(data, kind), warm=lambda m=method: m(few, kind), patience=0.5
        )
        expected[name].n, expected[name].seconds = data.n, taken
        peers.append(Row(WORK, case, name, taken, shortfall(w), least, warm_up))
        yield peers[-1]
    yield faster(ours, peers, 10.0, lambda row: row.quality["shortfall"] <= EQUAL_GAP,
                 f"10 times the best peer whose shortfall is at most {EQUAL_GAP:g}")  # fmt: skip
