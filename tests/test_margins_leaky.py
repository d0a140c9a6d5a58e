"""System B's convex problem (theory §4): agreement, closed form, identities, claims and laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marginflow as mf
from marginflow import InputError, Outcome
from marginflow.margins import leaky


def as_stated(data, leak, m1, m2):
    """(objective, v, u) of the problem as the paper states it, by CVXPY."""
    cp = pytest.importorskip("cvxpy")
    v, u, m = cp.Variable(data.d), cp.Variable(data.d), m1 + m2
    P, N = data.X[data.positive], data.X[data.negative]
    a, b = m1 / m**0.5, m2 / m**0.5
    constraints = [a * P @ v - leak * b * P @ u >= 1, b * N @ u - leak * a * N @ v >= 1]
    problem = cp.Problem(cp.Minimize(m1 / 2 * cp.sum_squares(v) + m2 / 2 * cp.sum_squares(u)), constraints)
    tight = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
    problem.solve(solver="CLARABEL", **tight)
    return problem.value, v.value, u.value


PROBLEMS = [
    (20, 300, 3, 5, 0.5),
    (30, 10, 1, 2, 0.3),
    (30, 4, 7, 2, 0.9),
    (10, 30, 2, 2, 0.1),
    (12, 6, 1, 1, 0.05),
]


@pytest.mark.parametrize(("n", "d", "m1", "m2", "leak"), PROBLEMS)
def test_agrees_with_the_problem_as_stated(n, d, m1, m2, leak):
    data = mf.data.gaussian_mixture(n=n, d=d, mean=3.0, seed=1)
    r = leaky(data, leak, m1, m2)
    objective, v, u = as_stated(data, leak, m1, m2)
    assert r.outcome is Outcome.CONVERGED
    assert r.certified
    assert r.lower_bound <= r.objective * (1 + 1e-14)
    assert r.objective <= r.upper_bound * (1 + 1e-14)
    assert r.objective == pytest.approx(objective, rel=1e-8)
    size = np.linalg.norm(v) + np.linalg.norm(u)
    np.testing.assert_allclose(r.v, v, atol=1e-8 * size)
    np.testing.assert_allclose(r.u, u, atol=1e-8 * size)


@pytest.mark.parametrize(("n", "d", "m1", "m2", "leak"), PROBLEMS)
def test_optimality_conditions_as_stated(n, d, m1, m2, leak):
    data = mf.data.gaussian_mixture(n=n, d=d, mean=3.0, seed=1)
    r, m, on = leaky(data, leak, m1, m2), m1 + m2, data.y > 0
    L, X = r.multipliers, data.X
    assert (L >= 0).all()
    np.testing.assert_allclose(r.v, (L * np.where(on, 1, -leak)) @ X / m**0.5, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(r.u, (L * np.where(on, -leak, 1)) @ X / m**0.5, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(r.z, (m1 * r.v - m2 * r.u) / m**0.5, rtol=1e-12, atol=1e-15)
    value = np.where(on, m1 * X @ r.v - leak * m2 * X @ r.u, m2 * X @ r.u - leak * m1 * X @ r.v) / m**0.5
    assert value.min() >= 1 - 1e-12
    np.testing.assert_allclose(value[L > 1e-12 * L.max()], 1, rtol=1e-11)
    # strong duality: Σ λ - ½ ‖g‖² = ½ ‖g‖²
    assert L.sum() == pytest.approx(2 * r.objective, rel=1e-12)
    assert r.closed_form == (len(r.tight) == n)


def test_closed_form_is_the_linear_system_of_all_constraints():
    data = mf.data.gaussian_mixture(n=20, d=2000, mean=1.0, seed=0)
    r = leaky(data, 0.5, 4, 4)
    assert r.closed_form
    same = np.equal.outer(data.y, data.y)
    K = np.where(same, (1 + 0.25) / 2, -0.5) * (data.X @ data.X.T)
    np.testing.assert_allclose(r.multipliers, np.linalg.solve(K, np.ones(20)), rtol=1e-12)


def test_claims_on_nearly_orthogonal_data():
    """Theory §4 (1)-(6), n = 20, d = 2000, γ = ½."""
    data = mf.data.gaussian_mixture(n=20, d=2000, mean=0.0, seed=3)
    leak, m1, m2 = 0.5, 3, 9
    r = leaky(data, leak, m1, m2)
    norms = np.linalg.norm(data.X, axis=1) ** 2
    assert len(r.tight) == 20
    assert (r.multipliers > 1 / (2 * norms.max())).all()
    assert (r.multipliers < 3 / (2 * leak**2 * norms.min())).all()
    assert (data.y * (data.X @ r.z) >= 1).all()
    assert r.kappa == pytest.approx(3**-0.5)
    assert r.ratio_bound == pytest.approx(2 / (3**-0.5 + 0.5))
    np.testing.assert_allclose(r.z_star, mf.margins.linear(data).vector)
    assert 1 <= r.ratio <= r.ratio_bound


@given(st.integers(0, 10**6), st.sampled_from([1e-9, 1.0, 1e9]), st.integers(1, 6), st.integers(1, 6))
def test_exchanging_the_classes_and_scaling(seed, scale, m1, m2):
    data = mf.data.gaussian_mixture(n=8, d=5, mean=2.0, seed=seed)
    r = leaky(data, 0.4, m1, m2)
    other = leaky(mf.Dataset(data.X * scale, -data.y), 0.4, m2, m1)
    assert r.certified
    assert other.certified
    assert other.objective * scale**2 == pytest.approx(r.objective, rel=1e-9)
    size = np.linalg.norm(r.v) + np.linalg.norm(r.u)
    np.testing.assert_allclose(other.v * scale, r.u, atol=1e-8 * size)
    np.testing.assert_allclose(other.u * scale, r.v, atol=1e-8 * size)


def test_both_routes_agree():
    """All constraints active, solved by the linear system and by the working set."""
    from marginflow.margins.leaky import StackedRows
    from marginflow.margins.linear import working_set
    from marginflow.margins.rows import SignedRows

    data = mf.data.gaussian_mixture(n=25, d=400, mean=2.0, seed=0)
    r = leaky(data, 0.3, 1, 1)
    on, a = data.y > 0, 0.5**0.5
    rows = StackedRows(
        SignedRows(data.X, np.arange(25), np.ones(25), False),
        np.where(on, a, -0.3 * a),
        np.where(on, -0.3 * a, a),
    )
    answer = working_set(rows, rows.norms())
    assert r.closed_form
    np.testing.assert_allclose(answer.alpha * (answer.w @ answer.w), r.multipliers, rtol=1e-11)


def test_equal_points_with_different_labels_do_not_make_it_infeasible():
    """The common weights answer both signs at once, so v and u exist where no z* does."""
    data = mf.Dataset([[1.0, 0], [1, 0], [0, 1], [0, -2]], [1, -1, 1, -1])
    r = leaky(data, 0.5, 1, 1)
    assert r.certified
    assert r.z_star is None
    assert r.ratio is None
    assert r.linear.contradictory == (0, 1)


def test_contradiction_is_reported_not_raised():
    r = leaky(mf.Dataset([[1.0, 2], [-1, -2], [0, 1]], [1, 1, -1]), 0.5, 1, 1)
    assert r.v is None
    assert not r.certified
    assert r.outcome is Outcome.INFEASIBLE
    assert "infeasible" in str(r)


@pytest.mark.parametrize(("leak", "m1", "m2"), [(0, 1, 1), (1, 1, 1), (0.5, 0, 2), (0.5, 2, 0)])
def test_bad_arguments_are_refused(leak, m1, m2):
    with pytest.raises(InputError):
        leaky(mf.Dataset(np.eye(2), [1, -1]), leak, m1, m2)
