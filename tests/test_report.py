"""Reports: one file that needs no network, shows what it is given and runs none of it."""

import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import marginflow as mf
from marginflow._core.record import Table
from marginflow.chain import command, page_of, python_calls
from marginflow.cli import main
from marginflow.experiments import sweeps
from marginflow.experiments.base import Number, Reproduction
from marginflow.portrait import portrait
from marginflow.report import Chart, Page, Picture, Scatter, Section, render, write
from marginflow.report.run_page import neurons_scatter

EVIL = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">'\"&<b>"


class Seen(HTMLParser):
    """Every tag with its attributes, and the text outside scripts and styles."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.text, self.inside = [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text += data


@pytest.fixture(scope="module")
def run():
    data = mf.data.load("phuong2021:n=20,d=3,seed=0")
    net = mf.TwoLayer(8)
    theta = mf.inits.balanced(net, data.d, 1e-3, 2)
    asked = {"init": "balanced", "scale": 1e-3, "seed": 2}
    return mf.train(net, theta, data, method="flow", until="limit", options=asked)


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return Path(mf.report(run, tmp_path_factory.mktemp("report") / "run.html"))


def hostile() -> Page:
    """A page whose every string wants to be HTML."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(5, 2))
    scatter = Scatter(
        EVIL, points, np.sign(points[:, 0]), [EVIL] * 5, np.eye(2), (EVIL, EVIL), points[None] / 3, [EVIL]
    )
    chart = Chart(
        EVIL, [1.0, 2.0], {EVIL: [1.0, 2.0]}, EVIL, EVIL, levels={EVIL: 1.5}, bands={EVIL: ([0, 1], [2, 3])}
    )
    section = Section(
        EVIL, [EVIL], [Table(EVIL, (EVIL, "b"), ((EVIL, EVIL),), (EVIL,))], [scatter, chart], EVIL
    )
    return Page(EVIL, "holds", EVIL, [section])


def test_strings_are_shown_and_not_run():
    seen = Seen(render(hostile()))
    assert [tag for tag, _ in seen.tags].count("script") == 2  # the data and ours
    assert not [tag for tag, _ in seen.tags if tag in ("img", "b")]
    assert not [name for _, attrs in seen.tags for name in attrs if name.startswith("on")]
    assert seen.text.count(EVIL) >= 8


