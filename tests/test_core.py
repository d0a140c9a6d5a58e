"""Logs, statuses, records and errors: the small things every room leans on."""

import dataclasses
import importlib
import itertools
import json
import math
from collections import Counter
from html.parser import HTMLParser

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from marginflow._core import contents, logs
from marginflow._core.errors import nearest, unknown_name
from marginflow._core.paths import data_directory
from marginflow._core.record import Record, Table, jsonable, show, show_interval
from marginflow._core.status import Status, conjunction

LOGS = st.floats(-1e6, 1e6)


@given(x=hnp.arrays(np.float64, st.integers(1, 12), elements=LOGS))
def test_log_sum_exp_against_forty_digits(x):
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(float(v))) for v in x))
    assert logs.log_sum_exp(x) == pytest.approx(float(exact), rel=1e-14, abs=1e-14)


@given(
    x=hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(-700, 700)), shift=st.floats(-1e8, 1e8)
)
def test_weights_do_not_feel_a_shift_and_sum_to_one(x, shift):
    weights = logs.soft_max_weights(x)
    assert weights.sum() == pytest.approx(1, rel=1e-14)
    assert np.allclose(logs.soft_max_weights(x + shift), weights, atol=1e-6)


def test_log_sum_exp_of_nothing_at_all():
    assert logs.log_sum_exp(np.array([-np.inf, -np.inf])) == -np.inf
    assert logs.log_sum_exp(np.array([-np.inf, -1e300])) == -1e300


def test_logs_are_the_same_in_jax():
    jax = pytest.importorskip("jax")
    x = np.array([[-3.0, 0.0, 900.0], [-1e5, -1e5 + 1, -2e5]])
    with jax.enable_x64(True):
        for function in (logs.log_sum_exp, logs.soft_max_weights):
            assert np.allclose(function(jax.numpy.asarray(x)), function(x), rtol=1e-14)
            assert np.allclose(jax.jit(function)(x), function(x), rtol=1e-14)


@given(digits=st.integers(1, 10**12), exponent=st.integers(-(10**6), 10**6))
def test_numbers_beyond_float_range_are_read_as_logs(digits, exponent):
    with mpmath.workdps(40):
        exact = mpmath.log(digits) + exponent * mpmath.log(10)
    assert logs.parse_log_number(f"{digits}e{exponent}") == pytest.approx(float(exact), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "", "1e", "one"])
def test_what_is_not_a_positive_number_has_no_log(text):
    with pytest.raises(ValueError, match="number"):
        logs.parse_log_number(text)


def test_conjunction_of_statuses():
    """One failure decides; else an open question stays open; order and repetition do not matter."""
    assert conjunction([]) is Status.HOLDS
    for statuses in itertools.product(Status, repeat=3):
        whole = conjunction(statuses)
        assert whole is conjunction(reversed(statuses)) is conjunction([*statuses, statuses[0]])
        assert (whole is Status.HOLDS) == (set(statuses) == {Status.HOLDS})
        assert (whole is Status.FAILS) == (Status.FAILS in statuses)
        if Status.UNDECIDED in statuses:
            assert whole in (Status.FAILS, Status.UNDECIDED)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=NESTED)
def test_everything_a_record_holds_is_json(value):
    text = json.dumps(
        jsonable({"v": value, "a": np.array([1.0, np.inf]), "s": Status.HOLDS, "n": np.int64(3)}),
        allow_nan=False,
    )
    back = json.loads(text)
    assert back["a"] == [1.0, "inf"]
    assert (back["s"], back["n"]) == ("holds", 3)
    assert back["v"] == _finite(value)


def _finite(value):
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return {k: _finite(v) for k, v in value.items()} if isinstance(value, dict) else value


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)


@given(
    text=st.text()
    | st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;"])
)
def test_html_shows_text_and_never_runs_it(text):
    tags = Tags()
    tags.feed(Table(text, (text, "b"), ((text, "2"),), (text,)).to_html())
    assert tags.seen <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}


def test_the_terminal_does_not_read_markup(capsys):
    from marginflow.cli.common import emit

    @dataclasses.dataclass(frozen=True)
    class Odd(Record):
        name: str = "[red]x[/red] [/]"

    emit(Odd(), as_json=False)
    assert "[red]x[/red] [/]" in capsys.readouterr().out


