"""marginflow reproduce: a published figure by one command."""

from typing import Annotated

import typer

from marginflow.cli.common import Json, Strict


def reproduce(
    name: Annotated[str, typer.Argument(metavar="[NAME|all]", help="A figure; --list shows them.")] = "",
    list_: Annotated[bool, typer.Option("--list", help="Every figure and what it shows.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, under a minute.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Override a parameter (may be repeated)."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Short for --set seeds=K.")] = None,
    out: Annotated[str, typer.Option("--out", help="Folder for data, pictures and numbers.")] = "figures",
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Data, PNG, PDF and a table of our numbers beside the paper's."""
    from marginflow import experiments
    from marginflow._core.errors import InputError
    from marginflow._core.status import Status
    from marginflow.cli.common import emit
    from marginflow.experiments import catalogue

    if list_:
        emit(catalogue.listing(), json)
        return
    if not name:
        raise InputError("name a figure, or all; --list shows them")
    settings = dict(_pair(text) for text in set_ or ())
    if seeds is not None:
        settings["seeds"] = str(seeds)
    if name == "all":
        made = catalogue.reproduce_all(quick=quick, out=out, settings=settings)
    else:
        made = catalogue.reproduce_one(experiments.experiment(name), quick=quick, out=out, settings=settings)
    emit(made, json)
    if strict and made.status is not Status.HOLDS:
        raise typer.Exit(1)


def _pair(text: str) -> tuple[str, str]:
    from marginflow._core.errors import InputError

    field, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text}: write FIELD=VALUE")
    return field.strip(), value.strip()
