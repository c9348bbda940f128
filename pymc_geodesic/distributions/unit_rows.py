"""Data that must hold unit vectors: checked when they are known, else by the log-density."""

from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.draws import LENGTH_TOLERANCE, are_unit_vectors
from pymc_geodesic.runtime.missing_values import missing_message


@cache
def _minibatch_op() -> type:
    """Return the class of the Op behind `pymc.Minibatch`, which PyMC does not export."""
    return type(pm.Minibatch(np.zeros((2, 1)), batch_size=1).owner.op)


def is_minibatch(value: Any) -> bool:
    """Say whether a value is an output of `pymc.Minibatch`."""
    owner = value.owner if isinstance(value, Variable) else None
    return owner is not None and isinstance(owner.op, _minibatch_op())


def known_data(value: Any) -> NDArray[np.generic] | np.ma.MaskedArray | None:
    """Return the numbers behind a value, where they are known while the graph is built.

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


def require_unit_rows(name: str, observed: Any) -> None:
    """Reject observed data that are not unit vectors, as far as their numbers are known.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    observed : array_like or Variable, shape (..., d)
        What the user passed as ``observed``.

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
    """Name the first True position and the number of them."""
    count = int(where.sum())
    if where.ndim == 0:
        return "the vector"
    position = ", ".join(str(i) for i in np.unravel_index(int(where.argmax()), where.shape))
    return f"row {position}" + (f" (and {count - 1} more)" if count > 1 else "")


def minus_infinity_off_sphere(value: TensorVariable, log_density: TensorVariable) -> TensorVariable:
    """Give values that are not unit vectors the log-density minus infinity.

    Data that are known to be unit vectors are not tested again at every evaluation: the test
    reads them all, which costs 40 % of the log-density itself (20,000 vectors, d = 50).

    Parameters
    ----------
    value : TensorVariable, shape (..., d)
        Where the density is evaluated.
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
