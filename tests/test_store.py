"""Runs on disk: equal after a round trip, old or new at every moment, refused by file when damaged, never executed."""

import ast
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cases import NETS
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

import marginflow
from marginflow import store
from marginflow._core import files, packing
from marginflow._core.errors import InputError
from marginflow._core.packing import Damaged, pack, unpack
from marginflow._core.status import Outcome, Status
from marginflow.data import Dataset, phuong2021
from marginflow.nets import TwoLayer
from marginflow.nets.net import Net
from marginflow.runs import Events, Limit, Run


def run_of(net: Net, d: int, seed: int = 0, **changes) -> Run:
    """A run with something in every field, at values that careless formats lose."""
    rng = np.random.default_rng(seed)
    theta = {name: rng.standard_normal(shape) for name, shape in net.shapes(d).items()}
    X = rng.standard_normal((6, d))
    provenance = {"seed": seed, "nested": {"t": (1, 2.5)}}
    data = Dataset(X, np.array([1, -1, 1, -1, 1, -1.0]), "toy", provenance, ("cat", "dog"))
    history = {
        "log_time": np.array([-np.inf, -0.0, 1e9]),
        "log_loss": np.array([0.5, -1e6, np.nan]),
        "step": np.array([0, 1, 2**40]),
        "beyond": np.array([2**63 - 1, 0, -(2**63)]),
        "counts": np.array([0, 255, 7], np.uint8),
        "frozen": np.array([False, True, True]),
        "single": rng.standard_normal((3, 2)).astype(np.float32),
        "half": np.array([1, 2, 3], np.float16),
        "none": np.empty((3, 0)),
        "phase": np.array(["early", "λ", ""]),
        "not along time": rng.standard_normal(5),
    }
    run = Run(
        net, data, {k: w / 2 for k, w in theta.items()}, theta, "flow", "logistic", Outcome.MAX_STEPS, "stopped: α → ω",
        log_time=np.inf, log_loss=-1e6, history=history,
        options={"until": "loss=1e-5000", "lr": 0.1, "steps": (1, 2), "inf": -np.inf, "seed": None, "big": 10**30},
        steps=3, frozen_log_time=12.5,
        events=Events(np.array([0, 1]), np.array([2, 3]), np.array(["cross_on", "leave"]), np.array([0.5, 0.7])),
        limit=Limit(theta, 0.25, "collapsed", {"gap": 1e-12, "w": np.ones(3)}),
        extra={"fates": np.array(["dead", "pos"], dtype=object), 3: {"status": Status.HOLDS}, "x": np.float32(1.5)},
        provenance={"versions": {"numpy": "2"}},
    )
    return dataclasses.replace(run, **changes)


def same(a, b) -> bool:
    """Equality to the bit, NaNs and signed zeros included, and of types."""
    if isinstance(a, np.ndarray | np.generic):
        if a.dtype.kind == "O":
            a = a.astype(str)
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Dataset):
        said = ("sha256", "name", "provenance", "classes")
        return all(same(getattr(a, name), getattr(b, name)) for name in said)
    if dataclasses.is_dataclass(a) and not isinstance(a, Net):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize(("net", "d"), NETS.values(), ids=NETS.keys())
def test_a_run_of_every_net_comes_back_equal(net, d, tmp_path):
    run = run_of(net, d)
    again = store.load(store.save(run, tmp_path / "run"))
    for field in dataclasses.fields(Run):
        assert same(getattr(run, field.name), getattr(again, field.name)), field.name
    assert str(again) == str(run)


def test_nothing_recorded_and_nothing_optional(tmp_path):
    empty = {"log_time": np.empty(0), "log_loss": np.empty(0)}
    for history in (empty, {}):
        run = run_of(TwoLayer(2), 3, history=history, events=None, limit=None, extra={}, frozen_log_time=None)
        again = store.load(store.save(run, tmp_path / "run"))
        assert same(run.history, again.history)
        assert again.events is None
        assert again.limit is None


