"""The linear baselines, homogeneous nets and the early phase: verdicts on weights built by hand."""

import numpy as np
import pytest
from test_theorems import SPANNING, limit_run, only

import marginflow as mf
from marginflow._core.status import Status
from marginflow.theorems import Evidence, theorem


def rank_one(net, direction):
    theta = {}
    for name, shape in net.shapes(len(direction)).items():
        theta[name] = np.zeros(shape)
        theta[name][0] = direction if name == "W1" else np.eye(shape[1])[0]
    return theta


@pytest.fixture(scope="module")
def w_max():
    w = mf.margins.linear(SPANNING).vector
    return w / np.linalg.norm(w)


class TestSoudry2018:
    net = mf.nets.Linear()

    def test_holds(self, w_max):
        assert only(limit_run(self.net, {"w": w_max}, SPANNING), "soudry2018").status is Status.HOLDS

    def test_off_by_a_tenth_of_a_degree_fails(self, w_max):
        c, s = np.cos(np.pi / 1800), np.sin(np.pi / 1800)
        turned = w_max @ np.array([[c, s], [-s, c]])
        verdict = only(limit_run(self.net, {"w": turned}, SPANNING), "soudry2018")
        assert verdict.status is Status.FAILS
        assert [c.name for c in verdict.claims if c.status is Status.FAILS] == [
            "direction",
            "normalised_margin",
        ]

    def test_not_separable_is_vacuous(self):
        data = mf.Dataset(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]), [1, 1, -1, -1], "cross")
        verdict = only(limit_run(self.net, {"w": np.array([1.0, 0])}, data), "soudry2018")
        assert verdict.status is Status.VACUOUS
        assert "not linearly separable" in verdict.summary

    def test_starved_solver_is_undecided(self, w_max):
        import dataclasses

        run = limit_run(self.net, {"w": w_max}, SPANNING)
        evidence = Evidence(self.net, run.theta, SPANNING, run)
        evidence.__dict__["linear_margin"] = dataclasses.replace(evidence.linear_margin, certified=False)
        assert theorem("soudry2018").verify(evidence).status is Status.UNDECIDED


class TestJi2019:
    net = mf.nets.DeepLinear(3, 4)

    def test_holds(self, w_max):
        assert only(limit_run(self.net, rank_one(self.net, w_max), SPANNING), "ji2019").status is Status.HOLDS

    @pytest.mark.parametrize(
        ("layer", "claim"), [("W1", "rank_one"), ("W2", "alignment"), ("W3", "equal_norms")]
    )
    def test_planted(self, w_max, layer, claim):
        theta = rank_one(self.net, w_max)
        if claim == "rank_one":
            theta["W1"][1] = 0.01 * np.array([-w_max[1], w_max[0]])
        elif claim == "alignment":
            theta["W2"][0, 1] = 0.1
        else:
            theta["W3"] *= 1.5
        verdict = only(limit_run(self.net, theta, SPANNING), "ji2019")
        assert verdict.status is Status.FAILS
        assert claim in [c.name for c in verdict.claims if c.status is Status.FAILS]


class TestLyu2020:
    def test_holds_with_a_monotone_history(self, spread_run):
        assert only(spread_run([0.1, 0.3, 0.3, 0.5]), "lyu2020").status is Status.HOLDS

    def test_a_falling_margin_fails(self, spread_run):
        verdict = only(spread_run([0.1, 0.5, 0.4]), "lyu2020")
        assert verdict.status is Status.FAILS
        assert [c.name for c in verdict.claims if c.status is Status.FAILS] == ["margin_monotone"]

    def test_no_history_is_undecided(self, spread_run):
        assert only(spread_run(None), "lyu2020").status is Status.UNDECIDED

    def test_no_separation_is_vacuous(self):
        net = mf.TwoLayer(1)
        theta = {"W": np.array([[1.0, 1.0]]), "a": np.array([-(2**0.5)])}
        assert only(limit_run(net, theta, SPANNING), "lyu2020").status is Status.VACUOUS

    def test_a_point_that_is_not_kkt_fails(self, spread_run):
        run = spread_run([0.1, 0.3])
        theta = {"W": run.theta["W"] + 0.02, "a": run.theta["a"]}
        verdict = only(limit_run(run.net, theta, SPANNING, history=run.history), "lyu2020")
        assert "kkt_stationarity" in [c.name for c in verdict.claims if c.status is Status.FAILS]

    @pytest.fixture
    def spread_run(self):
        from marginflow.theorems import Subject
        from marginflow.theorems.phuong2021 import full_width, two_neurons

        net, theta = full_width(two_neurons(Subject(mf.TwoLayer(2), SPANNING)), [1, 2, 0], [0, 0, 3])

        def make(gamma):
            history = {"log_time": np.arange(1.0 if gamma is None else len(gamma))}
            if gamma is not None:
                history["smoothed_margin"] = np.array(gamma)
            return limit_run(net, theta, SPANNING, history=history)

        return make


class TestMaennel2018:
    def test_fates_from_the_initial_directions(self):
        net = mf.TwoLayer(40)
        theta = mf.inits.balanced(net, 2, 1e-3, key=0)
        verdict = only(limit_run(net, theta, SPANNING, theta0=theta), "maennel2018.lemma1")
        assert verdict.status is Status.HOLDS, verdict

    def test_vanishing_neurons_agree_with_the_lemma(self):
        """They end at strict maxima of s·G with s·G < 0: extremal by definition, and counted."""
        rng = np.random.default_rng(4)
        data = mf.Dataset(rng.standard_normal((12, 3)), np.where(np.arange(12) % 2, 1, -1), "random")
        net = mf.TwoLayer(60)
        theta = mf.inits.balanced(net, 3, 1e-3, key=0)
        verdict = only(limit_run(net, theta, data, theta0=theta), "maennel2018.lemma1")
        assert verdict.status is Status.HOLDS, verdict
        claims = {c.name: c for c in verdict.claims}
        assert " 0 vanishing" not in claims["extremal_or_dead"].note
        assert claims["vanishing_are_pinned"].measured == 0

    def test_unbalanced_is_vacuous(self):
        net = mf.TwoLayer(5)
        theta = mf.inits.balanced(net, 2, 1e-3, key=0)
        theta["a"] = 2 * theta["a"]
        assert (
            only(limit_run(net, theta, SPANNING, theta0=theta), "maennel2018.lemma1").status is Status.VACUOUS
        )

    def test_weights_alone_are_undecided(self):
        net = mf.TwoLayer(5)
        theta = mf.inits.balanced(net, 2, 1e-3, key=0)
        assert only(net, "maennel2018.lemma1", theta, SPANNING).status is Status.UNDECIDED
