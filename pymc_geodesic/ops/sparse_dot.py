r"""Products with a sparse matrix given by any selection of its rows, in any order.

The matrix is given by its non-zeros ``values`` (nnz,) in ``columns`` (nnz,), and by ``rows``
(n, 2): row i holds the non-zeros from position ``rows[i, 0]`` up to ``rows[i, 1]``. A minibatch is
a block of ``rows``, without a copy of the non-zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.runtime.sparse_rows import add_row, dot_row

_NOT_DIFFERENTIABLE = "The non-zeros are data; only products with them are differentiated"


def nonzero_positions(rows: np.ndarray) -> np.ndarray:
    """Return the positions of all non-zeros of some rows, in the order of the rows.

    Parameters
    ----------
    rows : ndarray of int, shape (n, 2)
        Start and stop of each row.

    Returns
    -------
    ndarray of int, shape (nnz,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_dot import nonzero_positions
    >>> nonzero_positions(np.array([[5, 7], [2, 2], [0, 3]]))
    array([5, 6, 0, 1, 2])
    """
    lengths = rows[:, 1] - rows[:, 0]
    ends = np.cumsum(lengths)
    return np.repeat(rows[:, 1] - ends, lengths) + np.arange(ends[-1] if len(ends) else 0)


def in_order(
    values: np.ndarray, columns: np.ndarray, rows: np.ndarray, n_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy the non-zeros in the order of the rows.

    Parameters
    ----------
    values, columns : ndarray, shape (nnz,)
        Non-zeros and their columns.
    rows : ndarray of int, shape (m, 2)
        Start and stop of each row in ``values``.
    n_rows : int
        Number of distinct rows; the others repeat the first of them.

    Returns
    -------
    values, columns, rows : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_dot import in_order
    >>> rows = np.array([[2, 3], [0, 2], [2, 3]])
    >>> values, columns, rows = in_order(np.array([1.0, 2, 3]), np.array([7, 8, 9]), rows, 2)
    >>> values
    array([3., 1., 2.])
    >>> rows.tolist()
    [[0, 1], [1, 3], [0, 1]]
    """
    positions = nonzero_positions(rows[:n_rows])
    ends = np.cumsum(rows[:n_rows, 1] - rows[:n_rows, 0])
    moved = np.empty_like(rows)
    moved[:n_rows, 1] = ends
    moved[1:n_rows, 0] = ends[:-1]
    moved[0, 0] = 0
    moved[n_rows:] = moved[: len(rows) - n_rows]
    return values[positions], columns[positions], moved


def _as_matrix(
    values: np.ndarray, columns: np.ndarray, rows: np.ndarray, width: int
) -> sparse.csr_array:
    """Return the rows as a SciPy array, without a copy if they are contiguous."""
    if len(rows) and np.array_equal(rows[1:, 0], rows[:-1, 1]):
        part = slice(rows[0, 0], rows[-1, 1])
        starts = np.append(rows[:, 0], rows[-1, 1]) - rows[0, 0]
        return sparse.csr_array((values[part], columns[part], starts), shape=(len(rows), width))
    positions = nonzero_positions(rows)
    starts = np.concatenate([[0], np.cumsum(rows[:, 1] - rows[:, 0])])
    return sparse.csr_array(
        (values[positions], columns[positions], starts), shape=(len(rows), width)
    )


class _Product(LoopOp, Op):
    """Base class of the products; ``width`` is the number of columns of the matrix."""

    __props__: tuple[str, ...] = ("width",)

    def __init__(self, width: int) -> None:
        self.width = width

    def _other_length(self, rows: TensorVariable) -> int | None:
        raise NotImplementedError

    def _result_length(self, rows: TensorVariable) -> int | None:
        raise NotImplementedError

    def make_node(self, values: Any, columns: Any, rows: Any, other: Any) -> Apply:
        """Build the node.

        Raises
        ------
        ValueError
            If the number of axes or the length of ``other`` does not fit.
        """
        values, columns, rows, other = map(pt.as_tensor, (values, columns, rows, other))
        if other.type.ndim not in (1, 2):
            raise ValueError(
                f"{other} has {other.type.ndim} axes: a sparse matrix is multiplied by a vector "
                "or a matrix"
            )
        length, expected = other.type.shape[0], self._other_length(rows)
        if None not in (length, expected) and length != expected:
            raise ValueError(
                f"{other} has length {length}, but the sparse matrix needs {expected}: "
                f"it has {self.width} columns and {rows.type.shape[0]} rows"
            )
        dtype = np.promote_types(values.type.dtype, other.type.dtype)
        shape = (self._result_length(rows), *other.type.shape[1:])
        return Apply(
            self, [values, columns, rows, other], [pt.tensor(dtype=str(dtype), shape=shape)]
        )

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the output is not connected to the positions."""
        return [[True], [False], [False], [True]]

    def _transposed(self) -> Op | None:
        raise NotImplementedError

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], gradients: Sequence[Variable]
    ) -> list[Variable]:
        """Multiply the gradient by the transposed matrix."""
        values, columns, rows, other = inputs
        transposed = self._transposed()
        return [
            grad_not_implemented(self, 0, values, _NOT_DIFFERENTIABLE),
            DisconnectedType()(),
            DisconnectedType()(),
            grad_not_implemented(self, 3, other, "Squares of values are not differentiated")
            if transposed is None
            else transposed(values, columns, rows, gradients[0]),
        ]


class SparseDot(_Product):
    r"""Product of a sparse matrix and a vector, or a dense matrix.

    .. math:: y_i = \sum_{k = \mathrm{rows}_{i0}}^{\mathrm{rows}_{i1} - 1}
              \mathrm{values}_k \, w_{\mathrm{columns}_k}

    Parameters
    ----------
    width : int
        d, columns of the sparse matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_dot import SparseDot
    >>> values, columns = np.array([2.0, 3.0]), np.array([0, 2], dtype="int32")
    >>> rows = np.array([[0, 1], [0, 2]])
    >>> product = SparseDot(3)(values, columns, rows, np.array([1.0, 10.0, 100.0]))
    >>> product.eval(mode="FAST_COMPILE")
    array([  2., 302.])
    """

    def _other_length(self, rows: TensorVariable) -> int | None:
        return self.width

    def _result_length(self, rows: TensorVariable) -> int | None:
        return rows.type.shape[0]

    def _transposed(self) -> Op | None:
        return SparseTransposeDot(self.width)

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the product."""
        return [(shapes[2][0], *shapes[3][1:])]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in SciPy."""
        values, columns, rows, weights = inputs
        if len(weights) != self.width:
            raise ValueError(
                f"the weights have length {len(weights)}, but the sparse matrix has {self.width} "
                "columns"
            )
        product = _as_matrix(values, columns, rows, self.width) @ weights
        outputs[0][0] = product.astype(node.outputs[0].type.dtype, copy=False)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype
        width = self.width

        if node.inputs[3].type.ndim == 1:

            @njit
            def product(values, columns, rows, weights):  # type: ignore[no-untyped-def]
                if weights.shape[0] != width:
                    raise ValueError("the weights do not have the length of a row")
                n = rows.shape[0]
                result = np.empty(n, dtype)
                for i in range(n):
                    result[i] = dot_row(values, columns, rows[i, 0], rows[i, 1], weights)
                return result

        else:

            @njit
            def product(values, columns, rows, weights):  # type: ignore[no-untyped-def]
                if weights.shape[0] != width:
                    raise ValueError("the weights do not have the length of a row")
                n, m = rows.shape[0], weights.shape[1]
                result = np.zeros((n, m), dtype)
                for i in range(n):
                    row = result[i]
                    for k in range(rows[i, 0], rows[i, 1]):
                        value = values[k]
                        weight = weights[np.uintp(columns[k])]
                        for j in range(m):
                            row[j] += value * weight[j]
                return result

        return product


class SparseTransposeDot(_Product):
    r"""Product of a transposed sparse matrix and a vector, or a dense matrix.

    .. math:: g_j = \sum_i \sum_{k = \mathrm{rows}_{i0}}^{\mathrm{rows}_{i1} - 1}
              [\mathrm{columns}_k = j] \, \mathrm{values}_k \, r_i

    Parameters
    ----------
    width : int
        d, columns of the sparse matrix.
    squared : bool
        Whether the values are replaced by their squares; there is no gradient then.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_dot import SparseTransposeDot
    >>> values, columns = np.array([2.0, 3.0]), np.array([0, 2], dtype="int32")
    >>> rows = np.array([[0, 1], [0, 2]])
    >>> product = SparseTransposeDot(3)(values, columns, rows, np.array([1.0, 10.0]))
    >>> product.eval(mode="FAST_COMPILE")
    array([22.,  0., 30.])
    """

    __props__ = ("width", "squared")

    def __init__(self, width: int, squared: bool = False) -> None:
        super().__init__(width)
        self.squared = squared

    def _other_length(self, rows: TensorVariable) -> int | None:
        return rows.type.shape[0]

    def _result_length(self, rows: TensorVariable) -> int | None:
        return self.width

    def _transposed(self) -> Op | None:
        return None if self.squared else SparseDot(self.width)

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shape of the product."""
        return [(pt.constant(self.width, dtype="int64"), *shapes[3][1:])]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in SciPy."""
        values, columns, rows, residuals = inputs
        if len(residuals) != len(rows):
            raise ValueError(f"there are {len(rows)} rows, but {len(residuals)} residuals")
        matrix = _as_matrix(values, columns, rows, self.width)
        product = (matrix.power(2) if self.squared else matrix).T @ residuals
        outputs[0][0] = product.astype(node.outputs[0].type.dtype, copy=False)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows."""
        dtype = node.outputs[0].type.numpy_dtype
        width, squared = self.width, self.squared

        if node.inputs[3].type.ndim == 1:

            @njit
            def product(values, columns, rows, residuals):  # type: ignore[no-untyped-def]
                n = rows.shape[0]
                if residuals.shape[0] != n:
                    raise ValueError("there must be one residual for each row")
                result = np.zeros(width, dtype)
                for i in range(n):
                    first, last, residual = rows[i, 0], rows[i, 1], residuals[i]
                    if squared:
                        for k in range(first, last):
                            result[np.uintp(columns[k])] += values[k] * values[k] * residual
                    elif residual != 0.0:
                        add_row(values, columns, first, last, residual, result)
                return result

        else:

            @njit
            def product(values, columns, rows, residuals):  # type: ignore[no-untyped-def]
                n, m = residuals.shape
                if rows.shape[0] != n:
                    raise ValueError("there must be one residual for each row")
                result = np.zeros((width, m), dtype)
                for i in range(n):
                    residual = residuals[i]
                    for k in range(rows[i, 0], rows[i, 1]):
                        value = values[k] * values[k] if squared else values[k]
                        row = result[np.uintp(columns[k])]
                        for j in range(m):
                            row[j] += value * residual[j]
                return result

        return product
