"""Initial scale × width × separation of the classes, the verdict on Theorem 1 of Phuong & Lampert as colour."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from marginflow.experiments.base import Experiment, Number

THEOREM = "phuong2021.theorem1"
VERDICTS = ("holds", "vacuous", "undecided", "fails")
SYMBOLS = {"holds": "o", "vacuous": "x", "undecided": "s", "fails": "D"}
RIGHT_ANGLE = 45.0  # half-angle at which the two cones span a right angle: orthogonal separability ends


@dataclasses.dataclass(frozen=True)
class PhaseDiagram(Experiment):
    """Two opposite cones in the plane: orthogonally separable for half-angles below 45°, linearly below 90°.

    Every cell is one flow to t = ∞, judged like any other run; its seed is the cell's place in the grid.
    """

    name: ClassVar[str] = "phase_diagram"
    title: ClassVar[str] = "Verdict on two max-margin neurons over initial scale, width and separation"
    paper: ClassVar[str] = ""

    scales: tuple[float, ...] = (1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0)
    widths: tuple[int, ...] = (2, 8, 32)
    half_angles: tuple[float, ...] = (10.0, 25.0, 40.0, 50.0, 65.0, 80.0)
    n: int = 16
    max_steps: int = 5000

    def quick(self) -> "PhaseDiagram":
        return dataclasses.replace(self, scales=(1e-3, 0.3), widths=(2, 12), half_angles=(20.0, 40.0, 60.0))

    def measure(self) -> Any:
        import xarray

        from marginflow import flows
        from marginflow.nets import TwoLayer, inits
        from marginflow.verify import verify

        shape = (len(self.widths), len(self.scales), len(self.half_angles))
        verdict, met, margin = np.zeros(shape, np.int32), np.zeros(shape), np.full(shape, np.nan)
        for cell in np.ndindex(shape):
            width, scale, half = self.widths[cell[0]], self.scales[cell[1]], self.half_angles[cell[2]]
            data, net = two_cones(half, self.n, cell[2]), TwoLayer(width)
            seed = int(np.ravel_multi_index(cell, shape))
            theta = inits.balanced(net, data.d, scale=scale, key=seed)
            run = flows.train(
                net, theta, data, method="flow", until="limit", max_steps=self.max_steps, paths=False
            )
            (judged,) = verify(run, theorems=[THEOREM]).verdicts
            verdict[cell] = VERDICTS.index(judged.status.value)
            met[cell] = np.mean([c.status.value == "holds" for c in judged.claims])
            margin[cell] = np.nan if run.limit is None else run.limit.normalised_margin
        axes = ("width", "scale", "half_angle")
        return xarray.Dataset(
            {"verdict": (axes, verdict), "claims_met": (axes, met), "normalised_margin": (axes, margin)},
            coords={
                "width": list(self.widths),
                "scale": list(self.scales),
                "half_angle": list(self.half_angles),
            },
            attrs={"verdicts": ", ".join(VERDICTS)},
        )

    def numbers(self, result: Any) -> tuple[Number, ...]:
        code = {name: i for i, name in enumerate(VERDICTS)}
        inside = result.half_angle.values < RIGHT_ANGLE
        verdict = result.verdict.values
        small = verdict[-1, 0, inside]
        return (
            Number(
                "cells where the theorem fails",
                float((verdict == code["fails"]).sum()),
                0,
                (0, 0),
                "a theorem whose assumptions hold cannot fail; one failing cell would be a mistake somewhere",
            ),
            Number(
                "share of cells beyond a right angle that are vacuous",
                float((verdict[..., ~inside] == code["vacuous"]).mean()),
                1,
                (1, 1),
                "orthogonal separability fails there, whatever the scale and the width",
            ),
            Number(
                "widest net, smallest scale: share of separable cells that hold",
                float((small == code["holds"]).mean()),
                "1 - 2^-width",
                (1, 1),
                "the probability of losing a class at this width is below 2·(3/4)^width per cell",
            ),
        )

    def draw(self, result: Any) -> Any:
        from matplotlib.lines import Line2D

        from marginflow.report import style

        widths = result.width.values
        fig, (axes,) = style.figure(1, len(widths), width=2.9, height=3.0, sharey=True)
        angles, scales = result.half_angle.values, result.scale.values
        for ax, width, codes in zip(axes, widths, result.verdict.values, strict=True):
            for (i, j), code in np.ndenumerate(codes):
                name = VERDICTS[code]
                box = style_box(j, i, style.STATUS[name])
                ax.add_patch(box)
                ax.plot(j, i, SYMBOLS[name], color="white", ms=5, mew=1.5)
            edge = np.interp(RIGHT_ANGLE, angles, np.arange(len(angles)))
            ax.axvline(edge, color=style.PREDICTED, ls="--", lw=1.2)
            ax.set_xticks(range(len(angles)), [f"{a:.0f}°" for a in angles])
            ax.set_yticks(range(len(scales)), [f"{s:g}" for s in scales])
            ax.set(xlim=(-0.5, len(angles) - 0.5), ylim=(-0.5, len(scales) - 0.5), title=f"width {width}")
            ax.set_xlabel("half-angle of the cones")
            ax.grid(False)
        axes[0].set_ylabel("initial scale λ")
        handles = [
            Line2D(
                [],
                [],
                marker=SYMBOLS[v],
                color="w",
                mfc=style.STATUS[v],
                mec=style.STATUS[v],
                ms=8,
                mew=2,
                label=v,
            )
            for v in VERDICTS
        ]
        handles.append(Line2D([], [], color=style.PREDICTED, ls="--", label="right angle"))
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        return fig

    def note(self, result: Any) -> str:
        met = result.claims_met.values[-1, 0, result.half_angle.values > RIGHT_ANGLE].mean()
        counts = ", ".join(f"{v} {int((result.verdict.values == i).sum())}" for i, v in enumerate(VERDICTS))
        return (
            f"Cells: {counts}. 'undecided' is a net that lost a class (narrow ones, with probability), or one whose "
            "patterns had not frozen when the limit was asked for (large initial scales). Beyond the right "
            "angle no theorem "
            f"speaks; there the widest net from the smallest scale meets {met:.0%} of the claims all the same."
        )


def two_cones(half_angle: float, n: int, seed: int) -> Any:
    """n points of norm 1 to 1.5 in opposite cones of the plane; either class has its two edges at norm about 1.

    The max-margin vector of a class is then held by its two edge points, which span the plane for every half-angle.
    """
    from marginflow.data import Dataset

    rng, half = np.random.default_rng(seed), np.deg2rad(half_angle)
    y = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    angle, length = rng.uniform(-half, half, n), rng.uniform(1.2, 1.5, n)
    for first in (0, n // 2):
        angle[first : first + 2], length[first : first + 2] = (half, -half), rng.uniform(1.0, 1.02, 2)
        inner = slice(first + 2, first + n // 2 if first == 0 else n)
        angle[inner] *= 0.95
    X = y[:, None] * length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Dataset(X, y, f"two cones of half-angle {half_angle:g}°, seed {seed}")


def style_box(x: float, y: float, color: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=color, edgecolor="white", linewidth=1)
