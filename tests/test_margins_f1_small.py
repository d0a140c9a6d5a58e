"""Small F1 problems: every bound re-checked without the solver, in exact arithmetic or by enumeration."""

from fractions import Fraction

import numpy as np
import pytest

from marginflow import Outcome, margins
from marginflow.data import Dataset
from marginflow.margins import f1_faces
from marginflow.margins.certificates_f1 import game_bounds
from marginflow.margins.f1_zero import lines, vanishing
from marginflow.margins.inner import inner_max
from marginflow.margins.inner_ascent import values

KINDS = ("gaussian", "grid", "one ray", "antipodal")


def problem(seed: int) -> tuple[str, str, Dataset]:
    """(kind, activation, data): n <= 12, d <= 4, labels at random."""
    rng = np.random.default_rng(seed)
    kind, activation = KINDS[seed % 4], ("relu", "srelu")[seed // 4 % 2]
    n, d = int(rng.integers(2, 13)), int(rng.integers(1, 5))
    X, y = rng.standard_normal((n, d)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[:2] = 1, -1
    if kind == "grid":
        X = rng.integers(-2, 3, (n, d)).astype(float)
        X[~X.any(axis=1)] = 1
    elif kind == "one ray":
        X[1] = 2 * X[0]
    elif kind == "antipodal":
        # Three points that add up to zero against their negatives: Σ ρ(cᵀx_i) - ρ(-cᵀx_i) = cᵀ Σ x_i = 0.
        half = rng.integers(-3, 4, (3, d)).astype(float)
        half[2] = -half[0] - half[1]
        half = half if half.any(axis=1).all() else np.outer([1.0, 1.0, -2.0], np.ones(d))
        X, y = np.concatenate([half, -half]), np.repeat([1.0, -1.0], 3)
    return kind, activation, Dataset(X, y, f"{kind} {seed}")


def exact_margin(data: Dataset, neurons, power: int) -> Fraction:
    """The margin of the measure over its total variation, in rational arithmetic; κ included."""
    rational = np.vectorize(Fraction, otypes=[object])
    X, c, m = rational(data.X), rational(neurons.direction), rational(neurons.mass)
    z = np.maximum(X @ c.T, 0)
    z = z * z if power == 2 else z
    least = min(
        int(data.y[i]) * sum(int(s) * w * v for s, w, v in zip(neurons.sign, m, z[i], strict=True))
        for i in range(data.n)
    )
    square = [sum(e * e for e in row) for row in c]
    # ‖c‖ <= (1 + ‖c‖²)/2
    total = sum(w * (s if power == 2 else (1 + s) / 2) for w, s in zip(m, square, strict=True))
    return least / total / (1 if power == 2 else 2)


def on_the_circle(X: np.ndarray, beta: np.ndarray, power: int) -> float:
    """max of |Σ β_i φ| over the unit circle: on each arc between kinks it is gᵀc or (A + C)/2 + R cos(2t - f)."""
    angle = np.arctan2(X[:, 1], X[:, 0])
    kinks = np.sort(np.concatenate([angle + np.pi / 2, angle - np.pi / 2]) % (2 * np.pi))
    best = 0.0
    for low, high in zip(kinks, [*kinks[1:], kinks[0] + 2 * np.pi], strict=True):
        on = np.cos((low + high) / 2 - angle) > 0
        for s in (1.0, -1.0):
            ends = np.array([[np.cos(t), np.sin(t)] for t in (low, high)])
            if power == 1:
                g = s * beta[on] @ X[on]
                tops, ends, period = [np.arctan2(g[1], g[0])], ends @ g, np.linalg.norm(g)
            else:
                M = s * (X[on].T * beta[on]) @ X[on]
                top = np.arctan2(2 * M[0, 1], M[0, 0] - M[1, 1]) / 2
                tops, ends = [top, top + np.pi], np.einsum("ij,jk,ik->i", ends, M, ends)
                period = np.trace(M) / 2 + np.hypot(M[0, 1], (M[0, 0] - M[1, 1]) / 2)
            inside = any((top - low) % (2 * np.pi) <= high - low for top in tops)
            best = max(best, period if inside else -np.inf, *ends)
    return float(best)


def recheck(seed: int) -> str:
    """What the result says, after everything it says was confirmed."""
    kind, activation, data = problem(seed)
    power, kappa = (1, 0.5) if activation == "relu" else (2, 1.0)
    result = margins.f1(data, activation=activation)
    rng = np.random.default_rng(seed)
    assert result.upper_bound is not None
    assert 0 <= result.lower_bound <= result.upper_bound
    if len(result.neurons):
        assert Fraction(result.lower_bound) <= max(exact_margin(data, result.neurons, power), 0)
    # Above: no direction beats the bound, whoever chose it.
    C = np.concatenate([rng.standard_normal((3000, data.d)), data.X, -data.X, result.neurons.direction])
    C /= np.linalg.norm(C, axis=1, keepdims=True)
    features = np.maximum(data.X @ C.T, 0) ** power
    assert kappa * np.abs(features.T @ (result.dual * data.y)).max() <= result.upper_bound + 1e-14
    if data.d == 2 and result.separable:
        top = kappa * on_the_circle(data.X, result.dual * data.y, power)
        assert top <= result.upper_bound * (1 + 1e-12)
        assert top - result.lower_bound <= 1e-8 * top
    # No measure on other directions beats it either.
    other = np.concatenate([data.y[:, None] * features, -data.y[:, None] * features], axis=1)[:, ::7]
    finite = margins.f1_finite(other)
    assert kappa * game_bounds(other, finite.mass, finite.dual)[0] <= result.upper_bound + 1e-14
    if result.separable is False:
        assert result.certified
        assert (result.value, result.outcome) == (0.0, Outcome.INFEASIBLE)
        assert result.dual.sum() == pytest.approx(1)
        assert (result.dual >= 0).all()
        assert np.abs(features.T @ (result.dual * data.y)).max() <= 1e-13 * np.abs(data.X).max() ** power
    if kind == "one ray" or (kind == "antipodal" and power == 1):
        assert result.separable is False
    if kind == "gaussian" and data.d > 1:
        assert result.separable is True
    assert result.separable is not True or result.lower_bound > 0
    return "undecided" if not result.certified else "positive" if result.separable else "zero"


@pytest.mark.parametrize("seed", range(24))
def test_small_problems(seed):
    assert recheck(seed) != "undecided"


@pytest.mark.slow
def test_two_hundred_small_problems():
    tally = [recheck(seed) for seed in range(1000, 1200)]
    assert tally.count("undecided") <= 2
    assert min(tally.count("positive"), tally.count("zero")) >= 50


@pytest.mark.parametrize(("activation", "power"), [("relu", 1), ("srelu", 2)])
@pytest.mark.parametrize("seed", range(4))
def test_twenty_points_of_the_plane_close_to_many_digits(activation, power, seed):
    """γ1 is 1e-5 to 1e-3 of the rows here: the two sides must still meet, relative to γ1."""
    rng = np.random.default_rng(20_000 + seed)
    data = Dataset(rng.standard_normal((20, 2)), np.where(np.arange(20) < 9, 1.0, -1.0))
    result = margins.f1(data, activation=activation)
    upper = (0.5 if power == 1 else 1.0) * on_the_circle(data.X, result.dual * data.y, power)
    assert result.lower_bound <= upper * (1 + 1e-10)
    assert upper - result.lower_bound <= 1e-8 * upper
    assert result.upper_bound == pytest.approx(upper, rel=1e-8)


def test_nearly_equal_points_with_different_labels():
    """γ1 is about the distance of the two points: proved to what rounding allows, or left open, never wrong."""
    for distance in (1e-3, 1e-6, 1e-9, 1e-12):
        X = np.array([[1.0, 0.5], [1.0, 0.5 + distance], [-0.3, 1.0], [0.2, -1.0]])
        data = Dataset(X, np.array([1.0, -1, 1, -1]))
        result = margins.f1(data)
        # |f(x) - f(x')| <= V ‖x - x'‖ for total variation V: 2γ <= κ ‖x - x'‖.
        assert result.lower_bound <= distance / 4 * (1 + 1e-4)
        assert result.upper_bound is None or result.upper_bound >= result.lower_bound
        if len(result.neurons):
            assert Fraction(result.lower_bound) <= max(exact_margin(data, result.neurons, 1), 0)
        assert result.separable is not False
        assert result.certified or distance < 1e-5
    assert margins.f1(Dataset(X[[0, 0, 2, 3]], data.y)).separable is False


# The inner maximum, two ways that share nothing: cones with bounds, and a list of faces.


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("n", "rank"), [(6, 1), (30, 2), (9, 3), (20, 3)])
def test_faces_and_cones_find_one_maximum(n, rank, squared):
    rng = np.random.default_rng(n + rank)
    X, beta = rng.standard_normal((n, rank)), rng.standard_normal(n)
    top = inner_max(X, beta, activation="srelu" if squared else "relu")
    C, reached, tangents = f1_faces.best_points(f1_faces.faces(X), X, beta, squared, 0.0)
    assert top.certified
    assert reached.max() == pytest.approx(top.value, rel=1e-10)
    assert reached.max() <= top.upper_bound
    random = rng.standard_normal((5000, rank))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    assert values(random, X, beta, squared).max() <= reached.max() * (1 + 1e-12)
    for c, frame in zip(C, tangents, strict=True):
        assert len(frame) < max(rank, 1)
        np.testing.assert_allclose(frame @ frame.T, np.eye(len(frame)), atol=1e-12)
        np.testing.assert_allclose(frame @ c, 0, atol=1e-12)


def test_the_number_of_faces_in_general_position():
    """n great circles in R³: n(n-1) vertices, 2n(n-1) arcs, n(n-1) + 2 cells; n lines in R²: 2n rays, 2n arcs."""
    X = np.random.default_rng(0).standard_normal((7, 3))
    assert [len(one.on) for one in f1_faces.faces(X)] == [42, 84, 44]
    assert [len(one.on) for one in f1_faces.faces(X[:, :2])] == [14, 14]
    # A repeated and a reversed row add no hyperplane.
    again = np.vstack([X, 3 * X[0], -X[1]])
    assert [len(one.on) for one in f1_faces.faces(again)] == [42, 84, 44]


def test_a_flat_cell_is_enclosed():
    """ρ(c_1)² + ρ(c_2)² + ρ(c_3)² is 1 on the whole positive orthant: no point of it is better than another."""
    top = inner_max(np.eye(3), np.ones(3), activation="srelu")
    assert top.certified
    assert top.value == pytest.approx(1, abs=1e-14)
    assert top.upper_bound == pytest.approx(1, abs=1e-12)
    assert top.nodes < 100
    # A rotation by generic angles must not change that, nor a second row on a hyperplane.
    for seed in range(4):
        Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))[0]
        for X, beta in ((Q, np.ones(3)), (np.concatenate([Q, 2 * Q]), np.repeat([0.5, 0.125], 3))):
            again = inner_max(X, beta, activation="srelu")
            assert again.certified
            assert again.upper_bound == pytest.approx(1, abs=1e-12)
            assert again.nodes < 500


