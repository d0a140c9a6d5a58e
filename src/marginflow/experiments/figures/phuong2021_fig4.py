"""Figure 4 of Phuong & Lampert 2021: singular values and neurons of the first fully connected layer, W_7."""

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from marginflow.experiments.base import Number
from marginflow.experiments.digit_net import DigitNet, right, weights

SHOWN = 10
SIGNIFICANT = 0.1  # of the largest singular value
CENTRE = 0.25  # of the longest neuron in the plane: the cluster at the origin


@dataclasses.dataclass(frozen=True)
class Figure4(DigitNet):
    """The net of figure 3; a training that is kept serves both figures."""

    name: ClassVar[str] = "phuong2021_fig4"
    title: ClassVar[str] = "MNIST 0 against 1, convolutional net: singular values and neurons of W_7"
    paper: ClassVar[str] = "phuong2021"
    needs: ClassVar[tuple[str, ...]] = ("mnist",)

    def quick(self) -> Self:
        return dataclasses.replace(self, epochs=5, n=1000)

    def measure(self) -> Any:
        import xarray

        train, test = self.digits()
        courses = [self.course(train, self.seed + k) for k in range(self.seeds)]
        W, a = self.net.fully_connected[0], self.net.fully_connected[-1]
        spectra = np.array(
            [[np.linalg.svd(w.astype(np.float64), compute_uv=False) for w in c.records[W]] for c in courses]
        )
        planes = [on_top_two(c.records[W][-1], c.records[a][-1][0]) for c in courses]
        return xarray.Dataset(
            {
                "singular_values": (("seed", "record", "index"), spectra),
                "coordinates": (("seed", "neuron", "direction"), np.stack(planes)),
                "outer_weight": (("seed", "neuron"), np.stack([c.records[a][-1][0] for c in courses])),
                "test_accuracy": ("seed", np.array([right(self.net, weights(c, -1), test) for c in courses])),
            },
            coords={
                "seed": np.arange(self.seed, self.seed + self.seeds, dtype=np.int32),
                "epoch": ("record", courses[0].epochs),
            },
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        s = result.singular_values.isel(record=-1)
        top = s.isel(index=0)
        energy = (s.isel(index=slice(2)) ** 2).sum("index") / (s**2).sum("index")
        start = result.singular_values.isel(record=0)
        pairs = zip(result.coordinates.values, result.outer_weight.values, strict=True)
        clusters = [three_clusters(coordinates, a) for coordinates, a in pairs]
        return (
            Number(
                f"singular values above {SIGNIFICANT:g} of the largest",
                float((s > SIGNIFICANT * top).sum("index").mean()),
                "five or ten",
                (2.0, 15.0),
                "the paper reads them off the plot, without a threshold",
            ),
            Number(
                "the same before training",
                float((start > SIGNIFICANT * start.isel(index=0)).sum("index").mean()),
                None,
                (100.0, 128.0),
                "a random 128 x 3136 matrix: all of them (Marchenko-Pastur: smallest over largest about 2/3)",
            ),
            Number(
                "third singular value over the first",
                float((s.isel(index=2) / top).mean()),
                "less crisp than two",
                (0.02, 0.9),
                "neither rank two nor flat",
            ),
            Number(
                "share of the squared norm in the top two directions",
                float(energy.mean()),
                "lossy",
                (0.3, 0.99),
                "the paper: the projection is lossy",
            ),
            Number(
                "neurons near the origin",
                float(np.mean([c[0] for c in clusters])),
                "a mixed cluster",
                (0.05, 0.9),
                f"a cluster, and not all: shorter than {CENTRE:g} of the longest in the plane",
            ),
            Number(
                "of those, share with the rarer sign of the outer weight",
                float(np.mean([c[1] for c in clusters])),
                "mixed",
                (0.15, 0.5),
                "a cluster of one sign has 0, a fair mixture 1/2",
            ),
            Number(
                "other neurons: share on the side of their outer weight's sign",
                float(np.mean([c[2] for c in clusters])),
                "two clusters by sign",
                (0.9, 1.0),
                "the paper: clusters of positive and of negative outer weights",
            ),
            Number(
                "test accuracy",
                float(result.test_accuracy.mean()),
                None,
                (0.99, 1.0),
                "0 and 1 are the easiest pair",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, axes = style.figure(1, 3, width=3.6, height=3.1)
        s = result.singular_values.isel(index=slice(SHOWN))
        end, start = s.isel(record=-1), s.isel(record=0)
        many = result.sizes["seed"] > 1
        bars = {"low": end.min("seed"), "high": end.max("seed")} if many else {}
        plots.singular_values(axes[0, 0], end.mean("seed").values, **bars, label="after training")
        plots.initial_singular_values(axes[0, 0], start.mean("seed").values)
        axes[0, 0].set(title="ten largest singular values of $W_7$")
        axes[0, 0].legend()
        first = result.isel(seed=0)
        plots.neurons(axes[0, 1], first.coordinates.values, first.outer_weight.values)
        axes[0, 1].set(title="rows of $W_7$ by sign of $W_8$" + (f", seed {int(first.seed)}" if many else ""))
        for k in range(SHOWN):
            course = result.singular_values.isel(index=k).mean("seed")
            axes[0, 2].plot(
                result.epoch, course, "o-", markersize=3, color=style.NEGATIVE, alpha=1 - 0.08 * k
            )
        axes[0, 2].set_xscale("symlog", linthresh=1.0)
        ticks = [t for t in (1, 3, 10, 30, 100, 300) if t < 0.8 * self.epochs]
        axes[0, 2].set_xticks([0, *ticks, self.epochs], ["0", *map(str, ticks), str(self.epochs)])
        axes[0, 2].minorticks_off()
        axes[0, 2].set(
            xlabel="epoch", ylabel="singular value", title="the same against time", xlim=(0, self.epochs)
        )
        return fig

    def note(self, result: Any) -> str:
        s = result.singular_values.isel(record=-1, index=slice(SHOWN)).mean("seed").values
        return f"singular values after {self.epochs} epochs, {self.seeds} seed(s): {', '.join(f'{v:.3g}' for v in s)}"


def on_top_two(W: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Rows of W on its top two right singular directions, each turned so that a_j and the coordinate agree on average:
    the signs of singular vectors are arbitrary."""
    _, _, Vt = np.linalg.svd(W.astype(np.float64), full_matrices=False)
    coordinates = W @ Vt[:2].T
    turn = np.sign(np.sign(a) @ coordinates)
    return coordinates * np.where(turn == 0, 1.0, turn)


def three_clusters(coordinates: np.ndarray, a: np.ndarray) -> tuple[float, float, float]:
    """(share of neurons near the origin, share of the rarer sign of a among them, share of the others on their side).

    Sides are those of the line through the origin that halves the angle between the mean positive and the mean
    negative neuron of the others. A share over no neurons is nan.
    """
    length = np.linalg.norm(coordinates, axis=1)
    near = length < CENTRE * length.max()
    signs = np.sign(a)
    rarer = min(np.mean(signs[near] > 0), np.mean(signs[near] <= 0)) if near.any() else np.nan
    means = [_unit(coordinates[~near & (signs == s)]) for s in (1, -1)]
    if any(m is None for m in means):
        return float(near.mean()), float(rarer), float("nan")
    side = np.sign(coordinates[~near] @ (means[0] - means[1]))  # type: ignore[operator]
    return float(near.mean()), float(rarer), float(np.mean(side == signs[~near]))


def _unit(rows: np.ndarray) -> np.ndarray | None:
    if not len(rows):
        return None
    mean = rows.mean(axis=0)
    return mean / np.linalg.norm(mean)
