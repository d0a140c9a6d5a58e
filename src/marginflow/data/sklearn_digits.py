"""scikit-learn's bundled 8 × 8 images of handwritten digits, two of the ten classes."""

import numpy as np

from marginflow._core.errors import InputError
from marginflow.data.dataset import Dataset


def digits(*classes: str | int) -> Dataset:
    """The images of two digits, pixels in [0, 1] (multiples of 1/16, so exact)."""
    chosen = [str(c) for c in classes] or ["0", "1"]
    if len(set(chosen)) != 2 or len(chosen) != 2 or not set(chosen) <= set("0123456789"):
        raise InputError(f"digits: '{','.join(chosen)}' is not two different digits; write digits:0,1")
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("digits: the images come with scikit-learn; install marginflow[sklearn]") from None
    pixels, target = map(np.asarray, load_digits(return_X_y=True))
    first, second = sorted(map(int, chosen))
    rows = np.isin(target, [first, second])
    return Dataset(
        pixels[rows] / 16.0,
        np.where(target[rows] == second, 1, -1),
        f"digits:{first},{second}",
        {"family": "digits", "arguments": {"classes": [str(first), str(second)]}},
        (str(first), str(second)),
    )
