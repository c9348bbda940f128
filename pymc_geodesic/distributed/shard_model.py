"""The model of one shard: its rows in the data containers, and what the other shards say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.distributed.surrogates import Quadratic

__all__ = ["ConduciveTerm", "place_rows"]


def place_rows(model: pm.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Put rows in the data containers of a model, in the precision of these.

    Raises
    ------
    ValueError
        If there is no such container, or its rows have another shape.
    """
    for name, array in arrays.items():
        container = model.named_vars.get(name)
        if container is None or container not in model.data_vars:
            known = [data.name for data in model.data_vars]
            raise ValueError(f"a shard names {name!r}, but the data containers are {known}")
        before = container.get_value(borrow=True)
        if array.shape[1:] != before.shape[1:]:
            raise ValueError(
                f"rows of {name!r} have shape {array.shape[1:]} in a shard and "
                f"{before.shape[1:]} in the model"
            )
        container.set_value(array.astype(before.dtype, copy=False), borrow=True)
        dims = model.named_vars_to_dims.get(name)
        if dims and dims[0] is not None:
            labels = None if model.coords.get(dims[0]) is None else np.arange(len(array))
            model.set_dim(dims[0], len(array), coord_values=labels)


def _coordinates(model: pm.Model, variable: ManifoldVariable) -> TensorVariable:
    """Coordinates that the dynamics move, as a function of the random variable."""
    rv, transform = variable.rv, model.rvs_to_transforms[variable.rv]
    if variable.on_manifold or transform is None:
        return rv.ravel()
    return transform.forward(rv, *rv.owner.inputs).ravel()


class ConduciveTerm:
    """A quadratic term of a log-density, zero until it is set.

    Parameters
    ----------
    model : pymc.Model
        Gets it as a potential.
    variables : list of ManifoldVariable
        In the order of the coordinates.
    """

    def __init__(self, model: pm.Model, variables: Sequence[ManifoldVariable]) -> None:
        size = sum(variable.rows * variable.manifold.size for variable in variables)
        zero = Quadratic(np.zeros(size), np.zeros(size), np.zeros((size, size)))
        self._shared: list[Any] = [
            pytensor.shared(value, name=f"conducive_{name}", shape=value.shape)
            for name, value in zero._asdict().items()
        ]
        centre, slope, curvature = self._shared
        away = pt.concatenate([_coordinates(model, each) for each in variables]) - centre
        with model:
            pm.Potential("conducive", pt.dot(slope + 0.5 * pt.dot(curvature, away), away))

    def use(self, term: Quadratic) -> None:
        """Set the term; who compiled the model must look at its data again."""
        for shared, value in zip(self._shared, term, strict=True):
            shared.set_value(value)
