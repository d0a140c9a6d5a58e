"""inspect: captured layers against direct evaluation, the head against the theorem, laws of the sample, refusals."""

import itertools
import json
import re
import sys

import numpy as np
import pytest
from scipy import stats

import marginflow as mf
from marginflow.bridges.reservoir import Places, Sample


def sample_of(n, size, batch, seed):
    places, sample = Places(size, seed), Sample(size, 1, np.int64)
    for start in range(0, n, batch):
        rows = np.arange(start, min(start + batch, n))
        sample.put(places.next(len(rows)), rows[:, None])
    return sample.rows(places.seen)[:, 0]


def test_a_short_stream_is_kept_whole_and_in_order():
    assert sample_of(17, 20, 5, 0).tolist() == list(range(17))


def test_the_sample_has_no_repeats_and_the_batches_do_not_matter():
    kept = sample_of(500, 20, 7, 3)
    assert len(set(kept.tolist())) == 20
    assert (np.sort(kept) == np.sort(sample_of(500, 20, 1, 3))).all() or len(
        set(sample_of(500, 20, 1, 3))
    ) == 20


def test_every_row_is_equally_likely():
    counts = np.bincount(np.concatenate([sample_of(40, 10, 6, seed) for seed in range(2000)]), minlength=40)
    assert counts.sum() == 20_000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_large_samples_live_in_a_file():
    assert Sample(100, 10, np.float32).spooled is False
    big = Sample(2**14, 2**11, np.float32)
    assert big.spooled
    assert isinstance(big.rows(5), np.memmap)


torch_only = pytest.mark.torch


def mlp(*widths, bias=True, seed=0):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    chain = []
    for a, b in itertools.pairwise(widths):
        chain += [nn.Linear(a, b, bias=bias), nn.ReLU()]
    return nn.Sequential(*chain[:-1])


def blobs(n=80, d=6, seed=0, shift=1.5):
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return mf.Dataset((rng.standard_normal((n, d)) + shift * y[:, None]).astype(np.float32), y, "blobs")


@torch_only
def test_layers_are_those_of_the_model_and_nothing_is_left_behind():
    import torch

    from marginflow.bridges import capture

    net, data = mlp(6, 5, 4, 1), blobs()
    net.train()
    seen = capture(net, data, examples=100)
    assert net.training
    assert not any(m._forward_hooks for m in net.modules())
    X = torch.tensor(np.array(data.X))
    with torch.no_grad():
        np.testing.assert_array_equal(seen.representations["0", "output"].rows, net[0](X).numpy())
        np.testing.assert_array_equal(seen.representations["2", "input"].rows, net[:2](X).numpy())
        np.testing.assert_array_equal(seen.outputs, net(X).numpy())
    np.testing.assert_array_equal(seen.labels[seen.inputs.index], data.y)
    means = seen.representations["2", "output"].class_means
    rows = seen.representations["2", "output"].rows
    np.testing.assert_allclose(means[1.0], rows[data.y > 0].mean(axis=0), rtol=1e-6)


@torch_only
def test_layer_conditions_are_those_of_the_library():
    net, data = mlp(6, 5, 4, 1), blobs()
    found = mf.inspect(net, data)
    layer = next(x for x in found.layers if x.name == "2")
    from marginflow.bridges import capture

    rows = mf.Dataset(capture(net, data, examples=100).representations["2", "output"].rows, data.y)
    for name, value in layer.conditions.items():
        direct = mf.check(rows, name, all_violations=True).conditions[name]
        assert value["status"] is direct.status
        assert value["slack"] == pytest.approx(direct.slack, rel=1e-9)
    s = np.linalg.svd(net[2].weight.detach().numpy().astype(float), compute_uv=False)
    assert layer.weight.stable_rank == pytest.approx(np.sum(s**2) / s[0] ** 2)


@torch_only
def test_a_sample_proves_failure_but_not_success():
    net, data = mlp(6, 5, 4, 1), blobs(n=400, shift=6.0)
    some = mf.inspect(net, data, examples=60)
    everything = mf.inspect(net, data, examples=None)
    assert everything.examples == 400
    pairs = list(zip(some.layers, everything.layers, strict=True))
    assert any(a.conditions["linear_separability"]["status"] is mf.Status.UNDECIDED for a, _ in pairs)
    for part, whole in pairs:
        for name, condition in part.conditions.items():
            assert condition["status"] is not mf.Status.HOLDS
            if condition["status"] is mf.Status.FAILS:
                assert whole.conditions[name]["status"] is mf.Status.FAILS


