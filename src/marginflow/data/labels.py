"""Labels: ±1, {0, 1}, booleans or any two values, mapped to -1 and +1 in sorted order.

Text that spells numbers is sorted as numbers, so "+1" and "-1" in a text file mean what they say.
"""

import numpy as np

from marginflow._core.errors import InputError

NO_LABEL = {"", "nan", "none", "null", "na", "<na>", "nat"}


def signs(labels: np.ndarray, name: str = "labels") -> tuple[np.ndarray, tuple[str, str] | None]:
    """(y in float64 ±1, names of the two classes or None when they were ±1 already)."""
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError(f"{name}: the labels have shape {labels.shape}; give one label per row")
    if labels.dtype.kind not in "biufUSO":
        raise InputError(f"{name}: the labels have type {labels.dtype}; give numbers or strings")
    values, code = _distinct(labels, name)
    if len(values) == 1:
        raise InputError(f"{name}: only one class, '{values[0]}', in {len(labels)} labels; two are needed")
    if len(values) != 2:
        shown = ", ".join(f"'{v}'" for v in values[:5])
        raise InputError(
            f"{name}: {len(values)} different labels ({shown}{', ...' if len(values) > 5 else ''}); "
            "exactly two are needed: keep the rows of two classes"
        )
    y = np.where(code == 1, 1.0, -1.0)
    return y, (None if _as_numbers(values) == [-1.0, 1.0] else (str(values[0]), str(values[1])))


def _distinct(labels: np.ndarray, name: str) -> tuple[list, np.ndarray]:
    """The distinct labels in sorted order and each row's index into them."""
    if labels.dtype.kind == "f":
        _refuse(~np.isfinite(labels), labels, name)
    if labels.dtype.kind not in "SUO":
        values, code = np.unique(labels, return_inverse=True)
        return values.tolist(), code
    text = np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels.astype(str)
    text = np.char.strip(text)
    values, code = np.unique(text, return_inverse=True)
    missing = np.array([v.lower() in NO_LABEL for v in values.tolist()], dtype=bool)
    _refuse(missing[code], labels, name)
    numbers = _as_numbers(values.tolist())
    if numbers is None:
        return values.tolist(), code
    if not np.isfinite(numbers).all():
        _refuse(~np.isfinite(numbers)[code], labels, name)
    _, first, merged = np.unique(numbers, return_index=True, return_inverse=True)
    return [str(values[k]) for k in first], merged[code]


def _as_numbers(values: list) -> list[float] | None:
    try:
        return [float(v) for v in values]
    except ValueError:
        return None


def _refuse(bad: np.ndarray, labels: np.ndarray, name: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        shown = str(labels[row]).strip()
        said = f"is {shown}" if shown else "is empty"
        raise InputError(f"{name}: the label of row {row} {said}; give every row a label or remove the row")
