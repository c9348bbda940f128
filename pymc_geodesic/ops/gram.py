r"""Squared lengths of combinations of rows, through the Gram matrix, with lean gradients.

The gradient that PyTensor derives for :math:`\theta^\top B B^\top \theta` multiplies each matrix
twice, as if the two sides differed. The Ops here know that they do not.
"""

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor.blockwise import vectorize_node_fallback
from pytensor.tensor.symbolic import TensorSymbolicOp
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.inner_products import matrix_product


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
        """Return (G + Gᵀ) B for the gradient G: the rows are met by one product."""
        (rows,), (gradient,) = inputs, gradients
        return [pt.dot(gradient + gradient.T, rows)]


class SquaredLength(TensorSymbolicOp):
    """θᵀ G θ for weights θ, shape (..., k), and one symmetric G, shape (k, k)."""

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
        """Return the gradients; that in the weights takes up θ G of the value again."""
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
    """Take more weights at once as long as they share the Gram matrix."""
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
    >>> from pymc_geodesic.ops.gram import gram_matrix
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
    >>> from pymc_geodesic.ops.gram import squared_length
    >>> weights, gram = pt.as_tensor([[1.0, 1.0]]), pt.as_tensor([[5.0, 6.0], [6.0, 9.0]])
    >>> squared_length(weights, gram).eval(mode="FAST_COMPILE")
    array([26.])
    """
    return SquaredLength()(weights, gram)
