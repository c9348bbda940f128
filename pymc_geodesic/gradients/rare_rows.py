r"""Rows that every gradient estimate contains, such as those of rare indicators.

If an indicator is nonzero in few rows, few minibatches contain one of them, and their gradients are
multiplied by N/n. With these rows R in each estimate, as the take-all stratum of a stratified
sample, and a minibatch S of the other rows,

.. math::

    \hat g(x) = \nabla \log p(x) + \sum_{i \in R} \nabla \log p(y_i \mid x)
        + \frac{N}{n} \sum_{i \in S \setminus R} \nabla \log p(y_i \mid x) ,

which is unbiased, and without noise from the rows in R.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.gradients.full_gradient import RowCurvature, TotalGradient
from pymc_geodesic.gradients.structured_hessian import StructuredHessian
from pymc_geodesic.runtime.gradient_functions import (
    ComposedFunction,
    GradientFunctionLike,
    array_at,
    evaluate,
)
from pymc_geodesic.runtime.jit import compiled_for_c, part

_N_RARE, _BEFORE, _BATCH_SIZE, _N_INPUTS, _INPUTS = range(5)
_ROWS, _CONTEXT, _N_CONTEXT, _WEIGHTS, _OUTPUT, _SIZE, _SCALE = range(5, 12)
_INNER, _INNER_CONTEXT, _N_INNER_CONTEXT = range(12, 15)
TABLE_LENGTH = 15


@part
def add_rare_rows(
    table: np.ndarray, x: np.ndarray, first: int, count: int, weight: float, gradient: np.ndarray
) -> None:
    """Add the gradients of some rare rows, times a weight.

    Parameters
    ----------
    table : ndarray of int64
        `RareRows.table`.
    x : ndarray
        Position.
    first, count : int
        Range of the rare rows.
    weight : float
    gradient : ndarray, shape (size,)
        Modified in place; ``size`` is the length of the output of the function.
    """
    if count == 0:
        return
    context = array_at(table[_CONTEXT], (table[_N_CONTEXT],), np.int64)
    inputs = array_at(table[_INPUTS], (table[_N_INPUTS], 3), np.int64)
    weights = array_at(table[_WEIGHTS], (2,), np.float64)
    output = array_at(table[_OUTPUT], (table[_SIZE] + 1,), np.float64)
    for i in range(table[_N_INPUTS]):
        context[inputs[i, 0]] = inputs[i, 1] + first * inputs[i, 2]
    weights[0], weights[1] = weight, 0.0
    evaluate(table[_ROWS], x, count, context, output)
    for i in range(gradient.size):
        gradient[i] += output[i]


@part
def rare_rows_in_minibatch(table: np.ndarray, minibatch: int) -> tuple[int, int]:
    """Return the index of the first rare row of a minibatch, and the number of its rare rows."""
    if table[_N_RARE] == 0:
        return 0, 0
    n = table[_BATCH_SIZE]
    before = array_at(table[_BEFORE], (minibatch + n + 1,), np.int64)
    return before[minibatch], before[minibatch + n] - before[minibatch]


@part
def _evaluate_inner(table: np.ndarray, x: np.ndarray, minibatch: int, out: np.ndarray) -> None:
    """Set the gradient of the function to which rare rows are added."""
    inner_context = array_at(table[_INNER_CONTEXT], (table[_N_INNER_CONTEXT],), np.int64)
    evaluate(table[_INNER], x, minibatch, inner_context, out)


@compiled_for_c
def _without_rare_rows(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (TABLE_LENGTH,), np.int64)
    x = array_at(position, (table[_SIZE],), np.float64)
    gradient = array_at(output, (table[_SIZE],), np.float64)
    _evaluate_inner(table, x, minibatch, gradient)
    first, count = rare_rows_in_minibatch(table, minibatch)
    scale = array_at(table[_SCALE], (1,), np.float64)
    add_rare_rows(table, x, first, count, -scale[0], gradient)
    return 0.0


@compiled_for_c
def _with_rare_rows(position: Any, minibatch: int, context: Any, output: Any) -> float:
    table = array_at(context, (TABLE_LENGTH,), np.int64)
    x = array_at(position, (table[_SIZE],), np.float64)
    gradient = array_at(output, (table[_SIZE],), np.float64)
    _evaluate_inner(table, x, minibatch, gradient)
    add_rare_rows(table, x, 0, table[_N_RARE], 1.0, gradient)
    return 0.0


class RareRows:
    """Rare rows R, and gradient functions with and without them.

    Parameters
    ----------
    total : TotalGradient
        Gradient of any number of rows, whose function is used with other data.
    minibatch : GradientFunctionLike
        Gradient function of a minibatch.
    size : int
        Length of a position.

    Attributes
    ----------
    table : ndarray of int64
        Addresses for `add_rare_rows` and `rare_rows_in_minibatch`.
    rest : ComposedFunction
        Gradient of a minibatch without its rare rows.
    """

    def __init__(self, total: TotalGradient, minibatch: GradientFunctionLike, size: int) -> None:
        self._total = total
        self._scale, self._output = np.ones(1), np.empty(size + 1)
        context = total.inner.context  # whose rows and weights each evaluation sets
        self._inputs = np.zeros((len(total.names), 3), dtype=np.int64)
        self._before = np.zeros(1, dtype=np.int64)
        self.arrays: dict[str, np.ndarray] = {}
        self.table = np.zeros(TABLE_LENGTH, dtype=np.int64)
        self.table[_N_INPUTS], self.table[_INPUTS] = len(self._inputs), self._inputs.ctypes.data
        self.table[_ROWS], self.table[_SIZE] = total.inner.address, size
        self.table[_CONTEXT], self.table[_N_CONTEXT] = context.ctypes.data, context.size
        self.table[_WEIGHTS] = total.weights.ctypes.data
        self.table[_OUTPUT] = self._output.ctypes.data
        self.table[_SCALE] = self._scale.ctypes.data
        self._composed: list[np.ndarray] = []
        self.rest = self._compose(_without_rare_rows, minibatch)

    def __len__(self) -> int:
        return int(self.table[_N_RARE])

    def added_to(self, inner: GradientFunctionLike) -> ComposedFunction:
        """Return the sum of a gradient function and the gradient of all rare rows."""
        return self._compose(_with_rare_rows, inner)

    def _compose(self, function: Any, inner: GradientFunctionLike) -> ComposedFunction:
        context = self.table.copy()
        context[_INNER], context[_INNER_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_INNER_CONTEXT] = inner.context.size
        self._composed.append(context)
        return ComposedFunction(function, context, [inner, self._total.inner], self)

    def set_rows(
        self, arrays: Mapping[str, np.ndarray], is_rare: np.ndarray | None, batch_size: int
    ) -> None:
        """Set the rare rows.

        Parameters
        ----------
        arrays : mapping of str to ndarray, shape (N + n − 1, ...)
            Rows of which minibatches are consecutive ones; the first n − 1 are repeated at the end.
        is_rare : ndarray of bool, shape (N,), or None
            None if there are none.
        batch_size : int
            n.
        """
        if is_rare is None:
            self.arrays = {}
            for table in (self.table, *self._composed):
                table[_N_RARE] = 0
            return
        n_rows = len(is_rare)
        circular = np.append(is_rare, is_rare[: batch_size - 1])
        rows = np.flatnonzero(circular)
        self.arrays = {name: np.ascontiguousarray(arrays[name][rows]) for name in self._total.names}
        self._before = np.append(0, np.cumsum(circular, dtype=np.int64))
        self._scale[0] = n_rows / batch_size
        first = self._total.first_row_input
        for i, array in enumerate(self.arrays.values()):
            self._inputs[i] = first + i, array.ctypes.data, array.strides[0]
        for table in (self.table, *self._composed):
            table[_N_RARE], table[_BATCH_SIZE] = int(is_rare.sum()), batch_size
            table[_BEFORE] = self._before.ctypes.data

    def parts(self) -> Iterator[tuple[Mapping[str, np.ndarray], int]]:
        """Rare rows and their number, unless there are none."""
        if len(self):
            yield self.arrays, len(self)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient of the rare rows, shape (size,)."""
        if not len(self):
            return np.zeros(x.size)
        return self._total.gradient_of_rows(x, self.arrays, len(self))

    def hessian(self, x: np.ndarray, curvature: RowCurvature) -> StructuredHessian:
        """Hessian of the rare rows."""
        return curvature.hessian(x, self.parts())
