"""The demo: every link of the chain, small here; the real one where slow tests run."""

import json
from pathlib import Path

import pytest

import marginflow as mf
from marginflow.cli import main
from marginflow.experiments import demo as module


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return module.demo(seed=1, out=tmp_path_factory.mktemp("demo") / "out", n=30, d=4, width=12)


def test_every_link_is_there_and_they_agree(small):
    assert small.verdict in set(mf.Status)
    assert small.verdict is small.verdicts["phuong2021.theorem1"].status
    assert small.headline == small.verdicts["phuong2021.theorem1"].summary
    predicted = small.predictions["phuong2021.theorem1"].prediction["normalised_margin"]
    assert small.run.limit.normalised_margin == pytest.approx(predicted, rel=1e-9)
    assert set(small.stages) == {"check", "predict", "flow", "verify", "figures", "report"}
    assert sum(small.stages.values()) <= small.seconds


def test_what_it_names_is_on_disk(small):
    report = Path(small.report)
    assert small.headline.partition(":")[0].replace("&", "&amp;") in report.read_text()
    assert [Path(f).suffix for f in small.figures] == [".png", ".pdf"]
    for figure in small.figures:
        assert Path(figure).parent == report.parent
        assert Path(figure).stat().st_size > 10_000
    kept = mf.load(report.parent / "run")
    assert kept.limit.normalised_margin == small.run.limit.normalised_margin


def test_tables_show_verdict_and_path(small):
    text = str(small)
    assert small.headline in " ".join(text.split())
    assert small.report in text


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_the_command_has_one_json_document_and_strict(small, capsys, monkeypatch, strict):
    asked = []
    monkeypatch.setattr(module, "demo", lambda *arguments: asked.append(arguments) or small)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--out", "somewhere", "--seed", "1", "--json", *strict])
    answer = json.loads(capsys.readouterr().out)
    assert asked == [(1, "somewhere")]
    assert {"verdict", "report", "seconds"} <= set(answer)
    assert stop.value.code == int(bool(strict) and answer["verdict"] != "holds")
    assert Path(answer["report"]).is_file()


@pytest.mark.slow
def test_on_the_data_of_the_paper_the_conclusions_hold_without_the_support_span(tmp_path):
    result = module.demo(out=tmp_path / "out")
    theorem = result.verdicts["phuong2021.theorem1"]
    assert [a.name for a in theorem.assumptions if a.status is mf.Status.FAILS] == ["support_span"]
    assert result.verdict is mf.Status.VACUOUS
    assert all(c.status is mf.Status.HOLDS for c in theorem.claims)
    assert "support span" in result.headline
