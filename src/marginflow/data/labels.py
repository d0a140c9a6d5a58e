"""Labels: ±1, {0, 1}, booleans or any two strings, mapped to -1 and +1 in sorted order."""

import numpy as np

from marginflow._core.errors import InputError


def signs(labels: np.ndarray, name: str = "labels") -> tuple[np.ndarray, tuple[str, str] | None]:
    """(y in float64 ±1, names of the two classes or None when they were ±1 already)."""
    labels = np.asarray(labels)
    if labels.ndim != 1:
        raise InputError(f"{name}: labels have shape {labels.shape}; give one label per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.argmin(np.isfinite(labels)))
        raise InputError(f"{name}: the label of row {row} is {labels[row]}; give a label to every row")
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    values = np.unique(labels)
    if len(values) == 1:
        raise InputError(f"{name}: only one class, '{values[0]}', in {len(labels)} labels; two are needed")
    if len(values) != 2:
        raise InputError(f"{name}: {len(values)} different labels ({', '.join(map(str, values[:5]))}"
                         f"{', ...' if len(values) > 5 else ''}); exactly two are needed")
    if labels.dtype.kind not in "US" and tuple(values) == (-1, 1):
        return labels.astype(np.float64), None
    return np.where(labels == values[1], 1.0, -1.0), (str(values[0]), str(values[1]))
