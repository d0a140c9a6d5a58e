"""Chizat & Bach 2020: both rate propositions, measured curve against bound."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

KINDS = ("both", "output")


@dataclasses.dataclass(frozen=True)
class Rates(Experiment):
    """Directions fixed, the propositions' own step sizes; γ^(m) by linear and by quadratic program."""

    name: ClassVar[str] = "chizat2020_rates"
    title: ClassVar[str] = "Rates of both propositions: best margin against bound"
    paper: ClassVar[str] = "chizat2020"

    n: int = 64
    d: int = 5
    k: int = 2
    width: int = 200
    steps: int = 1_000_000
    seeds: int = 3

    def quick(self) -> "Rates":
        return dataclasses.replace(self, n=24, d=4, width=100, steps=300_000, seeds=2)

    def measure(self) -> Any:
        import xarray

        from marginflow import margins
        from marginflow.data import chizat2020
        from marginflow.flows.rates import rate_run
        from marginflow.nets import TwoLayer, inits
        from marginflow.theorems import chizat2020 as theorem

        best, bound, gamma, step = [], [], np.zeros((2, self.seeds)), np.zeros(0)
        for l, (kind, rule) in enumerate(zip(KINDS, (theorem.rate_both, theorem.rate_output), strict=True)):
            for seed in range(self.seeds):
                data = chizat2020(n=self.n, d=self.d, k=self.k, seed=seed)
                net = TwoLayer(self.width, mean_field=True)
                theta = inits.sphere(net, self.d, key=seed)
                run = rate_run(net, theta, data, kind=kind, steps=self.steps, records=128)
                Z = data.y[:, None] * np.maximum(data.X @ run.theta0["W"].T, 0.0)
                Z = Z * run.theta0["a"] if kind == "both" else Z
                finite = margins.f1_finite(Z) if kind == "both" else margins.f2_finite(Z)
                measured, proved, _ = rule.curves(run.history, Z, finite.lower_bound)
                gamma[l, seed], step = finite.value, run.history["step"]
                best.append(measured)
                bound.append(proved)
        shape = (2, self.seeds, len(step))
        return xarray.Dataset(
            {
                "best_margin": (("layers", "seed", "step"), np.reshape(best, shape)),
                "bound": (("layers", "seed", "step"), np.reshape(bound, shape)),
                "gamma": (("layers", "seed"), gamma),
            },
            coords={"layers": list(KINDS), "seed": np.arange(self.seeds), "step": step},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        room = (result.best_margin - result.bound).min("step")
        shortfall = 1 - result.best_margin / result.gamma
        names = {"both": "both layers", "output": "output layer"}
        numbers = []
        for kind in KINDS:
            numbers += [
                Number(
                    f"{names[kind]}: least distance of the curve above the bound",
                    float(room.sel(layers=kind).min()),
                    ">= 0",
                    (0, None),
                    "the proposition, at every recorded time and seed",
                ),
                Number(
                    f"{names[kind]}: shortfall from γ at the end, relative, worst seed",
                    float(shortfall.sel(layers=kind).isel(step=-1).max()),
                    "tends to 0",
                    (-1e-9, 0.2),
                    "never above γ (weak duality, rounding 1e-9); a fifth is far inside what the bound "
                    "allows by then",
                ),
                Number(
                    f"{names[kind]}: slope of log shortfall in log t",
                    slope_of(result.step.values, shortfall.sel(layers=kind).values),
                    "at most -1/2 asymptotically, up to a log",
                    (None, -0.35),
                    "last two decades; the bound is from one side, and log t/√t has local slope -½ + 1/log t",
                ),
            ]
        return tuple(numbers)

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, (axes,) = style.figure(1, 2, width=3.7, height=3.0)
        t = result.step.values
        for ax, kind, title in zip(axes, KINDS, ("(a) both layers", "(b) output layer"), strict=True):
            one = result.sel(layers=kind)
            gap = (one.gamma - one.best_margin) / one.gamma
            allowed = (one.gamma - one.bound) / one.gamma
            seeds = result.sizes["seed"]
            for seed in range(seeds):  # a shade for each, so that a bound is seen to belong to its curve
                first, look = seed == 0, {"alpha": 1 - 0.65 * seed / max(seeds, 1)}
                told = "measured, a shade for each seed" if first else ""
                plots.curve(ax, t, np.maximum(gap[seed], 1e-12), told, style.POSITIVE, **look)
                told = "allowed by the bound" if first else ""
                plots.curve(ax, t, allowed[seed], told, style.PREDICTED, ls="--", **look)
            plots.slope(ax, t[t >= 100], float(gap[0].values[t >= 100][0]), -0.5, "slope $-1/2$")
            ax.set(
                xscale="log",
                yscale="log",
                xlabel="step t",
                ylabel="$1 -$ margin / $γ^{(m)}$",
                title=title,
            )
        axes[0].legend(fontsize=8)
        return fig

    def note(self, result: Any) -> str:
        t = result.step.values
        first = [
            int(t[np.argmax((one.bound > 0).values)]) if bool((one.bound > 0).any()) else None
            for one in (result.sel(layers=kind).isel(seed=0) for kind in KINDS)
        ]
        said = [f"from t = {f}" if f else f"not before t = {int(t[-1])}" for f in first]
        return (
            f"The bounds become positive {said[0]} (both layers, with the measured B) and {said[1]} (output "
            "layer): they "
            "are far from tight."
        )


def slope_of(step: np.ndarray, shortfall: np.ndarray) -> float:
    """Least-squares slope over the last two decades, median over seeds."""
    late = step >= step[-1] / 100
    return float(np.median([np.polyfit(np.log(step[late]), np.log(s[late]), 1)[0] for s in shortfall]))
