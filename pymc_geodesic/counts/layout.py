"""Layout of the vector log θ of all Dirichlet, Gamma and LogNormal variables of a step.

The layout maps coordinates to variables and converts values between PyMC and the vector. PyMC's
transforms of simplices and positive variables are logarithmic, so that components below the
smallest floating-point number are preserved. A trace contains the components themselves, with a
lower bound of 10⁻³⁰⁷, so that they are never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from pymc.logprob.transforms import LogTransform, SimplexTransform
from pymc.model import Model
from pytensor.tensor.random.basic import DirichletRV, GammaRV, LogNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.kernels.counts import LOG_NORMAL, POSITIVE, SIMPLEX, values_from_logs
from pymc_geodesic.manifolds import FlatSimplex

LOG_SMALLEST = math.log(1e-307)
"""Logarithm of the smallest component of a trace."""

_FAMILIES = {DirichletRV: "Dirichlet", GammaRV: "Gamma", LogNormalRV: "LogNormal"}


def family_of(rv: TensorVariable) -> str | None:
    """Name of the distribution of a variable: Dirichlet, Gamma, LogNormal, or None for others."""
    op = None if rv.owner is None else rv.owner.op
    return next((name for kind, name in _FAMILIES.items() if isinstance(op, kind)), None)


def layout_table(variables: Sequence[ManifoldVariable]) -> np.ndarray:
    """Create the table of the variables for the kernels.

    Parameters
    ----------
    variables : sequence of ManifoldVariable

    Returns
    -------
    ndarray of int64, shape (n_variables, 4)
        Kind, first coordinate, rows and coordinates per row; see `pymc_geodesic.kernels.counts`.
    """
    table, start = [], 0
    for variable in variables:
        if isinstance(variable.manifold, FlatSimplex):
            entry = SIMPLEX, start, variable.rows, variable.manifold.n
        else:
            kind = LOG_NORMAL if family_of(variable.rv) == "LogNormal" else POSITIVE
            entry = kind, start, 1, variable.manifold.size
        table.append(entry)
        start += entry[2] * entry[3]
    return np.array(table, dtype=np.int64)


class CountLayout:
    """Coordinates of each variable in the vector of a step.

    Parameters
    ----------
    table : ndarray of int64, shape (n_variables, 4)
        Kind, first coordinate, rows and coordinates per row of each variable; see `layout_table`.

    Attributes
    ----------
    table : ndarray of int64, shape (n_variables, 4)
    size : int
        Number of coordinates.
    parts : list of slice
        Coordinates of each variable.
    is_simplex, is_log_normal : ndarray of bool, shape (size,)
        Kind of the variable of each coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.counts.layout import CountLayout
    >>> layout = CountLayout(np.array([[0, 0, 2, 3], [1, 6, 1, 2]]))
    >>> layout.row_sums(np.arange(8.0))
    array([ 3.,  3.,  3., 12., 12., 12.,  0.,  0.])
    """

    def __init__(self, table: np.ndarray) -> None:
        self.table = table
        lengths = table[:, 2] * table[:, 3]
        self.size = int(lengths.sum())
        self.parts = [
            slice(int(start), int(start + length))
            for start, length in zip(table[:, 1], lengths, strict=True)
        ]
        self.is_simplex = self.by_coordinate(table[:, 0] == SIMPLEX)
        self.is_log_normal = self.by_coordinate(table[:, 0] == LOG_NORMAL)

    def by_coordinate(self, by_variable: np.ndarray) -> np.ndarray:
        """Repeat one value per variable for each of its coordinates, shape (size,)."""
        return np.repeat(by_variable, self.table[:, 2] * self.table[:, 3])

    def simplices(self) -> Iterator[tuple[slice, int, int]]:
        """Coordinates, rows and coordinates per row of each Dirichlet variable."""
        for part, (kind, _, rows, width) in zip(self.parts, self.table, strict=True):
            if kind == SIMPLEX:
                yield part, int(rows), int(width)

    def row_sums(self, vector: np.ndarray) -> np.ndarray:
        """Sum over the simplex row of each coordinate, shape (size,); zero for other variables."""
        sums = np.zeros(vector.size)
        for part, rows, width in self.simplices():
            sums[part] = np.repeat(vector[part].reshape(rows, width).sum(axis=1), width)
        return sums

    def values(self, log_state: np.ndarray) -> np.ndarray:
        """Compute the variables at log θ, shape (size,): θ / Σθ for simplex rows, θ otherwise."""
        values = np.empty(self.size)
        values_from_logs(self.table, log_state, values)
        return values


def log_of_value(variable: ManifoldVariable, model: Model, value: np.ndarray) -> np.ndarray:
    """Compute the logarithm of a variable from PyMC's value; simplex rows up to a constant.

    Parameters
    ----------
    variable : ManifoldVariable
        Variable on `FlatSimplex` or `HalfLine`.
    model : pymc.Model
    value : ndarray
        Value, in the shape of the value variable.

    Raises
    ------
    ValueError
        If the variable is zero, negative or not finite, or a simplex row does not sum to one.
    """
    transform = model.rvs_to_transforms[variable.rv]
    if isinstance(transform, SimplexTransform | LogTransform) and not np.isfinite(value).all():
        raise ValueError(
            f"{variable.name} is zero, infinite or undefined in some components. Set a positive "
            f"initial value (initval=) for all components of {variable.name}"
        )
    if isinstance(transform, SimplexTransform):
        return np.concatenate([value, -value.sum(axis=-1, keepdims=True)], axis=-1)
    if isinstance(transform, LogTransform):
        return np.array(value, dtype=float)
    plain = variable.backward(np.asarray(value, dtype=float))
    variable.manifold.check(variable.name, plain.reshape(-1, *variable.manifold.shape))
    return np.log(np.maximum(plain, math.exp(LOG_SMALLEST)))


def value_of_log(variable: ManifoldVariable, model: Model, logarithm: np.ndarray) -> np.ndarray:
    """Compute PyMC's value of a variable from logarithms: the inverse of `log_of_value`.

    Parameters
    ----------
    variable : ManifoldVariable
    model : pymc.Model
    logarithm : ndarray
        Logarithms, in the shape of the variable. Exponentials of simplex rows are normalized.
    """
    if isinstance(variable.manifold, FlatSimplex):
        largest = logarithm.max(axis=-1, keepdims=True)
        total = largest + np.log(np.exp(logarithm - largest).sum(axis=-1, keepdims=True))
        logarithm = logarithm - total
    logarithm = np.asarray(np.maximum(logarithm, LOG_SMALLEST))
    transform = model.rvs_to_transforms[variable.rv]
    if isinstance(transform, SimplexTransform):
        centered = logarithm - logarithm.mean(axis=-1, keepdims=True)
        # NumPy rounds exponentials of a view differently from those of the copy that another
        # process sends.
        return np.ascontiguousarray(centered[..., :-1])
    if isinstance(transform, LogTransform):
        return logarithm
    return np.asarray(variable.forward(np.exp(logarithm))).reshape(variable.value_shape)
