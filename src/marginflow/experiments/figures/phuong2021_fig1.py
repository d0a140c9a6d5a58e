"""Phuong & Lampert 2021, Fig. 1: a two-layer ReLU net on orthogonally separable data becomes two neurons."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.spread import spread

SHOWN = 10  # singular values, as in the paper
RAY = np.deg2rad(20.0)  # neurons this close to their class's ray in the plane count as on it


@dataclasses.dataclass(frozen=True)
class Figure1(Experiment):
    """Every field is a value of the paper but `seeds` and `data_seed`; `scale` multiplies the framework's defaults."""

    name: ClassVar[str] = "phuong2021_fig1"
    title: ClassVar[str] = "Two-layer net: two singular values, two rays, max-margin directions"
    paper: ClassVar[str] = "phuong2021"

    n: int = 500
    d: int = 20
    width: int = 100
    batch: int = 50
    lr: float = 0.1
    epochs: int = 500
    scale: float = 0.05
    seeds: int = 5
    data_seed: int = 0

    def quick(self) -> "Figure1":
        return dataclasses.replace(self, seeds=2)

    def measure(self) -> Any:
        import xarray

        from marginflow.data import phuong2021
        from marginflow.experiments.directions import class_directions
        from marginflow.flows.ensembles import ensemble, grid
        from marginflow.nets import TwoLayer
        from marginflow.portrait import portrait

        data = phuong2021(n=self.n, d=self.d, seed=self.data_seed)
        members = grid(seeds=range(self.seeds), scales=(self.scale,), lrs=(self.lr,))
        trained = ensemble(
            TwoLayer(self.width),
            data,
            members,
            init="uniform",
            method="sgd",
            batch=self.batch,
            epochs=self.epochs,
        )
        w_plus, w_minus = class_directions(data)
        views = [
            portrait(W, a, w_plus, w_minus)
            for W, a in zip(trained.theta["W"], trained.theta["a"], strict=True)
        ]
        initial = [np.linalg.svd(W, compute_uv=False)[:SHOWN] for W in trained.theta0["W"]]
        return xarray.Dataset(
            {
                "singular_values": (("seed", "index"), [v.singular_values[:SHOWN] for v in views]),
                "initial_singular_values": (("seed", "index"), initial),
                "coordinates": (("seed", "neuron", "axis"), [v.coordinates for v in views]),
                "sign": (("seed", "neuron"), [v.sign for v in views]),
                "correlation": (("seed", "neuron"), [v.alignment for v in views]),
                "directions": (("seed", "class", "axis"), [v.directions for v in views]),
                "log_loss": (("seed",), trained.log_loss),
            },
            coords={"seed": np.arange(self.seeds), "class": ["positive", "negative"]},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        s = result.singular_values.values
        correlation = result.correlation.values
        return (
            Number(
                "singular values above 5% of the largest",
                float(np.median((s > 0.05 * s[:, :1]).sum(axis=1))),
                2,
                (2, 2),
                "the paper's panel (a) shows two dots off zero; median over seeds",
            ),
            Number(
                "third singular value over the second",
                float(np.median(s[:, 2] / s[:, 1])),
                "effectively zero",
                (0, 0.2),
                "a fifth of the smaller of the two dots still looks like zero; written before ours was known",
            ),
            Number(
                "third singular value over the largest at the start",
                float(np.median(s[:, 2] / result.initial_singular_values.values[:, 0])),
                "rank two",
                (0, 1.25),
                "no third direction grew: what is left is no larger than the initial weights, up to a quarter",
            ),
            Number(
                "share of neurons with correlation above 0.9",
                float(np.mean(correlation > 0.9)),
                "most",
                (0.5, 1),
                "'most' is more than half, over all seeds",
            ),
            Number(
                "share of neurons on the ray of their sign",
                float(np.mean([on_ray(*v) for v in self._planes(result)])),
                "two rays",
                (0.5, 1),
                "within 20 degrees of the projected max-margin direction, weighted by squared norm",
            ),
        )

    def _planes(self, result: Any):
        return zip(result.coordinates.values, result.sign.values, result.directions.values, strict=True)

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, ((left, middle, right),) = style.figure(1, 3)
        s = result.singular_values.values
        low, mid, high = s.min(axis=0), spread(s).middle, s.max(axis=0)
        plots.singular_values(left, mid, low, high, label="after training")
        plots.initial_singular_values(left, spread(result.initial_singular_values.values).middle)
        left.set_title("(a) singular values of W")
        left.legend()
        plots.neurons(
            middle, result.coordinates.values[0], result.sign.values[0], result.directions.values[0]
        )
        middle.set_title("(b) neurons, seed 0")
        middle.margins(0.14)
        plots.histogram(right, result.correlation.values.ravel(), xlabel="cos with own max-margin direction")
        right.set_title(f"(c) all {result.correlation.size} neurons, seeds: {len(s)}")
        return fig

    def note(self, result: Any) -> str:
        shares = np.mean(result.correlation.values > 0.9, axis=1)
        s, start = result.singular_values.values, result.initial_singular_values.values
        return (
            f"Share above 0.9 by seed: {shares.min():.2f} to {shares.max():.2f}. The paper shows one run; dots are "
            "medians over seeds, bars the extremes. The third singular value is "
            f"{np.median(s[:, 2] / s[:, 1]):.3f} of the second and {np.median(s[:, 2] / s[:, 0]):.3f} of the first. "
            f"It is what the initial weights left, {np.median(s[:, 2] / start[:, 2]):.2f} times the third at the "
            "start, so the ratio is set by the initial scale and by nothing that training does. The paper prints no "
            "values; whether its third lies lower cannot be read off."
        )


def on_ray(coordinates: np.ndarray, sign: np.ndarray, directions: np.ndarray) -> float:
    """Share of squared norm within `RAY` of the ray of its sign: + towards the first direction, - the second."""
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    own = np.where(sign[:, None] > 0, unit[0], unit[1])
    length = np.linalg.norm(coordinates, axis=1)
    near = np.sum(coordinates * own, axis=1) >= np.cos(RAY) * length
    return float((length[near] ** 2).sum() / (length**2).sum())
