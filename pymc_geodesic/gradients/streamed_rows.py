"""Minibatches that arrive ready made from an iterable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pymc_geodesic.gradients.blocks import BlockFormat, BlockPass
from pymc_geodesic.gradients.rows import RowSource

__all__ = ["NO_ROW_NUMBERS", "StreamedRows"]

NO_ROW_NUMBERS = "local= needs rows that can be visited again: not available with batches="


class StreamedRows(RowSource):
    """Row blocks of an iterable, each a minibatch.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name. The first block says how many rows a minibatch has; what a shorter or longer block
        leaves over goes into the next minibatch. It is started again when it is exhausted.
    format : BlockFormat
        Data containers the blocks stand for.
    n_rows : int
        N, all rows of the data.

    Raises
    ------
    ValueError
        If a block does not fit the data containers.
    """

    def __init__(self, batches: Iterable[Any], format: BlockFormat, n_rows: int) -> None:
        super().__init__()
        self._format = format
        self._pass = BlockPass(batches, format)
        self.n_rows = n_rows
        self.arrays = self._read(self._pass.next_block())
        self.batch_size = len(next(iter(self.arrays.values())))
        self._starts = np.empty(0, dtype=np.int64)
        self.reset(0)

    def _read(self, block: dict[str, Any]) -> dict[str, np.ndarray]:
        return {
            name: np.ascontiguousarray(array, self._format.dtypes[name])
            for name, array in block.items()
        }

    def reset(self, seed: int) -> None:
        """Start the iterable again."""
        self._pass.restart(0)
        self._left = self._format.empty(0)

    def _next_block(self) -> dict[str, np.ndarray]:
        rows = self._left
        while len(next(iter(rows.values()))) < self.batch_size:
            block = self._read(self._pass.next_block())
            # A copy: an iterable may use the memory of a block for the next one.
            rows = {name: np.concatenate([left, block[name]]) for name, left in rows.items()}
        self._left = {name: array[self.batch_size :].copy() for name, array in rows.items()}
        return {name: array[: self.batch_size] for name, array in rows.items()}

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the next ``n`` blocks into the resident arrays."""
        if self._starts.size != n:
            self.arrays = self._format.empty(n * self.batch_size)
            self._starts = np.arange(n, dtype=np.int64) * self.batch_size
        for start in self._starts:
            for name, array in self._next_block().items():
                self.arrays[name][start : start + self.batch_size] = array
        return self._starts

    def row_indices(self, start: int) -> np.ndarray:
        """Not known for streamed rows.

        Raises
        ------
        ValueError
            Always: rows that only pass by have no place to keep the value of a local variable.
        """
        raise ValueError(NO_ROW_NUMBERS)

    @property
    def state(self) -> dict[str, Any]:
        """How many blocks of the current pass were used, and the rows that are left of them."""
        return {"consumed": self._pass.consumed, "left": dict(self._left)}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._pass.restart(state["consumed"])
        self._left = dict(state["left"])
