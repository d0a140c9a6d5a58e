"""marginflow margin: the contract of its JSON, its exit codes and its refusals."""

import json

import numpy as np
import pytest

import marginflow as mf
from marginflow.cli.app import run

KEYS = {"value", "lower_bound", "upper_bound", "certified", "vector", "support", "dual", "neurons"}
DATA = "phuong2021:n=24,d=3,seed=0"


def margin(capsys, *arguments: str):
    code = run(["margin", *arguments])
    return code, capsys.readouterr()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["linear", "positive", "negative", "f1", "f2"])
def test_json_of_every_kind(kind, bias, capsys):
    code, out = margin(capsys, DATA, "--kind", kind, "--json", *(["--bias"] if bias else []))
    document = json.loads(out.out)
    assert code == 0
    assert set(document) >= KEYS
    assert document["certified"] is True
    assert document["bias"] is bias
    data = mf.data.phuong2021(n=24, d=3, seed=0)
    ours = getattr(mf.margins, kind)(data, bias=bias)
    assert document["value"] == ours.value
    assert len(document["dual"]) == data.n
    assert (document["neurons"] is not None) == (kind == "f1")
    if kind in ("linear", "positive", "negative"):
        X = np.c_[data.X, np.ones(data.n)] if bias else data.X
        values = X @ np.array(document["vector"])
        least = {
            "linear": (data.y * values).min(),
            "positive": values[data.y > 0].min(),
            "negative": values[data.y < 0].min(),
        }
        assert least[kind] == pytest.approx(1, rel=1e-12)


def test_tables_for_people(capsys):
    code, out = margin(capsys, DATA)
    assert code == 0
    assert "max margin: linear" in out.out
    assert "certified" in out.out


def test_strict_wants_a_certified_positive_margin(tmp_path, capsys):
    np.savez(tmp_path / "c.npz", X=[[1.0, 2], [1, 2], [0, 1]], y=[0, 1, 1])
    path = str(tmp_path / "c.npz")
    code, out = margin(capsys, path, "--json")
    document = json.loads(out.out)
    assert code == 0
    assert document["separable"] is False
    assert document["contradictory"] == [0, 1]
    assert document["value"] == 0
    assert margin(capsys, path, "--strict")[0] == 1
    assert margin(capsys, DATA, "--strict")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DATA, "--kind", "quadratic"], ["--kind", "quadratic"]),
        ([DATA, "--kind", "f2", "--activation", "rely"], ["rely", "relu"]),
        ([DATA, "--kind", "f1", "--activation", "smooth-leaky:0.1"], ["smooth-leaky"]),
        (["nowhere.npz"], ["nowhere.npz"]),
        ([], ["DATA"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, words, capsys):
    code, out = margin(capsys, *arguments)
    assert code == 2
    assert out.out == ""
    assert len(out.err.splitlines()) == 1
    for word in words:
        assert word in out.err
