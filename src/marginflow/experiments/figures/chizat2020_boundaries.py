"""Chizat & Bach 2020: decision boundaries of both layers (F1) against the output layer alone (F2)."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

REACH, RESOLUTION = 0.75, 121  # the pictures show [-REACH, REACH]², the clusters lie in [-½, ½]²


@dataclasses.dataclass(frozen=True)
class Boundaries(Experiment):
    """k² clusters in the plane, d = 3 with the constant; the paper trains for 5·10⁴ steps and more."""

    name: ClassVar[str] = "chizat2020_boundaries"
    title: ClassVar[str] = "Decision boundaries: both layers against the output layer"
    paper: ClassVar[str] = "chizat2020"

    n: int = 100
    k: int = 4
    width: int = 500
    step: float = 0.5
    steps: int = 50_000
    seeds: int = 3

    def quick(self) -> "Boundaries":
        return dataclasses.replace(self, n=40, k=2, width=100, steps=10_000, seeds=2)

    def measure(self) -> Any:
        import xarray

        from marginflow.data import chizat2020
        from marginflow.experiments import mean_field

        data = chizat2020(n=self.n, d=3, k=self.k, seed=0, labels_seed=0)
        test = chizat2020(n=4000, d=3, k=self.k, seed=1, labels_seed=0)
        line = np.linspace(-REACH, REACH, RESOLUTION)
        plane = np.stack([*(g.ravel() for g in np.meshgrid(line, line)), np.ones(RESOLUTION**2)], axis=1)
        values, margins, errors = [], [], []
        for train in mean_field.LAYERS:
            trained = mean_field.ascend(data, train, (self.width,), range(self.seeds), self.steps, self.step)
            f = [trained.net(trained.member(j).theta, plane) for j in range(self.seeds)]
            values.append([v.reshape(RESOLUTION, -1) / np.abs(v).max() for v in np.asarray(f, float)])
            margins.append(np.nanmax(mean_field.unit_norm_margins(trained), axis=0))
            errors.append(mean_field.test_errors(trained, test))
        return xarray.Dataset(
            {
                "f": (("layers", "seed", "x2", "x1"), np.array(values, np.float32)),
                "margin": (("layers", "seed"), np.array(margins)),
                "test_error": (("layers", "seed"), np.array(errors)),
                "points": (("example", "axis"), data.X[:, :2]),
                "label": (("example",), data.y),
            },
            coords={"layers": list(mean_field.LAYERS), "x1": line, "x2": line, "seed": np.arange(self.seeds)},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        both, output = (result.sel(layers=name) for name in ("both", "output"))
        return (
            Number(
                "both layers: smallest F1 margin over seeds",
                float(both.margin.min()),
                "> 0",
                (1e-12, None),
                "the picture separates all examples",
            ),
            Number(
                "both layers: bends of the boundary over those of the output layer",
                float(bends(both.f.values) / bends(output.f.values)),
                "fewer and straighter",
                (0, 1),
                "turning of the zero level per unit length, mean over seeds; the F1 boundary is piecewise straight",
            ),
            Number(
                "test error of both layers over that of the output layer",
                float(both.test_error.mean() / output.test_error.mean()),
                "lower",
                (0, 1),
                "4000 test points, mean over seeds",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, (axes,) = style.figure(1, 2, width=3.3, height=3.3)
        titles = {"both": "(a) both layers (F$_1$)", "output": "(b) output layer (F$_2$)"}
        for ax, name in zip(axes, result.layers.values, strict=True):
            f = result.f.sel(layers=name).values
            grid = (result.x1.values, result.x2.values)
            plots.boundary(ax, *grid, f[0], result.points.values, result.label.values)
            for other in f[1:]:
                ax.contour(*grid, other, levels=[0.0], colors=[style.NEUTRAL], linewidths=0.7, alpha=0.7)
            error = float(result.test_error.sel(layers=name).mean())
            ax.set_title(f"{titles[str(name)]}, test error {error:.1%}")
        return fig

    def note(self, result: Any) -> str:
        margin = {str(n): result.margin.sel(layers=n).values for n in result.layers.values}
        return (
            f"Best margins at unit norm: both layers {margin['both'].mean():.4g} (F1), output layer "
            f"{margin['output'].mean():.4g} (F2); the two norms are not comparable. Thin lines are further seeds."
        )


def bends(f: np.ndarray) -> float:
    """Mean |turning angle| of the unit normal ∇f/|∇f| between neighbouring grid cells that the zero level crosses."""
    turned = []
    for one in f:
        gy, gx = np.gradient(one)
        angle = np.arctan2(gy, gx)
        crossed = np.sign(one[:-1, :-1]) != np.sign(one[1:, 1:])
        near = crossed[:, :-1] & crossed[:, 1:]
        turn = np.angle(np.exp(1j * (angle[:-1, 1:-1] - angle[:-1, :-2])))
        turned.append(np.abs(turn[near]).mean())
    return float(np.mean(turned))
