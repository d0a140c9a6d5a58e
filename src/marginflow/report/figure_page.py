"""The page of a reproduced figure: ours beside the paper's, the picture, and the command that repeats it."""

import json
import shlex
from pathlib import Path
from typing import Any

from marginflow._core.errors import InputError
from marginflow._core.record import Table, show, show_interval
from marginflow.report.page import Page, Picture, Section

KEYS = {"figure", "numbers", "files", "title"}


def is_figure(path: str | Path) -> bool:
    """Whether `path` is the NAME.json that `reproduce` writes, or a folder holding exactly one."""
    return _json_path(Path(path)) is not None


def figure_page(path: str | Path) -> Page:
    source = _json_path(Path(path))
    if source is None:
        raise InputError(f"{path}: not a reproduced figure; give the NAME.json that reproduce wrote")
    made = _read(source)
    assert made is not None
    numbers, parameters = made["numbers"], made.get("parameters", {})
    statuses = [n["status"] for n in numbers.values()]
    held = sum(s == "holds" for s in statuses)
    headline = f"{made['title']}: {held} of {len(statuses)} numbers lie in their bands."
    rows = tuple(
        (
            name,
            show(n["ours"]),
            show(n["paper"]),
            show_interval(*n["band"]),
            n["status"],
            n.get("why", ""),
        )
        for name, n in numbers.items()
    )
    table = Table(
        "Ours beside the paper's", ("number", "ours", "paper", "band", "status", "why this band"), rows
    )
    pictures = [
        Picture(made["title"], str(source.with_name(Path(f).name)))
        for f in made["files"]
        if f.endswith(".png") and source.with_name(Path(f).name).exists()
    ]
    note = [made["note"]] if made.get("note") else []
    sections = [
        Section("Numbers", tables=[table]),
        Section("Figure", note, figures=pictures),
        Section(
            "Repeat it", tables=_repeat_tables(made, parameters), code=command(made["figure"], parameters)
        ),
    ]
    return Page(str(made["figure"]), str(made.get("status", "")), headline, sections)


def command(figure: str, parameters: dict[str, Any]) -> str:
    """Every parameter is spelled out, so that later defaults change nothing."""
    settings = []
    for name, value in parameters.items():
        text = "(" + "".join(f"{v!r}," for v in value) + ")" if isinstance(value, list) else str(value)
        settings += ["--set", f"{name}={text}"]
    return shlex.join(["marginflow", "reproduce", figure, *settings])


def _repeat_tables(made: dict[str, Any], parameters: dict[str, Any]) -> list[Table]:
    rows = (*((k, show(v)) for k, v in parameters.items()), ("seconds", show(made.get("seconds"))))
    return [
        Table("Parameters", ("name", "value"), rows),
        Table("Files", ("path",), tuple((f,) for f in made["files"])),
    ]


def _json_path(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix == ".json" and _read(path) is not None else None
    found = [p for p in sorted(path.glob("*.json")) if _read(p) is not None] if path.is_dir() else []
    return found[0] if len(found) == 1 else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        made = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return made if isinstance(made, dict) and set(made) >= KEYS else None
