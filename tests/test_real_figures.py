"""Figures on image files: the training loop against descents and by hand, resumption to the bit, what is read."""

import dataclasses
import struct

import numpy as np
import pytest

from marginflow._core.errors import InputError
from marginflow._core.paths import data_directory
from marginflow.data.dataset import Dataset
from marginflow.experiments import catalogue, digit_net, experiment, minibatch
from marginflow.experiments.base import override, reproduce
from marginflow.experiments.figures import frei2022_cifar10, phuong2021_fig3, phuong2021_fig4
from marginflow.experiments.minibatch import Examples, Recipe, accuracy, epochs_and_fractions, outputs, train
from marginflow.flows.descents import descend
from marginflow.nets import Convolutional, TwoLayer, inits
from marginflow.store import CheckpointFolder

REAL = data_directory()
PLAIN = Recipe("logistic", "sgd", 0.1, 4, 3, 5)


@pytest.fixture(scope="module")
def cloud():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 6)).astype(np.float32)
    return Dataset(X, np.where(X[:, 0] + 0.1 * X[:, 1] > 0, 1.0, -1.0))


def examples(data) -> Examples:
    return Examples(data.X, data.y.astype(np.float32))


def run(net, theta, data, recipe=PLAIN, record_at=(), **options):
    return train(net, theta, data, recipe, record_at=record_at, observe=lambda theta: theta, **options)


@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.1), ("adam", 0.01)])
def test_it_agrees_with_descents(cloud, optimiser, lr):
    """Same data order, a last batch of 2 of 4, and float32 here and there: two independent loops, one path."""
    net, recipe = TwoLayer(5), Recipe("logistic", optimiser, lr, 4, 3, 5)
    theta = inits.uniform(net, cloud.d, 1.0, 1)
    ours = run(net, theta, examples(cloud), recipe).records
    theirs = descend(
        net, theta, cloud, method=optimiser, lr=lr, batch=4, epochs=3, seed=5, precision="single"
    ).theta
    for name in ("W", "a"):
        assert np.linalg.norm(ours[name][-1] - theta[name]) > 1e-2
        np.testing.assert_allclose(ours[name][-1], theirs[name], rtol=2e-4, atol=2e-6)


