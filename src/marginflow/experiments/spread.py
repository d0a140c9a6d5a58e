"""Over seeds: the median, and the band that figures shade, from the lower to the upper quartile."""

from typing import Any, NamedTuple

import numpy as np


class Spread(NamedTuple):
    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray


def spread(values: Any, axis: int = 0) -> Spread:
    """Quartiles of `values` along `axis`; entries that are nan are left out."""
    return Spread(*np.nanquantile(np.asarray(values, float), (0.25, 0.5, 0.75), axis=axis))
