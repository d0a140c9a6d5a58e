"""Hard margins against LinearSVC, SVC, CVXPY and clarabel: time, and beside it the quality of each answer.

Quality of a solver is the relative shortfall of the margin its w attains, proved by the library's certificate (which
knows no solver) and measured against the proved upper bound of the dual: 0 is optimal, above 1 does not separate.

python benchmarks/hard_margin.py [--large]
"""

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np

import marginflow as mf
from marginflow.margins import certificates
from marginflow.margins.rows import signed_rows

SVC_ROWS, CLARABEL_ROWS, CVXPY_ROWS = (
    20_000,
    100_000,
    20_000,
)  # the most each can hold in the time of a benchmark


def ours(data: mf.Dataset, kind: str) -> np.ndarray:
    return getattr(mf.margins, kind)(data).vector


def linear_svc(data: mf.Dataset, kind: str, C: float) -> np.ndarray:
    """No intercept. The per-class problem has one class only: flipping a row and its label leaves its constraint."""
    from sklearn.svm import LinearSVC

    X, y = _two_classes(data, kind)
    return LinearSVC(C=C, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=100_000).fit(X, y).coef_[0]


def svc(data: mf.Dataset, kind: str) -> np.ndarray:
    """SVC has a free intercept; the flipped copy of every row makes its best value 0, at twice the rows."""
    from sklearn.svm import SVC

    X, y = _two_classes(data, kind)
    both, labels = np.concatenate([X, -X]), np.concatenate([y, -y])
    return SVC(kernel="linear", C=1e6, tol=1e-8, cache_size=2000).fit(both, labels).coef_[0]


def clarabel(data: mf.Dataset, kind: str) -> np.ndarray:
    import clarabel as solver
    from scipy import sparse

    Z = _signed(data, kind)
    settings = solver.DefaultSettings()
    settings.verbose = False
    n, d = Z.shape
    problem = solver.DefaultSolver(
        sparse.eye(d, format="csc"),
        np.zeros(d),
        sparse.csc_matrix(-Z),
        -np.ones(n),
        [solver.NonnegativeConeT(n)],
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


def rows(large: bool = False) -> list[dict[str, object]]:
    """One row per problem and solver: seconds, shortfall, peak memory so far, and how much faster ours was."""
    cases = [("positive", mf.data.phuong2021(n=2_000, d=20)), ("linear", mf.data.phuong2021(n=20_000, d=50))]
    if large:
        cases += [
            ("positive", mf.data.phuong2021(n=100_000, d=50)),
            ("positive", mf.data.phuong2021(n=1_000_000, d=50)),
        ]
    table: list[dict[str, object]] = []
    for kind, data in cases:
        problem = signed_rows(data, kind, False)
        getattr(mf.margins, kind)(
            data.take(np.arange(200))
        )  # imports and warm caches are not what is compared
        start = time.perf_counter()
        answer = getattr(mf.margins, kind)(data)
        base = time.perf_counter() - start
        upper, norms = answer.upper_bound, problem.norms()

        def line(solver: str, n: int, seconds: float, w: np.ndarray, upper=upper, problem=problem, norms=norms,
                 kind=kind, data=data, base=base) -> dict[str, object]:  # fmt: skip
            return {
                "kind": kind, "data": data.name, "rows": n, "solver": solver, "seconds": seconds,
                "shortfall": 1 - certificates.margin_from_below(problem, w, norms) / upper, "speedup": seconds / base,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }  # fmt: skip

        table.append(line("marginflow", problem.n, base, answer.vector))
        peers: list[tuple[str, int, Callable[[mf.Dataset, str], np.ndarray]]] = [
            ("LinearSVC C=1", 10**9, lambda D, k: linear_svc(D, k, 1.0)),
            ("LinearSVC C=100", 10**9, lambda D, k: linear_svc(D, k, 100.0)),
            ("SVC", SVC_ROWS, svc),
            ("clarabel", CLARABEL_ROWS, clarabel),
            ("CVXPY", CVXPY_ROWS, cvxpy),
        ]
        for name, most, solve in peers:
            part = data if data.n <= most else data.take(np.arange(most))
            if name == "CVXPY" and data.n > CVXPY_ROWS:
                continue
            solve(data.take(np.arange(200)), kind)
            start = time.perf_counter()
            w = solve(part, kind)
            seconds = time.perf_counter() - start
            used = part.n if kind == "linear" else len(part.positive)
            table.append(line(name, used, seconds, w))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also n = 100,000 and n = 1,000,000, d = 50")
    for row in rows(parser.parse_args().large):
        print(
            "  ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
