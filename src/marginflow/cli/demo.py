"""marginflow demo: the chain on one small data set."""

from typing import Annotated

import typer

from marginflow.cli.common import Json, Seed, Strict


def demo(
    out: Annotated[
        str, typer.Option("--out", help="Folder for the report, the figures and the run.")
    ] = "demo-out",
    seed: Seed = 0,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """The whole chain on phuong2021: in under a minute: check, predict, flow to t = infinity, verify, report."""
    from marginflow._core.status import Status
    from marginflow.cli.common import emit
    from marginflow.experiments.demo import demo as run

    result = run(seed, out)
    emit(result, json)
    if strict and result.verdict is not Status.HOLDS:
        raise typer.Exit(1)
