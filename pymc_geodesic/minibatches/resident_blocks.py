"""Minibatches of large blocks of rows, of which the next one loads in the background."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.block_as_minibatch import (
    EXAMPLES,
    random_first_block,
)
from pymc_geodesic.minibatches.block_format import BlockFormat, BlockPass, rows_of
from pymc_geodesic.minibatches.block_rows import Memory
from pymc_geodesic.minibatches.order import IndependentWalk, ShuffledWalk, Walk
from pymc_geodesic.minibatches.random_rows import RandomRows
from pymc_geodesic.minibatches.row_indices import RowIndex
from pymc_geodesic.minibatches.shuffled_rows import shuffled_order
from pymc_geodesic.minibatches.source import PassingRows
from pymc_geodesic.minibatches.unlike_blocks import BlockMeans, watched
from pymc_geodesic.runtime.threads import BackgroundTask

_WALKS: dict[str, type[Walk]] = {"shuffled": ShuffledWalk, "independent": IndependentWalk}
_ROUNDING = 1e-9
"""What rounding may do to a share of a block."""


@dataclass(frozen=True)
class _Block:
    """Rows in memory, in random order.

    Attributes
    ----------
    arrays : dict of str to ndarray
        The rows, some of the first repeated at the end.
    whole : dict of str to ndarray
        The numbers that rows of sparse matrices point into.
    memory : Memory
        What they are in.
    n_rows : int
        Rows without the repeated ones.
    begin, end : int
        Blocks of the iterable before it, and up to it, in their passes.
    least_rows : int
        Up to which blocks of the iterable were joined.
    """

    arrays: dict[str, np.ndarray]
    whole: dict[str, np.ndarray]
    memory: Memory
    n_rows: int
    begin: int
    end: int
    least_rows: int


class StreamedBlocks(PassingRows):
    r"""Blocks of an iterable that stay in memory for some draws.

    A block of B rows is put in random order while it is read, and minibatches are taken from it
    for a number of draws while the next block loads. The number is proportional to B, what
    whole draws leave over being added when the same block comes again, so that every
    row is used equally often in the long run and the average gradient of an epoch,

    .. math:: \frac{1}{D} \sum_b D_b \frac{N}{B_b} \sum_{i \in b} g_i, \qquad
              \frac{D_b}{D} = \frac{B_b}{N},

    is that of all rows. Two blocks are in memory at most. A chain begins at a random block.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of the names, or mappings by
        name; sparse matrices for sparse data. Arrays that are sliced only, such as those of
        `pymc_geodesic.datasets.row_blocks`, are read piece by piece. A block with fewer rows than
        a minibatch is joined to the next.
    format : BlockFormat
        Data containers the blocks stand for.
    n_rows : int
        N, all rows of the data.
    batch_size : int
        Rows of a minibatch.
    order : {"shuffled", "independent", "random"}
        Order of the minibatches within a block.
    draws_per_block : int, optional
        Draws for which a block as long as the first one stays. By default as many as make one
        pass over it, gradients between draws included, which count by their minibatches in
        either case; blocks with fewer rows than the minibatches of one draw are then joined, up
        to all rows there are, for one that is passed over more than once heats: its noise stays.

    Raises
    ------
    ValueError
        If the first block has fewer rows than a minibatch, or a block does not fit the data
        containers or holds NaN or infinity.
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
        self.walks_epochs = order == "shuffled"
        self._draws_per_block = draws_per_block
        first = self._pass.next_block()
        self._first_length = rows_of(first)
        if not 1 <= batch_size <= self._first_length:
            raise ValueError(
                f"batch_size={batch_size} does not fit the first block of batches=, which has "
                f"{self._first_length} rows; choose 1 to {self._first_length}, or make the "
                "blocks longer"
            )
        self._first_rows = format.first_rows(first, EXAMPLES)
        self.arrays, self.whole = format.empty(batch_size)
        self._loading: BackgroundTask[_Block] | None = None
        self._block: _Block | None = None
        self._spare = Memory()
        self._means = BlockMeans()
        self._start_over(0)

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
        """Forget the blocks; the next one gets the memory of the present one."""
        if self._loading is not None:
            self._loading.abandon()
            self._loading = None
        self._least_of_next = 0
        if self._block is not None:
            self._spare = self._block.memory
            self._block = None

    def _load(self, begin: int, least_rows: int) -> _Block:
        """Read the next block that is long enough, in random order."""
        if self._pass.consumed != begin:
            self._pass.restart(begin)
        parts = [self._pass.next_block()]
        while (n_rows := sum(map(rows_of, parts))) < least_rows:
            parts[-1] = self._format.copied(parts[-1])
            parts.append(self._pass.next_block())
        length = n_rows if self.with_replacement else n_rows + self.batch_size - 1
        memory, self._spare = self._spare, Memory()
        where = f"block {self._pass.consumed}"
        arrays, whole = self._format.lay_out(parts, shuffled_order(n_rows), length, memory, where)
        end = self._pass.consumed
        if not self._means.is_done:
            self._means.take_in(begin, end, self._format.dense_rows(arrays, n_rows))
        return _Block(arrays, whole, memory, n_rows, begin, end, least_rows)

    def _install(self, block: _Block) -> None:
        """Take minibatches from this block from now on."""
        if self._block is not None:
            self._spare = self._block.memory
        self._block = block
        self.whole = block.whole
        seed = int(np.random.default_rng([self._seed, 4, self._visits]).integers(2**63))
        self._visits += 1
        self._walk: Walk | RandomRows
        self._gathered = None
        if self.with_replacement:
            self._walk = self._gathered = RandomRows(block.arrays, self.batch_size)
        else:
            self._walk = _WALKS[self._order](block.n_rows, self.batch_size)
            self.arrays = block.arrays
        self._walk.reset(seed)

    def _take_block(self) -> None:
        if self._loading is not None:
            block = self._loading.result()
            self._loading = None
        else:
            begin = self._begin if self._block is None else self._block.end
            block = self._load(begin, self._least_of_next or self._least_rows)
        self._least_of_next = 0
        if not self._means.is_done:
            self._means.look_now_and_then(self.n_rows)
        self._install(block)

    def _allot(self, n: int) -> None:
        """Give the block that has just come its share: of minibatches, or of draws."""
        assert self._block is not None
        if self._draws_per_block is None:
            share = max(self._block.n_rows / self.batch_size, float(n))
        else:
            share = self._draws_per_block * self._block.n_rows / self._first_length
        self._left = share + self._remainders.get(self._block.begin, 0.0)

    def _used_by(self, n: int) -> float:
        """Part of a share that so many minibatches use up.

        Of draws one, unless the call before was for more: a look between draws is a part of one.
        """
        if self._draws_per_block is None:
            return float(n)
        previous, self._previous = self._previous, n
        return n / max(n, previous)

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the minibatches of one draw, all in the same block."""
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
        starts = self._walk.next_starts(n)
        if self._gathered is not None:
            self.arrays = self._gathered.arrays
        return starts

    def _load_next(self, begin: int) -> None:
        """Begin to load, with as many rows as are wanted now and not when it is done."""
        least = self._least_of_next = self._least_of_next or self._least_rows
        self._loading = BackgroundTask(lambda: self._load(begin, least))

    @property
    def state(self) -> dict[str, Any]:
        """Seed, place in the iterable, and place in the block."""
        return {
            "seed": self._seed,
            "visits": self._visits,
            "left": self._left,
            "previous": self._previous,
            "least_rows": self._least_rows if self._block is None else self._block.least_rows,
            "least_of_next": self._least_of_next,
            "remainders": dict(self._remainders),
            "begin": self._begin if self._block is None else self._block.begin,
            "walk": None if self._block is None else self._walk.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._leave_block()
        self._seed, self._begin = state["seed"], state["begin"]
        self._least_rows = state["least_rows"]
        self._pass.restart(self._begin)
        if state["walk"] is not None:
            self._visits = state["visits"] - 1
            self._take_block()
            self._walk.state = state["walk"]
        self._least_of_next = state["least_of_next"]
        self._visits = state["visits"]
        self._left, self._previous = state["left"], state["previous"]
        self._remainders = dict(state["remainders"])
