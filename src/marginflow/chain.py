"""From a run to a page: verify, portray, draw."""

import os
import shlex
from typing import Any

from marginflow.portrait import of_run
from marginflow.runs import Run
from marginflow.verify import Verdicts, verify


def report(
    what: Run | str | os.PathLike, path: str | os.PathLike = "report.html", verdicts: Verdicts | None = None
) -> str:
    """One self-contained HTML file for a run (or the path of a saved one); returns its path."""
    from marginflow.report.page import write
    from marginflow.report.run_page import run_page

    run = what if isinstance(what, Run) else _load(what)
    verdicts = verify(run) if verdicts is None else verdicts
    w_plus, w_minus, limits = predicted(run, verdicts)
    return write(run_page(run, verdicts, of_run(run, w_plus, w_minus), command(run), limits), path)


def _load(path: Any) -> Run:
    from marginflow import store

    return store.load(path)


def predicted(run: Run, verdicts: Verdicts) -> tuple[Any, Any, dict[str, float]]:
    """w+ and w- where the theorems speak of them, and the levels that histories tend to."""
    from marginflow import margins
    from marginflow.theorems import Subject
    from marginflow.theorems.phuong2021 import relu_both_layers

    if relu_both_layers(Subject(run.net, run.data)) is not None:
        return None, None, {}
    plus, minus = margins.positive(run.data), margins.negative(run.data)
    if plus.vector is None or minus.vector is None:
        return None, None, {}
    level = 0.5 / (1 / plus.value + 1 / minus.value)
    return plus.vector, minus.vector, {"normalised_margin": float(level)}


def command(run: Run) -> str:
    """The command line that made this run, or the Python call."""
    argv = [str(a) for a in run.provenance.get("argv", ())]
    if argv[:1] == ["train"]:
        return shlex.join(["marginflow", *argv])
    options = ", ".join(f"{k}={v!r}" for k, v in run.options.items())
    return f"# data: {run.data.name} (sha256 {run.data.sha256[:16]})\nmf.train(net, theta, data, {options})"
