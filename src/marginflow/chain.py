"""From a run, a figure or a sweep to a page: verify, portray, draw."""

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any, Self

from marginflow._core.errors import InputError
from marginflow._core.record import Record, Table
from marginflow.portrait import Portrait, of_run
from marginflow.runs import Run
from marginflow.verify import Verdicts, verify


def report(
    what: Run | str | os.PathLike, path: str | os.PathLike = "report.html", verdicts: Verdicts | None = None
) -> str:
    """One self-contained HTML file; returns its path.

    `what`: a run, or the path of a saved run, of a reproduced figure (its NAME.json) or of a sweep (its folder).
    """
    from marginflow.report.page import write

    return write(page_of(what, verdicts), path)


@dataclasses.dataclass(frozen=True)
class Reported(Record):
    """A page that was written; `verdict` is the one at its top, None where there is none."""

    report: str
    verdict: str | None
    headline: str

    @classmethod
    def of(cls, what: str | os.PathLike, path: str | os.PathLike | None = None) -> Self:
        """Write the page of what is at `what`; beside it unless a path is given."""
        from marginflow.report.page import write

        page, source = page_of(what), Path(what)
        default = source / "report.html" if source.is_dir() else source.with_suffix(".html")
        return cls(write(page, default if path is None else path), page.status or None, page.headline)

    def table(self) -> Table:
        rows = (("verdict", self.verdict or "-"), ("in words", self.headline), ("report", self.report))
        return Table("report", ("what", "value"), rows)


def page_of(what: Run | str | os.PathLike, verdicts: Verdicts | None = None) -> Any:
    """The page of anything that has one."""
    from marginflow import store
    from marginflow.report import figure_page, sweep_page

    if isinstance(what, Run):
        return _page_of_run(what, verdicts)
    path = Path(what)
    if store.is_run(path):
        return _page_of_run(store.load(path), verdicts)
    if sweep_page.is_sweep(path):
        return sweep_page.sweep_page(path)
    if figure_page.is_figure(path):
        return figure_page.figure_page(path)
    found = "no such file or folder" if not path.exists() else "neither a run, nor a figure, nor a sweep"
    remedy = f"{found}; give the folder of a run or a sweep, or the NAME.json of a figure"
    raise InputError(f"{path}: {store.several_seeds(path) or remedy}")


def _page_of_run(run: Run, verdicts: Verdicts | None) -> Any:
    from marginflow.report.run_page import run_page

    verdicts = verify(run) if verdicts is None else verdicts
    picture, limits = scene(run)
    return run_page(run, verdicts, picture, command(run), limits)


def drawn(run: Run, stem: str | os.PathLike) -> list[str]:
    """The run's figure as STEM.png and STEM.pdf."""
    from marginflow.report import style
    from marginflow.report.run_figure import run_figure

    with style.drawing():
        return style.save(run_figure(run, *scene(run)), stem)


def scene(run: Run) -> tuple[Portrait | None, dict[str, float]]:
    """What figures of a run show: its portrait, and the levels that histories tend to where a theorem predicts them."""
    w_plus, w_minus, limits = predicted(run)
    return of_run(run, w_plus, w_minus), limits


def predicted(run: Run) -> tuple[Any, Any, dict[str, float]]:
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


REPEATS = ("train", "demo", "reproduce", "sweep")  # commands whose own line makes their result again


def command(run: Run) -> str:
    """What makes this run again: its command line, or the Python calls."""
    argv = [str(a) for a in run.provenance.get("argv", ())]
    if argv[:1] and argv[0] in REPEATS:
        return shlex.join(["marginflow", *argv])
    return python_calls(run)


def python_calls(run: Run) -> str:
    """The run as Python: data, net, initial weights, training, each by what the record says of it."""
    options = dict(run.options)
    law, scale, seed = (options.pop(k, None) for k in ("init", "scale", "seed"))
    options.pop("method", None)
    theta = (
        f"mf.inits.init({law!r}, net, data.d, {scale!r}, {seed!r})"
        if law is not None
        else "mf.load(RUN).theta0  # the initial weights are kept with the run"
    )
    if run.method != "flow" and seed is not None:
        options["seed"] = seed
    arguments = "".join(f", {k}={v!r}" for k, v in options.items() if v is not None)
    return "\n".join(
        (
            "import marginflow as mf",
            f"data = mf.data.load({run.data.name!r})  # sha256 {run.data.sha256[:16]}",
            f"net = mf.nets.net({str(run.net)!r})",
            f"theta = {theta}",
            f"run = mf.train(net, theta, data, method={run.method!r}{arguments})",
        )
    )
