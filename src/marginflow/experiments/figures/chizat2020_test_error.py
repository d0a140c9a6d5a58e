"""Chizat & Bach 2020: test error against the number of examples and against the dimension, both layers and output."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.spread import spread

TEST_POINTS = 4000
STAGES = ("steps", "optimum")
LABELS = {"both": "both layers (F$_1$)", "output": "output layer (F$_2$)"}


def errors_of(sizes: Any, k: int, width: int, step: float, steps: int, seeds: int) -> Any:
    """(stage, layers, size, seed) test errors and margins over pairs (n, d); every seed draws its own problem."""
    import xarray

    from marginflow.data import chizat2020
    from marginflow.experiments import mean_field

    shape = (len(STAGES), len(mean_field.LAYERS), len(sizes), seeds)
    errors, margins = np.full(shape, np.nan), np.full(shape, np.nan)
    for i, (n, d) in enumerate(sizes):
        for seed in range(seeds):
            data = chizat2020(n=n, d=d, k=k, seed=seed, labels_seed=seed)
            test = chizat2020(n=TEST_POINTS, d=d, k=k, seed=10_000 + seed, labels_seed=seed)
            for l, train in enumerate(mean_field.LAYERS):
                trained = mean_field.ascend(data, train, (width,), (seed,), steps, step)
                errors[0, l, i, seed] = mean_field.test_errors(trained, test)[0]
                margins[0, l, i, seed] = np.nanmax(mean_field.unit_norm_margins(trained))
                settled = mean_field.optimum(trained, 0)
                if settled is not None:
                    errors[1, l, i, seed] = mean_field.test_error(settled, test)
                    margins[1, l, i, seed] = settled.margin
    axes = ("stage", "layers", "size", "seed")
    return xarray.Dataset(
        {
            "test_error": (axes, errors),
            "margin": (axes, margins),
            "n": (("size",), [n for n, _ in sizes]),
            "d": (("size",), [d for _, d in sizes]),
        },
        coords={"stage": list(STAGES), "layers": list(mean_field.LAYERS), "seed": np.arange(seeds)},
    )


def mean_errors(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of both layers and of the output layer, at the optimum, over seeds."""
    mean = result.test_error.sel(stage="optimum").mean("seed")
    return mean.sel(layers="both").values, mean.sel(layers="output").values


def drawn(result: Any, axis: str, xlabel: str, log: bool) -> Any:
    from marginflow.report import plots, style

    fig, ((ax,),) = style.figure(1, 1, width=4.6, height=3.6)
    x = result[axis].values
    for name, color, marker in (("both", style.POSITIVE, "^"), ("output", style.NEGATIVE, "v")):
        for stage, look in (("optimum", {"ls": "-", "marker": marker}), ("steps", {"ls": "--", "lw": 1.0})):
            band = spread(result.test_error.sel(layers=name, stage=stage), axis=1)
            label = LABELS[name] + ("" if stage == "optimum" else ", by steps alone")
            shade = (band.low, band.high) if stage == "optimum" else (None, None)
            plots.curve(ax, x, band.middle, label, color, *shade, **look)
    if log:
        ax.set_xscale("log", base=2)
        ax.set_xticks(x, [str(v) for v in x])
    else:
        ax.set_xticks(x)
    ax.set(xlabel=xlabel, ylabel="test error", ylim=(0, None))
    fig.legend(loc="outside lower center", ncols=2, fontsize=8)
    return fig


def remark(result: Any, steps: int, width: int) -> str:
    margin = result.margin.sel(stage="steps").values
    return (
        "Median and quartiles over seeds, each its own labels and points. Solid: optimal masses on the "
        "directions of the "
        f"net after {steps} steps of width {width}; dashed: that net itself. {int((margin > 0).sum())} of "
        f"{margin.size} "
        "nets separate their examples by steps alone, which is why the solid curves are compared. The "
        "paper takes 50000 "
        "to 500000 steps of width 1000 (--set steps=50000 --set width=1000)."
    )


@dataclasses.dataclass(frozen=True)
class AgainstExamples(Experiment):
    name: ClassVar[str] = "chizat2020_test_error_n"
    title: ClassVar[str] = "Test error against the number of examples"
    paper: ClassVar[str] = "chizat2020"

    examples: tuple[int, ...] = (32, 64, 128, 256, 512)
    d: int = 15
    k: int = 3
    width: int = 300
    step: float = 0.5
    steps: int = 8000
    seeds: int = 3

    def quick(self) -> "AgainstExamples":
        # Narrower nets, or fewer steps, are not near the optimum: both layers then lose to the output layer.
        return dataclasses.replace(self, examples=(self.examples[0], self.examples[-1]), seeds=3)

    def measure(self) -> Any:
        sizes = [(n, self.d) for n in self.examples]
        return errors_of(sizes, self.k, self.width, self.step, self.steps, self.seeds)

    def numbers(self, result: Any) -> tuple[Number, ...]:
        both, output = mean_errors(result)
        return (
            Number(
                f"both layers: error at n = {self.examples[-1]} over that at n = {self.examples[0]}",
                float(both[-1] / both[0]),
                "falls with n",
                (0, 0.75),
                "a fall by a quarter is the least that stands clear of the spread over seeds",
            ),
            Number(
                f"error of both layers over that of the output layer, n = {self.examples[-1]}",
                float(both[-1] / output[-1]),
                "lower",
                (0, 1),
                "the F1 margin depends on two relevant directions, the F2 margin on all d",
            ),
        )

    def draw(self, result: Any) -> Any:
        return drawn(result, "n", "number of examples n", log=True)

    def note(self, result: Any) -> str:
        return remark(result, self.steps, self.width)


@dataclasses.dataclass(frozen=True)
class AgainstDimension(Experiment):
    name: ClassVar[str] = "chizat2020_test_error_d"
    title: ClassVar[str] = "Test error against the dimension"
    paper: ClassVar[str] = "chizat2020"

    dimensions: tuple[int, ...] = (5, 10, 15, 20, 25)
    n: int = 256
    k: int = 3
    width: int = 300
    step: float = 0.5
    steps: int = 8000
    seeds: int = 3

    def quick(self) -> "AgainstDimension":
        return dataclasses.replace(self, dimensions=(5, 25), n=128, width=100, steps=4000, seeds=2)

    def measure(self) -> Any:
        sizes = [(self.n, d) for d in self.dimensions]
        return errors_of(sizes, self.k, self.width, self.step, self.steps, self.seeds)

    def numbers(self, result: Any) -> tuple[Number, ...]:
        both, output = mean_errors(result)
        low, high = self.dimensions[0], self.dimensions[-1]
        return (
            Number(
                f"output layer: error at d = {high} minus that at d = {low}",
                float(output[-1] - output[0]),
                "grows with d",
                (0.02, 0.5),
                "a growth below two points would not be seen; 0.5 is guessing",
            ),
            Number(
                f"growth of the error of both layers over that of the output layer, d = {low} to {high}",
                float((both[-1] - both[0]) / (output[-1] - output[0])),
                "less",
                (None, 1),
                "further coordinates carry no information, and F1 can ignore them",
            ),
            Number(
                f"error of both layers over that of the output layer, d = {high}",
                float(both[-1] / output[-1]),
                "lower",
                (0, 1),
                "as at every d of the figure",
            ),
        )

    def draw(self, result: Any) -> Any:
        return drawn(result, "d", "dimension d", log=False)

    def note(self, result: Any) -> str:
        return remark(result, self.steps, self.width)
