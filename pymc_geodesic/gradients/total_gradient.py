"""Log-density and gradient of all rows, or of a sample of them that stands for all, in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.runtime.fields import ComposedField, array_at, evaluate
from pymc_geodesic.runtime.jit import compiled_for_c

__all__ = ["CHUNK", "TotalGradient"]

CHUNK = 2048
"""Rows that are looked at together: what comes in between stays in the cache."""

_FIELD, _CONTEXT, _N_CONTEXT, _SIZE, _OUTPUTS, _ROWS, _INPUTS, _TABLE, _WEIGHTS, _PART = range(10)


@compiled_for_c
def _sum_of_chunks(position: Any, argument: int, context: Any, output: Any) -> float:
    """Add up the fields of all chunks; what is no row counts in the first of them only."""
    table = array_at(context, (10,), np.int64)
    size, outputs, rows, n_inputs = table[_SIZE], table[_OUTPUTS], table[_ROWS], table[_INPUTS]
    inner_context = array_at(table[_CONTEXT], (table[_N_CONTEXT],), np.int64)
    inputs = array_at(table[_TABLE], (n_inputs, 3), np.int64)
    weights = array_at(table[_WEIGHTS], (3,), np.float64)
    part = array_at(table[_PART], (outputs,), np.float64)
    x = array_at(position, (size,), np.float64)
    total = array_at(output, (outputs,), np.float64)
    total[:] = 0.0
    weights[1] = weights[2]
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        for i in range(n_inputs):
            inner_context[inputs[i, 0]] = inputs[i, 1] + start * inputs[i, 2]
        evaluate(table[_FIELD], x, count, inner_context, part)
        for i in range(outputs):
            total[i] += part[i]
        weights[1] = 0.0
    return 0.0


class TotalGradient:
    """Field of the log-density and its gradient, summed over rows.

    Parameters
    ----------
    inner : CompiledField
        Field of a chunk, with the number of its rows as the argument and one value. Its inputs
        end with one block of rows for each of `names` and the weights of rows and of the rest.
    size : int
        Length of a position.
    names : list of str
        Containers of the row blocks.

    Attributes
    ----------
    field : ComposedField
        Sum over the rows that were last put in use; the log-density stands behind the gradient.
    """

    def __init__(self, inner: CompiledField, size: int, names: list[str]) -> None:
        self._inner = inner
        self._size = size
        self._names = names
        self._weights = np.array([1.0, 1.0, 1.0])  # of rows, of the rest now, of the rest at first
        self._part = np.empty(size + 1)
        self._inputs = np.zeros((len(names), 3), dtype=np.int64)
        self._arrays: list[np.ndarray] = []
        self._first = len(inner.inputs) - len(names) - 2
        for i in range(2):
            inner.point_at(self._first + len(names) + i, self._weights[i : i + 1].reshape(()))
        context = np.zeros(10, dtype=np.int64)
        context[_FIELD], context[_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_CONTEXT] = inner.context.size
        context[_SIZE], context[_OUTPUTS], context[_INPUTS] = size, size + 1, len(names)
        context[_TABLE], context[_WEIGHTS] = self._inputs.ctypes.data, self._weights.ctypes.data
        context[_PART] = self._part.ctypes.data
        self.field = ComposedField(_sum_of_chunks, context, [inner], self)

    def use(self, arrays: Mapping[str, np.ndarray], n_rows: int, weight: float = 1.0) -> None:
        """Let the field sum over the first rows of arrays.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            C-contiguous rows by container; they are not copied.
        n_rows : int
        weight : float
            How many rows each of them stands for.
        """
        self._arrays = [arrays[name] for name in self._names]
        for i, array in enumerate(self._arrays):
            self._inner.point_at(self._first + i, array)
            self._inputs[i] = self._first + i, array.ctypes.data, array.strides[0]
        self.field.context[_ROWS] = n_rows
        self._weights[0] = weight

    def over(
        self,
        position: np.ndarray,
        parts: Iterable[tuple[Mapping[str, np.ndarray], int]],
        *,
        rest: float = 1.0,
    ) -> np.ndarray:
        """Gradient of all rows, which come in parts, and the log-density behind it.

        Parameters
        ----------
        position : ndarray, shape (size,)
        parts : iterable of (arrays, number of rows)
        rest : float
            How often what is no row counts.

        Returns
        -------
        ndarray, shape (size + 1,)
        """
        total, part = np.zeros(self._size + 1), np.empty(self._size + 1)
        self._weights[2] = rest
        for arrays, n_rows in parts:
            self.use(arrays, n_rows)
            evaluate(self.field.address, position, 0, self.field.context, part)
            self.field.raise_error()
            total += part
            self._weights[2] = 0.0
        self._weights[2] = 1.0
        return total
