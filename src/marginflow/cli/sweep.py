"""marginflow sweep: a grid of runs that survives being killed."""

from typing import Annotated

import typer

from marginflow.cli.common import Json, Strict


def sweep(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC.toml", help="What to run: options, [grid], [random], [[list]].")
    ],
    out: Annotated[
        str, typer.Option("--out", help="Folder for the results; the same folder goes on.", metavar="DIR")
    ],
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", help="Address of a dask scheduler, e.g. tcp://host:8786.", metavar="ADDRESS"
        ),
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes on this machine (default: this one).", metavar="N"),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Compute failed cells again.")] = False,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Train every cell of SPEC. The same command with the same --out continues a sweep that was interrupted.

    With --strict: exit code 1 unless every cell is done.
    """
    from marginflow.cli.common import emit, this_command
    from marginflow.experiments.sweeps import sweep as run

    try:
        result = run(spec, out, cluster=cluster or None, workers=workers, retry=retry)
    except KeyboardInterrupt:
        typer.echo(
            f"marginflow: interrupted; done cells are kept in {out}; to go on, repeat: {this_command()}", err=True
        )
        raise typer.Exit(130) from None
    emit(result, json)
    if strict and result.done < result.cells:
        raise typer.Exit(1)
