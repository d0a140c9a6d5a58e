"""Tables of contents: packages whose names are imported when they are used.

A package may export a function under the name of the module that holds it (`sectors.extremal` in
`sectors/extremal.py`). Importing that module makes Python set the package's attribute to the *module*; the guard here
keeps the exported name what the contents page says, whatever was imported first.
"""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# public name -> (module, attribute); attribute None means the module itself
Names = Mapping[str, tuple[str, str | None]]


def lazy(package: str, names: Names) -> None:
    """Make `names` the contents of `package` (call it at the end of its `__init__`)."""

    class Contents(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in names:
                raise AttributeError(f"module '{package}' has no attribute '{name}'")
            module, attribute = names[name]
            value = importlib.import_module(module)
            value = value if attribute is None else getattr(value, attribute)
            super().__setattr__(name, value)
            return value

        def __setattr__(self, name: str, value: Any) -> None:
            if isinstance(value, ModuleType) and names.get(name, ("", None))[1] is not None:
                return
            super().__setattr__(name, value)

        def __dir__(self) -> list[str]:
            return sorted(names)

    module = sys.modules[package]
    module.__class__ = Contents
    module.__dict__["__all__"] = sorted(names)
