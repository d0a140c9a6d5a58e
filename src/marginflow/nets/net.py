"""What every net is: a frozen architecture; its weights are a plain dict of named arrays, θ.

A net is immutable and hashable, so it can be a static argument of a compiled function; θ carries all numbers.
The forward pass is written once, in `stages`: the output and the representations inside cannot disagree.
"""

import abc
import dataclasses
import math
import operator
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError

Theta = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layer:
    """What one layer makes of every row of X: `pre` before its activation, `post` after it (equal at the output)."""

    name: str
    pre: Any
    post: Any


class Net(abc.ABC):
    """f(x; θ). Subclasses are frozen dataclasses whose fields are numbers, names, tuples of numbers or activations."""

    kind: ClassVar[str]

    @abc.abstractmethod
    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight array for inputs in R^d."""

    @abc.abstractmethod
    def stages(self, theta: Theta, X) -> Iterator[Layer]:
        """The forward pass on the rows of X, layer by layer; `post` of the last one is f."""

    @property
    @abc.abstractmethod
    def degree(self) -> int | None:
        """The k of f(x; cθ) = c^k f(x; θ), c > 0 scaling the trained weights; None if there is none."""

    @property
    @abc.abstractmethod
    def trained(self) -> tuple[str, ...]:
        """Names of the weight arrays that training moves; the others stay at their initial value."""

    @property
    def biases(self) -> dict[str, str]:
        """Name of each bias array -> name of the weight array it belongs to."""
        return {}

    def __call__(self, theta: Theta, X) -> Any:
        """f at the rows of X: (n,), or (n, outputs) for a net with several outputs. NumPy or JAX."""
        # A deque of length 1 keeps the last layer alone: the memory of those before it is free again at once.
        (last,) = deque(self.stages(*_accepted(theta, X)), maxlen=1)
        return last.post

    def layers(self, theta: Theta, X) -> tuple[Layer, ...]:
        """Every layer's representation of the rows of X, first to last."""
        return tuple(self.stages(*_accepted(theta, X)))

    def fans(self, d: int) -> dict[str, tuple[int, int]]:
        """(fan_in, fan_out) of every array; a kernel's count its area, a bias has those of its weights."""
        fans = {name: _fan(shape) for name, shape in self.shapes(d).items()}
        return {name: fans[self.biases.get(name, name)] for name in fans}

    def spec(self) -> dict[str, Any]:
        """The architecture as JSON values; `nets.net(spec)` gives it back."""
        return {"net": self.kind, **{f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}}  # type: ignore[arg-type]

    def __str__(self) -> str:
        fields = [f"{k}={_text(v)}" for k, v in self.spec().items() if k != "net"]
        return ":".join([self.kind, ",".join(fields)] if fields else [self.kind])


def trained_norm(net: Net, theta: Theta):
    """‖θ‖ over the trained weights, the norm of the normalised margin q_min/‖θ‖^degree (NumPy or JAX)."""
    return sum((theta[name] ** 2).sum() for name in net.trained) ** 0.5


def count(what: str, value: Any, least: int = 1) -> int:
    """`value` as an integer of at least `least`, or an InputError that names it."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what} {value!r} is not a whole number; give {what} of at least {least}") from None
    if number < least:
        raise InputError(f"{what} {number}; give {what} of at least {least}")
    return number


def _accepted(theta: Theta, X) -> tuple[Theta, Any]:
    """Arrays of NumPy and JAX as they are; lists and torch tensors as NumPy."""
    return {name: _array(w) for name, w in theta.items()}, _array(X)


def _array(x):
    return to_numpy(x) if hasattr(x, "detach") or isinstance(x, list | tuple) else x


def _fan(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) == 1:
        return shape[0], 1
    area = math.prod(shape[2:])
    return shape[1] * area, shape[0] * area


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value if isinstance(value, int | float | bool) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)
