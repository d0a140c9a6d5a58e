"""Ensembles: every member is the run alone, whatever it differs in and whichever batch it is in."""

import dataclasses
import math

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.errors import InputError
from marginflow._core.status import Outcome
from marginflow.flows import ensembles, train
from marginflow.flows.ensembles import ensemble, grid
from marginflow.flows.neurons import census, max_margin_directions
from marginflow.nets import DeepLinear, TwoLayer, inits

DATA = mf.data.phuong2021(n=40, d=4, seed=2)


def alone(result, k, init, **options):
    """Member k, trained by itself."""
    members = result.members
    net = (
        result.net if members.width is None else dataclasses.replace(result.net, width=int(members.width[k]))
    )
    theta = inits.init(init, net, DATA.d, float(members.scale[k]), int(members.seed[k]))
    return train(net, theta, DATA, seed=int(members.seed[k]), lr=float(members.lr[k]), **options)


@pytest.mark.parametrize(
    ("net", "members", "init", "options"),
    [
        (
            TwoLayer(6),
            grid(seeds=range(5), scales=[0.2]),
            "uniform",
            {"method": "sgd", "batch": 9, "epochs": 20},
        ),
        (
            TwoLayer(6),
            grid(seeds=[3, 1], scales=[0.1, 0.4], lrs=[0.05, 0.5]),
            "balanced",
            {"method": "gd", "epochs": 100},
        ),
        (
            TwoLayer(1),
            grid(seeds=[0, 7], widths=[2, 7, 4], scales=[0.3]),
            "gaussian",
            {"method": "adam", "batch": 10, "epochs": 9},
        ),
        (
            TwoLayer(1, mean_field=True),
            grid(seeds=[5], widths=[3, 8], scales=[1.0]),
            "sphere",
            {"method": "ngd", "schedule": "inverse-sqrt", "epochs": 60},
        ),
        pytest.param(
            TwoLayer(1, activation="smooth-leaky:0.3", train="input"),
            grid(seeds=[5, 6], widths=[3, 8], scales=[0.1]),
            "gaussian",
            {"method": "gd", "epochs": 60},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            DeepLinear(width=3, depth=3),
            grid(seeds=[5, 6], scales=[0.5]),
            "gaussian",
            {"method": "ngd", "epochs": 30},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["seeds", "scales and steps", "widths", "mean-field widths", "smooth widths", "deep"],
)
def test_a_member_is_the_run_alone(net, members, init, options):
    result = ensemble(net, DATA, members, init=init, size=3, **options)
    assert result.complete
    for k in range(len(result)):
        one, member = alone(result, k, init, **options), result.member(k)
        assert member.net == one.net
        for name in one.theta:
            np.testing.assert_array_equal(member.theta0[name], one.theta0[name])
            np.testing.assert_allclose(member.theta[name], one.theta[name], rtol=0, atol=1e-11)
        assert member.log_loss == pytest.approx(one.log_loss, abs=1e-9)
        assert member.log_time == pytest.approx(one.log_time, abs=1e-9)
        assert member.steps == one.steps


def test_batches_do_not_change_members():
    members = grid(seeds=range(7), scales=[0.2])
    small, whole = (
        ensemble(TwoLayer(5), DATA, members, init="uniform", batch=10, epochs=10, size=s) for s in (2, 7)
    )
    np.testing.assert_allclose(small.theta["W"], whole.theta["W"], rtol=0, atol=1e-13)
    np.testing.assert_array_equal(small.history["step"], whole.history["step"])
    assert (
        small.history["log_loss"].shape == whole.history["log_loss"].shape == (len(whole.history["step"]), 7)
    )


def test_masked_neurons_stay_zero():
    result = ensemble(
        TwoLayer(1),
        DATA,
        grid(seeds=[0], widths=[2, 6], scales=[0.5]),
        init="gaussian",
        method="gd",
        epochs=50,
    )
    assert (result.theta["W"][0, 2:] == 0).all()
    assert (result.theta["a"][0, 2:] == 0).all()
    assert (result.theta["W"][1] != 0).all()


def test_a_diverging_member_leaves_the_others_alone():
    members = grid(seeds=[1], scales=[0.3], lrs=[0.1, 1e9])
    result = ensemble(TwoLayer(6), DATA, members, init="gaussian", method="gd", epochs=100)
    one = alone(result, 0, "gaussian", method="gd", epochs=100)
    assert result.outcomes == (Outcome.CONVERGED, Outcome.DIVERGED)
    np.testing.assert_allclose(result.member(0).theta["W"], one.theta["W"], rtol=0, atol=1e-12)
    assert np.isfinite(result.theta["W"]).all()
    assert np.isfinite(result.log_loss).all()
    assert 1 < result.steps[1] < 100
    assert result.spread(result.history["log_loss"][-1])["max"] == pytest.approx(result.log_loss[0])


def test_members_that_reach_the_target_stop_there():
    members = grid(seeds=range(4), scales=[0.3], lrs=[0.1, 1.0])
    result = ensemble(TwoLayer(6), DATA, members, init="gaussian", method="gd", until="loss=0.2", epochs=5000)
    assert set(result.outcomes) == {Outcome.CONVERGED}
    assert (result.log_loss <= math.log(0.2)).all()
    assert result.steps[4:].max() < result.steps[:4].min()
    for k in (0, 7):
        assert (
            result.steps[k] == alone(result, k, "gaussian", method="gd", until="loss=0.2", epochs=5000).steps
        )


class Stopping:
    """Checkpoints in memory that break down after so many saves."""

    def __init__(self, saves=10**9):
        self.kept, self.left = {}, saves

    def save(self, name, arrays, meta):
        if self.left == 0:
            raise OSError("no space left")
        self.left -= 1
        self.kept[name] = ({k: np.array(v) for k, v in arrays.items()}, dict(meta))

    def load(self, name):
        return self.kept.get(name)


def test_an_ensemble_broken_off_between_batches_ends_with_the_same_bits():
    options = {"init": "uniform", "batch": 10, "epochs": 20, "size": 2}
    members = grid(seeds=range(6), scales=[0.2])
    whole = ensemble(TwoLayer(5), DATA, members, **options)
    kept = Stopping(saves=2)
    with pytest.raises(OSError, match="no space"):
        ensemble(TwoLayer(5), DATA, members, checkpoints=kept, **options)
    assert len(kept.kept) == 2
    kept.left = 10
    resumed = ensemble(TwoLayer(5), DATA, members, checkpoints=kept, **options)
    for name in whole.theta:
        np.testing.assert_array_equal(resumed.theta[name], whole.theta[name])
    for name in whole.history:
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])
    with pytest.raises(InputError, match="other options"):
        ensemble(TwoLayer(5), DATA, members, checkpoints=kept, **{**options, "epochs": 21})


