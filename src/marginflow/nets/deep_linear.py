"""Linear predictors: f(x) = wᵀx, and the same function as a product of matrices, f(x) = W_L ⋯ W_1 x (theory §2)."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from marginflow.nets.net import Layer, Net, Theta, count


@dataclasses.dataclass(frozen=True)
class Linear(Net):
    """w: (d,)."""

    kind: ClassVar[str] = "linear"

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        return {"w": (d,)}

    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        out = X @ theta["w"]
        yield Layer("w", out, out)

    @property
    def degree(self) -> int:
        return 1

    @property
    def trained(self) -> tuple[str, ...]:
        return ("w",)


@dataclasses.dataclass(frozen=True)
class DeepLinear(Net):
    """W1: (width, d), W2..: (width, width), W_depth: (1, width). With depth 1 it is one (1, d) matrix."""

    depth: int
    width: int

    kind: ClassVar[str] = "deep-linear"

    def __post_init__(self):
        object.__setattr__(self, "depth", count("depth", self.depth))
        object.__setattr__(self, "width", count("width", self.width))

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        sizes = [d, *[self.width] * (self.depth - 1), 1]
        return {f"W{l + 1}": (sizes[l + 1], sizes[l]) for l in range(self.depth)}

    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        h = X
        for name in self.trained[:-1]:
            h = h @ theta[name].T
            yield Layer(name, h, h)
        out = h @ theta[self.trained[-1]][0]
        yield Layer(self.trained[-1], out, out)

    def end_to_end(self, theta: Theta):
        """The vector w with f(x) = wᵀx: (W_L ⋯ W_1)ᵀ."""
        w = theta[self.trained[-1]][0]
        for name in reversed(self.trained[:-1]):
            w = w @ theta[name]
        return w

    @property
    def degree(self) -> int:
        return self.depth

    @property
    def trained(self) -> tuple[str, ...]:
        return tuple(f"W{l + 1}" for l in range(self.depth))