def test_nothing_is_asked_of_a_network(page):
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.findall(r"(?:src|href|action|data)\s*=\s*[\"']?(?!data:)[a-z]*:?//", text)
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|navigator\.|import\(", text)
    allowed = {"http://www.w3.org/2000/svg"}  # the name of a namespace, never fetched
    assert set(re.findall(r"https?://[^\"'\s<]+", text)) <= allowed


def test_a_report_says_verdict_assumptions_claims_and_how_to_repeat(page, run):
    text = Seen(page.read_text()).text
    verdicts = mf.verify(run)
    theorem = verdicts["phuong2021.theorem1"]
    order = [
        text.index(theorem.status.value),
        text.index("Assumptions"),
        text.index("Claims"),
        text.index("Repeat it"),
    ]
    assert order == sorted(order)
    for part in (*theorem.assumptions, *theorem.claims):
        assert part.name.replace("_", " ") in text
    for verdict in verdicts.verdicts:
        assert verdict.theorem in text
    assert run.data.sha256 in text


def test_the_python_that_repeats_a_run_repeats_it(run):
    names = {}
    code = python_calls(run)
    exec(compile(code, "repeat", "exec"), names)
    again = names["run"]
    assert names["data"].sha256 == run.data.sha256
    for name, w in run.theta0.items():
        np.testing.assert_array_equal(again.theta0[name], w)
    np.testing.assert_allclose(again.limit.normalised_margin, run.limit.normalised_margin, rtol=1e-12)
    assert command(run) == code  # this run was not made by a command line


def test_a_command_line_is_quoted(run):
    argv = ["train", "my data.csv", "--label", "a;rm -rf $HOME"]
    made = dataclasses.replace(run, provenance={"argv": argv})
    assert command(made) == "marginflow train 'my data.csv' --label 'a;rm -rf $HOME'"


def test_a_hundred_neurons_with_their_path_stay_small(tmp_path):
    rng = np.random.default_rng(1)
    W, path = rng.normal(size=(100, 20)), rng.normal(size=(200, 100, 20))
    seen = portrait(W, np.sign(W[:, 0]), W[0], W[1], path, np.linspace(-5, 1e4, 200))
    charts = [Chart(str(k), np.arange(400.0), {"x": rng.normal(size=400)}, "x", "y") for k in range(10)]
    target = write(
        Page("run", "holds", "", [Section("net", figures=[neurons_scatter(seen), *charts])]), tmp_path / "r"
    )
    assert Path(target).stat().st_size < 1_000_000


def test_a_very_wide_net_is_drawn_by_its_longest_neurons(tmp_path):
    rng = np.random.default_rng(2)
    W = rng.normal(size=(5000, 4)) * np.linspace(1, 2, 5000)[:, None]
    seen = portrait(W, np.ones(5000), path=np.repeat(W[None], 30, axis=0), path_log_time=np.arange(30.0))
    scatter = neurons_scatter(seen)
    assert "2000 longest of 5000" in scatter.title
    drawn = {int(tip.split(":")[0].removeprefix("neuron ")) for tip in scatter.tips}
    assert drawn == set(np.argsort(np.linalg.norm(W, axis=1))[-2000:])
    target = write(Page("run", "holds", "", [Section("net", figures=[scatter])]), tmp_path / "r")
    assert Path(target).stat().st_size < 2_000_000


def test_numbers_that_are_not_finite_are_valid_json():
    chart = Chart("t", [-np.inf, 1.0], {"y": [np.nan, np.inf]}, "x", "y")
    text = render(Page("t", "", "", [Section("s", figures=[chart])]))
    data = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.S).group(1))
    assert data[0]["x"] == [None, 1.0]
    assert data[0]["series"]["y"] == [None, None]


def test_a_reproduced_figure_has_a_page(tmp_path):
    numbers = (Number("rank", 2.0, 2, (2, 2), "counted"), Number("angle", 0.3, None, (0, 0.1), EVIL))
    (tmp_path / "fig.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    files = ("elsewhere/fig.png", "elsewhere/fig.json")
    made = Reproduction("fig", "A figure", numbers, files, 1.0, {"width": 7, "scales": (0.1, 1)}, "a note")
    (tmp_path / "fig.json").write_text(json.dumps(made.to_json()))
    page = page_of(tmp_path / "fig.json")
    assert page.status == "fails"
    assert "1 of 2" in page.headline
    assert [type(f) for s in page.sections for f in s.figures] == [Picture]
    assert page.sections[-1].code == "marginflow reproduce fig --set width=7 --set 'scales=(0.1,1,)'"
    assert EVIL in Seen(render(page)).text


def test_a_sweep_has_a_page(tmp_path):
    asked = {
        "data": "phuong2021:n=12,d=3,seed=0",
        "method": "gd",
        "epochs": 3,
        "width": 4,
        "members": 4,
        "verify": ["lyu2020"],
        "grid": {"lr": [0.1, 1e300], "scale": [0.1, 1.0]},
    }
    sweeps.sweep(asked, tmp_path / "out")
    page = page_of(tmp_path / "out")
    assert page.headline == "2 of 4 cells done, 2 failed, 0 to do."
    text = Seen(render(page)).text
    assert "Failed cells" in text
    assert "diverged" in text
    assert "lyu2020" in text
    spread = next(s for s in page.sections if s.title == "Quantities").tables[0]
    assert {row[1] for row in spread.rows} == {"2"}  # what diverged is no part of any statistic
    along = [s for s in page.sections if s.title.startswith("Along ")]
    assert [s.title for s in along] == ["Along scale"]  # of lr one value is left: the other diverged
    assert all(f.x_label == "scale" for f in along[0].figures)


def test_the_command_writes_beside_the_run(run, tmp_path, capsys):
    mf.save(run, tmp_path / "run")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path / "run"), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert Path(answer["report"]) == tmp_path / "run" / "report.html"
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    assert mf.load(tmp_path / "run").data.sha256 == run.data.sha256  # the page is no stranger in the folder
    mf.save(run, tmp_path / "run")


