"""marginflow margin: one max-margin problem, solved and certified."""

from enum import StrEnum
from typing import Annotated

import typer

from marginflow.cli.common import Data, Json, Label, Seed, Strict


class Kind(StrEnum):
    linear = "linear"
    positive = "positive"
    negative = "negative"
    f1 = "f1"
    f2 = "f2"


def margin(
    data: Data,
    kind: Annotated[
        Kind,
        typer.Option(help="linear; one class alone; an infinite net with both layers (f1) or the last (f2)."),
    ] = Kind.linear,
    bias: Annotated[bool, typer.Option("--bias", help="Append a constant 1 to every x.")] = False,
    activation: Annotated[str, typer.Option(help="Units of f1 (relu, srelu) and f2 (any).")] = "relu",
    label: Label = "y",
    seed: Seed = 0,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """The largest margin on DATA with the interval that its primal and dual solutions prove.

    With --strict: exit code 1 unless a positive margin is certified.
    """
    from marginflow.cli.common import emit
    from marginflow.data import load

    dataset = load(data, label=label)
    if kind is Kind.f1:
        from marginflow.margins.f1 import f1

        result = f1(dataset, bias, activation, seed=seed)
    elif kind is Kind.f2:
        from marginflow.margins.f2 import f2

        result = f2(dataset, bias, activation)
    else:
        from marginflow import margins

        result = getattr(margins, kind.value)(dataset, bias)
    emit(result, json)
    if strict and not (result.certified and result.separable):
        raise typer.Exit(1)
