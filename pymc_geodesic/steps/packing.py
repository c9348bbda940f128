"""Conversion between the values of the variables of a model and one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from pymc_geodesic.counts.layout import log_of_value, value_of_log
from pymc_geodesic.densities.centered_effects import CenteredEffects
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.manifolds import Product
from pymc_geodesic.steps.pymc_interface import Model, PointType


class Packing(Protocol):
    """A one-to-one map between points and vectors."""

    def pack(self, point: PointType) -> np.ndarray:
        """Coordinates of the variables at a point, shape (size,).

        Raises
        ------
        StartError
            If a value has no coordinates.
        """

    def unpack(self, position: np.ndarray) -> Mapping[str, np.ndarray]:
        """Values of the value variables by name."""


class StartError(ValueError):
    """Error for an invalid initial value.

    Parameters
    ----------
    name : str
        Name of the variable.
    reason : str
        Cause, as part of the error message.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


class ManifoldPacking:
    """Coordinates of each variable on its manifold.

    Parameters
    ----------
    variables : sequence of ManifoldVariable
    product : Product
    """

    def __init__(self, variables: Sequence[ManifoldVariable], product: Product) -> None:
        self._variables, self._product = variables, product

    def pack(self, point: PointType) -> np.ndarray:
        """Coordinates at a point; see `Packing`."""
        position = np.empty(self._product.size)
        for variable in self._variables:
            try:
                coordinates = variable.coordinates(point[variable.value_name])
            except ValueError as error:
                raise StartError(variable.name, str(error)) from error
            position[self._product.slices[variable.name]] = coordinates.ravel()
        return position

    def unpack(self, position: np.ndarray) -> Mapping[str, np.ndarray]:
        """Values of the value variables; see `Packing`."""
        return {
            variable.value_name: variable.values(
                position[self._product.slices[variable.name]]
            ).reshape(variable.value_shape)
            for variable in self._variables
        }


class CenteredPacking:
    """Packing of a model whose offsets are replaced by effects.

    Parameters
    ----------
    packing : Packing
        Packing of the model with effects.
    effects : CenteredEffects
    """

    def __init__(self, packing: Packing, effects: CenteredEffects) -> None:
        self._packing, self._effects = packing, effects

    def pack(self, point: PointType) -> np.ndarray:
        """Coordinates at a point with offsets; see `Packing`."""
        return self._packing.pack(self._effects.to_effects(point))

    def unpack(self, position: np.ndarray) -> Mapping[str, np.ndarray]:
        """Values of the value variables, with offsets; see `Packing`."""
        return self._effects.to_offsets(self._packing.unpack(position))


class LogPacking:
    """Logarithms of positive variables and of the components of simplices.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable
    product : Product
    """

    def __init__(
        self, model: Model, variables: Sequence[ManifoldVariable], product: Product
    ) -> None:
        self._model, self._variables, self._product = model, variables, product

    def pack(self, point: PointType) -> np.ndarray:
        """Logarithms at a point; see `Packing`."""
        position = np.empty(self._product.size)
        for variable in self._variables:
            logarithm = log_of_value(variable, self._model, np.asarray(point[variable.value_name]))
            position[self._product.slices[variable.name]] = logarithm.ravel()
        return position

    def unpack(self, position: np.ndarray) -> Mapping[str, np.ndarray]:
        """Values of the value variables; see `Packing`."""
        return {
            variable.value_name: value_of_log(
                variable,
                self._model,
                position[self._product.slices[variable.name]].reshape(variable.shape),
            )
            for variable in self._variables
        }