def test_equal_runs_have_equal_files(tmp_path):
    for name in ("one", "two"):
        store.save(run_of(TwoLayer(3), 2), tmp_path / name)
        time.sleep(1.1 if name == "one" else 0)  # no file may hold the time of day
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    store.save(store.load(tmp_path / "one"), tmp_path / "three")
    assert {p.name: p.read_bytes() for p in (tmp_path / "three").iterdir()} == one


def test_other_programs_read_it(tmp_path):
    import xarray
    from safetensors.numpy import load_file

    run = run_of(TwoLayer(3), 2)
    folder = store.save(run, tmp_path / "run")
    history = xarray.load_dataset(next(folder.glob("history-*.nc")))
    assert history.identical(store.history(folder).assign_attrs(history.attrs))
    assert np.array_equal(history.log_loss, run.history["log_loss"], equal_nan=True)
    assert np.array_equal(history.coords["log_time"], run.history["log_time"])
    assert history.attrs["data_sha256"] == run.data.sha256
    assert same(load_file(next(folder.glob("weights-*.safetensors")))["W"], run.theta["W"])
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["net"]["width"] == 3


def test_the_file_itself_may_be_named(tmp_path):
    store.save(run_of(TwoLayer(3), 2), tmp_path / "run")
    assert store.is_run(tmp_path / "run")
    assert store.load(tmp_path / "run" / "run.json").steps == 3
    assert not store.is_run(tmp_path)


# Data: with the run when small, by their DATA argument when large and reproducible, with the run otherwise.


def saved_data(data, tmp_path):
    run = dataclasses.replace(run_of(TwoLayer(2), data.d), data=data)
    folder = store.save(run, tmp_path / "run")
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return folder, manifest["data"]


def test_large_data_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "EMBED_BYTES", 100)
    data = phuong2021(n=30, d=4, seed=2)
    folder, packed = saved_data(data, tmp_path)
    assert packed["source"]["spec"] == "phuong2021:n=30,d=4,seed=2"
    assert store.load(folder).data.sha256 == data.sha256


def test_large_data_are_read_again_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "EMBED_BYTES", 100)
    path = tmp_path / "points.npz"
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), np.tile([1, -1], 10)
    np.savez(path, X=X, target=y)
    data = marginflow.data.load(str(path), label="target")
    folder, packed = saved_data(data, tmp_path)
    assert packed["source"] == {"spec": str(path), "label": "target"}
    assert np.array_equal(store.load(folder).data.X, X)
    np.savez(path, X=2 * X, target=y)
    with pytest.raises(InputError, match=r"points\.npz' have changed since the run"):
        store.load(folder)
    path.unlink()
    with pytest.raises(InputError, match=r"points\.npz', are not there"):
        store.load(folder)


def test_large_data_that_nothing_makes_again_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "EMBED_BYTES", 100)
    for data in (phuong2021(n=30, d=4).with_bias(), phuong2021(n=30, d=4).take(range(20))):
        folder, packed = saved_data(data, tmp_path)
        assert "source" not in packed
        assert same(store.load(folder).data, data)


def test_single_precision_data_stay_single(tmp_path):
    data = Dataset(np.eye(4, dtype=np.float32), [1, -1, 1, -1], "single")
    folder, _ = saved_data(data, tmp_path)
    assert store.load(folder).data.X.dtype == np.float32


# Atomicity.


class Cut(BaseException):
    """The power fails."""


