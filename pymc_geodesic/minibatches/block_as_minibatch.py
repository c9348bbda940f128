"""Minibatches of the rows of an iterable, as they pass by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.block_format import BlockFormat, BlockPass, rows_of
from pymc_geodesic.minibatches.block_rows import Memory
from pymc_geodesic.minibatches.row_indices import RowIndex
from pymc_geodesic.minibatches.source import PassingRows
from pymc_geodesic.minibatches.unlike_blocks import BlockMeans, watched

WINDOW = 16
"""Minibatches whose rows are put in random order together."""

EXAMPLES = 256
"""Rows of the first block that are kept as examples."""


def random_first_block(seed: int, n_rows: int, first_length: int) -> int:
    """Choose with how many blocks passed by a chain begins, so that no two see the same rows.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.block_as_minibatch import random_first_block
    >>> [random_first_block(seed, n_rows=1000, first_length=10) for seed in (1, 2, 3)]
    [82, 76, 2]
    >>> random_first_block(1, n_rows=10, first_length=100)
    0
    """
    return int(np.random.default_rng([seed, 5]).integers(max(n_rows // first_length, 1)))


class StreamedRows(PassingRows):
    """Rows of an iterable, which pass by once per epoch.

    A chain begins at a random block. As many blocks as hold some sixteen minibatches are in memory
    together, and their rows in a random order of the chain's own, so that minibatches of
    different chains have no rows in common but by chance.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name. What is left over goes into the next minibatch. The iterable is started again when
        it is exhausted.
    format : BlockFormat
        Data containers the blocks stand for.
    n_rows : int
        N, all rows of the data.
    batch_size : int, optional
        Rows of a minibatch; by default those of the first block.

    Raises
    ------
    ValueError
        If a block does not fit the data containers or holds NaN or infinity.
    """

    walks_epochs = True

    def __init__(
        self,
        batches: Iterable[Any],
        format: BlockFormat,
        n_rows: int,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self._format, self._batches = format, batches
        self._pass = BlockPass(batches, format.named)
        self.n_rows = n_rows
        first = self._pass.next_block()
        self._first_length = rows_of(first)
        if not self._first_length:
            raise ValueError("the first block of batches= has no rows")
        self._first_rows = format.first_rows(first, EXAMPLES)
        self.batch_size = self._first_length if batch_size is None else batch_size
        wanted = -(-WINDOW * self.batch_size // self._first_length)
        self._window_blocks = max(min(wanted, n_rows // self._first_length), 1)
        self.arrays, self.whole = format.empty(self.batch_size)
        self._memory = Memory()
        self._means = BlockMeans()
        self._starts = np.empty(0, dtype=np.int64)
        self._restart(0, 0, 0)

    def check_indices(self, indices: Sequence[RowIndex]) -> None:
        """Look whether rows point beyond an array; see `RowSource.check_indices`."""
        self._format.indices = tuple(indices)

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], None]:
        return *self._first_rows, None

    def sample_rows(self, n: int) -> tuple[dict[str, np.ndarray], int]:
        """Rows from places that are spread evenly over the stream; see `RowSource.sample_rows`."""
        arrays = self._format.thinned(self._batches, self.n_rows, n)
        return arrays, rows_of(arrays)

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Go once through the stream, block by block; see `RowSource.all_rows`."""
        if isinstance(self._batches, Iterator):
            return None
        parts = self._format.one_pass(self._batches)
        return parts if parts is None or self._means.is_done else watched(parts, self._means)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._restart(seed, 0, 0)
        self._pass.skip(random_first_block(seed, self.n_rows, self._first_length))
        self._begin = self._pass.consumed

    def _restart(self, seed: int, begin: int, windows: int) -> None:
        """Go to the block after ``begin`` ones, the first of a window."""
        self._seed, self._windows = seed, windows
        self._pass.restart(begin)
        self._begin = self._pass.consumed
        self._window: dict[str, Any] = {}
        self._length = self._used = 0

    def _next_window(self) -> None:
        """Read some blocks, and put their rows in random order."""
        self._begin = self._pass.consumed
        blocks = [self._format.copied(self._pass.next_block()) for _ in range(self._window_blocks)]
        self._length, self._used = sum(map(rows_of, blocks)), 0
        if not self._means.is_done:
            self._watch(blocks)
        order = np.random.default_rng([self._seed, 7, self._windows]).permutation(self._length)
        self._window = self._format.shuffled(blocks, order)
        self._windows += 1

    def _watch(self, blocks: list[dict[str, Any]]) -> None:
        """Compare the blocks of a window with those before."""
        for number, block in enumerate(blocks):
            # Where a pass ends within a window, its blocks count on into the next pass.
            begin = self._begin + number
            self._means.take_in(begin, begin + 1, self._format.dense_rows(block, rows_of(block)))
        self._means.look_now_and_then(self.n_rows)

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the rows of the next ``n`` minibatches into the resident arrays."""
        length = n * self.batch_size
        if self._starts.size != n:
            self._starts = np.arange(n, dtype=np.int64) * self.batch_size
        parts: list[dict[str, Any]] = []
        missing = length
        while missing:
            if self._used == self._length:
                self._next_window()
                continue
            rows = slice(self._used, min(self._used + missing, self._length))
            parts.append({name: part[rows] for name, part in self._window.items()})
            self._used = rows.stop
            missing -= rows.stop - rows.start
        where = f"block {self._begin + 1} or one of the {self._window_blocks - 1} after it"
        if self._window_blocks == 1:
            where = f"block {self._pass.consumed}"
        self.arrays, self.whole = self._format.lay_out(
            parts, None, length, self._memory, where, in_order=False
        )
        return self._starts

    @property
    def state(self) -> dict[str, Any]:
        """Seed, where the blocks in memory begin, which ones they are, and rows of them used."""
        return {
            "seed": self._seed,
            "begin": self._begin,
            "windows": self._windows,
            "used": self._used,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._restart(state["seed"], state["begin"], state["windows"])
        if state["windows"]:
            self._windows -= 1
            self._next_window()
            self._used = state["used"]
