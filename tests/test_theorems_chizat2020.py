"""System C: F1 and F2 verdicts, and the two rate bounds on the dynamics they are about."""

import dataclasses

import numpy as np
import pytest
from test_theorems import SPANNING, limit_run, only

import marginflow as mf
from marginflow._core.status import Outcome, Status
from marginflow.flows.rates import rate_run
from marginflow.theorems import Evidence, Subject, theorem
from marginflow.theorems.chizat2020 import (
    classifier,
    generalisation,
    independent_features,
    unit_features,
    variation_margin,
)


def problem(seed, n=16, d=3):
    """A small problem with a positive F1 margin: labels of a random two-layer net."""
    rng = np.random.default_rng(seed)
    X = np.c_[rng.standard_normal((n, d - 1)), np.ones(n)]
    W, a = rng.standard_normal((4, d)), rng.choice([-1.0, 1.0], 4)
    f = np.maximum(X @ W.T, 0) @ a
    return mf.Dataset(X, np.where(f > np.median(f), 1, -1), f"teacher-{seed}")


class TestF1:
    def test_srelu_classifier_holds(self):
        f1 = mf.margins.f1(SPANNING, activation="srelu")
        assert f1.certified
        net, theta = classifier(f1)
        verdict = only(limit_run(net, theta, SPANNING, init="gaussian"), "chizat2020.f1")
        assert verdict.status is Status.HOLDS, verdict

    def test_relu_is_outside_the_proof_but_measured(self):
        net, theta = classifier(mf.margins.f1(SPANNING))
        verdict = only(limit_run(net, theta, SPANNING, init="gaussian"), "chizat2020.f1")
        assert verdict.status is Status.VACUOUS
        assert [a.name for a in verdict.assumptions if a.status is Status.FAILS] == ["smooth_feature"]
        assert all(c.status is Status.HOLDS for c in verdict.claims)

    def test_a_narrow_net_with_too_small_a_margin_proves_nothing_about_infinite_ones(self):
        net, theta = classifier(mf.margins.f1(SPANNING, activation="srelu"))
        theta = {**theta, "W": theta["W"] + 0.5 * np.abs(theta["W"]).max()}
        verdict = only(limit_run(net, theta, SPANNING, init="gaussian"), "chizat2020.f1")
        assert verdict.status is Status.UNDECIDED
        assert "reaches_gamma1" in [c.name for c in verdict.claims if c.status is Status.UNDECIDED]

    def test_a_margin_above_gamma1_fails(self, monkeypatch):
        net, theta = classifier(mf.margins.f1(SPANNING, activation="srelu"))
        run = limit_run(net, theta, SPANNING, init="gaussian")
        evidence = Evidence(net, run.theta, SPANNING, run)
        honest = evidence.f1
        evidence.__dict__["f1"] = dataclasses.replace(honest, upper_bound=0.99 * honest.value)
        verdict = theorem("chizat2020.f1").verify(evidence)
        assert "below_gamma1" in [c.name for c in verdict.claims if c.status is Status.FAILS]

    def test_uncertified_gamma1_is_undecided(self):
        net, theta = classifier(mf.margins.f1(SPANNING, activation="srelu"))
        run = limit_run(net, theta, SPANNING, init="gaussian")
        evidence = Evidence(net, run.theta, SPANNING, run)
        evidence.__dict__["f1"] = dataclasses.replace(
            evidence.f1, upper_bound=None, certified=False, outcome=Outcome.MAX_STEPS
        )
        assert theorem("chizat2020.f1").verify(evidence).status is Status.UNDECIDED

    @pytest.mark.parametrize("activation", ["relu", "srelu"])
    def test_no_net_exceeds_gamma1(self, activation):
        data = problem(3)
        top = mf.margins.f1(data, activation=activation)
        assert top.certified
        rng = np.random.default_rng(0)
        train = "both" if activation == "relu" else "input"
        for _ in range(50):
            net = mf.TwoLayer(6, activation=activation, train=train)
            theta = {"W": rng.standard_normal((6, data.d)), "a": rng.standard_normal(6)}
            assert variation_margin(Evidence(net, theta, data)) <= top.upper_bound

    def test_predicted_classifier_attains_the_margin(self):
        data = problem(1)
        for activation in ("relu", "srelu"):
            f1 = mf.margins.f1(data, activation=activation)
            net, theta = classifier(f1)
            q = data.y * net(theta, data.X)
            assert q.min() == pytest.approx(f1.value, rel=1e-8)
            assert sum(np.sum(theta[k] ** 2) for k in net.trained) == pytest.approx(1.0, rel=1e-12)
            assert variation_margin(Evidence(net, theta, data)) == pytest.approx(f1.value, rel=1e-8)


