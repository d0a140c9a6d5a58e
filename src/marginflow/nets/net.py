"""What every net is: a frozen architecture; its weights are a plain dict of named arrays, θ.

A net is immutable and hashable, so it can be a static argument of a compiled function; θ carries all numbers.
"""

import abc
from collections.abc import Mapping
from typing import Any

Theta = Mapping[str, Any]


class Net(abc.ABC):
    """f(x; θ). `degree` is the k of f(x; cθ) = c^k f(x; θ) over the trained weights, None if there is none."""

    @abc.abstractmethod
    def shapes(self, d: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every weight array for inputs in R^d."""

    @abc.abstractmethod
    def __call__(self, theta: Theta, X) -> Any:
        """Outputs for the rows of X, shape (n,); (n, outputs) for a net with several outputs."""

    @property
    @abc.abstractmethod
    def degree(self) -> int | None: ...

    @property
    @abc.abstractmethod
    def trained(self) -> tuple[str, ...]:
        """Names of the weight arrays that training moves; the others stay at their initial value."""
