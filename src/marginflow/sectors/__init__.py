"""Where small neurons go: activation patterns, G, extremal directions, the early phase in closed form, basins."""

import importlib
from typing import Any

_NAMES = {
    "G": "patterns", "sector": "patterns", "charges": "patterns",
    "Extremal": "extremal", "Extremals": "extremal", "extremal": "extremal", "examine": "extremal",
    "lemma2": "lemma2",
    "Fate": "early", "Path": "early", "path": "early",
    "Basins": "basins", "basins": "basins",
}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'marginflow.sectors' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"marginflow.sectors.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