# γ1 = 0.


def test_lines_are_found_exactly():
    X = np.array([[1.0, 3], [2, 6], [-0.5, -1.5], [3, 1], [0, 1], [0, -2], [1.0, 3 + 1e-15]])
    line, side = lines(X)
    assert line[0] == line[1] == line[2]
    assert line[4] == line[5]
    assert len({line[0], line[3], line[4], line[6]}) == 4
    assert side[0] == side[1] == -side[2]
    assert side[4] == -side[5]


def test_what_vanishes_and_what_does_not():
    half = np.array([[1.0, 0], [0, 1], [-1, -1]])
    y = np.repeat([1.0, -1.0], 3)
    X = np.vstack([half, -half])
    np.testing.assert_allclose(vanishing(X, y), 1 / 6)
    # Stretched rows need other weights: α_i ‖x_i‖ in the same proportions.
    stretch = np.array([1.0, 2, 4, 1, 1, 8])
    np.testing.assert_allclose(vanishing(X * stretch[:, None], y), (1 / stretch) / (1 / stretch).sum())
    # The kinks cancel, the linear parts do not; or the other way round.
    assert vanishing(np.array([[1.0, 0], [-1, 0]]), np.array([1.0, -1.0])) is None
    assert vanishing(half, np.ones(3)) is None
    moved = X.copy()
    moved[2, 1] = -1 - 1e-12
    assert vanishing(moved, y) is None