def test_a_save_cut_anywhere_leaves_the_old_run_or_the_new_one(tmp_path, monkeypatch):
    """Stop before each system call in turn that a save makes; what is found then must load as one of the two."""
    old, new = run_of(TwoLayer(3), 2, seed=1), run_of(TwoLayer(3), 2, seed=2)
    seen = set()
    for cut in range(100):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        store.save(old, tmp_path / "run")
        count = [cut]

        def failing(real, count=count):
            def call(*arguments, **options):
                if count[0] == 0:
                    raise Cut
                count[0] -= 1
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "fsync", "open"):
                patch.setattr(os, name, failing(getattr(os, name)))
            patch.setattr(Path, "unlink", failing(Path.unlink))  # a killed process does not tidy up either
            try:
                store.save(new, tmp_path / "run")
                finished = True
            except Cut:
                finished = False
        found = store.load(tmp_path / "run")
        which = [same(found.theta, run.theta) and same(found.history, run.history) for run in (old, new)]
        assert sum(which) == 1
        seen.add("new" if which[1] else "old")
        if finished:
            assert which[1]
            break
        store.save(new, tmp_path / "run")
        assert len(list((tmp_path / "run").iterdir())) == 4, "the next save removes what was left behind"
    assert finished
    assert cut > 8
    assert seen == {"old", "new"}


KILLED = """
import sys, numpy as np
from marginflow import store
from marginflow.data import phuong2021
from marginflow.nets import TwoLayer
from marginflow.runs import Run
net, data = TwoLayer(200), phuong2021(n=50, d=20)
k = 0
while True:
    theta = {"W": np.full((200, 20), float(k)), "a": np.full(200, float(k))}
    history = {"log_time": np.arange(50.0), "log_loss": np.full(50, float(k))}
    run = Run(net, data, theta, theta, "gd", "logistic", "converged", "", 0.0, 0.0, history, {"k": k})
    store.save(run, sys.argv[1])
    store.save_checkpoint(sys.argv[2], theta, {"k": k})
    if k == 3:
        print("ready", flush=True)
    k += 1
"""


