"""The page of one run: verdict first, then why, then what it looks like, then how to get it again."""

from typing import Any

import numpy as np

from marginflow._core.record import Table, show
from marginflow.report.page import Chart, Page, Scatter, Section


def run_page(run: Any, verdicts: Any, portrait: Any | None, command: str, limits: dict[str, float]) -> Page:
    """`limits`: predicted values by history name, drawn as dashed levels. All science happened before."""
    status, headline = headline_of(verdicts)
    ordered = sorted(verdicts.verdicts, key=lambda v: v is not headliner(verdicts))
    theorems = [
        Section(f"{v.theorem}: {v.status.value}", [v.summary], [assumptions_table(v), claims_table(v)])
        for v in ordered
    ]
    sections = [
        Section("Verdicts", tables=verdicts.tables()[:1]),
        *theorems[:1],
        Section("The network", figures=figures_of(run, portrait, limits)),
        *theorems[1:],
    ]
    if verdicts.unity is not None:
        sections.append(Section("Three papers, one number", tables=[verdicts.unity.table()]))
    sections.append(Section("The run", tables=[run.data.table(), run.table()]))
    sections.append(Section("Repeat it", tables=[provenance_table(run)], code=command))
    return Page(f"{run.method} on {run.data.name}", status, headline, sections)


# A theorem that predicts a network says most about a run; then those that predict a direction.
ORDER = ("phuong2021.theorem1", "frei2022.flow", "chizat2020.f2", "soudry2018", "ji2019", "lyu2020")


def headliner(verdicts: Any) -> Any | None:
    """The verdict that says most about the limit."""
    by_key = {v.theorem: v for v in verdicts.verdicts}
    return next((by_key[k] for k in ORDER if k in by_key), next(iter(verdicts.verdicts), None))


def headline_of(verdicts: Any) -> tuple[str, str]:
    """Status and words of the verdict that stands at the top."""
    chosen = headliner(verdicts)
    if chosen is None:
        return "undecided", "No theorem in the library speaks about this net."
    return chosen.status.value, chosen.summary


def assumptions_table(verdict: Any) -> Table:
    rows = tuple(
        (a.name.replace("_", " "), a.status.value, show(a.measured), show(a.threshold), show(a.slack), a.note)
        for a in verdict.assumptions
    )
    return Table("Assumptions", ("assumption", "status", "measured", "threshold", "slack", "note"), rows)


def claims_table(verdict: Any) -> Table:
    rows = tuple(
        (c.name.replace("_", " "), c.status.value, show(c.measured), c.limits, c.note) for c in verdict.claims
    )
    return Table("Claims", ("claim", "status", "measured", "bound", "note"), rows)


def figures_of(run: Any, portrait: Any | None, limits: dict[str, float]) -> list[Chart | Scatter]:
    figures: list[Chart | Scatter] = []
    if portrait is not None:
        figures.append(neurons_scatter(portrait))
        s = np.asarray(portrait.singular_values)[:10]
        figures.append(
            Chart(
                "Singular values of the first layer",
                np.arange(1, len(s) + 1),
                {"singular value": s},
                "index",
                "singular value",
                points=True,
            )
        )
    history = run.history
    t = np.asarray(history.get("log_time", ()))
    late = t > 0  # a logarithmic axis of log t starts at t = e^0
    if late.sum() > 1:
        for name, title, log_y in (
            ("normalised_margin", "Normalised margin", False),
            ("angle", "Angle to the max-margin directions", True),
            ("log_loss", "Loss", False),
        ):
            series = series_of(history, name, late)
            if series:
                levels = {"predicted": limits[name]} if name in limits else {}
                label = "log L" if name == "log_loss" else title.lower()
                figures.append(
                    Chart(
                        f"{title} against log t",
                        t[late],
                        series,
                        "log t",
                        label,
                        log_x=True,
                        log_y=log_y,
                        levels=levels,
                    )
                )
    return figures


def series_of(history: Any, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The curve of this name, or its `name_positive` and `name_negative`."""
    found = (
        {name.replace("_", " "): history[name]}
        if name in history
        else {
            sign: history[f"{name}_{sign}"]
            for sign in ("positive", "negative")
            if f"{name}_{sign}" in history
        }
    )
    return {label: np.asarray(values, float)[rows] for label, values in found.items() if np.ndim(values) == 1}


MOST_NEURONS = 2000  # drawn; of a wider net the longest, which make its outputs


def neurons_scatter(portrait: Any) -> Scatter:
    count = len(portrait.norms)
    drawn = np.sort(np.argsort(-portrait.norms, kind="stable")[:MOST_NEURONS])
    tips = [
        f"neuron {j}: a {'>' if portrait.sign[j] > 0 else '<'} 0, ‖w‖ = {portrait.norms[j]:.4g}"
        + (f", cos = {c:.6f}" if np.isfinite(c := portrait.alignment[j]) else "")
        for j in drawn
    ]
    labels = [f"log t = {t:.4g}" for t in portrait.frame_log_time]
    title = "Neurons on the top two singular directions"
    return Scatter(
        title if count <= MOST_NEURONS else f"{title}: the {MOST_NEURONS} longest of {count}",
        portrait.coordinates[drawn],
        portrait.sign[drawn],
        tips,
        portrait.directions,
        frames=portrait.frames[:, drawn],
        frame_labels=labels,
    )


def provenance_table(run: Any) -> Table:
    versions = dict(run.provenance.get("versions", {}))
    rows = [
        ("data sha256", run.data.sha256),
        *((k, show(v)) for k, v in run.options.items()),
        *versions.items(),
    ]
    if "created" in run.provenance:
        rows.append(("created", run.provenance["created"]))
    return Table("Provenance", ("what", "value"), tuple((str(k), str(v)) for k, v in rows))
