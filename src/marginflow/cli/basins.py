"""marginflow basins: the fates of many random tiny neurons."""

from typing import Annotated

import typer

from marginflow._core.errors import InputError
from marginflow.cli.common import Data, Json, Label, Seed, Strict

SIGNS = {"positive": 1, "negative": -1}


def basins(
    data: Data,
    json: Json = False,
    label: Label = "y",
    seed: Seed = 0,
    directions: Annotated[int, typer.Option(help="Random initial directions.", min=1)] = 10_000,
    sign: Annotated[
        str, typer.Option(help="Output weight of the neurons: positive, negative or both, half each.")
    ] = "both",
    strict: Strict = False,
) -> None:
    """Where tiny neurons with random directions end on DATA: extremal directions, dead or vanishing.

    With --strict: exit code 1 unless every fate is decided.
    """
    import numpy as np

    from marginflow.cli.common import emit
    from marginflow.data import load
    from marginflow.sectors import basins as follow

    if sign not in (*SIGNS, "both"):
        raise InputError(f"--sign {sign}; give positive, negative or both")
    dataset = load(data, label=label)
    rng = np.random.default_rng(seed)
    signs = np.where(np.arange(directions) % 2 == 0, 1, -1) if sign == "both" else SIGNS[sign]
    found = follow(dataset, rng.standard_normal((directions, dataset.d)), signs)
    emit(found, json)
    if strict and found.counts()["undecided"]:
        raise typer.Exit(1)
