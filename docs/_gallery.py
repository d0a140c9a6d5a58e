"""Builds docs/experiments/gallery.md and docs/gallery/ from reproduced figures: python docs/_gallery.py [FOLDER].

Reads the NAME.json and NAME.png that `marginflow reproduce NAME --out FOLDER` wrote. Pictures are reduced to 128
colours and 1200 pixels. Figures that are not in FOLDER keep what docs/gallery already has of them.
"""

import dataclasses
import json
import sys
from pathlib import Path

from marginflow._core.record import show, show_interval
from marginflow.experiments import FIGURES, experiment

DOCS = Path(__file__).parent
HEAD = """# Gallery

Every figure of `marginflow reproduce --list`, each with our numbers beside the paper's. A band is written in the
experiment's source before the number is looked at, with its reason; the status says whether the number lies in it.
Bands over seeds are quartiles unless a figure says otherwise.
"""


def keep(folder: Path, name: str) -> None:
    """Copy one figure's numbers, and its picture made small, into docs/gallery."""
    from PIL import Image

    made = json.loads((folder / f"{name}.json").read_text())
    kept = {key: made[key] for key in ("figure", "title", "numbers", "note", "seconds", "parameters")}
    (DOCS / "gallery" / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    with Image.open(folder / f"{name}.png") as picture:
        small = picture.convert("RGB")
        small.thumbnail((1200, 1200), Image.Resampling.LANCZOS)
        # Median cut would give thin lines and small marks the hues of their neighbours.
        few = small.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(DOCS / "gallery" / f"{name}.png", optimize=True)


def section(name: str) -> str:
    made = json.loads((DOCS / "gallery" / f"{name}.json").read_text())
    rows = [
        f"| {label} | {show(n['ours'])} | {n['paper'] if n['paper'] is not None else '-'} | "
        f"{show_interval(*n['band'])} | {n['status']} | {n['why']} |"
        for label, n in made["numbers"].items()
    ]
    return "\n".join(
        [
            f"## {made['title']}",
            "",
            f"`{command(name, made['parameters'])}`",
            "",
            f"![{made['title']}](../gallery/{name}.png)",
            "",
            "| number | ours | paper | band | status | why this band |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            made["note"],
            "",
        ]
    )


def command(name: str, parameters: dict) -> str:
    """The command that makes the figure: with every parameter that is not the default."""
    usual = {f.name: getattr(experiment(name), f.name) for f in dataclasses.fields(experiment(name))}
    plain = json.loads(json.dumps(usual))
    changed = [f"--set {k}={show_value(v)}" for k, v in parameters.items() if plain.get(k) != v]
    return " ".join([f"marginflow reproduce {name}", *changed])


def show_value(value) -> str:
    return f'"({",".join(map(str, value))})"' if isinstance(value, list) else str(value)


def main(folders: list[str]) -> None:
    (DOCS / "gallery").mkdir(exist_ok=True)
    for folder in map(Path, folders):
        for name in FIGURES:
            if (folder / f"{name}.json").exists():
                keep(folder, name)
    sections = [section(name) for name in FIGURES if (DOCS / "gallery" / f"{name}.json").exists()]
    (DOCS / "experiments" / "gallery.md").write_text("\n".join([HEAD, *sections]).rstrip() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
