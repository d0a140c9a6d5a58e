"""The page of a sweep: how many cells are done, what differs between them, and what came out along each axis."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core.errors import InputError
from marginflow._core.record import Table, show
from marginflow.report.page import Chart, Page, Section

MANIFEST, RESULTS = "sweep.json", "results.nc"
STATUSES = ("holds", "fails", "vacuous", "undecided")
# Quantities drawn along an axis, and whether they span orders of magnitude.
DRAWN = {
    "normalised_margin": False,
    "angle_positive": True,
    "angle_negative": True,
    "stable_rank": True,
    "log_loss": False,
    "neurons_dead": False,
}
MOST_VALUES, MOST_FAILURES = 400, 50  # of an axis in a chart; in the table of failures


def is_sweep(path: str | Path) -> bool:
    return (Path(path) / MANIFEST).is_file()


def sweep_page(path: str | Path) -> Page:
    folder = Path(path)
    manifest, results = _read(folder)
    states = results.state.values
    count = {state: int(np.sum(states == state)) for state in ("done", "failed", "pending")}
    headline = (
        f"{count['done']} of {len(states)} cells done, {count['failed']} failed, {count['pending']} to do."
    )
    axes = [a for a in json.loads(results.attrs["axes"]) if a in results.coords]
    sections = [
        *_verdict_sections(results),
        Section("Outcomes", tables=outcome_tables(results, axes)),
        Section("Quantities", tables=[quantities_table(results)]),
        Section("Axes", tables=[axes_table(results, axes)]),
        *(Section(f"Along {axis}", figures=charts) for axis, charts in axis_charts(results, axes).items()),
        Section("Repeat it", tables=[_provenance(manifest, results)], code=repeat(manifest)),
    ]
    return Page(f"sweep {folder.name}", _status(results), headline, sections)


def _status(results: Any) -> str:
    """The one status that every done cell has for every theorem asked about, if there is one."""
    if "verdict_status" not in results:
        return ""
    seen = set(results.verdict_status.values[results.state.values == "done"].ravel()) - {""}
    return seen.pop() if len(seen) == 1 else ""


def _read(folder: Path) -> tuple[dict[str, Any], Any]:
    import xarray

    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest, xarray.load_dataset(folder / RESULTS, engine="scipy")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder}: its results cannot be read ({error}); repeat the sweep to write them"
        ) from None


def _verdict_sections(results: Any) -> list[Section]:
    if "verdict_status" not in results:
        return []
    rows = []
    for k, key in enumerate(results.theorem.values):
        for what, name in (("the theorem", "verdict_status"), ("its conclusions", "verdict_conclusions")):
            seen = results[name].values[:, k]
            rows.append(
                (
                    str(key),
                    what,
                    *(str(int(np.sum(seen == s))) for s in STATUSES),
                    str(int(np.sum(seen == ""))),
                )
            )
    note = "The conclusions are measured on every cell, whether or not the assumptions of the theorem hold."
    table = Table("Cells by status", ("theorem", "of", *STATUSES, "silent or not done"), tuple(rows), (note,))
    return [Section("Verdicts", tables=[table])]


def quantities_table(results: Any) -> Table:
    rows, results = [], _done(results)
    for name, values in results.data_vars.items():
        if values.dims != ("cell",) or values.dtype.kind != "f":
            continue
        finite = values.values[np.isfinite(values.values)]
        if len(finite):
            spread = np.quantile(finite, [0, 0.25, 0.5, 0.75, 1])
            rows.append((str(name).replace("_", " "), str(len(finite)), *(show(float(q)) for q in spread)))
    columns = ("quantity", "cells", "least", "lower quartile", "median", "upper quartile", "largest")
    return Table("Spread over the cells that are done", columns, tuple(rows))


def axes_table(results: Any, axes: list[str]) -> Table:
    rows = []
    for name in axes:
        values = np.unique(results[name].values)
        shown = ", ".join(show(v.item()) for v in values[:8]) + (", ..." if len(values) > 8 else "")
        rows.append((name, str(len(values)), shown))
    return Table("What differs", ("axis", "values", "which"), tuple(rows))


def axis_charts(results: Any, axes: list[str]) -> dict[str, list[Chart]]:
    """Median and quartiles of each quantity at each value of each axis of numbers, over all other axes."""
    charts, results = {}, _done(results)
    for axis in axes:
        x = results[axis].values
        values = np.unique(x[np.isfinite(x)]) if x.dtype.kind in "fi" else []
        if axis == "seed" or not 2 <= len(values) <= MOST_VALUES:
            continue
        for name, log_y in DRAWN.items():
            rows = [_finite(results[name].values[x == v]) for v in values]
            if not any(len(r) for r in rows):
                continue
            low, median, high = (
                np.array([np.quantile(r, q) if len(r) else np.nan for r in rows]) for q in (0.25, 0.5, 0.75)
            )
            if np.nanmax(high) == np.nanmin(low):
                continue  # a flat line says less than the table above
            log_x = bool(values[0] > 0 and values[-1] / values[0] >= 50)
            title = name.replace("_", " ")
            curve, band = {"median": median}, {"median": (low, high)}
            chart = Chart(
                f"{title}, median and quartiles", values, curve, axis, title, log_x, log_y, bands=band
            )
            charts.setdefault(axis, []).append(chart)
    return charts


def _done(results: Any) -> Any:
    """A run that diverged has numbers too, of where it was last sound: they say nothing about the others."""
    return results.isel(cell=np.flatnonzero(results.state.values == "done"))


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def outcome_tables(results: Any, axes: list[str]) -> list[Table]:
    names, counts = np.unique(results.outcome.values[results.state.values != "pending"], return_counts=True)
    rows = tuple((str(n) or "error", str(c)) for n, c in zip(names, counts, strict=True))
    tables = [Table("How training ended", ("outcome", "cells"), rows)]
    failed = np.flatnonzero(results.state.values == "failed")
    if len(failed):
        lines = tuple(
            (
                str(k),
                ", ".join(f"{a} {show(results[a].values[k].item())}" for a in axes),
                str(results.outcome.values[k]) or "error",
                str(results.message.values[k]),
            )
            for k in failed[:MOST_FAILURES]
        )
        left = len(failed) - len(lines)
        notes = (f"and {left} more; see the variables state and message of {RESULTS}",) if left else ()
        tables.append(Table("Failed cells", ("cell", "where", "outcome", "message"), lines, notes))
    return tables


def _provenance(manifest: dict[str, Any], results: Any) -> Table:
    fixed = json.loads(results.attrs["fixed"])
    versions = manifest.get("provenance", {}).get("versions", {})
    rows = (
        *((k, show(v)) for k, v in fixed.items()),
        *versions.items(),
        ("spec sha256", manifest["fingerprint"]),
    )
    return Table("Provenance", ("what", "value"), tuple((str(k), str(v)) for k, v in rows))


def repeat(manifest: dict[str, Any]) -> str:
    """The command that began the sweep, and its spec, for the case that the file is lost."""
    argv = [str(a) for a in manifest.get("provenance", {}).get("argv", ())]
    line = (
        shlex.join(["marginflow", *argv]) if argv[:1] == ["sweep"] else "marginflow sweep SPEC.toml --out DIR"
    )
    return f"{line}\n\n# the spec, as JSON\n{json.dumps(manifest['spec'], indent=1)}"
