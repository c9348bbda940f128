"""Minibatches of rows in memory: shuffled, independent, with replacement, of several tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.sparse import in_order

_LONGEST_RUN = 16
"""Blocks read one after the other; with more, the memory is no faster."""

_LEAST_RUNS = 64
"""Runs of an epoch whose order is random; with fewer blocks than that, each is a run."""

_DRAWN_AHEAD = 1024
"""Independent places drawn at once: a call of the generator takes as long as two inner steps."""


class MinibatchOrder(ABC):
    """First rows of minibatches on a circle of rows.

    Parameters
    ----------
    n_rows : int
        Rows of the circle.
    batch_size : int
        Rows of a minibatch.
    """

    def __init__(self, n_rows: int, batch_size: int) -> None:
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start anew."""
        self._starts = np.empty(0, dtype=np.int64)
        self._taken = 0

    @abstractmethod
    def _look_ahead(self) -> None:
        """Choose the next first rows, ``_starts``, none of which is ``_taken`` yet."""

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches, shape ``(n,)``."""
        end = self._taken + n
        if end <= self._starts.size:
            starts = self._starts[self._taken : end]
            self._taken = end
            return starts
        parts = []
        while n:
            if self._taken == self._starts.size:
                self._look_ahead()
            take = min(n, self._starts.size - self._taken)
            parts.append(self._starts[self._taken : self._taken + take])
            self._taken += take
            n -= take
        return np.concatenate(parts)

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that decides the minibatches to come."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class ShuffledOrder(MinibatchOrder):
    """All rows once per epoch.

    Each epoch takes the ``N // batch_size`` whole blocks that follow the end of the previous
    epoch, in a new random order, so that no block is ever short and all rows are used equally
    often. Consecutive rows are what memory is fast at: random rows of a large array are a cache
    miss each. For the same reason it is runs of blocks that are put in random order, of up to 16
    blocks where there are many.
    """

    def reset(self, seed: int) -> None:
        """Start at a random place of the circle."""
        super().reset(seed)
        self._n_blocks = self.n_rows // self.batch_size
        self._seed = seed
        self._epoch = -1
        self._offset = int(np.random.default_rng([seed, 0]).integers(self.n_rows))

    def _look_ahead(self) -> None:
        """Begin an epoch."""
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
        self._starts = np.empty(0, dtype=np.int64)
        if self._epoch >= 0:
            self._order_blocks()


class IndependentOrder(MinibatchOrder):
    """Blocks that begin at independent, uniform places of the circle."""

    def reset(self, seed: int) -> None:
        """Start anew."""
        super().reset(seed)
        self._rng = np.random.default_rng([seed, 3])
        self._generator = self._rng.bit_generator.state

    def _look_ahead(self) -> None:
        self._generator = self._rng.bit_generator.state
        self._starts = self._rng.integers(self.n_rows, size=_DRAWN_AHEAD)
        self._taken = 0

    @property
    def state(self) -> dict[str, Any]:
        """State of the generator before it drew ahead, and how many places were taken since."""
        return {"generator": self._generator, "taken": self._taken}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = self._generator = state["generator"]
        self._starts = np.empty(0, dtype=np.int64)
        if state["taken"]:
            self._look_ahead()
        self._taken = state["taken"]


def row_permutation(n_rows: int) -> np.ndarray:
    """Order in which rows lie in memory, which depends on their number alone."""
    return np.random.default_rng([0, n_rows]).permutation(n_rows)


class ShuffledRows(RowSource):
    """Consecutive blocks of rows that were shuffled once, each row once per epoch.

    See `pymc_geodesic.minibatches.resident_rows.ShuffledOrder`.

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

    moves = False
    _order_type: type[MinibatchOrder] = ShuffledOrder

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
        super().__init__()
        self.n_rows = len(next(iter(arrays.values())))
        self.batch_size = batch_size
        self._order = row_permutation(self.n_rows)
        self._circle = np.concatenate([self._order, self._order[: batch_size - 1]])
        self.arrays = {name: np.ascontiguousarray(a[self._circle]) for name, a in arrays.items()}
        self._walk = self._order_type(self.n_rows, batch_size)

    @property
    def epoch(self) -> int | None:
        """Whole blocks of an epoch."""
        return self.n_rows // self.batch_size

    def reset(self, seed: int) -> None:
        """Start a chain at a random place of the circle."""
        self._walk.reset(seed)

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """All rows at once, in their shuffled order."""
        yield self.arrays, self.n_rows

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the rows of a container; see `RowSource.replace_rows`."""
        np.take(rows, self._circle, axis=0, out=self.arrays[name], mode="clip")

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        return self.arrays, self.whole, self._order

    def reorder_entries(
        self, name: str, values: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Copy the entries in shuffled order; see `RowSource.reorder_entries`."""
        values, columns, self.arrays[name] = in_order(
            values, columns, self.arrays[name], self.n_rows
        )
        return values, columns

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` blocks."""
        return self._walk.next_starts(n)

    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in a block."""
        return self._order[(start + np.arange(self.batch_size)) % self.n_rows]

    @property
    def state(self) -> dict[str, Any]:
        """Place of the walk."""
        return self._walk.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._walk.state = state


class IndependentRows(ShuffledRows):
    """Blocks of the shuffled rows that begin at independent, uniform places of the circle.

    Over an epoch of `ShuffledRows` the noise of the gradients adds up to zero, and what a sampler
    that crosses its posterior in more steps than an epoch has feels of it is much less than
    its variance says. A sampler that subtracts that variance from the noise it injects, or
    leaves it to a thermostat, counts on noise that is independent from step to step: this one.
    """

    _order_type = IndependentOrder

    @property
    def epoch(self) -> None:
        """None: rows may come again at any time."""
        return None


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
        super().__init__()
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

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """All rows at once."""
        yield {name: np.ascontiguousarray(a) for name, a in self._data.items()}, self.n_rows

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the rows of a container; see `RowSource.replace_rows`."""
        self._data[name] = rows

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], None]:
        return self._data, self.whole, None

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


class GroupedRows(RowSource):
    """Rows of several sources, side by side.

    A field is told one first row for all its data. So the minibatches of every source are copied
    to places as long as those of the source with the largest ones: minibatch k of each starts at
    the same row, k times that length.

    Parameters
    ----------
    sources : list of RowSource
        One for each group of data that are drawn together; no two have an array of the same name.

    Attributes
    ----------
    batch_size : int
        Rows of the largest minibatch.
    n_rows : int
        Rows of all sources together.
    """

    def __init__(self, sources: Sequence[RowSource]) -> None:
        super().__init__()
        self._sources = list(sources)
        self.batch_size = max(source.batch_size for source in sources)
        self.n_rows = sum(source.n_rows for source in sources)
        self.with_replacement = any(source.with_replacement for source in sources)
        self.arrays = {}
        self._reserve(1)

    def _reserve(self, n: int) -> None:
        self.arrays = {
            name: np.zeros((n * self.batch_size, *array.shape[1:]), array.dtype)
            for source in self._sources
            for name, array in source.arrays.items()
        }
        self._starts = np.arange(n, dtype=np.int64) * self.batch_size

    def reset(self, seed: int) -> None:
        """Start a chain, in every source at a place of its own."""
        seeds = np.random.default_rng([seed, 6]).integers(2**63, size=len(self._sources))
        for source, own in zip(self._sources, seeds, strict=True):
            source.reset(int(own))

    def refresh(self) -> None:
        """Copy the rows again of containers that have other values; see `RowSource.refresh`."""
        for source in self._sources:
            source.refresh()

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the next ``n`` minibatches of every source to their places."""
        if self._starts.size != n:
            self._reserve(n)
        for source in self._sources:
            size = source.batch_size
            rows = source.next_starts(n)[:, np.newaxis] + np.arange(size)
            for name, array in source.arrays.items():
                places = self.arrays[name].reshape(n, self.batch_size, *array.shape[1:])
                places[:, :size] = array[rows]
        return self._starts

    def example_rows(self, n: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Choose some rows of every source; see `RowSource.example_rows`."""
        arrays: dict[str, np.ndarray] = {}
        for source in self._sources:
            arrays |= source.example_rows(n)[0]
        return arrays, {}

    def related_examples(self, n: int) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Choose related rows of one source after another; see `RowSource.related_examples`."""
        arrays, _ = self.example_rows(n)
        for source in self._sources:
            for description, rows in source.related_examples(n):
                yield description, arrays | rows

    def row_indices(self, start: int) -> np.ndarray:
        """Not known: every source has rows of its own.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("local= needs rows of one table, named by minibatch=")

    @property
    def state(self) -> dict[str, Any]:
        """States of the sources, in their order."""
        return {"sources": [source.state for source in self._sources]}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for source, own in zip(self._sources, state["sources"], strict=True):
            source.state = own
