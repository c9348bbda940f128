"""Variance of a gradient estimate, from the gradients of the single rows of a minibatch."""

from __future__ import annotations

from functools import singledispatch

import pytensor.tensor as pt
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.manifolds import (
    Euclidean,
    FlatSimplex,
    HalfLine,
    Manifold,
    Simplex,
    Sphere,
    Stiefel,
)
from pymc_geodesic.sparse import SparseTransposeDot

__all__ = ["sparse_variance", "tangential_variance"]


@singledispatch
def _project(
    manifold: Manifold, point: TensorVariable, vectors: TensorVariable
) -> tuple[TensorVariable, TensorVariable | None]:
    """Tangential part of the vectors, and the diagonal of the projector on the normal space."""
    return vectors, None


@_project.register
def _sphere(
    manifold: Sphere | Simplex, point: TensorVariable, vectors: TensorVariable
) -> tuple[TensorVariable, TensorVariable | None]:
    radial = pt.sum(point * vectors, axis=-1, keepdims=True)
    return vectors - radial * point, point**2


@_project.register
def _flat_simplex(
    manifold: FlatSimplex, point: TensorVariable, vectors: TensorVariable
) -> tuple[TensorVariable, TensorVariable | None]:
    mean = pt.mean(vectors, axis=-1, keepdims=True)
    return vectors - mean, pt.full_like(point, 1.0 / manifold.n)


@_project.register
def _stiefel(
    manifold: Stiefel, point: TensorVariable, vectors: TensorVariable
) -> tuple[TensorVariable, TensorVariable | None]:
    inner = point.mT @ vectors
    normal = 0.5 * (pt.sum(point**2, axis=-1, keepdims=True) + point**2)
    return vectors - point @ (0.5 * (inner + inner.mT)), normal


def tangential_variance(
    manifold: Manifold, point: TensorVariable, deviations: TensorVariable
) -> TensorVariable:
    r"""Mean square of each coordinate of tangent vectors, filled up in the normal space.

    Noise that is drawn for each ambient coordinate and then projected has the right law if its
    variances stand for the tangential covariance alone. With T that covariance, P the projector
    on the tangent space and m the dimension, the variances are

    .. math:: \operatorname{diag} T + \frac{\operatorname{tr} T}{m} \operatorname{diag}(I - P) ,

    which after projection is T again where T is a multiple of P, and where T is diagonal up to
    the projection, as for many coordinates.

    Parameters
    ----------
    manifold : Manifold
    point : TensorVariable, shape (..., *manifold.shape)
        Coordinates of the points.
    deviations : TensorVariable, shape (n, ..., *manifold.shape)
        Ambient vectors of mean zero.

    Returns
    -------
    TensorVariable, shape (..., *manifold.shape)

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.gradients.fisher import tangential_variance
    >>> from pymc_geodesic.manifolds import Sphere
    >>> radial_and_tangential = pt.constant([[9.0, 2.0, 0.0], [-9.0, 0.0, 2.0]])
    >>> tangential_variance(Sphere(3), pt.constant([1.0, 0.0, 0.0]), radial_and_tangential).eval()
    array([2., 2., 2.])
    """
    tangential, normal = _project(manifold, point, deviations)
    variance = pt.mean(tangential**2, axis=0)
    if normal is None:
        return variance
    axes = tuple(range(-len(manifold.shape), 0))
    mean = pt.sum(variance, axis=axes, keepdims=True) / manifold.dim
    return variance + mean * normal


def sparse_variance(manifold: Manifold, gradients: TensorVariable) -> TensorVariable | None:
    r"""Mean square of gradients that are sparse rows times a factor, less the square of the mean.

    With the rows x_i and g_i = x_i r_iᵀ this is

    .. math:: \frac1n (X \circ X)^\top (r \circ r) - \bigl(\tfrac1n X^\top r\bigr)^2 ,

    for which no g_i, which would be dense, is needed.

    Parameters
    ----------
    manifold : Manifold
    gradients : TensorVariable, shape (n, d) or (n, d, k)
        Gradient of every row.

    Returns
    -------
    TensorVariable or None
        Shape (d,) or (d, k); None for gradients of another form and manifolds with a constraint.
    """
    node = gradients.owner
    if node is None or not isinstance(manifold, Euclidean | HalfLine):
        return None
    if not (isinstance(node.op, Blockwise) and isinstance(node.op.core_op, SparseTransposeDot)):
        return None
    values, columns, rows, residuals = node.inputs
    if not all(each.type.shape[0] == 1 for each in (values, columns)):
        return None
    values, columns, rows, residuals = values[0], columns[0], rows[:, 0], residuals[:, 0]
    width, n = node.op.core_op.width, rows.shape[0]
    mean = SparseTransposeDot(width)(values, columns, rows, residuals) / n
    squares = SparseTransposeDot(width, squared=True)(values, columns, rows, residuals**2) / n
    return pt.maximum(squares - mean**2, 0.0)
