"""Panels. Each draws arrays it is given on one axes and computes nothing but where to put the ink."""

import numpy as np

from marginflow.report.style import ACCENT, CYCLE, NEGATIVE, NEUTRAL, POSITIVE, PREDICTED


def singular_values(ax, values, low=None, high=None, label: str = "") -> None:
    """One dot per singular value; a bar from `low` to `high` where there are several seeds."""
    k = np.arange(1, len(values) + 1)
    if low is not None and high is not None:
        ax.vlines(k, low, high, color=NEGATIVE, alpha=0.45, linewidth=3)
    ax.plot(k, values, "o", color=NEGATIVE, markersize=5, label=label or None)
    ax.set(xlabel="index", ylabel="singular value", xticks=k)
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))


def initial_singular_values(ax, values) -> None:
    ax.plot(np.arange(1, len(values) + 1), values, "x", color=NEUTRAL, markersize=4, label="at the start")


def neurons(ax, coordinates, sign, directions=None, names=("$w_+$", "$w_-$")) -> None:
    """Neurons in a plane: triangles up for a_j > 0, down for a_j < 0; predicted rays dashed."""
    sign = np.asarray(sign)
    for s, color, marker, label in ((1, POSITIVE, "^", "$a_j > 0$"), (-1, NEGATIVE, "v", "$a_j < 0$")):
        chosen = coordinates[np.sign(sign) == s]
        ax.scatter(
            chosen[:, 0], chosen[:, 1], s=16, c=color, marker=marker, alpha=0.75, linewidths=0, label=label
        )
    if directions is not None:
        reach = 1.1 * np.max(np.linalg.norm(coordinates, axis=1), initial=1e-300)
        for direction, name in zip(directions, names, strict=False):
            unit = direction / np.linalg.norm(direction)
            ax.plot([0, reach * unit[0]], [0, reach * unit[1]], "--", color=PREDICTED, linewidth=1, zorder=0)
            ax.annotate(
                name,
                reach * unit,
                fontsize=9,
                ha="center",
                va="center",
                textcoords="offset points",
                xytext=9 * unit,
            )
    ax.axhline(0, color=NEUTRAL, linewidth=0.5)
    ax.axvline(0, color=NEUTRAL, linewidth=0.5)
    ax.set(xlabel="first singular direction", ylabel="second singular direction")
    ax.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none")


def histogram(
    ax, values, bins=None, xlabel: str = "correlation with the max-margin direction", color=ACCENT
) -> None:
    ax.hist(
        values,
        bins=np.linspace(-1, 1, 41) if bins is None else bins,
        color=color,
        edgecolor="white",
        linewidth=0.4,
    )
    ax.set(xlabel=xlabel, ylabel="neurons")


def curve(ax, x, y, label="", color=None, low=None, high=None, **style) -> None:
    (line,) = ax.plot(x, y, label=label or None, color=color, **style)
    if low is not None and high is not None:
        ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def slope(ax, x, start: float, exponent: float, label: str, look: str = ":") -> None:
    """A predicted power law through (x[0], start), dotted unless another look tells it from a second one."""
    x = np.asarray(x, float)
    ax.plot(x, start * (x / x[0]) ** exponent, look, color=PREDICTED, linewidth=1.2, label=label)


def level(ax, value: float, label: str) -> None:
    """A predicted value, dashed across the panel."""
    ax.axhline(value, linestyle="--", color=PREDICTED, linewidth=1, label=label)


def boundary(ax, x, y, values, points, labels) -> None:
    """The zero level of a classifier over a grid, with the examples."""
    ax.contourf(x, y, np.sign(values), levels=[-1.5, 0, 1.5], colors=[NEGATIVE, POSITIVE], alpha=0.12)
    ax.contour(x, y, values, levels=[0.0], colors=[PREDICTED], linewidths=1.2)
    for s, color, marker in ((1, POSITIVE, "^"), (-1, NEGATIVE, "v")):
        ax.scatter(*points[labels == s].T, s=12, c=color, marker=marker, linewidths=0)
    ax.set(xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    ax.grid(False)


def distributions(ax, groups: dict, bins=60) -> None:
    """Overlaid densities of several samples on common bins."""
    low = min(float(np.min(v)) for v in groups.values())
    high = max(float(np.max(v)) for v in groups.values())
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    for color, (label, values) in zip(
        (NEUTRAL, NEGATIVE, POSITIVE, *CYCLE[2:]), groups.items(), strict=False
    ):
        ax.hist(values, bins=edges, density=True, histtype="stepfilled", alpha=0.35, color=color, label=label)
        ax.hist(values, bins=edges, density=True, histtype="step", color=color, linewidth=1.2)
    ax.axvline(0, color=PREDICTED, linewidth=0.8)
