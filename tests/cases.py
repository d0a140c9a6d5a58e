"""The one table of named data sets, each with what is known about it by construction or by hand.

A test takes the rows whose facts it can check: `@pytest.mark.parametrize("case", having("linear_margin"))`.
Facts are mathematics, never recorded output:

    separable               whether some w has y_i w.x_i > 0 for all i
    orthogonally_separable  the condition of the same name, decided exactly
    linear_margin           max over unit w of min_i y_i w.x_i
    positive_margin         the same over the positive class alone, without signs; negative_margin likewise
    contradiction           two rows with the same x and different labels
    violation               the rows of a pair that breaks orthogonal separability, when there is only one
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from marginflow.data import Dataset, chizat2020, gaussian_mixture, phuong2021
from marginflow.nets import Convolutional, DeepLinear, Linear, Residual, TwoLayer


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Dataset]
    facts: Mapping[str, Any]

    @functools.cached_property
    def data(self) -> Dataset:
        return self.make()

    def __str__(self) -> str:
        return self.name


def _rows(name: str, positive: list, negative: list) -> Callable[[], Dataset]:
    X = np.array([*positive, *negative], dtype=float)
    y = np.repeat([1.0, -1.0], [len(positive), len(negative)])
    return lambda: Dataset(X, y, name)


def _identity(positive: int, negative: int) -> Callable[[], Dataset]:
    n = positive + negative
    return lambda: Dataset(np.eye(n), np.repeat([1.0, -1.0], [positive, negative]), f"identity-{n}")


def _single(data: Dataset) -> Dataset:
    return Dataset(data.X.astype(np.float32), data.y, f"{data.name} in float32")


def cloud(n: int, d: int, seed: int) -> Dataset:
    """Normal points with alternating labels: separable almost surely when n is small beside d (Cover)."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    return Dataset(X, np.where(np.arange(n) % 2, 1.0, -1.0), f"cloud-{n}x{d}")


CASES = {
    case.name: case
    for case in [
        # The same sign in every coordinate within a class, opposite signs across: orthogonally separable.
        Case(
            "phuong2021-small",
            lambda: phuong2021(n=40, d=5, seed=0),
            {"separable": True, "orthogonally_separable": True},
        ),
        Case(
            "phuong2021-large",
            lambda: phuong2021(n=500, d=20, seed=0),
            {"separable": True, "orthogonally_separable": True},
        ),
        Case(
            "phuong2021-float32",
            lambda: _single(phuong2021(n=40, d=5, seed=0)),
            {"separable": True, "orthogonally_separable": True},
        ),
        # n <= d and independent rows: any labels are separable.
        Case("gaussian-mixture", lambda: gaussian_mixture(n=20, d=2000, seed=0), {"separable": True}),
        Case("chizat2020", lambda: chizat2020(n=64, d=5, k=3, seed=0), {}),
        # y x = (1, 2), (1, -2), (1, -1), (1, 3): their hull touches the line x_1 = 1 all along, so w = (1, 0).
        Case(
            "plane",
            _rows("plane", [[1, 2], [1, -2]], [[-1, 1], [-1, -3]]),
            {
                "separable": True,
                "orthogonally_separable": False,
                "linear_margin": 1.0,
                "positive_margin": 1.0,
                "negative_margin": 1.0,
            },
        ),
        Case(
            "line",
            _rows("line", [[3]], [[-2]]),
            {
                "separable": True,
                "orthogonally_separable": True,
                "linear_margin": 2.0,
                "positive_margin": 3.0,
                "negative_margin": 2.0,
            },
        ),
        # Orthonormal rows: w = Σ y_i e_i, norm sqrt(n). Products within a class are 0, which is not > 0.
        Case(
            "identity",
            _identity(3, 1),
            {
                "separable": True,
                "orthogonally_separable": False,
                "linear_margin": 0.5,
                "positive_margin": 3**-0.5,
                "negative_margin": 1.0,
            },
        ),
        # Cross products 0 and -1 exactly; within a class 1, 2, 3, 5.
        Case(
            "integer-zeros",
            _rows("integer-zeros", [[1, 1, 0, 0], [2, 1, 0, 0]], [[0, 0, 1, 1], [-1, 1, 1, 2]]),
            {"separable": True, "orthogonally_separable": True},
        ),
        # Rows 0 and 2 have product 2 - 2 = 0 within the positive class, and nothing else is wrong.
        Case(
            "integer-same-class-zero",
            _rows("integer-same-class-zero", [[1, 1, 0], [2, 1, 0], [2, -2, 1]], [[-2, -2, 0]]),
            {"separable": True, "orthogonally_separable": False, "violation": (0, 2)},
        ),
        # Both classes have the mean 0, so every w has a point on each side.
        Case(
            "xor",
            _rows("xor", [[1, 1], [-1, -1]], [[1, -1], [-1, 1]]),
            {"separable": False, "orthogonally_separable": False},
        ),
        Case(
            "contradiction",
            _rows("contradiction", [[1, 2], [3, 1]], [[-1, -1], [3, 1]]),
            {"separable": False, "orthogonally_separable": False, "contradiction": (1, 3)},
        ),
        Case("cloud-wide", lambda: cloud(12, 30, seed=1), {"separable": True}),
    ]
}


def having(*facts: str) -> list[Case]:
    """The cases about which all of `facts` are known."""
    return [case for case in CASES.values() if all(fact in case.facts for fact in facts)]


# Every architecture, with the dimension of its input; small, so that all tests can run over all of them.
NETS = {
    str(net): (net, d)
    for net, d in [
        (TwoLayer(7), 5),
        (TwoLayer(6, "leaky:0.1"), 4),
        (TwoLayer(5, "smooth-leaky:0.5", train="input"), 4),
        (TwoLayer(6, "leaky:0.5", train="input"), 4),
        (TwoLayer(6, train="output", mean_field=True), 3),
        (TwoLayer(8, mean_field=True), 3),
        (TwoLayer(8, "srelu", train="input", mean_field=True), 3),
        (TwoLayer(4, "srelu"), 3),
        (TwoLayer(9, outputs=3), 5),
        (Linear(), 6),
        (DeepLinear(1, 1), 4),
        (DeepLinear(3, 5), 4),
        (DeepLinear(4, 3), 7),
        (Residual(2, 5), 4),
        (Residual(4, 6), 5),
        (Residual(3, 4, "leaky:0.2"), 3),
        (Convolutional((1, 6, 6), (2, 3), (3, 3), (1, 2), (1, 1), (4,)), 36),
        (Convolutional((2, 5, 4), (3,), (2,), (1,), (0,), (4, 3), "leaky:0.3", bias=False), 40),
    ]
}
