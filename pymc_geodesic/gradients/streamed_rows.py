"""Minibatches of consecutive rows as they come from an iterable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pymc_geodesic.gradients.block_rows import Memory
from pymc_geodesic.gradients.blocks import BlockFormat, BlockPass, rows_of
from pymc_geodesic.gradients.rows import RowSource

__all__ = ["NO_ROW_NUMBERS", "StreamedRows"]

NO_ROW_NUMBERS = "local= needs rows that can be visited again: not available with batches="


class StreamedRows(RowSource):
    """Row blocks of an iterable, taken as minibatches in the order in which they come.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name. What a block leaves over goes into the next minibatch. The iterable is started again
        when it is exhausted.
    format : BlockFormat
        Data containers the blocks stand for.
    n_rows : int
        N, all rows of the data.
    batch_size : int, optional
        Rows of a minibatch; by default those of the first block.

    Raises
    ------
    ValueError
        If a block does not fit the data containers or holds NaN.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        format: BlockFormat,
        n_rows: int,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self._format = format
        self._pass = BlockPass(batches, format.named)
        self.n_rows = n_rows
        self.batch_size = rows_of(self._pass.next_block()) if batch_size is None else batch_size
        self.arrays, self.whole = format.empty(self.batch_size)
        self._memory = Memory()
        self._starts = np.empty(0, dtype=np.int64)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start the iterable again."""
        self._restart(0, 0)

    def _restart(self, consumed: int, used: int) -> None:
        """Go to a row of the block that is the last of ``consumed`` ones."""
        self._pass.restart(max(consumed - 1, 0))
        self._block: dict[str, Any] = {}
        self._length = self._used = 0
        if consumed:
            self._next_block()
            self._used = used

    def _next_block(self) -> None:
        self._block = self._format.in_memory(self._pass.next_block())
        self._length, self._used = rows_of(self._block), 0

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the rows of the next ``n`` minibatches into the resident arrays."""
        length = n * self.batch_size
        if self._starts.size != n:
            self._starts = np.arange(n, dtype=np.int64) * self.batch_size
        parts: list[dict[str, Any]] = []
        missing = length
        while missing:
            if self._used == self._length:
                if parts:
                    parts[-1] = self._format.copied(parts[-1])
                self._next_block()
                continue
            rows = slice(self._used, min(self._used + missing, self._length))
            whole = rows.stop - rows.start == self._length
            parts.append(
                self._block if whole else {name: part[rows] for name, part in self._block.items()}
            )
            self._used = rows.stop
            missing -= rows.stop - rows.start
        where = f"block {self._pass.consumed}"
        self.arrays, self.whole = self._format.lay_out(parts, None, length, self._memory, where)
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
        """How many blocks of the current pass were taken, and how many rows of the last of them."""
        return {"consumed": self._pass.consumed, "used": self._used}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._restart(state["consumed"], state["used"])
