"""Three papers, one number: the flow's limit, the KKT point and the F1-max-margin have one normalised margin."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

ROUTES = {
    "flow": "limit of the flow (Phuong & Lampert)",
    "parameter_space": "KKT multipliers (Lyu & Li)",
    "f1": "F$_1$-max-margin (Chizat & Bach)",
}


@dataclasses.dataclass(frozen=True)
class OneNumber(Experiment):
    """Every data set is trained to t = ∞; `dimensions` × `seeds` data sets, n = 10 d examples."""

    name: ClassVar[str] = "one_number"
    title: ClassVar[str] = "Three papers, one number"
    paper: ClassVar[str] = ""

    dimensions: tuple[int, ...] = (2, 4, 8, 16)
    width: int = 20
    scale: float = 1e-3
    seeds: int = 3

    def quick(self) -> "OneNumber":
        return dataclasses.replace(self, dimensions=(3, 6), width=10, seeds=2)

    def measure(self) -> Any:
        import xarray

        from marginflow import flows
        from marginflow.data import phuong2021
        from marginflow.nets import TwoLayer, inits
        from marginflow.verify import collect, unity

        shape = (len(self.dimensions), self.seeds)
        found = {name: np.full(shape, np.nan) for name in (*ROUTES, "predicted")}
        certified = np.zeros(shape, np.int32)
        for i, d in enumerate(self.dimensions):
            for seed in range(self.seeds):
                data, net = phuong2021(n=10 * d, d=d, seed=seed), TwoLayer(self.width)
                theta = inits.balanced(net, d, scale=self.scale, key=seed)
                run = flows.train(net, theta, data, method="flow", until="limit")
                one = unity(collect(run, None, None)[0])
                if one is None:
                    continue
                for name in found:
                    found[name][i, seed] = getattr(one, name)
                certified[i, seed] = one.f1_certified
        return xarray.Dataset(
            {name: (("dimension", "seed"), values) for name, values in found.items()}
            | {"certified": (("dimension", "seed"), certified)},
            coords={"dimension": list(self.dimensions), "seed": np.arange(self.seeds)},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        numbers = [
            Number(
                f"largest relative distance of {name.replace('_', ' ')} from the prediction",
                float(np.max(np.abs(result[name].values / result.predicted.values - 1))),
                "0 (derived)",
                (0, 1e-6),
                "margins are certified to 1e-9; the multipliers come from a least-squares fit",
            )
            for name in ROUTES
        ]
        return (
            *numbers,
            Number(
                "share of data sets with γ1 certified from above",
                float(result.certified.values.mean()),
                None,
                (1, 1),
                "on orthogonally separable data the inner maximum is in closed form",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, ((left, right),) = style.figure(1, 2, width=3.9, height=3.2)
        x = result.predicted.values.ravel()
        ends = [0.0, 1.1 * np.nanmax(x)]
        left.plot(ends, ends, "--", color=style.PREDICTED, lw=1, label="equal")
        looks = zip(
            ROUTES.items(), (style.POSITIVE, style.NEGATIVE, style.ACCENT), "^so", (9, 6, 3), strict=True
        )
        for (name, label), color, marker, size in looks:
            values = result[name].values.ravel()
            left.plot(x, values, marker, color=color, ms=size, mfc="none" if size > 3 else color, label=label)
            error = np.maximum(np.abs(values / x - 1), 1e-17)
            right.plot(x, error, marker, color=color, ms=size, mfc="none" if size > 3 else color)
        prediction = r"$1/(2(\|w_+\| + \|w_-\|))$"
        left.set(xlabel=prediction, ylabel="normalised margin", title="(a) one number")
        left.legend(fontsize=8)
        plots.level(right, 1e-6, "band")
        right.set(
            yscale="log",
            xlabel=prediction,
            ylabel="relative difference",
            title="(b) to rounding; equal ones at $10^{-17}$",
        )
        right.set_ylim(1e-18, 1e-4)
        right.legend()
        return fig
