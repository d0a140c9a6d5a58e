"""F2 margins: kernels against high-precision integrals, γ2 against a cone program, laws, refusals."""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from margin_oracles import clarabel_margin, squared_distance_to_hull

import marginflow as mf
from marginflow import InputError, Outcome
from marginflow.margins import f2, f2_finite
from marginflow.margins.kernels import kernel
from marginflow.nets import activation


def high_precision(x, z, name, D):
    """K(x, z) with 40 digits from the angle between the stored vectors."""
    mp = pytest.importorskip("mpmath")
    with mp.workdps(40):
        x, z = ([mp.mpf(float(t)) for t in v] for v in (x, z))
        nx, nz = mp.sqrt(mp.fdot(x, x)), mp.sqrt(mp.fdot(z, z))
        c = mp.fdot(x, z) / (nx * nz)
        c = max(min(c, mp.mpf(1)), mp.mpf(-1))
        psi = mp.acos(c)
        # ∫ over the arc where both units are on, from the definition
        low, high = psi - mp.pi / 2, mp.pi / 2
        power = 2 if name == "srelu" else 1
        both = mp.quad(lambda t: (mp.cos(t) * mp.cos(t - psi)) ** power, [low, high]) / (2 * mp.pi)
        if name == "srelu":
            return (nx * nz) ** 2 * both * 8 / mp.mpf(D * (D + 2))
        leak = mp.mpf(activation(name).leak)
        linear = mp.cos(psi) / 2
        return nx * nz * mp.mpf(2) / D * (leak * linear + (1 - leak) ** 2 * both)


@pytest.mark.parametrize("name", ["relu", "leaky:0.3", "linear", "srelu"])
@pytest.mark.parametrize("D", [1, 2, 7])
def test_closed_forms_lie_within_their_error(name, D):
    rng = np.random.default_rng(D)
    X = rng.standard_normal((5, D)) * 10.0 ** rng.uniform(-3, 3, size=(5, 1))
    X[3], X[4] = X[0] * (1 + 1e-7), -X[1]  # nearly parallel, and opposite
    k = kernel(X, activation(name))
    assert k.proved
    for i in range(5):
        for j in range(5):
            truth = high_precision(X[i], X[j], name, D)
            assert abs(float(truth - k.values[i, j])) <= k.error[i, j]
    assert (k.error <= 1e-13 * np.sqrt(np.outer(np.diag(k.values), np.diag(k.values)))).all()


@pytest.mark.parametrize("name", ["relu", "leaky:0.3", "srelu", "smooth-leaky:0.2"])
def test_kernels_are_averages_over_random_units(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4, 5))
    C = rng.standard_normal((400_000, 5))
    C /= np.linalg.norm(C, axis=1, keepdims=True)
    features = activation(name)(X @ C.T)
    products = features[:, None] * features[None]
    sigma = products.std(axis=2) / len(C) ** 0.5
    assert (np.abs(products.mean(axis=2) - kernel(X, activation(name)).values) < 5 * sigma).all()


@pytest.mark.parametrize("name", ["relu", "leaky:0.1", "smooth-leaky:0.5"])
def test_quadrature_agrees_with_itself_and_the_closed_form(name):
    from marginflow.margins.kernels import _quadrature

    X = np.random.default_rng(1).standard_normal((4, 6))
    k = kernel(X, activation(name))
    np.testing.assert_allclose(
        _quadrature(X, activation(name), 600), k.values, atol=1e-6 if k.proved else 1e-14
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["relu", "leaky:0.2", "srelu"])
def test_gamma_against_a_cone_program_on_the_factored_kernel(name, bias):
    data = mf.data.chizat2020(n=30, d=4, k=2, seed=0)
    m = f2(data, bias=bias, activation=name)
    X = np.concatenate([data.X, np.ones((30, 1))], axis=1) if bias else data.X
    K = kernel(X, activation(name)).values * np.outer(data.y, data.y)
    L = np.linalg.cholesky(K)
    value, _ = clarabel_margin(L / np.sqrt(np.diag(K)).max())
    assert m.certified
    assert m.value == pytest.approx(value * np.sqrt(np.diag(K)).max(), rel=1e-8)
    assert m.lower_bound <= m.value <= m.upper_bound
    # normal form, both witnesses from the matrix alone
    values = K @ m.vector
    assert values.min() == pytest.approx(1, rel=1e-8)
    assert 1 / np.sqrt(m.vector @ K @ m.vector) == pytest.approx(m.value, rel=1e-9)
    assert np.sqrt(m.dual @ K @ m.dual) == pytest.approx(m.value, rel=1e-9)
    assert set(np.flatnonzero(m.dual > 1e-9)) <= set(m.support)


def test_two_points_by_hand():
    """Orthogonal unit points, D = 2: K_ii = 1/4, K_12 = 1/(4π), so γ2² = (1/4 - 1/(4π))/2."""
    m = f2(mf.Dataset(np.eye(2), [1, -1]))
    assert m.certified
    assert m.value == pytest.approx(np.sqrt((0.25 - 0.25 / np.pi) / 2), rel=1e-13)
    np.testing.assert_allclose(m.dual, [0.5, 0.5], rtol=1e-13)


