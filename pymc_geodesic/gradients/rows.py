"""Where the rows of the next minibatch lie.

A source keeps arrays whose memory the compiled gradient reads, and hands out, per draw, one
first row for each inner step. The data themselves never pass through Python.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

__all__ = [
    "AllRows",
    "IndependentRows",
    "RandomRows",
    "RowSource",
    "ShuffledRows",
    "StreamedRows",
]

_LONGEST_RUN = 16
"""Blocks read one after the other; with more, the memory is no faster."""

_LEAST_RUNS = 64
"""Runs of an epoch whose order is random; with fewer blocks than that, each is a run."""


class RowSource(ABC):
    """Source of minibatches.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Resident rows, C-contiguous; `next_starts` counts from their first row.
    batch_size : int
        Rows of a minibatch.
    n_rows : int
        N, all rows of the data.
    with_replacement : bool
        Whether a minibatch may hold a row twice.
    """

    arrays: dict[str, np.ndarray]
    batch_size: int
    n_rows: int
    with_replacement: ClassVar[bool] = False

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start a chain."""

    @abstractmethod
    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches, shape ``(n,)``."""

    @abstractmethod
    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in the minibatch that starts at ``start``."""

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that decides the minibatches to come."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class AllRows(RowSource):
    """No minibatches: every gradient sees all the data."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        self.arrays = {k: np.ascontiguousarray(v) for k, v in (arrays or {}).items()}
        lengths = {len(a) for a in self.arrays.values()}
        self.n_rows = self.batch_size = lengths.pop() if lengths else 1
        self._starts = np.zeros(1, dtype=np.int64)

    def reset(self, seed: int) -> None:
        """Nothing to do."""

    def next_starts(self, n: int) -> np.ndarray:
        """Zeros."""
        if self._starts.size != n:
            self._starts = np.zeros(n, dtype=np.int64)
        return self._starts

    def row_indices(self, start: int) -> np.ndarray:
        """All rows."""
        return np.arange(self.n_rows)

    @property
    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass


class ShuffledRows(RowSource):
    """Consecutive blocks of rows that were shuffled once.

    The rows lie on a circle in shuffled order. Each epoch takes the ``N // batch_size`` whole
    blocks that follow the end of the previous epoch, in a new random order, so that no block is
    ever short and all rows are used equally often. Consecutive rows are what memory is fast at:
    random rows of a large array are a cache miss each. For the same reason it is runs of blocks
    that are put in random order, of up to 16 blocks where there are many.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (N, ...)
        The data. They are copied once, in shuffled order, with ``batch_size - 1`` rows repeated
        at the end.
    batch_size : int
        Rows of a minibatch.

    Notes
    -----
    The order of the copy depends on N alone; a chain chooses where on the circle it starts and
    the order of its blocks.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
        self.n_rows = len(next(iter(arrays.values())))
        self.batch_size = batch_size
        self._order = np.random.default_rng([0, self.n_rows]).permutation(self.n_rows)
        circle = np.concatenate([self._order, self._order[: batch_size - 1]])
        self.arrays = {name: np.ascontiguousarray(a[circle]) for name, a in arrays.items()}
        self._n_blocks = self.n_rows // batch_size
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start a chain at a random place of the circle."""
        self._seed = seed
        self._epoch = -1
        self._offset = int(np.random.default_rng([seed, 0]).integers(self.n_rows))
        self._taken = self._n_blocks
        self._starts = np.empty(0, dtype=np.int64)

    def _begin_epoch(self) -> None:
        if self._epoch >= 0:
            self._offset = (self._offset + self._n_blocks * self.batch_size) % self.n_rows
        self._epoch += 1
        self._taken = 0
        self._order_blocks()

    def _order_blocks(self) -> None:
        length = min(max(self._n_blocks // _LEAST_RUNS, 1), _LONGEST_RUN)
        n_runs = -(-self._n_blocks // length)
        runs = np.random.default_rng([self._seed, 1, self._epoch]).permutation(n_runs)
        order = (runs[:, np.newaxis] * length + np.arange(length)).ravel()
        order = order[order < self._n_blocks]
        self._starts = (self._offset + order * self.batch_size) % self.n_rows

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` blocks."""
        if self._taken + n <= self._n_blocks:
            self._taken += n
            return self._starts[self._taken - n : self._taken]
        parts = []
        while n:
            if self._taken == self._n_blocks:
                self._begin_epoch()
            take = min(n, self._n_blocks - self._taken)
            parts.append(self._starts[self._taken : self._taken + take])
            self._taken += take
            n -= take
        return np.concatenate(parts)

    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in a block."""
        return self._order[(start + np.arange(self.batch_size)) % self.n_rows]

    @property
    def state(self) -> dict[str, Any]:
        """Seed, epoch and place in it."""
        return {
            "seed": self._seed,
            "epoch": self._epoch,
            "offset": self._offset,
            "taken": self._taken,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._seed, self._epoch = state["seed"], state["epoch"]
        self._offset, self._taken = state["offset"], state["taken"]
        if self._epoch >= 0:
            self._order_blocks()


class IndependentRows(ShuffledRows):
    """Blocks of the shuffled rows that begin at independent, uniform places of the circle.

    Over an epoch of `ShuffledRows` the noise of the gradients adds up to zero, and what a sampler
    that crosses its posterior in more steps than an epoch has feels of it is much less than
    its variance says. A sampler that subtracts that variance from the noise it injects, or
    leaves it to a thermostat, counts on noise that is independent from step to step: this one.
    """

    def reset(self, seed: int) -> None:
        """Start a chain."""
        self._rng = np.random.default_rng([seed, 3])

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` blocks."""
        return self._rng.integers(self.n_rows, size=n)

    @property
    def state(self) -> dict[str, Any]:
        """State of the generator of the places."""
        return {"generator": self._rng.bit_generator.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["generator"]


class RandomRows(RowSource):
    """Rows drawn with replacement, as `pymc.Minibatch` draws them.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (N, ...)
        The data, not copied.
    batch_size : int
        Rows of a minibatch.
    """

    with_replacement = True

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
        self._data = dict(arrays)
        self.n_rows = len(next(iter(arrays.values())))
        self.batch_size = batch_size
        self._indices = np.empty(0, dtype=np.int64)
        self.arrays = {}
        self._reserve(1)
        self.reset(0)

    def _reserve(self, n: int) -> None:
        self.arrays = {
            name: np.empty((n * self.batch_size, *a.shape[1:]), a.dtype)
            for name, a in self._data.items()
        }
        self._starts = np.arange(n, dtype=np.int64) * self.batch_size

    def reset(self, seed: int) -> None:
        """Start a chain."""
        self._rng = np.random.default_rng([seed, 2])

    def next_starts(self, n: int) -> np.ndarray:
        """Gather the rows of the next ``n`` minibatches into the resident arrays."""
        if self._starts.size != n:
            self._reserve(n)
        self._indices = self._rng.integers(self.n_rows, size=n * self.batch_size)
        for name, array in self._data.items():
            np.take(array, self._indices, axis=0, out=self.arrays[name], mode="clip")
        return self._starts

    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in a minibatch."""
        return self._indices[start : start + self.batch_size]

    @property
    def state(self) -> dict[str, Any]:
        """State of the generator of the indices."""
        return {"generator": self._rng.bit_generator.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["generator"]


class StreamedRows(RowSource):
    """Row blocks of an iterable, for data larger than memory.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields arrays, tuples of arrays in the order of ``names``, or mappings by
        name. The first block says how many rows a minibatch has; what a shorter or longer block
        leaves over goes into the next minibatch. It is started again when it is exhausted.
    dtypes : mapping of str to str
        Data containers the blocks stand for, with their types.
    n_rows : int
        N, all rows of the data.

    Raises
    ------
    ValueError
        If a block has the wrong number of arrays, or arrays of different numbers of rows.
    """

    def __init__(self, batches: Iterable[Any], dtypes: Mapping[str, str], n_rows: int) -> None:
        self._batches = batches
        self._names = tuple(dtypes)
        self._dtypes = dict(dtypes)
        self.n_rows = n_rows
        self.arrays = self._named(next(iter(batches)))
        self.batch_size = len(next(iter(self.arrays.values())))
        self._row_shapes = {name: a.shape[1:] for name, a in self.arrays.items()}
        self._starts = np.empty(0, dtype=np.int64)
        self.reset(0)

    def _named(self, block: Any) -> dict[str, np.ndarray]:
        if isinstance(block, Mapping):
            named = {name: block[name] for name in self._names}
        else:
            parts = block if isinstance(block, tuple | list) else (block,)
            if len(parts) != len(self._names):
                raise ValueError(
                    f"batches= yields {len(parts)} arrays for the {len(self._names)} names of "
                    f"minibatch={list(self._names)}"
                )
            named = dict(zip(self._names, parts, strict=True))
        lengths = {name: len(array) for name, array in named.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"batches= yields arrays with different numbers of rows: {lengths}")
        return {name: np.ascontiguousarray(a, self._dtypes[name]) for name, a in named.items()}

    def reset(self, seed: int) -> None:
        """Start the iterable again."""
        self._iterator: Iterator[Any] = iter(self._batches)
        self._consumed = 0
        self._left = {
            name: np.empty((0, *shape), self._dtypes[name])
            for name, shape in self._row_shapes.items()
        }

    def _pull(self) -> dict[str, np.ndarray]:
        for _ in range(2):
            for block in self._iterator:
                self._consumed += 1
                return self._named(block)
            self._iterator = iter(self._batches)
            self._consumed = 0
        raise ValueError("batches= yields no block; it must be possible to iterate over it again")

    def _next_block(self) -> dict[str, np.ndarray]:
        rows = self._left
        while len(next(iter(rows.values()))) < self.batch_size:
            block = self._pull()
            rows = {
                name: np.concatenate([left, block[name]]) if len(left) else block[name]
                for name, left in rows.items()
            }
        self._left = {name: array[self.batch_size :].copy() for name, array in rows.items()}
        return {name: array[: self.batch_size] for name, array in rows.items()}

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the next ``n`` blocks into the resident arrays."""
        if self._starts.size != n:
            self.arrays = {
                name: np.empty((n * self.batch_size, *self._row_shapes[name]), self._dtypes[name])
                for name in self._names
            }
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
        raise ValueError("local= needs rows that can be visited again: not available with batches=")

    @property
    def state(self) -> dict[str, Any]:
        """How many blocks of the current pass were used, and the rows that are left of them."""
        return {"consumed": self._consumed, "left": dict(self._left)}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._iterator = iter(self._batches)
        self._consumed = 0
        while self._consumed < state["consumed"]:
            next(self._iterator)
            self._consumed += 1
        self._left = dict(state["left"])