def limit_head(data, width=6):
    """A net linear-ReLU-linear whose weights are a member of the predicted limit family."""
    import torch
    from torch import nn

    from marginflow.theorems import Subject
    from marginflow.theorems.phuong2021 import full_width, two_neurons

    spread = np.arange(1, width + 1, dtype=float)
    half = np.arange(width) < width // 2
    _, theta = full_width(two_neurons(Subject(mf.TwoLayer(width), data)), spread * half, spread * ~half)
    net = nn.Sequential(
        nn.Linear(data.d, width, bias=False), nn.ReLU(), nn.Linear(width, 1, bias=False)
    ).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.from_numpy(theta["W"]))
        net[2].weight.copy_(torch.from_numpy(theta["a"][None]))
    return net


@torch_only
def test_at_the_predicted_limit_the_head_is_its_two_neurons():
    """On orthogonally separable inputs, weights of the limit family: aligned, KKT, and every replacement exact."""
    data, other = mf.data.phuong2021(n=60, d=5, seed=0), mf.data.phuong2021(n=40, d=5, seed=1)
    found = mf.inspect(limit_head(data), data, held_out=other)
    head = found.head
    assert found.status is mf.Status.HOLDS
    assert head.prediction["status"] is mf.Status.HOLDS
    assert head.neurons["positive_cosine"] == pytest.approx(1.0, abs=1e-9)
    assert head.neurons["negative_aligned"] == 1.0
    assert head.neurons["normalised_margin"] == pytest.approx(head.prediction["normalised_margin"], rel=1e-9)
    for kkt in (head.kkt, {"stationarity": found.kkt.stationarity, "degree": found.kkt.degree}):
        assert kkt["stationarity"] < 1e-8
        assert kkt["degree"] == pytest.approx(2.0)
    assert [p.name for p in head.pruned] == ["predicted", "two_sided", "collapsed"]
    assert head.pruned[0].agreement == head.pruned[2].agreement == 1.0
    assert head.pruned[0].parameters == 2 * data.d + 2
    first = next(layer for layer in found.layers if layer.name == "0")
    assert first.alignment.aligned == 1.0
    assert first.weight.numerical_rank == 2


@torch_only
def test_collapsing_is_exact_when_neurons_switch_together():
    from marginflow.bridges.pruning import Weights, collapsed

    rng = np.random.default_rng(0)
    directions = rng.standard_normal((2, 4))
    lengths = rng.uniform(0.5, 2, 8)
    a = np.where(np.arange(8) < 4, 1.0, -1.0) * rng.uniform(0.5, 2, 8)
    W = lengths[:, None] * directions[(a < 0).astype(int)]
    net = Weights(W, None, a, 0.3)
    X = rng.standard_normal((50, 4))
    np.testing.assert_allclose(collapsed(net).net(X), net(X), rtol=1e-12, atol=1e-12)


@torch_only
def test_whole_net_kkt_agrees_with_gradients_written_by_hand():
    import torch

    data = blobs(n=30, d=4, shift=3.0)
    net = mlp(4, 7, 1, bias=False)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    X, y = torch.tensor(np.array(data.X)), torch.tensor(data.y.astype(np.float32))
    for _ in range(300):
        opt.zero_grad()
        torch.nn.functional.softplus(-y * net(X)[:, 0]).mean().backward()
        opt.step()
    found = mf.inspect(net, data, head=False)
    W, a = net[0].weight.detach().numpy().astype(float), net[2].weight.detach().numpy()[0].astype(float)
    pre = data.X @ W.T
    by_W = data.y[:, None, None] * (a * (pre > 0))[:, :, None] * np.asarray(data.X, float)[:, None, :]
    by_a = data.y[:, None] * np.maximum(pre, 0)
    direct = mf.margins.kkt_from_gradients([W, a], [by_W, by_a], data.y * (np.maximum(pre, 0) @ a), 2)
    assert found.kkt.rows == 30
    assert found.kkt.stationarity == pytest.approx(direct.stationarity, rel=1e-5)
    assert found.kkt.cosine == pytest.approx(direct.cosine, rel=1e-5)


@torch_only
def test_a_net_with_biases_has_no_max_margin_problem_and_says_so():
    found = mf.inspect(limit_with_bias(), mf.data.phuong2021(n=40, d=4, seed=2))
    assert found.kkt.outcome == "not homogeneous"
    assert found.kkt.stationarity is None
    assert "biases" in found.kkt.message


def limit_with_bias():
    """Separates its data, with biases. Biases of the inner layer alone would leave it homogeneous of degree 2."""
    import torch
    from torch import nn

    base = limit_head(mf.data.phuong2021(n=40, d=4, seed=2), 4)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(base[0].weight)
        net[0].bias.fill_(1e-3)
        net[2].weight.copy_(base[2].weight)
        net[2].bias.fill_(0.05)
    return net


