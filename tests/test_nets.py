"""Laws every architecture obeys: homogeneity, one forward pass, exact gradients, NumPy = JAX, text and JSON forms."""

import functools
import itertools
import json
import math

import numpy as np
import pytest
from cases import NETS
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from marginflow import nets
from marginflow._core.arrays import double
from marginflow.nets import Convolutional, DeepLinear, Linear, Residual, TwoLayer

every_net = pytest.mark.parametrize(("net", "d"), NETS.values(), ids=NETS.keys())


@functools.cache
def draw(net, d, seed=0, n=6):
    """Weights of order 1 (fixed ones too) and inputs, away from the kinks with probability 1."""
    rng = np.random.default_rng(seed)
    theta = {name: 0.7 * rng.standard_normal(shape) for name, shape in net.shapes(d).items()}
    return theta, rng.standard_normal((n, d))


def scaled(theta, names, c):
    return {name: c * w if name in names else w for name, w in theta.items()}


@double
def gradients(net, theta, X, v):
    """d/dθ of v·f over all weights, trained or not."""
    return {name: np.asarray(g) for name, g in _gradient()(theta, net, X, v).items()}


@functools.cache
def _gradient():
    import jax

    return jax.jit(jax.grad(lambda theta, net, X, v: (v * net(theta, X)).sum()), static_argnums=1)


@every_net
@given(power=st.integers(-20, 20), seed=st.integers(0, 3))
def test_scaling_by_a_power_of_two_is_exact(net, d, power, seed):
    """Powers of two scale floating-point numbers exactly, so f(x; cθ) = c^k f(x; θ) must hold bit for bit."""
    if net.degree is None:
        return
    theta, X = draw(net, d, seed)
    c = 2.0**power
    assert np.array_equal(net(scaled(theta, net.trained, c), X), c**net.degree * net(theta, X))


@every_net
@given(c=st.floats(0.01, 100.0), seed=st.integers(0, 3))
def test_homogeneous_in_its_degree(net, d, c, seed):
    if net.degree is None:
        return
    theta, X = draw(net, d, seed)
    f = net(theta, X)
    np.testing.assert_allclose(net(scaled(theta, net.trained, c), X) / c**net.degree, f, atol=1e-12 * np.abs(f).max())


@every_net
def test_no_degree_means_that_none_fits(net, d):
    if net.degree is not None:
        return
    theta, X = draw(net, d)
    ratio = net(scaled(theta, net.trained, 2.0), X) / net(theta, X)
    assert np.ptp(ratio) > 1e-3 * np.abs(ratio).max()


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_residual_net_has_degree_two_in_its_first_and_last_layer(depth):
    net = Residual(depth, 6)
    theta, X = draw(net, 4)
    ends = ("W1", f"W{depth}")
    assert np.array_equal(net(scaled(theta, ends, 4.0), X), 16 * net(theta, X))


@every_net
def test_euler_identity(net, d):
    """Σ θ·∂f/∂θ over the trained weights is k f, for the gradient as for the function."""
    if net.degree is None:
        return
    theta, X = draw(net, d)
    f = net(theta, X)
    for seed in range(3):
        v = np.random.default_rng(seed).standard_normal(f.shape)
        g = gradients(net, theta, X, v)
        assert sum((theta[k] * g[k]).sum() for k in net.trained) == pytest.approx(net.degree * (v * f).sum(), rel=1e-11)


@every_net
def test_gradient_is_the_difference_quotient(net, d):
    """The five-point quotient, exact for polynomials of degree 4 such as these nets between kinks."""
    theta, X = draw(net, d, seed=1)
    v = np.random.default_rng(2).standard_normal(net(theta, X).shape)
    g, h = gradients(net, theta, X, v), 1e-3
    rng = np.random.default_rng(3)
    checked = 0
    for name in theta:
        for _ in range(4):
            direction = rng.standard_normal(theta[name].shape)
            direction /= np.linalg.norm(direction)
            at = {k: {**theta, name: theta[name] + k * h * direction} for k in (-2, -1, 1, 2)}
            if not same_side(net, [theta, at[-2], at[2]], X):
                continue
            value = {k: float((v * net(t, X)).sum()) for k, t in at.items()}
            quotient = (8 * (value[1] - value[-1]) - (value[2] - value[-2])) / (12 * h)
            assert quotient == pytest.approx(float((g[name] * direction).sum()), rel=1e-8, abs=1e-9)
            checked += 1
    assert checked >= len(theta)


def same_side(net, thetas, X):
    """No pre-activation changes sign between the thetas: they lie in one smooth piece."""
    signs = [[np.sign(layer.pre) for layer in net.layers(t, X)[:-1]] for t in thetas]
    return all(np.array_equal(a, b) for other in signs[1:] for a, b in zip(signs[0], other, strict=True))


