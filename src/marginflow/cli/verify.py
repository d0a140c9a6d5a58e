"""marginflow verify: every applicable theorem against a run, or against weights from anywhere."""

from typing import Annotated

import typer

from marginflow.cli.common import Json, Label, Strict, Theorems


def verify(
    target: Annotated[
        str, typer.Argument(metavar="RUN|DATA", help="A saved run, or with --weights the data.")
    ],
    weights: Annotated[
        str, typer.Option("--weights", help="A safetensors file with W (width × d) and a (width).")
    ] = "",
    activation: Annotated[str, typer.Option(help="Of the net in --weights: relu, leaky:0.1, ...")] = "relu",
    train: Annotated[str, typer.Option(help="Which layers were trained: both, input or output.")] = "both",
    theorem: Theorems = None,
    label: Label = "y",
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Verdicts: assumption by assumption and claim by claim, measured against bound."""
    import marginflow as mf
    from marginflow._core.status import Status
    from marginflow.cli.common import emit

    if weights:
        from marginflow.nets.weights import check_shapes, load_weights

        dataset = mf.data.load(target, label=label)
        theta = load_weights(weights)
        net = two_layer_from(theta, weights, activation, train)
        check_shapes(theta, net, dataset.d, weights)
        verdicts = mf.verify(net, theta, dataset, theorems=theorem or None)
    else:
        verdicts = mf.verify(target, theorems=theorem or None)
    emit(verdicts, json)
    if strict and verdicts.status is not Status.HOLDS:
        raise typer.Exit(1)


def two_layer_from(theta, path: str, activation: str, train: str):
    """The two-layer net that weights from anywhere must be: W (width × d), a (width). A bias would change the net."""
    import marginflow as mf

    if {"W", "a"} != set(theta):
        found = ", ".join(f"{k} {tuple(v.shape)}" for k, v in theta.items())
        raise mf.InputError(f"{path}: needs arrays W (width × d) and a (width), and no others; found {found}")
    if theta["W"].ndim != 2 or theta["a"].shape != theta["W"].shape[:1]:
        shapes = f"W {tuple(theta['W'].shape)}, a {tuple(theta['a'].shape)}"
        raise mf.InputError(
            f"{path}: {shapes} do not fit together; W must be width × d and a must have width entries"
        )
    return mf.TwoLayer(theta["W"].shape[0], activation=activation, train=train)  # type: ignore[arg-type]
