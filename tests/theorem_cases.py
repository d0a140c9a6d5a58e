"""The one table of verdicts: for every theorem a case that holds, each assumption broken in turn, planted falsehoods,
and a solver that was starved.

A case is `Evidence`, built by hand or by the convex problems, never by a trainer. A planted falsehood is either false
weights or a false prediction (`change`); it names the claim that must give it away. `never_broken` lists assumptions
that cannot be seen to fail, with the reason: they hold, or stay open.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from test_theorems import SPANNING, limit_run
from test_theorems_baselines import rank_one
from test_theorems_chizat2020 import problem
from test_theorems_frei2022 import descend, nearly_orthogonal, predicted_limit

import marginflow as mf
from marginflow._core.status import Outcome
from marginflow.flows.rates import rate_run
from marginflow.runs import Events, Run
from marginflow.theorems import Evidence, Subject
from marginflow.theorems.chizat2020 import classifier
from marginflow.theorems.phuong2021 import full_width, two_neurons

Make = Callable[[], Evidence]
Change = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class TheoremCase:
    theorem: str
    holds: Make
    broken: Mapping[str, Make]  # assumption -> evidence that breaks it
    planted: Mapping[
        str, Make | Change
    ]  # claim -> false weights, or values that the prediction is changed to
    starved: Make  # a solver stopped early, or nothing to read the answer from
    never_broken: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.theorem


def judged(run: Run) -> Evidence:
    return Evidence(run.net, run.theta, run.data, run)


# Both classes near three directions of an orthant; three support examples of either class span R^3.
POSITIVE = [[1, 0.2, 0.3], [0.3, 1.1, 0.2], [0.2, 0.25, 0.9], [1.2, 1.1, 1.3]]
NEGATIVE = [[-1, -0.3, -0.2], [-0.25, -1, -0.35], [-0.3, -0.2, -1.05], [-1.3, -1.1, -1.25]]
SOLID = mf.Dataset(np.array([*POSITIVE, *NEGATIVE]), np.repeat([1, -1], 4), "solid")
WIDE = mf.Dataset(np.array([[1.0, 0.1], [-0.1, 1.0], [-1, -0.2], [0.1, -1]]), [1, 1, -1, -1], "wide")
# The last row is twice the third: two points on a line through 0, and no support example.
ON_A_LINE = mf.Dataset(np.r_[SPANNING.X, 2 * SPANNING.X[2:3]], np.r_[SPANNING.y, 1], "on a line")
CROSS = mf.Dataset(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]), [1, 1, -1, -1], "cross")
ONE_RAY = mf.Dataset(np.array([[1.0, 0.5], [2.0, 1.0], [-1, 0.2]]), [1, -1, -1], "one ray")


def two(data=SPANNING, spread=((1, 2, 0, 0), (0, 0, 3, 1)), **options) -> Evidence:
    """The limit Theorem 1 predicts, spread over neurons."""
    net, theta = full_width(two_neurons(Subject(mf.TwoLayer(2), data)), *spread)
    change = options.pop("change", None)
    theta = theta if change is None else change(theta)
    return judged(limit_run(net, theta, data, **options))


def changed(evidence: Evidence, **parts) -> Evidence:
    """The same evidence with something it computed replaced: a solver that was stopped early."""
    evidence.__dict__.update(parts)
    return evidence


def stopped(evidence: Evidence, name: str, factor: float = 1.01) -> Evidence:
    """A margin problem whose solver stopped short: no certificate, and a vector that is off."""
    margin = getattr(evidence, name)
    vector = None if margin.vector is None else factor * margin.vector
    short = dataclasses.replace(margin, certified=False, outcome=Outcome.MAX_STEPS, vector=vector)
    return changed(evidence, **{name: short})


def events(*rows) -> Events:
    neuron, example, kind = zip(*rows, strict=True) if rows else ((), (), ())
    return Events(
        np.array(neuron, int), np.array(example, int), np.array(kind, "U9"), np.arange(float(len(rows)))
    )


def third_direction(theta):
    return {**theta, "W": theta["W"] + 1e-4 * np.eye(len(theta["W"]))[:, :3]}


def dead() -> Evidence:
    """Inputs in a plane of R^3 and one neuron across it."""
    data = mf.Dataset(np.c_[SPANNING.X, np.zeros(SPANNING.n)], SPANNING.y, "a plane in space")
    return judged(limit_run(mf.TwoLayer(1), {"W": np.array([[0, 0, 1.0]]), "a": np.ones(1)}, data))


def early(data=SPANNING, W=None, a=None, method="flow", loss="logistic", fates=None) -> Evidence:
    """Initial weights alone matter to Lemma 1; `fates` replaces what became of them."""
    theta = mf.inits.balanced(mf.TwoLayer(12), data.d, 1e-3, key=0)
    if W is not None:
        theta = {"W": np.atleast_2d(W), "a": np.linalg.norm(np.atleast_2d(W), axis=1)}
    if a is not None:
        theta["a"] = a * theta["a"]
    evidence = judged(
        limit_run(mf.TwoLayer(len(theta["a"])), theta, data, theta0=theta, method=method, loss=loss)
    )
    if fates is not None:
        found = mf.basins(data, theta["W"], sign=np.sign(theta["a"]).astype(int))
        evidence.once("fates", lambda: dataclasses.replace(found, fate=np.full(len(found.fate), fates)))
    return evidence


def saddle() -> Evidence:
    """On for one negative example alone, orthogonal to the other: moved a little, it turns towards both or away."""
    data = mf.Dataset(np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]), [1, -1, -1], "axes")
    return early(data, np.array([0, 0, 1.0]), a=-1)


def linear(change=0.0, data=SPANNING, **options) -> Evidence:
    c, s = np.cos(change), np.sin(change)
    w = (
        np.array([1.0, 0.0])
        if data is CROSS
        else mf.margins.linear(data).vector @ np.array([[c, s], [-s, c]])
    )
    return judged(limit_run(mf.nets.Linear(), {"w": w}, data, **options))


def with_options(evidence: Evidence, **options) -> Evidence:
    run = dataclasses.replace(
        evidence.run, options={**evidence.run.options, **options}, loss_reduction="mean"
    )
    return judged(run)


DEEP = mf.nets.DeepLinear(3, 4)


def deep(data=SPANNING, change=None, **options) -> Evidence:
    w = np.array([1.0, 0.0]) if data is CROSS else mf.margins.linear(data).vector
    theta = rank_one(DEEP, w / np.linalg.norm(w))
    if change is not None:
        change(theta, w / np.linalg.norm(w))
    return judged(limit_run(DEEP, theta, data, **options))


def second_direction(theta, w):
    theta["W1"][1] = 0.01 * np.array([-w[1], w[0]])


def longer_layer(theta, w):
    theta["W3"] *= 1.01


def turned_layer(theta, w):
    theta["W2"][0, 1] = 0.1


def homogeneous(gamma=(0.1, 0.3, 0.5), **options) -> Evidence:
    history = {"log_time": np.arange(float(len(gamma))), "smoothed_margin": np.array(gamma)}
    return two(history=history, **options)


def misclassified() -> Evidence:
    return two(change=lambda theta: {**theta, "a": -theta["a"]})


def stalled() -> Evidence:
    evidence = homogeneous()
    return changed(evidence, kkt=dataclasses.replace(evidence.kkt, outcome=Outcome.STALLED, stationarity=0.1))


def leaky(data=None, change=None, **parts) -> Evidence:
    data = nearly_orthogonal() if data is None else data
    net, theta = predicted_limit(data, 5, 5)
    evidence = judged(limit_run(net, theta if change is None else change(theta), data, init="signs"))
    return changed(evidence, **parts)


def starved_leaky() -> Evidence:
    from marginflow.theorems.frei2022 import rank_two

    evidence = leaky()
    short = rank_two(evidence, 5, 5)
    values = {**short.values, "v": 1.1 * short["v"]}
    evidence.once(("leaky", 5, 5), lambda: dataclasses.replace(short, certified=False, values=values))
    return evidence


ORTHONORMAL = mf.Dataset(np.eye(6, 20), np.where(np.arange(6) % 2 == 0, 1, -1), "orthonormal")


def descent(data=ORTHONORMAL, theta=None, **parts) -> Evidence:
    run = descend(data, 10, 300)
    options = {**run.options, **parts.pop("options", {})}
    run = dataclasses.replace(run, options=options, **parts)
    return judged(run if theta is None else dataclasses.replace(run, theta=theta(run.theta)))


def variation(data=SPANNING, activation="srelu", train="input", **options) -> Evidence:
    net, theta = classifier(mf.margins.f1(data, activation=activation))
    if train != net.train:
        net = mf.TwoLayer(net.width, activation=activation, train=train)
    return judged(limit_run(net, theta, data, **({"init": "gaussian"} | options)))


def bounds(evidence: Evidence, **change) -> Evidence:
    return changed(
        evidence, f1=dataclasses.replace(evidence.f1, **change(evidence.f1) if callable(change) else change)
    )


def kernel(data=None, noise=0.0, spread=0.0, **options) -> Evidence:
    """The finite-width maximiser over directions drawn on the sphere."""
    data = problem(0) if data is None else data
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4000, data.d))
    W *= np.exp(spread * rng.standard_normal((4000, 1))) / np.linalg.norm(W, axis=1, keepdims=True)
    Z = data.y[:, None] * np.maximum(data.X @ W.T, 0)
    a = Z.T @ mf.margins.f2_finite(Z).dual
    a = a * (1 + noise * np.random.default_rng(1).standard_normal(len(a)))
    net = mf.TwoLayer(len(a), train="output", mean_field=True)
    return judged(limit_run(net, {"W": W, "a": a}, data, **({"init": "sphere"} | options)))


def rate(kind, data=None, **history) -> Evidence:
    net = mf.TwoLayer(64, train="output" if kind == "output" else "both")
    theta = mf.inits.balanced(net, 3 if data is None else data.d, 1.0, key=0)
    if data is ONE_RAY:  # every unit on for the two rows that contradict each other
        theta = {k: np.abs(v) for k, v in theta.items()}
    data = problem(0) if data is None else data
    run = rate_run(net, theta, data, kind=kind, steps=20_000)
    return judged(
        dataclasses.replace(run, history={**run.history, **{k: f(run.history) for k, f in history.items()}})
    )


def starved_rate(kind) -> Evidence:
    from marginflow.theorems import theorem

    evidence = rate(kind)
    claimed = theorem(f"chizat2020.rate_{kind}")
    Z, finite = claimed.finite(evidence)
    evidence.once(claimed.key, lambda: (Z, dataclasses.replace(finite, lower_bound=0.0, certified=False)))
    return evidence


THEOREM_CASES = [
    TheoremCase(
        "soudry2018",
        linear,
        {
            "linear_separability": lambda: linear(data=CROSS),
            "small_step": lambda: with_options(linear(method="gd"), lr=1e3),
        },
        {
            "direction": lambda: linear(change=0.01),
            "normalised_margin": lambda v: {"normalised_margin": 1.01 * v["normalised_margin"]},
        },
        lambda: stopped(linear(), "linear_margin"),
    ),
    TheoremCase(
        "ji2019",
        deep,
        {
            "linear_separability": lambda: deep(data=CROSS),
            "gradient_flow": lambda: deep(method="sgd"),
        },
        {
            "rank_one": lambda: deep(change=second_direction),
            "alignment": lambda: deep(change=turned_layer),
            "equal_norms": lambda: deep(change=longer_layer),
            "direction": lambda v: {"w_max": v["w_max"] @ np.array([[1, 0.01], [-0.01, 1]])},
            "first_layer": lambda v: {"w_max": v["w_max"] @ np.array([[1, 0.01], [-0.01, 1]])},
        },
        lambda: stopped(deep(), "linear_margin"),
        {"initial_loss": "a start above the loss at 0 may still come below it later"},
    ),
    TheoremCase(
        "lyu2020",
        homogeneous,
        {"separation": misclassified, "gradient_flow": lambda: homogeneous(method="sgd")},
        {
            "margin_monotone": lambda: homogeneous((0.1, 0.5, 0.4)),
            "kkt_stationarity": lambda: homogeneous(change=lambda t: {**t, "W": t["W"] + 0.02}),
            "kkt_alignment": lambda: homogeneous(change=lambda t: {**t, "W": t["W"] + 0.02}),
        },
        stalled,
        {"homogeneity": "the theorem is silent about nets that are not homogeneous"},
    ),
    TheoremCase(
        "maennel2018.lemma1",
        early,
        {
            "general_position": lambda: early(ON_A_LINE),
            "gradient_flow": lambda: early(method="gd"),
            "bounded_slope": lambda: early(loss="exponential"),
            "balanced": lambda: early(a=2),
            "generic_directions": saddle,
        },
        {
            "vanishing_are_pinned": lambda: early(fates="vanishing"),
        },
        lambda: early(fates="undecided"),
    ),
    TheoremCase(
        "phuong2021.theorem1",
        two,
        {
            "orthogonal_separability": lambda: two(WIDE),
            "support_span": lambda: two(mf.data.phuong2021(n=60, d=20, seed=1)),
            "general_position": lambda: two(ON_A_LINE),
            "gradient_flow": lambda: two(method="sgd"),
            "bounded_slope": lambda: two(loss="exponential"),
            "balanced": lambda: two(theta0={"W": np.ones((4, 2)), "a": np.ones(4)}),
            "survivors": dead,
        },
        {
            "normalised_margin": lambda v: {"normalised_margin": 1.01 * v["normalised_margin"]},
            "positive_norm": lambda v: {"u_norm": v["z_norm"], "z_norm": v["u_norm"]},
            "negative_norm": lambda v: {"u_norm": v["z_norm"], "z_norm": v["u_norm"]},
            "positive_constant": lambda v: {"u_constant": 1.01 * v["u_constant"]},
            "negative_constant": lambda v: {"z_constant": 0.99 * v["z_constant"]},
            "neurons_align": lambda v: {"w_plus": v["w_plus"] @ np.array([[1, 0.01], [-0.01, 1]])},
            "output_weights": lambda: two(change=lambda t: {**t, "a": t["a"] * (1 + 0.01 * np.arange(4))}),
            "rank_two": lambda: two(SOLID, change=third_direction),
        },
        lambda: stopped(two(), "positive_margin"),
        {"absorbed": "a neuron outside its sector may still reach it"},
    ),
    TheoremCase(
        "phuong2021.lemma2",
        two,
        {"orthogonal_separability": lambda: two(WIDE)},
        {
            "positive_directions": lambda v: {"positive_count": 2},
            "negative_directions": lambda v: {"negative_count": 0},
            "positive_sector": lambda v: {"positive_sector": v["negative_sector"]},
            "negative_sector": lambda v: {"negative_sector": -v["negative_sector"]},
        },
        lambda: two(cloudy()),
    ),
    TheoremCase(
        "phuong2021.lemma3",
        lambda: two(events=events()),
        {
            "orthogonal_separability": lambda: two(WIDE, events=events()),
            "gradient_flow": lambda: two(method="gd", events=events()),
        },
        {"escapes": lambda: two(events=events((0, 3, "cross_on"), (0, 3, "cross_off")))},
        two,
    ),
    TheoremCase(
        "phuong2021.lemmaC1",
        two,
        {"orthogonal_separability": lambda: two(WIDE)},
        {
            "multipliers": lambda v: {"multipliers": 1.01 * v["multipliers"]},
            "stationarity": lambda: two(
                change=lambda t: {**t, "W": t["W"] * (1 + 0.01 * np.arange(4))[:, None]}
            ),
        },
        lambda: stopped(two(), "negative_margin"),
    ),
    TheoremCase(
        "frei2022.flow",
        leaky,
        {
            "near_orthogonality": lambda: leaky(mf.data.gaussian_mixture(n=20, d=2000, mean=0, seed=0)),
            "fixed_output": lambda: leaky(change=lambda t: {**t, "a": 2 * t["a"]}),
            "kkt_point": lambda: leaky(
                change=lambda t: {**t, "W": t["W"] * np.linspace(1, 1.01, 10)[:, None]}
            ),
        },
        {
            "convex_problem": lambda v: {"v": 1.01 * v["v"]},
            "global_optimum": lambda v: {"v": 1.01 * v["v"], "u": 1.01 * v["u"]},
            "z_norm": lambda v: {"z_bound": 0.5 * v["z_bound"]},
        },
        starved_leaky,
    ),
    TheoremCase(
        "frei2022.descent",
        descent,
        {
            "near_orthogonality": lambda: descent(nearly_orthogonal(n=6, d=20, size=0.1)),
            "fixed_output": lambda: descent(theta=lambda t: {**t, "a": 2 * t["a"]}),
            "gradient_descent": lambda: descent(method="sgd"),
            "logistic_loss": lambda: descent(loss="exponential"),
            "step_size": lambda: descent(options={"lr": 1.0}),
            "initial_scale": lambda: descent(theta0={"W": 1e-3 * np.ones((10, 20)), "a": np.ones(10)}),
        },
        {
            "stable_rank_now": lambda: descent(
                theta=lambda t: {**t, "W": np.random.default_rng(0).standard_normal(t["W"].shape)}
            ),
            "stable_rank_always": lambda v: {"leak": 1.01},
            "loss_rate": lambda v: {"rate_constant": 1e-9 * v["rate_constant"]},
        },
        lambda: Evidence(*(lambda e: (e.net, e.theta, e.data))(descent())),
    ),
    TheoremCase(
        "chizat2020.f1",
        variation,
        {
            "two_homogeneous": lambda: variation(train="both"),
            "smooth_feature": lambda: variation(activation="relu", train="both"),
            "independent_features": lambda: variation(ON_A_LINE),
            "gradient_flow": lambda: variation(method="sgd"),
            "full_support": lambda: variation(activation="relu", train="both", init="balanced"),
        },
        {"below_gamma1": lambda v: {"upper_bound": 0.99 * v["upper_bound"]}},
        lambda: (
            lambda e: changed(
                e,
                f1=dataclasses.replace(
                    e.f1, upper_bound=None, lower_bound=1.1 * e.f1.lower_bound, certified=False
                ),
            )
        )(variation()),
        {"convergence": "whether a run converges is an open question; a limit has"},
    ),
    TheoremCase(
        "chizat2020.f2",
        kernel,
        {
            "kernel_separability": lambda: judged(
                limit_run(
                    mf.TwoLayer(2, train="output", mean_field=True),
                    {"W": np.eye(2), "a": np.ones(2)},
                    ONE_RAY,
                )
            ),
            "plain_descent": lambda: kernel(method="adam"),
        },
        {
            "reaches_finite_gamma2": lambda: kernel(noise=0.1),
        },
        lambda: (lambda e: changed(e, f2=dataclasses.replace(e.f2, certified=False, value=0.5 * e.f2.value)))(
            kernel()
        ),
        {"full_support": "every initialisation of the input layer has directions with a density"},
    ),
    *(
        TheoremCase(
            f"chizat2020.rate_{kind}",
            lambda kind=kind: rate(kind),
            {"finite_separability": lambda kind=kind: rate(kind, ONE_RAY)},
            {
                "above_bound": lambda kind=kind: rate(kind, best_margin=lambda h: h["best_margin"] - 1e6),
                "below_finite_gamma": lambda kind=kind: rate(
                    kind, best_margin=lambda h: h["best_margin"] + 1.0
                ),
            },
            lambda kind=kind: starved_rate(kind),
        )
        for kind in ("both", "output")
    ),
]


def cloudy() -> mf.Dataset:
    """Orthogonally separable, and too large for all extremal directions to be enumerated."""
    return mf.data.phuong2021(n=60, d=10, seed=0)
