"""Sweeps: what a spec means, which cells share a program, and that nothing is lost or done twice whatever happens."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

import marginflow as mf
from marginflow._core import files
from marginflow.cli import main
from marginflow.experiments import sweeps
from marginflow.experiments.sweeps import cells, drive
from marginflow.experiments.sweeps.folder import STALE_SECONDS, Folder

DATA = "phuong2021:n=12,d=3,seed=1"
SMALL = {
    "data": DATA,
    "method": "gd",
    "epochs": 4,
    "members": 4,
    "grid": {"scale": [0.1, 1.0], "width": [3, 5], "seed": {"range": [0, 3]}},
}


# what a spec means


def test_cells_are_all_combinations_with_the_grid_fastest():
    asked = {
        "data": "phuong2021:n={n},d=3,seed={seed}",
        "list": [{"init": "balanced", "scale": 1e-3}, {"init": "gaussian", "scale": 0.1}],
        "random": {"samples": 3, "lr": {"log-uniform": [1e-3, 1]}},
        "grid": {"n": [10, 20], "seed": {"range": [0, 4]}},
        "method": "gd",
    }
    spec = sweeps.spec(asked)
    assert len(spec.cells) == 2 * 3 * 2 * 4
    assert spec.axes == ("init", "scale", "lr", "n", "seed")
    assert [c["seed"] for c in spec.cells[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len({(c["init"], c["scale"]) for c in spec.cells}) == 2
    assert len({json.dumps(c, sort_keys=True) for c in spec.cells}) == len(spec.cells)


@given(few=st.integers(1, 5), more=st.integers(0, 20), seed=st.integers(0, 9))
def test_more_samples_keep_the_first_and_another_axis_changes_none(few, more, seed):
    def draw(samples, **laws):
        asked = {"data": DATA, "method": "gd", "random": {"samples": samples, "seed": seed, **laws}}
        return [c["lr"] for c in sweeps.spec(asked).cells]

    lr, width = {"uniform": [0.1, 2]}, {"integers": [2, 9]}
    first = draw(few, lr=lr)
    assert draw(few + more, lr=lr)[:few] == first
    assert draw(few, width=width, lr=lr) == first
    assert all(0.1 <= value <= 2 for value in first)


def test_axes_written_short():
    grid = {
        "lr": {"geometric": [1e-4, 1, 5]},
        "width": {"geometric": [2, 32, 5]},
        "scale": {"linear": [0.5, 1, 2]},
    }
    spec = sweeps.spec({"data": DATA, "method": "sgd", "grid": grid})
    np.testing.assert_allclose(
        np.unique([c["lr"] for c in spec.cells]), [1e-4, 1e-3, 1e-2, 1e-1, 1], rtol=1e-12
    )
    assert sorted({c["width"] for c in spec.cells}) == [2, 4, 8, 16, 32]
    assert {type(c["width"]) for c in spec.cells} == {int}
    assert {c["scale"] for c in spec.cells} == {0.5, 1.0}


def test_choices_and_whole_numbers_reach_both_ends():
    laws = {"width": {"integers": [2, 3]}, "init": {"choice": ["balanced", "gaussian"]}}
    spec = sweeps.spec({"data": DATA, "random": {"samples": 64, **laws}})
    assert {c["width"] for c in spec.cells} == {2, 3}
    assert {c["init"] for c in spec.cells} == {"balanced", "gaussian"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": None}, ["data is not given"]),
        ({"metod": "gd"}, ["metod", "method"]),
        ({"method": "gdd"}, ["gdd", "did you mean 'gd'"]),
        ({"init": "ballanced"}, ["ballanced", "balanced"]),
        ({"width": 2.5}, ["width", "whole number"]),
        ({"width": True}, ["width", "whole number"]),
        ({"lr": "fast"}, ["lr", "number"]),
        ({"lr": float("nan")}, ["lr", "finite"]),
        ({"verify": ["phuong2021.theorem2"]}, ["phuong2021.theorem2", "phuong2021.theorem1"]),
        ({"members": 0}, ["members"]),
        ({"grid": {"epochs": [1, 2]}}, ["epochs", "twice"]),
        ({"grid": {"shade": [1, 2]}}, ["shade"]),
        ({"grid": {"scale": []}}, ["scale"]),
        ({"grid": {"scale": {"log": [1, 2, 3]}}}, ["scale", "geometric"]),
        ({"grid": {"scale": {"geometric": [0, 2, 3]}}}, ["scale", "above 0"]),
        ({"grid": {"seed": {"range": [0, 10**9]}}}, ["1000000000", "at most"]),
        ({"random": {"lr": {"uniform": [0, 1]}}}, ["samples"]),
        ({"random": {"samples": 2, "lr": {"uniform": [1, 0]}}}, ["lr", "uniform"]),
        ({"list": []}, ["[[list]]"]),
        ({"rtol": 1e-6}, ["rtol", "no meaning", "gd"]),
        ({"data": "phuong2021:n={size}"}, ["{size}", "size"]),
        ({"data": "phuong2021:n={"}, ["brace"]),
        ({"net": "linear", "width": 5}, ["width", "net"]),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused_in_one_line(change, words):
    asked = {**SMALL, "grid": {"scale": [0.1, 1.0]}, **change}
    asked = {k: v for k, v in asked.items() if v is not None}
    with pytest.raises(mf.InputError) as refused:
        sweeps.spec(asked)
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_files_that_are_no_spec_are_refused_by_name(tmp_path):
    path = tmp_path / "spec.toml"
    with pytest.raises(mf.InputError, match=r"spec\.toml: no such file"):
        sweeps.read(path)
    path.write_text("data = [")
    with pytest.raises(mf.InputError, match=r"spec\.toml: not TOML"):
        sweeps.read(path)


# which cells share a program


@given(
    widths=st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True),
    methods=st.lists(st.sampled_from(["flow", "gd", "sgd"]), min_size=1, max_size=3, unique=True),
    seeds=st.integers(1, 7),
    members=st.integers(1, 9),
)
def test_every_cell_is_in_one_task_with_cells_of_its_program(widths, methods, seeds, members):
    grid = {"method": methods, "width": widths, "seed": [*range(seeds)]}
    spec = sweeps.spec({"data": DATA, "members": members, "grid": grid})
    found = cells.tasks(spec)
    assert sorted(p for task in found for p in task.positions) == [*range(len(spec.cells))]
    for task in found:
        assert task.cells == tuple(spec.cells[p] for p in task.positions)
        assert len(task.cells) <= (members if task.together else 1)
        assert len({c["method"] for c in task.cells}) == 1
        assert task.together == (task.cells[0]["method"] != "flow")


def test_data_that_differ_are_never_shared():
    spec = sweeps.spec(
        {"data": "phuong2021:n=12,d=3,seed={seed}", "method": "gd", "grid": {"seed": [0, 1, 2]}}
    )
    assert [task.positions for task in cells.tasks(spec)] == [(0,), (1,), (2,)]


# what comes out


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return sweeps.sweep(SMALL, tmp_path_factory.mktemp("sweep") / "small")


def test_a_cell_is_the_run_alone(small):
    data = mf.data.load(DATA)
    for k in (1, 11):
        cell = small.dataset.isel(cell=k)
        net = mf.TwoLayer(int(cell.width))
        theta = mf.inits.uniform(net, data.d, float(cell.scale), int(cell.seed))
        run = mf.train(net, theta, data, method="gd", epochs=4, seed=int(cell.seed))
        np.testing.assert_allclose(float(cell.log_loss), run.log_loss, rtol=1e-12)
        np.testing.assert_allclose(
            float(cell.normalised_margin), run.history["normalised_margin"][-1], rtol=1e-10
        )


def test_a_flow_is_swept_to_its_limit_with_verdicts(tmp_path):
    asked = {
        "data": DATA,
        "width": 6,
        "verify": ["phuong2021.theorem1", "frei2022.flow"],
        "grid": {"seed": [0, 1]},
    }
    found = sweeps.sweep(asked, tmp_path / "out").dataset
    data, net = mf.data.load(DATA), mf.TwoLayer(6)
    run = mf.train(net, mf.inits.balanced(net, data.d, 1e-3, 1), data, method="flow", until="limit")
    verdict = mf.verify(run)["phuong2021.theorem1"]
    assert str(found.verdict_status.sel(theorem="phuong2021.theorem1").values[1]) == verdict.status.value
    assert str(found.verdict_conclusions.sel(theorem="phuong2021.theorem1").values[1]) == "holds"
    assert (
        str(found.verdict_status.sel(theorem="frei2022.flow").values[1]) == ""
    )  # silent about ReLU, both layers
    assert float(found.log_time[1]) == np.inf
    np.testing.assert_allclose(float(found.normalised_margin[1]), run.limit.normalised_margin, rtol=1e-9)


def test_the_store_is_read_by_xarray_and_made_of_the_parts(small):
    found = xarray.load_dataset(small.store)
    assert found.identical(sweeps.load(small.out))
    assert (found.state == "done").all()
    assert set(json.loads(found.attrs["axes"])) == {"scale", "width", "seed"}
    unstacked = found.log_loss.set_index(cell=["scale", "width", "seed"]).unstack("cell")
    assert unstacked.shape == (2, 2, 3)
    assert np.isfinite(unstacked).all()


def test_cells_that_fail_are_recorded_and_the_others_complete(tmp_path):
    # members of one program: one that diverges, one whose request is refused, one whose scale no law takes
    rows = [{"lr": 0.1}, {"lr": 1e300}, {"lr": -1.0}, {"scale": -2.0}, {"lr": 0.2}, {"seed": -3}]
    asked = {"data": DATA, "method": "gd", "epochs": 4, "width": 4, "init": "uniform", "list": rows}
    result = sweeps.sweep(asked, tmp_path / "out")
    found = result.dataset
    assert found.state.values.tolist() == ["done", "failed", "failed", "failed", "done", "failed"]
    assert str(found.outcome.values[1]) == "diverged"
    assert "step sizes above 0" in str(found.message.values[2])
    assert "scale" in str(found.message.values[3])
    assert (result.done, result.failed, result.pending) == (2, 4, 0)
    assert any("step sizes" in m for m in result.messages)
    alone = sweeps.sweep({**asked, "list": [{"lr": 0.1}, {"lr": 0.2}]}, tmp_path / "alone").dataset
    np.testing.assert_allclose(found.log_loss.values[[0, 4]], alone.log_loss.values, rtol=1e-12)


def test_data_that_no_cell_can_read_are_an_error_of_the_request(tmp_path):
    with pytest.raises(mf.InputError, match="unknown data set"):
        sweeps.sweep({**SMALL, "data": "phuon2021:n=5"}, tmp_path / "out")


def test_an_activation_that_no_cell_can_have_is_an_error_of_the_request(tmp_path):
    with pytest.raises(mf.InputError, match="rellu"):
        sweeps.sweep({**SMALL, "activation": "rellu"}, tmp_path / "out")


# what happens when it is stopped


class Stop:
    """Run `count` tasks, then raise; counts what was run."""

    def __init__(self, count, error):
        self.left, self.error, self.ran, self.run = count, error, [], cells.run

    def __call__(self, task):
        if self.left == 0:
            raise self.error
        self.left -= 1
        self.ran.append(task.index)
        return self.run(task)


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_interrupted_sweep_goes_on_and_ends_with_the_same_bytes(small, tmp_path, monkeypatch, done):
    out, first, second = tmp_path / "out", Stop(done, KeyboardInterrupt()), Stop(-1, None)
    monkeypatch.setattr(cells, "run", first)
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(SMALL, out)
    so_far = xarray.load_dataset(out / "results.nc")
    assert int((so_far.state == "done").sum()) == 4 * done
    monkeypatch.setattr(cells, "run", second)
    result = sweeps.sweep(SMALL, out)
    assert first.ran + second.ran == [0, 1, 2]
    assert result.resumed == 4 * done
    assert Path(result.store).read_bytes() == Path(small.store).read_bytes()


def test_a_full_disk_stops_the_sweep_and_loses_nothing(small, tmp_path, monkeypatch):
    out, write, left = tmp_path / "out", files.write, [4]

    def full(path, content):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(mf.InputError, match=r"disk is full.*repeat the command"):
        sweeps.sweep(SMALL, out)
    monkeypatch.setattr(files, "write", write)
    again = Stop(-1, None)
    monkeypatch.setattr(cells, "run", again)
    result = sweeps.sweep(SMALL, out)
    assert again.ran == [2]  # the manifest, the first store and two parts had found room
    assert Path(result.store).read_bytes() == Path(small.store).read_bytes()


def test_two_writers_are_refused_and_a_dead_one_is_not(tmp_path):
    out = tmp_path / "out"
    with (
        Folder(out).locked(),
        pytest.raises(mf.InputError, match=rf"pid {os.getpid()} on .* is writing here"),
    ):
        sweeps.sweep(SMALL, out)
    # a process that was killed leaves its name but not its lock
    (out / "lock").write_text("pid 999999 on " + os.uname().nodename)
    with Folder(out).locked():
        pass
    # another host's name counts while it is fresh: locks may not reach across hosts
    (out / "lock").write_text("pid 1 on elsewhere")
    with pytest.raises(mf.InputError, match="elsewhere is writing"):
        sweeps.sweep(SMALL, out)
    old = time.time() - 2 * STALE_SECONDS
    os.utime(out / "lock", (old, old))
    with Folder(out).locked():
        pass


def test_the_lock_is_let_go_by_kill_9(tmp_path):
    code = (
        "import sys, time; from marginflow.experiments.sweeps.folder import Folder\n"
        "with Folder(sys.argv[1]).locked(): print('held', flush=True); time.sleep(100)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(mf.InputError, match=f"pid {holder.pid} "), Folder(tmp_path).locked():
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(20)
        with Folder(tmp_path).locked():
            pass
    finally:
        holder.kill()


def test_another_sweep_or_other_files_are_never_overwritten(small, tmp_path):
    with pytest.raises(mf.InputError, match="holds another sweep"):
        sweeps.sweep({**SMALL, "epochs": 5}, small.out)
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(mf.InputError, match=r"holds 'thesis\.tex' and no sweep"):
        sweeps.sweep(SMALL, tmp_path)
    with pytest.raises(mf.InputError, match="no sweep here"):
        sweeps.load(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", '{"rows": []}', '{"rows": [{"cell": 3}]}', "\x00"])
def test_a_damaged_part_is_named(tmp_path, monkeypatch, content):
    out = tmp_path / "out"
    monkeypatch.setattr(cells, "run", Stop(1, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep(SMALL, out)
    (out / "parts" / "000000.json").write_text(content)
    with pytest.raises(mf.InputError, match=r"000000\.json: damaged .* remove the file"):
        sweeps.sweep(SMALL, out)


def test_data_that_changed_since_are_refused(tmp_path, monkeypatch):
    out, file = tmp_path / "out", tmp_path / "points.csv"
    text = "a,b,y\n1,0,1\n2,1,1\n-1,0,-1\n-2,1,-1\n"
    file.write_text(text)
    monkeypatch.setattr(cells, "run", Stop(1, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        sweeps.sweep({**SMALL, "data": str(file)}, out)
    monkeypatch.undo()
    for cached in (cells.read_data, cells._directions):
        cached.cache_clear()
    file.write_text(text.replace("2,1,1", "3,1,1"))
    with pytest.raises(mf.InputError, match=r"points\.csv: changed since the sweep began"):
        sweeps.sweep({**SMALL, "data": str(file)}, out)


def test_failed_cells_are_computed_again_when_asked(tmp_path, monkeypatch):
    out, run = tmp_path / "out", cells.run
    lost = lambda task: {"rows": [cells.failure(p, "worker lost") for p in task.positions], "seconds": 0}  # noqa: E731
    monkeypatch.setattr(cells, "run", lost)
    assert sweeps.sweep(SMALL, out).failed == 12
    monkeypatch.setattr(cells, "run", run)
    assert sweeps.sweep(SMALL, out).failed == 12
    assert sweeps.sweep(SMALL, out, retry=True).failed == 0


def test_the_command_line_keeps_the_contract(small, tmp_path, capsys):
    spec = tmp_path / "spec.toml"
    spec.write_text(
        f'data = "{DATA}"\nmethod = "gd"\nepochs = 4\nmembers = 4\n[grid]\nscale = [0.1, 1.0]\n'
        "width = [3, 5]\nseed = { range = [0, 3] }\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(spec), "--out", str(tmp_path / "out"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert (answer["done"], answer["failed"], answer["out"]) == (12, 0, str(tmp_path / "out"))
    assert (tmp_path / "out" / "results.nc").read_bytes() == Path(small.store).read_bytes()


def test_strict_wants_every_cell_done(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(f'data = "{DATA}"\nmethod = "gd"\nepochs = 30\n[grid]\nlr = [0.1, 1e30]\nwidth = [3]\n')
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(spec), "--out", str(tmp_path / "out"), "--strict", "--json"])
    assert stop.value.code == 1


def test_workers_and_a_cluster_exclude_each_other(tmp_path):
    with pytest.raises(mf.InputError, match="give one of them"):
        sweeps.sweep(SMALL, tmp_path, cluster="tcp://localhost:1", workers=2)


def test_without_dask_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(mf.InputError, match=r"marginflow\[cluster\]"):
        sweeps.sweep(SMALL, tmp_path / "out", workers=2)


# the real thing, slowly


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """2,016 cells in 504 tasks, never interrupted."""
    asked = {**SMALL, "grid": {**SMALL["grid"], "seed": {"range": [0, 504]}}}
    result = sweeps.sweep(asked, tmp_path_factory.mktemp("sweep") / "whole")
    assert (result.cells, result.done) == (2016, 2016)
    return asked, result


@pytest.mark.slow
def test_killed_with_9_five_times_at_random(whole, tmp_path):
    """Whenever the process dies, the next one finds whole parts only, does no task twice, and the end is the same."""
    asked, uninterrupted = whole
    code = (
        "import json, sys; from marginflow.experiments import sweeps\n"
        "sweeps.sweep(json.loads(sys.argv[1]), sys.argv[2])"
    )
    out, rng = tmp_path / "out", np.random.default_rng()
    parts = lambda: {path: path.stat().st_mtime_ns for path in out.glob("parts/*.json")}  # noqa: E731
    done, deaths = {}, []
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", code, json.dumps(asked), str(out)])
        wait = len(done) + int(rng.integers(1, 90))
        while process.poll() is None and len(parts()) < wait:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.05))
        process.kill()
        assert process.wait() == -signal.SIGKILL
        now = parts()
        assert done.items() <= now.items()  # what was there is untouched
        done = now
        deaths.append(len(done))
    print("tasks done at each death:", deaths)
    result = sweeps.sweep(asked, out)
    assert done.items() <= parts().items()
    assert result.resumed == 4 * deaths[-1] < result.cells
    assert Path(result.store).read_bytes() == Path(uninterrupted.store).read_bytes()


@pytest.mark.slow
def test_a_worker_killed_under_dask_loses_nothing(whole, tmp_path):
    distributed = pytest.importorskip("distributed")
    asked, uninterrupted = whole
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        run, kept, at = drive.Folder.keep, [], int(np.random.default_rng().integers(1, 100))

        def keep(folder, task, result):
            kept.append(task.index)
            if len(kept) == at:
                os.kill(pids[0], signal.SIGKILL)
            run(folder, task, result)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drive.Folder, "keep", keep)
            result = sweeps.sweep(asked, tmp_path / "out", cluster=cluster.scheduler_address)
    print("killed after", at, "tasks")
    assert sorted(kept) == [*range(504)]
    assert result.failed == 0
    assert Path(result.store).read_bytes() == Path(uninterrupted.store).read_bytes()


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_an_error_of_the_request(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(drive, "CONNECT_SECONDS", 2)
    with pytest.raises(mf.InputError, match=r"tcp://127\.0\.0\.1:9"):
        sweeps.sweep(SMALL, tmp_path / "out", cluster="tcp://127.0.0.1:9")
