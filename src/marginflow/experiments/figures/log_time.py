"""Angle and normalised margin against log t to 10⁹, with predicted slopes: far past any number of descent steps."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.figures.baselines import resampled
from marginflow.experiments.spread import spread

ANGLES = {"angle_positive": "positive neurons to $w_+$", "angle_negative": "negative neurons to $w_-$"}


@dataclasses.dataclass(frozen=True)
class LogTime(Experiment):
    """The exact flow on the data of `phuong2021_fig1`, balanced near-zero weights, until log t = 10⁹."""

    name: ClassVar[str] = "log_time"
    title: ClassVar[str] = "Angle and normalised margin against log t to a billion, with predicted slopes"
    paper: ClassVar[str] = ""

    n: int = 500
    d: int = 20
    width: int = 100
    scale: float = 1e-3
    log_time: float = 1e9
    seeds: int = 3
    data_seed: int = 0

    def quick(self) -> "LogTime":
        return dataclasses.replace(self, n=60, d=5, width=10, seeds=1)

    def measure(self) -> Any:
        import xarray

        from marginflow import flows, margins
        from marginflow.data import phuong2021
        from marginflow.nets import TwoLayer, inits

        data, net = phuong2021(n=self.n, d=self.d, seed=self.data_seed), TwoLayer(self.width)
        plus, minus = margins.positive(data), margins.negative(data)
        limit = 0.5 / (1 / plus.value + 1 / minus.value)
        grid = np.geomspace(10.0, self.log_time, 100)
        found = {name: [] for name in (*ANGLES, "shortfall")}
        for seed in range(self.seeds):
            theta = inits.balanced(net, data.d, scale=self.scale, key=seed)
            run = flows.train(net, theta, data, method="flow", until=f"log-time={self.log_time}")
            h = run.history
            gap = np.maximum(1 - h["normalised_margin"] / limit, np.finfo(float).tiny)
            for name in ANGLES:
                found[name].append(resampled(grid, h["log_time"], h[name]))
            found["shortfall"].append(resampled(grid, h["log_time"], gap))
        return xarray.Dataset(
            {name: (("seed", "log_time"), np.array(values)) for name, values in found.items()}
            | {"predicted_margin": ((), limit)},
            coords={"seed": np.arange(self.seeds), "log_time": grid},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        late = (1e4, min(self.log_time, 1e9))
        angles = [slope(result[name], *late) for name in ANGLES]
        return (
            *(
                Number(
                    f"{'positive' if 'pos' in name else 'negative'} neurons: slope of log angle in log log t",
                    value,
                    "-1/2 (derived)",
                    (-0.55, -0.45),
                    "components orthogonal to w± stay, ‖W‖² grows like log t; over log t from 10⁴ on",
                )
                for name, value in zip(ANGLES, angles, strict=True)
            ),
            Number(
                "slope of the margin's shortfall",
                slope(result.shortfall, 1e3, 1e7),
                "-1 (derived)",
                (-1.1, -0.9),
                "soft minimum and leftover norm are both 1/log t; over 10³ to 10⁷, above the rounding of the margin",
            ),
            Number(
                f"shortfall at log t = {self.log_time:.0e}",
                float(result.shortfall.isel(log_time=-1).max()),
                0.0,
                (0, 1e-6),
                "1/log t times the factor seen at 10⁴, with room for rounding",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, ((left, right),) = style.figure(1, 2, width=3.8, height=3.1)
        t = result.log_time.values
        for (name, label), color in zip(ANGLES.items(), (style.POSITIVE, style.NEGATIVE), strict=True):
            band = spread(result[name].values)
            plots.curve(
                left, t, band.middle, label, color, result[name].min("seed"), result[name].max("seed")
            )
        plots.slope(left, t, 2 * float(result[next(iter(ANGLES))].median("seed")[0]), -0.5, "slope $-1/2$")
        left.set(xscale="log", yscale="log", xlabel="log t", ylabel="angle (radians)", title="(a) direction")
        left.legend(fontsize=8)
        gap = result.shortfall
        plots.curve(right, t, gap.median("seed"), "", style.ACCENT, gap.min("seed"), gap.max("seed"))
        plots.slope(right, t, 2 * float(gap.median("seed")[0]), -1.0, "slope $-1$")
        title = "(b) normalised margin"
        right.set(xscale="log", yscale="log", xlabel="log t", ylabel="$1 -$ margin / its limit", title=title)
        right.legend(fontsize=8)
        return fig

    def note(self, result: Any) -> str:
        return (
            f"Predicted limit 1/(2(‖w+‖ + ‖w-‖)) = {float(result.predicted_margin):.9g}; t = e^(10⁹) would "
            "take about "
            "10^434294482 gradient steps. Bands are extremes over seeds."
        )


def slope(curves: Any, low: float, high: float) -> float:
    """Median over seeds of the log-log slope over log t in [low, high]."""
    t = curves.log_time.values
    rows = (t >= low) & (t <= high)
    return float(np.median([np.polyfit(np.log(t[rows]), np.log(c[rows]), 1)[0] for c in curves.values]))
