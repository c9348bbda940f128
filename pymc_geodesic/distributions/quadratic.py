"""What densities with a quadratic form in the exponent have in common."""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.distributions.shape_utils import rv_size_is_none
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.quadratic_draws import SYMMETRY_TOLERANCE
from pymc_geodesic.ops.inner_products import matrix_product
from pymc_geodesic.ops.quadratic_moments import matrix_moments


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


def quadratic_form(vectors: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """Return xᵀ A x, shape (...), of vectors of shape (..., d) and matrices (..., d, d)."""
    return pt.sum(matrix_product(vectors, matrix) * vectors, axis=-1)


def require_square(matrix: TensorVariable, parameter: str, distribution: str) -> None:
    """Raise ``ValueError`` if a parameter is known not to be a square matrix of 2 rows or more."""
    rows, columns = matrix.type.shape[-2:] if matrix.type.ndim >= 2 else (0, 0)
    known = {length for length in (rows, columns) if length is not None}
    if len(known) > 1 or any(length < 2 for length in known):
        raise ValueError(
            f"{parameter} of {distribution} must be a square matrix (last two axes) of at least 2 "
            f"rows, but has the static shape {matrix.type.shape}"
        )


def matrix_of_axes(A: Any, axes: Any, concentrations: Any, distribution: str) -> Any:
    """Return A, or axes · diag(concentrations) · axesᵀ where these are given instead.

    Raises
    ------
    TypeError
        If both or neither are given.
    ValueError
        If the axes are known not to be square, or not to be as many as the concentrations.
    """
    if (axes is None) != (concentrations is None) or (A is None) == (axes is None):
        raise TypeError(f"{distribution} takes either A, or axes= and concentrations= together")
    if A is not None:
        return A
    columns, weights = pt.as_tensor(axes), pt.as_tensor(concentrations)
    require_square(columns, "axes", distribution)
    if weights.type.ndim == 0:
        raise ValueError(
            f"concentrations of {distribution} must hold one number for each axis, not one for all"
        )
    lengths = {*columns.type.shape[-2:], weights.type.shape[-1]} - {None}
    if len(lengths) > 1:
        raise ValueError(
            f"axes of {distribution} has {columns.type.shape[-1]} columns, but there are "
            f"{weights.type.shape[-1]} concentrations: each column needs its own"
        )
    return (columns * weights[..., None, :]) @ columns.mT


def leading_axis(matrix: TensorVariable) -> TensorVariable:
    """Return a unit eigenvector of the largest eigenvalue, shape (..., d)."""
    return pt.linalg.eigh(matrix)[1][..., :, -1]


def of_size(point: TensorVariable, size: TensorVariable) -> TensorVariable:
    """Repeat a point to the size of a random variable."""
    if rv_size_is_none(size):
        return point
    return pt.full(pt.concatenate([size, [point.shape[-1]]]), point)


def fisher_bingham_moments(
    A: ArrayLike, b: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    r"""Integral and moments of :math:`e^{x^\top A x + b^\top x}` on the sphere, for NumPy arrays.

    Watson, Bingham, Kent and Fisher–Bingham distributions are of this form. For PyTensor variables
    see `pymc_geodesic.ops.quadratic_ops.matrix_integral`.

    Parameters
    ----------
    A : array_like of float, shape (..., d, d)
        Symmetric matrices.
    b : array_like of float, shape (..., d)
        Vectors.

    Returns
    -------
    log_integral : ndarray, shape (...)
        With respect to surface measure; relative error below 1e-13, and absolute below one.
    mean : ndarray, shape (..., d)
        E x.
    second : ndarray, shape (..., d, d)
        E x xᵀ.

    References
    ----------
    Kume and Wood (2005), Saddlepoint approximations for the Bingham and Fisher–Bingham normalising
    constants, Biometrika 92(2), section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.quadratic import fisher_bingham_moments
    >>> log_integral, mean, second = fisher_bingham_moments(np.zeros((3, 3)), [0.0, 0.0, 2.0])
    >>> float(mean[2])  # coth(2) - 1/2
    0.537314...
    """
    matrices, vectors = np.asarray(A, dtype=float), np.asarray(b, dtype=float)
    batch = np.broadcast_shapes(matrices.shape[:-2], vectors.shape[:-1])
    d = vectors.shape[-1]
    matrices, vectors = (
        np.broadcast_to(matrices, (*batch, d, d)),
        np.broadcast_to(vectors, (*batch, d)),
    )
    log_integral, mean = np.empty(batch), np.empty((*batch, d))
    second = np.empty((*batch, d, d))
    for i in np.ndindex(batch):
        log_integral[i], mean[i], second[i] = matrix_moments(
            np.ascontiguousarray(matrices[i]), np.ascontiguousarray(vectors[i])
        )
    return log_integral, mean, second
