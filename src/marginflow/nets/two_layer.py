"""f(x) = s Σ_j a_j φ(w_jᵀx): the net of systems A, B and C."""

import dataclasses
from typing import Literal

from marginflow._core.errors import InputError
from marginflow.nets.activations import Activation, activation, relu
from marginflow.nets.net import Net, Theta


@dataclasses.dataclass(frozen=True)
class TwoLayer(Net):
    """W: (width, d), a: (width,). `train` says which layers move; `mean_field` puts 1/width in front (theory §5)."""

    width: int
    activation: Activation = relu
    train: Literal["both", "input", "output"] = "both"
    mean_field: bool = False

    def __post_init__(self):
        object.__setattr__(self, "activation", activation(self.activation))
        if self.width < 1:
            raise InputError(f"width {self.width}; give a width of at least 1")
        if self.train not in ("both", "input", "output"):
            raise InputError(f"train '{self.train}'; choose both, input or output")

    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        return {"W": (self.width, d), "a": (self.width,)}

    def __call__(self, theta: Theta, X):
        out = self.activation(X @ theta["W"].T) @ theta["a"]
        return out / self.width if self.mean_field else out

    @property
    def degree(self) -> int | None:
        inner = self.activation.degree
        if self.train == "output":
            return 1
        if inner is None:
            return None
        return inner if self.train == "input" else inner + 1

    @property
    def trained(self) -> tuple[str, ...]:
        return {"both": ("W", "a"), "input": ("W",), "output": ("a",)}[self.train]
