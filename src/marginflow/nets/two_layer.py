"""f(x) = s Σ_j a_j φ(w_jᵀx), s = 1 or 1/width: the net of systems A, B and C.

System A trains both layers of a ReLU net; system B trains the input layer of a leaky one with a_j = ±1/√m fixed;
system C scales by 1/m, and trains both layers, the output layer alone (F2), or the input layer with a_j = ±1 fixed
and φ = ρ², which is the S-ReLU neuron ερ(wᵀx)² (theory §§3-5).
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

from marginflow._core.errors import unknown_name
from marginflow.nets.activations import Activation, activation, relu
from marginflow.nets.net import Layer, Net, Theta, count

_TRAINED = {"both": ("W", "a"), "input": ("W",), "output": ("a",)}


@dataclasses.dataclass(frozen=True)
class TwoLayer(Net):
    """W: (width, d); a: (width,), or (outputs, width) when there are several outputs.

    `train` says which layers move; `mean_field` puts 1/width in front.
    """

    width: int
    activation: Activation = relu
    train: Literal["both", "input", "output"] = "both"
    mean_field: bool = False
    outputs: int = 1

    kind: ClassVar[str] = "two-layer"

    def __post_init__(self):
        object.__setattr__(self, "activation", activation(self.activation))
        object.__setattr__(self, "width", count("width", self.width))
        object.__setattr__(self, "outputs", count("outputs", self.outputs))
        object.__setattr__(self, "mean_field", bool(self.mean_field))
        if self.train not in _TRAINED:
            raise unknown_name("choice of trained layers", str(self.train), _TRAINED)

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        return {"W": (self.width, d), "a": (self.width,) if self.outputs == 1 else (self.outputs, self.width)}

    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        pre = X @ theta["W"].T
        post = self.activation(pre)
        yield Layer("W", pre, post)
        out = post @ theta["a"].T
        out = out / self.width if self.mean_field else out
        yield Layer("a", out, out)

    @property
    def degree(self) -> int | None:
        if self.train == "output":
            return 1
        inner = self.activation.degree
        if inner is None or self.train == "input":
            return inner
        return inner + 1

    @property
    def trained(self) -> tuple[str, ...]:
        return _TRAINED[self.train]
