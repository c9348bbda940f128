"""Points of PyMC as positions in the coordinates that a step moves, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.manifolds import Manifold


def variables_with_charts(variables: Sequence[ManifoldVariable]) -> list[str]:
    """Names of variables for which there are no surrogates: proportions and positive numbers."""
    return [
        variable.name
        for variable in variables
        if variable.manifold.has_edge
        or type(variable.manifold).from_coordinates is not Manifold.from_coordinates
    ]


def position_of(
    variables: Sequence[ManifoldVariable], point: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Position of a point, shape (size,)."""
    return np.concatenate([v.coordinates(point[v.value_name]).ravel() for v in variables])


def point_of(
    variables: Sequence[ManifoldVariable], position: np.ndarray, point: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Point of a position, other values of which are those of another point."""
    made, start = dict(point), 0
    for variable in variables:
        end = start + variable.rows * variable.manifold.size
        values = variable.values(position[start:end])
        made[variable.value_name] = values.reshape(variable.value_shape)
        start = end
    return made
