"""marginflow report: one self-contained HTML file."""

from typing import Annotated

import typer

from marginflow.cli.common import Json


def report(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A saved run, the folder of a sweep, or a figure's NAME.json."),
    ],
    out: Annotated[
        str, typer.Option("--out", help="The HTML file (default: beside RUN).", metavar="FILE")
    ] = "",
    json: Json = False,
) -> None:
    """Verdict, assumptions, claims, figures and how to repeat it, in one HTML file that needs no network."""
    from marginflow.chain import Reported
    from marginflow.cli.common import emit

    emit(Reported.of(run, out or None), json)