@every_net
@double
def test_numpy_and_jax_agree(net, d):
    import jax
    import jax.numpy as jnp

    theta, X = draw(net, d)
    on_jax = {name: jnp.asarray(w) for name, w in theta.items()}
    want = net(theta, X)
    assert isinstance(want, np.ndarray)
    compiled = jax.jit(lambda net, t, X: net(t, X), static_argnums=0)
    for got in (net(on_jax, X), net(theta, jnp.asarray(X)), compiled(net, on_jax, X)):
        assert isinstance(got, jax.Array)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


@every_net
def test_float32_stays_float32(net, d):
    theta, X = draw(net, d)
    single = net({k: w.astype(np.float32) for k, w in theta.items()}, X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, net(theta, X), rtol=1e-4, atol=1e-4)


@every_net
def test_rows_do_not_see_each_other(net, d):
    theta, X = draw(net, d)
    np.testing.assert_allclose(np.stack([net(theta, x[None])[0] for x in X]), net(theta, X), rtol=1e-12, atol=1e-13)


@every_net
def test_layers_are_the_forward_pass(net, d):
    theta, X = draw(net, d)
    layers = net.layers(theta, X)
    assert [layer.name for layer in layers] == [name for name in net.shapes(d) if name not in net.biases]
    assert layers[-1].pre is layers[-1].post
    assert np.array_equal(layers[-1].post, net(theta, X))
    phi = getattr(net, "activation", nets.linear)
    for layer in layers[:-1]:
        assert np.array_equal(layer.post, phi(layer.pre))


@every_net
def test_trained_and_biases_are_names_of_weights(net, d):
    shapes = net.shapes(d)
    assert set(net.trained) <= set(shapes)
    assert set(net.biases) | set(net.biases.values()) <= set(shapes)
    assert net.fans(d).keys() == shapes.keys()


@every_net
def test_text_and_json_give_the_net_back(net, d):
    for form in (str(net), net.spec(), json.loads(json.dumps(net.spec())), net):
        again = nets.net(form)
        assert again == net
        assert hash(again) == hash(net)
        assert repr(again) == repr(net)


def test_different_nets_differ():
    pool = [net for net, _ in NETS.values()]
    assert all(a != b and str(a) != str(b) for a, b in itertools.combinations(pool, 2))
    assert TwoLayer(3, nets.leaky(0.1234567)) != TwoLayer(3, nets.leaky(0.1234568))


# Each net against its formula, written with loops over single numbers.


def test_two_layer_formula():
    net = TwoLayer(5, "leaky:0.25")
    theta, X = draw(net, 3)
    want = [sum(a * max(z, 0.25 * z) for a, z in zip(theta["a"], (w @ x for w in theta["W"]), strict=True)) for x in X]
    np.testing.assert_allclose(net(theta, X), want, rtol=1e-12)
    np.testing.assert_allclose(TwoLayer(5, "leaky:0.25", mean_field=True)(theta, X), np.array(want) / 5, rtol=1e-12)


def test_srelu_neuron_is_a_signed_square():
    """φ(w, x) = ε ρ(wᵀx)², 2-homogeneous in w, ε = ±1 carried by the weights that do not move (theory §5)."""
    net = TwoLayer(4, "srelu", train="input", mean_field=True)
    theta = {**draw(net, 3)[0], "a": np.array([1.0, -1.0, 1.0, -1.0])}
    x = np.array([[0.3, -1.0, 0.7]])
    want = np.mean([e * max(0.0, float(w @ x[0])) ** 2 for e, w in zip(theta["a"], theta["W"], strict=True)])
    assert net(theta, x)[0] == pytest.approx(want, rel=1e-14)
    assert net.degree == 2


