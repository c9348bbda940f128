"""Empirical Fisher estimate of the variance of minibatch gradients, from those of single rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.sparse import SparseTransposeDot

_MAX_FISHER_SIZE = 2**27
"""Maximum number of elements of the gradients of the rows of a minibatch: 1 GiB."""


def row_variances(
    gradients: Sequence[TensorVariable],
    blocks: Mapping[Variable, TensorVariable],
    variables: Sequence[ManifoldVariable],
    coordinates: Sequence[TensorVariable],
    batch_size: int,
) -> list[TensorVariable]:
    """Compute the variance of the gradients of the rows of a minibatch, for each coordinate.

    Parameters
    ----------
    gradients : list of TensorVariable
        Gradients of a block of one row.
    blocks : mapping of Variable to TensorVariable
        Block of a minibatch, shape (n, ...), by the input of one row, shape (1, ...).
    variables : list of ManifoldVariable
    coordinates : list of TensorVariable
    batch_size : int
        n.

    Returns
    -------
    list of TensorVariable
        Variances, in the shapes of the coordinates.

    Raises
    ------
    ValueError
        If the gradients of all rows do not fit in memory.
    """
    replacements = {row: pt.expand_dims(block, 1) for row, block in blocks.items()}
    # Shapes that are computed from the block would be vectorized over rows, which PyTensor runs in
    # Python. As constants they do not depend on rows.
    gradients = rewrite_graph(list(gradients), include=("ShapeOpt", "canonicalize"), clone=False)
    variances = []
    for variable, gradient, coordinate in zip(
        variables, vectorize_graph(gradients, replace=replacements), coordinates, strict=True
    ):
        if gradient.ndim == coordinate.ndim:  # does not depend on rows
            variances.append(pt.zeros_like(coordinate))
            continue
        variance = _sparse_variance(variable.manifold, gradient)
        if variance is None:
            size = batch_size * variable.manifold.size * variable.rows
            if size > _MAX_FISHER_SIZE:
                raise ValueError(
                    f'gradient_noise="fisher" needs the gradient of each row with respect to '
                    f"{variable.name!r}, {size} numbers (limit: {_MAX_FISHER_SIZE}). Omit "
                    "gradient_noise=, or use a smaller batch_size"
                )
            centered = gradient - gradient.mean(axis=0)
            variance = tangential_variance(variable.manifold, coordinate, centered)
        variances.append(variance)
    return variances


def tangential_variance(
    manifold: Manifold, point: TensorVariable, deviations: TensorVariable
) -> TensorVariable:
    r"""Compute the mean square of each coordinate of tangent vectors, with a normal part.

    Noise is drawn for each ambient coordinate and then projected. To have the tangential covariance
    T after the projection, with P the projector on the tangent space and m the dimension, its
    variances are

    .. math:: \operatorname{diag} T + \frac{\operatorname{tr} T}{m} \operatorname{diag}(I - P) ,

    After projection this is T if T is a multiple of P, or diagonal up to the projection, as for
    many coordinates.

    Parameters
    ----------
    manifold : Manifold
    point : TensorVariable, shape (..., *manifold.shape)
        Coordinates of the points.
    deviations : TensorVariable, shape (n, ..., *manifold.shape)
        Ambient vectors with mean zero.

    Returns
    -------
    TensorVariable, shape (..., *manifold.shape)

    Raises
    ------
    NotImplementedError
        If the manifold has no projection of symbolic vectors.

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
    variance = pt.mean(manifold.project(point, deviations, xp=pt) ** 2, axis=0)
    if manifold.dim == manifold.size:
        return variance
    axes = tuple(range(-len(manifold.shape), 0))
    mean = pt.sum(variance, axis=axes, keepdims=True) / manifold.dim
    return variance + mean * manifold.normal_diagonal(point, xp=pt)


def _sparse_variance(manifold: Manifold, gradients: TensorVariable) -> TensorVariable | None:
    r"""Compute the variance of gradients that are products of sparse rows and a factor.

    With the rows x_i and g_i = x_i r_iᵀ this is

    .. math:: \frac1n (X \circ X)^\top (r \circ r) - \bigl(\tfrac1n X^\top r\bigr)^2 ,

    which does not need the g_i, which would be dense.

    Parameters
    ----------
    manifold : Manifold
    gradients : TensorVariable, shape (n, d) or (n, d, k)
        Gradient of every row.

    Returns
    -------
    TensorVariable or None
        Variance, shape (d,) or (d, k). None for gradients of another form, and for manifolds with a
        constraint.
    """
    node = gradients.owner
    if node is None or manifold.is_constrained:
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