class TestF2:
    def limit(self, m=4000, seed=0):
        data = problem(seed)
        net = mf.TwoLayer(m, train="output", mean_field=True)
        rng = np.random.default_rng(seed)
        W = rng.standard_normal((m, data.d))
        W /= np.linalg.norm(W, axis=1, keepdims=True)
        Z = data.y[:, None] * np.maximum(data.X @ W.T, 0)
        finite = mf.margins.f2_finite(Z)
        return data, net, {"W": W, "a": Z.T @ finite.dual}

    def test_holds_at_the_kernel_limit(self):
        data, net, theta = self.limit()
        verdict = only(limit_run(net, theta, data, init="sphere"), "chizat2020.f2")
        assert verdict.status is Status.HOLDS, verdict

    def test_directions_of_any_length_have_the_kernel_of_the_sphere(self):
        """Features are those of the weights as they are: the limit for a Gaussian draw is its own maximiser."""
        data = problem(0)
        W = np.random.default_rng(0).standard_normal((4000, data.d))
        Z = data.y[:, None] * np.maximum(data.X @ W.T, 0)
        theta = {"W": W, "a": Z.T @ mf.margins.f2_finite(Z).dual}
        net = mf.TwoLayer(4000, train="output", mean_field=True)
        verdict = only(limit_run(net, theta, data, init="gaussian"), "chizat2020.f2")
        assert verdict.status is Status.HOLDS, verdict

    def test_predicted_classifier_has_margin_one_in_normal_form(self):
        data = problem(0)
        net = mf.TwoLayer(10, train="output", mean_field=True)
        f = mf.predict(net, data, ["chizat2020.f2"])["chizat2020.f2"].prediction
        assert (data.y * f(data.X)).min() == pytest.approx(1, rel=1e-7)
        # A wide net at the finite-width maximiser computes nearly the same function.
        _, wide, theta = self.limit(m=20_000)
        X = np.random.default_rng(5).standard_normal((50, data.d))
        g = np.asarray(wide(theta, X)) / (data.y * np.asarray(wide(theta, data.X))).min()
        assert np.abs(f(X) - g).max() < 0.1 * np.abs(f(X)).max()

    def test_other_output_weights_fail(self):
        data, net, theta = self.limit()
        rng = np.random.default_rng(1)
        theta["a"] = theta["a"] * (1 + 0.2 * rng.standard_normal(len(theta["a"])))
        verdict = only(limit_run(net, theta, data, init="sphere"), "chizat2020.f2")
        assert verdict.status is Status.FAILS
        assert [c.name for c in verdict.claims if c.status is Status.FAILS] == ["reaches_finite_gamma2"]

    def test_unknown_directions_are_undecided(self):
        data, net, theta = self.limit(m=400)
        assert only(net, "chizat2020.f2", theta, data).status is Status.UNDECIDED


