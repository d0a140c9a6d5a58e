"""Convolutions, then fully connected layers: the feature extractor and the two-layer head of theory §6.

The papers give the head, 128 × 3136 and 1 × 128, so the last feature map is 64 × 7 × 7; kernels of 3 with padding 1,
two of them with stride 2, are the plain choice that arrives there from 28 × 28. Every number of it is a field.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.logs import namespace
from marginflow.nets.activations import Activation, activation, relu
from marginflow.nets.net import Layer, Net, Theta, count


@dataclasses.dataclass(frozen=True)
class Convolutional(Net):
    """Rows of X are images of `image` = (channels, height, width), flattened in that order.

    W1..WC: (channels[l], previous channels, kernels[l], kernels[l]); then matrices (hidden, features) and (1, hidden);
    b1.. one vector per layer. With biases the net has no degree: they enter at lower order than the weights.
    """

    image: tuple[int, ...] = (1, 28, 28)
    channels: tuple[int, ...] = (32, 32, 64, 64, 64, 64)
    kernels: tuple[int, ...] = (3, 3, 3, 3, 3, 3)
    strides: tuple[int, ...] = (1, 2, 1, 2, 1, 1)
    paddings: tuple[int, ...] = (1, 1, 1, 1, 1, 1)
    hidden: tuple[int, ...] = (128,)
    activation: Activation = relu
    bias: bool = True

    kind: ClassVar[str] = "convolutional"

    def __post_init__(self):
        for name in ("image", "channels", "kernels", "strides", "paddings", "hidden"):
            values = tuple(count(name, v, least=0 if name == "paddings" else 1) for v in getattr(self, name))
            object.__setattr__(self, name, values)
        object.__setattr__(self, "activation", activation(self.activation))
        object.__setattr__(self, "bias", bool(self.bias))
        if len(self.image) != 3:
            raise InputError(f"image {self.image}; give channels, height and width")
        if not len(self.channels) == len(self.kernels) == len(self.strides) == len(self.paddings) > 0:
            raise InputError(f"channels, kernels, strides and paddings have {len(self.channels)}, {len(self.kernels)}, "
                             f"{len(self.strides)} and {len(self.paddings)} entries; give one of each per convolution")
        _ = self.maps

    @property
    def maps(self) -> tuple[tuple[int, int, int], ...]:
        """(channels, height, width) of every convolution's output."""
        out, (_, *sides) = [], self.image
        for l, (c, k, s, p) in enumerate(zip(self.channels, self.kernels, self.strides, self.paddings, strict=True), 1):
            sides = [(side + 2 * p - k) // s + 1 for side in sides]
            if min(sides) < 1:
                raise InputError(f"convolution {l} leaves nothing of its image; lower kernels[{l - 1}] = {k}")
            out.append((c, *sides))
        return tuple(out)

    @property
    def convolutions(self) -> tuple[str, ...]:
        return tuple(f"W{l}" for l in range(1, len(self.channels) + 1))

    @property
    def fully_connected(self) -> tuple[str, ...]:
        """Names of the head's matrices; the papers scale these, and not the convolutions, at initialisation."""
        first = len(self.channels) + 1
        return tuple(f"W{l}" for l in range(first, first + len(self.hidden) + 1))

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        if d != math.prod(self.image):
            raise InputError(f"images of {' x '.join(map(str, self.image))} have {math.prod(self.image)} entries but "
                             f"the data have {d} columns; set image to the data's channels, height and width")
        shapes: dict[str, tuple[int, ...]] = {}
        before = self.image[0]
        for name, c, k in zip(self.convolutions, self.channels, self.kernels, strict=True):
            shapes[name] = (c, before, k, k)
            before = c
        sizes = (math.prod(self.maps[-1]), *self.hidden, 1)
        for l, name in enumerate(self.fully_connected):
            shapes[name] = (sizes[l + 1], sizes[l])
        return {**shapes, **{bias: (shapes[weight][0],) for bias, weight in self.biases.items()}}

    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        bias = {weight: theta[b] for b, weight in self.biases.items()}
        h = X.reshape(len(X), *self.image)
        for name, s, p in zip(self.convolutions, self.strides, self.paddings, strict=True):
            pre = convolve(h, theta[name], s, p)
            pre = pre + bias[name][:, None, None] if self.bias else pre
            h = self.activation(pre)
            yield Layer(name, pre, h)
        h = h.reshape(len(X), -1)
        *inner, last = self.fully_connected
        for name in inner:
            pre = h @ theta[name].T
            pre = pre + bias[name] if self.bias else pre
            h = self.activation(pre)
            yield Layer(name, pre, h)
        out = h @ theta[last][0]
        out = out + bias[last][0] if self.bias else out
        yield Layer(last, out, out)

    @property
    def biases(self) -> dict[str, str]:
        return {f"b{name[1:]}": name for name in (*self.convolutions, *self.fully_connected)} if self.bias else {}

    @property
    def degree(self) -> int | None:
        if self.bias or self.activation.degree is None:
            return None
        # Layer l+1 multiplies φ of something of degree k_l: k_{l+1} = 1 + (degree of φ) k_l, k_1 = 1.
        degree = 1
        for _ in range(len(self.channels) + len(self.hidden)):
            degree = 1 + self.activation.degree * degree
        return degree

    @property
    def trained(self) -> tuple[str, ...]:
        return (*self.convolutions, *self.fully_connected, *self.biases)


def convolve(images, kernels, stride: int, padding: int):
    """Cross-correlation of images (n, c, h, w) with kernels (o, c, k, k), zeros outside the image."""
    if namespace(images) is np and namespace(kernels) is np:
        return _convolve_numpy(images, kernels, stride, padding)
    import jax.numpy as jnp
    from jax import lax

    dtype = jnp.result_type(images, kernels)
    pads = [(padding, padding), (padding, padding)]
    return lax.conv_general_dilated(jnp.asarray(images, dtype), jnp.asarray(kernels, dtype), (stride, stride), pads,
                                    dimension_numbers=("NCHW", "OIHW", "NCHW"))


def _convolve_numpy(images: np.ndarray, kernels: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """One matrix product per position in the kernel: nothing larger than the images is ever formed."""
    k = kernels.shape[-1]
    padded = np.pad(images, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    height, width = ((side - k) // stride + 1 for side in padded.shape[2:])
    out = np.zeros((len(images), height, width, len(kernels)), np.result_type(images, kernels))
    for row in range(k):
        for column in range(k):
            seen = padded[:, :, row : row + stride * height : stride, column : column + stride * width : stride]
            out += np.tensordot(seen, kernels[:, :, row, column], axes=(1, 1))
    return out.transpose(0, 3, 1, 2)
