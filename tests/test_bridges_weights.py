"""Files of weights and architectures: what is read, and what is refused before anything runs."""

import pickle
import zipfile

import numpy as np
import pytest

import marginflow as mf
from marginflow.bridges.architecture import layers
from marginflow.nets.weights import save_weights


def test_widths_and_json_describe_the_same_net():
    listed = layers('[{"linear": [4, 3], "bias": false}, "relu", {"linear": [3, 1], "bias": false}]')
    assert layers("4-3-1,bias=false") == listed
    assert layers([{"linear": [4, 3]}, {"leaky": 0.1}, {"linear": [3, 1]}]) == layers(
        "4-3-1,activation=leaky:0.1"
    )


def test_an_architecture_from_a_file(tmp_path):
    path = tmp_path / "net.json"
    path.write_text('["flatten", {"linear": [4, 1]}]')
    assert [layer.kind for layer in layers(str(path))] == ["flatten", "linear"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4-x-1", "not widths"),
        ("7", "at least an input and an output"),
        ("4-0-1", "all positive"),
        ("4-3-1,activaton=relu", "did you mean 'activation'"),
        ("4-3-1,activation=rellu", "did you mean 'relu'"),
        ("4-3-1,activation=leaky:x", "activation=leaky:x"),
        ("4-3-1,bias=no", "write bias=true or bias=false"),
        ("[", "not JSON"),
        ("[]", "not a list of layers"),
        ("[3]", "does not name one kind"),
        ('[{"linear": [3]}]', "give 2 positive numbers"),
        ('[{"linear": [3, -1]}]', "give 2 positive numbers"),
        ('[{"linear": [3, 1], "stride": "a"}]', "whole numbers"),
        ("missing.json", "cannot be read"),
    ],
)
def test_bad_architectures_are_one_line(text, said):
    with pytest.raises(mf.InputError, match=said.replace("(", r"\(")) as refusal:
        layers(text)
    assert "\n" not in str(refusal.value)


def load(path, architecture=None):
    from marginflow.bridges import load_model

    return load_model(path, architecture)


class Boom:
    """A pickle that would create a file when it is opened."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.torch
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain pickle", "inside a state_dict"])
def test_a_pickle_that_would_execute_code_is_refused_and_nothing_runs(tmp_path, wrapped):
    import torch

    trace, path = tmp_path / "executed", tmp_path / "model.pt"
    if wrapped:
        torch.save({"0.weight": torch.ones(2, 2), "note": Boom(trace)}, path)
    else:
        path.write_bytes(pickle.dumps(Boom(trace)))
    with pytest.raises(mf.InputError, match="was not opened") as refusal:
        load(path, "2-2")
    assert not trace.exists()
    assert "\n" not in str(refusal.value)
    pickle.loads(pickle.dumps(Boom(trace))).close()  # the trap works: opened carelessly it does run
    assert trace.exists()


@pytest.mark.torch
def test_a_whole_pickled_module_is_refused(tmp_path):
    import torch

    torch.save(torch.nn.Linear(2, 1), tmp_path / "model.pt")
    with pytest.raises(mf.InputError, match=r"state_dict\(\)"):
        load(tmp_path / "model.pt", "2-1")


@pytest.mark.torch
def test_torchscript_is_refused_in_files_and_in_memory(tmp_path):
    import torch

    scripted = torch.jit.trace(torch.nn.Linear(2, 1), torch.ones(1, 2))
    scripted.save(str(tmp_path / "model.pt"))
    assert zipfile.is_zipfile(tmp_path / "model.pt")
    with pytest.raises(mf.InputError, match="TorchScript archive"):
        load(tmp_path / "model.pt", "2-1")
    with pytest.raises(mf.InputError, match="TorchScript module"):
        mf.inspect(scripted, (np.eye(2), np.array([1, -1])))


@pytest.mark.torch
@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_a_truncated_file_is_refused(tmp_path, keep):
    import torch

    path = tmp_path / "model.pt"
    torch.save(torch.nn.Linear(30, 5).state_dict(), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(mf.InputError) as refusal:
        load(path, "30-5")
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.torch
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("nested", [False, True])
def test_weights_go_through_files_unchanged(tmp_path, suffix, nested):
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(3, 3), nn.ReLU())], nn.Linear(3, 1))
    path, X = tmp_path / f"model{suffix}", torch.randn(7, 3)
    state = net.state_dict()  # twelve layers: names beyond '9' must not be sorted as text
    if suffix == ".pt":
        torch.save({"model_state_dict": state, "epoch": 3} if nested else state, path)
    else:
        save_weights(path, state)
    again = load(path, "3-3-3-3-3-3-3-1")
    assert torch.equal(again(X), net(X))


@pytest.mark.torch
def test_convolutions_from_a_description(tmp_path):
    import torch
    from torch import nn

    torch.manual_seed(1)
    features = [
        nn.Unflatten(1, (1, 6, 6)),
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]
    net = nn.Sequential(*features, nn.Flatten(), nn.Linear(36, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1))
    torch.save(net.state_dict(), tmp_path / "cnn.pth")
    chain = [{"reshape": [1, 6, 6]}, {"conv2d": [1, 4, 3], "padding": 1}, "relu", {"maxpool2d": 2}, "flatten",
             {"linear": [36, 5]}, {"leaky": 0.2}, {"linear": [5, 1]}]  # fmt: skip
    X = torch.randn(3, 36)
    assert torch.equal(load(tmp_path / "cnn.pth", chain)(X), net(X))


@pytest.mark.torch
def test_two_layer_weights_need_no_description(tmp_path):
    import torch

    rng = np.random.default_rng(0)
    theta = {"W": rng.standard_normal((5, 3)), "a": rng.standard_normal(5)}
    save_weights(tmp_path / "net.safetensors", theta)
    X = rng.standard_normal((4, 3))
    out = load(tmp_path / "net.safetensors")(torch.from_numpy(X))
    np.testing.assert_allclose(out.detach().numpy()[:, 0], mf.TwoLayer(5)(theta, X), rtol=1e-14)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("architecture", "said"),
    [
        (None, "Give --architecture"),
        ("3-2", "the architecture has 1 layers"),
        ("3-5-1", "'0.weight' has shape (4, 3), the architecture needs (5, 3)"),
        ("3-4-1,bias=false", "has a tensor '0.bias'"),
    ],
)
def test_weights_that_do_not_fit_name_the_tensor(tmp_path, architecture, said):
    import re

    import torch
    from torch import nn

    torch.save(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).state_dict(), tmp_path / "m.pt")
    with pytest.raises(mf.InputError, match=re.escape(said)):
        load(tmp_path / "m.pt", architecture)


@pytest.mark.torch
def test_nan_weights_and_other_content_are_refused(tmp_path):
    import torch

    torch.save({"0.weight": torch.tensor([[float("nan")]])}, tmp_path / "m.pt")
    with pytest.raises(mf.InputError, match="NaN or infinity"):
        load(tmp_path / "m.pt", "1-1")
    torch.save([1, 2, 3], tmp_path / "m.pt")
    with pytest.raises(mf.InputError, match="holds a list without weights"):
        load(tmp_path / "m.pt", "1-1")
    with pytest.raises(mf.InputError, match="no such file"):
        load(tmp_path / "absent.pt", "1-1")
    with pytest.raises(mf.InputError, match="kind of file"):
        load(tmp_path / "model.onnx", "1-1")
