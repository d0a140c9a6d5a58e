"""What theorems look at. `Subject`: data and net, before training. `Evidence`: weights, with their run if
there is one.

Both compute each expensive quantity once, so that fourteen theorems share one w+ and one set of conditions.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from marginflow import losses
from marginflow._core.arrays import to_numpy
from marginflow._core.errors import InputError
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net, Theta
from marginflow.nets.two_layer import TwoLayer
from marginflow.nets.weights import double_weights
from marginflow.runs import Run


class Subject:
    """Data and net. Conditions and margins are computed on first use and kept."""

    def __init__(self, net: Net, data: Dataset):
        self.net, self.data = net, data
        self._known: dict[Any, Any] = {}

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The value under `key`, computed on first use."""
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]

    def condition(self, name: str, **options: Any):
        from marginflow.conditions import check

        key = (name, tuple(sorted(options.items())))
        return self.once(key, lambda: check(self.data, conditions=[name], **options).conditions[name])

    @cached_property
    def positive_margin(self):
        from marginflow import margins

        return margins.positive(self.data)

    @cached_property
    def negative_margin(self):
        from marginflow import margins

        return margins.negative(self.data)

    @cached_property
    def linear_margin(self):
        from marginflow import margins

        return margins.linear(self.data)

    @cached_property
    def f1(self):
        from marginflow import margins

        return margins.f1(self.data, activation=self.two_layer.activation.name)

    @cached_property
    def f2(self):
        from marginflow import margins

        return margins.f2(self.data)

    @cached_property
    def extremal(self):
        from marginflow import sectors

        return sectors.extremal(self.data)

    @property
    def two_layer(self) -> TwoLayer:
        if not isinstance(self.net, TwoLayer):
            raise InputError(f"this theorem is about two-layer nets, not {type(self.net).__name__}")
        return self.net

    @property
    def is_relu(self) -> bool:
        return isinstance(self.net, TwoLayer) and self.net.activation.leak == 0.0

    @property
    def leak(self) -> float | None:
        return self.net.activation.leak if isinstance(self.net, TwoLayer) else None


class Evidence(Subject):
    """Weights to be judged. With a run that reached t = ∞, `theta` is the limit direction and `last` the
    integrated state.
    """

    def __init__(self, net: Net, theta: Theta, data: Dataset, run: Run | None = None, loss: str = "logistic"):
        super().__init__(net, data)
        self.run = run
        self.last = double_weights(theta, net, data.d)
        self.theta = self.last
        if run is not None and run.limit is not None:
            self.theta = double_weights(run.limit.theta, net, data.d)
        if not any(self.theta[name].any() for name in net.trained):
            raise InputError(
                "the trained weights are all zero and have no direction; give weights that were trained"
            )
        self.loss = losses.loss(run.loss if run is not None else loss)

    @property
    def at_limit(self) -> bool:
        return self.run is not None and (self.run.limit is not None or self.run.log_time == np.inf)

    @cached_property
    def margins(self) -> np.ndarray:
        """q_i = y_i f(x_i; θ)."""
        return self.data.y * np.asarray(self.net(self.theta, self.data.X), np.float64)

    @cached_property
    def norm_squared(self) -> float:
        """‖θ‖² over the trained weights."""
        return sum(float(np.sum(self.theta[k] ** 2)) for k in self.net.trained)

    @property
    def normalised_margin(self) -> float:
        """q_min/‖θ‖^k, k the degree of homogeneity."""
        degree = self.net.degree
        if not degree or not self.norm_squared > 0:
            return np.nan
        return float(self.margins.min() / self.norm_squared ** (degree / 2))

    @cached_property
    def log_loss(self) -> float:
        """log Σ ℓ(q_i) of the last integrated weights."""
        q = self.data.y * np.asarray(self.net(self.last, self.data.X), np.float64)
        return float(losses.log_total(self.loss, q))

    @cached_property
    def initial_norm_squared(self) -> float:
        """‖θ(0)‖²; 0 when the initial weights are not known."""
        if self.run is None:
            return 0.0
        return sum(float(np.sum(to_numpy(self.run.theta0[k], np.float64) ** 2)) for k in self.net.trained)

    @property
    def separates(self) -> bool:
        return bool(self.margins.min() > 0)

    @cached_property
    def kkt(self):
        from marginflow import margins

        return margins.kkt(self.net, self.theta, self.data)
