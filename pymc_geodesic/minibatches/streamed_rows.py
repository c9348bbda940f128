"""Minibatches of rows that are streamed in blocks, for example from disk.

`StreamedRows` combines some blocks at a time and uses every row once per epoch. `StreamedBlocks`
keeps a large block in memory for several draws, while the next one loads in the background.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.block_format import BlockFormat, BlockPass, rows_of
from pymc_geodesic.minibatches.block_rows import Buffers
from pymc_geodesic.minibatches.heterogeneous_blocks import BlockMeans, compare_blocks
from pymc_geodesic.minibatches.resident_rows import (
    IndependentOrder,
    MinibatchOrder,
    RandomRows,
    ShuffledOrder,
    row_permutation,
)
from pymc_geodesic.minibatches.row_inputs import RowIndex
from pymc_geodesic.minibatches.source import StreamedSource
from pymc_geodesic.runtime.threads import BackgroundTask

WINDOW = 16
"""Number of minibatches whose rows are shuffled together."""

EXAMPLES = 256
"""Number of rows of the first block that are stored as examples."""


def random_first_block(seed: int, n_rows: int, first_length: int) -> int:
    """Choose the number of blocks to skip, so that chains have different minibatches.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.streamed_rows import random_first_block
    >>> [random_first_block(seed, n_rows=1000, first_length=10) for seed in (1, 2, 3)]
    [82, 76, 2]
    >>> random_first_block(1, n_rows=10, first_length=100)
    0
    """
    return int(np.random.default_rng([seed, 5]).integers(max(n_rows // first_length, 1)))


class StreamedRows(StreamedSource):
    """Rows of an iterable of blocks, every row once per epoch.

    A chain begins at a random block. Blocks with the rows of about 16 minibatches are shuffled
    together, in a different order for each chain.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name. It is iterated over again when it is exhausted. Remaining rows are used in the next
        minibatch.
    format : BlockFormat
        Data containers of the blocks.
    n_rows : int
        N, the number of rows of the data.
    batch_size : int, optional
        Number of rows of a minibatch; by default that of the first block.

    Raises
    ------
    ValueError
        If a block does not fit the data containers or contains NaN or infinity.
    """

    has_epochs = True

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
            raise ValueError("the first block of batches= has no rows. Omit empty blocks")
        self._first_rows = format.first_rows(first, EXAMPLES)
        self.batch_size = self._first_length if batch_size is None else batch_size
        wanted = -(-WINDOW * self.batch_size // self._first_length)
        self._window_blocks = max(min(wanted, n_rows // self._first_length), 1)
        self.arrays, self.whole = format.empty(self.batch_size)
        self._memory = Buffers()
        self._means = BlockMeans()
        self._starts = np.empty(0, dtype=np.int64)
        self._restart(0, 0, 0)

    def check_indices(self, indices: Sequence[RowIndex]) -> None:
        """Check the bounds of indices; see `RowSource.check_indices`."""
        self._format.indices = tuple(indices)

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], None]:
        return *self._first_rows, None

    def sample_rows(self, n: int) -> tuple[dict[str, np.ndarray], int]:
        """Choose evenly spaced rows of the stream; see `RowSource.sample_rows`."""
        arrays = self._format.evenly_spaced(self._batches, self.n_rows, n)
        return arrays, rows_of(arrays)

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Iterate over the stream once, by blocks; see `RowSource.all_rows`."""
        if isinstance(self._batches, Iterator):
            return None
        parts = self._format.one_pass(self._batches)
        return parts if parts is None or self._means.is_done else compare_blocks(parts, self._means)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._restart(seed, 0, 0)
        self._pass.skip(random_first_block(seed, self.n_rows, self._first_length))
        self._begin = self._pass.consumed

    def _restart(self, seed: int, begin: int, windows: int) -> None:
        """Restart at block ``begin`` of a pass, the first of a window."""
        self._seed, self._windows = seed, windows
        self._pass.restart(begin)
        self._begin = self._pass.consumed
        self._window: dict[str, Any] = {}
        self._length = self._used = 0

    def _next_window(self) -> None:
        """Read the blocks of the next window, and shuffle their rows."""
        self._begin = self._pass.consumed
        blocks = [self._format.copied(self._pass.next_block()) for _ in range(self._window_blocks)]
        self._length, self._used = sum(map(rows_of, blocks)), 0
        if not self._means.is_done:
            self._compare(blocks)
        order = np.random.default_rng([self._seed, 7, self._windows]).permutation(self._length)
        self._window = self._format.shuffled(blocks, order)
        self._windows += 1

    def _compare(self, blocks: list[dict[str, Any]]) -> None:
        """Compare the blocks of a window with the earlier ones."""
        for number, block in enumerate(blocks):
            # if a pass ends within a window, the numbers of its blocks continue
            begin = self._begin + number
            self._means.add_block(begin, begin + 1, self._format.dense_rows(block, rows_of(block)))
        self._means.check_periodically(self.n_rows)

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the rows of the next ``n`` minibatches into ``arrays``."""
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
        """Seed, first block and index of the window, and number of its used rows."""
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


_ORDERS: dict[str, type[MinibatchOrder]] = {
    "shuffled": ShuffledOrder,
    "independent": IndependentOrder,
}
_ROUNDING = 1e-9
"""Rounding error of a share of a block."""


@dataclass(frozen=True)
class _Block:
    """A block of rows in memory, in random order.

    Attributes
    ----------
    arrays : dict of str to ndarray
        The rows; the first ones are repeated at the end.
    whole : dict of str to ndarray
        Arrays that are indexed by rows of sparse matrices.
    memory : Buffers
        Buffers of the arrays.
    n_rows : int
        Number of rows, without the repeated ones.
    begin, end : int
        Number of blocks of the iterable before it, and including it, in a pass.
    least_rows : int
        Minimum number of rows; shorter blocks of the iterable were concatenated.
    """

    arrays: dict[str, np.ndarray]
    whole: dict[str, np.ndarray]
    memory: Buffers
    n_rows: int
    begin: int
    end: int
    least_rows: int


class StreamedBlocks(StreamedSource):
    r"""Blocks of an iterable that stay in memory for several draws.

    A block of B rows is shuffled while it is read, and provides the minibatches of several draws
    while the next block loads. The number of draws is proportional to B; remainders are added when
    the same block is read again. In the long run every row is used equally often, and the average
    gradient of an epoch,

    .. math:: \frac{1}{D} \sum_b D_b \frac{N}{B_b} \sum_{i \in b} g_i, \qquad
              \frac{D_b}{D} = \frac{B_b}{N},

    is that of all rows. At most two blocks are in memory. A chain begins at a random block.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name; sparse matrices for sparse data. Arrays that can be sliced, such as those of
        `pymc_geodesic.datasets.row_blocks`, are read in pieces. A block with fewer rows than a
        minibatch is concatenated with the next.
    format : BlockFormat
        Data containers of the blocks.
    n_rows : int
        N, the number of rows of the data.
    batch_size : int
        Number of rows of a minibatch.
    order : {"shuffled", "independent", "random"}
        Order of the minibatches within a block.
    draws_per_block : int, optional
        Number of draws for which a block of the length of the first one is used. By default its
        minibatches are used once, including those of gradients between draws. Then blocks with
        fewer rows than the minibatches of one draw are concatenated, up to all rows: using a block
        several times in one draw would raise the temperature, because its noise is correlated.

    Raises
    ------
    ValueError
        If the first block has fewer rows than a minibatch, or a block does not fit the data
        containers or contains NaN or infinity.
    """

    stays_in_blocks = True

    def __init__(
        self,
        batches: Iterable[Any],
        format: BlockFormat,
        n_rows: int,
        *,
        batch_size: int,
        order: str,
        draws_per_block: int | None,
    ) -> None:
        super().__init__()
        self._format, self._batches = format, batches
        self._pass = BlockPass(batches, format.named)
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.with_replacement = order == "random"
        self._order = order
        self.has_epochs = order == "shuffled"
        self._draws_per_block = draws_per_block
        first = self._pass.next_block()
        self._first_length = rows_of(first)
        if not 1 <= batch_size <= self._first_length:
            raise ValueError(
                f"batch_size={batch_size} exceeds the first block of batches=, which has "
                f"{self._first_length} rows. Use batch_size <= {self._first_length}, or longer "
                "blocks"
            )
        self._first_rows = format.first_rows(first, EXAMPLES)
        self.arrays, self.whole = format.empty(batch_size)
        self._loading: BackgroundTask[_Block] | None = None
        self._block: _Block | None = None
        self._spare = Buffers()
        self._means = BlockMeans()
        self._start_over(0)

    def check_indices(self, indices: Sequence[RowIndex]) -> None:
        """Check the bounds of indices; see `RowSource.check_indices`."""
        self._format.indices = tuple(indices)

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], None]:
        return *self._first_rows, None

    def sample_rows(self, n: int) -> tuple[dict[str, np.ndarray], int]:
        """Choose evenly spaced rows of the stream; see `RowSource.sample_rows`."""
        arrays = self._format.evenly_spaced(self._batches, self.n_rows, n)
        return arrays, rows_of(arrays)

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Iterate over the stream once, by blocks; see `RowSource.all_rows`."""
        if isinstance(self._batches, Iterator):
            return None
        parts = self._format.one_pass(self._batches)
        return parts if parts is None or self._means.is_done else compare_blocks(parts, self._means)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._start_over(seed)
        self._pass.skip(random_first_block(seed, self.n_rows, self._first_length))
        self._begin = self._pass.consumed

    def _start_over(self, seed: int) -> None:
        self._leave_block()
        self._seed = seed
        self._least_rows = self.batch_size
        self._visits = 0
        self._left = 0.0
        self._previous = 0
        self._remainders: dict[int, float] = {}
        self._begin = 0
        self._pass.restart(0)

    def _leave_block(self) -> None:
        """Discard the blocks; the next block reuses the memory of the current one."""
        if self._loading is not None:
            self._loading.abandon()
            self._loading = None
        self._least_of_next = 0
        if self._block is not None:
            self._spare = self._block.memory
            self._block = None

    def _load(self, begin: int, least_rows: int) -> _Block:
        """Read and shuffle the next block; concatenate blocks to at least ``least_rows`` rows."""
        if self._pass.consumed != begin:
            self._pass.restart(begin)
        parts = [self._pass.next_block()]
        while (n_rows := sum(map(rows_of, parts))) < least_rows:
            parts[-1] = self._format.copied(parts[-1])
            parts.append(self._pass.next_block())
        length = n_rows if self.with_replacement else n_rows + self.batch_size - 1
        memory, self._spare = self._spare, Buffers()
        where = f"block {self._pass.consumed}"
        arrays, whole = self._format.lay_out(parts, row_permutation(n_rows), length, memory, where)
        end = self._pass.consumed
        if not self._means.is_done:
            self._means.add_block(begin, end, self._format.dense_rows(arrays, n_rows))
        return _Block(arrays, whole, memory, n_rows, begin, end, least_rows)

    def _install(self, block: _Block) -> None:
        """Make this block the source of minibatches."""
        if self._block is not None:
            self._spare = self._block.memory
        self._block = block
        self.whole = block.whole
        seed = int(np.random.default_rng([self._seed, 4, self._visits]).integers(2**63))
        self._visits += 1
        self._minibatch_order: MinibatchOrder | RandomRows
        self._gathered = None
        if self.with_replacement:
            self._minibatch_order = self._gathered = RandomRows(block.arrays, self.batch_size)
        else:
            self._minibatch_order = _ORDERS[self._order](block.n_rows, self.batch_size)
            self.arrays = block.arrays
        self._minibatch_order.reset(seed)

    def _take_block(self) -> None:
        if self._loading is not None:
            block = self._loading.result()
            self._loading = None
        else:
            begin = self._begin if self._block is None else self._block.end
            block = self._load(begin, self._least_of_next or self._least_rows)
        self._least_of_next = 0
        if not self._means.is_done:
            self._means.check_periodically(self.n_rows)
        self._install(block)

    def _allot(self, n: int) -> None:
        """Set the number of minibatches, or of draws, for the block that was just read."""
        assert self._block is not None
        if self._draws_per_block is None:
            share = max(self._block.n_rows / self.batch_size, float(n))
        else:
            share = self._draws_per_block * self._block.n_rows / self._first_length
        self._left = share + self._remainders.get(self._block.begin, 0.0)

    def _used_by(self, n: int) -> float:
        """Compute the part of the share of a block that ``n`` minibatches use.

        A draw counts as 1. Fewer minibatches than in the previous call, as for a gradient between
        draws, count as a fraction.
        """
        if self._draws_per_block is None:
            return float(n)
        previous, self._previous = self._previous, n
        return n / max(n, previous)

    def next_starts(self, n: int) -> np.ndarray:
        """Return the first rows of the minibatches of one draw, all from the same block."""
        if self._draws_per_block is None:
            self._least_rows = max(min(n * self.batch_size, self.n_rows), self.batch_size)
        used = self._used_by(n)
        while self._block is None or self._left < 0.5 * used - _ROUNDING:
            if self._block is not None:
                self._remainders[self._block.begin] = self._left
            self._take_block()
            self._allot(n)
        assert self._block is not None
        if self._loading is None:
            self._load_next(self._block.end)
        self._left -= used
        starts = self._minibatch_order.next_starts(n)
        if self._gathered is not None:
            self.arrays = self._gathered.arrays
        return starts

    def _load_next(self, begin: int) -> None:
        """Begin to load the next block, with the current minimum number of rows."""
        least = self._least_of_next = self._least_of_next or self._least_rows
        self._loading = BackgroundTask(lambda: self._load(begin, least))

    @property
    def state(self) -> dict[str, Any]:
        """Seed, position in the iterable, and position in the block."""
        return {
            "seed": self._seed,
            "visits": self._visits,
            "left": self._left,
            "previous": self._previous,
            "least_rows": self._least_rows if self._block is None else self._block.least_rows,
            "least_of_next": self._least_of_next,
            "remainders": dict(self._remainders),
            "begin": self._begin if self._block is None else self._block.begin,
            "order": None if self._block is None else self._minibatch_order.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._leave_block()
        self._seed, self._begin = state["seed"], state["begin"]
        self._least_rows = state["least_rows"]
        self._pass.restart(self._begin)
        if state["order"] is not None:
            self._visits = state["visits"] - 1
            self._take_block()
            self._minibatch_order.state = state["order"]
        self._least_of_next = state["least_of_next"]
        self._visits = state["visits"]
        self._left, self._previous = state["left"], state["previous"]
        self._remainders = dict(state["remainders"])
