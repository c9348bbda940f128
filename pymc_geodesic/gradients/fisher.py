"""Variance of a gradient estimate, from the gradients of the single rows of a minibatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.sparse import SparseTransposeDot


def for_each_row(
    gradients: Sequence[TensorVariable], replacements: Mapping[Variable, Variable]
) -> list[TensorVariable]:
    """Gradients of every row of a block, from those of a block of one row.

    Parameters
    ----------
    gradients : list of TensorVariable
    replacements : mapping
        The block of one row, shape (1, ...), to what has a row more in front, (n, 1, ...).

    Returns
    -------
    list of TensorVariable
        With an axis of length n in front where they depend on the block.
    """
    # What has the shape of a block is computed from that of the block, and a shape for each row
    # makes PyTensor run such nodes in Python. As constants the shapes are of no row.
    gradients = rewrite_graph(list(gradients), include=("ShapeOpt", "canonicalize"), clone=False)
    return vectorize_graph(gradients, replace=dict(replacements))


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

    Raises
    ------
    NotImplementedError
        If the manifold does not say how it projects symbolic vectors.

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
