"""Phuong & Lampert 2021, Fig. 2: a residual net on the same data: every weight matrix has rank two."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.figures.phuong2021_fig1 import SHOWN
from marginflow.experiments.spread import spread


@dataclasses.dataclass(frozen=True)
class Figure2(Experiment):
    """The data and optimiser of Fig. 1; depth 4 gives three matrices to look at and one output row."""

    name: ClassVar[str] = "phuong2021_fig2"
    title: ClassVar[str] = "Residual net: every layer has rank two, the first finds the max-margin directions"
    paper: ClassVar[str] = "phuong2021"

    n: int = 500
    d: int = 20
    depth: int = 4
    width: int = 100
    batch: int = 50
    lr: float = 0.1
    epochs: int = 500
    scale: float = 0.05
    seeds: int = 3
    data_seed: int = 0

    def quick(self) -> "Figure2":
        return dataclasses.replace(self, seeds=1)

    def measure(self) -> Any:
        import xarray

        from marginflow.data import phuong2021
        from marginflow.experiments.directions import class_directions
        from marginflow.flows.ensembles import ensemble, grid
        from marginflow.nets import Residual
        from marginflow.portrait import portrait

        data = phuong2021(n=self.n, d=self.d, seed=self.data_seed)
        net = Residual(depth=self.depth, width=self.width)
        trained = ensemble(
            net,
            data,
            grid(seeds=range(self.seeds), scales=(self.scale,), lrs=(self.lr,)),
            init="uniform",
            method="sgd",
            batch=self.batch,
            epochs=self.epochs,
            monitors=(),
        )
        *hidden, last = net.trained
        views = [
            [portrait(trained.theta[name][k], trained.theta[last][k, 0]) for name in hidden]
            for k in range(self.seeds)
        ]
        axes = class_directions(data)
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        first = trained.theta[hidden[0]]
        cosines = first @ axes.T / np.linalg.norm(first, axis=2, keepdims=True)
        before = [trained.theta0[name] for name in hidden]
        return xarray.Dataset(
            {
                "singular_values": (
                    ("seed", "layer", "index"),
                    [[v.singular_values[:SHOWN] for v in seed] for seed in views],
                ),
                "coordinates": (
                    ("seed", "layer", "neuron", "axis"),
                    [[v.coordinates for v in seed] for seed in views],
                ),
                "sign": (("seed", "neuron"), np.sign(trained.theta[last][:, 0])),
                "correlation": (("seed", "neuron"), cosines.max(axis=2)),
                "initial_norm": (
                    ("seed", "layer"),
                    [[np.linalg.norm(w[k], 2) for w in before] for k in range(self.seeds)],
                ),
                "log_loss": (("seed",), trained.log_loss),
            },
            coords={"seed": np.arange(self.seeds), "layer": list(hidden)},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        s, start = result.singular_values.values, result.initial_norm.values
        return (
            *(
                Number(
                    f"{name}: third singular value over the largest at the start",
                    float(np.median(s[:, l, 2] / start[:, l])),
                    "rank two",
                    (0, 1.25),
                    "no third direction grew: what is left is no larger than the initial weights, up to a quarter",
                )
                for l, name in enumerate(result.layer.values)
            ),
            Number(
                "W1: share of neurons with correlation above 0.9",
                float(np.mean(result.correlation.values > 0.9)),
                "most",
                (0.5, 1),
                "'most' is more than half, over all seeds",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        layers = result.sizes["layer"]
        fig, axes = style.figure(2, layers + 1)
        for l, name in enumerate(result.layer.values):
            s = result.singular_values.values[:, l]
            plots.singular_values(axes[0, l], spread(s).middle, s.min(axis=0), s.max(axis=0))
            axes[0, l].set_title(f"singular values of {name[0]}$_{name[1:]}$")
            plots.neurons(axes[1, l], result.coordinates.values[0, l], result.sign.values[0])
            axes[1, l].set_title(f"rows of {name[0]}$_{name[1:]}$, seed 0")
            legend = axes[1, l].get_legend()
            handles, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
            legend.remove()
        plots.histogram(
            axes[0, layers], result.correlation.values.ravel(), xlabel="cos with nearer max-margin direction"
        )
        axes[0, layers].set_title(f"rows of W$_1$, seeds: {result.sizes['seed']}")
        axes[1, layers].set_axis_off()
        axes[1, layers].legend(handles, labels, loc="center", title="neurons")
        return fig

    def note(self, result: Any) -> str:
        s = result.singular_values.values
        ratios = ", ".join(
            f"{name} {np.median(s[:, l, 1] / s[:, l, 0]):.2f} and {np.median(s[:, l, 2] / s[:, l, 0]):.2f}"
            for l, name in enumerate(result.layer.values)
        )
        return (
            f"Second and third singular value over the first: {ratios}. Rows are coloured by the sign of "
            "their output "
            "weight."
        )
