"""The convolutional net of theory §6 on the digits 0 and 1: trained once, read by two figures."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow.experiments.base import Experiment
from marginflow.experiments.minibatch import Course, Examples, Recipe, accuracy, train
from marginflow.experiments.trained import kept_trainings

RECORDED = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)  # epochs whose weights are kept, and the last one


@dataclasses.dataclass(frozen=True)
class DigitNet(Experiment):
    """Adam on the logistic loss (binary cross-entropy); `scale` multiplies the fully connected weights at the start.

    n: the first n training images, 0 for all. The paper names neither Adam's step size nor the initial law; those here
    are the frameworks' defaults. A step costs 8.6 GFLOP at batch 128 (23 MFLOP forward per image, three times that
    with the gradient), so 50 epochs of the 12665 images cost 43 TFLOP.
    """

    epochs: int = 50
    batch: int = 128
    lr: float = 1e-3
    scale: float = 0.05
    n: int = 0
    seeds: int = 1
    seed: int = 0

    @property
    def net(self) -> Any:
        from marginflow.nets import Convolutional

        return Convolutional()

    def digits(self) -> tuple[Any, Any]:
        """(training set, test set); the digit 1 is the positive class."""
        from marginflow.data.images import mnist

        return mnist("0", "1", n=self.n or None), mnist("0", "1", split="test")

    def course(self, data: Any, seed: int) -> Course:
        """The weights at the recorded epochs."""
        from marginflow.nets import inits

        if self.scale < 0:
            raise InputError(f"scale {self.scale}; give a factor of at least 0")
        net = self.net
        recipe = Recipe("logistic", "adam", self.lr, self.batch, self.epochs, seed)
        scales = dict.fromkeys(net.fully_connected, self.scale)
        return train(
            net,
            inits.uniform(net, data.d, scales, seed),
            Examples(data.X, data.y.astype(np.float32)),
            recipe,
            record_at=[e * recipe.per_epoch(data.n) for e in RECORDED if e <= self.epochs],
            observe=lambda theta: theta,
            label=f"MNIST 0 against 1, seed {seed}",
            checkpoints=kept_trainings(),
        )


def weights(course: Course, k: int) -> dict[str, np.ndarray]:
    """θ at record k; -1 is the end."""
    return {name: values[k] for name, values in course.records.items()}


def right(net: Any, theta: Mapping[str, Any], data: Any) -> float:
    """Accuracy on a data set."""
    return accuracy(net, theta, Examples(data.X, data.y))


def representations(net: Any, theta: Mapping[str, Any], X: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """("x", the input), then for every layer "<l> before" and "<l> after" its activation, rows flattened; the output
    once, as "8". One at a time, since the first maps of a thousand images are 100 MB each."""
    import jax.numpy as jnp

    yield "x", X
    names = list(net.shapes(X.shape[1]))
    last = net.fully_connected[-1]
    arrays = {name: jnp.asarray(theta[name]) for name in names}
    for layer in net.stages(arrays, jnp.asarray(X)):
        number = layer.name.removeprefix("W")
        if layer.name == last:
            yield number, np.asarray(layer.pre).reshape(len(X), -1)
            return
        yield f"{number} before", np.asarray(layer.pre).reshape(len(X), -1)
        yield f"{number} after", np.asarray(layer.post).reshape(len(X), -1)


def represented(
    net: Any, theta: Mapping[str, Any], X: np.ndarray, names: Collection[str], block: int = 500
) -> dict[str, np.ndarray]:
    """The named representations of many rows, block by block."""
    blocks = [
        {name: R for name, R in representations(net, theta, X[k : k + block]) if name in names}
        for k in range(0, len(X), block)
    ]
    return {name: np.concatenate([b[name] for b in blocks]) for name in names}
