"""Options and output that every command shares."""

import json
import sys
from typing import Annotated, Any

import typer

Data = Annotated[
    str,
    typer.Argument(
        help="A file (.npz, .npy, .csv, .parquet) or a family such as phuong2021:n=500,d=20,seed=0.",
        metavar="DATA",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Exactly one JSON document on standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 unless the answer is 'holds'.")]
Label = Annotated[str, typer.Option("--label", help="Name of the label column of a table.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.", min=0)]


def emit(result: Any, as_json: bool) -> None:
    """The answer: a JSON document, or the record's tables for people."""
    from marginflow._core.record import jsonable

    if as_json:
        sys.stdout.write(json.dumps(jsonable(result), allow_nan=False) + "\n")
        return
    from rich.console import Console

    console = Console()
    for table in result.tables():
        console.print(rich_table(table))


def rich_table(table: Any) -> Any:
    """A Table as a rich renderable; cell text is never read as markup."""
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(title=Text(table.title), title_justify="left", title_style="bold")
    for column in table.columns:
        grid.add_column(Text(column), overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(str(cell), style=STYLES.get(str(cell), "")) for cell in row))
    return Group(grid, *(Text(note) for note in table.notes))


STYLES = {"holds": "green", "fails": "red", "vacuous": "yellow", "undecided": "magenta"}
