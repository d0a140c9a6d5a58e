"""marginflow check: every condition on the data, with a witness."""

from typing import Annotated

import typer

from marginflow.cli.common import Data, Json, Label, Strict

Conditions = Annotated[list[str] | None, typer.Option("--condition", metavar="NAME",
                                                      help="Only this condition; may be repeated.")]
Rank = Annotated[int | None, typer.Option(help="Rank of the projection in interclass_distance (default d).")]
Tolerance = Annotated[float, typer.Option(help="Cosines up to this size are zero in orthogonal_separability.")]
AllViolations = Annotated[bool, typer.Option("--all-violations",
                                             help="List the violating pairs instead of stopping at the first.")]
Constant = Annotated[str, typer.Option(metavar="NAME", help="Theorem whose constant near_orthogonality uses: "
                                                            "frei2022.flow or frei2022.descent.")]
Leak = Annotated[float, typer.Option(help="Slope γ of the leaky ReLU in that constant.")]


def check(data: Data, condition: Conditions = None, rank: Rank = None, tolerance: Tolerance = 0.0,
          all_violations: AllViolations = False, constant: Constant = "frei2022.flow", leak: Leak = 0.5,
          label: Label = "y", json: Json = False, strict: Strict = False) -> int:
    """Which conditions of the theorems hold for DATA, by how much, and why."""
    from marginflow import conditions
    from marginflow._core.errors import unknown_name
    from marginflow._core.status import Status
    from marginflow.cli.common import emit
    from marginflow.data import load

    for name in condition or ():
        if name not in conditions.NAMES:  # before a large file is read
            raise unknown_name("condition", name, conditions.NAMES)
    checks = conditions.check(load(data, label=label), condition or None, rank=rank, tolerance=tolerance,
                              all_violations=all_violations, constant=constant, leak=leak)
    emit(checks, json)
    return int(strict and checks.status is not Status.HOLDS)
