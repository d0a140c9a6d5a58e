"""Figure 3 of Phuong & Lampert 2021: inner products of the representations of a net that learns 0 against 1."""

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.status import Status
from marginflow.data.dataset import Dataset
from marginflow.experiments.base import Number
from marginflow.experiments.digit_net import DigitNet, representations, represented, right, weights

KINDS = ("within 0", "within 1", "across")
SPLITS = ("train", "test")
BINS = 60
SHOWN = 0.002  # share of the products cut off at each end of a panel
SEVENTH = "7 before"


@dataclasses.dataclass(frozen=True)
class Figure3(DigitNet):
    """sample: images of each class whose pairs give the distributions and shares; separability is decided on all."""

    sample: int = 400

    name: ClassVar[str] = "phuong2021_fig3"
    title: ClassVar[str] = (
        "MNIST 0 against 1, convolutional net: inner products within and across classes, by layer"
    )
    paper: ClassVar[str] = "phuong2021"
    needs: ClassVar[tuple[str, ...]] = ("mnist",)

    def __post_init__(self):
        if self.sample < 2:
            raise InputError(f"sample {self.sample}; give at least 2 images of each class")

    def quick(self) -> Self:
        return dataclasses.replace(self, epochs=5, n=1000, sample=100)

    def measure(self) -> Any:
        import xarray

        sets = self.digits()
        parts = [first_of_each_class(data, self.sample) for data in sets]
        seeds = range(self.seed, self.seed + self.seeds)
        runs = [self._one(sets, parts, seed) for seed in seeds]
        by_layer, over_time = ("seed", "split", "representation"), ("seed", "split", "record")
        dims = dict.fromkeys(("wrong_within", "wrong_across", "order", "separable", "slack"), by_layer)
        dims |= {"wrong_seventh": over_time, "test_accuracy": ("seed",)}
        values = {key: (dim, np.stack([run[key] for run in runs])) for key, dim in dims.items()}
        return xarray.Dataset(
            {
                **values,
                "edges": (("split", "representation", "edge"), runs[0]["edges"]),
                "density": (("split", "representation", "kind", "bin"), runs[0]["density"]),
            },
            coords={
                "seed": np.array(seeds, np.int32),
                "split": np.array(SPLITS),
                "epoch": ("record", runs[0]["epochs"]),
                "representation": np.array(runs[0]["names"]),
                "kind": np.array(KINDS),
            },
        )

    def _one(self, sets: tuple[Dataset, Dataset], parts: list[Dataset], seed: int) -> dict[str, Any]:
        """One seed: every layer at the end, and the seventh at every record."""
        net, course = self.net, self.course(sets[0], seed)
        theta = weights(course, -1)
        rows: list[dict[str, list]] = []
        for part, data in zip(parts, sets, strict=True):
            row: dict[str, list] = {key: [] for key in ("names", "shares", "drawn", "verdicts")}
            for name, R in representations(net, theta, part.X):
                row["names"].append(name)
                row["shares"].append(compare(R, part.y))
                row["drawn"].append(densities(R, part.y))
                row["verdicts"].append(separability(R, part.y))
            row["verdicts"] = beyond_the_sample(row["verdicts"], row["names"], net, theta, data)
            rows.append(row)
        during = [
            [
                sum(compare(seventh(net, weights(course, k), part.X), part.y)[:2]) / 2
                for k in range(len(course.steps))
            ]
            for part in parts
        ]
        shares = np.array([row["shares"] for row in rows])
        return {
            "names": rows[0]["names"],
            "epochs": course.epochs,
            "wrong_within": shares[..., 0],
            "wrong_across": shares[..., 1],
            "order": shares[..., 2],
            "wrong_seventh": np.array(during),
            "test_accuracy": right(net, theta, sets[1]),
            "separable": np.array([[v[0] for v in row["verdicts"]] for row in rows], np.int8),
            "slack": np.array([[v[1] for v in row["verdicts"]] for row in rows]),
            "edges": np.array([[d[0] for d in row["drawn"]] for row in rows]),
            "density": np.array([[d[1] for d in row["drawn"]] for row in rows]),
        }

    def numbers(self, result: Any) -> tuple[Number, ...]:
        before = [name for name in result.representation.values if not name.endswith("after")]
        last = result.sel(representation=SEVENTH)
        ordering = result.order.sel(split="train", representation=before[:8]).mean("seed").values
        train = result.separable.sel(split="train")
        first = [
            next((k for k, name in enumerate(before) if train.sel(seed=s, representation=name) == 1), None)
            for s in result.seed.values
        ]
        return (
            Number(
                "layer 7 orthogonally separable, all training images (share of seeds)",
                float(train.sel(representation=SEVENTH).mean()),
                1.0,
                (1.0, 1.0),
                "the paper: orthogonally separable",
            ),
            Number(
                "layer 7 orthogonally separable, all test images (share of seeds)",
                float(result.separable.sel(split="test", representation=SEVENTH).mean()),
                None,
                (1.0, 1.0),
                "the paper does not say on which images; held to the same",
            ),
            Number(
                "first layer that is orthogonally separable (training images, before the activation)",
                None if None in first else float(np.mean(first)),  # type: ignore[arg-type]
                7.0,
                (7.0, 7.0),
                "the paper: the 7th; undecided where no layer is",
            ),
            Number(
                "pairs of the wrong sign at layer 7, train",
                float(((last.wrong_within + last.wrong_across) / 2).sel(split="train").mean()),
                0.0,
                (0.0, 1e-3),
                "a few misread digits may be on the wrong side: ten pairs in ten thousand",
            ),
            Number(
                "pairs of the wrong sign at layer 7, test",
                float(((last.wrong_within + last.wrong_across) / 2).sel(split="test").mean()),
                None,
                (0.0, 1e-2),
                "ten times the band of the training images",
            ),
            Number(
                "probability that a pair within a class has the larger product: layer 7",
                float(ordering[-1]),
                "classes apart",
                (0.999, 1.0),
                "separable representations give 1",
            ),
            Number(
                "the same at the input",
                float(ordering[0]),
                "overlapping",
                (0.5, 0.999),
                "pixels overlap in the paper's first panel",
            ),
            Number(
                "rank correlation of that probability with depth, input to layer 7",
                _rank_correlation(ordering),
                "generally more",
                (0.5, 1.0),
                "the paper: generally more separated with depth",
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
        from marginflow.report import style

        names = [name for name in result.representation.values if not name.endswith("after")]
        fig, axes = style.figure(2, 5, width=3.1, height=2.7)
        colors = dict(zip(KINDS, (style.POSITIVE, style.ACCENT, style.NEGATIVE), strict=True))
        lines = dict(zip(KINDS, ("-", "--", ":"), strict=True))
        for ax, name in zip(axes.flat, names, strict=False):
            one = result.sel(split="train", representation=name)
            for kind in KINDS:
                ax.stairs(one.density.sel(kind=kind), one.edges, fill=True, alpha=0.25, color=colors[kind])
                ax.stairs(
                    one.density.sel(kind=kind),
                    one.edges,
                    color=colors[kind],
                    linestyle=lines[kind],
                    label=kind,
                )
            ax.axvline(0, color=style.PREDICTED, linewidth=0.8)
            said = "separable" if bool((one.separable == 1).all()) else "not separable"
            ax.set(title=f"{'input' if name == 'x' else f'layer {name.split()[0]}'}: {said}", yticks=[])
            ax.ticklabel_format(axis="x", scilimits=(-2, 3))
            ax.set_xlabel("inner product")
        axes[0, 0].legend()
        ax = axes.flat[9]
        wrong = ((result.wrong_within + result.wrong_across) / 2).sel(representation=names).mean("seed")
        for split, look in (("train", "o-"), ("test", "s--")):
            ax.plot(range(len(names)), wrong.sel(split=split), look, label=split, markersize=4)
        ax.set_yscale("symlog", linthresh=1e-4)
        ax.set(
            xlabel="layer (0: the input)",
            title="pairs of the wrong sign",
            xticks=range(len(names)),
            ylabel="share",
            ylim=(0, 1),
        )
        ax.legend()
        return fig

    def note(self, result: Any) -> str:
        separable = {}
        for split in SPLITS:
            every_seed = (result.separable.sel(split=split) == 1).all("seed")
            separable[split] = ", ".join(result.representation.values[every_seed.values]) or "none"
        wrong = result.wrong_seventh.sel(split="train").mean("seed")
        course = ", ".join(
            f"{float(w):.2g} after epoch {float(e):g}" for w, e in zip(wrong, result.epoch, strict=True)
        )
        return (
            f"separable for every seed: {separable['train']} (train), {separable['test']} (test). The input of the "
            "fully connected layers, '6 after', is nowhere negative, so orthogonal separability would ask for disjoint "
            f"supports there. Pairs of the wrong sign at layer 7, train: {course}"
        )


def first_of_each_class(data: Dataset, count: int) -> Dataset:
    rows = np.sort(np.concatenate([data.positive[:count], data.negative[:count]]))
    return data.take(rows)


def nonzero(R: np.ndarray) -> bool:
    """No row is zero. A zero row has product 0 with itself, which orthogonal separability forbids."""
    return bool(np.any(R != 0, axis=1).all())


def products(R: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x_iᵀx_j over the pairs within the negative class, within the positive one, and across."""
    G = R @ R.T
    plus, minus = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
    within = [G[np.ix_(rows, rows)][np.triu_indices(len(rows), 1)] for rows in (minus, plus)]
    return within[0], within[1], G[np.ix_(minus, plus)].ravel()


def compare(R: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Shares of pairs of the wrong sign within and across, and P(product within > product across), ties counting half.

    Each class counts alike within. Signs are those of float32 products; `separability` decides exactly.
    """
    zero, one, across = products(R, y)
    across = np.sort(across)
    below = lambda v: np.mean([np.searchsorted(across, v, side) for side in ("left", "right")]) / len(across)  # noqa: E731
    return (
        float((np.mean(zero <= 0) + np.mean(one <= 0)) / 2),
        float(np.mean(across > 0)),
        float((below(zero) + below(one)) / 2),
    )


def densities(R: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(edges, density per kind) over the middle of all products; what lies outside counts in no bin."""
    groups = products(R, y)
    low, high = np.quantile(np.concatenate(groups), [SHOWN, 1 - SHOWN])
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    width = edges[1] - edges[0]
    return edges, np.stack([np.histogram(v, edges)[0] / (len(v) * width) for v in groups])


def seventh(net: Any, theta: Any, X: np.ndarray) -> np.ndarray:
    return represented(net, theta, X, [SEVENTH])[SEVENTH]


def separability(R: np.ndarray, y: np.ndarray) -> tuple[int, float]:
    """(1 separable, 0 not, -1 undecided; slack), decided exactly for the float32 numbers given."""
    from marginflow.conditions import orthogonal_separability

    if not nonzero(R):
        return 0, 0.0
    verdict = orthogonal_separability.orthogonal_separability(Dataset(R, y))
    code = {Status.HOLDS: 1, Status.FAILS: 0}.get(verdict.status, -1)
    return code, float("nan") if verdict.slack is None else verdict.slack


def beyond_the_sample(
    verdicts: list[tuple[int, float]], names: list[str], net: Any, theta: Any, data: Dataset
) -> list[tuple[int, float]]:
    """The verdicts on all of `data`. A pair that violates in a part violates in the whole, so only the representations
    that are separable on the sample are looked at again."""
    again = [name for name, verdict in zip(names, verdicts, strict=True) if verdict[0] != 0]
    whole = represented(net, theta, data.X, again) if again else {}
    return [
        separability(whole[name], data.y) if name in whole else verdict
        for name, verdict in zip(names, verdicts, strict=True)
    ]


def _rank_correlation(values: np.ndarray) -> float:
    """Spearman's, of the values with their order."""
    from scipy.stats import rankdata

    return float(np.corrcoef(np.arange(len(values)), rankdata(values))[0, 1])
