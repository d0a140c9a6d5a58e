"""Linear, deep linear and balanced two-layer nets on one data set: angle to the limit direction against log t."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.spread import spread

NETS = {"linear": "logistic regression", "deep": "deep linear", "relu": "two-layer ReLU, positive neurons"}


@dataclasses.dataclass(frozen=True)
class Baselines(Experiment):
    """Gradient flow carries every net to the same log t: the ReLU net exactly, the linear nets to a tolerance."""

    name: ClassVar[str] = "baselines"
    title: ClassVar[str] = "Baselines: direction against log t, slopes -1 and -1/2"
    paper: ClassVar[str] = "soudry2018"

    n: int = 100
    d: int = 10
    depth: int = 3
    width: int = 20
    scale: float = 0.1
    log_time: float = 1e4
    times: int = 16
    seeds: int = 3

    def quick(self) -> "Baselines":
        return dataclasses.replace(self, n=40, d=4, width=8, log_time=1e3, times=10, seeds=2)

    def measure(self) -> Any:
        import xarray

        from marginflow import flows
        from marginflow.data import phuong2021
        from marginflow.experiments.directions import linear_direction
        from marginflow.nets import DeepLinear, Linear, TwoLayer, inits

        grid = np.geomspace(3.0, self.log_time, self.times)
        angles, layers = np.zeros((len(NETS), self.seeds, len(grid))), []
        deep, relu = DeepLinear(self.depth, self.width), TwoLayer(self.width)
        for seed in range(self.seeds):
            data = phuong2021(n=self.n, d=self.d, seed=seed)
            target = linear_direction(data)
            for l, net in enumerate((Linear(), deep)):
                theta = inits.gaussian(net, data.d, scale=self.scale, key=seed)
                for k, log_time in enumerate(grid):  # together little dearer than the last alone
                    run = flows.train(net, theta, data, method="flow", until=f"log-time={log_time}")
                    angles[l, seed, k] = angle(end_to_end(net, run.theta, data.d), target)
            layers.append([ratio(run.theta[name]) for name in deep.trained[:-1]])
            theta = inits.balanced(relu, data.d, scale=self.scale / 10, key=seed)
            run = flows.train(relu, theta, data, method="flow", until=f"log-time={self.log_time}")
            angles[2, seed] = resampled(grid, run.history["log_time"], run.history["angle_positive"])
        return xarray.Dataset(
            {
                "angle": (("net", "seed", "log_time"), angles),
                "second_over_first": (("seed", "layer"), np.array(layers)),
            },
            coords={"net": list(NETS), "seed": np.arange(self.seeds), "log_time": grid},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        slopes = {name: self.slope(result, name) for name in NETS}
        return (
            Number(
                "logistic regression: slope of log angle in log log t",
                slopes["linear"],
                -1.0,
                (-1.3, -0.8),
                "the direction converges like 1/log t (Soudry et al.); later decades, median over seeds",
            ),
            Number(
                "two-layer ReLU: the same slope",
                slopes["relu"],
                "-1/2 (derived)",
                (-0.65, -0.4),
                "what is orthogonal to w± keeps its size while ‖W‖ grows like √log t",
            ),
            Number(
                "deep linear: the same slope",
                slopes["deep"],
                f"-1 to -1/{self.depth} (derived)",
                (-1.05, 0.05 - 1 / self.depth),
                "1/log t of what the support examples decide, beside (log t)^(-1/depth) of what they do not",
            ),
            Number(
                "deep linear: angle of the end-to-end vector at the end, worst seed",
                float(result.angle.sel(net="deep").isel(log_time=-1).max()),
                "tends to 0",
                (0, 0.05),
                "Ji & Telgarsky give no rate; a twentieth of a radian is three degrees",
            ),
            Number(
                "deep linear: second singular value over the first, worst layer",
                float(result.second_over_first.max()),
                "tends to 0 (rank one)",
                (0, 0.2),
                "what initialisation left, relative to a norm that grows like (log t)^(1/depth)",
            ),
        )

    def slope(self, result: Any, name: str) -> float:
        """Over the upper half of the log of log t, median over seeds."""
        x = np.log(result.log_time.values)
        late = x >= (x[0] + x[-1]) / 2
        fits = [np.polyfit(x[late], np.log(a[late]), 1)[0] for a in result.angle.sel(net=name).values]
        return float(np.median(fits))

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, ((ax,),) = style.figure(1, 1, width=4.8, height=3.4)
        t = result.log_time.values
        for (name, label), color in zip(
            NETS.items(), (style.NEGATIVE, style.ACCENT, style.POSITIVE), strict=True
        ):
            band = spread(result.angle.sel(net=name).values)
            plots.curve(ax, t, band.middle, label, color, band.low, band.high)
        middle = len(t) // 2
        for name, exponent, text, look in (
            ("linear", -1.0, "slope $-1$", ":"),
            ("relu", -0.5, "slope $-1/2$", "-."),
        ):
            at = 0.6 * float(result.angle.sel(net=name).median("seed")[middle])
            plots.slope(ax, t[middle:], at, exponent, text, look)
        ax.set(xscale="log", yscale="log", xlabel="log t", ylabel="angle to the limit direction")
        ax.legend(fontsize=8)
        return fig

    def note(self, result: Any) -> str:
        return (
            f"Median and quartiles over {result.sizes['seed']} data sets; a linear net's limit is w_max, a positive "
            "ReLU neuron's is w+. What initialisation left orthogonal to the support examples stays: the first of L "
            "layers has grown like (log t)^(1/L), so the deep net's angle falls like (log t)^(-1/L) in the end, slower "
            "than the single layer's."
        )


def end_to_end(net: Any, theta: Any, d: int) -> np.ndarray:
    """w of a linear net f(x) = wᵀx."""
    return np.asarray(net(theta, np.eye(d)), float)


def angle(w: np.ndarray, target: np.ndarray) -> float:
    """Between two vectors, exact for small angles too."""
    unit = target / np.linalg.norm(target)
    along = w @ unit
    return float(np.arctan2(np.linalg.norm(w - along * unit), along))


def resampled(grid: np.ndarray, log_time: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`values` at the log times of `grid`, straight between records in log-log."""
    late = np.asarray(log_time) > 0
    return np.exp(np.interp(np.log(grid), np.log(log_time[late]), np.log(values[late])))


def ratio(matrix: np.ndarray) -> float:
    s = np.linalg.svd(matrix, compute_uv=False)
    return float(s[1] / s[0])
