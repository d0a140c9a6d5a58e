"""From the shell to the answer: whole processes, the second and later of equal ones."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Aim, Entry, Row, Run

WORK = "start-up"
TABLE = "a,b,y\n1,2,1\n2,1,1\n1.5,1.2,1\n-1,-2,-1\n-2,-1,-1\n-1.1,-1.7,-1\n"


def commands(folder: Path) -> list[tuple[str, str, list[str], float | None]]:
    """(case, method, arguments of Python, the most seconds it may take)."""
    table = folder / "small.csv"
    table.write_text(TABLE)
    run = ["-m", "marginflow"]
    data = "phuong2021:n=500,d=20,seed=0"
    return [
        ("the command's help", "marginflow --help", [*run, "--help"], 0.3),
        ("the command's help", "python -c pass", ["-c", "pass"], None),
        ("import", "import marginflow", ["-c", "import marginflow"], None),
        ("import", "import jax", ["-c", "import jax"], None),
        ("import", "import sklearn.svm", ["-c", "import sklearn.svm"], None),
        ("import", "import torch", ["-c", "import torch"], None),
        ("a small table", "marginflow check small.csv", [*run, "check", str(table), "--json"], 1.5),
        ("a small table", "marginflow margin small.csv", [*run, "margin", str(table), "--json"], None),
        (data, "marginflow extremal", [*run, "extremal", data, "--json"], None),
        (data, "marginflow basins", [*run, "basins", data, "--json"], None),
        (data, "marginflow train --until limit", [*run, "train", data, "--until", "limit", "--json"], 10.0),
        (
            data,
            "marginflow train --method sgd",
            [*run, "train", data, "--method", "sgd", "--epochs", "50", "--json"],
            None,
        ),
    ]


def rows(run: Run) -> Iterator[Entry]:
    times = run.choose(4, 1)
    with tempfile.TemporaryDirectory() as name:
        for case, method, arguments, most in commands(Path(name))[: run.choose(None, 2)]:
            taken, code = [], 0
            for _ in range(times):
                start = time.perf_counter()
                code = subprocess.run(
                    [sys.executable, *arguments], capture_output=True, env=os.environ
                ).returncode
                taken.append(time.perf_counter() - start)
            best = min(taken[1:] or taken)
            answered = "answered" if code == 0 else f"exit code {code}"
            yield Row(WORK, case, method, best, {"answer": answered}, warm_up=max(taken[0] - best, 0.0))
            if most is not None:
                yield Aim(WORK, case, f"{method} under {most:g} s", most, best, best <= most and code == 0)