@torch_only
def test_two_outputs_are_read_as_their_difference():
    import torch
    from torch import nn

    data = blobs()
    one = mlp(6, 5, 1)
    two = nn.Sequential(one[0], nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        two[2].weight.copy_(torch.cat([torch.zeros(1, 5), one[2].weight]))
        two[2].bias.copy_(torch.cat([torch.zeros(1), one[2].bias]))
    a, b = mf.inspect(one, data), mf.inspect(two, data)
    assert a.accuracy == b.accuracy
    np.testing.assert_allclose(a.head.replacements[2].net.W, b.head.replacements[2].net.W, rtol=1e-6)


@torch_only
def test_several_classes_are_looked_at_one_against_the_rest():
    import torch
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    X = torch.tensor((X - X.mean(0)) / X.std(0), dtype=torch.float32)
    labels = torch.tensor(y)
    net = mlp(13, 10, 3)
    opt = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(100):
        opt.zero_grad()
        torch.nn.functional.cross_entropy(net(X), labels).backward()
        opt.step()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(X, labels), batch_size=32, shuffle=True
    )
    found = mf.inspect(net, loader, examples=90)
    assert len(found.heads) == 3
    assert found.accuracy > 0.99
    assert any("nothing is proved about taking the largest" in note for note in found.notes)
    assert found.joint["two_sided"]["agreement"] > 0.9
    assert found.kkt is None
    assert len(found.layers) == 3 * 3


@torch_only
def test_the_record_shows_itself(tmp_path):
    found = mf.inspect(mlp(6, 5, 4, 1), blobs())
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert {"layers", "head"} <= set(document)
    assert document["layers"][1]["conditions"]["linear_separability"]["status"] in (
        "holds",
        "fails",
        "undecided",
    )
    assert set(document["head"]["replacement"]) == {"predicted", "two_sided", "collapsed"}
    assert all(table.to_text() for table in found.tables())
    page = found.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert page.endswith("page.html")
    assert "What Sequential learned" in text
    said = {"holds": "applies to", "vacuous": "is silent about", "undecided": "may apply to"}[found.status.value]
    assert f"The two-neuron theorem {said} the head" in text  # what the word at the top is about
    assert "array(" not in text
    assert not re.search(r"""(src|href)=["']?http""", text)


@torch_only
def test_a_dead_representation_fails_and_says_why():
    import torch

    net = mlp(6, 5, 1)
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.zero_()
    found = mf.inspect(net, blobs(), head=False)
    layer = next(x for x in found.layers if x.name == "0")
    assert layer.conditions["linear_separability"]["status"] is mf.Status.FAILS
    assert "zero" in layer.notes[0]


def needs():
    """(model, data, options, what the refusal says) of input that inspect cannot read."""
    import torch
    from torch import nn

    data = blobs()
    three = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(9, 6), torch.arange(9) % 3), 4
    )
    conv = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(4, 1))
    shared = nn.Linear(6, 6)
    diverged = mlp(6, 5, 1)
    with torch.no_grad():
        diverged[0].weight.fill_(float("inf"))
    return {
        "tanh": (
            nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)),
            data,
            {},
            "must end Linear, ReLU, Linear",
        ),
        "leaky": (
            nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(0.1), nn.Linear(5, 1)),
            data,
            {},
            "not linear-ReLU-linear",
        ),
        "one layer": (nn.Linear(6, 1), data, {}, "must end Linear, ReLU, Linear"),
        "conv last": (conv, data, {}, "not linear-ReLU-linear"),
        "three classes": (mlp(6, 5, 1), three, {}, "3 classes (labels 0, 1, 2) but the model has 1 output"),
        "one class": (mlp(6, 5, 1), [(torch.randn(4, 6), torch.ones(4))], {}, "one class only"),
        "empty": (mlp(6, 5, 1), [], {}, "the data stream is empty"),
        "not pairs": (mlp(6, 5, 1), [torch.randn(4, 6)], {}, "(inputs, labels)"),
        "labels": (mlp(6, 5, 1), [(torch.randn(4, 6), torch.ones(4, 2))], {}, "give one number each"),
        "shared": (nn.Sequential(shared, nn.ReLU(), shared), data, {}, "runs twice"),
        "nan": (diverged, data, {}, "NaN or infinity"),
        "shape": (mlp(6, 5, 1), data, {"input_shape": (5,)}, "do not fill the input shape"),
        "dimension": (mlp(7, 5, 1), data, {}, "cannot take examples of shape (6,)"),
        "no layers": (nn.ReLU(), data, {}, "no linear or convolutional layer"),
        "not a model": (3, data, {}, "cannot inspect a int"),
        "few": (mlp(6, 5, 1), data, {"examples": 2}, "at least 4"),
        "held-out label": (
            mlp(6, 5, 1),
            data,
            {"held_out": [(torch.randn(4, 6), torch.ones(4) * 7)]},
            "label 7",
        ),
    }


