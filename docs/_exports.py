"""A line `::: exports PACKAGE` in a page becomes one entry for every public name of the package.

The public names are those that the package's `__init__.pyi` (where there is none, its `__init__.py`) imports in the
form `from module import name as name`, and the public functions and classes defined there. The file is read, not
imported.
"""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def on_page_markdown(markdown: str, **_) -> str:
    return re.sub(r"^::: exports (\S+)$", lambda match: _entries(match[1]), markdown, flags=re.MULTILINE)


def _entries(package: str) -> str:
    init = SOURCE / package.replace(".", "/") / "__init__.pyi"
    page = init if init.exists() else init.with_suffix(".py")
    found = [entry for node in ast.parse(page.read_text(encoding="utf-8")).body for entry in _public(node, package)]
    return "\n\n".join(f"## {name}\n\n::: {path}" for name, path in found)


def _public(node: ast.stmt, package: str) -> list[tuple[str, str]]:
    if isinstance(node, ast.ImportFrom):
        return [(n.name, f"{node.module}.{n.name}") for n in node.names if n.asname == n.name]
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
        return [(node.name, f"{package}.{node.name}")]
    return []
