"""The command line from outside: every bad input is one line on standard error and exit code 2, never a traceback."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from marginflow.cli.app import run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def marginflow(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "marginflow", *arguments]
    env = {**ENVIRONMENT, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=120, check=False)


class Exploit:
    """Unpickling it leaves a file behind."""

    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


def csv(text: str):
    return lambda path: path.write_text(text)


def npz(**arrays):
    return lambda path: np.savez(path, **arrays)


def parquet(**columns):
    def write(path: Path) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)

    return write


def pickled(path: Path) -> None:
    np.savez(path, X=np.array([[Exploit(), 1], [1, 1]], dtype=object), y=np.array([1, -1]))


def bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Exploit()))


def cut_short(path: Path) -> None:
    np.savez(path, X=np.ones((50, 3)), y=np.tile([1, -1], 25))
    path.write_bytes(path.read_bytes()[:700])


EYE, SIGNS = np.eye(2), np.array([1, -1])

# file name, how it is written (None: it is not there), words that the one line must hold
FILES = [
    ("missing.csv", None, ["missing.csv", "no such file"]),
    ("missing.npz", None, ["missing.npz", "no such file"]),
    ("table.xlsx", csv("a,y\n1,0\n2,1\n"), ["table.xlsx", ".npz, .npy, .csv, .parquet"]),
    ("gone.txt", None, ["gone.txt", ".npz, .npy, .csv, .parquet"]),
    ("nolabel.csv", csv("a,b,kind\n1,2,0\n3,4,1\n"), ["nolabel.csv", "'y'", "'kind'", "--label"]),
    ("slip.csv", csv("a,b,Y\n1,2,0\n3,4,1\n"), ["slip.csv", "did you mean --label Y"]),
    ("nolabel.npz", npz(X=EYE, labels=SIGNS), ["nolabel.npz", "'y'", "'labels'", "--label"]),
    ("nox.npz", npz(Z=EYE, y=SIGNS), ["nox.npz", "'X'", "'Z'"]),
    ("nan.csv", csv("a,b,y\n1,2,0\n3,nan,1\n"), ["nan.csv", "row 1", "column 1", "'b'", "nan"]),
    ("nan.npz", npz(X=[[1, 2], [np.nan, 1]], y=SIGNS), ["nan.npz", "row 1", "column 0", "nan"]),
    ("inf.csv", csv("a,b,y\n1,-inf,0\n3,4,1\n"), ["inf.csv", "row 0", "'b'", "-inf"]),
    ("inf.parquet", parquet(a=[1.0, np.inf], y=[0, 1]), ["inf.parquet", "row 1", "'a'", "inf"]),
    ("null.parquet", parquet(a=[1.0, None], y=[0, 1]), ["null.parquet", "row 1", "'a'", "missing"]),
    ("zero.csv", csv("a,b,y\n1,2,0\n0,0,1\n"), ["zero.csv", "row 1", "all zeros"]),
    ("one.csv", csv("a,b,y\n1,2,1\n3,4,1\n"), ["one.csv", "only one class", "'1'"]),
    ("three.csv", csv("a,b,y\n1,2,u\n3,4,v\n5,6,w\n"), ["three.csv", "3 different labels", "'u', 'v', 'w'"]),
    ("three.npz", npz(X=np.ones((3, 2)), y=[0, 1, 2]), ["three.npz", "3 different labels"]),
    ("ragged.csv", csv("a,b,y\n1,2,0\n3,4\n"), ["ragged.csv", "line 3", "row 1", "2 fields", "header has 3"]),
    ("long.csv", csv("a,b,y\n1,2,0\n3,4,1,9\n"), ["long.csv", "line 3", "4 fields"]),
    ("text.csv", csv("a,b,y\n1,2,0\n3,Paris,1\n"), ["text.csv", "line 3", "'b'", "'Paris'", "not a number"]),
    ("hole.csv", csv("a,b,y\n1,,0\n3,4,1\n"), ["hole.csv", "line 2", "'b'", "empty"]),
    ("unlabelled.csv", csv("a,b,y\n1,2,0\n3,4,\n5,6,1\n"), ["unlabelled.csv", "row 1", "label"]),
    ("twice.csv", csv("a,a,y\n1,2,0\n3,4,1\n"), ["twice.csv", "'a'", "twice"]),
    ("empty.csv", csv(""), ["empty.csv", "empty"]),
    ("header.csv", csv("a,b,y\n"), ["header.csv", "no rows"]),
    ("blank.csv", csv("\n\n"), ["blank.csv", "empty"]),
    ("empty.npz", csv(""), ["empty.npz", "empty"]),
    ("empty.npy", csv(""), ["empty.npy", "empty"]),
    ("empty.parquet", csv(""), ["empty.parquet", "empty"]),
    ("bare.npy", lambda path: np.save(path, EYE), ["bare.npy", "labels", "bare.y.npy"]),
    ("objects.npz", pickled, ["objects.npz", "'X'", "never unpickled"]),
    ("pickle.npz", bare_pickle, ["pickle.npz", "not a readable .npz"]),
    ("cut.npz", cut_short, ["cut.npz", "not a readable .npz"]),
    ("noise.parquet", csv("not parquet"), ["noise.parquet", "not a readable parquet"]),
    ("names.parquet", parquet(a=["u", "v"], y=[0, 1]), ["names.parquet", "'a'", "string"]),
    (
        "large.npz",
        npz(X=[[1, 2], [2**53 + 1, 1]], y=SIGNS),
        ["large.npz", "row 1", "9007199254740993", "exactly"],
    ),
    ("short.npz", npz(X=np.ones((3, 2)), y=SIGNS), ["short.npz", "3 rows", "2 labels"]),
    ("latin.csv", lambda path: path.write_bytes(b"a,y\n1,caf\xe9\n2,b\n"), ["latin.csv", "UTF-8"]),
]


def assert_one_line(code: int, out: str, err: str, words: list[str]) -> None:
    assert code == 2, err
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("marginflow: ")
    for word in words:
        assert word in lines[0]


def assert_refused(result: subprocess.CompletedProcess, words: list[str]) -> None:
    assert_one_line(result.returncode, result.stdout, result.stderr, words)


@pytest.mark.parametrize(("name", "write", "words"), FILES, ids=[name for name, _, _ in FILES])
def test_bad_files(name, write, words, tmp_path, monkeypatch, capfd):
    """In this process, since starting one takes longer than all the rest; what a process adds is tested below."""
    if write is not None:
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    code = run(["check", name, "--json"])
    assert_one_line(code, *capfd.readouterr(), words)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    ("name", "write", "words"),
    [row for row in FILES if row[0] in ("missing.csv", "ragged.csv", "objects.npz")],
)
def test_bad_files_from_a_shell(name, write, words, tmp_path):
    if write is not None:
        write(tmp_path / name)
    assert_refused(marginflow("check", name, "--json", cwd=tmp_path), words)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], ["DATA", "--help"]),
        (["chekc", "phuong2021:"], ["chekc", "--help"]),
        (["check", "phuong2021:", "--jsn"], ["--jsn"]),
        (["check", "phuong2021:n=-4"], ["n=-4", "n >= 2"]),
        (["check", "phuong2021:n=four"], ["n=four", "integer"]),
        (["check", "phuong2012:"], ["phuong2012", "did you mean 'phuong2021'"]),
        (["check", "phuong2021:sead=1"], ["did you mean 'seed'"]),
        (
            ["check", "phuong2021:", "--condition", "orthogonal_seperability"],
            ["did you mean 'orthogonal_separability'"],
        ),
        (["check", "."], [".npz, .npy, .csv, .parquet"]),
        (["check", ""], ["empty"]),
        (["demo", "--seed", "-1"], ["--seed"]),
        (["demo", "--seed", "one"], ["--seed", "integer"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_options(arguments, words):
    assert_refused(marginflow(*arguments), words)


def test_more_than_there_is_memory_for():
    result = marginflow("check", "chizat2020:n=1000,d=1000000000000")
    assert_refused(result, ["memory"])


def test_unreadable_file(tmp_path):
    path = tmp_path / "locked.csv"
    path.write_text("a,y\n1,0\n2,1\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    assert_refused(marginflow("check", str(path)), ["locked.csv", "cannot be read"])


DATA = "phuong2021:n=20,d=3"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", DATA, "--until", "frozen"],
        ["train", DATA, "--method", "gd", "--epochs", "1"],
        ["train", DATA, "--method", "gd", "--epochs", "1", "--seeds", "2"],
        ["train", DATA, "--until", "frozen", "--seeds", "2"],
        ["demo"],
        ["reproduce", "one_number", "--quick"],
    ],
    ids=" ".join,
)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(arguments, tmp_path, monkeypatch, capfd):
    """A file lies where the folder would have to be: refused on every system and for every user."""
    import marginflow.experiments.demo as demo
    from marginflow.cli import training
    from marginflow.experiments.figures.one_number import OneNumber

    working = lambda *_, **__: pytest.fail("the work was begun")  # noqa: E731
    for owner, name in (
        (training, "train"),
        (training.ensembles, "ensemble"),
        (demo, "check"),
        (OneNumber, "measure"),
    ):
        monkeypatch.setattr(owner, name, working)
    (tmp_path / "file").write_text("")
    code = run([*arguments, "--out", str(tmp_path / "file" / "inside"), "--json"])
    assert_one_line(code, *capfd.readouterr(), [str(tmp_path / "file" / "inside")])


def test_a_system_error_is_one_line_and_a_wrong_program_is_a_defect(monkeypatch, capfd):
    import errno

    import marginflow.data.catalogue as catalogue

    def failing(error):
        def load(spec):
            raise error

        return load

    monkeypatch.setattr(
        catalogue, "_family", failing(OSError(errno.ENOSPC, "No space left on device", "here"))
    )
    code = run(["check", "phuong2021:", "--json"])
    assert_one_line(code, *capfd.readouterr(), ["here", "No space left on device"])
    monkeypatch.setattr(catalogue, "_family", failing(OSError("of no system")))
    assert run(["check", "phuong2021:", "--json"]) == 3
    assert "defect" in capfd.readouterr().err


def test_no_command_shows_the_help():
    result = marginflow()
    assert result.returncode == 0
    assert "check" in result.stdout
    assert result.stderr == ""


def test_version():
    import marginflow as mf

    result = marginflow("--version")
    assert (result.returncode, result.stdout) == (0, f"marginflow {mf.__version__}\n")


def test_json_is_exactly_one_document():
    result = marginflow("info", "--json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["versions"]["numpy"] == np.__version__


def test_a_closed_pipe_is_quiet():
    import shlex

    command = f"{shlex.quote(sys.executable)} -m marginflow info | true"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys; from marginflow.cli.app import run; run(sys.argv[1:]); "
        "heavy = {'jax', 'scipy', 'numpy', 'matplotlib', 'sklearn', 'torch', 'clarabel', 'pandas', 'pyarrow'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert result.stderr == "[]\n"


def test_importing_marginflow_is_light_and_changes_nothing():
    program = (
        "import sys; import marginflow; "
        "print(sorted({'jax', 'scipy', 'matplotlib', 'sklearn', 'torch', 'clarabel'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert result.stdout == "[]\n"


def test_checking_a_condition_needs_no_jax():
    program = (
        "import sys; from marginflow.cli.app import run; "
        "code = run(['check', 'phuong2021:n=20,d=3', '--condition', 'orthogonal_separability', '--json']); "
        "print(code, 'jax' in sys.modules, file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert result.stderr == "0 False\n"
    assert json.loads(result.stdout)["conditions"]["orthogonal_separability"]["status"] == "holds"


def test_a_defect_is_not_mistaken_for_an_answer():
    """Exit code 1 means `--strict` and not `holds`; an error of ours must not read like that."""
    program = (
        "import sys, marginflow.data.catalogue as catalogue; from marginflow.cli.app import run; "
        "catalogue._family = lambda spec: 1 / 0; sys.exit(run(['check', 'phuong2021:']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert result.returncode == 3
    assert "ZeroDivisionError" in result.stderr
    assert "defect" in result.stderr.splitlines()[-1]
