"""The kernel for small nets, interpreted on the CPU, and plain steps, against the ordinary program of `steps`."""

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.arrays import double
from marginflow.flows import ensembles, on_chip, plain_steps
from marginflow.flows.descents import request
from marginflow.flows.schedules import schedule
from marginflow.flows.steps import DIVERGED, RUNNING, started
from marginflow.flows.steps import programs as ordinary_programs
from marginflow.nets import TwoLayer

DATA = mf.data.phuong2021(n=23, d=3, seed=2)


def assert_same_state(by_other, by_steps):
    """The same orders, times and weights, to the rounding of single precision."""
    np.testing.assert_array_equal(by_other.order, by_steps.order)
    np.testing.assert_allclose(by_other.log_time, by_steps.log_time, atol=1e-12)
    for name, w in by_steps.theta.items():
        np.testing.assert_allclose(by_other.theta[name], w, rtol=0, atol=2e-5 * float(abs(w).max()))


def prepared(net, members, scale=0.3, lr=0.1, batch=7, replacement=False):
    """(plan, state, X, y) of an ensemble before its first step."""
    import jax.numpy as jnp

    asked = request(DATA, method="sgd", lr=lr, batch=batch, epochs=3, replacement=replacement, precision="single")
    plan = asked.plan(net, DATA.n, schedule("constant", net, None, DATA))
    theta = ensembles.initial_weights(net, DATA.d, members, "uniform")
    state = started(plan, theta, members.seed, np.log(members.lr), np.ones(len(members)), np.float32)
    return plan, state, jnp.asarray(DATA.X, jnp.float32), jnp.asarray(DATA.y, jnp.float32)


@pytest.mark.parametrize(
    ("net", "options"),
    [
        (TwoLayer(5), {}),
        pytest.param(TwoLayer(5), {"batch": 23}, marks=pytest.mark.slow),
        pytest.param(TwoLayer(5), {"replacement": True}, marks=pytest.mark.slow),
        (TwoLayer(40, activation="leaky:0.3", train="input"), {"batch": 10}),
        pytest.param(TwoLayer(40), {}, marks=pytest.mark.slow),
        pytest.param(TwoLayer(6, train="output"), {}, marks=pytest.mark.slow),
    ],
    ids=["short last batch", "one batch", "replacement", "leaky, input only", "two neurons a lane", "output only"],
)
@double
def test_the_kernel_takes_the_steps_of_the_ordinary_program(net, options, monkeypatch):
    members = ensembles.grid(seeds=range(3), scales=[0.3, 1.0], lrs=[0.1, 0.4])
    plan, state, X, y = prepared(net, members, **options)
    assert on_chip.eligible(plan, np.float32, DATA.d)
    monkeypatch.setattr(on_chip, "EPOCHS", 2)
    stops = (1, 2, 7, on_chip.block_end(plan, 7), on_chip.block_end(plan, 7) + 5)
    advance, kernel = ordinary_programs()[0], on_chip.program()
    by_kernel = by_steps = state
    for stop in stops:
        by_steps = advance(plan, by_steps, X, y, stop, np.inf)
        by_kernel = kernel(plan, by_kernel, X, y, stop, np.inf, interpret=True)
        assert int(by_kernel.step) == int(by_steps.step) == stop
        assert_same_state(by_kernel, by_steps)
    moved = abs(np.asarray(by_kernel.theta["W"]) - state.theta["W"]).max()
    assert (moved > 1e-3) == ("W" in net.trained)


@pytest.mark.parametrize(
    "options", [{}, {"batch": 23}, {"replacement": True}], ids=["short last batch", "one batch", "replacement"]
)
@pytest.mark.parametrize(
    "net",
    [TwoLayer(5), TwoLayer(9, activation="leaky:0.3", train="input"), TwoLayer(6, train="output")],
    ids=["both", "input", "output"],
)
@double
def test_plain_steps_are_those_of_the_ordinary_program(net, options):
    members = ensembles.grid(seeds=range(3), scales=[0.3, 1.0], lrs=[0.1, 0.4])
    plan, state, X, y = prepared(net, members, **options)
    by_plain = by_steps = state
    for stop in (1, 2, 7, 30):
        by_steps = ordinary_programs().advance(plan, by_steps, X, y, stop, np.inf)
        by_plain = plain_steps.program()(plan, by_plain, X, y, stop, np.inf)
        assert int(by_plain.step) == stop
        assert_same_state(by_plain, by_steps)
    moved = abs(np.asarray(by_plain.theta["W"]) - state.theta["W"]).max()
    assert (moved > 1e-3) == ("W" in net.trained)


@double
def test_plain_steps_leave_divergence_to_the_ordinary_program():
    members = ensembles.grid(seeds=range(2), scales=[0.3], lrs=[0.1, 1e30])
    plan, state, X, y = prepared(TwoLayer(5), members)
    by_steps = ordinary_programs().advance_alone(plan, state, X, y, 20, np.inf)
    by_plain = plain_steps.program()(plan, state, X, y, 20, np.inf)
    assert set(np.asarray(by_steps.halted)) == {RUNNING, DIVERGED}
    np.testing.assert_array_equal(by_plain.halted_at, by_steps.halted_at)
    for name, w in by_steps.theta.items():
        np.testing.assert_array_equal(by_plain.theta[name], w)
    further = plain_steps.program()(plan, by_plain, X, y, 29, np.inf)
    gone = np.asarray(by_plain.halted) == DIVERGED
    np.testing.assert_array_equal(further.theta["W"][gone], by_plain.theta["W"][gone])
    assert np.isfinite(np.asarray(further.theta["W"][~gone])).all()


@double
def test_a_member_that_leaves_float_range_diverges_at_its_own_step():
    members = ensembles.grid(seeds=range(2), scales=[0.3], lrs=[0.1, 1e30])
    plan, state, X, y = prepared(TwoLayer(5), members)
    stop = on_chip.block_end(plan, 0)
    by_steps = ordinary_programs()[0](plan, state, X, y, stop, np.inf)
    by_kernel = on_chip.program()(plan, state, X, y, stop, np.inf, interpret=True)
    assert set(np.asarray(by_steps.halted)) == {RUNNING, DIVERGED}
    np.testing.assert_array_equal(by_kernel.halted, by_steps.halted)
    np.testing.assert_array_equal(by_kernel.halted_at, by_steps.halted_at)
    further = on_chip.program()(plan, by_kernel, X, y, stop + 9, np.inf, interpret=True)
    gone = np.asarray(by_kernel.halted) == DIVERGED
    np.testing.assert_array_equal(further.theta["W"][gone], by_kernel.theta["W"][gone])
    assert np.isfinite(np.asarray(further.theta["W"][~gone])).all()


@pytest.mark.parametrize(
    "changed",
    [{"net": TwoLayer(300)}, {"net": TwoLayer(5, mean_field=True)}, {"net": TwoLayer(5, activation="smooth-leaky:0.3")},
     {"dtype": np.float64}],
)  # fmt: skip
@double
def test_what_the_kernel_leaves_to_the_ordinary_program(changed):
    net, dtype = changed.get("net", TwoLayer(5)), changed.get("dtype", np.float32)
    d = 30 if net.width == 300 else DATA.d
    plan, *_ = prepared(net, ensembles.grid(seeds=[0], scales=[1.0]))
    assert not on_chip.eligible(plan, dtype, d)
