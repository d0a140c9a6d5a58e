"""One self-contained HTML page: sections of text, tables and charts. No request leaves the file.

Every string is escaped by the template engine; data for the scripts is JSON inside a non-executed script element,
with '<' written as \\u003c so that no content can end the element.
"""

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marginflow._core import files
from marginflow._core.record import Table, jsonable

ASSETS = Path(__file__).parent / "assets"
DIGITS = 6  # of numbers sent to charts


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves, or points, against one axis. `series`: name -> y values; `bands`: name -> (low, high) around that
    series; `levels`: predicted values drawn across.
    """

    title: str
    x: Any
    series: Mapping[str, Any]
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    levels: Mapping[str, float] = dataclasses.field(default_factory=dict)
    bands: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)
    points: bool = False
    kind: str = "curves"


@dataclasses.dataclass(frozen=True)
class Scatter:
    """Neurons in a plane, with tooltips; with `frames`, a slider moves them through log t."""

    title: str
    coordinates: Any
    sign: Any
    tips: Sequence[str]
    directions: Any
    direction_names: Sequence[str] = ("w₊", "w₋")
    frames: Any = ()
    frame_labels: Sequence[str] = ()
    kind: str = "scatter"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A PNG, embedded."""

    title: str
    path: str
    kind: str = "picture"

    @property
    def data_uri(self) -> str:
        return "data:image/png;base64," + base64.b64encode(Path(self.path).read_bytes()).decode()


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, paragraphs, tables and figures, in this order."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Chart | Scatter | Picture] = ()
    code: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    title: str
    status: str  # shown first; "" for none
    headline: str
    sections: Sequence[Section]


def write(page: Page, path) -> str:
    """Render the page and put it at `path` in one step."""
    files.write(path, render(page).encode())
    return str(path)


def render(page: Page) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    charts = [f for s in page.sections for f in s.figures if not isinstance(f, Picture)]
    data = json.dumps([_for_script(c) for c in charts], allow_nan=False).replace("<", "\\u003c")
    return environment.get_template("page.html").render(
        page=page,
        charts=charts,
        data=Markup(data),
        css=Markup((ASSETS / "page.css").read_text()),
        script=Markup((ASSETS / "page.js").read_text()),
    )


def _for_script(chart: Chart | Scatter) -> dict[str, Any]:
    return {f.name: _short(getattr(chart, f.name)) for f in dataclasses.fields(chart)}


def _short(value: Any) -> Any:
    """JSON for the scripts: numbers to six digits, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(k): _short(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _short(value.tolist())
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None
    return jsonable(value)
