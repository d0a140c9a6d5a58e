"""A run as JSON, and as a page of the documentation."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.table import Aim, Entry, Least, Row, Slope
from marginflow._core.record import jsonable

KINDS: dict[str, type] = {"row": Row, "aim": Aim, "slope": Slope}


def encoded(entry: Entry) -> dict[str, Any]:
    kind = next(name for name, of in KINDS.items() if isinstance(entry, of))
    return {"kind": kind, **jsonable(dataclasses.asdict(entry))}


def decoded(document: Mapping[str, Any]) -> Entry:
    fields = {k: v for k, v in document.items() if k != "kind"}
    if document["kind"] == "row":
        fields["least"] = Least(**fields["least"])
    return KINDS[document["kind"]](**fields)


@dataclasses.dataclass(frozen=True)
class Result:
    """One run of the suite: where, with what command, what was measured. groups: seconds and outcome of each."""

    command: str
    started: str
    seconds: float
    machine: Mapping[str, Any]
    rates: Mapping[str, float]
    groups: Mapping[str, Mapping[str, Any]]
    entries: tuple[Entry, ...]

    def save(self, path: Path) -> None:
        document = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "entries"}
        document["entries"] = [encoded(entry) for entry in self.entries]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(jsonable(document), indent=1, allow_nan=False, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Result":
        document = json.loads(path.read_text())
        return cls(**{**document, "entries": tuple(decoded(entry) for entry in document["entries"])})

    def of(self, kind: type) -> list:
        return [entry for entry in self.entries if isinstance(entry, kind)]


def markdown(result: Result) -> str:
    """The page. Nothing on it is typed in by hand."""
    rows, aims, slopes = result.of(Row), result.of(Aim), result.of(Slope)
    parts = [_head(result), _summary(aims)]
    for work in dict.fromkeys(row.work for row in rows):
        parts.append(
            f"## {work[0].upper()}{work[1:]}\n\n"
            + _rows([row for row in rows if row.work == work], result.rates)
        )
        if promised := [aim for aim in aims if aim.work == work]:
            parts.append(_aims(promised))
    if slopes:
        parts.append(_slopes(slopes))
    return "\n\n".join(parts) + "\n"


def _head(result: Result) -> str:
    machine, rates = result.machine, result.rates
    versions = ", ".join(f"{name} {v or 'not installed'}" for name, v in machine["versions"].items())
    device = f", {machine['device']}" if "device" in machine else ""
    ended = {name: "" if g["outcome"] == "finished" else f" ({g['outcome']})" for name, g in result.groups.items()}
    groups = "; ".join(f"{name} {g['seconds']:.0f} s at load {g['load']:.1f}{ended[name]}"
                       for name, g in result.groups.items())  # fmt: skip
    return f"""# One run: {"GPU" if "device" in machine else "CPU"}

Written by `{result.command}`, {result.started}, {result.seconds:.0f} s. How to read it: [Benchmarks](index.md).

- {machine["processor"]}, {machine["cores"]} cores, threads: {machine["threads"]}, load average at the start \
{machine["load"][0]:.1f}{device}; {machine["system"]}, Python {machine["python"]}
- {versions}
- matrix product {rates["single"] / 1e9:.0f} (single) and {rates["double"] / 1e9:.0f} (double) GFlop/s, \
copying {rates["bandwidth"] / 1e9:.0f} GB/s
- {groups}"""


def _summary(aims: list[Aim]) -> str:
    met = sum(bool(aim.met) for aim in aims)
    return f"{met} of {len(aims)} aims met."


def _rows(rows: list[Row], rates: Mapping[str, float]) -> str:
    body = []
    for row in rows:
        whole = "" if row.whole == 1 else f"{100 * row.whole:.3g} % measured, the rest in proportion"
        notes = "; ".join(filter(None, (row.note, whole)))
        mine = row.method.startswith("marginflow")
        name = f"**{row.method}**" if mine else row.method
        body.append(
            (
                row.case,
                name,
                show(row.seconds),
                show(row.warm_up),
                quality(row),
                from_floor(row, rates),
                notes,
            )
        )
    return grid(("case", "method", "seconds", "warm-up", "quality", "times its floor", "note"), body)


def from_floor(row: Row, rates: Mapping[str, float]) -> str:
    floor = row.least.seconds(rates)
    return "-" if row.seconds is None or floor == 0 else show(row.seconds / floor, 2)


def quality(row: Row) -> str:
    return ", ".join(f"{name} {show(value, 5)}" for name, value in row.quality.items())


def _aims(aims: list[Aim]) -> str:
    words = {True: "met", False: "**not met**", None: "-"}
    body = [(aim.case, aim.promise, show(aim.reached), aim.against, words[aim.met]) for aim in aims]
    return grid(("case", "aim", "reached", "against", ""), body)


def _slopes(slopes: list[Slope]) -> str:
    body = [(s.work, s.variable, ", ".join(f"{size:,.0f}" for size in s.sizes), ", ".join(map(show, s.seconds)),
             f"{s.slope:.2f}", f"{s.local:.2f}", s.because) for s in slopes]  # fmt: skip
    columns = ("work", "variable", "sizes", "seconds", "slope", "slope of the last two", "because")
    return (
        "## Growth\n\nmarginflow alone; seconds grow like the variable to the power of the slope.\n\n"
        + grid(columns, body)
    )


def grid(columns: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    columns = tuple(columns)
    lines = [columns, ("---",) * len(columns), *body]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def show(value: Any, digits: int = 3) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}"
