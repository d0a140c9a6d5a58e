"""Directions that figures measure against."""

import numpy as np

from marginflow._core.errors import InputError
from marginflow.data.dataset import Dataset


def class_directions(data: Dataset) -> np.ndarray:
    """(2, d): w+ and w-, refused where a class has none."""
    from marginflow import margins

    return np.stack([_vector(solve(data), data) for solve in (margins.positive, margins.negative)])


def linear_direction(data: Dataset) -> np.ndarray:
    """w of the linear max margin, refused on data that are not separable."""
    from marginflow import margins

    return _vector(margins.linear(data), data)


def _vector(margin, data: Dataset) -> np.ndarray:
    if margin.vector is None:
        raise InputError(
            f"{data.name}: no {margin.kind} max-margin vector ({margin.message}); choose other parameters"
        )
    return np.asarray(margin.vector, float)
