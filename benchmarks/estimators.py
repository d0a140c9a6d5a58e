"""The max-margin estimators beside scikit-learn's: accuracy and fit time on real data.

    python -m benchmarks.estimators [--folds 5] [--only NAME] [--f1-entries 40000] [--markdown]

Data: pairs of classes of the sets that scikit-learn bundles, and MNIST pairs when its files are there (the first 1000
training rows, tested on the whole test split of the pair). Every method sees standardised features and its own default
options; MLPClassifier gets max_iter=2000 so that it converges. Bundled sets: mean over stratified folds.
F1 is left out where rows x columns of the training data exceed --f1-entries: it would run for many minutes.
"""

import argparse
import dataclasses
import time
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn import datasets
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import marginflow as mf
from benchmarks.table import Entry, Row, Run
from marginflow.bridges import F1MaxMarginClassifier, F2MaxMarginClassifier, TwoNeuronClassifier

F1_SECONDS = 3000  # entries of the training data up to which F1 takes seconds
OURS = {
    "two neurons": TwoNeuronClassifier(),
    "F2 max margin": F2MaxMarginClassifier(),
    "F1 max margin": F1MaxMarginClassifier(random_state=0),
}
THEIRS = {
    "SVC (rbf)": SVC(),
    "LogisticRegression": LogisticRegression(max_iter=5000),
    "MLPClassifier": MLPClassifier(max_iter=2000, random_state=0),
}


@dataclasses.dataclass(frozen=True)
class Result:
    data: str
    method: str
    accuracy: float
    spread: float
    seconds: float
    status: str


def bundled():
    """(name, X, y) of the pairs of classes that scikit-learn carries."""
    yield "breast_cancer", *datasets.load_breast_cancer(return_X_y=True)
    for name, load, pairs in (
        ("wine", datasets.load_wine, ((0, 1), (0, 2), (1, 2))),
        ("iris", datasets.load_iris, ((1, 2),)),
        ("digits", datasets.load_digits, ((0, 1), (3, 8), (4, 9))),
    ):
        X, y = load(return_X_y=True)
        for a, b in pairs:
            rows = (y == a) | (y == b)
            yield f"{name} {a}/{b}", X[rows], y[rows]


def splits(folds: int):
    """(name, [(X, y, X_test, y_test), ...])"""
    for name, X, y in bundled():
        parts = StratifiedKFold(folds, shuffle=True, random_state=0).split(X, y)
        yield name, [(X[a], y[a], X[b], y[b]) for a, b in parts]
    for a, b in (("0", "1"), ("4", "9")):
        try:
            train, test = mf.data.load(f"mnist:{a},{b},n=1000"), mf.data.load(f"mnist:{a},{b},split=test")
        except mf.InputError as error:
            print(f"mnist {a}/{b}: left out ({error})")
            continue
        yield f"MNIST {a}/{b}", [(np.array(train.X), train.y, np.array(test.X), test.y)]


def measure(data: str, method: str, estimator, parts) -> Result:
    scores, seconds, statuses = [], [], set()
    for X, y, X_test, y_test in parts:
        pipe = make_pipeline(StandardScaler(), clone(estimator))
        start = time.perf_counter()
        pipe.fit(X, y)
        seconds.append(time.perf_counter() - start)
        scores.append(pipe.score(X_test, y_test))
        certificate = getattr(pipe[-1], "certificate_", None)
        statuses.add("-" if certificate is None else certificate.status.value)
    status = ", ".join(sorted(statuses))
    return Result(
        data, method, float(np.mean(scores)), float(np.std(scores)), float(np.mean(seconds)), status
    )


def rows(run: Run) -> Iterator[Entry]:
    """Of the suite: the bundled sets, two of them quickly; F1 where it takes seconds."""
    warnings.simplefilter("ignore")
    wanted = run.choose(("breast_cancer", "wine 0/1", "iris 1/2", "digits 3/8"), ("iris 1/2",))
    for name, parts in splits(run.choose(5, 2)):
        if name not in wanted:
            continue
        for method, estimator in {**OURS, **THEIRS}.items():
            title = f"marginflow, {method}" if method in OURS else method
            if method == "F1 max margin" and parts[0][0].size > F1_SECONDS:
                yield Row(
                    "estimators", name, title, None, {"accuracy": None}, note="not run: it would take minutes"
                )
                continue
            r = measure(name, method, estimator, parts)
            quality = {"accuracy": r.accuracy, "spread": r.spread, "certificate": r.status}
            yield Row("estimators", name, title, r.seconds, quality)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--only", default="", help="data sets whose name contains this")
    parser.add_argument("--f1-entries", type=int, default=40_000)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = {**OURS, **THEIRS}
    if options.markdown:
        print("| data | " + " | ".join(methods) + " |\n" + "|---" * (len(methods) + 1) + "|")
    for name, parts in splits(options.folds):
        if options.only not in name:
            continue
        cells = []
        for method, estimator in methods.items():
            if method == "F1 max margin" and parts[0][0].size > options.f1_entries:
                cells.append("not run")
            else:
                cells.append(cell(measure(name, method, estimator, parts), len(parts) > 1))
            if not options.markdown:
                print(f"{name:15} {method:19} {cells[-1]}", flush=True)
        if options.markdown:
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def cell(r: Result, folds: bool) -> str:
    """Accuracy, its spread over folds, mean fit time; the status of the certificate where there is one."""
    spread = f" ± {r.spread:.3f}" if folds else ""
    status = "" if r.status == "-" else f", {r.status}"
    return f"{r.accuracy:.4f}{spread}, {r.seconds:.2g} s{status}"


if __name__ == "__main__":
    main()
