"""Where small neurons go: activation patterns, G, extremal directions, the early phase in closed form, basins."""

from marginflow._core.contents import lazy

_NAMES = {
    "G": "patterns",
    "sector": "patterns",
    "charges": "patterns",
    "Extremal": "directions",
    "Extremals": "directions",
    "extremal": "directions",
    "lemma2": "closed_form",
    "Fate": "early",
    "Path": "early",
    "path": "early",
    "Basins": "basin_map",
    "basins": "basin_map",
}

lazy(__name__, {name: (f"marginflow.sectors.{module}", name) for name, module in _NAMES.items()})
