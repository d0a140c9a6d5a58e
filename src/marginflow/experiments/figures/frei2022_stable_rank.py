"""Frei et al. 2022, Figs. 1-2 (synthetic): one step of gradient descent is enough to collapse the stable rank."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.spread import spread


@dataclasses.dataclass(frozen=True)
class StableRank(Experiment):
    """Smoothed leaky ReLU, input layer trained by full-batch descent, against dimension and initial scale.

    scales: standard deviations of the initial W in units of 1/√d, so that 1 is a usual initialisation at any d.
    steps: how many steps "many" are; the stable rank is looked at in between, evenly in the log of the step.
    """

    name: ClassVar[str] = "frei2022_stable_rank"
    title: ClassVar[str] = "Stable rank of gradient descent against dimension, initial scale and steps"
    paper: ClassVar[str] = "frei2022"

    n: int = 100
    dimensions: tuple[int, ...] = (200, 400, 800, 1600)
    scales: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    width: int = 100
    leak: float = 0.1
    mean: float = 3.0
    lr: float = 0.05
    steps: int = 100
    seeds: int = 3

    def quick(self) -> "StableRank":
        return dataclasses.replace(self, n=50, dimensions=(200, 400), width=50, steps=50)

    def measure(self) -> Any:
        import xarray

        from marginflow.data import gaussian_mixture
        from marginflow.flows.ensembles import ensemble, grid
        from marginflow.nets import TwoLayer, smooth_leaky

        net = TwoLayer(self.width, smooth_leaky(self.leak), train="input")
        shape = (len(self.scales), self.seeds)
        ranks, losses, steps = [], [], np.zeros(0)
        for d in self.dimensions:
            data = gaussian_mixture(n=self.n, d=d, mean=self.mean, seed=0)
            members = grid(
                seeds=range(self.seeds), scales=[s / np.sqrt(d) for s in self.scales], lrs=(self.lr,)
            )
            trained = ensemble(
                net,
                data,
                members,
                init="signs",
                method="gd",
                epochs=self.steps,
                records=14,
                monitors=("stable_rank",),
            )
            steps, first = np.unique(trained.history["step"], return_index=True)
            ranks.append(trained.history["stable_rank"][first].T.reshape(*shape, len(steps)))
            losses.append(trained.log_loss.reshape(shape))
        return xarray.Dataset(
            {
                "stable_rank": (("dimension", "scale", "seed", "step"), np.stack(ranks)),
                "log_loss": (("dimension", "scale", "seed"), np.stack(losses)),
            },
            coords={
                "dimension": list(self.dimensions),
                "scale": list(self.scales),
                "seed": np.arange(self.seeds),
                "step": steps,
            },
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        small = result.stable_rank.sel(scale=min(self.scales))
        large = result.stable_rank.sel(scale=max(self.scales))
        least = min(self.width, self.n, min(self.dimensions))
        constant = "an absolute constant"
        return (
            Number(
                "start: stable rank, least over all",
                float(result.stable_rank.sel(step=0).min()),
                "of order min(m, d)",
                (least / 8, None),
                "a Gaussian m x d matrix has md/(√m+√d)² >= min(m, d)/4; half of that for its fluctuation",
            ),
            Number(
                "smallest scale: stable rank after one step, worst",
                float(small.sel(step=1).max()),
                constant,
                (1, 4),
                "the gradient at the start has two dominant directions; 4 leaves a factor 2 and grows with nothing",
            ),
            Number(
                "smallest scale: stable rank at any later step, worst",
                float(small.sel(step=slice(1, None)).max()),
                constant,
                (1, 4),
                "the same constant throughout",
            ),
            Number(
                "smallest scale: largest d over smallest d, after one step",
                float(
                    small.isel(dimension=-1).sel(step=1).median()
                    / small.isel(dimension=0).sel(step=1).median()
                ),
                "no growth with d",
                (0.5, 1.5),
                "independent of d to within half",
            ),
            Number(
                "largest scale: stable rank after one step over that at the start",
                float((large.sel(step=1) / large.sel(step=0)).median()),
                "a large scale hides the step",
                (0.5, 1.5),
                "an initialisation of usual size is not changed by one step",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, ((left, right),) = style.figure(1, 2, width=3.9, height=3.0)
        d = result.dimension.values
        for k, scale in enumerate(result.scale.values):
            look = {
                "color": style.CYCLE[k % len(style.CYCLE)],
                "marker": style.MARKERS[k % len(style.MARKERS)],
            }
            band = spread(result.stable_rank.sel(step=1).isel(scale=k), axis=1)
            plots.curve(left, d, band.middle, f"sd {scale:g}/√d", low=band.low, high=band.high, **look)
            band = spread(result.stable_rank.isel(dimension=-1, scale=k), axis=0)
            plots.curve(right, result.step.values, band.middle, low=band.low, high=band.high, **look)
        start = spread(result.stable_rank.sel(step=0).isel(scale=0), axis=1).middle
        left.plot(d, start, ":", color=style.PREDICTED, lw=2, zorder=5, label="at the start")
        left.set(
            xscale="log",
            yscale="log",
            xlabel="dimension d",
            ylabel="stable rank of W",
            title="(a) after one step",
        )
        left.set_xticks(d, [str(v) for v in d])
        left.minorticks_off()
        left.legend(ncols=1, loc="center left", bbox_to_anchor=(0.0, 0.62), fontsize=8)
        right.set_xscale("symlog", linthresh=1)
        right.set(yscale="log", xlabel="step", ylabel="stable rank of W", title=f"(b) d = {d[-1]}")
        return fig

    def note(self, result: Any) -> str:
        worst = float(result.log_loss.max())
        return (
            f"Mean training loss at the end: at most e^{worst:.2f}. The paper's text gives no table for "
            "these figures; the "
            "bands are its claims (a constant after one step, whatever m, d, n). The step size is far above what "
            "Theorem 4.2 asks for."
        )
