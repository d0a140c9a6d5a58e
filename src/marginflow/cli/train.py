"""marginflow train: one run, or one per seed, by gradient flow or in discrete steps."""

from typing import Annotated, Any

import typer

from marginflow._core.errors import InputError
from marginflow.cli.common import Data, Json, Label, Seed, Strict

FLOW_ONLY = {"mode": None, "rtol": None}
DESCENT_ONLY = {
    "lr": None,
    "batch": None,
    "epochs": None,
    "schedule": None,
    "replacement": False,
    "precision": "double",
}


def train(
    data: Data,
    method: Annotated[
        str, typer.Option(help="flow (gradient flow), sgd, gd, ngd (loss-normalised gd) or adam.")
    ] = "flow",
    width: Annotated[int, typer.Option(help="Number of neurons.")] = 100,
    activation: Annotated[
        str, typer.Option(help="relu, leaky:0.1, smooth-leaky:0.1, srelu, linear.")
    ] = "relu",
    train: Annotated[str, typer.Option("--train", help="Which layers move: both, input or output.")] = "both",
    net: Annotated[
        str, typer.Option("--net", help="Another net, e.g. linear or residual:width=100,depth=4.")
    ] = "",
    init: Annotated[
        str,
        typer.Option(
            help="balanced, uniform, gaussian, sphere, signs, tensorflow, ...; default: "
            "balanced for flow, uniform otherwise."
        ),
    ] = "",
    scale: Annotated[
        float | None,
        typer.Option(
            help="λ (balanced), standard deviation (gaussian), factor on the framework's default (uniform)."
        ),
    ] = None,
    loss: Annotated[str, typer.Option(help="logistic or exponential.")] = "logistic",
    lr: Annotated[float | None, typer.Option(help="Step size (0.1); with ngd the step is lr/L.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples per step of sgd and adam (50).")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data; an epoch of gd or ngd is one step.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="frozen, limit (flow), log-time=V or loss=V, e.g. loss=1e-5000.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="constant, adaptive (ngd), inverse-sqrt, chizat2020.both, chizat2020.output."),
    ] = None,
    replacement: Annotated[
        bool, typer.Option("--replacement", help="Draw batches with replacement.")
    ] = False,
    precision: Annotated[str, typer.Option(help="double or single.")] = "double",
    mode: Annotated[str | None, typer.Option(help="Of flow: exact or adaptive.")] = None,
    rtol: Annotated[float | None, typer.Option(help="Of flow: relative error per step.")] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Train K nets, with seeds SEED, SEED+1, ...", metavar="K")
    ] = None,
    out: Annotated[
        str,
        typer.Option("--out", help="Folder for the run; an interrupted run goes on from it.", metavar="RUN"),
    ] = "",
    label: Label = "y",
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Train a net on DATA. The same command with the same --out continues a run that was interrupted.

    With --strict: exit code 1 unless every run converged, which is to say did what was asked of it.
    """
    from marginflow.cli import training
    from marginflow.cli.common import emit
    from marginflow.data import load
    from marginflow.nets import TwoLayer
    from marginflow.nets import net as named_net

    given: dict[str, Any] = {
        "mode": mode,
        "rtol": rtol,
        "lr": lr,
        "batch": batch,
        "epochs": epochs,
        "schedule": schedule,
        "replacement": replacement,
        "precision": precision,
    }
    _refuse_idle("flow" if method == "flow" else "descent", given)
    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds}; give at least 1")
    dataset = load(data, label=label)
    architecture = named_net(net) if net else TwoLayer(width, activation=activation, train=train)  # type: ignore[arg-type]
    init = init or ("balanced" if method == "flow" else "uniform")
    common = {"loss": loss, **({} if until is None else {"until": until})}
    options = {**common, **_used(method, given)}
    if seeds is None:
        made = training.one(architecture, dataset, method, init, scale, seed, out, options)
    else:
        chosen = range(seed, seed + seeds)
        made = (
            training.flows(architecture, dataset, init, scale, chosen, out, options)
            if method == "flow"
            else training.many(architecture, dataset, method, init, scale, chosen, out, options)
        )
    emit(made, json)
    if strict and not made.converged:
        raise typer.Exit(1)


def _refuse_idle(kind: str, given: dict[str, Any]) -> None:
    """An option that the method would silently ignore is a mistake."""
    idle = DESCENT_ONLY if kind == "flow" else FLOW_ONLY
    for name, default in idle.items():
        if given[name] != default:
            raise InputError(
                f"--{name} has no meaning for "
                + (
                    "--method flow; use sgd, gd, ngd or adam"
                    if kind == "flow"
                    else "this method; it is of flow"
                )
            )


def _used(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The options of this kind of method that were given."""
    mine = FLOW_ONLY if method == "flow" else DESCENT_ONLY
    return {name: given[name] for name, default in mine.items() if given[name] != default}
