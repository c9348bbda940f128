"""Log-density, gradient and Hessian over all rows, or a weighted sample of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.densities.compilation import ArrayInput, CompiledGradient, RowBlock
from pymc_geodesic.gradients.structured_hessian import HessianStructure, StructuredHessian
from pymc_geodesic.runtime.gradient_functions import ComposedFunction, array_at, evaluate
from pymc_geodesic.runtime.jit import compiled_for_c

CHUNK = 2048
"""Number of rows that are evaluated together, so that intermediate results stay in the cache;
heuristic, no measurement. It is a module constant because compiled code reads it."""

_LOGP_GRAD, _CONTEXT, _N_CONTEXT, _SIZE, _OUTPUTS, _STRATA, _INPUTS, _TABLE, _WEIGHTS, _PART = (
    range(10)
)
_COUNTS, _STRATUM_WEIGHTS, _LENGTH = 10, 11, 12


@compiled_for_c
def _sum_of_chunks(position: Any, minibatch: int, context: Any, output: Any) -> float:
    """Sum over chunks; terms that do not depend on the rows are added once, with the first."""
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
            evaluate(table[_LOGP_GRAD], x, count, inner_context, part)
            for i in range(outputs):
                total[i] += part[i]
            weights[1] = 0.0
        first = last
    return 0.0


class TotalGradient:
    """Gradient and log-density, summed over rows.

    Parameters
    ----------
    inner : CompiledGradient
        Gradient function of a chunk, with the log-density, whose argument is the number of rows.
        Its last inputs are one block of rows for each of `names`, the weight of the rows and the
        weight of the terms that do not depend on them.
    size : int
        Length of a position.
    names : list of str
        Containers of the row blocks.

    Attributes
    ----------
    logp_grad : ComposedFunction
        Sum over the rows of the last `set_rows`; the log-density follows the gradient.
    inner, names
        See above.
    first_row_input : int
        Index of the first block of rows in the context of ``inner``.
    weights : ndarray, shape (3,)
        Weights of the rows and of all other terms in the next evaluation of ``inner``, and of the
        other terms in the first chunk. `logp_grad` sets the first two, and the block of rows.
    """

    def __init__(self, inner: CompiledGradient, size: int, names: list[str]) -> None:
        self.inner = inner
        self._size = size
        self.names = names
        self.weights = np.array([1.0, 1.0, 1.0])
        self._part = np.empty(size + 1)
        self._inputs = np.zeros((len(names), 3), dtype=np.int64)
        self._arrays: list[np.ndarray] = []
        self.first_row_input = len(inner.inputs) - len(names) - 2
        for i in range(2):
            inner.point_at(
                self.first_row_input + len(names) + i, self.weights[i : i + 1].reshape(())
            )
        context = np.zeros(_LENGTH, dtype=np.int64)
        context[_LOGP_GRAD], context[_CONTEXT] = inner.address, inner.context.ctypes.data
        context[_N_CONTEXT] = inner.context.size
        context[_SIZE], context[_OUTPUTS], context[_INPUTS] = size, size + 1, len(names)
        context[_TABLE], context[_WEIGHTS] = self._inputs.ctypes.data, self.weights.ctypes.data
        context[_PART] = self._part.ctypes.data
        self.logp_grad = ComposedFunction(_sum_of_chunks, context, [inner], self)
        self._set_strata(0, 1.0)

    def set_rows(
        self,
        arrays: Mapping[str, np.ndarray],
        n_rows: int | np.ndarray,
        weight: float | np.ndarray = 1.0,
    ) -> None:
        """Set the rows of the sum: the first rows of arrays.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            C-contiguous rows by container; they are not copied.
        n_rows : int or ndarray of int, shape (n_strata,)
            Number of rows, or number of rows of each stratum of a stratified sample, in order.
        weight : float or ndarray, shape (n_strata,)
            Number of rows of the data that a row of the stratum represents.
        """
        self._arrays = [arrays[name] for name in self.names]
        for i, array in enumerate(self._arrays):
            self.inner.point_at(self.first_row_input + i, array)
            self._inputs[i] = self.first_row_input + i, array.ctypes.data, array.strides[0]
        self._set_strata(n_rows, weight)

    def _set_strata(self, n_rows: int | np.ndarray, weight: float | np.ndarray) -> None:
        self._counts = np.atleast_1d(np.array(n_rows, dtype=np.int64))
        self._stratum_weights = np.atleast_1d(np.array(weight, dtype=np.float64))
        context = self.logp_grad.context
        context[_STRATA], context[_COUNTS] = self._counts.size, self._counts.ctypes.data
        context[_STRATUM_WEIGHTS] = self._stratum_weights.ctypes.data

    def sum_over(
        self,
        position: np.ndarray,
        parts: Iterable[tuple[Mapping[str, np.ndarray], int]],
        *,
        rest: float = 1.0,
    ) -> np.ndarray:
        """Sum gradient and log-density over all rows, which are passed in parts.

        The rows of `logp_grad` stay those of the last `set_rows`.

        Parameters
        ----------
        position : ndarray, shape (size,)
        parts : iterable of (arrays, number of rows)
        rest : float
            Weight of the terms that do not depend on the rows.

        Returns
        -------
        ndarray, shape (size + 1,)
        """
        total, part = np.zeros(self._size + 1), np.empty(self._size + 1)
        before = dict(zip(self.names, self._arrays, strict=False))  # empty before `set_rows`
        counts, stratum_weights = self._counts, self._stratum_weights
        self.weights[2] = rest
        try:
            for arrays, n_rows in parts:
                self.set_rows(arrays, n_rows)
                evaluate(self.logp_grad.address, position, 0, self.logp_grad.context, part)
                self.logp_grad.raise_error()
                total += part
                self.weights[2] = 0.0
        finally:  # rows that are streamed may raise errors
            self.weights[2] = 1.0
            if before:
                self.set_rows(before, counts, stratum_weights)
        return total

    def gradient_of_rows(
        self, position: np.ndarray, arrays: Mapping[str, np.ndarray], n_rows: int
    ) -> np.ndarray:
        """Gradient of the first rows of arrays, without the terms that do not depend on rows.

        The rows of `logp_grad` stay those of the last `set_rows`.

        Parameters
        ----------
        position : ndarray, shape (size,)
        arrays : mapping of str to ndarray
            C-contiguous rows by container.
        n_rows : int

        Returns
        -------
        ndarray, shape (size,)
        """
        output = np.zeros(self._size + 1)
        for i, name in enumerate(self.names):
            self.inner.point_at(self.first_row_input + i, arrays[name])
        self.weights[:2] = 1.0, 0.0
        evaluate(self.inner.address, position, n_rows, self.inner.context, output)
        self.inner.raise_error()
        return output[:-1]


class RowCurvature:
    """Gradients and Hessian-vector products of any number of rows.

    Parameters
    ----------
    inner : CompiledGradient
        Function of (x, v), each of length ``size``, that returns (∇f(x), ∇²f(x) v) for the number
        of rows in its argument. Its inputs end with one block of rows for each of `names`, the
        weight of the rows and the weight of the terms that do not depend on them.
    minibatch : CompiledGradient
        Gradient function of minibatches, whose last inputs are the same blocks.
    size : int
    names : list of str
        Containers of the row blocks.
    batch_size, n_rows : int
        n and N.
    structure : HessianStructure or None
        Structure of the Hessian; None if it is dense.

    Attributes
    ----------
    structure : HessianStructure
    weights : ndarray, shape (3,)
        Weights of the rows and of the other terms in the next evaluation, and of the rows of a
        minibatch, N/n.
    inputs : ndarray of int64, shape (len(names), 3)
        Index of each block in the context of ``inner``, index in the context of ``minibatch``, and
        number of bytes of a row.
    """

    def __init__(
        self,
        inner: CompiledGradient,
        minibatch: CompiledGradient,
        size: int,
        names: list[str],
        batch_size: int,
        n_rows: int,
        structure: HessianStructure | None,
    ) -> None:
        self.inner, self.minibatch, self.size = inner, minibatch, size
        self.structure = HessianStructure.dense(size) if structure is None else structure
        self.batch_size = batch_size
        self._names = names
        self._first = len(inner.inputs) - len(names) - 2
        self.weights = np.array([1.0, 1.0, n_rows / batch_size])
        for i in range(2):
            inner.point_at(self._first + len(names) + i, self.weights[i : i + 1].reshape(()))
        blocks = [i for i, data in enumerate(minibatch.inputs) if isinstance(data, RowBlock)]
        self.inputs = np.array(
            [
                (self._first + i, block, self._row_bytes(minibatch.inputs[block]))
                for i, block in enumerate(blocks)
            ],
            dtype=np.int64,
        )

    @staticmethod
    def _row_bytes(block: ArrayInput) -> int:
        return int(np.prod(block.shape[1:], dtype=int)) * np.dtype(block.dtype).itemsize

    def hessian(
        self,
        x: np.ndarray,
        parts: Iterable[tuple[Mapping[str, np.ndarray], int]],
        *,
        rest: float = 1.0,
    ) -> StructuredHessian:
        """Compute the Hessian of the log-density over all rows, which are passed in parts.

        Rows are evaluated in chunks that stay in the cache for all Hessian-vector products.

        Parameters
        ----------
        x : ndarray, shape (size,)
        parts : iterable of (arrays, number of rows)
        rest : float
            Weight of the terms that do not depend on the rows, if ``inner`` has them.
        """
        size, inner, directions = self.size, self.inner, self.structure.directions()
        position, output = np.zeros(2 * size), np.empty(2 * size)
        position[:size] = x
        products = np.zeros_like(directions)
        self.weights[:2] = 1.0, rest
        for arrays, n_rows in parts:
            for start in range(0, n_rows, CHUNK):
                count = min(CHUNK, n_rows - start)
                for i, name in enumerate(self._names):
                    inner.point_at(self._first + i, arrays[name][start : start + count])
                for direction, product in zip(directions, products, strict=True):
                    position[size:] = direction
                    evaluate(inner.address, position, count, inner.context, output)
                    inner.raise_error()
                    product += output[size:]
                self.weights[1] = 0.0
        return StructuredHessian.from_products(self.structure, products)
