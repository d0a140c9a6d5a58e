"""Gradient flow beyond the exact engine: the adaptive mode, linear nets, cut runs, data without a separating net."""

import math

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.status import Outcome
from marginflow.flows.gradient_flow import flow
from marginflow.nets import Linear


@pytest.fixture(scope="module")
def small():
    data, net = mf.data.phuong2021(n=20, d=3, seed=0), mf.TwoLayer(width=6)
    return net, data


def test_adaptive_agrees_with_exact(small):
    net, data = small
    theta = mf.inits.balanced(net, 3, scale=0.05, key=0)
    exact = flow(net, theta, data, until="log-time=1")
    other = flow(net, theta, data, until="log-time=1", mode="adaptive", rtol=1e-7)
    assert other.outcome is Outcome.CONVERGED
    assert np.abs(other.theta["W"] - exact.theta["W"]).max() < 1e-4


def test_linear_regression_turns_to_the_max_margin_vector(small):
    _, data = small
    run = flow(Linear(), {"w": np.array([0.1, 0.0, 0.0])}, data, until="log-time=12", rtol=1e-6)
    w, best = run.theta["w"], mf.margins.linear(data).vector
    assert run.log_time == pytest.approx(12, abs=1e-6)
    assert w @ best / (np.linalg.norm(w) * np.linalg.norm(best)) > 0.95


def test_max_steps_keeps_the_state(small):
    net, data = small
    theta = mf.inits.balanced(net, 3, scale=1e-3, key=0)
    cut = flow(net, theta, data, until="limit", max_steps=3)
    assert cut.outcome is Outcome.MAX_STEPS
    assert np.isfinite(cut.theta["W"]).all()
    assert not np.array_equal(cut.theta["W"], theta["W"])
    assert cut.limit is None


def test_contradictory_data_is_said_not_to_reach_zero():
    X = np.array([[1.0, 0], [1.0, 0], [-1, 0.3]])
    data, net = mf.Dataset(X, np.array([1.0, -1, -1])), mf.TwoLayer(width=4)
    run = flow(net, mf.inits.balanced(net, 2, scale=0.1, key=0), data, until="limit", max_steps=20000)
    assert "does not go to 0" in run.message
    # the two equal points cost at least 2 log 2 together
    assert run.log_loss >= math.log(2 * math.log(2)) - 1e-6
    assert all(np.isfinite(v).all() for v in run.history.values() if v is not run.history["log_time"])
