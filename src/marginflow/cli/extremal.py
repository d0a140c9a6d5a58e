"""marginflow extremal: extremal directions and sectors of both signs."""

from typing import Annotated

import typer

from marginflow.cli.common import Data, Json, Label, Seed, Strict


def extremal(
    data: Data,
    json: Json = False,
    label: Label = "y",
    seed: Seed = 0,
    starts: Annotated[
        int, typer.Option(help="Ascents per sign where nothing proves completeness.", min=1)
    ] = 512,
    strict: Strict = False,
) -> None:
    """Extremal directions of DATA and their sectors: where small neurons of either sign go.

    With --strict: exit code 1 unless they are proved to be all.
    """
    from marginflow.cli.common import emit
    from marginflow.data import load
    from marginflow.sectors import extremal as find

    found = find(load(data, label=label), starts=starts, seed=seed)
    emit(found, json)
    if strict and not found.complete:
        raise typer.Exit(1)
