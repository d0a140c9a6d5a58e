"""Initial laws against their distributions, their exact properties, and one draw against many."""

import numpy as np
import pytest
from cases import NETS
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal
from scipy import stats

from marginflow._core.arrays import double
from marginflow.nets import Convolutional, Linear, Residual, TwoLayer, inits

WIDE = TwoLayer(400)
GENERAL = ("gaussian", "uniform", "tensorflow", "glorot-normal")
# The chance that a correct sampler fails one of these, at the fixed keys below, was 1 in 10^4 before they were fixed.
ALPHA = 1e-4


def agrees(sample, law) -> bool:
    return stats.kstest(np.ravel(sample), law.cdf).pvalue > ALPHA


def net_for(name: str) -> TwoLayer:
    return TwoLayer(7, train="input") if name == "signs" else TwoLayer(7)


@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.parametrize(("net", "d"), [NETS[k] for k in list(NETS)[::4]], ids=list(NETS)[::4])
def test_every_law_makes_every_net(name, net, d):
    theta = inits.init(name, net, d, key=1)
    assert {k: w.shape for k, w in theta.items()} == net.shapes(d)
    assert all(w.dtype == np.float64 and np.isfinite(w).all() and w.flags.writeable for w in theta.values())


@pytest.mark.parametrize("name", inits.LAWS)
def test_seeds_decide_everything(name):
    net = net_for(name)
    one, same, other = (inits.init(name, net, 3, key=k) for k in (5, 5, 6))
    assert all(np.array_equal(one[k], same[k]) for k in one)
    assert not np.array_equal(one["W"], other["W"])


@pytest.mark.parametrize("name", inits.LAWS)
@double
def test_seed_and_key_are_the_same_thing(name):
    import jax

    one, two = (inits.init(name, net_for(name), 3, key=k) for k in (5, jax.random.key(5)))
    assert all(np.array_equal(one[k], two[k]) for k in one)


@pytest.mark.parametrize("name", inits.LAWS)
def test_member_of_an_ensemble_is_the_single_draw(name):
    net, keys = net_for(name), [3, 1, 4, 1]
    many = inits.ensemble(name, net, 3, keys=keys)
    for member, key in enumerate(keys):
        single = inits.init(name, net, 3, key=key)
        for k in single:
            np.testing.assert_allclose(many[k][member], single[k], rtol=4e-15, atol=0)


def test_scales_of_an_ensemble_are_each_their_own():
    net, scales = TwoLayer(5), np.array([1e-3, 0.1, 2.0])
    many = inits.ensemble("balanced", net, 4, scale=scales, keys=range(3))
    np.testing.assert_allclose(np.abs(many["a"]), np.broadcast_to(scales[:, None], (3, 5)), rtol=1e-14)


def test_mean_of_an_ensemble_scale_mapping():
    many = inits.ensemble("gaussian", TwoLayer(5), 4, scale={"a": 0.0}, keys=range(2))
    assert not many["a"].any()
    assert many["W"].all()


# The laws.


@given(log_scale=st.floats(-290, 100), seed=st.integers(0, 5))
def test_balanced_to_the_last_bit(log_scale, seed):
    """|a_j| = ‖w_j‖ as NumPy computes it, where its square does not underflow, and to an ulp everywhere."""
    scale = 10.0**log_scale
    theta = inits.balanced(TwoLayer(6), 5, scale, key=seed)
    if abs(log_scale) < 100:
        assert np.array_equal(np.abs(theta["a"]), np.linalg.norm(theta["W"], axis=1))
    np.testing.assert_allclose(np.abs(theta["a"]), scale, rtol=1e-14)


def test_balanced_directions_and_signs():
    theta = inits.balanced(TwoLayer(4000), 3, 1e-3, key=0)
    w = theta["W"] / 1e-3
    # On the sphere in R³ every coordinate is uniform on [-1, 1] (Archimedes).
    assert all(agrees(w[:, k], stats.uniform(-1, 2)) for k in range(3))
    assert stats.binomtest(int((theta["a"] > 0).sum()), 4000).pvalue > ALPHA


