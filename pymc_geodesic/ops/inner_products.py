"""Inner products of many vectors, as plain matrix products wherever the shapes allow it."""

import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable


def without_leading_axes(variable: TensorVariable, ndim: int) -> TensorVariable | None:
    """Drop leading axes of length one until ``ndim`` are left.

    Parameters
    ----------
    variable : TensorVariable
    ndim : int
        Number of axes to keep.

    Returns
    -------
    TensorVariable or None
        None if the axes are fewer, or if one to be dropped is not known to have length one.
    """
    extra = variable.ndim - ndim
    if extra < 0 or not all(variable.type.broadcastable[:extra]):
        return None
    return variable.dimshuffle(*range(extra, variable.ndim))


def _as_rows(variable: TensorVariable) -> TensorVariable:
    """Flatten all axes but the last."""
    return variable.reshape((-1, variable.shape[-1])) if variable.ndim != 2 else variable


def matrix_product(vectors: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """Return ``vectors @ matrix`` through one 2-D product, if the matrix is a single one.

    Parameters
    ----------
    vectors : TensorVariable, shape (..., m)
    matrix : TensorVariable, shape (m, n) or (..., m, n)

    Returns
    -------
    TensorVariable, shape (..., n)
    """
    single = without_leading_axes(matrix, 2)
    if single is None:
        return pt.matmul(vectors[..., None, :], matrix)[..., 0, :]
    if vectors.ndim <= 2:
        product = pt.dot(vectors, single)
    else:
        product = pt.dot(_as_rows(vectors), single).reshape((*vectors.shape[:-1], single.shape[-1]))
    missing = matrix.ndim - 1 - product.ndim
    return pt.shape_padleft(product, missing) if missing > 0 else product


def inner_product(left: TensorVariable, right: TensorVariable) -> TensorVariable:
    """Return the inner products over the last axis; leading axes broadcast.

    Many vectors on the left against one on the right, or against a set of them along an axis
    where the left has length one (the components of a mixture), become one matrix product.

    Parameters
    ----------
    left, right : TensorVariable, shape (..., d)

    Returns
    -------
    TensorVariable, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.inner_products import inner_product
    >>> left, right = pt.as_tensor(np.eye(3)), pt.as_tensor([1.0, 2.0, 3.0])
    >>> inner_product(left, right).eval(mode="FAST_COMPILE")
    array([1., 2., 3.])
    """
    vector = without_leading_axes(right, 1)
    if vector is not None and left.ndim >= 2:
        product = pt.dot(_as_rows(left), vector)
        if left.ndim > 2:
            product = product.reshape(left.shape[:-1], ndim=left.ndim - 1)
        missing = right.ndim - left.ndim
        return pt.shape_padleft(product, missing) if missing > 0 else product
    components = without_leading_axes(right, 2)
    if components is not None and left.ndim >= max(right.ndim, 3) and left.type.broadcastable[-2]:
        product = pt.dot(_as_rows(left), components.T)
        return product.reshape((*left.shape[:-2], components.shape[0]), ndim=left.ndim - 1)
    return pt.sum(left * right, axis=-1)
