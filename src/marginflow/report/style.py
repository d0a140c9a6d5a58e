"""One visual language: the same colour means the same thing in every figure, and no meaning rests on colour alone.

Colours are Okabe & Ito's, which stay apart for colour-blind readers; positive neurons are also triangles up, negative
ones triangles down.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

POSITIVE = "#D55E00"
NEGATIVE = "#0072B2"
NEUTRAL = "#555555"
PREDICTED = "#000000"
ACCENT = "#009E73"
CYCLE = (NEGATIVE, POSITIVE, ACCENT, "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", NEUTRAL)
MARKERS = ("o", "s", "^", "D", "v", "P")  # beside CYCLE, one for each curve
STATUS = {"holds": ACCENT, "fails": "#B00020", "vacuous": "#E69F00", "undecided": "#7A5195"}
FATE = {
    "positive": POSITIVE,
    "negative": NEGATIVE,
    "dead": "#BBBBBB",
    "vanishing": "#E69F00",
    "other": "#CC79A7",
}

RC = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "marginflow",
    "pdf.fonttype": 42,
}


@contextmanager
def drawing() -> Iterator:
    """matplotlib with our settings, for the figures drawn inside only; never opens a window."""
    import matplotlib
    from cycler import cycler

    settings: Any = {**RC, "axes.prop_cycle": cycler(color=CYCLE)}
    with matplotlib.rc_context(settings):
        yield matplotlib


def figure(rows: int = 1, columns: int = 1, width: float = 3.4, height: float = 2.7, **options):
    """A figure of rows × columns panels of one size, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width * columns, height * rows))
    FigureCanvasAgg(fig)
    return fig, fig.subplots(rows, columns, squeeze=False, **options)


def save(fig, stem) -> list[str]:
    """PNG and PDF beside each other; without dates, so that the same figure is the same file."""
    paths = [f"{stem}.png", f"{stem}.pdf"]
    fig.savefig(paths[0], metadata={"Software": None})
    fig.savefig(paths[1], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return paths