def test_kill_minus_nine(tmp_path):
    """A process that saves over and over is killed at moments it does not choose; every time all parts agree."""
    run, checkpoint = tmp_path / "run", tmp_path / "checkpoint.safetensors"
    for pause in (0.0, 0.013, 0.029):
        process = subprocess.Popen([sys.executable, "-c", KILLED, run, checkpoint], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = store.load(run)
        assert {*found.theta["W"].ravel(), *found.theta0["a"], *found.history["log_loss"]} == {found.options["k"]}
        arrays, meta = store.load_checkpoint(checkpoint)
        assert {*arrays["W"].ravel()} == {meta["k"]}


def test_a_written_file_has_ordinary_permissions_and_no_company(tmp_path):
    (tmp_path / "plain").write_bytes(b"x")
    files.write(tmp_path / "new" / "ours", b"x")
    assert (tmp_path / "new" / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["ours"]


# Damage.


@pytest.fixture
def saved(tmp_path):
    return store.save(run_of(TwoLayer(3), 2), tmp_path / "run")


@pytest.mark.parametrize("part", ["weights", "history", "arrays"])
def test_a_damaged_part_is_named(saved, part):
    path = next(saved.glob(f"{part}-*"))
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (content[:-1], content[:100], b"", bytes(flipped), content + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=f"{path.name}: damaged"):
            store.load(saved)
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name}: cannot be read"):
        store.load(saved)


def test_a_cut_manifest_is_named(saved):
    content = (saved / "run.json").read_bytes()
    for length in range(0, len(content) - 1, 97):
        (saved / "run.json").write_bytes(content[:length])
        with pytest.raises(InputError, match=r"run\.json: "):
            store.load(saved)


def edit(saved, change):
    manifest = json.loads((saved / "run.json").read_text(encoding="utf-8"))
    change(manifest)
    (saved / "run.json").write_text(json.dumps(manifest), encoding="utf-8")


EDITS = {
    "no net": (lambda m: m.pop("net"), "not a whole run"),
    "unknown net": (lambda m: m["net"].update(net="transformer"), "unknown net 'transformer'"),
    "other width": (lambda m: m["net"].update(width=4), "tensor 'W' has shape (3, 2), the net needs (4, 2)"),
    "unknown field": (lambda m: m["run"].update(colour="red"), "not a whole run"),
    "missing field": (lambda m: m["run"].pop("method"), "not a whole run"),
    "missing array": (lambda m: m["run"]["theta0"]["W"].update(name="absent"), "cannot be read"),
    "newer format": (lambda m: m.update(version=99, marginflow="9.9"), "saved by marginflow 9.9 in format 99"),
    "something else": (lambda m: m.update(format="notebook"), "not a saved run"),
    "file elsewhere": (lambda m: m["files"]["weights"].update(name="../../secret"), "is no file of a run"),
    "other data": (lambda m: m["data"].update(sha256="0" * 64), "data have changed since the run"),
}


@pytest.mark.parametrize(("change", "says"), EDITS.values(), ids=EDITS.keys())
def test_an_edited_manifest_is_refused(saved, change, says):
    edit(saved, change)
    assert str(saved) in refusal(lambda: store.load(saved), says)


def test_folders_that_are_no_runs(tmp_path, saved):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_text("x")
    with pytest.raises(InputError, match="no such run"):
        store.load(tmp_path / "absent")
    with pytest.raises(InputError, match=r"no run\.json in it"):
        store.load(tmp_path / "empty")
    run = store.load(saved)
    with pytest.raises(InputError, match="a file is in the way"):
        store.save(run, tmp_path / "file")
    with pytest.raises(InputError, match=r"holds 'holiday\.jpg' and no run"):
        store.save(run, tmp_path / "photos")
    assert store.load(store.save(run, tmp_path / "empty")).steps == run.steps


def test_what_cannot_be_saved_is_named_before_anything_is_written(tmp_path):
    class Odd:
        pass

    run = run_of(TwoLayer(2), 3, extra={"a": [0, {"b": Odd()}]})
    with pytest.raises(InputError, match=r"run\.extra\.a\.1\.b is a .*Odd"):
        store.save(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Nothing is executed.


NO_RECORDS = ("os:system", "subprocess:Popen", "builtins:exec", "marginflow.store:save", "numpy:ndarray",
              "marginflow._core.packing:importlib", "marginflow.nets.net:dataclasses", "marginflow_other:X")


@pytest.mark.parametrize("target", NO_RECORDS)
def test_only_records_of_this_library_are_built(saved, target, tmp_path):
    witness = tmp_path / "executed"
    call = {"$": "record", "type": target, "fields": {"command": f"touch {witness}", "args": f"touch {witness}"}}
    edit(saved, lambda manifest: manifest["run"].update(extra={"x": call}))
    with pytest.raises(InputError):
        store.load(saved)
    assert not witness.exists()


def test_no_part_of_the_library_unpickles_or_evaluates():
    home = Path(marginflow.__file__).parent
    banned_modules, banned_calls = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}, {"eval", "exec"}
    for path in home.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in banned_calls, path
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
            assert not banned_modules & set(names), path


# Values and checkpoints.

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([*Outcome, *Status]) | st.floats(width=32).map(np.float32)
)
some_arrays = [np.zeros((2, 0)), np.array(3.5), np.array(["a", "λ"]), np.arange(3, dtype=np.uint32), np.array([True])]
values = st.recursive(
    scalars | st.sampled_from(some_arrays),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3) | st.just("$"), inner, max_size=3)
    | st.dictionaries(st.integers() | st.tuples(st.integers(), st.text(max_size=2)), inner, max_size=3),
    max_leaves=12,
)


@given(values)
def test_values_survive_packing(value):
    packed, found = pack(value)
    assert same(value, unpack(json.loads(json.dumps(packed, allow_nan=False)), found))


def test_random_keys_survive_packing():
    import jax

    packed, found = pack({"key": jax.random.key(7)})
    again = unpack(json.loads(json.dumps(packed)), found)["key"]
    assert np.array_equal(jax.random.bits(again, 4), jax.random.bits(jax.random.key(7), 4))


UNSAVABLE = [object(), 1j, np.array([1j]), np.array([None]), {1, 2}, lambda: 0, int, b"x"]