@pytest.mark.parametrize("what", ["nothing", "empty", "empty/other.json"])
def test_what_has_no_page_is_refused(tmp_path, what):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "other.json").write_text('{"figure": 1}')
    with pytest.raises(mf.InputError, match="give the folder of a run or a sweep"):
        page_of(tmp_path / what)


# in a browser


@pytest.fixture(scope="module")
def chrome(browser):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    if (driver_path := shutil.which("chromedriver")) is None:
        pytest.skip("no chromedriver on the path")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "window-size=1200,1600",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    yield driver
    driver.quit()


def opened(chrome, path: Path) -> None:
    chrome.get_log("browser"), chrome.get_log("performance")
    chrome.get(path.resolve().as_uri())


def requests(chrome) -> list[str]:
    sent = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    return [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]


@pytest.mark.browser
def test_the_slider_moves_the_neurons(chrome, page):
    opened(chrome, page)
    assert chrome.get_log("browser") == []
    assert requests(chrome) == [page.resolve().as_uri()]
    places = lambda: chrome.execute_script(  # noqa: E731
        "return [...document.querySelectorAll('.neuron')].map((n) => n.getAttribute('transform'))"
    )
    end = places()
    assert len(end) == 8
    assert len(set(end)) > 1
    move = (
        "const s = document.querySelector('input[type=range]'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input')); return document.querySelector('output').textContent"
    )
    assert chrome.execute_script(move, 0).startswith("log t = ")
    start = places()
    assert all(a != b for a, b in zip(start, end, strict=True))
    assert chrome.execute_script(move, 10**9) == "end"
    assert places() == end
    assert not any("NaN" in place for place in start + end)


@pytest.mark.browser
def test_a_neuron_under_the_pointer_says_what_it_is(chrome, page):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    opened(chrome, page)
    mark = chrome.find_element(By.CSS_SELECTOR, ".neuron")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(chrome).move_to_element(mark).perform()
    tip = chrome.execute_script(
        "return document.querySelector('.neuron').closest('.chart').querySelector('.tip').textContent"
    )
    assert re.match(r"neuron \d+: a [<>] 0, ‖w‖ = ", tip)


@pytest.mark.browser
def test_hostile_strings_stay_text_in_a_browser(chrome, tmp_path):
    opened(chrome, Path(write(hostile(), tmp_path / "hostile.html")))
    assert chrome.title == EVIL
    assert chrome.get_log("browser") == []
    assert (
        chrome.execute_script("return document.images.length + document.querySelectorAll('main b').length")
        == 0
    )
    assert EVIL in chrome.execute_script("return document.querySelector('.chart .note').textContent")


@pytest.mark.browser
def test_dark_and_print_have_their_own_colours(chrome, page):
    opened(chrome, page)
    paper = lambda: chrome.execute_script("return getComputedStyle(document.body).backgroundColor")  # noqa: E731
    shown = lambda: chrome.execute_script(  # noqa: E731
        "return getComputedStyle(document.querySelector('.controls')).display"
    )
    scheme = lambda value, media="": chrome.execute_cdp_cmd(  # noqa: E731
        "Emulation.setEmulatedMedia",
        {"media": media, "features": [{"name": "prefers-color-scheme", "value": value}]},
    )
    scheme("light")
    assert paper() == "rgb(255, 255, 255)"
    assert shown() != "none"
    scheme("dark")
    assert paper() == "rgb(22, 22, 24)"
    scheme("dark", "print")
    assert paper() == "rgb(255, 255, 255)"
    assert shown() == "none"
    scheme("light")