@given(
    cells=st.lists(st.tuples(*[st.text("abc -", max_size=90)] * 3), max_size=4),
    width=st.integers(60, 150),
)
def test_a_table_fits_its_lines_and_breaks_and_loses_no_word(cells, width):
    table = Table("title", ("first", "second", "third"), tuple(cells), ("a note " * 40,))
    lines = table.to_text(width).splitlines()
    columns = list(zip(table.columns, *cells, strict=True))
    longest = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    assert all(len(line) <= max(width, sum(longest) + 4) for line in lines)
    words = Counter(word for cell in (c for column in columns for c in column) for word in cell.split())
    assert words - Counter(word for line in lines for word in line.split()) == Counter()
    whole = lambda texts: Counter("".join(texts).replace(" ", ""))  # noqa: E731
    shown = whole(line for line in lines[1:] if set(line) - {"-", " "} or not line)
    dashes = {"-"}
    given_ = whole([*table.columns, *table.notes, *(cell for row in cells for cell in row)])
    assert {k: v for k, v in shown.items() if k not in dashes} == {
        k: v for k, v in given_.items() if k not in dashes
    }


def test_the_prompt_shows_the_table_and_not_a_wall_of_arrays():
    import marginflow as mf

    data = mf.Dataset(np.eye(2), [1, -1])
    for record in (data, mf.check(data, "linear_separability"), mf.margins.linear(data)):
        assert repr(record) == str(record) == "\n\n".join(t.to_text() for t in record.tables())


def test_cells_are_short():
    assert show(np.ones((3, 4))) == "array(3, 4)"
    assert show(10**41 + 1) == "1.00000e+41"
    assert show(1234567) == "1234567"
    assert show(None) == "-"
    assert show([0.5] * 9) == "9 entries"
    assert show({"a": 1 / 3, "b": True}) == "a 0.333333, b yes"
    ends = [(0, 1), (1e-12, None), (None, 0.5), (2, 2), (None, None)]
    assert [show_interval(*e) for e in ends] == ["0 to 1", "≥ 1e-12", "≤ 0.5", "2", "any"]


def test_suggestions():
    assert nearest("LABEL", ["label", "x"]) == "label"
    assert nearest("zzz", ["label", "x"]) is None
    assert str(unknown_name("thing", "orthogonal", ["orthagonal", "other"])) == (
        "unknown thing 'orthogonal'; did you mean 'orthagonal'?"
    )
    assert str(unknown_name("thing", "qqq", ["b", "a"])) == "unknown thing 'qqq'; known: a, b"


def test_where_data_files_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("MARGINFLOW_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    monkeypatch.delenv("MARGINFLOW_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_directory() == tmp_path / "marginflow"


def test_double_precision_is_local_to_the_call():
    jax = pytest.importorskip("jax")

    from marginflow._core.arrays import double

    before = jax.numpy.ones(1).dtype
    assert double(lambda: jax.numpy.ones(1).dtype)() == np.float64
    assert jax.numpy.ones(1).dtype == before
    with pytest.raises(RuntimeError, match="inside"):
        double(_raise)()
    assert jax.numpy.ones(1).dtype == before


def _raise():
    raise RuntimeError("inside")


@pytest.mark.parametrize("package", ["marginflow", "marginflow.sectors", "marginflow.bridges"])
def test_every_line_of_a_contents_page_leads_somewhere(package):
    module = importlib.import_module(package)
    assert dir(module)
    for name in dir(module):
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'absent'"):
        module.absent  # noqa: B018


def test_a_contents_page_outlives_the_import_of_a_module_of_the_same_name():
    import marginflow

    importlib.import_module("marginflow.verify")
    importlib.import_module("marginflow.report")
    assert callable(marginflow.verify)
    assert callable(marginflow.report)


def test_lines_of_a_contents_page():
    page = "from . import nets as nets\nfrom a.nets import Net as Net\nfrom a.nets import hidden\nimport os\n"
    assert contents.read("a", page) == {"nets": ("a.nets", None), "Net": ("a.nets", "Net")}