class TestRates:
    @pytest.mark.parametrize("kind", ["both", "output"])
    @pytest.mark.parametrize("seed", range(10))
    def test_the_bound_is_never_crossed(self, kind, seed):
        data = problem(seed, n=12, d=3)
        net = mf.TwoLayer(64, train="output" if kind == "output" else "both")
        theta = mf.inits.balanced(net, data.d, 1.0, key=seed)
        run = rate_run(net, theta, data, kind=kind, steps=20_000)
        verdict = only(run, f"chizat2020.rate_{kind}")
        assert verdict.status is Status.HOLDS, verdict
        assert np.all(np.diff(run.history["best_margin"]) >= 0)

    def test_both_against_plain_numpy(self):
        data = problem(0)
        net = mf.TwoLayer(20)
        theta = mf.inits.balanced(net, data.d, 1.0, key=1)
        run = rate_run(net, theta, data, kind="both", steps=200)
        Z = unit_features(Evidence(net, theta, data))
        Z = Z * np.sign(theta["a"])
        r, z, best = np.ones(20), np.abs(Z).max(), -np.inf
        for t in range(200):
            a = r**2 / 20
            best = max(best, (Z @ a).min() / a.sum())
            p = np.exp(-(Z @ a))
            p /= p.sum()
            r = r + 20 / (16 * z * np.sqrt(t + 1)) * 2 / 20 * r * (p @ Z)
        assert run.history["best_margin"][-1] == pytest.approx(best, rel=1e-12)

    def test_output_against_plain_numpy(self):
        data = problem(0)
        net = mf.TwoLayer(20, train="output")
        theta = mf.inits.balanced(net, data.d, 1.0, key=1)
        run = rate_run(net, theta, data, kind="output", steps=200)
        Z = unit_features(Evidence(net, theta, data))
        r, beta, z, best = np.zeros(20), 1.0, np.abs(Z).max(), -np.inf
        for t in range(200):
            a = r / 20
            beta = max(beta, np.sqrt(20) * np.linalg.norm(a))
            best = max(best, (Z @ a).min() / beta)
            p = np.exp(-(Z @ a))
            p /= p.sum()
            r = r + beta * np.sqrt(2) / (z * np.sqrt(t + 1)) * (p @ Z)
        assert run.history["best_margin"][-1] == pytest.approx(best, rel=1e-12, abs=1e-14)

    @pytest.mark.parametrize("kind", ["both", "output"])
    def test_long_runs_stay_finite_where_beta_overflows(self, kind):
        data = mf.data.phuong2021(n=12, d=3, seed=0)
        net = mf.TwoLayer(32)
        run = rate_run(net, mf.inits.balanced(net, 3, 1.0, key=0), data, kind=kind, steps=300_000)
        assert all(np.isfinite(v).all() for v in run.history.values())
        assert all(np.isfinite(v).all() for v in run.theta.values())
        verdict = only(run, f"chizat2020.rate_{kind}")
        assert verdict.status is Status.HOLDS
        assert run.history["log_beta"][-1] > 20

    def test_a_false_constant_is_crossed(self, monkeypatch):
        data = problem(0)
        net = mf.TwoLayer(64)
        run = rate_run(net, mf.inits.balanced(net, data.d, 1.0, key=0), data, kind="both", steps=20_000)
        claimed = theorem("chizat2020.rate_both")
        monkeypatch.setattr(
            claimed,
            "curves",
            lambda h, Z, g: (h["best_margin"], np.full(len(h["step"]), g), "no rate at all"),
        )
        assert only(run, "chizat2020.rate_both").status is Status.FAILS

    def test_other_runs_are_not_spoken_of(self):
        data = problem(0)
        net = mf.TwoLayer(8)
        run = rate_run(net, mf.inits.balanced(net, data.d, 1.0, key=0), data, kind="output", steps=10)
        assert (
            "its own dynamics"
            in mf.verify(run, theorems=["chizat2020.rate_both"]).silent["chizat2020.rate_both"]
        )

    def test_bad_options(self):
        net = mf.TwoLayer(8)
        theta = mf.inits.balanced(net, 3, 1.0, key=0)
        with pytest.raises(mf.InputError, match="steps 0"):
            rate_run(net, theta, problem(0), steps=0)
        with pytest.raises(mf.InputError, match="choose both or output"):
            rate_run(net, theta, problem(0), kind="all")


def test_generalisation_factors_are_the_computable_ones():
    data = problem(0)
    for theorem_key, train in (("chizat2020.f1", "both"), ("chizat2020.f2", "output")):
        found = mf.predict(mf.TwoLayer(9, train=train), data, [theorem_key])[theorem_key].prediction["generalisation"]
        pairs = data.X[data.positive][:, None] - data.X[data.negative][None]
        closest = np.linalg.norm(pairs, axis=2).min()
        assert found["R"] == pytest.approx(np.linalg.norm(data.X, axis=1).max(), rel=1e-12)
        assert found["interclass_distance"][0] <= closest * (1 + 1e-12)
        assert found["interclass_distance"][1] >= closest * (1 - 1e-12)
        assert found["exponent"] == (data.d + 3) / 2
    assert generalisation(data, 1)["interclass_distance"][1] <= closest * (1 + 1e-9)


@pytest.mark.parametrize(("relu", "independent"), [("relu", False), ("srelu", True)])
def test_features_of_examples_on_either_side_of_0(relu, independent):
    """ρ(s) - ρ(-s) = s: three opposed pairs in the plane give three linear functions of two variables; their squares
    are independent."""
    half = np.array([[1.0, 0], [0, 1], [1, 1]])
    data = mf.Dataset(np.r_[half, -half], [1, 1, 1, -1, -1, -1], "opposed")
    net = mf.TwoLayer(3, activation=relu, train="both" if relu == "relu" else "input")
    assert (independent_features(Subject(net, data)).status is Status.HOLDS) == independent


def test_a_theorem_about_another_net_says_so():
    assert "output layer" in theorem("chizat2020.f1").covers(
        Subject(mf.TwoLayer(4, train="output"), SPANNING)
    )
