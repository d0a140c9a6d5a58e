"""The estimators: scikit-learn's own checks, the theorem's net, certificates re-derived, fallbacks and refusals."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

import marginflow as mf
from marginflow.bridges import (
    F1MaxMarginClassifier,
    F2MaxMarginClassifier,
    TheoryWarning,
    TwoNeuronClassifier,
)
from marginflow.bridges.estimators import not_orthogonally_separable
from marginflow.bridges.two_sided import soft_neuron

ALL = [
    TwoNeuronClassifier(),
    F2MaxMarginClassifier(),
    F1MaxMarginClassifier(neurons=30, rounds=3, random_state=0),
]
NAMES = [type(e).__name__ for e in ALL]


def opposite_cones(n=60, d=6, seed=0):
    """Points of two opposite orthants: orthogonally separable, and their halves are well inside."""
    data = mf.data.phuong2021(n=n, d=d, seed=seed)
    return np.array(data.X), data.y.astype(int)


def passes(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    assert len(results) > 40
    bad = [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]
    assert not bad


@pytest.mark.parametrize("estimator", ALL[:2], ids=NAMES[:2])
def test_scikit_learn_accepts_them(estimator):
    passes(estimator)


@pytest.mark.slow
def test_scikit_learn_accepts_f1():
    passes(F1MaxMarginClassifier())


def test_two_neurons_are_the_limit_of_the_flow():
    """On orthogonally separable data the classifier is the net the theorem predicts, constants included."""
    X, y = opposite_cones()
    fitted = TwoNeuronClassifier(fit_intercept=False, fallback="refuse").fit(X, y)
    prediction = {t.key: t for t in mf.predict(mf.TwoLayer(2), mf.Dataset(X, y)).theorems}[
        "phuong2021.theorem1"
    ]
    values = prediction.prediction
    scale = 1 / np.sqrt(np.sum(fitted.W_**2) + np.sum(fitted.a_**2))
    theta = {"W": fitted.W_ * scale, "a": fitted.a_ * scale}
    f = mf.TwoLayer(2)(theta, X)
    expected = values["function_constant"] * (
        np.maximum(X @ values["w_plus"], 0) - np.maximum(X @ values["w_minus"], 0)
    )
    np.testing.assert_allclose(f, expected, atol=1e-12)
    assert fitted.margin_ == pytest.approx(values["normalised_margin"], rel=1e-9)
    assert fitted.certificate_.status is mf.Status.HOLDS
    assert fitted.certificate_.lower_bound <= fitted.margin_ * (1 + 1e-12)
    assert fitted.margin_ <= fitted.certificate_.upper_bound * (1 + 1e-12)
    assert np.min(y * fitted.decision_function(X)) == pytest.approx(1.0, rel=1e-9)


def test_balance_of_the_fitted_net():
    X, y = opposite_cones()
    fitted = TwoNeuronClassifier(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(np.abs(fitted.a_), np.linalg.norm(fitted.W_, axis=1), rtol=1e-12)


def test_three_papers_agree_as_estimators():
    """On orthogonally separable data F1's margin is the flow's: theory §3."""
    X, y = opposite_cones(n=30, d=4)
    two = TwoNeuronClassifier(fit_intercept=False).fit(X, y)
    f1 = F1MaxMarginClassifier(fit_intercept=False).fit(X, y)
    assert f1.margin_ == pytest.approx(two.margin_, rel=1e-8)
    np.testing.assert_allclose(f1.decision_function(X), two.decision_function(X), rtol=1e-6)


def test_two_sided_neurons_tend_to_the_theorem_on_its_data():
    X, y = opposite_cones()
    w = mf.margins.positive(mf.Dataset(X, y)).vector
    soft = soft_neuron(X[y > 0], X[y < 0], 1e8)
    np.testing.assert_allclose(soft.w, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_two_sided_against_an_independent_solver(C):
    """With b = 1 on both classes the problem is LinearSVC's squared hinge; with b = 0 its stationarity is checked."""
    rng = np.random.default_rng(3)
    own, other = rng.standard_normal((40, 5)) + 0.4, rng.standard_normal((30, 5)) - 0.4
    found = soft_neuron(own, other, C)
    assert found.gap <= 1e-9
    Z, b = np.concatenate([own, -other]), np.repeat([1.0, 0.0], [40, 30])
    np.testing.assert_allclose(found.w, C * Z.T @ np.maximum(b - Z @ found.w, 0), rtol=1e-8, atol=1e-10)
    alone = soft_neuron(np.concatenate([own, -other]), np.empty((0, 5)), C)
    svc = LinearSVC(C=C / 2, loss="squared_hinge", fit_intercept=False, tol=1e-10, max_iter=200_000)
    svc.fit(np.concatenate([own, other]), np.repeat([1, -1], [40, 30]))
    np.testing.assert_allclose(alone.w, svc.coef_[0], rtol=1e-5, atol=1e-7)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.01, 1e6))
