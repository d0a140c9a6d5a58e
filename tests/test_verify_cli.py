"""predict and verify through the real command line."""

import json
import subprocess
import sys

import numpy as np
import pytest

import marginflow as mf


def cli(*arguments, cwd=None):
    done = subprocess.run(
        [sys.executable, "-m", "marginflow", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def answer(*arguments, cwd=None):
    done = cli(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The predicted limit of width 4 on phuong2021:n=40,d=5 as a safetensors file."""
    data = mf.data.phuong2021(n=40, d=5, seed=0)
    prediction = mf.predict(mf.TwoLayer(2), data, ["phuong2021.theorem1"])["phuong2021.theorem1"].prediction
    from marginflow.theorems.phuong2021 import full_width

    _, theta = full_width(prediction, [1, 2, 0, 0], [0, 0, 1, 1])
    path = tmp_path_factory.mktemp("weights") / "limit.safetensors"
    mf.nets.save_weights(path, {k: 100 * v for k, v in theta.items()})
    return path


def test_predict_json():
    out = answer("predict", "phuong2021:n=40,d=5,seed=0", "--width", "10")
    theorems = {t["key"]: t for t in out["theorems"]}
    assert {"phuong2021.theorem1", "phuong2021.lemma2", "lyu2020", "maennel2018.lemma1"} <= set(theorems)
    prediction = theorems["phuong2021.theorem1"]["prediction"]
    data = mf.data.phuong2021(n=40, d=5, seed=0)
    w_plus, w_minus = np.array(prediction["w_plus"]), np.array(prediction["w_minus"])
    assert (data.X[data.y > 0] @ w_plus).min() == pytest.approx(1, rel=1e-9)
    assert prediction["normalised_margin"] == pytest.approx(
        0.5 / (np.linalg.norm(w_plus) + np.linalg.norm(w_minus)), rel=1e-12
    )
    assert prediction["function_constant"] == prediction["normalised_margin"]
    for assumption in theorems["phuong2021.theorem1"]["assumptions"]:
        assert {"name", "status", "slack"} <= set(assumption)


def test_predict_leaky_and_output_layer():
    out = answer(
        "predict",
        "gaussian-mixture:n=8,d=200,mean=0",
        "--activation",
        "leaky:0.5",
        "--train",
        "input",
        "--width",
        "10",
    )
    prediction = {t["key"]: t for t in out["theorems"]}["frei2022.flow"]["prediction"]
    assert {"v", "u", "z", "rank", "multipliers"} <= set(prediction)
    assert prediction["rank"] == 2
    out = answer("predict", "phuong2021:n=20,d=3", "--train", "output")
    assert "chizat2020.f2" in {t["key"] for t in out["theorems"]}


def test_verify_weights_json(weights):
    out = answer("verify", "--weights", str(weights), "phuong2021:n=40,d=5,seed=0")
    verdict = {v["theorem"]: v for v in out["verdicts"]}["phuong2021.theorem1"]
    assert verdict["status"] in ("vacuous", "undecided")
    claims = {c["name"]: c for c in verdict["claims"]}
    assert claims["neurons_align"]["measured"] < 1e-8
    assert {"name", "status", "measured", "bound"} <= set(claims["normalised_margin"])
    assert out["unity"]["largest_difference"] < 1e-6


def test_strict_exits_with_one(weights):
    assert cli("verify", "--weights", str(weights), "phuong2021:n=40,d=5,seed=0", "--strict").returncode == 1
    assert cli("predict", "phuong2021:n=40,d=20,seed=0", "--strict").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--weights", "nothing.safetensors", "phuong2021:n=20,d=3"], "nothing.safetensors"),
        (["verify", "no-such-run"], "no-such-run"),
        (["verify", "--weights", "WEIGHTS", "phuong2021:n=20,d=3"], "R^3"),
        (["verify", "--weights", "WEIGHTS", "phuong2021:n=20,d=3"], "limit.safetensors"),
        (["predict", "phuong2021:n=20,d=3", "--width", "0"], "width"),
        (["predict", "phuong2021:n=20,d=3", "--activation", "rellu"], "relu"),
        (["predict", "phuong2021:n=20,d=3", "--train", "all"], "both, input, output"),
        (["predict", "phuong2021:n=20,d=3", "--theorem", "phuong"], "theorem"),
    ],
)
def test_bad_input_is_one_line_and_exit_two(arguments, message, weights, tmp_path):
    done = cli(*[str(weights) if a == "WEIGHTS" else a for a in arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr


@pytest.mark.torch
def test_weights_trained_by_plain_pytorch(tmp_path):
    import torch
    from safetensors.torch import save_file

    data = mf.data.phuong2021(n=200, d=6, seed=3)
    torch.manual_seed(0)
    X, y = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y, dtype=torch.float32)
    hidden, out = torch.nn.Linear(6, 30, bias=False), torch.nn.Linear(30, 1, bias=False)
    net = torch.nn.Sequential(hidden, torch.nn.ReLU(), out)
    with torch.no_grad():
        for p in net.parameters():
            p *= 0.05
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(150):
        for rows in torch.randperm(200).split(20):
            optimiser.zero_grad()
            torch.nn.functional.softplus(-y[rows] * net(X[rows])[:, 0]).mean().backward()
            optimiser.step()
    path = tmp_path / "sgd.safetensors"
    save_file({"W": hidden.weight.detach().contiguous(), "a": out.weight.detach()[0].contiguous()}, str(path))
    out = answer("verify", "--weights", str(path), "phuong2021:n=200,d=6,seed=3")
    verdict = {v["theorem"]: v for v in out["verdicts"]}["phuong2021.theorem1"]
    claims = {c["name"]: c for c in verdict["claims"]}
    assert verdict["status"] == "vacuous"
    assert "balanced" in [a["name"] for a in verdict["assumptions"] if a["status"] == "fails"]
    assert 1e-4 < claims["neurons_align"]["measured"] < 0.5
    assert claims["rank_two"]["measured"] < 0.1