def test_balanced_sizes_one_per_neuron_or_spread():
    sizes = np.array([1e-3, 1e-2, 1e-1])
    np.testing.assert_allclose(np.abs(inits.balanced(TwoLayer(3), 5, sizes)["a"]), sizes, rtol=1e-14)
    spread = np.abs(inits.balanced(TwoLayer(4000), 2, 0.5, key=1, spread="uniform")["a"])
    assert spread.min() > 0
    assert spread.max() <= 0.5
    assert agrees(spread, stats.uniform(0, 0.5))


def test_gaussian_law():
    theta = inits.gaussian(WIDE, 30, 0.02, key=3)
    assert agrees(theta["W"], stats.norm(0, 0.02))
    assert agrees(theta["a"], stats.norm(0, 0.02))


def test_uniform_is_one_over_root_fan_in():
    theta = inits.uniform(WIDE, 25, 0.5, key=4)
    assert agrees(theta["W"], stats.uniform(-0.5 / 5, 1 / 5))
    assert agrees(theta["a"], stats.uniform(-0.5 / 20, 1 / 20))
    assert np.array_equal(inits.init("pytorch", WIDE, 25, 0.5, key=4)["W"], theta["W"])


def test_tensorflow_is_glorot():
    theta = inits.tensorflow(WIDE, 200, key=4)
    limit = (6 / 600) ** 0.5
    assert agrees(theta["W"], stats.uniform(-limit, 2 * limit))
    normal = inits.glorot_normal(WIDE, 200, key=4)["W"]
    sd = (2 / 600) ** 0.5
    assert normal.std() == pytest.approx(sd, rel=0.01)
    cut = sd / inits.TRUNCATED_NORMAL_SD
    assert agrees(normal, stats.truncnorm(-2, 2, 0, cut))


def test_truncated_normal_constant():
    assert inits.TRUNCATED_NORMAL_SD == pytest.approx(stats.truncnorm(-2, 2).std(), rel=1e-14)


def test_convolutional_fans_and_biases():
    net = Convolutional((2, 8, 8), (5, 6), (3, 3), (1, 2), (1, 1), (7,))
    d = 2 * 64
    fans = net.fans(d)
    assert (fans["W1"], fans["b1"]) == ((2 * 9, 5 * 9), (2 * 9, 5 * 9))
    assert fans["W3"] == fans["b3"] == (6 * 16, 7)
    theta = inits.uniform(net, d, key=1)
    for name, w in theta.items():
        bound = fans[name][0] ** -0.5
        assert np.abs(w).max() <= bound
        assert w.size < 30 or np.abs(w).max() > 0.8 * bound
    assert not any(inits.tensorflow(net, d)[b].any() for b in net.biases)


@pytest.mark.torch
def test_uniform_is_what_pytorch_draws():
    """The same law by its two-sample Kolmogorov-Smirnov distance, for a linear and a convolutional layer."""
    import torch

    torch.manual_seed(0)
    net = Convolutional((4, 8, 8), (16,), (3,), (1,), (1,), (32,))
    theta = inits.uniform(net, 256, key=0)
    layers = {"1": torch.nn.Conv2d(4, 16, 3), "2": torch.nn.Linear(1024, 32)}
    for l, layer in layers.items():
        for ours, theirs in ((f"W{l}", layer.weight), (f"b{l}", layer.bias)):
            assert stats.ks_2samp(theta[ours].ravel(), theirs.detach().numpy().ravel()).pvalue > ALPHA
            assert np.abs(theta[ours]).max() <= float(net.fans(256)[ours][0]) ** -0.5


