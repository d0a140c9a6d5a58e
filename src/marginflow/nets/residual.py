"""The residual net of theory §6: f¹ = W_1 x, f^l = f^{l-1} + W_l ρ(f^{l-1}) for l = 2..L-1, f = W_L ρ(f^{L-1})."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from marginflow.nets.activations import Activation, activation, relu
from marginflow.nets.net import Layer, Net, Theta, count


@dataclasses.dataclass(frozen=True)
class Residual(Net):
    """W1: (width, d), W2..W_{L-1}: (width, width), W_L: (1, width), L = depth >= 2.

    A layer's `pre` is the representation f^l, its `post` is ρ(f^l). The skip connections add terms of different
    order in θ, so beyond depth 2 the net is homogeneous in (W_1, W_L) alone and has no degree.
    """

    depth: int = 4
    width: int = 100
    activation: Activation = relu

    kind: ClassVar[str] = "residual"

    def __post_init__(self):
        object.__setattr__(self, "depth", count("depth", self.depth, least=2))
        object.__setattr__(self, "width", count("width", self.width))
        object.__setattr__(self, "activation", activation(self.activation))

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        first, *middle, last = self.trained
        return {first: (self.width, d), **dict.fromkeys(middle, (self.width, self.width)), last: (1, self.width)}

    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        first, *middle, last = self.trained
        f = X @ theta[first].T
        rho = self.activation(f)
        yield Layer(first, f, rho)
        for name in middle:
            f = f + rho @ theta[name].T
            rho = self.activation(f)
            yield Layer(name, f, rho)
        out = rho @ theta[last][0]
        yield Layer(last, out, out)

    @property
    def degree(self) -> int | None:
        inner = self.activation.degree
        return inner + 1 if self.depth == 2 and inner is not None else None

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(f"W{l + 1}" for l in range(self.depth))
