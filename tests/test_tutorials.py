"""The Python of every tutorial runs as it stands, page by page."""

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parent.parent / "docs" / "tutorials"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["your-data", "read-a-verdict", "conjecture", "add-a-theorem"])
def test_the_python_of_a_tutorial_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, f"{name}.md", "exec"), names)


def test_every_tutorial_is_tested():
    elsewhere = {"what-did-my-classifier-learn"}  # a script with PyTorch and MNIST: test_bridges_inspect runs it
    pages = {path.stem for path in PAGES.glob("*.md")} - {"index"} - elsewhere
    assert pages == {"your-data", "read-a-verdict", "conjecture", "add-a-theorem"}
