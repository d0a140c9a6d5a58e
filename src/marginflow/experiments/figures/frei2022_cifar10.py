"""System B on real images: the stable rank of W while a two-layer net learns CIFAR-10 by SGD (theory §4, §8.4)."""

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow.experiments.base import Experiment, Number
from marginflow.experiments.minibatch import Course, Examples, Recipe, accuracy, epochs_and_fractions, train
from marginflow.experiments.trained import kept_trainings

WITHIN_FIRST = 8  # records inside the first epoch, where a small net loses its rank
PAPER = (
    74.0,
    10.0,
    3.25,
)  # never below, from the default weights; while overfitting; least, from small weights


def _by_channel(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each colour over all images, one entry a pixel."""
    colours = pixels.reshape(len(pixels), 3, -1)
    counts = np.stack([np.bincount(colours[:, c].reshape(-1), minlength=256) for c in range(3)])
    values = np.arange(256.0)
    mean = counts @ values / counts.sum(axis=1)
    spread = np.sqrt(np.maximum(counts @ values**2 / counts.sum(axis=1) - mean**2, 1.0))
    return tuple(np.repeat(v, colours.shape[2]) for v in (mean, spread))  # type: ignore[return-value]


# what the net sees of bytes: (byte - mean)/spread
VIEWS = {"standardised": _by_channel, "unit": lambda pixels: (0.0, 255.0)}


@dataclasses.dataclass(frozen=True)
class Cifar10StableRank(Experiment):
    """scales: factors on the initial weights of both layers. n, evaluated: 0 stands for all images. inputs: pixels
    standardised by channel, or "unit" for pixels in [0, 1]; the paper names neither.

    The rank, and the accuracies on the first `evaluated` training and test images, are recorded after every epoch and
    a few times within the first one.
    """

    width: int = 512
    scales: tuple[float, ...] = (1.0, 0.3, 0.1, 0.02)
    init: str = "tensorflow"
    inputs: str = "standardised"
    lr: float = 0.05
    batch: int = 128
    epochs: int = 40
    n: int = 0
    evaluated: int = 10000
    seeds: int = 1
    seed: int = 0

    name: ClassVar[str] = "frei2022_cifar10"
    title: ClassVar[str] = (
        "CIFAR-10, two-layer net, SGD: stable rank of W against the scale of the initial weights"
    )
    paper: ClassVar[str] = "frei2022"
    needs: ClassVar[tuple[str, ...]] = ("cifar10",)

    def __post_init__(self):
        if not self.scales or min(self.scales) <= 0:
            raise InputError(f"scales {self.scales}; give at least one, all above 0")
        if self.inputs not in VIEWS:
            raise unknown_name("inputs", self.inputs, VIEWS)

    def quick(self) -> Self:
        return dataclasses.replace(self, scales=(1.0, 0.02), epochs=3, n=10000, evaluated=2000)

    def measure(self) -> Any:
        import xarray

        whole, test = self._examples()
        courses = [
            [self._course(whole, test, scale, self.seed + k) for scale in self.scales]
            for k in range(self.seeds)
        ]
        first = courses[0][0]
        names = ("stable_rank", "train_accuracy", "test_accuracy")
        values = {v: np.array([[c.records[v] for c in row] for row in courses], np.float64) for v in names}
        return xarray.Dataset(
            {name: (("seed", "scale", "step"), array) for name, array in values.items()},
            coords={
                "seed": np.arange(self.seed, self.seed + self.seeds, dtype=np.int32),
                "scale": np.array(self.scales),
                "step": first.steps.astype(np.int32),
                "epoch": ("step", first.epochs),
            },
        )

    def _examples(self) -> tuple[Examples, Examples]:
        """(training images, the test images that are looked at), seen alike."""
        from marginflow.data.images import cifar10_images

        files, tests = cifar10_images("train"), cifar10_images("test")
        pixels = _rows(files)
        whole = Examples(pixels, files.labels.astype(np.int32), *VIEWS[self.inputs](pixels))
        test = dataclasses.replace(whole, X=_rows(tests), labels=tests.labels.astype(np.int32))
        return whole.first(self.n), test.first(self.evaluated)

    def _course(self, whole: Examples, test: Examples, scale: float, seed: int) -> Course:
        from marginflow.nets import TwoLayer, inits

        seen = whole.first(self.evaluated)
        net = TwoLayer(self.width, outputs=10)
        recipe = Recipe("cross-entropy", "sgd", self.lr, self.batch, self.epochs, seed)

        def observe(theta):
            return {
                "stable_rank": stable_rank(np.asarray(theta["W"])),
                "train_accuracy": accuracy(net, theta, seen),
                "test_accuracy": accuracy(net, theta, test),
            }

        return train(
            net,
            inits.init(self.init, net, whole.X.shape[1], scale, seed),
            whole,
            recipe,
            record_at=epochs_and_fractions(recipe, len(whole), WITHIN_FIRST),
            observe=observe,
            label=f"cifar10, initial weights x {scale:g}",
            checkpoints=kept_trainings(),
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        rank = result.stable_rank.mean("seed")
        default, smallest = max(self.scales), min(self.scales)
        least = rank.sel(scale=smallest).min()
        later = rank.sel(scale=smallest).isel(step=slice(int(rank.sel(scale=smallest).argmin("step")), None))
        gap = (result.train_accuracy - result.test_accuracy).mean("seed").sel(scale=smallest)
        passed = later.step[later.values > PAPER[1]]
        before = later.where(later <= PAPER[1]).dropna("step").step
        crossing = passed[0] if len(passed) else None
        return (
            Number(
                f"smallest stable rank, initial weights x {default:g}",
                float(rank.sel(scale=default).min()),
                PAPER[0],
                (PAPER[0], None),
                "the paper: never below 74",
            ),
            Number(
                f"smallest stable rank, initial weights x {smallest:g}",
                float(least),
                PAPER[2],
                (1.0, 10.0),
                "the paper: 3.25 at a scale of its own; a few, where 260 was at the start",
            ),
            Number(
                f"epoch of that smallest rank, x {smallest:g}",
                float(result.epoch.sel(step=rank.sel(scale=smallest).idxmin("step"))),
                "early",
                (0.0, 5.0),
                "the collapse comes before the net fits: within five epochs",
            ),
            Number(
                f"stable rank at the end, x {smallest:g}",
                float(rank.sel(scale=smallest)[-1]),
                "above 10",
                (10.0, None),
                "the paper: it rises above 10 as the net begins to overfit",
            ),
            Number(
                f"train minus test accuracy where it passes 10, x {smallest:g}",
                None if crossing is None else float(gap.sel(step=crossing)),
                "begins to overfit",
                (0.02, None),
                "2 points: four standard deviations of an accuracy on 10000 images",
            ),
            Number(
                f"train minus test accuracy while below 10, x {smallest:g}",
                float(gap.sel(step=before).max()) if len(before) else None,
                "not yet",
                (None, 0.05),
                "a net that does not overfit yet",
            ),
        )

    def draw(self, result: Any) -> Any:
        from marginflow.report import plots, style

        fig, axes = style.figure(1, 3, width=4.2, height=3.4)
        for k, scale in enumerate(result.scale.values):
            look = {
                "color": style.CYCLE[k % len(style.CYCLE)],
                "marker": style.MARKERS[k % len(style.MARKERS)],
                "markersize": 4,
                "markevery": 0.05,  # of the panel: late epochs crowd on a logarithmic axis
            }
            for ax, name in zip(axes[0], ("stable_rank", "train_accuracy", "test_accuracy"), strict=True):
                values = result[name].sel(scale=scale)
                if result.sizes["seed"] > 1:
                    look |= {"low": values.min("seed"), "high": values.max("seed")}
                plots.curve(ax, result.epoch, values.mean("seed"), f"initial weights × {scale:g}", **look)
        first = float(result.epoch[1])
        ticks = [t for t in (0.01, 0.1, 1.0, 10.0, 100.0) if first < t < self.epochs]
        for ax in axes[0]:
            ax.set_xscale("symlog", linthresh=first)
            ax.set_xticks([0.0, *ticks, self.epochs], ["0", *(f"{t:g}" for t in ticks), str(self.epochs)])
            ax.set(xlabel="epoch", xlim=(0, self.epochs))
            ax.minorticks_off()
        left, middle, right = axes[0]
        left.set(yscale="log", ylabel="stable rank of W", title="stable rank")
        for value in PAPER:
            plots.level(left, value, "")
            left.annotate(
                f"paper: {value:g}",
                (first, value),
                fontsize=8,
                va="bottom",
                xytext=(2, 1),
                textcoords="offset points",
            )
        middle.set(ylabel="accuracy", title="training images", ylim=(0, 1))
        middle.legend(fontsize=8, loc="upper left")
        right.set(ylabel="accuracy", title="test images", ylim=(0, 1))
        return fig

    def note(self, result: Any) -> str:
        ends = ", ".join(
            f"x {s:g}: {float(r[0]):.3g} at the start, least {float(r.min()):.3g}, {float(r[-1]):.3g} at the end"
            for s, r in ((s, result.stable_rank.mean("seed").sel(scale=s)) for s in result.scale.values)
        )
        rank = result.stable_rank.mean("seed").sel(scale=max(self.scales))
        below = result.epoch[rank.values < PAPER[0]]
        passed = f"after epoch {float(below[0]):g}" if len(below) else f"not within {self.epochs} epochs"
        return (
            f"stable rank over {self.epochs} epochs, {self.seeds} seed(s): {ends}. From the largest scale it goes "
            f"below {PAPER[0]:g} {passed}; the paper names neither its number of epochs nor its scale of the pixels"
        )


def stable_rank(W: np.ndarray) -> float:
    """‖W‖_F²/‖W‖₂², from the smaller Gram matrix in float64."""
    gram = np.asarray(W, np.float64)
    gram = gram @ gram.T if gram.shape[0] <= gram.shape[1] else gram.T @ gram
    return float(np.trace(gram) / np.linalg.eigvalsh(gram)[-1])


def _rows(images) -> np.ndarray:
    """Bytes, one image a row."""
    return images.pixels.reshape(len(images.pixels), -1)
