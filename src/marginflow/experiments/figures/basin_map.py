"""The basin map in R³: where every initial direction ends, with sectors, extremal directions and sliding curves."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

FATES = ("positive", "negative", "dead", "vanishing", "other", "undecided")
SIGNS = (1, -1)


@dataclasses.dataclass(frozen=True)
class BasinMap(Experiment):
    """n Gaussian points in R³ with balanced labels; `resolution` rows of directions from pole to pole."""

    name: ClassVar[str] = "basin_map"
    title: ClassVar[str] = "Fate of every initial direction on the sphere"
    paper: ClassVar[str] = ""

    n: int = 8
    resolution: int = 180
    paths: int = 60
    seed: int = 3

    def quick(self) -> "BasinMap":
        return dataclasses.replace(self, resolution=40, paths=12)

    def measure(self) -> Any:
        import xarray

        from marginflow import sectors
        from marginflow.data import Dataset

        rng = np.random.default_rng(self.seed)
        data = Dataset(
            rng.standard_normal((self.n, 3)), np.where(np.arange(self.n) % 2, -1.0, 1.0), "gaussian points"
        )
        latitude = (np.arange(self.resolution) + 0.5) / self.resolution * np.pi - np.pi / 2
        longitude = (np.arange(2 * self.resolution) + 0.5) / self.resolution * np.pi - np.pi
        lon, lat = np.meshgrid(longitude, latitude)
        directions = on_sphere(lon.ravel(), lat.ravel())
        fate, end, slid, listed = [], [], [], []
        known = sectors.extremal(data)
        for sign in SIGNS:
            got = sectors.basins(data, directions, sign=sign)
            fate.append(np.array([FATES.index(f) for f in got.fate]).reshape(lon.shape))
            end.append(got.end.reshape(lon.shape))
            slid.append(got.slid.reshape(lon.shape))
            names = known.positive if sign > 0 else known.negative
            listed += [nearest(e.direction, names) for e in got.limits]
        starts = rng.standard_normal((self.paths, 3))
        traces, trace_sign, sliding = [], [], []
        for k, w in enumerate(starts):
            sign = SIGNS[k % 2]
            for points, slides in trace(sectors.path(data, w, sign)):
                traces.append(points)
                trace_sign.append(sign)
                sliding.append(int(slides))
        extremal = [
            (*e.direction, e.growing, s) for s, es in ((1, known.positive), (-1, known.negative)) for e in es
        ]
        return xarray.Dataset(
            {
                "fate": (("sign", "latitude", "longitude"), np.array(fate, np.int32)),
                "end": (("sign", "latitude", "longitude"), np.array(end, np.int32)),
                "slid": (("sign", "latitude", "longitude"), np.array(slid, np.int32)),
                "X": (("example", "axis"), data.X),
                "y": (("example",), data.y),
                "extremal": (("direction", "entry"), np.array(extremal, float)),
                "end_to_extremal": (("limit",), np.array(listed)),
                "arc": (("trace", "point", "axis"), np.array(traces)),
                "arc_sign": (("trace",), np.array(trace_sign, np.int32)),
                "arc_slides": (("trace",), np.array(sliding, np.int32)),
                "complete": ((), int(known.complete)),
            },
            coords={"sign": list(SIGNS), "latitude": latitude, "longitude": longitude},
            attrs={"fates": ", ".join(FATES)},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        fate = result.fate.values
        return (
            Number(
                "farthest end direction from the extremal directions (radians)",
                float(result.end_to_extremal.max()),
                "0 (Lemma 1 of Maennel et al.)",
                (0, 1e-6),
                "two routes that share no code: paths of neurons, and a search of all sectors",
            ),
            Number(
                "share of directions left undecided",
                share(result, fate == FATES.index("undecided")),
                0,
                (0, 1e-3),
                "directions on a boundary between basins, up to rounding",
            ),
            Number(
                "share that slides along a hyperplane on the way",
                share(result, result.slid.values > 0),
                "almost all",
                (0.5, 1),
                "more than half of the sphere, both signs",
            ),
        )

    def draw(self, result: Any) -> Any:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
        from matplotlib.patheffects import withStroke

        from marginflow.report import style

        fig, (axes,) = style.figure(1, 2, width=5.2, height=3.3, subplot_kw={"projection": "mollweide"})
        seen = set()
        for k, (ax, sign) in enumerate(zip(axes, SIGNS, strict=True)):
            fate, end = result.fate.values[k], result.end.values[k]
            ax.pcolormesh(
                result.longitude,
                result.latitude,
                colours(fate, end),
                shading="nearest",
                rasterized=True,
                zorder=0,
            )
            seen |= set(np.unique(fate))
            for x in result.X.values:
                draw_curve(ax, great_circle(x), color="white", lw=0.8, alpha=0.9)
            mine = result.arc_sign.values == sign
            for points, slides in zip(result.arc.values[mine], result.arc_slides.values[mine], strict=True):
                draw_curve(ax, points, color=style.PREDICTED, lw=2.0 if slides else 0.6, alpha=0.9)
            for *u, growing, s in result.extremal.values:
                if s == sign:
                    lon, lat = angles_of(np.array(u)[None])
                    face = "white" if growing else "none"
                    ax.plot(lon, lat, "*", ms=13, mfc=face, mec="black", mew=1.0, zorder=5)
            ax.set_title(f"output weight {'positive' if sign > 0 else 'negative'}")
            ax.set_xticklabels([])
            ax.set_yticklabels([])
            ax.grid(False)
        grey = withStroke(linewidth=3, foreground="0.6")
        handles = [Patch(color=style.FATE.get(FATES[f], "black"), label=FATES[f]) for f in sorted(seen)]
        handles += [
            Patch(facecolor="0.85", label="paler: another limit direction"),
            Line2D([], [], color="white", lw=0.8, path_effects=[grey], label="edge of a sector"),
            Line2D([], [], color="black", lw=0.6, label="path"),
            Line2D([], [], color="black", lw=2, label="sliding"),
            Line2D([], [], marker="*", ls="", mfc="white", mec="black", ms=11, label="extremal"),
        ]
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        return fig

    def note(self, result: Any) -> str:
        ends = result.sizes["limit"]
        complete = "all of them" if int(result.complete) else "those found"
        lost = np.isin(result.fate.values, (FATES.index("dead"), FATES.index("vanishing")))
        return (
            f"{self.n} points, {result.sizes['direction']} extremal directions ({complete}), {ends} of them reached; "
            "shades of one colour are basins of different directions. Hollow stars vanish instead of growing. "
            f"{share(result, lost):.1%} of the sphere is dead or vanishing."
        )


def share(result: Any, what: np.ndarray) -> float:
    """Share of the sphere, both signs, where `what` (sign, latitude, longitude) is true."""
    area = np.broadcast_to(np.cos(result.latitude.values)[:, None], what.shape)
    return float((area * what).sum() / area.sum())


def on_sphere(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    return np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)], axis=1
    )


def angles_of(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.arctan2(points[:, 1], points[:, 0]), np.arcsin(np.clip(points[:, 2], -1, 1))


def great_circle(normal: np.ndarray, points: int = 361) -> np.ndarray:
    """Unit vectors orthogonal to `normal`, once around."""
    basis = np.linalg.svd(normal[None])[2][1:]
    t = np.linspace(0, 2 * np.pi, points)
    return np.cos(t)[:, None] * basis[0] + np.sin(t)[:, None] * basis[1]


def draw_curve(ax: Any, points: np.ndarray, **style: Any) -> None:
    """A curve on the sphere, cut where it crosses the rim of the map."""
    lon, lat = angles_of(points)
    cut = np.abs(np.diff(lon)) > np.pi
    lon = np.insert(lon, np.flatnonzero(cut) + 1, np.nan)
    lat = np.insert(lat, np.flatnonzero(cut) + 1, np.nan)
    ax.plot(lon, lat, **style)


def trace(path: Any, points: int = 24) -> list[tuple[np.ndarray, bool]]:
    """(points, whether it slides) of every arc of a path; the last one until its direction has settled."""
    times = [arc.time for arc in path.arcs]
    pieces = []
    for k, arc in enumerate(path.arcs):
        speed = float(np.linalg.norm(arc.v))
        if speed == 0:
            continue
        end = times[k + 1] if k + 1 < len(times) else arc.time + 8.0 / speed
        pieces.append(
            (
                np.array([arc.at(t)[0] for t in np.linspace(arc.time, end, points)]),
                bool((arc.pattern == 0).any()),
            )
        )
    return pieces


def nearest(direction: np.ndarray, extremals: Any) -> float:
    """Angle to the nearest of the extremal directions; π when there is none."""
    return min(
        (2 * np.arcsin(min(1.0, np.linalg.norm(direction - e.direction) / 2)) for e in extremals),
        default=np.pi,
    )


def colours(fate: np.ndarray, end: np.ndarray) -> np.ndarray:
    """RGB of every direction: the colour of its fate, lighter for every further end direction of that fate."""
    from matplotlib.colors import to_rgb

    from marginflow.report.style import FATE

    image = np.zeros((*fate.shape, 3))
    for code, name in enumerate(FATES):
        base = np.array(to_rgb(FATE.get(name, "black")))
        ends = np.unique(end[fate == code])
        for k, e in enumerate(ends):
            light = 0.55 * k / max(len(ends) - 1, 1)
            image[(fate == code) & (end == e)] = base + (1 - base) * light
    return image
