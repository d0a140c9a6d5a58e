"""marginflow predict: what the theorems say before any training."""

from typing import Annotated

import typer

from marginflow.cli.common import Data, Json, Label, Strict, Theorems


def predict(
    data: Data,
    activation: Annotated[
        str, typer.Option(help="relu, leaky:0.1, smooth-leaky:0.1, srelu, linear.")
    ] = "relu",
    width: Annotated[int, typer.Option(help="Number of neurons.")] = 100,
    train: Annotated[str, typer.Option(help="Which layers move: both, input or output.")] = "both",
    net: Annotated[
        str, typer.Option("--net", help="Another architecture, e.g. linear or deep-linear:depth=3,width=20.")
    ] = "",
    theorem: Theorems = None,
    label: Label = "y",
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Which theorems apply to this net on DATA, and what they predict, without training."""
    import marginflow as mf
    from marginflow._core.status import Status
    from marginflow.cli.common import emit

    dataset = mf.data.load(data, label=label)
    architecture = mf.nets.net(net) if net else mf.TwoLayer(width, activation=activation, train=train)  # type: ignore[arg-type]
    predictions = mf.predict(architecture, dataset, theorem or None)
    emit(predictions, json)
    if strict and any(f.status is not Status.HOLDS for f in predictions.theorems):
        raise typer.Exit(1)
