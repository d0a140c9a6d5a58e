"""System B: the six items and the collapse of the stable rank, on convex solutions and hand-made descents."""

import dataclasses

import numpy as np
import pytest
from test_theorems import limit_run, only

import marginflow as mf
from marginflow._core.status import Outcome, Status
from marginflow.runs import Run
from marginflow.theorems import Subject, theorem

LEAKY = mf.leaky(0.5)


def nearly_orthogonal(n=10, d=60, size=1e-3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.eye(n, d) + size * rng.standard_normal((n, d)) / np.sqrt(d)
    return mf.Dataset(X, np.where(np.arange(n) % 2 == 0, 1, -1), "nearly orthogonal")


def predicted_limit(data, positive, negative):
    solution = mf.margins.leaky(data, 0.5, positive, negative)
    m = positive + negative
    theta = {
        "W": np.concatenate([np.tile(solution.v, (positive, 1)), np.tile(solution.u, (negative, 1))]),
        "a": np.repeat([1.0, -1.0], [positive, negative]) / np.sqrt(m),
    }
    return mf.TwoLayer(m, activation=LEAKY, train="input"), theta


class TestFlow:
    @pytest.mark.parametrize("split", [(5, 5), (3, 7), (1, 9)])
    def test_holds_where_the_data_are_nearly_orthogonal(self, split):
        net, theta = predicted_limit(nearly_orthogonal(), *split)
        verdict = only(limit_run(net, theta, nearly_orthogonal(), init="signs"), "frei2022.flow")
        assert verdict.status is Status.HOLDS, verdict

    @pytest.mark.parametrize(("split", "bound"), [((50, 50), 4 / 3), ((30, 70), 1.732), ((10, 90), 2.4)])
    def test_vacuous_on_gaussian_data_with_all_six_items_measured(self, split, bound):
        data = mf.data.gaussian_mixture(n=20, d=2000, mean=0, seed=0)
        net, theta = predicted_limit(data, *split)
        verdict = only(limit_run(net, theta, data, init="signs"), "frei2022.flow")
        assert verdict.status is Status.VACUOUS
        assert [a.name for a in verdict.assumptions if a.status is Status.FAILS] == ["near_orthogonality"]
        assert all(c.status is Status.HOLDS for c in verdict.claims), verdict
        z = next(c for c in verdict.claims if c.name == "z_norm")
        assert z.bound == pytest.approx(bound, rel=1e-3)
        assert 1 <= z.measured <= z.bound

    @pytest.mark.parametrize("plant", ["rank", "margins", "scale of one group"])
    def test_planted_false_weights_fail(self, plant):
        data = nearly_orthogonal()
        net, theta = predicted_limit(data, 5, 5)
        W = theta["W"].copy()
        if plant == "rank":
            W[0] += 1e-3 * data.X[0]
        elif plant == "margins":
            W += 1e-3 * np.outer(theta["a"], data.X[0])
        else:
            W[:5] *= 1.01
        verdict = only(limit_run(net, {**theta, "W": W}, data, init="signs"), "frei2022.flow")
        assert any(c.status is Status.FAILS for c in verdict.claims)
        assert verdict.status is not Status.HOLDS

    def test_trained_output_layer_is_another_theorem(self):
        why = theorem("frei2022.flow").covers(Subject(mf.TwoLayer(4, activation=LEAKY), nearly_orthogonal()))
        assert "output layer" in why

    def test_output_weights_of_other_size_are_vacuous(self):
        net, theta = predicted_limit(nearly_orthogonal(), 5, 5)
        verdict = only(limit_run(net, {**theta, "a": 2 * theta["a"]}, nearly_orthogonal()), "frei2022.flow")
        assert "fixed_output" in [a.name for a in verdict.assumptions if a.status is Status.FAILS]

    def test_starved_solver_is_undecided(self, monkeypatch):
        data = nearly_orthogonal()
        net, theta = predicted_limit(data, 5, 5)
        starved = dataclasses.replace(
            mf.margins.leaky(data, 0.5, 5, 5), certified=False, outcome=Outcome.MAX_STEPS
        )
        monkeypatch.setattr(mf.margins, "leaky", lambda *a, **k: starved)
        assert only(limit_run(net, theta, data), "frei2022.flow").status is Status.UNDECIDED


def descend(data, m, steps, sd=1e-9, seed=0):
    """Plain NumPy gradient descent of theory §4: an oracle apart from the library's own trainer."""
    net = mf.TwoLayer(m, activation=mf.smooth_leaky(0.5), train="input")
    prediction = theorem("frei2022.descent").predict(Subject(net, data))
    lr = float(prediction["step_bound"])
    rng = np.random.default_rng(seed)
    a = np.repeat([1.0, -1.0], m // 2) / np.sqrt(m)
    W = W0 = sd * lr * rng.standard_normal((m, data.d))
    rows = {"step": [], "log_time": [], "log_loss": [], "stable_rank": [], "weight_norm": []}
    for k in range(steps + 1):
        z = data.X @ W.T
        q = data.y * (net.activation(z) @ a)
        for name, value in (
            ("step", k),
            ("log_time", np.log(max(k, 1) * lr)),
            ("log_loss", np.log(np.mean(np.logaddexp(0, -q)))),
            ("stable_rank", np.sum(W**2) / np.linalg.norm(W, 2) ** 2),
            ("weight_norm", np.linalg.norm(W)),
        ):
            rows[name].append(value)
        g = data.y / (1 + np.exp(q)) / data.n
        W = W + lr * (a[:, None] * ((net.activation.slope(z, np) * g[:, None]).T @ data.X))
    return Run(
        net,
        data,
        {"W": W0, "a": a},
        {"W": W, "a": a},
        "gd",
        "logistic",
        Outcome.CONVERGED,
        "",
        rows["log_time"][-1],
        rows["log_loss"][-1],
        {k: np.array(v) for k, v in rows.items()},
        {"lr": lr, "init": "signs"},
        "mean",
        steps,
    )


class TestDescent:
    def test_one_step_collapses_the_stable_rank(self):
        run = descend(nearly_orthogonal(size=1e-4), 20, 3)
        verdict = only(run, "frei2022.descent")
        ranks = run.history["stable_rank"]
        assert ranks[0] > 5
        assert ranks[1:].max() < 4.1
        assert {c.name: c.status for c in verdict.claims}["stable_rank_always"] is Status.HOLDS

    @pytest.mark.parametrize("size", [1e-4, 0.3])
    def test_the_derived_bound_is_a_bound(self, size):
        for seed in range(5):
            data = nearly_orthogonal(n=6, d=40, size=size, seed=seed)
            run = descend(data, 10, 2, seed=seed)
            claims = {
                c.name: c
                for c in theorem("frei2022.descent").claims(
                    mf.theorems.Evidence(run.net, run.theta, data, run),
                    theorem("frei2022.descent").predict(Subject(run.net, data)),
                )
            }
            assert claims["stable_rank_now"].status in (Status.HOLDS, Status.UNDECIDED)

    @pytest.mark.parametrize("steps", [2, 200, 2000])
    def test_the_loss_keeps_its_rate_from_the_first_step_on(self, steps):
        """Also where a short run has hardly moved: the slope of log L in log t is then near 0, and refutes nothing."""
        run = descend(nearly_orthogonal(n=6, d=20, size=1e-5), 10, steps)
        verdict = only(run, "frei2022.descent")
        assert verdict.status is Status.HOLDS, verdict
        assert 0 < {c.name: c.measured for c in verdict.claims}["loss_rate"] < 1

    def test_step_too_large_is_vacuous(self):
        run = descend(nearly_orthogonal(size=1e-4), 20, 3)
        verdict = only(dataclasses.replace(run, options={"lr": 2 * run.options["lr"]}), "frei2022.descent")
        assert verdict.status is Status.VACUOUS
        assert "step_size" in [a.name for a in verdict.assumptions if a.status is Status.FAILS]

    def test_weights_of_full_rank_fail_the_bound(self):
        run = descend(nearly_orthogonal(size=1e-4), 20, 3)
        rng = np.random.default_rng(0)
        full = {"W": rng.standard_normal(run.theta["W"].shape), "a": run.theta["a"]}
        claims = only(dataclasses.replace(run, theta=full), "frei2022.descent").claims
        assert next(c for c in claims if c.name == "stable_rank_now").status is Status.FAILS
