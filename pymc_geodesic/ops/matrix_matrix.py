"""Products of matrices by one call of BLAS, compiled once for all models.

PyTensor compiles the choice of strides and copies for each combination of memory layouts anew, and
within every function that multiplies: more than half of what it takes to compile a topic model.
Here that choice is a function of numbers and addresses, compiled once and called by its address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.runtime.blas import multiply, prepare


class MatrixMatrix(LoopOp, Op):
    """The product of two matrices of float64, in C order.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.matrix_matrix import MatrixMatrix
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
        """Shape of the product."""
        return [(shapes[0][0], shapes[1][1])]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in NumPy."""
        outputs[0][0] = np.ascontiguousarray(inputs[0] @ inputs[1])

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of BLAS."""
        prepare()  # before chains fork, each of which would

        @njit
        def product(left, right):  # type: ignore[no-untyped-def]
            result = np.empty((left.shape[0], right.shape[1]))
            if left.shape[1] != right.shape[0]:
                raise ValueError("a product of matrices whose inner lengths differ")
            multiply(left, right, result)
            return result

        return product
