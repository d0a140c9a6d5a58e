"""What is true of the data: one file per condition of theory §1.

Each file defines a function of its own name, f(data, ...) -> Condition. `certificates` proves a witness again.
"""

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from marginflow._core.errors import InputError, unknown_name
from marginflow.conditions.base import Checks as Checks
from marginflow.conditions.base import Condition as Condition
from marginflow.data.dataset import Dataset

NAMES = ("linear_separability", "orthogonal_separability", "near_orthogonality", "general_position", "support_span",
         "interclass_distance")


def check(data: Dataset, conditions: str | Iterable[str] | None = None, rank: int | None = None, tolerance: float = 0.0,
          all_violations: bool = False, constant: str = "frei2022.flow", leak: float = 0.5) -> Checks:
    """Every condition (or those named), each with status, measured value, threshold, slack and witness.

    rank: of the projection in interclass_distance (default: the dimension).
    tolerance: cosines of at most this size count as zero in orthogonal_separability; always reported.
    all_violations: list the violating pairs of orthogonal_separability instead of stopping at the first.
    constant, leak: the theorem whose constant near_orthogonality uses, and its γ.
    """
    if not isinstance(data, Dataset):
        raise InputError(f"check was given {type(data).__name__}; give a Dataset, such as marginflow.Dataset(X, y)")
    names = NAMES if conditions is None else (conditions,) if isinstance(conditions, str) else tuple(conditions)
    for name in names:
        if name not in NAMES:
            raise unknown_name("condition", name, NAMES)
    options = {"rank": rank, "tolerance": tolerance, "all_violations": all_violations, "constant": constant,
               "leak": leak}
    about = {"name": data.name, "n": data.n, "d": data.d, "n_positive": len(data.positive),
             "n_negative": len(data.negative)}
    return Checks(about, {name: _run(name, data, options) for name in names})


def _run(name: str, data: Dataset, options: dict[str, Any]) -> Condition:
    function = getattr(importlib.import_module(f"marginflow.conditions.{name}"), name)
    taken = inspect.signature(function).parameters
    return function(data, **{key: value for key, value in options.items() if key in taken})
