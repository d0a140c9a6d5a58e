"""marginflow inspect: what a trained classifier learned, layer by layer, and what its head could be."""

from typing import Annotated

import typer

from marginflow.cli.common import Data, Json, Label, Seed, Strict


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Weights: .safetensors, .pt or .pth (a state_dict).")
    ],
    data: Data,
    architecture: Annotated[
        str,
        typer.Option(
            help='The layers: "784-128-64-1" (ReLU between), JSON, or a .json file; not for W and a.'
        ),
    ] = "",
    held_out: Annotated[
        str, typer.Option("--held-out", help="DATA on which the pruned head is compared.")
    ] = "",
    head: Annotated[
        bool, typer.Option("--head/--no-head", help="Look at the last two layers as a head.")
    ] = True,
    examples: Annotated[
        str, typer.Option(help="Rows looked at closely, sampled from the stream: a number, or 'all'.")
    ] = "2000",
    input_shape: Annotated[
        str, typer.Option("--input-shape", help="Of one example, as 1,28,28 for images.")
    ] = "",
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Also write a self-contained page.")
    ] = "",
    label: Label = "y",
    seed: Seed = 0,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Per layer: separability, margins, ranks, directions. For the head: the two neurons it should be, and pruning.

    With --strict: exit code 1 unless the two-neuron theorem applies to the head's inputs.
    """
    from marginflow import bridges
    from marginflow._core.status import Status
    from marginflow.cli.common import emit
    from marginflow.data import load

    shape = _whole("--input-shape", input_shape.split(",")) if input_shape else None
    rows = None if examples == "all" else _whole("--examples", [examples])[0]
    found = bridges.inspect(
        model,
        load(data, label=label),
        architecture=architecture or None,
        held_out=load(held_out, label=label) if held_out else None,
        head=head,
        examples=rows,
        input_shape=shape,
        seed=seed,
    )
    if html:
        typer.echo(f"page: {found.report(html)}", err=True)
    emit(found, json)
    if strict and found.status is not Status.HOLDS:
        raise typer.Exit(1)


def _whole(option: str, parts: list[str]) -> tuple[int, ...]:
    from marginflow._core.errors import InputError

    try:
        numbers = tuple(int(part) for part in parts)
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise InputError(f"{option} {','.join(parts)}: give positive whole numbers")
    return numbers