@torch_only
@pytest.mark.parametrize(
    "case",
    ["tanh", "leaky", "one layer", "conv last", "three classes", "one class", "empty", "not pairs", "labels", "shared",
     "nan", "shape", "dimension", "no layers", "not a model", "few", "held-out label"],
)  # fmt: skip
def test_what_it_cannot_read_it_refuses_in_one_line(case):
    model, data, options, said = needs()[case]
    with pytest.raises(mf.InputError, match=re.escape(said)) as refusal:
        mf.inspect(model, data, **options)
    assert "\n" not in str(refusal.value)


@torch_only
def test_without_a_head_other_nets_are_read():
    from torch import nn

    found = mf.inspect(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)), blobs(), head=False)
    assert found.head is None
    assert found.to_json()["head"] == {}
    assert found.status is mf.Status.UNDECIDED


@torch_only
def test_a_generator_is_read_once():
    import torch

    data = mf.data.phuong2021(n=80, d=5, seed=0)
    stream = ((torch.tensor(np.array(data.X[k : k + 20])), data.y[k : k + 20]) for k in range(0, data.n, 20))
    found = mf.inspect(limit_head(data), stream)
    assert found.seen == data.n
    assert found.kkt.stationarity < 1e-8
    assert any("read once" in note for note in found.notes)


@torch_only
def test_memory_is_bounded_by_the_sample_not_by_the_stream():
    """Twenty times the stream, the same capture but for labels and outputs (16 bytes a row here)."""
    import torch

    from marginflow.bridges import capture

    def stream(batches):
        rng = torch.Generator().manual_seed(0)
        for _ in range(batches):
            yield torch.randn(64, 50, generator=rng), torch.arange(64) % 2

    net = mlp(50, 40, 1)
    short, long = (capture(net, stream(k), examples=64) for k in (2, 40))
    assert long.seen == 20 * short.seen
    assert long.resident_bytes - short.resident_bytes <= 16 * (long.seen - short.seen)


@torch_only
def test_wide_layers_keep_fewer_rows_with_their_own_labels(monkeypatch):
    import torch

    from marginflow.bridges import capture

    monkeypatch.setattr(sys.modules["marginflow.bridges.capture"], "MOST_ENTRIES", 6 * 40)
    net, data = mlp(6, 20, 4, 1), blobs()
    seen = capture(net, data, examples=50)
    kept = [len(seen.representations[key].rows) for key in (("0", "input"), ("0", "output"), ("2", "output"))]
    assert kept == [40, 16, 50]
    wide = seen.representations["0", "output"]
    with torch.no_grad():
        again = net[0](torch.tensor(np.array(data.X[wide.index]))).numpy()
    np.testing.assert_allclose(wide.rows, again, rtol=1e-5, atol=1e-6)
    assert mf.inspect(net, data, examples=50).head is not None


@torch_only
def test_the_command(tmp_path, capsys):
    import torch

    from marginflow.cli.app import run

    torch.save(mlp(64, 8, 1).state_dict(), tmp_path / "m.pt")
    common = ["inspect", str(tmp_path / "m.pt"), "digits:0,1", "--architecture", "64-8-1", "--examples", "60"]
    page = tmp_path / "page.html"
    assert run([*common, "--json", "--html", str(page)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in document["layers"]] == ["input", "0", "2"]
    assert page.is_file()
    assert run([*common, "--strict"]) == 1
    capsys.readouterr()
    assert run([*common[:-2], "--examples", "some"]) == 2
    assert capsys.readouterr().err.startswith("marginflow: --examples some")
    assert run(["inspect", str(tmp_path / "m.pt"), "digits:0,1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "--architecture" in said


@torch_only
@pytest.mark.slow
@pytest.mark.realdata
def test_the_script_of_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    import runpy
    from pathlib import Path

    script = Path(__file__).parent.parent / "examples" / "what_did_my_classifier_learn.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--net", "mlp", "--out", str(tmp_path)])
    runpy.run_path(str(script), run_name="__main__")
    said = capsys.readouterr().out
    assert "head 2 → ReLU → 4 (64 neurons): 1 against 0" in said
    assert (tmp_path / "mlp.pt").is_file()
    assert (tmp_path / "mlp.html").is_file()
