"""marginflow train: the contract of its JSON, one-line refusals, and runs that are interrupted or killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import marginflow as mf
from marginflow.cli import main

DATA = "phuong2021:n=40,d=4,seed=1"
KEYS = {
    "run",
    "log_time",
    "log_loss",
    "normalised_margin",
    "margins_min",
    "stable_rank",
    "frozen_log_time",
    "neurons",
    "angle",
}
GROUPS = {"positive", "negative", "dead", "vanishing", "other"}


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["train", DATA, *arguments])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def answer(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.parametrize(
    "options",
    [
        ("--method", "sgd", "--epochs", "5"),
        ("--method", "gd", "--epochs", "20"),
        ("--method", "ngd", "--until", "loss=1e-400"),
        ("--method", "flow", "--until", "frozen"),
    ],
    ids=lambda o: o[1],
)
def test_json_holds_the_contract(capsys, options):
    found = answer(capsys, "--width", "8", *options)
    assert found.keys() >= KEYS
    assert found["neurons"].keys() == GROUPS
    assert sum(found["neurons"].values()) == 8
    assert found["angle"].keys() == {"positive", "negative"}


def test_a_target_below_float_range(capsys):
    found = answer(capsys, "--method", "ngd", "--until", "loss=1e-400", "--width", "8")
    assert found["log_loss"] <= -400 * np.log(10)
    assert found["outcome"] == "converged"


def test_a_saved_run_is_loaded_and_repeats(capsys, tmp_path):
    found = answer(capsys, "--method", "sgd", "--epochs", "5", "--seed", "3", "--out", str(tmp_path / "r"))
    again = answer(capsys, "--method", "sgd", "--epochs", "5", "--seed", "3")
    assert found["run"] == str(tmp_path / "r")
    assert found["log_loss"] == again["log_loss"] == mf.load(tmp_path / "r").log_loss
    assert not list((tmp_path / "r").glob("checkpoint*"))


def test_seeds_are_the_runs_alone(capsys):
    many = answer(
        capsys,
        "--method",
        "sgd",
        "--epochs",
        "5",
        "--scale",
        "0.1",
        "--width",
        "6",
        "--seed",
        "4",
        "--seeds",
        "3",
    )
    assert many.keys() >= KEYS
    assert many["seeds"]["seed"] == [4, 5, 6]
    one = answer(capsys, "--method", "sgd", "--epochs", "5", "--scale", "0.1", "--width", "6", "--seed", "5")
    for name in ("log_loss", "normalised_margin", "stable_rank"):
        assert many["seeds"][name][1] == pytest.approx(one[name], rel=1e-9)
    spread = many["spread"]["log_loss"]
    assert spread.keys() == {"min", "lower_quartile", "median", "upper_quartile", "max"}
    assert spread["min"] <= spread["median"] == many["log_loss"] <= spread["max"]


def test_flows_of_several_seeds_are_the_flows_alone_and_are_not_repeated(capsys, tmp_path):
    options = ("--until", "limit", "--width", "6", "--scale", "1e-3", "--seed", "4")
    many = answer(capsys, *options, "--seeds", "3", "--out", str(tmp_path))
    assert many.keys() >= KEYS
    assert many["seeds"]["seed"] == [4, 5, 6]
    one = answer(capsys, *options[:-1], "5")
    assert many["seeds"]["normalised_margin"][1] == one["normalised_margin"]
    assert many["log_time"] == many["seeds"]["log_time"][1] == one["log_time"] == "inf"
    assert sum(many["neurons"].values()) == 6
    assert many["spread"]["stable_rank"].keys() == {"min", "lower_quartile", "median", "upper_quartile", "max"}
    kept = mf.load(tmp_path / "seed-5")
    assert mf.verify(kept)["phuong2021.theorem1"].claims
    before = (tmp_path / "seed-6" / "run.json").stat().st_mtime_ns
    assert answer(capsys, *options, "--seeds", "3", "--out", str(tmp_path)) == many
    assert (tmp_path / "seed-6" / "run.json").stat().st_mtime_ns == before
    code, _, err = run(capsys, *options, "--seeds", "3", "--rtol", "1e-6", "--out", str(tmp_path))
    assert code == 2
    assert "seed-4 holds another run" in err


def test_a_flow_stopped_by_ctrl_c_is_kept_where_it_was(capsys, tmp_path, monkeypatch):
    from marginflow.flows import coupled

    step, taken = coupled.step, []

    def interrupting(*arguments):
        taken.append(1)
        if len(taken) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(coupled, "step", interrupting)
    code, _, err = run(capsys, "--width", "6", "--out", str(tmp_path / "r"))
    assert code == 130
    assert "interrupted at log t" in err
    assert mf.load(tmp_path / "r").outcome == "interrupted"


def test_strict_asks_for_what_was_asked(capsys):
    reached = ("--method", "gd", "--epochs", "20", "--width", "4")
    assert run(capsys, *reached, "--strict")[0] == 0
    assert run(capsys, *reached, "--until", "loss=1e-9", "--strict")[0] == 1
    assert run(capsys, *reached, "--until", "loss=1e-9", "--seeds", "2", "--strict")[0] == 1
    assert run(capsys, "--until", "log-time=3", "--seeds", "2", "--width", "4", "--strict")[0] == 0


def test_divergence_is_said_with_its_step(capsys):
    found = answer(
        capsys, "--method", "gd", "--lr", "1e9", "--epochs", "100", "--init", "gaussian", "--scale", "0.3"
    )
    assert found["outcome"] == "diverged"
    assert f"diverged at step {found['steps']}" in found["message"]
    assert all(
        np.isfinite(found[k])
        for k in ("log_loss", "log_time", "normalised_margin", "margins_min", "stable_rank")
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--width", "0"), "width 0"),
        (("--method", "sgd", "--lr", "-1"), "lr -1"),
        (("--method", "sgd", "--batch", "41"), "larger"),
        (("--init", "foo"), "initialisation 'foo'"),
        (("--method", "sdg"), "method 'sdg'"),
        (("--lr", "1"), "--lr has no meaning"),
        (("--method", "gd", "--until", "limit"), "belong to method flow"),
        (("--method", "gd", "--rtol", "1e-6"), "--rtol"),
        (("--method", "gd", "--seeds", "0"), "--seeds 0"),
        (("--seeds", "0"), "--seeds 0"),
    ],
)
def test_refusals_are_one_line(capsys, options, says):
    code, out, err = run(capsys, *options)
    assert code == 2
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


INTERRUPTED_AT_A_RECORD = """
import os, signal, sys
from marginflow.cli import main
from marginflow.flows.driver import Drive
record, seen = Drive._record, []
def recording(self):
    seen.append(self)
    if len(seen) == 20:
        os.kill(os.getpid(), signal.SIGINT)
    record(self)
