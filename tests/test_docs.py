"""What the documents show is true: the examples run, and the site's list of pages matches the pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "orthogonal_separability" in capsys.readouterr().out


def test_the_table_of_the_readme_is_what_check_says():
    import marginflow as mf

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^ {4}(\w+) +(holds|fails|vacuous|undecided) ", text, re.MULTILINE))
    checks = mf.check(mf.data.load(re.search(r"marginflow check (phuong2021:\S+)", text)[1]))
    assert said == {name: str(condition.status) for name, condition in checks.conditions.items()}


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages == set(re.findall(r"[\w/.-]+\.md", contents))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_links_between_files_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / target).exists(), target