@pytest.mark.parametrize("net", [DeepLinear(1, 1), DeepLinear(3, 5), DeepLinear(4, 2)], ids=str)
def test_deep_linear_is_its_end_to_end_vector(net):
    theta, X = draw(net, 4)
    product = np.linalg.multi_dot([theta[name] for name in reversed(net.trained)]) if net.depth > 1 else theta["W1"]
    np.testing.assert_allclose(net.end_to_end(theta), product[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(net(theta, X), X @ product[0], rtol=1e-11, atol=1e-13)


def test_residual_formula():
    net = Residual(4, 3)
    theta, X = draw(net, 2)
    for x, got in zip(X, net(theta, X), strict=True):
        f = theta["W1"] @ x
        f = f + theta["W2"] @ np.maximum(f, 0)
        f = f + theta["W3"] @ np.maximum(f, 0)
        assert got == pytest.approx(float((theta["W4"] @ np.maximum(f, 0))[0]), rel=1e-12)


@pytest.mark.parametrize(("stride", "padding", "kernel"), [(1, 1, 3), (2, 1, 3), (2, 0, 2), (3, 2, 4), (1, 0, 1)])
@double
def test_convolution_is_a_correlation(stride, padding, kernel):
    from scipy.signal import correlate

    rng = np.random.default_rng(0)
    images, kernels = rng.standard_normal((2, 3, 7, 6)), rng.standard_normal((4, 3, kernel, kernel))
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    want = np.stack([[correlate(image, k, mode="valid")[0] for k in kernels] for image in padded])
    want = want[..., ::stride, ::stride]
    import jax.numpy as jnp

    from marginflow.nets.convolutional import convolve

    np.testing.assert_allclose(convolve(images, kernels, stride, padding), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(convolve(jnp.asarray(images), kernels, stride, padding), want, rtol=1e-12, atol=1e-12)


def test_the_published_convolutional_net():
    net = Convolutional()
    shapes = net.shapes(784)
    assert net.maps[-1] == (64, 7, 7)
    assert (shapes["W7"], shapes["W8"]) == ((128, 3136), (1, 128))
    assert net.fully_connected == ("W7", "W8")
    assert len(net.convolutions) == 6
    assert net.degree is None
    theta, X = draw(net, 784, n=2)
    assert {layer.name: layer.pre.shape[1:] for layer in net.layers(theta, X)}["W7"] == (128,)


def test_degree_without_biases_counts_every_layer():
    assert Convolutional(bias=False).degree == 8
    assert Convolutional((1, 4, 4), (2,), (3,), (1,), (1,), (3,), "srelu", bias=False).degree == 1 + 2 * (1 + 2 * 1)
    assert Convolutional(activation="smooth-leaky:0.5", bias=False).degree is None


def test_norm_is_over_trained_weights():
    theta = {"W": np.array([[3.0, 0.0]]), "a": np.array([4.0])}
    assert nets.trained_norm(TwoLayer(1), theta) == 5
    assert nets.trained_norm(TwoLayer(1, train="input"), theta) == 3
    assert nets.trained_norm(TwoLayer(1, train="output"), theta) == 4


def test_lists_are_accepted():
    net = TwoLayer(2)
    assert net({"W": [[1.0, 0.0], [0.0, 1.0]], "a": [1.0, -1.0]}, [[2.0, 3.0]])[0] == -1.0


REFUSED = [
    (lambda: TwoLayer(0), "width 0"),
    (lambda: TwoLayer(-3), "width -3"),
    (lambda: TwoLayer(2.5), "width 2.5"),
    (lambda: TwoLayer(True), "width True"),
    (lambda: TwoLayer(3, outputs=0), "outputs 0"),
    (lambda: TwoLayer(3, train="inputs"), "did you mean 'input'"),
    (lambda: TwoLayer(3, activation="rellu"), "did you mean 'relu'"),
    (lambda: TwoLayer(3, activation="relu:0.1"), "takes no argument"),
    (lambda: TwoLayer(3, activation="leaky:x"), "'x' is not a number"),
    (lambda: nets.leaky(1.0), "slope 1.0"),
    (lambda: nets.leaky(math.nan), "slope nan"),
    (lambda: nets.smooth_leaky(0.0), "slope 0.0"),
    (lambda: DeepLinear(0, 3), "depth 0"),
    (lambda: Residual(1, 3), "depth 1"),
    (lambda: Convolutional((28, 28)), "channels, height and width"),
    (lambda: Convolutional(channels=(3, 3)), "2, 6, 6 and 6"),
    (lambda: Convolutional((1, 2, 2), (1,), (3,), (1,), (0,)), "convolution 1 leaves nothing"),
    (lambda: Convolutional().shapes(100), "784 entries but the data have 100"),
    (lambda: nets.net("two-layers:width=3"), "did you mean 'two-layer'"),
    (lambda: nets.net("two-layer:wdth=3"), "did you mean 'width'"),
    (lambda: nets.net("two-layer:width"), "'width' has no value"),
    (lambda: nets.net("two-layer"), "width is not given"),
    (lambda: nets.net("two-layer:width=many"), "give a whole number"),
    (lambda: nets.net("two-layer:width=3,mean_field=perhaps"), "write true or false"),
    (lambda: nets.net({"width": 3}), "unknown net"),
    (lambda: nets.net({"net": "convolutional", "channels": 3}), "joined by '-'"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_refusals_name_what_is_wrong(make, says):
    refusal(make, says)


def test_linear_is_a_dot_product():
    assert Linear()({"w": np.array([2.0, -1.0])}, np.array([[3.0, 4.0]]))[0] == 2.0