def test_scale_may_differ_by_array():
    net = Convolutional((1, 4, 4), (2,), (3,), (1,), (1,), (3,))
    plain = inits.uniform(net, 16, key=2)
    small = inits.uniform(net, 16, {name: 0.05 for name in net.fully_connected}, key=2)
    for name in plain:
        np.testing.assert_allclose(small[name], (0.05 if name in net.fully_connected else 1) * plain[name], rtol=1e-14)


@pytest.mark.parametrize(("train", "points"), [("both", "joint"), ("input", "W"), ("output", "W")])
def test_sphere_has_full_support(train, points):
    """In R³ each coordinate of a uniform point is uniform; d = 2 inputs beside the output weight, or d = 3 alone."""
    net = TwoLayer(3000, train=train, mean_field=True)
    theta = inits.sphere(net, 2 if points == "joint" else 3, 2.0, key=7)
    point = np.column_stack([theta["W"], theta["a"]]) if points == "joint" else theta["W"]
    np.testing.assert_allclose(np.linalg.norm(point, axis=1), 2.0, rtol=1e-14)
    assert all(agrees(point[:, k], stats.uniform(-2, 4)) for k in range(3))
    if train == "input":
        assert set(theta["a"]) == {-1.0, 1.0}
        assert abs(np.corrcoef(theta["a"], theta["W"][:, 0])[0, 1]) < 0.08
    if train == "output":
        assert not theta["a"].any()


@pytest.mark.parametrize("mean_field", [False, True])
def test_signs_are_fixed_and_counted(mean_field):
    net = TwoLayer(9, "leaky:0.5", train="input", mean_field=mean_field)
    size = 1.0 if mean_field else 9**-0.5
    for positive, want in ((None, 5), (0, 0), (9, 9), (3, 3)):
        theta = inits.signs(net, 4, 1e-2, positive=positive)
        assert np.array_equal(theta["a"], np.where(np.arange(9) < want, size, -size))
    assert agrees(inits.signs(TwoLayer(500, train="input"), 20, 1e-2)["W"], stats.norm(0, 1e-2))


REFUSED = [
    (lambda: inits.init("balance", WIDE, 3), "did you mean 'balanced'"),
    (lambda: inits.balanced(Linear(), 3), "two-layer nets with one output, not for linear"),
    (lambda: inits.balanced(TwoLayer(3, outputs=2), 3), "with one output"),
    (lambda: inits.sphere(Residual(3, 4), 3), "two-layer"),
    (lambda: inits.signs(TwoLayer(3), 3), "train='input'"),
    (lambda: inits.signs(TwoLayer(3, train="input"), 3, positive=4), "4 positive neurons in a net of width 3"),
    (lambda: inits.signs(TwoLayer(3, train="input"), 3, positive=-1), "positive neurons -1"),
    (lambda: inits.balanced(WIDE, 3, 0.0), "scale 0.0"),
    (lambda: inits.balanced(WIDE, 3, -1.0), "scale -1.0"),
    (lambda: inits.balanced(WIDE, 3, float("nan")), "scale nan"),
    (lambda: inits.balanced(WIDE, 3, np.ones(3)), "or one per neuron"),
    (lambda: inits.balanced(WIDE, 3, spread="normal"), "unknown spread"),
    (lambda: inits.gaussian(WIDE, 3, -1.0), "scale -1.0"),
    (lambda: inits.gaussian(WIDE, 3, "big"), "not a number"),
    (lambda: inits.gaussian(WIDE, 3, np.ones(400)), "give one number"),
    (lambda: inits.uniform(WIDE, 3, {"w": 1.0}), "did you mean 'W'"),
    (lambda: inits.sphere(WIDE, 3, {"W": 1.0}), "takes one scale"),
    (lambda: inits.ensemble("gaussian", WIDE, 3, scale=[1.0, 2.0], keys=range(3)), "2 scales for 3 keys"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_refusals_name_what_is_wrong(make, says):
    refusal(make, says)
