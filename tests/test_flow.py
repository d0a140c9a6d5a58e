"""Gradient flow: laws along runs, agreement of engines and of small-step descent, the limit, refusals."""

import functools
import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import marginflow as mf
from marginflow import losses
from marginflow._core.status import Outcome
from marginflow.flows import collapsed, coupled, events, late_phase, piecewise
from marginflow.flows.gradient_flow import flow, settled, target

NORM = np.linalg.norm


@functools.cache
def cone(n=60, d=5, width=20, until="limit", seed=0, scale=1e-3):
    data = mf.data.phuong2021(n=n, d=d, seed=seed)
    net = mf.TwoLayer(width=width)
    return flow(net, mf.inits.balanced(net, d, scale=scale, key=seed), data, until=until)


def generic(d, n, width, seed=0, scale=0.05):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[:2] = 1, -1
    net = mf.TwoLayer(width=width)
    return net, mf.inits.balanced(net, d, scale=scale, key=seed), mf.Dataset(X, y)


def descend(theta, data, time, steps):
    """Gradient descent with a tiny step, written from the definition."""
    W, a, h = theta["W"].copy(), theta["a"].copy(), time / steps
    for _ in range(steps):
        U = W @ data.X.T
        on = U > 0
        c = data.y / (1 + np.exp(data.y * (a @ (U * on))))
        W, a = W + h * a[:, None] * ((on * c) @ data.X), a + h * ((U * on) @ c)
    return W, a


def test_limit_is_two_max_margin_rays():
    run = cone()
    w = {1: mf.margins.positive(run.data).vector, -1: mf.margins.negative(run.data).vector}
    W, a = run.theta["W"], run.theta["a"]
    for s, axis in w.items():
        rows = np.flatnonzero(np.sign(a) == s)
        unit = W[rows] / NORM(W[rows], axis=1, keepdims=True)
        assert len(rows)
        assert NORM(unit - axis / NORM(axis), axis=1).max() < 1e-9
    assert NORM(np.append(W, a)) == pytest.approx(1, abs=1e-12)
    margin = np.min(run.data.y * run.net(run.theta, run.data.X))
    assert margin == pytest.approx(1 / (2 * (NORM(w[1]) + NORM(w[-1]))), abs=1e-9)
    assert run.outcome is Outcome.CONVERGED
    assert run.extra["frozen"] == "certified"


def test_integrated_flow_tends_to_the_limit_map():
    limit, run = cone(), cone(until="log-time=1e9")
    assert run.log_time == pytest.approx(1e9, rel=1e-6)
    assert run.history["normalised_margin"][-1] == pytest.approx(limit.limit.normalised_margin, rel=1e-7)
    # the spread over neurons, predicted at log t = 1e4, is that found at 1e9
    scale = NORM(np.append(run.theta["W"], run.theta["a"]))
    assert np.abs(run.theta["a"] / scale - limit.theta["a"]).max() < 1e-6


