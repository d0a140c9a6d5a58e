"""What one layer does to two classes: conditions on what it gives, rank of its weights, where its rows point."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Status
from marginflow.bridges.capture import Representation
from marginflow.data.dataset import Dataset

SIGNIFICANT = 0.1  # singular values above this share of the largest are counted as significant
ALIGNED = 0.9  # correlations above this are called aligned, as in the paper's histograms
MOST_SINGULAR_VALUES = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum(Record):
    """Of a weight matrix, outputs × inputs; a convolution's is outputs × (channels · kernel).

    numerical_rank counts σ > max(shape) ε σ1 with ε of the stored precision; significant counts σ > 0.1 σ1.
    """

    shape: tuple[int, int]
    singular_values: np.ndarray
    stable_rank: float
    numerical_rank: int
    significant: int


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment(Record):
    """Cosines of a layer's rows with the max-margin directions of what it receives.

    best: for each row, its largest cosine with w+, w-, w_max and -w_max (with the bias as one more coordinate, if the
    layer has one). aligned: share of rows with best > 0.9. by_direction: mean cosine of the rows nearest to each.
    """

    best: np.ndarray
    aligned: float
    by_direction: Mapping[str, float]
    counts: Mapping[str, int]
    message: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class LayerReport(Record):
    """One layer against one pair of classes.

    conditions: by name, each {status, slack, measured, witness}, of the representation before the activation.
    margins: by kind, [lower, upper] or None where there is none. examples: rows that were looked at, of `seen`;
    where they are fewer, what holds on them is not claimed for all, and says `undecided`.
    """

    name: str
    kind: str
    target: str
    shape: tuple[int, ...]
    examples: int
    seen: int
    conditions: Mapping[str, Mapping[str, Any]]
    margins: Mapping[str, tuple[float, float] | None]
    norms: tuple[float, float]
    mean_angle: float
    weight: Spectrum | None
    alignment: Alignment | None
    notes: tuple[str, ...] = ()

    def row(self) -> tuple[str, ...]:
        orthogonal, linear = (self.conditions[f"{k}_separability"] for k in ("orthogonal", "linear"))
        near = self.conditions["near_orthogonality"]
        weight, alignment = self.weight, self.alignment
        return (
            self.name, " × ".join(map(str, self.shape)),
            _cell(orthogonal), str(orthogonal.get("violations", "-")), _cell(linear), _cell(near),
            show(None if self.margins["linear"] is None else self.margins["linear"][0]),
            "-" if weight is None else f"{weight.stable_rank:.3g}",
            *(("-", "-") if weight is None else (str(weight.numerical_rank), str(weight.significant))),
            "-" if alignment is None else f"{alignment.aligned:.0%}",
        )  # fmt: skip

    COLUMNS = ("layer", "gives", "orthogonal", "violations", "linear", "near-orth.", "margin", "stable rank",
               "rank", "significant", "aligned")  # fmt: skip

    def table(self) -> Table:
        rows = [("examples", f"{self.examples} of {self.seen}"), ("least and largest norm", show(self.norms)),
                ("angle of the class means", f"{np.degrees(self.mean_angle):.2f}°")]  # fmt: skip
        rows += [
            (name, ", ".join(filter(None, (_cell(c), show(dict(c.get("witness", {})))))))
            for name, c in self.conditions.items()
        ]
        rows += [(f"margin, {kind}", show(bounds)) for kind, bounds in self.margins.items()]
        return Table(f"{self.name}: {self.target}", ("quantity", "value"), tuple(rows), self.notes)


def _cell(condition: Mapping[str, Any]) -> str:
    slack = condition.get("slack")
    return f"{condition['status'].value}" + ("" if slack is None else f" ({slack:.3g})")


def examine(
    name: str,
    kind: str,
    target: str,
    given: Representation,
    received: Representation | None,
    labels: np.ndarray,
    weight: np.ndarray | None,
    bias: np.ndarray | None,
    means: tuple[np.ndarray, np.ndarray],
) -> LayerReport:
    """`given`, `received`: output before the activation, and input; labels: ±1 of the stream; means: of -1 and +1."""
    y = labels[given.index]
    conditions, notes = conditions_of(given, y, name)
    alignment = None
    if received is not None and weight is not None and kind == "linear":
        alignment = aligned_rows(received, labels[received.index], weight, bias)
    elif kind == "conv":
        notes = (
            *notes,
            "rows of a convolution act on patches, so they have no direction in the space of its inputs",
        )
    margins = {"linear": conditions["linear_separability"].pop("margin", None), **class_margins(given, y)}
    return LayerReport(
        name, kind, target, given.shape, len(given.rows), given.seen, conditions, margins,
        (given.least_norm, given.largest_norm), angle(*means),
        None if weight is None else spectrum(weight), alignment, notes,
    )  # fmt: skip


def dataset_of(given: Representation, y: np.ndarray, name: str) -> Dataset | None:
    """The sampled rows as a data set; None where a row is zero, which no condition allows."""
    rows = given.rows if given.rows.dtype in (np.float32, np.float64) else given.rows.astype(np.float32)
    return Dataset(rows, y, name) if given.least_norm > 0 and len(np.unique(y)) == 2 else None


def conditions_of(
    given: Representation, y: np.ndarray, name: str
) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """The conditions on the sampled rows; what holds on a part of the rows only is undecided for all of them."""
    from marginflow import conditions as rooms

    data = dataset_of(given, y, name)
    names = ("orthogonal_separability", "linear_separability", "near_orthogonality")
    if data is None:
        zero = int(np.sum(~np.asarray(given.rows).any(axis=1)))
        why = (
            f"{zero} of the {len(given.rows)} rows looked at are zero: no product with a zero row is positive"
        )
        status = Status.FAILS if zero else Status.UNDECIDED
        why = why if zero else "a row of the stream that was not sampled is zero, or a class was not sampled"
        return {key: {"status": status, "slack": None, "measured": None, "witness": {}} for key in names}, (
            why,
        )
    out: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    for key in names:
        c = rooms.check(data, key, all_violations=True).conditions[key]
        witness = {k: v for k, v in c.witness.items() if k in ("rows", "pair", "kind", "cosine", "product")}
        status = c.status
        if status is Status.HOLDS and not given.every_row:
            status = Status.UNDECIDED
            notes.append(f"{key} holds on the {len(given.rows)} rows looked at, of {given.seen}")
        out[key] = {"status": status, "slack": c.slack, "measured": c.measured, "witness": witness}
        if key == "orthogonal_separability":
            out[key]["violations"] = int(c.witness.get("violations", 0))
        if key == "linear_separability" and c.status is Status.HOLDS:
            out[key]["margin"] = tuple(c.witness["margin"])
    return out, tuple(notes)


def class_margins(given: Representation, y: np.ndarray) -> dict[str, tuple[float, float] | None]:
    """[lower, upper] of the margins of system A, per class."""
    from marginflow import margins

    data = dataset_of(given, y, given.layer)
    found = {} if data is None else {"positive": margins.positive(data), "negative": margins.negative(data)}
    return {
        kind: (m.lower_bound, m.upper_bound) if (m := found.get(kind)) is not None and m.separable else None
        for kind in ("positive", "negative")
    }


def spectrum(weight: np.ndarray) -> Spectrum:
    """Singular values of the matrix, outputs first."""
    flat = weight.reshape(len(weight), -1).astype(np.float64)
    s = np.linalg.svd(flat, compute_uv=False)
    top = float(s[0])
    floor = max(flat.shape) * float(np.finfo(weight.dtype).eps) * top
    stable = float(np.sum(s**2) / top**2) if top > 0 else 0.0
    return Spectrum(
        (flat.shape[0], flat.shape[1]), s[:MOST_SINGULAR_VALUES], stable, int(np.sum(s > floor)),
        int(np.sum(s > SIGNIFICANT * top)) if top > 0 else 0,
    )  # fmt: skip


def aligned_rows(
    received: Representation, y: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> Alignment:
    from marginflow import margins

    data = dataset_of(received, y, f"input of {received.layer}")
    if data is None:
        return Alignment(
            np.zeros(0), 0.0, {}, {}, "an input row is zero, so there are no max-margin directions"
        )
    rows = weight.astype(np.float64)
    if bias is not None:
        rows = np.concatenate([rows, bias.astype(np.float64)[:, None]], axis=1)
    solved = {"w+": margins.positive(data, bias is not None), "w-": margins.negative(data, bias is not None),
              "w_max": margins.linear(data, bias is not None)}  # fmt: skip
    vectors = {name: m.vector for name, m in solved.items() if m.vector is not None}
    missing = [name for name in solved if name not in vectors]
    if "w_max" in vectors:
        vectors["-w_max"] = -vectors["w_max"]
    message = f"no {', '.join(missing)} on these inputs" if missing else ""
    if not vectors:
        return Alignment(np.zeros(0), 0.0, {}, {}, message)
    units = np.stack([v / np.linalg.norm(v) for v in vectors.values()])
    lengths = np.linalg.norm(rows, axis=1)
    cosines = rows[lengths > 0] @ units.T / lengths[lengths > 0, None]
    best, which = (
        cosines.max(axis=1, initial=-1.0),
        cosines.argmax(axis=1) if len(cosines) else np.zeros(0, int),
    )
    names = list(vectors)
    return Alignment(
        best,
        float(np.mean(best > ALIGNED)) if len(best) else 0.0,
        {name: float(best[which == k].mean()) for k, name in enumerate(names) if np.any(which == k)},
        {name: int(np.sum(which == k)) for k, name in enumerate(names)},
        message,
    )


def angle(u: np.ndarray, v: np.ndarray) -> float:
    """Between two vectors, exact near 0 and π as well."""
    lengths = np.linalg.norm(u), np.linalg.norm(v)
    if min(lengths) == 0:
        return float("nan")
    u, v = u / lengths[0], v / lengths[1]
    return float(2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)))
