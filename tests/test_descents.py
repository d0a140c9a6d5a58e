"""Descents: the step against hand formulas and PyTorch, laws of symmetry and of the margin, divergence, refusals."""

import math

import jax
import numpy as np
import pytest
from cases import having
from descent_oracles import torch_sgd, two_layer_gradient

import marginflow as mf
from marginflow import losses
from marginflow._core.arrays import double
from marginflow._core.errors import InputError
from marginflow._core.status import Outcome
from marginflow.flows import monitors, train
from marginflow.flows.schedules import ChizatOutput, feature_bound
from marginflow.flows.steps import SHORT_ORDER, data_order
from marginflow.nets import DeepLinear, Linear, TwoLayer, inits

DATA = mf.data.phuong2021(n=60, d=5, seed=3)
NET = TwoLayer(12)


def start(net=NET, data=DATA, scale=0.3, key=1, law="gaussian"):
    return inits.init(law, net, data.d, scale, key)


@double
def order(seed, epoch, n, batch, replacement=False):
    return np.asarray(data_order(seed, epoch, n, batch, replacement))


def rows_of(seed, n, batch, epochs):
    """The batches a run with this seed sees, stand-ins dropped."""
    for epoch in range(epochs):
        for rows in order(seed, epoch, n, batch).reshape(-1, batch):
            yield rows[rows < n]


def test_a_gd_step_is_the_hand_formula():
    theta = start()
    gW, ga = two_layer_gradient(theta["W"], theta["a"], DATA.X, DATA.y)
    run = train(NET, theta, DATA, method="gd", lr=0.7, epochs=1)
    np.testing.assert_allclose(run.theta["W"], theta["W"] - 0.7 * gW, rtol=0, atol=1e-14)
    np.testing.assert_allclose(run.theta["a"], theta["a"] - 0.7 * ga, rtol=0, atol=1e-14)
    assert run.steps == 1
    assert run.log_time == pytest.approx(math.log(0.7))


@pytest.mark.parametrize("layers", ["input", "output"])
def test_only_the_chosen_layer_moves(layers):
    net = TwoLayer(12, train=layers)
    theta = start(net)
    run = train(net, theta, DATA, method="gd", epochs=3)
    fixed, moving = ("a", "W") if layers == "input" else ("W", "a")
    np.testing.assert_array_equal(run.theta[fixed], theta[fixed])
    assert np.abs(run.theta[moving] - theta[moving]).max() > 1e-4


def test_a_normalised_step_is_a_gd_step_divided_by_the_loss():
    theta = start()
    L = math.exp(losses.log_total(losses.logistic, DATA.y * NET(theta, DATA.X))) / DATA.n
    normalised = train(NET, theta, DATA, method="ngd", schedule="constant", lr=0.02, epochs=1)
    plain = train(NET, theta, DATA, method="gd", lr=0.02 / L, epochs=1)
    np.testing.assert_allclose(normalised.theta["W"], plain.theta["W"], rtol=0, atol=1e-14)
    assert normalised.log_time == pytest.approx(math.log(0.02 / L))


def test_adam_is_the_published_recursion():
    theta = start()
    run = train(NET, theta, DATA, method="adam", lr=0.01, batch=DATA.n, epochs=4)
    w = {k: v.copy() for k, v in theta.items()}
    m, v = ({k: np.zeros_like(x) for k, x in w.items()} for _ in range(2))
    for t in range(1, 5):
        g = dict(zip(("W", "a"), two_layer_gradient(w["W"], w["a"], DATA.X, DATA.y), strict=True))
        for k in w:
            m[k], v[k] = 0.9 * m[k] + 0.1 * g[k], 0.999 * v[k] + 0.001 * g[k] ** 2
            w[k] -= 0.01 * (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(run.theta["W"], w["W"], rtol=0, atol=1e-11)


@pytest.mark.torch
@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-10), ("single", 1e-5)])
@pytest.mark.parametrize("batch", [20, 17])
def test_sgd_agrees_with_pytorch_from_the_same_weights_and_batches(precision, tolerance, batch):
    theta = start(scale=0.1)
    run = train(NET, theta, DATA, method="sgd", lr=0.1, batch=batch, epochs=15, seed=7, precision=precision)
    want = torch_sgd(theta, DATA.X, DATA.y, rows_of(7, DATA.n, batch, 15), 0.1, precision)
    for name, w in want.items():
        np.testing.assert_allclose(run.theta[name], w, rtol=0, atol=tolerance)
    assert run.theta["W"].dtype == {"double": np.float64, "single": np.float32}[precision]


