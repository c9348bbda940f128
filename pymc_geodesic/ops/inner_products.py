"""Inner products and Gram matrices as plain matrix products, with lean gradients."""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.blockwise import vectorize_node_fallback
from pytensor.tensor.symbolic import TensorSymbolicOp
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
        None if there are fewer axes, or an axis to be dropped does not have static length one.
    """
    extra = variable.ndim - ndim
    if extra < 0 or not all(variable.type.broadcastable[:extra]):
        return None
    return variable.dimshuffle(*range(extra, variable.ndim))


def _as_rows(variable: TensorVariable) -> TensorVariable:
    """Flatten all axes but the last."""
    return variable.reshape((-1, variable.shape[-1])) if variable.ndim != 2 else variable


def matrix_product(vectors: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """Return ``vectors @ matrix`` by one 2-D product, if there is a single matrix.

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

    The products of many vectors on the left with one on the right, or with a set of vectors along
    an axis of length one on the left (the components of a mixture), are one matrix product.

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


def quadratic_form(vectors: TensorVariable, matrix: TensorVariable) -> TensorVariable:
    """Return xᵀ A x, shape (...), of vectors of shape (..., d) and matrices (..., d, d)."""
    return pt.sum(matrix_product(vectors, matrix) * vectors, axis=-1)


class GramMatrix(TensorSymbolicOp):
    """The products of all pairs of rows, B Bᵀ of B, shape (k, v)."""

    inline = True

    def build_inner_graph(self, rows: TensorVariable) -> list[TensorVariable]:
        """Return the (k, k) matrix."""
        return [pt.dot(rows, rows.T)]

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        gradients: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        """Return (G + Gᵀ) B for the gradient G, one product with the rows."""
        (rows,), (gradient,) = inputs, gradients
        return [pt.dot(gradient + gradient.T, rows)]


class SquaredLength(TensorSymbolicOp):
    """Squared length θᵀ G θ for weights θ, shape (..., k), and one symmetric G, shape (k, k)."""

    inline = True

    def build_inner_graph(
        self, weights: TensorVariable, gram: TensorVariable
    ) -> list[TensorVariable]:
        """Return the squared lengths, shape (...)."""
        return [pt.sum(matrix_product(weights, gram) * weights, axis=-1)]

    def pullback(
        self,
        inputs: Sequence[TensorVariable],
        outputs: Sequence[TensorVariable],
        gradients: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        """Return the gradients; that in the weights reuses θ G of the value."""
        (weights, gram), (gradient,) = inputs, gradients
        weighted = gradient[..., None] * weights
        k = weights.shape[-1]
        return [
            2.0 * gradient[..., None] * matrix_product(weights, gram),
            pt.dot(weighted.reshape((-1, k)).T, weights.reshape((-1, k))),
        ]


@_vectorize_node.register(SquaredLength)
def vectorize_squared_length(
    op: SquaredLength, node: Apply, weights: TensorVariable, gram: TensorVariable
) -> Apply:
    """Batch the weights if they share the Gram matrix."""
    if gram.type.ndim > 2:
        return vectorize_node_fallback(op, node, weights, gram)
    return squared_length(weights, gram).owner


def gram_matrix(rows: TensorVariable) -> TensorVariable:
    """Return the Gram matrix of the rows.

    Parameters
    ----------
    rows : TensorVariable, shape (k, v)

    Returns
    -------
    TensorVariable, shape (k, k)

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.inner_products import gram_matrix
    >>> gram_matrix(pt.as_tensor([[1.0, 2.0], [0.0, 3.0]])).eval(mode="FAST_COMPILE")
    array([[5., 6.],
           [6., 9.]])
    """
    return GramMatrix()(rows)


def squared_length(weights: TensorVariable, gram: TensorVariable) -> TensorVariable:
    r"""Return :math:`\theta^\top G\, \theta`.

    Parameters
    ----------
    weights : TensorVariable, shape (..., k)
    gram : TensorVariable, shape (k, k)
        Symmetric; the gradient is wrong if it is not.

    Returns
    -------
    TensorVariable, shape (...)

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.inner_products import squared_length
    >>> weights, gram = pt.as_tensor([[1.0, 1.0]]), pt.as_tensor([[5.0, 6.0], [6.0, 9.0]])
    >>> squared_length(weights, gram).eval(mode="FAST_COMPILE")
    array([26.])
    """
    return SquaredLength()(weights, gram)
