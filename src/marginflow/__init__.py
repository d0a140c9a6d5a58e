"""marginflow: what gradient training converges to, why, and how you know.

This file is the table of contents; nothing heavy is imported until a name is used.
"""

from marginflow._core.contents import lazy
from marginflow._core.version import __version__ as __version__

_ROOMS = (
    "data",
    "conditions",
    "nets",
    "losses",
    "margins",
    "sectors",
    "flows",
    "theorems",
    "runs",
    "store",
    "portrait",
    "experiments",
    "bridges",
)
_NAMES: dict[str, tuple[str, str | None]] = {
    **{room: (f"marginflow.{room}", None) for room in _ROOMS},
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

lazy(__name__, _NAMES)