Drive._record = recording
main(sys.argv[1:])
"""


def start(folder, *options, program=("-m", "marginflow")):
    command = [
        sys.executable,
        *program,
        "train",
        DATA,
        "--width",
        "20",
        "--out",
        str(folder),
        *options,
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def wait_for(folder, pattern, process, seconds=120):
    deadline = time.monotonic() + seconds
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {pattern} in {seconds} s"
        time.sleep(0.02)


def finish(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


@pytest.mark.slow
def test_a_batch_of_runs_killed_in_the_middle_ends_with_the_same_bytes(tmp_path):
    options = ("--method", "sgd", "--batch", "4", "--epochs", "3000", "--seeds", "40", "--scale", "0.1")
    finish(start(tmp_path / "whole", *options))
    killed = start(tmp_path / "killed", *options)
    wait_for(tmp_path / "killed", "checkpoint-batch-000001*", killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "ensemble.nc").exists()
    finish(start(tmp_path / "killed", *options))
    assert (tmp_path / "killed" / "ensemble.nc").read_bytes() == (
        tmp_path / "whole" / "ensemble.nc"
    ).read_bytes()


def test_ctrl_c_keeps_the_run_and_says_how_to_go_on(tmp_path):
    options = ("--method", "sgd", "--batch", "4", "--epochs", "3000", "--scale", "0.1")
    finish(start(tmp_path / "whole", *options))
    stopped = start(tmp_path / "stopped", *options, program=("-c", INTERRUPTED_AT_A_RECORD))
    _, err = stopped.communicate(timeout=120)
    assert stopped.returncode == 130
    assert "to resume, repeat: marginflow train" in err
    assert list((tmp_path / "stopped").glob("checkpoint-*"))
    finish(start(tmp_path / "stopped", *options))
    for file in (tmp_path / "whole").glob("*-*"):
        assert (tmp_path / "stopped" / file.name).read_bytes() == file.read_bytes()
