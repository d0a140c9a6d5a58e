"""marginflow check: every condition on the data, with a witness."""

from marginflow.cli.common import Data, Json, Label, Strict


def check(data: Data, json: Json = False, label: Label = "y", strict: Strict = False) -> None:
    """Which conditions of the theorems hold for DATA, by how much, and why."""
    raise NotImplementedError