@pytest.mark.parametrize(("n", "batch"), [(10, 5), (11, 4), (500, 50), (SHORT_ORDER + 3, 100)])
def test_an_epoch_sees_every_row_once(n, batch):
    rows = order(3, 2, n, batch)
    assert len(rows) == -(-n // batch) * batch
    assert sorted(rows[rows < n]) == list(range(n))
    assert not np.array_equal(rows, order(3, 3, n, batch))
    assert not np.array_equal(rows, order(4, 2, n, batch))


@double
def many_orders(n, count):
    return np.asarray(jax.jit(jax.vmap(lambda e: data_order(0, e, n, n)))(np.arange(count)))


def test_short_orders_are_uniform_permutations():
    # All 24 orders of 4 rows: a chi-squared statistic with 23 degrees of freedom, whose 1e-6 quantile is 73.
    found = many_orders(4, 24_000)
    counts = np.unique(found @ 4 ** np.arange(4), return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < 73


def test_with_replacement_rows_repeat():
    assert len(set(order(0, 0, 500, 50, replacement=True))) < 400  # 500 draws: 316 distinct expected, sd 7


def test_negated_labels_and_output_weights_give_negated_output_weights():
    theta = start()
    flipped = mf.Dataset(DATA.X, -DATA.y)
    one = train(NET, theta, DATA, method="sgd", batch=20, epochs=10)
    two = train(NET, {"W": theta["W"], "a": -theta["a"]}, flipped, method="sgd", batch=20, epochs=10)
    np.testing.assert_allclose(two.theta["W"], one.theta["W"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(two.theta["a"], -one.theta["a"], rtol=0, atol=1e-13)


def test_rotated_data_and_weights_give_rotated_weights():
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((DATA.d, DATA.d)))[0]
    theta = start()
    one = train(NET, theta, DATA, method="gd", epochs=30)
    two = train(
        NET, {"W": theta["W"] @ Q, "a": theta["a"]}, mf.Dataset(DATA.X @ Q, DATA.y), method="gd", epochs=30
    )
    np.testing.assert_allclose(two.theta["W"], one.theta["W"] @ Q, rtol=0, atol=1e-12)


def test_gradient_descent_keeps_balance_to_second_order_in_the_step():
    theta = inits.balanced(NET, DATA.d, scale=0.5, key=0)
    drift = [
        train(NET, theta, DATA, method="gd", lr=lr, epochs=round(1 / lr), monitors=["balance"]).history[
            "balance"
        ][-1]
        for lr in (0.1, 0.05)
    ]
    assert 0 < drift[1] < drift[0]
    assert drift[0] / drift[1] == pytest.approx(2, rel=0.2)  # steps × lr² at equal time


@pytest.mark.parametrize("net", [Linear(), TwoLayer(8), DeepLinear(width=6, depth=3)], ids=str)
@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_normalised_descent_never_loses_smoothed_margin(net, loss):
    data = mf.data.phuong2021(n=30, d=4, seed=1)
    theta = inits.init("gaussian", net, data.d, 0.5, 2)
    run = train(net, theta, data, method="ngd", until="loss=1e-2000", loss=loss, monitors=["smoothed_margin"])
    assert run.outcome is Outcome.CONVERGED
    assert run.log_loss <= -2000 * math.log(10)
    smooth, hard = run.history["smoothed_margin"], run.history["normalised_margin"]
    separated = np.isfinite(smooth)
    assert separated.sum() > 5
    assert (np.diff(smooth[separated]) >= -1e-12 * smooth[-1]).all()
    # γ̃ <= γ <= γ̃ + (log n)/‖θ‖^k: the hard margin can dip by no more than what the smoothing hides.
    room = math.log(data.n) * (hard / run.history["margin_min"])[separated]
    assert (smooth[separated] <= hard[separated] * (1 + 1e-12)).all()
    assert (hard[separated] <= smooth[separated] + room * (1 + 1e-9)).all()
    assert all(np.isfinite(w).all() for w in run.theta.values())


def test_a_loss_of_e_to_the_minus_hundred_thousand_is_an_ordinary_value():
    data = mf.data.phuong2021(n=20, d=3, seed=0)
    run = train(
        Linear(),
        inits.init("gaussian", Linear(), 3, 0.1, 0),
        data,
        method="ngd",
        until="loss=1e-50000",
        monitors=["smoothed_margin"],
    )
    assert run.log_loss < -1e5
    assert run.message.startswith("loss=1e-50000 reached")
    for name in ("log_loss", "margin_min", "normalised_margin"):
        assert np.isfinite(run.history[name]).all()
    assert run.history["normalised_margin"][-1] == pytest.approx(mf.margins.linear(data).value, rel=1e-2)
    # L is e^-margin up to a factor n, and time is what the flow would have taken: log t ~ -log L.
    assert run.log_loss == pytest.approx(-run.history["margin_min"][-1], abs=math.log(data.n))
    assert run.log_time == pytest.approx(-run.log_loss, rel=1e-3)


def test_the_margin_stays_below_the_maximal_one():
    case = next(iter(having("linear_margin")))
    data = case.values[0].data if hasattr(case, "values") else case.data
    run = train(
        Linear(), inits.init("gaussian", Linear(), data.d, 0.1, 0), data, method="ngd", until="loss=1e-300"
    )
    best = mf.margins.linear(data).value
    assert 0.5 * best < run.history["normalised_margin"][-1] <= best * (1 + 1e-12)


@pytest.mark.parametrize(("n", "d"), [(20, 400), (10, 1000)])
@pytest.mark.parametrize("scale", [1e-6, 1e-4])
def test_one_step_of_gd_takes_the_stable_rank_down_and_it_stays_there(n, d, scale):
    # theory §4: smoothed leaky ReLU, a_j = ±1/√m fixed, W nearly 0.
    data = mf.data.gaussian_mixture(n=n, d=d, mean=0, seed=0)
    net = TwoLayer(64, activation="smooth-leaky:0.5", train="input")
    theta = inits.init("signs", net, d, scale, 0)
    rank = train(net, theta, data, method="gd", lr=0.01, epochs=300).history["stable_rank"]
    assert rank[0] > 25  # of order min(m, d)
    assert rank[1] < 5
    assert rank[1:].max() < 5


def test_stable_rank_monitor_is_the_ratio_of_norms():
    run = train(NET, start(), DATA, method="gd", epochs=2)
    s = np.linalg.svd(run.theta["W"], compute_uv=False)
    assert run.history["stable_rank"][-1] == pytest.approx((s**2).sum() / s[0] ** 2, rel=1e-12)


def test_alignment_and_pattern_monitors():
    directions = np.eye(DATA.d)[:2]
    run = train(
        NET,
        start(),
        DATA,
        method="gd",
        epochs=40,
        lr=1.0,
        monitors=[monitors.alignment(3 * directions), "pattern_changes", "margins"],
    )
    W = run.theta["W"]
    want = W[:, :2] / np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(run.history["alignment"][-1], want, atol=1e-14)
    np.testing.assert_allclose(run.history["margins"][-1], DATA.y * NET(run.theta, DATA.X), atol=1e-12)
    moved = (DATA.X @ W.T > 0) != (DATA.X @ run.theta0["W"].T > 0)
    assert run.history["pattern_changes"].sum() >= moved.sum() > 0


def test_records_are_even_in_log_time_and_bounded():
    run = train(NET, start(), DATA, method="gd", epochs=4000)
    late = run.history["log_time"][run.history["step"] > 100]
    assert np.diff(late)[:-1].max() < 1.3 * np.diff(late)[:-1].min()
    assert len(late) > 20
    few = train(NET, start(), DATA, method="gd", epochs=4000, records=16)
    assert len(few.history["step"]) <= 17
    assert few.history["step"][-1] == 4000
    np.testing.assert_array_equal(few.theta["W"], run.theta["W"])


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    one, two, other = (
        train(NET, start(), DATA, method="sgd", batch=10, epochs=5, seed=s).theta["W"] for s in (3, 3, 4)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - other).max() > 1e-6


class Memory:
    """Checkpoints in memory, that can stop the run after the k-th save."""

    def __init__(self):
        self.kept = {}

    def save(self, name, arrays, meta):
        self.kept[name] = ({k: np.array(v) for k, v in arrays.items()}, dict(meta))

    def load(self, name):
        return self.kept.get(name)


def halfway(monkeypatch, **options):
    """Checkpoints of a run interrupted about halfway."""
    from marginflow.flows import driver

    memory = Memory()
    with monkeypatch.context() as patch:
        patch.setattr(driver, "SAVE_SECONDS", -1.0)  # save at every return of the program
        stop = []
        save = memory.save

        def save_until_half(name, arrays, meta):
            if not stop:
                save(name, arrays, meta)
            if meta["step"] >= 60:
                stop.append(meta["step"])

        memory.save = save_until_half
        train(NET, start(), DATA, checkpoints=memory, **options)
    memory.save = save
    assert memory.kept["run"][1]["step"] < 200
    return memory


@pytest.mark.parametrize(
    "options",
    [
        {"method": "sgd", "batch": 17, "epochs": 50, "seed": 5},
        {"method": "ngd", "epochs": 200},
        {"method": "adam", "batch": 20, "epochs": 70},
    ],
    ids=lambda o: o["method"],
)
def test_a_resumed_run_ends_with_the_same_bits(monkeypatch, options):
    memory = halfway(monkeypatch, **options)
    whole = train(NET, start(), DATA, **options)
    resumed = train(NET, start(), DATA, checkpoints=memory, **options)
    assert resumed.steps == whole.steps
    for name in whole.theta:
        np.testing.assert_array_equal(resumed.theta[name], whole.theta[name])
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values)


def test_a_checkpoint_of_another_run_is_refused(monkeypatch):
    memory = halfway(monkeypatch, method="sgd", batch=17, epochs=50)
    with pytest.raises(InputError, match="other options"):
        train(NET, start(), DATA, method="sgd", batch=17, epochs=50, lr=0.2, checkpoints=memory)


def test_divergence_names_the_step_and_keeps_finite_figures():
    run = train(NET, start(), DATA, method="gd", lr=1e9, epochs=100)
    assert run.outcome is Outcome.DIVERGED
    assert f"diverged at step {run.steps}" in run.message
    assert 1 < run.steps < 100
    assert all(np.isfinite(w).all() for w in run.theta.values())
    assert all(
        np.isfinite(run.history[k]).all()
        for k in ("log_loss", "margin_min", "normalised_margin", "stable_rank")
    )
    # one step fewer is still within float range, so the step named is the first that is not
    assert train(NET, start(), DATA, method="gd", lr=1e9, epochs=run.steps - 1).outcome is Outcome.DIVERGED
    assert "passed ten times" in train(NET, start(), DATA, method="gd", lr=1e9, epochs=run.steps - 1).message


def test_the_output_layer_schedule_is_the_one_of_the_proposition():
    net = TwoLayer(6, train="output", mean_field=True)
    theta = {"W": start(net)["W"], "a": np.zeros(6)}
    z = DATA.y[:, None] * np.maximum(DATA.X @ theta["W"].T, 0)
    z_max, m, r, beta = np.abs(z).max(), 6, np.zeros(6), 1.0
    for t in range(25):
        p = np.exp(-(z @ r) / m)
        beta = max(beta, math.sqrt(m) * np.linalg.norm(r / m))
        eta = beta * math.sqrt(2) / (z_max * math.sqrt(t + 1))
        r = r + eta * m * (z.T @ (p / p.sum())) / m
    run = train(
        net, theta, DATA, method="ngd", schedule="chizat2020.output", loss="exponential", lr=m, epochs=25
    )
    np.testing.assert_allclose(run.theta["a"], r, rtol=1e-11)
    assert feature_bound(net, theta, DATA) == pytest.approx(z_max)
    assert run.options["schedule"] == ChizatOutput.name


def test_the_inverse_square_root_schedule():
    theta = start()
    run = train(NET, theta, DATA, method="gd", schedule="inverse-sqrt", lr=0.3, epochs=9)
    assert run.log_time == pytest.approx(math.log(0.3 * sum(k**-0.5 for k in range(1, 10))))


def test_targets_end_a_run_where_they_say():
    run = train(NET, start(), DATA, method="gd", lr=0.5, until="log-time=4")
    assert math.exp(4) <= 0.5 * run.steps < math.exp(4) + 0.5
    sgd = train(NET, start(), DATA, method="sgd", until="loss=0.05", epochs=2000)
    assert sgd.log_loss <= math.log(0.05)
    assert sgd.outcome is Outcome.CONVERGED
    short = train(NET, start(), DATA, method="gd", until="loss=1e-9", epochs=5)
    assert short.outcome is Outcome.MAX_STEPS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "sdg"}, "did you mean 'sgd'"),
        ({"method": "gd", "lr": -1.0}, "lr -1"),
        ({"method": "gd", "lr": float("nan")}, "lr nan"),
        ({"method": "sgd", "batch": 61}, "larger than the 60"),
        ({"method": "sgd", "batch": 0}, "batch 0"),
        ({"method": "gd", "batch": 10}, "leave batch out"),
        ({"method": "gd", "epochs": 0}, "epochs 0"),
        ({"method": "gd", "until": "frozen"}, "belong to method flow"),
        ({"method": "gd", "until": "loss=-3"}, "positive"),
        ({"method": "gd", "schedule": "adaptive"}, "defined for ngd"),
        ({"method": "gd", "schedule": "cosine"}, "unknown schedule"),
        ({"method": "gd", "monitors": ["margn"]}, "monitor"),
        ({"method": "gd", "precision": "half"}, "precision"),
        ({"method": "gd", "loss": "hinge"}, "loss"),
        ({"method": "gd", "records": 2}, "records 2"),
    ],
)
def test_refusals_say_what_and_what_to_do(options, says):
    with pytest.raises(InputError, match=says):
        train(NET, start(), DATA, **options)


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="shape"):
        train(NET, {**start(), "a": np.ones(3)}, DATA, method="gd")
    with pytest.raises(InputError, match="tensor 'a' is nan"):
        train(NET, {**start(), "a": np.full(12, np.nan)}, DATA, method="gd")
