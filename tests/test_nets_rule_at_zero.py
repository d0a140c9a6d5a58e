"""The rule at 0: 1{z > 0} in one place, and everything that decides which neurons are on agrees with it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import marginflow
from marginflow import nets, sectors
from marginflow._core.arrays import double
from marginflow.data import Dataset
from marginflow.nets import TwoLayer

Z = np.array([-np.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1e-300, 1.0, np.inf])
ON = np.array([False] * 5 + [True] * 4)
NORMAL = np.array([-np.inf, -1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0, np.inf])  # XLA takes subnormal numbers for 0
NORMAL_ON = np.array([False] * 5 + [True] * 3)


def _jax_gradient(activation):
    @double
    def decide(z):
        import jax

        return np.array([float(jax.grad(activation)(float(v))) for v in z]) > (activation.leak or 0.0)

    return decide


def _through_net(net):
    """Whether the weight w of a net with one neuron is moved by x = z: ∂f/∂w = a φ'(w x) x at w = z, x = 1."""

    @double
    def decide(z):
        import jax
        import jax.numpy as jnp

        def slope(w):
            return jax.grad(lambda W: net({"W": W, "a": jnp.ones(1)}, jnp.ones((1, 1)))[0])(jnp.full((1, 1), w))

        return np.array([float(slope(v)[0, 0]) for v in z]) > (net.activation.leak or 0.0)

    return decide


# Two examples e_1 and -e_2: the neuron w = (z, 1) has pre-activation z, exactly, on the first.
PAIR = Dataset([[1.0, 0.0], [0.0, -1.0]], [1, -1], "pair")


def _finite(decide):
    """For what refuses infinite weights: the largest finite numbers in their place."""
    return lambda z: decide(np.column_stack([np.clip(z, -1e300, 1e300), np.ones_like(z)]))


# Whatever decides the sign of a pre-activation, as a function z -> on or off. Every room has its lines here.
NUMPY_DECIDERS = {
    "active": nets.active,
    "pattern": lambda z: nets.pattern(z) > 0,
    "relu's value": lambda z: nets.relu(z) > 0,
    "relu's slope": lambda z: nets.relu.slope(z, np) > 0,
    "leaky ReLU's slope": lambda z: nets.leaky(0.5).slope(z, np) > 0.5,
    "sector of the stored w": _finite(lambda w: sectors.sector(PAIR, w, exact=True)[:, 0] > 0),
    "G": _finite(lambda w: sectors.G(PAIR, w, weights=[1.0, 0.0]) > 0),
}
JAX_DECIDERS = {
    "relu differentiated": _jax_gradient(nets.relu),
    "leaky ReLU differentiated": _jax_gradient(nets.leaky(0.5)),
    "two-layer net differentiated": _through_net(TwoLayer(1)),
    "leaky two-layer net differentiated": _through_net(TwoLayer(1, "leaky:0.5")),
}


@pytest.mark.parametrize("decide", NUMPY_DECIDERS.values(), ids=NUMPY_DECIDERS.keys())
def test_numpy_parts_agree(decide):
    assert np.array_equal(decide(Z), ON)


@pytest.mark.parametrize("decide", JAX_DECIDERS.values(), ids=JAX_DECIDERS.keys())
def test_jax_parts_agree(decide):
    assert np.array_equal(decide(NORMAL), NORMAL_ON)


def test_a_tie_in_a_rounded_direction_is_a_tie():
    """Where w carries rounding, a product within it is 0 in the sector, and so neither on nor off by accident."""
    data = Dataset([[1.0, 1.0], [0.0, -1.0]], [1, -1], "oblique")
    w = np.array([[1.0, -1.0 - 2**-52], [1.0, -1.0], [1.0, -1.0 + 2**-53]])
    assert sectors.sector(data, w)[:, 0].tolist() == [0, 0, 0]
    assert sectors.sector(data, w, exact=True)[:, 0].tolist() == [-1, 0, 1]


@double
def test_a_neuron_on_a_hyperplane_exerts_no_pull_in_a_descent():
    """One step of gd from w = (0, 1): the example whose hyperplane holds the neuron does not move it."""
    from marginflow.flows import train

    theta = {"W": np.array([[0.0, -1.0]]), "a": np.array([-1.0])}
    run = train(TwoLayer(1), theta, PAIR, method="gd", lr=0.1, epochs=1, progress=False)
    assert run.theta["W"][0, 0] == 0.0
    assert run.theta["W"][0, 1] < -1.0


def test_pattern_is_the_sign():
    assert nets.pattern(np.array([-2.0, -0.0, 0.0, 3.0])).tolist() == [-1, 0, 0, 1]
    assert nets.pattern(np.array([1.0])).dtype == np.int8


@pytest.mark.torch
def test_torch_has_the_same_rule():
    import torch

    for ours, theirs in ((nets.relu, torch.relu), (nets.leaky(0.5), lambda z: torch.nn.functional.leaky_relu(z, 0.5))):
        z = torch.tensor(NORMAL[1:-1], requires_grad=True)
        theirs(z).sum().backward()
        assert np.array_equal(z.grad.numpy(), ours.slope(NORMAL[1:-1], np))


def test_no_other_rule_is_written_down():
    """A second ReLU, with its own idea of 0, is how parts come to disagree."""
    home = Path(marginflow.__file__).parent
    second = {"relu", "leaky_relu", "relu6", "heaviside"}
    found = []
    for path in home.rglob("*.py"):
        if "bridges" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and call.attr in second:
                source = ast.unparse(call.value)
                if source.split(".")[0] in ("jax", "jnp", "np", "numpy", "torch", "nn", "xp", "scipy"):
                    found.append(f"{path.relative_to(home)}:{node.lineno} {source}.{call.attr}")
    assert found == []
