"""Hessian over all rows at a point, and Hessian-vector products of minibatches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pymc_geodesic.densities.compilation import CompiledField, FixedArray, RowBlock
from pymc_geodesic.gradients.total_gradient import CHUNK
from pymc_geodesic.runtime.gradient_functions import evaluate


class RowCurvature:
    """Gradients and Hessian-vector products of any number of rows.

    Parameters
    ----------
    inner : CompiledField
        Function of (x, v), each of length ``size``, that returns (∇f(x), ∇²f(x) v) for the number
        of rows in its argument. Its inputs end with one block of rows for each of `names`, the
        weight of the rows and the weight of the terms that do not depend on them.
    minibatch : CompiledField
        Gradient function of minibatches, whose last inputs are the same blocks.
    size : int
    names : list of str
        Containers of the row blocks.
    batch_size, n_rows : int
        n and N.

    Attributes
    ----------
    weights : ndarray, shape (4,)
        Weights of the rows and of the other terms: in the next evaluation, and of a minibatch, N/n
        and 1.
    inputs : ndarray of int64, shape (len(names), 3)
        For each block, its index in the context of ``inner``, that in the context of
        ``minibatch``, and the number of bytes of a row.
    """

    def __init__(
        self,
        inner: CompiledField,
        minibatch: CompiledField,
        size: int,
        names: list[str],
        batch_size: int,
        n_rows: int,
    ) -> None:
        self.inner, self.minibatch, self.size = inner, minibatch, size
        self.batch_size = batch_size
        self._names = names
        self._first = len(inner.inputs) - len(names) - 2
        self.weights = np.array([1.0, 1.0, n_rows / batch_size, 1.0])
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
    def _row_bytes(block: FixedArray) -> int:
        return int(np.prod(block.shape[1:], dtype=int)) * np.dtype(block.dtype).itemsize

    def hessian(
        self,
        x: np.ndarray,
        parts: Iterable[tuple[Mapping[str, np.ndarray], int]],
        *,
        rest: float = 1.0,
    ) -> np.ndarray:
        """Hessian of the log-density over all rows, which come in parts.

        Rows are evaluated in chunks that stay in the cache for all columns.

        Parameters
        ----------
        x : ndarray, shape (size,)
        parts : iterable of (arrays, number of rows)
        rest : float
            Weight of the terms that do not depend on the rows.

        Returns
        -------
        ndarray, shape (size, size)
        """
        size, inner = self.size, self.inner
        position, output = np.zeros(2 * size), np.empty(2 * size)
        position[:size] = x
        hessian = np.zeros((size, size))
        self.weights[:2] = 1.0, rest
        for arrays, n_rows in parts:
            for start in range(0, n_rows, CHUNK):
                count = min(CHUNK, n_rows - start)
                for i, name in enumerate(self._names):
                    inner.point_at(self._first + i, arrays[name][start : start + count])
                for column in range(size):
                    position[size + column] = 1.0
                    evaluate(inner.address, position, count, inner.context, output)
                    inner.raise_error()
                    position[size + column] = 0.0
                    hessian[:, column] += output[size:]
                self.weights[1] = 0.0
        return hessian
