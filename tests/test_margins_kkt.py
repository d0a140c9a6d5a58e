"""KKT residuals: points that are known to be KKT points, points that are not, ties, homogeneity, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marginflow as mf
from marginflow import InputError, Outcome
from marginflow.margins import kkt, kkt_from_gradients
from marginflow.nets import DeepLinear, Linear

DATA = mf.data.phuong2021(n=100, d=6, seed=0)


def limit_of_system_a(data: mf.Dataset, width: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Lemma C.1: W = u w+ᵀ + z w-ᵀ, a = u‖w+‖ - z‖w-‖, u_j z_j = 0, ‖u‖ = ‖w+‖^(-1/2), ‖z‖ = ‖w-‖^(-1/2)."""
    plus, minus = mf.margins.positive(data).vector, mf.margins.negative(data).vector
    p, m = np.linalg.norm(plus), np.linalg.norm(minus)
    rng = np.random.default_rng(seed)
    group = np.arange(width) % 3  # positive, negative, lost
    u, z = np.where(group == 0, rng.random(width), 0), np.where(group == 1, rng.random(width), 0)
    u, z = u / (np.linalg.norm(u) * p**0.5), z / (np.linalg.norm(z) * m**0.5)
    return {"W": np.outer(u, plus) + np.outer(z, minus), "a": u * p - z * m}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_lemma_c1_is_a_kkt_point_at_every_scale(scale):
    net = mf.TwoLayer(9)
    theta = {name: scale * value for name, value in limit_of_system_a(DATA, 9).items()}
    k = kkt(net, theta, DATA)
    assert k.outcome is Outcome.CONVERGED
    assert k.stationarity <= 1e-10
    assert k.complementarity <= 1e-10
    assert k.feasibility <= 1e-12
    assert k.cosine == pytest.approx(1, abs=1e-12)
    assert k.scale * scale == pytest.approx(1, rel=1e-9)
    assert k.homogeneity < 1e-12
    # the multipliers of the lemma: λ_i sums to ‖w±‖²/‖w±‖ over each class
    plus, minus = mf.margins.positive(DATA), mf.margins.negative(DATA)
    assert k.multipliers[DATA.positive].sum() == pytest.approx(np.linalg.norm(plus.vector), rel=1e-9)
    assert k.multipliers[DATA.negative].sum() == pytest.approx(np.linalg.norm(minus.vector), rel=1e-9)


@pytest.mark.parametrize("size", [1e-8, 1e-5, 1e-2])
def test_a_perturbed_point_is_not(size):
    theta = limit_of_system_a(DATA, 9)
    rng = np.random.default_rng(1)
    theta = {n: v + size * np.linalg.norm(v) * rng.standard_normal(v.shape) for n, v in theta.items()}
    k = kkt(mf.TwoLayer(9), theta, DATA)
    assert k.stationarity > 0.05 * size
    assert k.stationarity > 1e-10


@pytest.mark.parametrize("degrees", [30, 60, 85])
def test_neurons_on_hyperplanes_need_a_slope_between_zero_and_one(degrees):
    """Two unit points at angle ψ < 90° with different labels. Neuron 1 is x_1 without its part along x_2, and lies on
    the hyperplane of x_2; neuron 2 the other way round. Then w_1 ∝ x_1 - s x_2 with the slope s = cos ψ at the tie."""
    psi = np.deg2rad(degrees)
    X = np.array([[1.0, 0.0], [np.cos(psi), np.sin(psi)]])
    data = mf.Dataset(X, [1, -1])
    W = np.array([X[0] - np.cos(psi) * X[1], X[1] - np.cos(psi) * X[0]])
    W[0, :] -= (W[0] @ X[1]) * X[1]
    theta = {"W": W, "a": np.linalg.norm(W, axis=1) * np.array([1, -1])}
    k = kkt(mf.TwoLayer(2), theta, data)
    assert k.stationarity <= 1e-10
    assert k.complementarity <= 1e-10
    assert {tuple(pair) for pair in k.ties.tolist()} == {(0, 1), (1, 0)}
    np.testing.assert_allclose(k.selection, np.cos(psi), rtol=1e-9)
    # autodiff's slope 0 alone would not do
    assert kkt(mf.TwoLayer(2), theta, data, tie=-1.0).stationarity > 0.1


def test_a_leaky_tie_may_use_slopes_in_its_own_interval_only():
    """The same two points: a leak γ allows w_1 = x_1 - s x_2 for γ <= s <= 1 and no other s."""
    for s, possible in [(0.8, True), (0.6, True), (0.3, False)]:
        X = np.array([[1.0, 0.0], [s, np.sqrt(1 - s * s)]])
        W = np.array([X[0] - s * X[1], X[1] - s * X[0]])
        W[0] -= (W[0] @ X[1]) * X[1]
        theta = {"W": W, "a": np.array([1.0, -1.0])}
        k = kkt(mf.TwoLayer(2, "leaky:0.5", train="input"), theta, mf.Dataset(X, [1, -1]))
        assert (k.selection >= 0.5 - 1e-9).all()
        assert (k.selection <= 1 + 1e-9).all()
        assert (k.stationarity < 1e-9) == possible