@pytest.mark.parametrize("name", ["angle_positive", "angle_negative"])
def test_angle_falls_like_one_over_root_log_time(name):
    history = cone(until="log-time=1e9").history
    late = history["log_time"] > 1e4
    slope = np.polyfit(np.log(history["log_time"][late]), np.log(history[name][late]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.03)


def test_laws_along_a_run():
    run = cone(until="log-time=1e9")
    assert run.history["balance"].max() < 1e-8
    assert np.array_equal(np.sign(run.theta["a"]), np.sign(run.theta0["a"]))
    separated = run.history["log_loss"] < math.log(math.log(2))
    # ℓ⁻¹(L)/‖θ‖² is Lyu & Li's smoothed margin; ℓ⁻¹(L) = -log(e^L - 1)
    L = run.history["log_loss"][separated]
    inverse = -L - 0.5 * np.exp(L)
    smooth = inverse / run.history["norm_squared"][separated]
    deep = L < -10
    assert separated.sum() > 20
    assert (np.diff(smooth[deep]) >= -1e-9 * smooth[deep][1:]).all()
    assert (np.diff(run.history["log_loss"]) <= 1e-12).all()


def test_forms_of_a_frozen_group_are_conserved():
    run, start = cone(until="log-time=1e5"), cone(until="frozen")
    for s in (1, -1):
        rows = np.sign(start.theta["a"]) == s

        def form(r, rows=rows):
            W, a = r.theta["W"][rows], r.theta["a"][rows]
            return W @ W.T - np.outer(a, a)

        size = (run.theta["a"][rows] ** 2).sum()
        assert np.abs(form(run) - form(start)).max() < 1e-9 * size


def test_lemma_b1_along_the_flow():
    """a_j y_k > 0 and w_jᵀx_k > 0 at the start: neuron j never turns off on x_k."""
    run = cone()
    for j, k, kind in zip(run.events.neuron, run.events.example, run.events.kind, strict=True):
        if kind == "cross_off":
            assert run.theta0["a"][j] * run.data.y[k] < 0


@pytest.mark.parametrize(("d", "n", "width"), [(2, 6, 8), (3, 12, 12), (10, 20, 10)])
def test_exact_events_agree_with_small_step_descent(d, n, width):
    net, theta, data = generic(d, n, width)
    run = flow(net, theta, data, until=("log_time", 0.0), rtol=1e-9)
    errors = []
    for steps in (2000, 16000):
        W, a = descend(theta, data, 1.0, steps)
        errors.append(max(np.abs(W - run.theta["W"]).max(), np.abs(a - run.theta["a"]).max()))
    # descent has an error of order h and nothing else keeps the two apart
    assert errors[1] < 3e-4
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize(("d", "seed"), [(5, 0), (10, 1)])
def test_limit_on_cones_that_are_not_of_the_family(d, seed):
    """Narrow cones about two opposed random axes, classes of unequal size and scale."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=d)
    axis /= NORM(axis)
    y = np.where(rng.random(30) < 0.3, 1.0, -1.0)
    y[:2] = 1, -1
    tilt = rng.normal(size=(30, d))
    tilt -= np.outer(tilt @ axis, axis)
    X = (y[:, None] * axis + 0.6 * tilt / NORM(tilt, axis=1, keepdims=True)) * rng.uniform(0.2, 3, (30, 1))
    data, net = mf.Dataset(X, y), mf.TwoLayer(width=12)
    found = mf.check(data, conditions=["orthogonal_separability"])
    assert found.conditions["orthogonal_separability"].status == "holds"
    run = flow(net, mf.inits.balanced(net, d, scale=1e-3, key=seed), data)
    w = {1: mf.margins.positive(data).vector, -1: mf.margins.negative(data).vector}
    assert run.extra["frozen"] == "certified"
    assert run.limit.normalised_margin == pytest.approx(1 / (2 * (NORM(w[1]) + NORM(w[-1]))), rel=1e-9)
    assert run.limit.certificate["spread_error"] < 1e-3
    # Lemma 3, replayed from the events: once in its sector a neuron is never on for the other class, nor off its own
    pattern, home = run.extra["pattern0"].copy(), np.zeros(net.width, bool)
    turned = {"cross_on": 1, "cross_off": -1, "enter": 0}
    for j, k, kind in zip(run.events.neuron, run.events.example, run.events.kind, strict=True):
        assert not home[j] or (kind in ("enter", "leave") and run.theta0["a"][j] * y[k] < 0)
        pattern[j, k] = turned.get(str(kind), pattern[j, k])
        own = run.theta0["a"][j] * y > 0
        home[j] = bool((pattern[j, own] == 1).all() and (pattern[j, ~own] <= 0).all())


def test_sliding_is_present_in_generic_data():
    seen = set()
    for seed in range(3):
        net, theta, data = generic(2, 6, 8, seed)
        run = flow(net, theta, data, until=("log_time", 1.0))
        seen |= set(run.events.kind)
        assert (np.diff(run.events.log_time) >= 0).all()
    assert "enter" in seen


def test_halving_the_tolerance_changes_nothing_visible():
    net, theta, data = generic(3, 12, 12)
    coarse, fine = (flow(net, theta, data, until=("log_time", 1.0), rtol=t) for t in (1e-7, 1e-10))
    assert np.abs(coarse.theta["W"] - fine.theta["W"]).max() < 1e-5


def test_label_flip_and_rotation():
    net, theta, data = generic(3, 10, 8)
    here = flow(net, theta, data, until=("log_time", 0.5))
    flipped = flow(net, {"W": theta["W"], "a": -theta["a"]}, mf.Dataset(data.X, -data.y), until=("log_time", 0.5))
    assert np.array_equal(here.theta["W"], flipped.theta["W"])
    assert np.array_equal(here.theta["a"], -flipped.theta["a"])
    R = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    turned = flow(net, {"W": theta["W"] @ R, "a": theta["a"]}, mf.Dataset(data.X @ R, data.y), until=("log_time", 0.5))
    assert np.abs(turned.theta["W"] - here.theta["W"] @ R).max() < 1e-9


def one(X, y, w, a, until=("log_time", 0.0)):
    data = mf.Dataset(np.array(X, float), np.array(y, float))
    return flow(mf.TwoLayer(width=1), {"W": np.array([w], float), "a": np.array([a], float)}, data, until=until)


def kinds(run):
    return list(run.events.kind)


def test_crossing():
    # drawn along e1 through the hyperplane of (1, -1), an example of its own sign
    run = one([[1, 0], [1, -1], [-1, 0]], [1, 1, -1], [0.1, 0.3], math.hypot(0.1, 0.3), ("log_time", 1.0))
    assert kinds(run) == ["cross_on"]


def test_entering_and_sliding():
    # pulled to (1, 0) and pushed back by the stronger opposed example (-0.2, 1): it stays on that hyperplane
    run = one([[1, 0.5], [-0.2, 1]], [1, -1], [0.3, 0.3], math.hypot(0.3, 0.3), ("log_time", 1.0))
    assert kinds(run)[0] == "enter"
    assert abs(run.theta["W"][0] @ run.data.X[1]) < 1e-12


def test_two_hyperplanes_at_once():
    """Drawn by (1, 1, 2) and symmetric in the first two coordinates: both opposed examples hold it from one instant.

    Alone either would let it pass (x_1ᵀx_2 = 2.925 > ‖x_2‖² = 1.762), together they do not (2.925 < 3.486): rounding
    may see one crossed before the other holds.
    """
    X = np.array([[1, 1, 2], [0.26, 0.065, 1.3], [0.065, 0.26, 1.3]])
    w = 0.1 * np.array([1, 1, -0.6])
    run = one(X, [1, -1, -1], w, NORM(w), ("log_time", 1.0))
    last = dict(zip(run.events.example.tolist(), run.events.kind.tolist(), strict=True))
    assert last == {1: "enter", 2: "enter"}
    assert np.ptp(run.events.log_time) < 1e-8
    assert np.array_equal(run.extra["pattern"], [[1, 0, 0]])
    assert np.abs(X[1:] @ run.theta["W"][0]).max() < 1e-12


def test_leaving_to_the_off_side():
    """λ = c_1 x_1ᵀx_2/(|c_2| ‖x_2‖²) falls to the leak as example 1 is learnt, while q_2 = 0 on the hyperplane."""
    X, w = np.array([[1, 0.5], [-0.2, 1]]), np.array([0.3, 0.3])
    data, net, theta = mf.Dataset(X, np.array([1.0, -1])), mf.TwoLayer(width=1, activation="leaky:0.2"), None
    theta = {"W": w[None], "a": np.array([NORM(w)])}
    run = flow(net, theta, data, until=("log_time", 3.0))
    assert kinds(run) == ["enter", "leave"]
    at = flow(net, theta, data, until=("log_time", float(run.events.log_time[1])), rtol=1e-10)
    q = data.y * net(at.theta, X)
    assert q[1] == pytest.approx(0, abs=1e-8)
    assert 2 / (1 + math.exp(q[0])) == pytest.approx(0.2 * 1.04 / 0.3, abs=1e-7)
    assert (X[1] @ run.theta["W"][0]) < -1e-3


def test_leaving_to_the_on_side():
    """A larger second neuron learns the opposed example: as |c_2|‖x_2‖² falls to c_1 x_1ᵀx_2 it lets the first go."""
    X, y = np.array([[1, 0.8], [-0.2, 1]]), np.array([1.0, -1])
    W = np.array([[0.3, 0.07], [-0.6, 0.6]])
    theta = {"W": W, "a": NORM(W, axis=1) * np.array([1, -1])}
    net, data = mf.TwoLayer(width=2), mf.Dataset(X, y)
    run = flow(net, theta, data, until=("log_time", 1.0))
    assert [k for j, k in zip(run.events.neuron, run.events.kind, strict=True) if j == 0] == ["enter", "leave"]
    assert X[1] @ run.theta["W"][0] > 1e-3
    at = flow(net, theta, data, until=("log_time", float(run.events.log_time[-1])), rtol=1e-10)
    c = 1 / (1 + np.exp(y * net(at.theta, X)))
    assert c[0] * (X[0] @ X[1]) == pytest.approx(c[1] * (X[1] @ X[1]), rel=1e-6)


def test_vanishing_shrinks_without_end():
    """Alone on one opposed example, along w itself: a' = -a σ(a²), down to 0 but never through it."""
    run = one([[-1, -1], [0, 1]], [1, -1], [0, 0.5], 0.5, ("log_time", 1.5))
    want = solve_ivp(lambda t, a: -a / (1 + np.exp(-a * a)), (0, math.exp(1.5)), [0.5], rtol=1e-11, atol=1e-14).y[0, -1]
    assert run.extra["neurons"]["vanishing"] == 1
    assert run.theta["a"][0] == pytest.approx(want, rel=1e-6)
    assert run.theta["W"][0] == pytest.approx([0, run.theta["a"][0]], rel=1e-9)


@pytest.mark.parametrize("x", [[1.0, 2.0, -3.0, 1.0], [0.2, 0.1, -2.0, 2.1], [1.0, -0.1, 5.0, 6.0],
                               [0.5, 0.5, 0.1, 0.1], [1.0, 0.0, -1.0, -1.0], [1.0, 0.5, -3.0, -0.5],
                               [0.0, 1.0, 1.0, 1.0], [0.3, 0.1, 0.0, 4.0]])
def test_lowest_point_of_a_cubic(x):
    u0, u1, d0, d1 = x
    t = np.linspace(0, 1, 100_001)
    cubic = u0 + d0 * t + (3 * (u1 - u0) - 2 * d0 - d1) * t**2 + (2 * (u0 - u1) + d0 + d1) * t**3
    place, low = (float(v) for v in events.dip(*map(np.array, x)))
    dips = 1 + np.flatnonzero((np.diff(cubic)[:-1] < 0) & (np.diff(cubic)[1:] >= 0))
    assert (place < 1) == bool(len(dips))
    assert low == pytest.approx(cubic[dips[0]] if len(dips) else u1, abs=1e-8)
    if len(dips):
        assert place == pytest.approx(t[dips[0]], abs=1e-4)


def test_a_crossing_and_return_within_one_step_is_found():
    """Past a hyperplane and back before the end of a step: held from θ = 1/3 to 5/12, then let go."""
    data = mf.Dataset(np.array([[1.0, 0.5], [0, 1]]), np.array([1.0, -1]))
    problem = piecewise.problem(mf.TwoLayer(width=1, train="input"), data, losses.logistic)
    # a = 1 is fixed, dw_2/dθ = c_1/2 + c_2 = 0.1 - 0.6 + 1.2 θ: unhindered, w_2 would be 0.1 - 0.5 θ + 0.6 θ²
    poly = np.array([[0.2, -0.6], [0, 1.2], [0, 0]])
    start = np.array([[1.0, 0.1]]), np.array([1.0]), np.ones((1, 2), np.int8), [np.zeros(0, int)]
    got = events.follow(problem, poly, *start)
    assert got.settled
    assert [e[1:3] for e in got.events] == [(1, "enter"), (1, "leave")]
    assert [e[3] for e in got.events] == pytest.approx([1 / 3, 5 / 12], abs=1e-10)
    assert got.W[0, 1] == pytest.approx((-0.5 + 0.6) - (-0.5 * 5 / 12 + 0.6 * 25 / 144), abs=1e-10)


def test_dead_stays():
    run = one([[1, 0], [0, 1]], [1, -1], [-1, -1], math.sqrt(2), "limit")
    assert run.extra["neurons"]["dead"] == 1
    assert np.array_equal(run.theta["W"], [[-1, -1]])
    assert "does not go to 0" in run.message
    assert run.log_loss == pytest.approx(math.log(2 * math.log(2)), abs=1e-12)


def test_exactly_orthogonal_opposite_example_holds_the_neuron():
    """Lemma 2's 0 entries: the neuron comes down on the hyperplane of x_2, orthogonal to its class, and stays."""
    run = one([[1, 0], [0, 1]], [1, -1], [0.5, 0.2], math.hypot(0.5, 0.2), ("log_time", 2.0))
    assert kinds(run) == ["enter"]
    assert run.extra["pattern"][0, 1] == 0
    assert run.theta["W"][0, 1] == pytest.approx(0, abs=1e-14)


def test_settling_two_hyperplanes_at_once_is_the_least_norm_velocity():
    data = mf.Dataset(np.array([[0, 0, 1], [1, 0.1, -1], [0.1, 1, -1.0]]), np.array([1.0, -1, -1]))
    problem = piecewise.problem(mf.TwoLayer(width=1), data, losses.logistic)
    c = np.array([1.0, -2, -2])
    sigma = events.settle_zeros(problem, 1.0, np.array([1, 1, 1], np.int8), np.array([1, 2]), c)
    grid = np.linspace(0, 1, 401)
    p, q = np.meshgrid(grid, grid)
    V = c[0] * data.X[0] + p[..., None] * c[1] * data.X[1] + q[..., None] * c[2] * data.X[2]
    best = V.reshape(-1, 3)[np.argmin((V**2).sum(-1))]
    signs = np.where(np.abs(data.X[1:] @ best) < 0.05, 0, np.sign(data.X[1:] @ best))
    assert np.array_equal(sigma[1:], signs)


def test_collapsed_field_is_the_field_of_its_neurons():
    """d/ds of the neurons rebuilt from collapsed coordinates equals (a v, vᵀw), by finite differences."""
    run = cone(until="frozen")
    problem = piecewise.problem(run.net, run.data, losses.logistic)
    state = coupled.start(problem, run.theta["W"], run.theta["a"])
    late = late_phase.gathered(problem, state)
    h = 1e-6
    rate = late.system.rate(0.0, late.x)
    up, down = (late_phase.dataclasses.replace(late, x=late.x + s * h * rate).state() for s in (1, -1))
    look = piecewise.weigh(problem, state.outputs(problem))
    V = piecewise.fields(problem, state.slopes, state.slides, look.c)
    assert np.abs((up.W - down.W) / (2 * h) - state.a[:, None] * V).max() < 1e-7
    assert np.abs((up.a - down.a) / (2 * h) - np.einsum("pr,pr->p", state.W, V)).max() < 1e-7


def test_collapsed_jacobian():
    run = cone(until="log-time=20")
    problem = piecewise.problem(run.net, run.data, losses.logistic)
    system = late_phase.gathered(problem, coupled.start(problem, run.theta["W"], run.theta["a"])).system
    x, rng = system.start, np.random.default_rng(0)
    dx = rng.normal(size=len(x)) * np.maximum(np.abs(x), 1e-3)
    h = 1e-7
    want = (system.rate(0, x + h * dx) - system.rate(0, x - h * dx)) / (2 * h)
    got = system.jacobian(0, x) @ dx
    assert NORM(got - want) < 1e-3 * NORM(want)


def test_arcs_keep_balance_and_solve_the_linear_system():
    rng = np.random.default_rng(0)
    problem = piecewise.problem(mf.TwoLayer(width=4), cone().data, losses.logistic)
    W, V = rng.normal(size=(2, 4, 5))
    a = NORM(W, axis=1)
    W1, a1 = piecewise.arc(problem, W, a, V)
    assert np.abs(a1**2 - (W1**2).sum(1)).max() < 1e-9 * (a1**2).max()
    for j in range(4):
        field = lambda t, z, v=V[j]: np.append(z[-1] * v, v @ z[:-1])  # noqa: E731
        flowed = solve_ivp(field, (0, 1), np.append(W[j], a[j]), rtol=1e-11, atol=1e-12)
        assert np.allclose(flowed.y[:, -1], np.append(W1[j], a1[j]), rtol=1e-8)


def test_time_quadrature_of_huge_and_of_small_steps():
    # G = 3 + 2s: ∫ e^G = e^3 (e^{2h} - 1)/2
    for h in (1e-3, 1.0, 1e6):
        want = 3 + 2 * h + math.log(-math.expm1(-2 * h) / 2)
        assert collapsed.later(-math.inf, 3.0, 2.0, 3 + 2 * h, 2.0, h) == pytest.approx(want, rel=1e-12)


def test_settled_is_lemma_3():
    run = cone(until="frozen")
    later = cone(until="log-time=1e5")
    problem = piecewise.problem(run.net, run.data, losses.logistic)
    assert settled(problem, coupled.start(problem, later.theta["W"], later.theta["a"])).all()
    assert np.array_equal(run.extra["pattern"] > 0, later.extra["pattern"] > 0)


def test_width_does_not_enter_the_collapsed_system():
    data, sizes = cone().data, set()
    for width in (40, 4000):
        rng = np.random.default_rng(0)
        a = np.where(np.arange(width) % 2 == 0, 1e-3, -1e-3)
        mixed = rng.random((width, len(data.positive))) @ data.X[data.positive]
        other = rng.random((width, len(data.negative))) @ data.X[data.negative]
        W = np.where(a[:, None] > 0, mixed, other)
        problem = piecewise.problem(mf.TwoLayer(width=width), data, losses.logistic)
        late = late_phase.gathered(problem, coupled.start(problem, 1e-3 * W / NORM(W, axis=1, keepdims=True), a))
        sizes.add(late.system.dim)
        assert NORM(late.state().W - late.frame.W) < 1e-12
    assert len(sizes) == 1


@pytest.mark.parametrize("bad", ["limits", "loss=-1", "log-time=x", ("log_time",), 3])
def test_targets_refused(bad):
    with pytest.raises(mf.InputError):
        target(bad)


def test_loss_below_float_range():
    run = cone(until="loss=1e-5000")
    assert run.log_loss == pytest.approx(-5000 * math.log(10), rel=1e-6)
