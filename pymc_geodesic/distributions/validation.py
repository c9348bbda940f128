"""Validation of arguments and data when a model is built, and of values when it is evaluated."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.distributions.fisher_bingham_draws import SYMMETRY_TOLERANCE
from pymc_geodesic.distributions.von_mises_fisher_draws import LENGTH_TOLERANCE, are_unit_vectors
from pymc_geodesic.runtime.missing_values import check_missing, missing_message

PACKAGE = str(Path(__file__).parents[1])
"""Folder of the package, which warnings skip to point to the caller."""

COMMON_ARGUMENTS = {
    "dims",  # PyMC raises, with the reason
    "dtype",
    "initval",  # PyMC raises, with the reason
    "name",
    "return_next_rng",
    "rng",
    "shape",
    "size",
}


@cache
def _minibatch_op() -> type:
    """Return the class of the Op behind `pymc.Minibatch`, which PyMC does not export."""
    return type(pm.Minibatch(np.zeros((2, 1)), batch_size=1).owner.op)


def is_minibatch(value: Any) -> bool:
    """Return whether a value is an output of `pymc.Minibatch`."""
    owner = value.owner if isinstance(value, Variable) else None
    return owner is not None and isinstance(owner.op, _minibatch_op())


def known_data(value: Any) -> NDArray[np.generic] | np.ma.MaskedArray | None:
    """Return the data of a value that is known when the graph is built.

    Parameters
    ----------
    value : array_like or Variable
        Array, PyTensor constant, shared variable (`pymc.Data`), or `pymc.Minibatch` of one.

    Returns
    -------
    ndarray or None
        All rows of the data; None for a value that is symbolic.
    """
    if not isinstance(value, Variable):
        return np.ma.asanyarray(value) if np.ma.isMaskedArray(value) else np.asarray(value)
    if isinstance(value, Constant):
        return np.asarray(value.data)
    if isinstance(value, SharedVariable):
        return np.asarray(value.get_value(borrow=True))
    if is_minibatch(value):
        return known_data(value.owner.inputs[value.owner.outputs.index(value)])
    return None


def known_shape(variable: TensorVariable) -> tuple[int, ...] | None:
    """Return the shape of a variable from lengths of dimensions and shapes of data containers.

    PyTensor's static shape has neither the length of a dimension of a model nor that of a data
    container, because both may change.

    Parameters
    ----------
    variable : TensorVariable

    Returns
    -------
    tuple of int or None
        None if the shape depends on a variable without a value.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.validation import known_shape
    >>> with pm.Model(coords={"class": ["low", "high"]}):
    ...     X = pm.Data("X", np.ones((5, 3)))
    ...     W = pm.Normal("W", shape=(3, 2))
    ...     b = pm.Normal("b", dims="class")
    >>> (X @ W + b).type.shape, known_shape(X @ W + b)
    ((None, 2), (5, 2))
    """
    if None not in variable.type.shape:
        return variable.type.shape
    shape = rewrite_graph(variable.shape, include=("ShapeOpt", "canonicalize"))
    for entry in graph_inputs([shape]):
        if isinstance(entry.type, RandomType) or not isinstance(entry, Constant | SharedVariable):
            return None
    return tuple(int(length) for length in shape.eval(mode="FAST_COMPILE"))


def last_length(shape: Any) -> int | None:
    """Return the last entry of a shape, if it is known when the model is built.

    Examples
    --------
    >>> from pymc_geodesic.distributions.validation import last_length
    >>> last_length((5, 3)), last_length(4), last_length(None)
    (3, 4, None)
    """
    if isinstance(shape, tuple | list):
        if not shape:
            return None
        shape = shape[-1]
    if shape is None or shape is Ellipsis:
        return None
    length = known_data(shape)
    if length is None or length.size == 0 or not np.issubdtype(length.dtype, np.integer):
        return None
    return int(length.reshape(-1)[-1])


def length_of_last_axis(*variables: TensorVariable) -> int | TensorVariable:
    """Return the length of the last axis: an int if it is static in one of the variables."""
    for variable in variables:
        if variable.type.shape[-1] is not None:
            return int(variable.type.shape[-1])
    return variables[0].shape[-1]


def require_known_arguments(cls: type, kwargs: dict[str, Any]) -> None:
    """Raise for arguments that a distribution does not have, which PyMC and PyTensor ignore.

    Parameters
    ----------
    cls : type
        The distribution.
    kwargs : dict
        Keyword arguments of its ``dist`` other than the parameters.

    Raises
    ------
    TypeError
        If there are unknown arguments; the message has their names.
    """
    unknown = sorted(set(kwargs) - COMMON_ARGUMENTS)
    if unknown:
        raise TypeError(
            f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}; "
            "its documentation lists its parameters"
        )


def unit_points(points: Any) -> NDArray[np.float64] | sparse.csr_array:
    """Return points on the sphere, dense or sparse, as float64; raise ValueError for others."""
    check_missing("points", points)
    if sparse.issparse(points):
        rows = sparse.csr_array(points, dtype=float)
        squared = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        is_unit = are_unit_vectors(np.sqrt(squared)[:, None])
    else:
        rows = np.asarray(points, dtype=float)
        is_unit = are_unit_vectors(rows) if rows.ndim == 2 else np.ones(1, dtype=bool)
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise ValueError(
            "points must be a matrix (point, coordinate) of at least one point and two "
            f"coordinates, got shape {rows.shape}"
        )
    if not is_unit.all():
        worst = int(np.argmin(is_unit))
        raise ValueError(
            f"{np.sum(~is_unit)} of the {len(is_unit)} points are no unit vectors, the first of "
            f"them points[{worst}]: divide each row by its length, and drop rows of zeros"
        )
    return rows


def require_unit_rows(name: str, observed: Any) -> None:
    """Raise if observed data that are known are not unit vectors.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (..., d)
        Argument ``observed``.

    Raises
    ------
    TypeError
        If the data are a sparse matrix.
    ValueError
        If a row is missing, zero, infinite, or not of length one.
    """
    if hasattr(observed, "toarray"):
        raise TypeError(
            f"the observed data of {name!r} are a sparse matrix; pass a dense array, for example "
            "observed.toarray()"
        )
    data = known_data(observed)
    if data is None or data.ndim == 0:
        return
    mask = np.ma.getmaskarray(data).any(axis=-1) | np.isnan(np.ma.getdata(data)).any(axis=-1)
    if mask.any():
        remedy = "drop these rows, as directions cannot be imputed one coordinate at a time"
        raise ValueError(
            missing_message(f"the observed data of {name!r} have", f" in {_first(mask)}", remedy)
        )
    wrong = ~are_unit_vectors(data)
    if not wrong.any():
        return
    lengths = np.linalg.norm(np.asarray(data, dtype=float), axis=-1)
    zero = lengths == 0
    if zero.any():
        raise ValueError(
            f"the observed data of {name!r} have an all-zero vector, which has no direction, in "
            f"{_first(zero)}; drop these rows (for documents: those left without words)"
        )
    raise ValueError(
        f"the observed data of {name!r} must be unit vectors along the last axis, but the length "
        f"is {lengths[wrong].flat[0]:.6g} in {_first(wrong)}; divide each vector by its length: "
        "x / np.linalg.norm(x, axis=-1, keepdims=True)"
    )


def _first(where: NDArray[np.bool_]) -> str:
    """Return the first true position and the number of true ones as text."""
    count = int(where.sum())
    if where.ndim == 0:
        return "the vector"
    position = ", ".join(str(i) for i in np.unravel_index(int(where.argmax()), where.shape))
    return f"row {position}" + (f" (and {count - 1} more)" if count > 1 else "")


def has_unit_length(vectors: TensorVariable) -> TensorVariable:
    """Return symbolically whether each vector has length one, to single precision.

    Parameters
    ----------
    vectors : TensorVariable, shape (..., d)

    Returns
    -------
    TensorVariable of bool, shape (...)
    """
    return pt.abs(pt.sum(vectors**2, axis=-1) - 1.0) <= 2.0 * LENGTH_TOLERANCE


def minus_infinity_off_sphere(value: TensorVariable, log_density: TensorVariable) -> TensorVariable:
    """Return the log-density, minus infinity for values that are not unit vectors.

    Data that are known to be unit vectors are not tested at each evaluation: the test takes 40 % of
    the time of the log-density itself (20,000 vectors, d = 50).

    Parameters
    ----------
    value : TensorVariable, shape (..., d)
        Argument of the density.
    log_density : TensorVariable, shape (...)
        The log-density on the sphere.

    Returns
    -------
    TensorVariable, shape (...)
    """
    data = known_data(value)
    if data is not None and np.all(are_unit_vectors(data)):
        return log_density
    return pt.switch(has_unit_length(value), log_density, -np.inf)


def is_symmetric(matrix: TensorVariable) -> TensorVariable:
    """Return symbolically whether each matrix is symmetric, to single precision.

    Parameters
    ----------
    matrix : TensorVariable, shape (..., d, d)

    Returns
    -------
    TensorVariable of bool, shape (...)
    """
    scale = pt.max(pt.abs(matrix), axis=(-2, -1), keepdims=True)
    return pt.all(pt.abs(matrix - matrix.mT) <= SYMMETRY_TOLERANCE * scale, axis=(-2, -1))


def require_square(matrix: TensorVariable, parameter: str, distribution: str) -> None:
    """Raise ``ValueError`` if a parameter is known not to be a square matrix of 2 rows or more."""
    rows, columns = matrix.type.shape[-2:] if matrix.type.ndim >= 2 else (0, 0)
    known = {length for length in (rows, columns) if length is not None}
    if len(known) > 1 or any(length < 2 for length in known):
        raise ValueError(
            f"{parameter} of {distribution} must be a square matrix (last two axes) of at least 2 "
            f"rows, but has the static shape {matrix.type.shape}"
        )
