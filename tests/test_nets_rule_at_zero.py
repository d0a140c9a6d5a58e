"""The rule at 0: 1{z > 0} in one place, and everything that decides which neurons are on agrees with it."""

import ast
from pathlib import Path

import numpy as np
import pytest

import marginflow
from marginflow import nets
from marginflow._core.arrays import double
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


# Whatever decides the sign of a pre-activation, as a function z -> on or off. Other rooms add their own lines.
NUMPY_DECIDERS = {
    "active": nets.active,
    "pattern": lambda z: nets.pattern(z) > 0,
    "relu's value": lambda z: nets.relu(z) > 0,
    "relu's slope": lambda z: nets.relu.slope(z, np) > 0,
    "leaky ReLU's slope": lambda z: nets.leaky(0.5).slope(z, np) > 0.5,
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