def test_published_setting_is_certified():
    m = f2(mf.data.chizat2020(n=256, d=15, k=3, seed=0))
    assert m.certified
    assert m.outcome is Outcome.CONVERGED
    assert m.separable
    json.dumps(m.to_json(), allow_nan=False)


@given(st.integers(0, 10**6), st.integers(-60, 60), st.sampled_from(["relu", "srelu"]))
def test_scaling_scales_the_margin_by_its_degree(seed, exponent, name):
    data = mf.data.gaussian_mixture(n=10, d=4, mean=1.0, seed=seed)
    base = f2(data, activation=name)
    scaled = f2(mf.Dataset(data.X * 2.0**exponent, data.y), activation=name)
    degree = 2 if name == "srelu" else 1
    assert scaled.value == pytest.approx(base.value * 2.0 ** (degree * exponent), rel=1e-9)
    assert scaled.certified == base.certified


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1e12, 1e200])
def test_extreme_scales(scale):
    data = mf.data.phuong2021(n=20, d=3, seed=0)
    base, scaled = f2(data), f2(mf.Dataset(data.X * scale, data.y))
    assert scaled.certified
    assert scaled.value / scale == pytest.approx(base.value, rel=1e-10)


def test_rotation_and_label_flip():
    data = mf.data.chizat2020(n=25, d=5, k=2, seed=1)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    base, other = f2(data), f2(mf.Dataset(data.X @ Q, -data.y))
    assert other.value == pytest.approx(base.value, rel=1e-10)
    np.testing.assert_allclose(other.dual, base.dual, atol=1e-7)


def test_contradictory_points_and_opposite_points():
    same = f2(mf.Dataset([[1.0, 2], [1, 2], [0, 1]], [1, -1, 1]))
    assert (same.value, same.upper_bound, same.certified, same.separable) == (0, 0, True, False)
    assert same.contradictory == (0, 1)
    # x and -x with one label: no linear margin, an F2 margin all the same
    data = mf.Dataset([[1.0, 2], [-1, -2], [2, -1]], [1, 1, -1])
    assert mf.margins.linear(data).separable is False
    assert f2(data).separable
    assert f2(data).certified


@pytest.mark.parametrize(("name", "degree"), [("relu", 1), ("srelu", 2)])
def test_points_on_one_ray_with_different_labels(name, degree):
    """x and 3x have the same features up to the factor 3^degree, so γ2 = 0; a bias tells them apart."""
    data = mf.Dataset([[1.0, 2], [3, 6], [0, 1]], [1, -1, 1])
    m = f2(data, activation=name)
    assert (m.value, m.upper_bound, m.certified, m.separable) == (0, 0, True, False)
    assert m.dual[0] == pytest.approx(3**degree * m.dual[1])
    features = activation(name)(data.X @ np.random.default_rng(0).standard_normal((2, 50)))
    np.testing.assert_allclose((m.dual * data.y) @ features, 0, atol=1e-12)
    assert f2(data, bias=True, activation=name).separable


def test_a_kernel_by_quadrature_is_never_called_certified():
    data = mf.data.chizat2020(n=12, d=3, k=2, seed=0)
    m = f2(data, activation="smooth-leaky:0.3")
    assert not m.certified
    assert m.separable is None
    assert m.certificate["kernel_error_proved"] is False
    assert m.gap < 1e-6


def test_finite_width_against_exact_and_cone_programs():
    rng = np.random.default_rng(0)
    Z = rng.integers(0, 4, size=(5, 3)).astype(float) + np.eye(5, 3)
    m = f2_finite(Z)
    square = squared_distance_to_hull(Z) / 3
    assert m.certified
    assert Fraction(m.lower_bound) ** 2 <= square <= Fraction(m.upper_bound) ** 2
    Z = rng.standard_normal((40, 100))
    m = f2_finite(Z)
    assert m.value == pytest.approx(clarabel_margin(Z)[0] / 10, rel=1e-8)
    assert (Z @ m.vector).min() == pytest.approx(1, rel=1e-12)
    assert m.value == pytest.approx(1 / (10 * np.linalg.norm(m.vector)), rel=1e-12)


def test_finite_width_tends_to_the_kernel_margin():
    data = mf.data.phuong2021(n=20, d=4, seed=0)
    gamma = f2(data).value
    rng = np.random.default_rng(0)
    errors = []
    for m in (200, 20_000):
        C = rng.standard_normal((m, 4))
        C /= np.linalg.norm(C, axis=1, keepdims=True)
        errors.append(abs(f2_finite(data.y[:, None] * np.maximum(data.X @ C.T, 0)).value / gamma - 1))
    assert errors[1] < 0.02
    assert errors[1] < errors[0]


def test_an_example_no_unit_sees_has_margin_zero():
    Z = np.ones((4, 6))
    Z[2] = 0
    m = f2_finite(Z)
    assert (m.value, m.certified, m.separable) == (0, True, False)
    assert m.dual.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("Z", [np.ones(3), np.empty((0, 2)), np.array([[np.nan, 1.0]])])
def test_bad_features_are_refused(Z):
    with pytest.raises(InputError):
        f2_finite(Z)
