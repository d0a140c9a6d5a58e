"""Where small neurons go: activation patterns, G, extremal directions, the early phase in closed form, basins."""

from marginflow._core.contents import lazy

_NAMES = {
    "G": "patterns", "sector": "patterns", "charges": "patterns",
    "Extremal": "extremal", "Extremals": "extremal", "extremal": "extremal", "examine": "extremal",
    "lemma2": "lemma2",
    "Fate": "early", "Path": "early", "path": "early",
    "Basins": "basins", "basins": "basins",
}

lazy(__name__, {name: (f"marginflow.sectors.{module}", name) for name, module in _NAMES.items()})
