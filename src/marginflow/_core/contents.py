"""Tables of contents: packages whose names are imported when they are used.

The contents page is the package's `__init__.pyi`, with one line `from module import name as name` for every public
name; type checkers and editors read it too, so what they see is what a program gets.

A package may export a function under the name of one of its modules (`marginflow.verify`, `marginflow.report`).
Importing that module makes Python set the package's attribute to the *module*; the guard here keeps the exported
name what the contents page says, whatever was imported first.
"""

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# public name -> (module, attribute); attribute None means the module itself
Names = dict[str, tuple[str, str | None]]


def lazy(package: str) -> None:
    """Make the contents page of `package` its contents (call it in its `__init__`)."""
    module = sys.modules[package]
    names = read(package, Path(str(module.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))

    class Contents(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module '{package}' has no attribute '{name}'")
            source, attribute = names[name]
            value = importlib.import_module(source)
            value = value if attribute is None else getattr(value, attribute)
            super().__setattr__(name, value)
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, ModuleType) and names.get(name, ("", None))[1] is not None:
                return
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted(names)

    module.__class__ = Contents
    module.__dict__["__all__"] = sorted(names)


def read(package: str, page: str) -> Names:
    """The names of a contents page; `from . import name as name` stands for a module of the package."""
    lines = (node for node in ast.parse(page).body if isinstance(node, ast.ImportFrom))
    return {
        alias.name: (f"{package}.{alias.name}", None) if node.level else (str(node.module), alias.name)
        for node in lines
        for alias in node.names
        if alias.asname == alias.name
    }
