"""A run as one figure for paper: where the neurons are, and how margin and angles got where they are."""

from typing import Any

import numpy as np

from marginflow.report import plots, style
from marginflow.report.run_page import series_of


def run_figure(run: Any, portrait: Any | None, limits: dict[str, float]) -> Any:
    """A matplotlib figure; call it inside `style.drawing()`. Panels without data are left out."""
    t = np.asarray(run.history.get("log_time", ()))
    late = t > 0
    panels = []
    if portrait is not None:
        panels += [lambda ax: _neurons(ax, portrait), lambda ax: _singular_values(ax, portrait)]
    if late.sum() > 1:
        panels += [
            lambda ax, n=name, title=title, log_y=log_y: _history(
                ax, run, n, title, late, log_y, limits.get(n)
            )
            for name, title, log_y in (
                ("normalised_margin", "normalised margin", False),
                ("angle", "angle to w₊, w₋ (rad)", True),
            )
            if series_of(run.history, name, late)
        ]
    fig, axes = style.figure(1, max(len(panels), 1), width=3.2, height=2.8)
    for ax, panel in zip(axes[0], panels, strict=False):
        panel(ax)
    return fig


def _neurons(ax, portrait) -> None:
    known = portrait.directions if np.any(portrait.directions) else None
    plots.neurons(ax, portrait.coordinates, portrait.sign, known)
    ax.margins(0.2, 0.12)
    ax.set_title("neurons at the end")


def _singular_values(ax, portrait) -> None:
    plots.singular_values(ax, np.asarray(portrait.singular_values)[:10])
    ax.set_title("singular values of $W$")


def _history(ax, run, name: str, title: str, late, log_y: bool, predicted: float | None) -> None:
    x = np.asarray(run.history["log_time"])[late]
    colours = {"positive": style.POSITIVE, "negative": style.NEGATIVE}
    dashes = {"negative": (0, (5, 2))}
    for label, values in series_of(run.history, name, late).items():
        plots.curve(ax, x, values, label, colours.get(label), linestyle=dashes.get(label, "-"))
    if predicted is not None:
        plots.level(ax, predicted, "predicted")
    ax.set(xscale="log", yscale="log" if log_y else "linear", xlabel="log t", ylabel=title)
    ax.set_title(f"{title.partition(' to ')[0]} against log t")
    ax.legend(loc="lower left" if log_y else "lower right")
