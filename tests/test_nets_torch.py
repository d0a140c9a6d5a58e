"""Every net against the same net written in PyTorch: outputs and all gradients in float64."""

import numpy as np
import pytest
from cases import NETS

from marginflow._core.arrays import double
from marginflow.nets import Convolutional, DeepLinear, Linear, Residual, TwoLayer

pytestmark = pytest.mark.torch


def torch_activation(phi, z):
    import torch.nn.functional as F

    head, _, leak = phi.name.partition(":")
    if head == "smooth-leaky":
        return float(leak) * z + (1 - float(leak)) * (F.softplus(z) - np.log(2.0))
    return {"relu": F.relu, "linear": lambda z: z, "srelu": lambda z: F.relu(z) ** 2,
            "leaky": lambda z: F.leaky_relu(z, float(leak or 0))}[head](z)


def torch_net(net, w, x):
    import torch.nn.functional as F

    phi = lambda z: torch_activation(net.activation, z)  # noqa: E731
    if isinstance(net, TwoLayer):
        out = F.linear(phi(F.linear(x, w["W"])), w["a"].reshape(net.outputs, -1))
        return out / net.width if net.mean_field else out
    if isinstance(net, Linear):
        return F.linear(x, w["w"][None])
    if isinstance(net, DeepLinear):
        for name in net.trained:
            x = F.linear(x, w[name])
        return x
    if isinstance(net, Residual):
        first, *middle, last = net.trained
        f = F.linear(x, w[first])
        for name in middle:
            f = f + F.linear(phi(f), w[name])
        return F.linear(phi(f), w[last])
    assert isinstance(net, Convolutional)
    x = x.reshape(-1, *net.image)
    for l, (stride, padding) in enumerate(zip(net.strides, net.paddings, strict=True), 1):
        x = phi(F.conv2d(x, w[f"W{l}"], w.get(f"b{l}"), stride, padding))
    x = x.flatten(1)
    for name in net.fully_connected:
        x = F.linear(x, w[name], w.get(f"b{name[1:]}"))
        x = x if name == net.fully_connected[-1] else phi(x)
    return x


@pytest.mark.parametrize(("net", "d"), NETS.values(), ids=NETS.keys())
@double
def test_outputs_and_gradients_agree(net, d):
    import jax
    import torch

    rng = np.random.default_rng(4)
    theta = {name: rng.standard_normal(shape) / shape[-1] ** 0.5 for name, shape in net.shapes(d).items()}
    X = rng.standard_normal((5, d))
    ours = net(theta, X)
    v = rng.standard_normal(ours.shape)

    w = {name: torch.tensor(value, requires_grad=True) for name, value in theta.items()}
    theirs = torch_net(net, w, torch.tensor(X)).reshape(ours.shape)
    (torch.tensor(v) * theirs).sum().backward()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-11, atol=1e-13)

    gradient = jax.jit(jax.grad(lambda theta: (v * net(theta, X)).sum()))(theta)
    for name in theta:
        np.testing.assert_allclose(gradient[name], w[name].grad.numpy(), rtol=1e-10, atol=1e-12, err_msg=name)


def test_torch_tensors_are_accepted():
    import torch

    net, d = TwoLayer(4), 3
    theta = {name: torch.ones(shape, dtype=torch.float64, requires_grad=True) for name, shape in net.shapes(d).items()}
    out = net(theta, torch.ones(2, d, dtype=torch.float64))
    assert isinstance(out, np.ndarray)
    assert out.tolist() == [12.0, 12.0]
