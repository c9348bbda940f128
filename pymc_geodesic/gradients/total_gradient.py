"""Log-density and gradient of all rows, or of a sample of them that stands for all, in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.runtime.fields import ComposedField, array_at, evaluate
from pymc_geodesic.runtime.jit import compiled_for_c

CHUNK = 2048
"""Rows that are looked at together: what comes in between stays in the cache."""

_FIELD, _CONTEXT, _N_CONTEXT, _SIZE, _OUTPUTS, _STRATA, _INPUTS, _TABLE, _WEIGHTS, _PART = range(10)
_COUNTS, _STRATUM_WEIGHTS, _LENGTH = 10, 11, 12


@compiled_for_c
def _sum_of_chunks(position: Any, argument: int, context: Any, output: Any) -> float:
    """Add up the fields of all chunks; what is no row counts in the first of them only."""
    table = array_at(context, (_LENGTH,), np.int64)
    size, outputs, n_inputs = table[_SIZE], table[_OUTPUTS], table[_INPUTS]
    counts = array_at(table[_COUNTS], (table[_STRATA],), np.int64)
    stratum_weights = array_at(table[_STRATUM_WEIGHTS], (table[_STRATA],), np.float64)
    inner_context = array_at(table[_CONTEXT], (table[_N_CONTEXT],), np.int64)
    inputs = array_at(table[_TABLE], (n_inputs, 3), np.int64)
    weights = array_at(table[_WEIGHTS], (3,), np.float64)
    part = array_at(table[_PART], (outputs,), np.float64)
    x = array_at(position, (size,), np.float64)
    total = array_at(output, (outputs,), np.float64)
    total[:] = 0.0
    weights[1] = weights[2]
    first = 0
    for stratum in range(counts.size):
        weights[0] = stratum_weights[stratum]
        last = first + counts[stratum]
        for start in range(first, last, CHUNK):
            count = min(CHUNK, last - start)
            for i in range(n_inputs):
                inner_context[inputs[i, 0]] = inputs[i, 1] + start * inputs[i, 2]
            evaluate(table[_FIELD], x, count, inner_context, part)
            for i in range(outputs):
                total[i] += part[i]
            weights[1] = 0.0
        first = last
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
        context = np.zeros(_LENGTH, dtype=np.int64)
        context[_FIELD], context[_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_CONTEXT] = inner.context.size
        context[_SIZE], context[_OUTPUTS], context[_INPUTS] = size, size + 1, len(names)
        context[_TABLE], context[_WEIGHTS] = self._inputs.ctypes.data, self._weights.ctypes.data
        context[_PART] = self._part.ctypes.data
        self.field = ComposedField(_sum_of_chunks, context, [inner], self)
        self._use_strata(0, 1.0)

    def use(
        self,
        arrays: Mapping[str, np.ndarray],
        n_rows: int | np.ndarray,
        weight: float | np.ndarray = 1.0,
    ) -> None:
        """Let the field sum over the first rows of arrays.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            C-contiguous rows by container; they are not copied.
        n_rows : int or ndarray of int, shape (n_strata,)
            Of each stratum, one after the other, where the rows are a stratified sample.
        weight : float or ndarray, shape (n_strata,)
            Rows of the data per row of the stratum.
        """
        self._arrays = [arrays[name] for name in self._names]
        for i, array in enumerate(self._arrays):
            self._inner.point_at(self._first + i, array)
            self._inputs[i] = self._first + i, array.ctypes.data, array.strides[0]
        self._use_strata(n_rows, weight)

    def _use_strata(self, n_rows: int | np.ndarray, weight: float | np.ndarray) -> None:
        self._counts = np.atleast_1d(np.array(n_rows, dtype=np.int64))
        self._stratum_weights = np.atleast_1d(np.array(weight, dtype=np.float64))
        context = self.field.context
        context[_STRATA], context[_COUNTS] = self._counts.size, self._counts.ctypes.data
        context[_STRATUM_WEIGHTS] = self._stratum_weights.ctypes.data

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