@pytest.mark.parametrize("value", UNSAVABLE, ids=lambda value: type(value).__name__)
def test_other_values_are_refused(value):
    with pytest.raises(InputError, match="cannot be saved"):
        pack([value])


def test_contradictions_are_damage():
    absent, wrong = {"$": "array", "name": "absent", "scalar": False}, {"$": "enum", "type": "Outcome", "value": 3}
    for packed in (absent, wrong, {"$": "nonsense"}, [{"$": None}]):
        with pytest.raises(Damaged):
            unpack(packed, {})
    assert packing.PACKAGE == marginflow.__name__


def test_checkpoints_are_exact(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    signalling = np.array([0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000], np.uint64).view(np.float64)
    arrays = {"state.0": signalling, "step": np.array(7), "key": np.array([1, 2], np.uint32), "none": np.empty((0, 3)),
              "strided": np.arange(12.0).reshape(3, 4)[:, ::2], "meta": np.ones(2), "halted": np.array([True])}
    meta = {"step": 7, "log_lr": 0.1 + 0.2, "gap": np.inf, "order": (1, 2), "inner": np.arange(3)}
    store.save_checkpoint(path, arrays, meta)
    found, again = store.load_checkpoint(path)
    assert found.keys() == arrays.keys()
    assert all(same(np.asarray(arrays[k], order="C"), found[k]) for k in arrays)
    assert same(meta, again)


def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    store.save_checkpoint(path, {"x": np.arange(3.0)}, {"step": 1})
    content = path.read_bytes()
    for k in range(len(content)):
        damaged = bytearray(content)
        damaged[k] ^= 1 << (k % 8)
        path.write_bytes(bytes(damaged))
        with pytest.raises(InputError, match=path.name):
            store.load_checkpoint(path)


def test_no_checkpoint(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        store.load_checkpoint(tmp_path / "absent")
    marginflow.nets.save_weights(tmp_path / "w", {"W": np.ones(3)})
    with pytest.raises(InputError, match="not a checkpoint"):
        store.load_checkpoint(tmp_path / "w")


def test_a_folder_of_named_checkpoints(tmp_path):
    run = run_of(TwoLayer(3), 2)
    checkpoints = store.CheckpointFolder(tmp_path / "run")
    assert checkpoints.load("chunk-0") is None
    checkpoints.save("chunk-0", {"x": np.arange(3)}, {"of": "abc"})
    checkpoints.save("chunk-1", {"x": np.arange(4)}, {"of": "abc"})
    store.save(run, tmp_path / "run")  # a run may be saved where its checkpoints lie, and leaves them alone
    assert store.load(tmp_path / "run").steps == run.steps
    assert checkpoints.load("chunk-1")[0]["x"].tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="checkpoint name"):
        checkpoints.save("../elsewhere", {}, {})


def test_a_trained_run_is_saved_whole(tmp_path):
    data, net = phuong2021(n=20, d=4, seed=0), TwoLayer(5)
    theta = marginflow.inits.balanced(net, data.d, 1e-2)
    run = marginflow.train(net, theta, data, method="gd", epochs=3, progress=False)
    again = marginflow.load(marginflow.save(run, tmp_path / "run"))
    assert all(same(getattr(run, field.name), getattr(again, field.name)) for field in dataclasses.fields(Run))


def test_a_folder_of_several_seeds_says_what_to_give_instead(tmp_path):
    flows, many = tmp_path / "flows", tmp_path / "many"
    for seed in (4, 5):
        store.save(run_of(TwoLayer(3), 2), flows / f"seed-{seed}")
    many.mkdir()
    (many / store.ENSEMBLE).write_bytes(b"")
    for ask in (store.load, marginflow.verify, lambda path: marginflow.report(path, tmp_path / "page.html")):
        refusal(lambda ask=ask: ask(flows), f"{flows}: holds 2 runs and is none itself; give one, such as")
        refusal(lambda ask=ask: ask(many), "no run; train one seed")
