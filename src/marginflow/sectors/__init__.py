"""Where small neurons go: activation patterns, G, extremal directions, the early phase in closed form, basins."""

from marginflow._core.contents import lazy

lazy(__name__)
