"""Chizat & Bach 2020: decision boundaries of both layers (F1) against the output layer alone (F2)."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

TICKS = (-0.5, 0.0, 0.5)
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
        shape = (len(mean_field.LAYERS), self.seeds)
        stepped, best = np.zeros((2, *shape, RESOLUTION, RESOLUTION), np.float32)
        margins, errors = np.full((2, *shape), np.nan), np.full((2, *shape), np.nan)
        for l, train in enumerate(mean_field.LAYERS):
            trained = mean_field.ascend(data, train, (self.width,), range(self.seeds), self.steps, self.step)
            margins[0, l] = np.nanmax(mean_field.unit_norm_margins(trained), axis=0)
            errors[0, l] = mean_field.test_errors(trained, test)
            for seed in range(self.seeds):
                stepped[l, seed] = on_grid(trained.net(trained.member(seed).theta, plane))
                settled = mean_field.optimum(trained, seed)
                if settled is not None:
                    best[l, seed] = on_grid(settled(plane))
                    margins[1, l, seed], errors[1, l, seed] = (
                        settled.margin,
                        mean_field.test_error(settled, test),
                    )
        return xarray.Dataset(
            {
                "f_steps": (("layers", "seed", "x2", "x1"), stepped),
                "f": (("layers", "seed", "x2", "x1"), best),
                "margin": (("stage", "layers", "seed"), margins),
                "test_error": (("stage", "layers", "seed"), errors),
                "points": (("example", "axis"), data.X[:, :2]),
                "label": (("example",), data.y),
            },
            coords={
                "stage": ["steps", "optimum"],
                "layers": list(mean_field.LAYERS),
                "x1": line,
                "x2": line,
                "seed": np.arange(self.seeds),
            },
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        both, output = (result.sel(layers=name) for name in ("both", "output"))
        least = result.margin.sel(stage="optimum").min("seed")
        return (
            Number(
                "both layers: smallest F1 margin over seeds",
                float(least.sel(layers="both")),
                "> 0",
                (1e-12, None),
                "the picture separates all examples",
            ),
            Number(
                "output layer: smallest F2 margin over seeds",
                float(least.sel(layers="output")),
                "> 0",
                (1e-12, None),
                "the picture separates all examples",
            ),
            Number(
                "both layers: bending of the boundary over that of the output layer",
                float(bends(both.f.values) / bends(output.f.values)),
                "straight pieces against smooth curves",
                (0, 1),
                "median turning of the normal from cell to cell: 0 on straight pieces with few corners",
            ),
        )

    def draw(self, result: Any) -> Any:
        from matplotlib.lines import Line2D

        from marginflow.report import plots, style

        fig, (axes,) = style.figure(1, 2, width=3.3, height=3.75)
        titles = {"both": "(a) both layers (F$_1$)", "output": "(b) output layer (F$_2$)"}
        for ax, name in zip(axes, result.layers.values, strict=True):
            f, stepped = result.f.sel(layers=name).values, result.f_steps.sel(layers=name).values
            grid = (result.x1.values, result.x2.values)
            plots.boundary(ax, *grid, f[0], result.points.values, result.label.values)
            for other in f[1:]:
                ax.contour(*grid, other, levels=[0.0], colors=[style.PREDICTED], linewidths=0.6, alpha=0.6)
            ax.contour(
                *grid, stepped[0], levels=[0.0], colors=[style.NEUTRAL], linewidths=1.0, linestyles="--"
            )
            error = float(result.test_error.sel(layers=name, stage="optimum").mean())
            ax.set_title(f"{titles[str(name)]}, test error {error:.1%}")
            ax.set(xticks=TICKS, yticks=TICKS)
        handles = [
            Line2D([], [], ls="", ms=4, marker="^", color=style.POSITIVE, label="$y = 1$"),
            Line2D([], [], ls="", ms=4, marker="v", color=style.NEGATIVE, label="$y = -1$"),
            Line2D([], [], color=style.PREDICTED, lw=1.2, label="best masses"),
            Line2D([], [], color=style.PREDICTED, lw=0.6, alpha=0.6, label="other seeds"),
            Line2D([], [], color=style.NEUTRAL, lw=1.0, ls="--", label="after the steps"),
        ]
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        return fig

    def note(self, result: Any) -> str:
        said = []
        for name, words in (("both", "both layers"), ("output", "output layer")):
            steps, best = (result.sel(layers=name, stage=stage) for stage in ("steps", "optimum"))
            said.append(
                f"{words}: margin {float(steps.margin.mean()):.4g} after the steps, "
                f"{float(best.margin.mean()):.4g} with the "
                f"best masses on the same directions, test error {float(steps.test_error.mean()):.1%} and "
                f"{float(best.test_error.mean()):.1%}"
            )
        return (
            "Solid: best masses; thin: further seeds; dashed: the net after the steps, which for the "
            "output layer are far "
            "too few. " + "; ".join(said) + ". The norms F1 and F2 are not comparable."
        )


def on_grid(values: Any) -> np.ndarray:
    """Outputs as a picture, scaled to largest size 1."""
    picture = np.asarray(values, float).reshape(RESOLUTION, RESOLUTION)
    return picture / np.abs(picture).max()


def bends(f: np.ndarray) -> float:
    """Median |turning angle| of the normal ∇f/|∇f| between neighbouring cells along the zero level."""
    turned = []
    for one in f:
        gy, gx = np.gradient(one)
        turn = np.diff(np.arctan2(gy, gx), axis=1)
        near = (np.sign(one[:, :-1]) != np.sign(one[:, 1:])) & (np.maximum(np.abs(gx), np.abs(gy))[:, 1:] > 0)
        near[[0, -1]] = near[:, [0, -1]] = False  # one-sided differences at the rim
        turned.append(np.abs(np.angle(np.exp(1j * turn[near]))))
    return float(np.median(np.concatenate(turned)))