def test_xarray_holds_every_member():
    result = ensemble(
        TwoLayer(5), DATA, grid(seeds=range(3), scales=[0.2]), init="uniform", epochs=4, batch=10
    )
    table = result.to_xarray()
    np.testing.assert_array_equal(table["theta_W"].sel(member=1), result.member(1).theta["W"])
    assert table["history_log_loss"].dims == ("record", "member")


def test_ten_thousand_small_nets():
    data = mf.data.phuong2021(n=8, d=2, seed=0)
    result = ensemble(
        TwoLayer(2),
        data,
        grid(seeds=range(10_000), scales=[0.5]),
        init="uniform",
        method="gd",
        epochs=5,
        size=5000,
        records=4,
    )
    assert len(result) == 10_000
    assert np.isfinite(result.log_loss).all()
    k = 7777
    theta = inits.init("uniform", TwoLayer(2), 2, 0.5, k)
    np.testing.assert_allclose(
        result.member(k).theta["W"],
        train(TwoLayer(2), theta, data, method="gd", epochs=5).theta["W"],
        rtol=0,
        atol=1e-14,
    )


def test_the_census_counts_by_hand():
    # d = 2, w+ and w- along the axes: (1, 0) serves the positives, (0, 1) the negatives.
    data = mf.Dataset(
        np.array([[1.0, -0.1], [2.0, -0.1], [-0.1, 1.0], [-0.1, 2.0]]), np.array([1.0, 1, -1, -1])
    )
    W = np.array([[1.0, 0], [0, 1], [-1, -1], [0.1, 0], [1, 1.0]])
    a = np.array([1.0, -1, 1, -0.1, 1])
    start = {"W": np.ones((5, 2)), "a": np.ones(5)}
    directions = max_margin_directions(data)
    found = census({"W": W, "a": a}, start, data, directions)
    # neuron 4 (a > 0) is on for every positive example as well; neuron 3 serves nobody and has shrunk
    assert found.counts == {"positive": 2, "negative": 1, "dead": 1, "vanishing": 1, "other": 0}
    together = W[0] + W[4]
    cosine = together @ directions.positive / np.linalg.norm(together) / np.linalg.norm(directions.positive)
    assert found.angle["positive"] == pytest.approx(math.acos(cosine))
    assert np.isnan(found.alignment[2])


def test_refusals():
    with pytest.raises(InputError, match="lr -1"):
        ensemble(TwoLayer(3), DATA, grid(lrs=[0.1, -1.0]))
    with pytest.raises(InputError, match="width 0"):
        ensemble(TwoLayer(3), DATA, grid(widths=[3, 0]))
    with pytest.raises(InputError, match="only two-layer"):
        ensemble(DeepLinear(width=3, depth=3), DATA, grid(widths=[3]), init="gaussian")
    with pytest.raises(InputError, match="seeds"):
        grid(seeds=[])
    with pytest.raises(InputError, match="member 9"):
        ensemble(TwoLayer(3), DATA, grid(), method="gd", epochs=1).member(9)


def test_batches_side_by_side_end_with_the_bits_of_one_after_the_other(monkeypatch):
    options = {"init": "uniform", "batch": 10, "epochs": 20, "size": 2}
    members = grid(seeds=range(9), scales=[0.2])
    monkeypatch.setattr(ensembles._Work, "workers", lambda work: 1)
    one = ensemble(TwoLayer(5), DATA, members, **options)
    monkeypatch.setattr(ensembles._Work, "workers", lambda work: 4)
    several = ensemble(TwoLayer(5), DATA, members, **options)
    for name in one.theta:
        np.testing.assert_array_equal(several.theta[name], one.theta[name])
    for name in one.history:
        np.testing.assert_array_equal(several.history[name], one.history[name])


def test_cpu_batches_share_the_members_out():
    assert [ensembles.cpu_batch(n) for n in (1, 2, 10, 100)] == [1, 1, 5, 10]
    for n in range(1, 400):
        size = ensembles.cpu_batch(n)
        assert 1 <= size <= ensembles.CPU_BATCH


def test_a_gpu_batch_grows_with_memory_and_never_passes_the_members(monkeypatch):
    from marginflow.flows.descents import request

    asked = request(DATA, method="gd", epochs=1)
    assert ensembles.gpu_batch(TwoLayer(5), DATA, asked, 100) == 100
    monkeypatch.setattr(ensembles, "GPU_BYTES", 10**5)
    assert 1 <= ensembles.gpu_batch(TwoLayer(5), DATA, asked, 100) < 100
