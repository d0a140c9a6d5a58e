"""Options and output that every command shares."""

import json
import os
import shlex
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
Theorems = Annotated[
    list[str] | None, typer.Option("--theorem", help="Only this theorem (may be repeated).")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of every random choice.", min=0)]


WIDTH = 120  # of a table that goes to a file or a pipe
SHORT = 24


def this_command() -> str:
    """What was typed, to be repeated."""
    return shlex.join(["marginflow", *sys.argv[1:]])


def emit(result: Any, as_json: bool) -> None:
    """The answer: a JSON document, or the record's tables for people."""
    from marginflow._core.record import jsonable

    if as_json:
        sys.stdout.write(json.dumps(jsonable(result), allow_nan=False) + "\n")
        return
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH)
    for table in result.tables():
        console.print(rich_table(table))


def rich_table(table: Any) -> Any:
    """A Table as a rich renderable; cell text is never read as markup. The first two
    columns, a name and most often a status, are not broken."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(
        title=Text(table.title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for k, column in enumerate(table.columns):
        longest = max(len(str(cell)) for cell in (column, *(row[k] for row in table.rows)))
        grid.add_column(Text(column), overflow="fold", no_wrap=k < 2 and longest <= SHORT)
    for row in table.rows:
        grid.add_row(*(Text(str(cell), style=STYLES.get(str(cell), "")) for cell in row))
    return Group(grid, *(Text(note) for note in table.notes))


STYLES = {"holds": "green", "fails": "red", "vacuous": "yellow", "undecided": "magenta"}