def test_two_sided_gap_bounds_the_distance(seed, C):
    rng = np.random.default_rng(seed)
    own, other = rng.standard_normal((rng.integers(1, 12), 3)), rng.standard_normal((rng.integers(1, 12), 3))
    found = soft_neuron(own, other, C)
    Z, b = np.concatenate([own, -other]), np.repeat([1.0, 0.0], [len(own), len(other)])
    value = lambda w: 0.5 * w @ w + C / 2 * np.sum(np.maximum(b - Z @ w, 0) ** 2)  # noqa: E731
    best = value(found.w)
    assert found.gap <= 1e-9
    for step in rng.standard_normal((20, 3)) * 1e-3:
        assert value(found.w + step) >= best * (1 - 1e-9)


def test_f2_is_the_margin_of_the_library():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[y > 0], y[y > 0]
    fitted = F2MaxMarginClassifier().fit(X, y)
    margin = mf.margins.f2(mf.Dataset(X, y), bias=True)
    assert fitted.margin_ == margin.value
    assert fitted.certificate_.status is mf.Status.HOLDS
    signs = np.where(y == 2, 1, -1)
    assert np.min(signs * fitted.decision_function(X)) == pytest.approx(1.0, rel=1e-6)


def test_f1_keeps_the_margin_it_reports():
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[y > 0][20:70], y[y > 0][20:70]
    fitted = F1MaxMarginClassifier(random_state=0, neurons=40).fit(X, y)
    assert fitted.margin_ >= fitted.certificate_.lower_bound > 0
    signs = np.where(y == 2, 1, -1)
    assert np.min(signs * fitted.decision_function(X)) == pytest.approx(1.0, rel=1e-9)
    assert (fitted.predict(X) == y).all()


SLOW_F1 = [*ALL[:2], pytest.param(ALL[2], marks=pytest.mark.slow)]


@pytest.mark.parametrize("estimator", SLOW_F1, ids=NAMES)
def test_in_a_pipeline_and_cross_validation(estimator):
    X, y = load_wine(return_X_y=True)
    rows = np.flatnonzero(y < 2)[::2]
    pipe = make_pipeline(StandardScaler(), clone(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TheoryWarning)
        scores = cross_val_score(pipe, X[rows], y[rows], cv=3)
    assert scores.mean() > 0.85


def test_more_classes_by_one_against_the_rest():
    X, y = load_wine(return_X_y=True)
    with pytest.warns(TheoryWarning):
        fitted = OneVsRestClassifier(TwoNeuronClassifier()).fit(StandardScaler().fit_transform(X), y)
    assert fitted.score(StandardScaler().fit_transform(X), y) > 0.9
    with pytest.raises(ValueError, match="OneVsRestClassifier"):
        TwoNeuronClassifier().fit(X, y)


def test_fallback_warns_or_refuses():
    X, y = load_iris(return_X_y=True)
    X, y = X[y > 0], y[y > 0]
    with pytest.warns(TheoryWarning, match="not orthogonally separable"):
        fitted = TwoNeuronClassifier().fit(X, y)
    assert fitted.certificate_.status is mf.Status.VACUOUS
    assert fitted.certificate_.upper_bound is None
    with pytest.raises(mf.InputError, match=r"rows \d+ and \d+ have cosine"):
        TwoNeuronClassifier(fallback="refuse").fit(X, y)


@pytest.mark.parametrize("estimator", ALL[1:], ids=NAMES[1:])
def test_contradictions_are_left_out_or_refused(estimator):
    X = np.array([[1.0, 0], [1.0, 0], [1.0, 0], [-1.0, 1], [0.5, -2]])
    y = np.array([1, 1, 0, 0, 0])
    with pytest.warns(TheoryWarning, match="contradict"):
        fitted = clone(estimator).fit(X, y)
    assert fitted.certificate_.status is mf.Status.VACUOUS
    assert fitted.predict(X[:1]) == [1]
    with pytest.raises(mf.InputError, match="row 2"):
        clone(estimator).set_params(fallback="refuse").fit(X, y)


def test_zero_rows_are_a_reason_not_a_crash():
    X, y = opposite_cones()
    X[3] = 0.0
    assert "row 3 is zero" in str(not_orthogonally_separable(X, y))
    with pytest.warns(TheoryWarning):
        TwoNeuronClassifier(fit_intercept=False).fit(X, y)


@pytest.mark.parametrize("bad", [{"C": 0.0}, {"fallback": "perhaps"}])
def test_parameters_are_checked_at_fit(bad):
    with pytest.raises(mf.InputError):
        TwoNeuronClassifier(**bad).fit(*opposite_cones())


def test_f2_refuses_an_activation_without_closed_form():
    with pytest.raises(mf.InputError, match="closed form"):
        F2MaxMarginClassifier(activation="smooth-leaky:0.1").fit(*opposite_cones())


def test_importing_marginflow_imports_no_scikit_learn():
    import subprocess
    import sys

    code = "import marginflow, sys; marginflow.bridges; assert not {'sklearn', 'torch'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
