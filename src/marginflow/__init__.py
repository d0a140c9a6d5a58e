"""marginflow: what gradient training converges to, why, and how you know.

This file is the table of contents; nothing heavy is imported until a name is used.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from marginflow._core.version import __version__ as __version__

_ROOMS = {"data", "conditions", "nets", "losses", "margins", "sectors", "flows", "theorems", "runs", "store",
          "experiments", "report", "bridges", "verify"}

# public name -> (module, attribute); None as attribute means the module itself
_NAMES: dict[str, tuple[str, str | None]] = {
    "inits": ("marginflow.nets.inits", None),
    "Dataset": ("marginflow.data", "Dataset"),
    "TwoLayer": ("marginflow.nets", "TwoLayer"),
    "Linear": ("marginflow.nets", "Linear"),
    "DeepLinear": ("marginflow.nets", "DeepLinear"),
    "Residual": ("marginflow.nets", "Residual"),
    "Convolutional": ("marginflow.nets", "Convolutional"),
    "relu": ("marginflow.nets", "relu"),
    "leaky": ("marginflow.nets", "leaky"),
    "smooth_leaky": ("marginflow.nets", "smooth_leaky"),
    "srelu": ("marginflow.nets", "srelu"),
    "linear": ("marginflow.nets", "linear"),
    "check": ("marginflow.conditions", "check"),
    "train": ("marginflow.flows", "train"),
    "extremal": ("marginflow.sectors", "extremal"),
    "basins": ("marginflow.sectors", "basins"),
    "predict": ("marginflow.theorems", "predict"),
    "cite": ("marginflow.theorems", "cite"),
    "verify": ("marginflow.verify", "verify"),
    "report": ("marginflow.chain", "report"),
    "save": ("marginflow.store", "save"),
    "load": ("marginflow.store", "load"),
    "Status": ("marginflow._core.status", "Status"),
    "Outcome": ("marginflow._core.status", "Outcome"),
    "InputError": ("marginflow._core.errors", "InputError"),
}

__all__ = sorted([*_NAMES, *(_ROOMS - {"verify", "report"}), "__version__"])


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, attribute = _NAMES[name]
        value = importlib.import_module(module)
        value = value if attribute is None else getattr(value, attribute)
    elif name in _ROOMS:
        value = importlib.import_module(f"marginflow.{name}")
    else:
        raise AttributeError(f"module 'marginflow' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Contents(ModuleType):
    """Importing the submodule `marginflow.verify` must not replace the function `marginflow.verify`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _NAMES.get(name, ("", None))[1] is not None:
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Contents
