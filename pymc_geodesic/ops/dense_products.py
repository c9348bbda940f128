"""Products of dense matrices and vectors in Numba mode: plain loops, or one call of BLAS.

The gradient of a regression multiplies a block of rows by a vector, and a vector by the block. A
minibatch has few rows and a model few columns, for which plain loops are faster than BLAS.
PyTensor's `Dot` reshapes each vector to a matrix of one column, which slows down the operations
that follow, too.

For larger products of float64, PyTensor compiles the choice of strides and copies for each
combination of memory layouts anew, in every function with a product: more than half of the
compilation time of a topic model. `MatrixMatrix` makes that choice in one function that is compiled
once for all models and called by its address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.graph import node_rewriter
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import dfs_rewriter
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.runtime.blas import multiply, prepare

_MAX_SIZE = 2**20
"""Maximum size of a matrix for plain loops; above it BLAS is faster, and may use threads."""

_UNKNOWN_LENGTH = 2048
"""Assumed length of an axis that is not static; such rows are evaluated in chunks."""

_AFTER_CANONICALIZATION = 1.7


class MatrixMatrix(LoopOp, Op):
    """The product of two matrices of float64, in C order.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.dense_products import MatrixMatrix
    >>> left, right = pt.dmatrix(), pt.dmatrix()
    >>> function = pytensor.function([left, right], MatrixMatrix()(left, right.T), mode="NUMBA")
    >>> function(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]))
    array([[11., 17.]])
    """

    __props__ = ()

    def make_node(self, left: TensorVariable, right: TensorVariable) -> Apply:
        """Build the node."""
        shape = (left.type.shape[0], right.type.shape[1])
        return Apply(self, [left, right], [pt.tensor(dtype="float64", shape=shape)])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the product."""
        return [(shapes[0][0], shapes[1][1])]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in NumPy."""
        outputs[0][0] = np.ascontiguousarray(inputs[0] @ inputs[1])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of BLAS."""
        prepare()  # once, before chains fork

        @njit
        def product(left, right):  # type: ignore[no-untyped-def]
            result = np.empty((left.shape[0], right.shape[1]))
            if left.shape[1] != right.shape[0]:
                raise ValueError("a product of matrices whose inner lengths differ")
            multiply(left, right, result)
            return result

        return product


class MatrixVector(LoopOp, Op):
    """The product of a matrix and a vector, one sum for each row."""

    __props__ = ()

    def make_node(self, matrix: TensorVariable, vector: TensorVariable) -> Apply:
        """Build the node."""
        dtype = np.promote_types(matrix.type.dtype, vector.type.dtype)
        output = pt.tensor(dtype=str(dtype), shape=matrix.type.shape[:1])
        return Apply(self, [matrix, vector], [output])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the product."""
        return [shapes[0][:1]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in NumPy."""
        outputs[0][0] = inputs[0] @ inputs[1]

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype

        @njit
        def product(matrix, vector):  # type: ignore[no-untyped-def]
            rows, columns = matrix.shape
            result = np.empty(rows, dtype)
            for i in range(rows):
                total = dtype.type(0)
                for j in range(columns):
                    total += matrix[i, j] * vector[j]
                result[i] = total
            return result

        return product


class VectorMatrix(LoopOp, Op):
    """The product of a vector and a matrix, which reads the matrix by rows, four at a time."""

    __props__ = ()

    def make_node(self, vector: TensorVariable, matrix: TensorVariable) -> Apply:
        """Build the node."""
        dtype = np.promote_types(matrix.type.dtype, vector.type.dtype)
        output = pt.tensor(dtype=str(dtype), shape=matrix.type.shape[1:])
        return Apply(self, [vector, matrix], [output])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the product."""
        return [shapes[1][1:]]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in NumPy."""
        outputs[0][0] = inputs[0] @ inputs[1]

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows, four at a time."""
        dtype = node.outputs[0].type.numpy_dtype

        @njit
        def product(vector, matrix):  # type: ignore[no-untyped-def]
            rows, columns = matrix.shape
            result = np.zeros(columns, dtype)
            last = rows - rows % 4
            for i in range(0, last, 4):
                a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
                for j in range(columns):
                    result[j] += (
                        a * matrix[i, j]
                        + b * matrix[i + 1, j]
                        + c * matrix[i + 2, j]
                        + d * matrix[i + 3, j]
                    )
            for i in range(last, rows):
                for j in range(columns):
                    result[j] += vector[i] * matrix[i, j]
            return result

        return product


@node_rewriter([Dot])
def _product_as_loop(fgraph: Any, node: Apply) -> list[TensorVariable] | None:
    """Replace the product with a matrix of one column, or of one row."""
    left, right = node.inputs
    rows, columns = node.outputs[0].type.shape
    dtype = node.outputs[0].type.dtype
    if rows == columns == 1:
        product = pt.sum(left[0] * right[:, 0], dtype=dtype, acc_dtype=dtype)
        return [product[None, None]]
    if columns == 1:
        matrix, vector = left, right[:, 0]
    elif rows == 1:
        matrix, vector = right.mT, left[0]
    else:
        return _by_blas(left, right)
    shape = [_UNKNOWN_LENGTH if length is None else length for length in matrix.type.shape]
    if shape[0] * shape[1] > _MAX_SIZE or np.dtype(dtype).kind != "f":
        return _by_blas(left, right)
    operation = matrix.owner.op if matrix.owner is not None else None
    if isinstance(operation, DimShuffle) and operation.is_matrix_transpose:
        product = VectorMatrix()(vector, *matrix.owner.inputs)
    else:
        product = MatrixVector()(matrix, vector)
    return [product[:, None] if columns == 1 else product[None, :]]


def _by_blas(left: TensorVariable, right: TensorVariable) -> list[TensorVariable] | None:
    """Return the product by BLAS if both matrices are float64."""
    if left.type.dtype == right.type.dtype == "float64":
        return [MatrixMatrix()(left, right)]
    return None


def with_loops_for_products(mode: Mode) -> Mode:
    """Return a Numba mode that compiles products of a matrix and a vector to loops.

    Other products of float64 call BLAS by one function that is compiled once for all models.

    Parameters
    ----------
    mode : pytensor.compile.mode.Mode

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.dense_products import with_loops_for_products
    >>> matrix, vector = pt.tensor(shape=(2, 2)), pt.tensor(shape=(2,))
    >>> mode = with_loops_for_products(pytensor.compile.mode.get_mode("NUMBA"))
    >>> function = pytensor.function([matrix, vector], matrix @ vector, mode=mode)
    >>> function(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0]))
    array([12., 34.])
    """
    return mode.register((dfs_rewriter(_product_as_loop), _AFTER_CANONICALIZATION))
