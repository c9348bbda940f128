"""Products of a matrix and a vector as loops, where a call of BLAS costs more than the sum.

A minibatch has few rows and a model few columns. There the loops that PyTensor's Numba backend
fuses with their surroundings are faster than BLAS, which is called once per product, and none of
them starts threads.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph import node_rewriter
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

__all__ = ["with_loops_for_products"]

_MOST_ROWS = 128
"""Rows that are summed by a loop; with more of them BLAS, which takes several at a time, wins."""

_AFTER_CANONICALIZATION = 1.7


@node_rewriter([Dot])
def _product_as_loop(fgraph: Any, node: Apply) -> list[TensorVariable] | None:
    """Replace the product with a column, or with a row, by a sum of products."""
    left, right = node.inputs
    rows, columns = node.outputs[0].type.shape
    dtype = node.outputs[0].type.dtype
    exact = {"dtype": dtype, "acc_dtype": dtype}
    if rows == columns == 1:
        return [pt.sum(left[0] * right[:, 0], **exact)[None, None]]
    if columns == 1:
        matrix, vector = left, right[:, 0]
    elif rows == 1:
        matrix, vector = right.mT, left[0]
    else:
        return None
    operation = matrix.owner.op if matrix.owner is not None else None
    if isinstance(operation, DimShuffle) and operation.is_matrix_transpose:
        [stored] = matrix.owner.inputs
        if stored.type.shape[0] is None or stored.type.shape[0] > _MOST_ROWS:
            return None
        product = pt.sum(stored * vector[:, None], axis=0, **exact)
    else:
        product = pt.sum(matrix * vector, axis=1, **exact)
    return [product[:, None] if columns == 1 else product[None, :]]


def with_loops_for_products(mode: Mode) -> Mode:
    """Copy of a Numba mode that compiles products of a matrix and a vector into loops.

    Parameters
    ----------
    mode : pytensor.compile.mode.Mode

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.gradients.products import with_loops_for_products
    >>> matrix, vector = pt.dmatrix(), pt.dvector()
    >>> mode = with_loops_for_products(pytensor.compile.mode.get_mode("NUMBA"))
    >>> function = pytensor.function([matrix, vector], matrix @ vector, mode=mode)
    >>> function(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0]))
    array([12., 34.])
    """
    return mode.register((dfs_rewriter(_product_as_loop), _AFTER_CANONICALIZATION))
