"""Logarithms of positive variables, from and to the values that PyMC keeps.

PyMC's own transforms of simplices and positive variables keep logarithms, so that a component far
below the smallest floating-point number survives in them. What a trace holds is the component
itself; it is written as no less than 10⁻³⁰⁷, so that it never becomes zero there.
"""

from __future__ import annotations

import math

import numpy as np
from pymc.logprob.transforms import LogTransform, SimplexTransform
from pymc.model import Model

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.manifolds import FlatSimplex

__all__ = ["LOG_SMALLEST", "log_of_value", "value_of_log"]

LOG_SMALLEST = math.log(1e-307)
"""Logarithm of the least component that is written."""


def log_of_value(variable: ManifoldVariable, model: Model, value: np.ndarray) -> np.ndarray:
    """Logarithm of a variable, from the value of a point; rows of a simplex up to a constant.

    Parameters
    ----------
    variable : ManifoldVariable
        On `FlatSimplex` or `HalfLine`.
    model : pymc.Model
    value : ndarray
        Of the shape of PyMC's value.

    Raises
    ------
    ValueError
        If the variable is zero, negative or not finite, or a simplex does not sum to one.
    """
    transform = model.rvs_to_transforms[variable.rv]
    if isinstance(transform, SimplexTransform | LogTransform) and not np.isfinite(value).all():
        raise ValueError(
            f"{variable.name} is zero, infinite or not defined in places; give all of "
            f"{variable.name} a positive initial value (initval=)"
        )
    if isinstance(transform, SimplexTransform):
        return np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    if isinstance(transform, LogTransform):
        return np.array(value, dtype=float)
    plain = variable.backward(np.asarray(value, dtype=float))
    variable.manifold.check(variable.name, plain.reshape(-1, *variable.manifold.shape))
    return np.log(np.maximum(plain, math.exp(LOG_SMALLEST)))


def value_of_log(variable: ManifoldVariable, model: Model, logarithm: np.ndarray) -> np.ndarray:
    """Inverse of `log_of_value`, for any rows whose exponentials are to be divided by their sum.

    Parameters
    ----------
    variable : ManifoldVariable
    model : pymc.Model
    logarithm : ndarray
        Of the shape of the variable.
    """
    if isinstance(variable.manifold, FlatSimplex):
        top = logarithm.max(axis=-1, keepdims=True)
        total = top + np.log(np.exp(logarithm - top).sum(axis=-1, keepdims=True))
        logarithm = logarithm - total
    logarithm = np.asarray(np.maximum(logarithm, LOG_SMALLEST))
    transform = model.rvs_to_transforms[variable.rv]
    if isinstance(transform, SimplexTransform):
        centred = logarithm - logarithm.mean(axis=-1, keepdims=True)
        # NumPy rounds exponentials of a view differently from those of the copy that another
        # process sends.
        return np.ascontiguousarray(centred[..., :-1])
    if isinstance(transform, LogTransform):
        return logarithm
    return np.asarray(variable.forward(np.exp(logarithm))).reshape(variable.value_shape)
