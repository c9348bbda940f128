"""Minibatches of rows that are streamed in blocks, for example from disk.

`StreamedRows` shuffles the rows of several blocks together and uses every row once per epoch.
`StreamedBlocks` takes the minibatches of several draws from one block in memory, while a thread
loads the next one.
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
from pymc_geodesic.minibatches.source import RandomStream, StreamedSource
from pymc_geodesic.runtime.threads import BackgroundTask

BUFFER_MINIBATCHES = 16
"""Number of minibatches in the shuffle buffer."""

N_EXAMPLES = 256
"""Number of rows of the first blocks that are kept to check the compiled gradient."""


def random_first_block(seed: int, n_rows: int, first_length: int) -> int:
    """Draw the number of blocks to skip at the start of a chain, so that chains differ.

    Examples
    --------
    >>> from pymc_geodesic.minibatches.streamed_rows import random_first_block
    >>> [random_first_block(seed, n_rows=1000, first_length=10) for seed in (1, 2, 3)]
    [82, 76, 2]
    >>> random_first_block(1, n_rows=10, first_length=100)
    0
    """
    rng = np.random.default_rng([seed, RandomStream.FIRST_BLOCK])
    return int(rng.integers(max(n_rows // first_length, 1)))


class _BlockSource(StreamedSource):
    """Source that reads blocks of rows from an iterable.

    Parameters
    ----------
    batches, format, n_rows
        See `StreamedBlocks`.
    """

    _first_rows: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

    def __init__(self, batches: Iterable[Any], format: BlockFormat, n_rows: int) -> None:
        super().__init__()
        self._format, self._batches = format, batches
        self._pass = BlockPass(batches, format.named)
        self._means = BlockMeans()
        self.n_rows = n_rows

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


class StreamedRows(_BlockSource):
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
        super().__init__(batches, format, n_rows)
        first = self._pass.next_block()
        self._first_length = rows_of(first)
        if not self._first_length:
            raise ValueError("the first block of batches= has no rows. Omit empty blocks")
        self._first_rows = format.first_rows(first, N_EXAMPLES)
        self.batch_size = self._first_length if batch_size is None else batch_size
        wanted = -(-BUFFER_MINIBATCHES * self.batch_size // self._first_length)
        self._buffer_blocks = max(min(wanted, n_rows // self._first_length), 1)
        self.arrays, self.whole = format.empty(self.batch_size)
        self._memory = Buffers()
        self._starts = np.empty(0, dtype=np.int64)
        self._rewind(0, 0, 0)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._rewind(seed, 0, 0)
        self._pass.skip(random_first_block(seed, self.n_rows, self._first_length))
        self._begin = self._pass.consumed

    def _rewind(self, seed: int, begin: int, n_fills: int) -> None:
        """Start at block ``begin`` of a pass, the first in the buffer."""
        self._seed, self._n_fills = seed, n_fills
        self._pass.restart(begin)
        self._begin = self._pass.consumed
        self._buffer: dict[str, Any] = {}
        self._length = self._used = 0

    def _fill_buffer(self) -> None:
        """Read the next blocks into the buffer, and shuffle their rows."""
        self._begin = self._pass.consumed
        blocks = [self._format.copied(self._pass.next_block()) for _ in range(self._buffer_blocks)]
        self._length, self._used = sum(map(rows_of, blocks)), 0
        if not self._means.is_done:
            self._compare(blocks)
        rng = np.random.default_rng([self._seed, RandomStream.BUFFER, self._n_fills])
        order = rng.permutation(self._length)
        self._buffer = self._format.shuffled(blocks, order)
        self._n_fills += 1

    def _compare(self, blocks: list[dict[str, Any]]) -> None:
        """Compare the blocks in the buffer with the earlier ones."""
        for number, block in enumerate(blocks):
            # block numbers continue beyond the end of a pass
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
                self._fill_buffer()
                continue
            rows = slice(self._used, min(self._used + missing, self._length))
            parts.append({name: part[rows] for name, part in self._buffer.items()})
            self._used = rows.stop
            missing -= rows.stop - rows.start
        where = f"block {self._begin + 1} or one of the {self._buffer_blocks - 1} after it"
        if self._buffer_blocks == 1:
            where = f"block {self._pass.consumed}"
        self.arrays, self.whole = self._format.lay_out(
            parts, None, length, self._memory, where, in_order=False
        )
        return self._starts

    @property
    def state(self) -> dict[str, Any]:
        """Seed, first block in the buffer, number of fills, and number of used rows."""
        return {
            "seed": self._seed,
            "begin": self._begin,
            "fills": self._n_fills,
            "used": self._used,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._rewind(state["seed"], state["begin"], state["fills"])
        if state["fills"]:
            self._n_fills -= 1
            self._fill_buffer()
            self._used = state["used"]


_ORDERS: dict[str, type[MinibatchOrder]] = {
    "shuffled": ShuffledOrder,
    "independent": IndependentOrder,
}
_ROUNDING = 1e-9
"""Rounding error of a number of draws or minibatches."""


@dataclass(frozen=True)
class _Block:
    """A block of rows in memory, in random order.

    Attributes
    ----------
    arrays : dict of str to ndarray
        The rows; the first ones are repeated at the end.
    whole : dict of str to ndarray
        Values and column indices of sparse matrices.
    memory : Buffers
        Buffers of the arrays.
    n_rows : int
        Number of rows, without the repeated ones.
    begin, end : int
        Number of blocks of the iterable before it, and including it, in a pass.
    min_rows : int
        Minimum number of rows; shorter blocks of the iterable were concatenated.
    """

    arrays: dict[str, np.ndarray]
    whole: dict[str, np.ndarray]
    memory: Buffers
    n_rows: int
    begin: int
    end: int
    min_rows: int


class StreamedBlocks(_BlockSource):
    r"""Blocks of an iterable that stay in memory for several draws.

    A block of B rows is shuffled while it is read, and provides the minibatches of several draws
    while the next block loads. The number of draws is proportional to B; remainders are added when
    the same block is read again. In expectation every row is used equally often, and the average
    gradient of an epoch,

    .. math:: \frac{1}{D} \sum_b D_b \frac{N}{B_b} \sum_{i \in b} g_i, \qquad
              \frac{D_b}{D} = \frac{B_b}{N},

    is that of all rows. Two blocks are in memory, and copies of the parts of a concatenated block
    while it is loaded, unless they are read in pieces. A chain begins at a random block.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name; sparse matrices for sparse data. Arrays that can be sliced, such as those of
        `pymc_geodesic.datasets.row_blocks`, are read in pieces. A block with fewer rows than a
        minibatch is concatenated with the next ones.
    format : BlockFormat
        Data containers of the blocks.
    n_rows : int
        N, the number of rows of the data.
    batch_size : int
        Number of rows of a minibatch.
    order : {"shuffled", "independent", "random"}
        Order of the minibatches within a block.
    draws_per_block : int, optional
        Number of draws for which a block of the length of the first one is used. By default B
        divided by the batch size minibatches are used, including those of gradients between draws.
        Then blocks with fewer rows than the minibatches of one draw are concatenated, up to all
        rows: using a block several times in one draw would raise the temperature, because its noise
        is correlated.

    Raises
    ------
    ValueError
        If all blocks together have fewer rows than a minibatch, or a block does not fit the data
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
        super().__init__(batches, format, n_rows)
        self.batch_size = batch_size
        self.with_replacement = order == "random"
        self._order = order
        self.has_epochs = order == "shuffled"
        self._draws_per_block = draws_per_block
        self._read_first()
        self.arrays, self.whole = format.empty(batch_size)
        self._loading: BackgroundTask[_Block] | None = None
        self._block: _Block | None = None
        self._free_buffers = Buffers()
        self._rewind(0)

    def _read_first(self) -> None:
        """Read the first blocks, until they have the rows of a minibatch."""
        first = self._pass.next_block()
        lengths, longest = [rows_of(first)], first
        while sum(lengths) < self.batch_size:
            longest = self._format.kept(longest)
            block = self._pass.next_block()
            if self._pass.consumed <= len(lengths):  # of the next pass
                raise ValueError(
                    f"batch_size={self.batch_size} exceeds the {sum(lengths)} rows of all blocks "
                    "of batches=. Use a smaller batch_size"
                )
            if rows_of(block) > max(lengths):
                longest = block
            lengths.append(rows_of(block))
        self._first_length = sum(lengths)
        self._mean_length = max(sum(lengths) // len(lengths), 1)
        number = int(np.argmax(lengths)) + 1
        self._first_rows = self._format.first_rows(longest, N_EXAMPLES, number)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._rewind(seed)
        self._pass.skip(random_first_block(seed, self.n_rows, self._mean_length))
        self._begin = self._pass.consumed

    def _rewind(self, seed: int) -> None:
        self._drop_blocks()
        self._seed = seed
        self._min_rows = self.batch_size
        self._n_loaded = 0
        self._budget = 0.0
        self._previous = 0
        self._remainders: dict[int, float] = {}
        self._begin = 0
        self._pass.restart(0)

    def _drop_blocks(self) -> None:
        """Discard the blocks; the next block reuses the memory of the current one."""
        if self._loading is not None:
            self._loading.abandon()
            self._loading = None
        self._next_min_rows = 0
        if self._block is not None:
            self._free_buffers = self._block.memory
            self._block = None

    def _load(self, begin: int, min_rows: int) -> _Block:
        """Read and shuffle the next block; concatenate blocks to at least ``min_rows`` rows."""
        if self._pass.consumed != begin:
            self._pass.restart(begin)
        parts = [self._pass.next_block()]
        first = self._pass.consumed
        while (n_rows := sum(map(rows_of, parts))) < min_rows:
            parts[-1] = self._format.kept(parts[-1])
            parts.append(self._pass.next_block())
        length = n_rows if self.with_replacement else n_rows + self.batch_size - 1
        memory, self._free_buffers = self._free_buffers, Buffers()
        where = f"block {first}"
        if len(parts) > 1:
            where += f" or one of the {len(parts) - 1} after it"
        arrays, whole = self._format.lay_out(parts, row_permutation(n_rows), length, memory, where)
        end = self._pass.consumed
        if not self._means.is_done:
            self._means.add_block(begin, end, self._format.dense_rows(arrays, n_rows))
        return _Block(arrays, whole, memory, n_rows, begin, end, min_rows)

    def _activate(self, block: _Block) -> None:
        """Make this block the source of minibatches."""
        if self._block is not None:
            self._free_buffers = self._block.memory
        self._block = block
        self.whole = block.whole
        rng = np.random.default_rng([self._seed, RandomStream.BLOCK_ORDER, self._n_loaded])
        seed = int(rng.integers(2**63))
        self._n_loaded += 1
        self._minibatch_order: MinibatchOrder | RandomRows
        self._gathered = None
        if self.with_replacement:
            self._minibatch_order = self._gathered = RandomRows(block.arrays, self.batch_size)
        else:
            self._minibatch_order = _ORDERS[self._order](block.n_rows, self.batch_size)
            self.arrays = block.arrays
        self._minibatch_order.reset(seed)

    def _next_block(self) -> None:
        """Wait for the next block, or load it, and make it the source of minibatches."""
        if self._loading is not None:
            block = self._loading.result()
            self._loading = None
        else:
            begin = self._begin if self._block is None else self._block.end
            block = self._load(begin, self._next_min_rows or self._min_rows)
        self._next_min_rows = 0
        if not self._means.is_done:
            self._means.check_periodically(self.n_rows)
        self._activate(block)

    def _set_budget(self, n: int) -> None:
        """Set the number of minibatches, or of draws, for the block that was just read."""
        assert self._block is not None
        if self._draws_per_block is None:
            share = max(self._block.n_rows / self.batch_size, float(n))
        else:
            share = self._draws_per_block * self._block.n_rows / self._first_length
        self._budget = share + self._remainders.get(self._block.begin, 0.0)

    def _cost(self, n: int) -> float:
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
            self._min_rows = max(min(n * self.batch_size, self.n_rows), self.batch_size)
        used = self._cost(n)
        # rounded to the nearest number of draws; the remainder is used in the next pass
        while self._block is None or self._budget < 0.5 * used - _ROUNDING:
            if self._block is not None:
                self._remainders[self._block.begin] = self._budget
            self._next_block()
            self._set_budget(n)
        assert self._block is not None
        if self._loading is None:
            self._load_next(self._block.end)
        self._budget -= used
        starts = self._minibatch_order.next_starts(n)
        if self._gathered is not None:
            self.arrays = self._gathered.arrays
        return starts

    def _load_next(self, begin: int) -> None:
        """Begin to load the next block, with the current minimum number of rows."""
        n_rows = self._next_min_rows = self._next_min_rows or self._min_rows
        # until its result is used, only the thread uses _pass, _free_buffers and _means
        self._loading = BackgroundTask(lambda: self._load(begin, n_rows))

    @property
    def state(self) -> dict[str, Any]:
        """Seed, position in the iterable, and position in the block."""
        return {
            "seed": self._seed,
            "n_loaded": self._n_loaded,
            "budget": self._budget,
            "previous": self._previous,
            "min_rows": self._min_rows if self._block is None else self._block.min_rows,
            "next_min_rows": self._next_min_rows,
            "remainders": dict(self._remainders),
            "begin": self._begin if self._block is None else self._block.begin,
            "order": None if self._block is None else self._minibatch_order.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._drop_blocks()
        self._seed, self._begin = state["seed"], state["begin"]
        self._min_rows = state["min_rows"]
        self._pass.restart(self._begin)
        if state["order"] is not None:
            self._n_loaded = state["n_loaded"] - 1
            self._next_block()
            self._minibatch_order.state = state["order"]
        self._next_min_rows = state["next_min_rows"]
        self._n_loaded = state["n_loaded"]
        self._budget, self._previous = state["budget"], state["previous"]
        self._remainders = dict(state["remainders"])