@pytest.mark.parametrize("seed", range(6))
def test_multipliers_with_ties_are_the_best_there_are(seed):
    """Random cones with tie columns, against CVXPY on the problem as stated."""
    cp = pytest.importorskip("cvxpy")
    from marginflow.margins.kkt import _multipliers

    rng = np.random.default_rng(seed)
    n, P, T = 6, 12, 9
    G, extra, target = (
        rng.standard_normal((n, P)) + 0.3,
        rng.standard_normal((T, P)),
        rng.standard_normal(P) + 0.5,
    )
    slack, owner = np.where(rng.random(n) < 0.5, 0, rng.random(n)), rng.integers(0, n, T)
    lam, tau, outcome = _multipliers(target, G, extra, slack, owner)
    assert outcome is Outcome.CONVERGED
    assert (lam >= 0).all()
    assert (tau >= 0).all()
    assert (tau <= lam[owner] * (1 + 1e-9) + 1e-12).all()
    L, t = cp.Variable(n), cp.Variable(T)
    objective = cp.sum_squares(target - L @ G - t @ extra) + cp.sum_squares(cp.multiply(slack, L))
    problem = cp.Problem(cp.Minimize(objective), [L >= 0, t >= 0, t <= L[owner]])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    ours = np.sum((target - lam @ G - tau @ extra) ** 2) + np.sum((slack * lam) ** 2)
    assert ours == pytest.approx(problem.value, rel=1e-7)


def test_the_max_margin_vector_and_its_deep_factorisations():
    m = mf.margins.linear(DATA)
    k = kkt(Linear(), {name: m.vector.reshape(shape) for name, shape in Linear().shapes(6).items()}, DATA)
    assert k.stationarity < 1e-10
    np.testing.assert_allclose(k.multipliers, m.dual * (m.vector @ m.vector), atol=1e-8)
    # w = W_3 W_2 W_1 with rank-one aligned balanced factors is stationary; unbalanced factors are not
    net = DeepLinear(3, 4)
    e, size = np.eye(4)[0], np.linalg.norm(m.vector)
    names = list(net.shapes(6))
    values = [np.outer(e, m.vector / size), np.outer(e, e), e]
    theta = {n: size ** (1 / 3) * v.reshape(net.shapes(6)[n]) for n, v in zip(names, values, strict=True)}
    k = kkt(net, theta, DATA)
    assert k.stationarity < 1e-10
    assert k.complementarity < 1e-10
    theta[names[0]] = theta[names[0]] * 2
    assert kkt(net, theta, DATA).stationarity > 0.1


def test_system_b_optimum_is_a_kkt_point_with_its_multipliers():
    data = mf.data.gaussian_mixture(n=20, d=300, seed=0)
    r = mf.margins.leaky(data, 0.5, 3, 5)
    theta = {
        "W": np.r_[np.tile(r.v, (3, 1)), np.tile(r.u, (5, 1))],
        "a": np.repeat([1.0, -1.0], [3, 5]) / 8**0.5,
    }
    k = kkt(mf.TwoLayer(8, activation="leaky:0.5", train="input"), theta, data)
    assert k.stationarity < 1e-10
    np.testing.assert_allclose(k.multipliers, r.multipliers, rtol=1e-8)


def test_gradients_from_elsewhere_give_the_same_residuals():
    theta = limit_of_system_a(DATA, 6)
    rng = np.random.default_rng(0)
    theta = {n: v * (1 + 0.05 * rng.standard_normal(v.shape)) for n, v in theta.items()}
    net = mf.TwoLayer(6)
    pre = DATA.X @ theta["W"].T
    q = DATA.y * net(theta, DATA.X)
    grad_W = (DATA.y[:, None] * (pre > 0) * theta["a"])[:, :, None] * DATA.X[:, None, :]
    grad_a = DATA.y[:, None] * np.maximum(pre, 0)
    a, b = kkt(net, theta, DATA), kkt_from_gradients([theta["W"], theta["a"]], [grad_W, grad_a], q, degree=2)
    for name in ("stationarity", "complementarity", "cosine", "scale"):
        assert getattr(b, name) == pytest.approx(getattr(a, name), rel=1e-9)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_residuals_do_not_depend_on_scale(seed, scale):
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((5, 7))
    theta = H.T @ rng.random(5) + 0.3 * rng.standard_normal(7)
    q = H @ theta
    one, other = kkt_from_gradients(theta, H, q, 1), kkt_from_gradients(scale * theta, H, scale * q, 1)
    assert one.outcome is other.outcome
    if q.min() > 1e-3:
        assert other.stationarity == pytest.approx(one.stationarity, rel=1e-6, abs=1e-9)
        assert other.complementarity == pytest.approx(one.complementarity, rel=1e-6, abs=1e-9)


def test_a_misclassified_example_has_no_kkt_problem():
    theta = limit_of_system_a(DATA, 6)
    k = kkt(mf.TwoLayer(6), {"W": theta["W"], "a": -theta["a"]}, DATA)
    assert k.outcome is Outcome.INFEASIBLE
    assert k.stationarity == np.inf
    assert "misclassified" in str(k)
    k.to_json()


def test_what_is_not_homogeneous_is_refused():
    net = mf.TwoLayer(6, "smooth-leaky:0.5", train="input")
    with pytest.raises(InputError, match="homogeneous"):
        kkt(net, limit_of_system_a(DATA, 6), DATA)
    theta = limit_of_system_a(DATA, 6)
    pre = np.maximum(DATA.X @ theta["W"].T, 0)
    with pytest.raises(InputError, match="homogeneous"):  # the output layer alone has degree 1, not 2
        kkt_from_gradients(theta["a"], DATA.y[:, None] * pre, DATA.y * (pre @ theta["a"]), degree=2)
    with pytest.raises(InputError, match="'W'"):
        kkt(mf.TwoLayer(6), {"a": theta["a"]}, DATA)
    with pytest.raises(InputError, match="several outputs"):
        kkt(mf.TwoLayer(6, outputs=3), theta, DATA)
    with pytest.raises(InputError, match="must match"):
        kkt_from_gradients(theta["a"], np.ones((DATA.n, 2)), np.ones(DATA.n), degree=1)