def test_a_cross_entropy_step_by_hand():
    rng = np.random.default_rng(1)
    X, labels = rng.integers(0, 256, (6, 4), dtype=np.uint8), np.array([0, 2, 1, 1, 0, 2], np.int32)
    net, mean, spread = TwoLayer(5, outputs=3), np.full(4, 100.0), np.full(4, 50.0)
    theta = inits.gaussian(net, 4, 0.5, 0)
    W, a = theta["W"], theta["a"]
    Z = (X - mean) / spread
    hidden = np.maximum(Z @ W.T, 0)
    p = np.exp(hidden @ a.T)
    p /= p.sum(axis=1, keepdims=True)
    error = (p - np.eye(3)[labels]) / 6
    new_a = a - 0.3 * error.T @ hidden
    new_W = W - 0.3 * ((error @ a) * (hidden > 0)).T @ Z
    recipe = Recipe("cross-entropy", "sgd", 0.3, 6, 1, 0)
    seen = Examples(X, labels, mean, spread)
    end = run(net, theta, seen, recipe).records
    np.testing.assert_allclose(end["W"][-1], new_W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(end["a"][-1], new_a, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs(net, {"W": W, "a": a}, seen), hidden @ a.T, rtol=1e-5, atol=1e-5)
    assert accuracy(net, {"W": W, "a": a}, seen) == np.mean((hidden @ a.T).argmax(axis=1) == labels)


def test_more_epochs_go_on_and_fewer_are_read(cloud, tmp_path, monkeypatch):
    net, kept = TwoLayer(5), CheckpointFolder(tmp_path)
    theta, at = inits.uniform(net, cloud.d, 1.0, 2), (0, 3, 6, 12)
    three, six = (dataclasses.replace(PLAIN, epochs=e, optimiser="adam") for e in (2, 6))
    run(net, theta, examples(cloud), three, at, checkpoints=kept)
    more = run(net, theta, examples(cloud), six, at, checkpoints=kept)
    fresh = run(net, theta, examples(cloud), six, at)
    assert more.steps.tolist() == [0, 3, 6, 12, 18]
    np.testing.assert_array_equal(more.records["W"], fresh.records["W"])
    monkeypatch.setattr(minibatch, "_step", lambda *_: pytest.fail("trained again"))
    fewer = run(net, theta, examples(cloud), three, at, checkpoints=kept)
    np.testing.assert_array_equal(fewer.records["a"], fresh.records["a"][:3])


def test_a_killed_training_ends_with_the_same_bits(cloud, tmp_path, monkeypatch):
    monkeypatch.setattr(minibatch, "SAVE_SECONDS", 0.0)
    net, kept = TwoLayer(5), CheckpointFolder(tmp_path)
    theta = inits.uniform(net, cloud.d, 1.0, 3)

    def killed(weights):
        raise KeyboardInterrupt

    calls = []

    def observe(weights):
        calls.append(1)
        return weights if len(calls) < 4 else killed(weights)

    whole = run(net, theta, examples(cloud), record_at=range(9))
    with pytest.raises(KeyboardInterrupt):
        train(net, theta, examples(cloud), PLAIN, record_at=range(9), observe=observe, checkpoints=kept)
    seen = []
    again = train(
        net, theta, examples(cloud), PLAIN, record_at=range(9), checkpoints=kept,
        observe=lambda weights: seen.append(1) or weights,
    )  # fmt: skip
    assert len(seen) < 10
    np.testing.assert_array_equal(again.records["W"], whole.records["W"])


def test_other_data_seed_or_step_are_other_trainings(cloud, tmp_path):
    net, kept = TwoLayer(5), CheckpointFolder(tmp_path)
    theta = inits.uniform(net, cloud.d, 1.0, 4)
    asked = [
        (examples(cloud), PLAIN),
        (examples(cloud.take(range(9))), PLAIN),
        (examples(cloud), dataclasses.replace(PLAIN, seed=6)),
        (examples(cloud), dataclasses.replace(PLAIN, lr=0.2)),
    ]
    ends = [run(net, theta, data, recipe, checkpoints=kept).records["W"][-1] for data, recipe in asked]
    assert len(list(tmp_path.iterdir())) == 4
    assert all(not np.array_equal(ends[0], end) for end in ends[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [({"lr": 1e30, "epochs": 20}, "lower lr"), ({"lr": 0.0}, "step size"), ({"batch": 0}, "batch 0"),
     ({"loss": "hinge"}, "loss 'hinge'"), ({"optimiser": "adm"}, "did you mean 'adam'")],
)  # fmt: skip
def test_recipes_that_cannot_work_are_refused(cloud, change, message):
    net = TwoLayer(5)
    with pytest.raises(InputError, match=message):
        run(net, inits.uniform(net, cloud.d, 1.0, 0), examples(cloud), dataclasses.replace(PLAIN, **change))


def test_records_at_every_epoch_and_within_the_first():
    recipe = Recipe("logistic", "sgd", 0.1, 128, 3, 0)
    assert epochs_and_fractions(recipe, 1000) == [0, 8, 16, 24]
    steps = epochs_and_fractions(recipe, 50000, 6)
    assert steps[:2] == [0, 1]
    assert steps[-3:] == [391, 782, 1173]
    assert sorted(set(steps)) == steps


def brute(R, y):
    """Shares and order by their definitions, pair by pair."""
    n = len(y)
    pair = [(i, j) for i in range(n) for j in range(i)]
    within = [[R[i] @ R[j] for i, j in pair if y[i] == y[j] == s] for s in (-1, 1)]
    across = [R[i] @ R[j] for i, j in pair if y[i] != y[j]]
    order = [np.mean([(w > a) + 0.5 * (w == a) for w in group for a in across]) for group in within]
    wrong = np.mean([np.mean([w <= 0 for w in group]) for group in within])
    return wrong, np.mean([a > 0 for a in across]), np.mean(order)


@pytest.mark.parametrize("seed", range(3))
def test_comparison_by_definition(seed):
    rng = np.random.default_rng(seed)
    R, y = rng.integers(-2, 3, (12, 3)).astype(float), np.where(rng.random(12) < 0.5, 1.0, -1.0)
    y[:4] = [1, 1, -1, -1]
    np.testing.assert_allclose(phuong2021_fig3.compare(R, y), brute(R, y), rtol=1e-12)
    edges, density = phuong2021_fig3.densities(R, y)
    assert density.shape == (3, len(edges) - 1)
    assert np.all(density.sum(axis=1) * (edges[1] - edges[0]) <= 1 + 1e-12)


def test_separability_looks_beyond_the_sample(monkeypatch):
    """Separable sample, one violating pair outside it: the answer is about the whole."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.uniform(1, 2, (20, 2)), -rng.uniform(1, 2, (20, 2))])
    y = np.repeat([1.0, -1.0], 20)
    bad = X.copy()
    bad[19] = [-3.0, 0.5]
    part = phuong2021_fig3.first_of_each_class(Dataset(X, y), 10)
    assert part.n == 20
    sample = [phuong2021_fig3.separability(part.X, part.y)]
    assert sample[0][0] == 1
    for whole, code in ((X, 1), (bad, 0)):
        monkeypatch.setattr(
            phuong2021_fig3, "represented", lambda net, theta, X, names: dict.fromkeys(names, X)
        )
        ((found, slack),) = phuong2021_fig3.beyond_the_sample(sample, ["x"], None, None, Dataset(whole, y))
        assert found == code
        assert slack > 0 if code else slack < 0
    monkeypatch.setattr(phuong2021_fig3, "represented", lambda *_: pytest.fail("decided already"))
    assert phuong2021_fig3.beyond_the_sample([(0, -0.1)], ["x"], None, None, Dataset(X, y)) == [(0, -0.1)]
    zero = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    assert phuong2021_fig3.separability(zero, np.array([1.0, 1.0, -1.0])) == (0, 0.0)


def test_three_clusters_and_their_plane():
    rng = np.random.default_rng(2)
    up, down = np.array([3.0, 1.0]), np.array([-2.0, 2.0])
    rows = np.concatenate([up + 0.1 * rng.normal(size=(20, 2)), down + 0.1 * rng.normal(size=(30, 2)),
                           0.1 * rng.normal(size=(50, 2))])  # fmt: skip
    a = np.concatenate([np.ones(20), -np.ones(30), np.tile([1.0, -1.0], 25)])
    assert phuong2021_fig4.three_clusters(rows, a) == (0.5, 0.5, 1.0)
    flipped = a.copy()
    flipped[:2] = -1
    near, _, side = phuong2021_fig4.three_clusters(rows, flipped)
    assert near == 0.5
    assert side == pytest.approx(48 / 50)
    assert np.isnan(phuong2021_fig4.three_clusters(rows, np.ones(100))[2])
    basis = np.linalg.qr(rng.normal(size=(7, 2)))[0]
    plane = phuong2021_fig4.on_top_two(rows @ basis.T, a)
    np.testing.assert_allclose(np.linalg.norm(plane, axis=1), np.linalg.norm(rows, axis=1), rtol=1e-10)
    assert np.all(np.sign(a) @ plane >= 0)


def test_stable_rank_is_that_of_the_singular_values():
    W = np.random.default_rng(3).normal(size=(6, 9)).astype(np.float32)
    s = np.linalg.svd(W.astype(np.float64), compute_uv=False)
    for matrix in (W, W.T, np.float32(1e-12) * W):
        assert frei2022_cifar10.stable_rank(matrix) == pytest.approx(np.sum(s**2) / s[0] ** 2, rel=1e-6)


def test_pixels_are_standardised_by_channel():
    pixels = np.random.default_rng(4).integers(0, 256, (50, 3072), dtype=np.uint8)
    mean, spread = frei2022_cifar10.VIEWS["standardised"](pixels)
    colours = pixels.reshape(50, 3, 1024).astype(float)
    np.testing.assert_allclose(mean.reshape(3, -1)[:, 0], colours.mean(axis=(0, 2)), rtol=1e-12)
    np.testing.assert_allclose(spread.reshape(3, -1)[:, 7], colours.std(axis=(0, 2)), rtol=1e-12)


def test_representations_are_the_net_s_own():
    net = Convolutional(
        image=(1, 6, 6), channels=(2, 3), kernels=(3, 3), strides=(1, 2), paddings=(1, 1), hidden=(4,)
    )
    theta = inits.uniform(net, 36, 1.0, 0)
    X = np.random.default_rng(5).normal(size=(7, 36)).astype(np.float32)
    found = dict(digit_net.representations(net, theta, X))
    assert list(found) == ["x", "1 before", "1 after", "2 before", "2 after", "3 before", "3 after", "4"]
    for layer in net.layers(theta, X):
        number = layer.name[1:]
        for when, wanted in (("before", layer.pre), ("after", layer.post)):
            key = "4" if number == "4" else f"{number} {when}"
            np.testing.assert_allclose(found[key], np.reshape(wanted, (7, -1)), rtol=1e-4, atol=1e-5)
    blocks = digit_net.represented(net, theta, X, ["3 before", "4"], block=3)
    for name, R in blocks.items():
        np.testing.assert_allclose(R, found[name], rtol=1e-4, atol=1e-6)


def _idx(array: np.ndarray) -> bytes:
    return (
        struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rings for 0 and bars for 1, and ten colours, in the files' own formats."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name in ("mnist", "cifar-10-batches-bin"):
        (folder / name).mkdir()
    row, column = np.mgrid[:28, :28] - 13.5
    for stem, n in (("train", 60), ("t10k", 30)):
        labels = np.arange(n) % 2
        radius, width = rng.uniform(6, 10, (n, 1, 1)), rng.uniform(1, 3, (n, 1, 1))
        ring = np.abs(np.hypot(row, column) - radius) < width
        pixels = np.where(labels[:, None, None] == 0, ring, np.abs(column) + 0 * radius < width)
        (folder / "mnist" / f"{stem}-images-idx3-ubyte").write_bytes(_idx(255 * pixels))
        (folder / "mnist" / f"{stem}-labels-idx1-ubyte").write_bytes(_idx(labels))
    colours = rng.integers(60, 200, (10, 3072))
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        labels = np.arange(40) % 10
        pixels = np.clip(colours[labels] + np.random.default_rng(k).normal(0, 20, (40, 3072)), 0, 255)
        records = np.concatenate([labels[:, None], pixels], axis=1).astype(np.uint8)
        (folder / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(records.tobytes())
    return folder


@pytest.fixture
def written(files, monkeypatch):
    monkeypatch.setenv("MARGINFLOW_DATA", str(files))
    return files


def test_both_mnist_figures_from_one_training(written, tmp_path, monkeypatch):
    small = Convolutional(channels=(2, 2, 4, 4, 4, 4), hidden=(16,))
    monkeypatch.setattr(digit_net.DigitNet, "net", small)
    settings = {"epochs": "2", "batch": "30", "seeds": "1"}
    third = reproduce(override(override(experiment("phuong2021_fig3"), {"sample": "15"}), settings), tmp_path)
    monkeypatch.setattr(minibatch, "_step", lambda *_: pytest.fail("the kept training was not used"))
    fourth = reproduce(override(experiment("phuong2021_fig4"), settings), tmp_path)
    assert len(list((written / "trainings").iterdir())) == 1
    for made, name in ((third, "phuong2021_fig3"), (fourth, "phuong2021_fig4")):
        assert {p.name for p in tmp_path.glob(f"{name}.*")} == {
            f"{name}.{s}" for s in ("nc", "png", "pdf", "json")
        }
        assert all(number.why for number in made.numbers)
    by_name = {number.name: number for number in fourth.numbers}
    assert by_name["the same before training"].ours == 16
    order = {n.name: n.ours for n in third.numbers}["the same at the input"]
    assert order is not None
    assert order > 0.6  # rings meet a bar in few pixels


def test_the_cifar_figure(written, tmp_path):
    small = override(
        experiment("frei2022_cifar10"),
        {
            "width": "30",
            "epochs": "12",
            "batch": "20",
            "lr": "0.2",
            "scales": "(1.0,0.02)",
            "evaluated": "100",
        },
    )
    made = reproduce(small, tmp_path)
    numbers = {n.name: n.ours for n in made.numbers}
    start = frei2022_cifar10.stable_rank(inits.tensorflow(TwoLayer(30, outputs=10), 3072, 1.0, 0)["W"])
    least = numbers["smallest stable rank, initial weights x 0.02"]
    assert least is not None
    assert 1 <= least < 6 < start  # ten means of class: rank at most nine, and far less in norm
    again = reproduce(small, tmp_path)
    assert [n.ours for n in again.numbers] == [n.ours for n in made.numbers]


@pytest.mark.parametrize("name", ["phuong2021_fig3", "phuong2021_fig4", "frei2022_cifar10"])
def test_missing_files_are_named(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINFLOW_DATA", str(tmp_path))
    chosen = experiment(name)
    assert chosen.needs
    with pytest.raises(InputError, match=r"MARGINFLOW_DATA") as caught:
        catalogue.reproduce_one(chosen, out=str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [("frei2022_cifar10", {"scales": "()"}, "scales"), ("frei2022_cifar10", {"inputs": "unitt"}, "did you mean 'unit'"),
     ("phuong2021_fig3", {"sample": "1"}, "sample 1")],
)  # fmt: skip
def test_settings_that_make_no_sense(name, settings, message):
    with pytest.raises(InputError, match=message):
        override(experiment(name), settings)


def _real(tmp_path, monkeypatch, folder):
    if not (REAL / folder).is_dir():
        pytest.skip(f"the files are not in {REAL / folder}")
    (tmp_path / folder).symlink_to(REAL / folder)
    monkeypatch.setenv("MARGINFLOW_DATA", str(tmp_path))


@pytest.mark.realdata
def test_real_digits_become_more_separate_with_depth(tmp_path, monkeypatch):
    _real(tmp_path, monkeypatch, "mnist")
    result = dataclasses.replace(experiment("phuong2021_fig3"), epochs=5, n=1000, sample=60).measure()
    end = result.isel(seed=0)
    assert float(end.test_accuracy) > 0.95
    # The output, not the seventh layer: so early in training the seventh differs by more than 0.1 between seeds.
    order = end.order.sel(split="test")
    assert float(order.sel(representation="8")) > float(order.sel(representation="x")) + 0.05
    assert float(end.wrong_across.sel(split="test", representation="x")) == 1.0  # pixels are not negative
    assert int(end.separable.sel(split="train", representation="x")) == 0


@pytest.mark.realdata
def test_real_colours_lose_their_rank_from_small_weights_only(tmp_path, monkeypatch):
    _real(tmp_path, monkeypatch, "cifar-10-batches-bin")
    small = dataclasses.replace(
        experiment("frei2022_cifar10"), width=64, scales=(1.0, 0.02), epochs=3, n=5000, evaluated=500
    )
    rank = small.measure().stable_rank.isel(seed=0)
    assert float(rank.sel(scale=1.0).min()) > 0.8 * float(rank.sel(scale=1.0)[0])
    assert float(rank.sel(scale=0.02).min()) < 0.25 * float(rank.sel(scale=0.02)[0])
