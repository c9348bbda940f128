"""Minibatches of rows in memory: shuffled, independent, with replacement, and of several tables.

Rows are shuffled once, in memory, and minibatches are consecutive rows of the shuffled copy, since
random access to rows of a large array would cause a cache miss for each row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.source import RandomStream, RowSource
from pymc_geodesic.sparse import in_order

# --- orders of minibatches ----------------------------------------------------------------------

_MAX_RUN = 16
"""Maximum number of consecutive minibatches of a run; more do not improve memory access."""

_MIN_RUNS = 64
"""Minimum number of runs of an epoch; if there are fewer minibatches, each is a run."""

_DRAWN_AHEAD = 1024
"""Number of independent positions that are drawn at once, since a call of the generator takes as
long as two inner steps."""


class MinibatchOrder(ABC):
    """Order of minibatches: the first row of each, in a circular array of rows.

    Parameters
    ----------
    n_rows : int
        Number of rows of the circular array.
    batch_size : int
        Number of rows of a minibatch.
    """

    def __init__(self, n_rows: int, batch_size: int) -> None:
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start a chain."""
        self._starts = np.empty(0, dtype=np.int64)
        self._taken = 0

    @abstractmethod
    def _draw_starts(self) -> None:
        """Set ``_starts`` to the next first rows, and ``_taken`` to 0."""

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
                self._draw_starts()
            take = min(n, self._starts.size - self._taken)
            parts.append(self._starts[self._taken : self._taken + take])
            self._taken += take
            n -= take
        return np.concatenate(parts)

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """State that determines all further minibatches."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class ShuffledOrder(MinibatchOrder):
    """Random reshuffling: every row once per epoch.

    An epoch consists of the ``N // batch_size`` minibatches that follow the end of the previous
    epoch in the circular array, in a new random order. All minibatches have the same size, and all
    rows are used equally often. If there are many minibatches, runs of up to 16 consecutive ones
    are permuted.
    """

    def reset(self, seed: int) -> None:
        """Start at a random position of the circular array."""
        super().reset(seed)
        self._n_blocks = self.n_rows // self.batch_size
        self._seed = seed
        self._epoch = -1
        self._offset = int(np.random.default_rng([seed, RandomStream.OFFSET]).integers(self.n_rows))

    def _draw_starts(self) -> None:
        """Begin an epoch."""
        if self._epoch >= 0:
            self._offset = (self._offset + self._n_blocks * self.batch_size) % self.n_rows
        self._epoch += 1
        self._taken = 0
        self._order_blocks()

    def _order_blocks(self) -> None:
        length = min(max(self._n_blocks // _MIN_RUNS, 1), _MAX_RUN)
        n_runs = -(-self._n_blocks // length)
        rng = np.random.default_rng([self._seed, RandomStream.EPOCH, self._epoch])
        runs = rng.permutation(n_runs)
        order = (runs[:, np.newaxis] * length + np.arange(length)).ravel()
        order = order[order < self._n_blocks]
        self._starts = (self._offset + order * self.batch_size) % self.n_rows

    @property
    def state(self) -> dict[str, Any]:
        """Seed, epoch and position in it."""
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
    """Minibatches that begin at independent, uniform positions of the circular array."""

    def reset(self, seed: int) -> None:
        """Start a chain."""
        super().reset(seed)
        self._rng = np.random.default_rng([seed, RandomStream.INDEPENDENT_ROWS])
        self._generator = self._rng.bit_generator.state

    def _draw_starts(self) -> None:
        self._generator = self._rng.bit_generator.state
        self._starts = self._rng.integers(self.n_rows, size=_DRAWN_AHEAD)
        self._taken = 0

    @property
    def state(self) -> dict[str, Any]:
        """State of the generator before the last draws, and number of used draws."""
        return {"generator": self._generator, "taken": self._taken}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = self._generator = state["generator"]
        self._starts = np.empty(0, dtype=np.int64)
        if state["taken"]:
            self._draw_starts()
        self._taken = state["taken"]


# --- sources ------------------------------------------------------------------------------------


def row_permutation(n_rows: int) -> np.ndarray:
    """Return the permutation of rows in memory, which depends on their number only."""
    return np.random.default_rng([0, n_rows]).permutation(n_rows)


class ShuffledRows(RowSource):
    """Minibatches of consecutive rows of a shuffled copy, every row once per epoch.

    See `ShuffledOrder`.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (N, ...)
        The data, which are copied in shuffled order, with ``batch_size - 1`` rows repeated at the
        end.
    batch_size : int
        Number of rows of a minibatch.

    Notes
    -----
    The order of the copy depends on N only. Chains differ in their starting position, and in the
    order of the minibatches.
    """

    replaces_arrays = False
    _order_type: type[MinibatchOrder] = ShuffledOrder

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
        super().__init__()
        self.n_rows = len(next(iter(arrays.values())))
        self.batch_size = batch_size
        self._permutation = row_permutation(self.n_rows)
        self._circular = np.concatenate([self._permutation, self._permutation[: batch_size - 1]])
        self.arrays = {name: np.ascontiguousarray(a[self._circular]) for name, a in arrays.items()}
        self._minibatch_order = self._order_type(self.n_rows, batch_size)

    @property
    def epoch(self) -> int | None:
        """Number of minibatches of an epoch."""
        return self.n_rows // self.batch_size

    def reset(self, seed: int) -> None:
        """Start a chain at a random position of the circular array."""
        self._minibatch_order.reset(seed)

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """All rows at once, in shuffled order."""
        yield self.arrays, self.n_rows

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the rows of a container; see `RowSource.replace_rows`."""
        np.take(rows, self._circular, axis=0, out=self.arrays[name], mode="clip")

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
        return self.arrays, self.whole, self._permutation

    def reorder_entries(
        self, name: str, values: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Copy the entries in shuffled order; see `RowSource.reorder_entries`."""
        values, columns, self.arrays[name] = in_order(
            values, columns, self.arrays[name], self.n_rows
        )
        return values, columns

    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches."""
        return self._minibatch_order.next_starts(n)

    def row_indices(self, start: int) -> np.ndarray:
        """Rows of the original data in a minibatch."""
        return self._permutation[(start + np.arange(self.batch_size)) % self.n_rows]

    @property
    def state(self) -> dict[str, Any]:
        """State of the order."""
        return self._minibatch_order.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._minibatch_order.state = state


class IndependentRows(ShuffledRows):
    """Minibatches of the shuffled rows that begin at independent, uniform positions.

    Over an epoch of `ShuffledRows` the gradient noise sums to zero. A sampler that takes longer
    than an epoch to cross its posterior is therefore affected by much less noise than the variance
    suggests. Samplers that subtract this variance from the injected noise, or have a thermostat,
    assume independent noise between steps, as in this class.
    """

    _order_type = IndependentOrder

    @property
    def epoch(self) -> None:
        """Return None: there are no epochs."""
        return None


class RandomRows(RowSource):
    """Minibatches of rows drawn with replacement, as by `pymc.Minibatch`.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (N, ...)
        The data, which are not copied.
    batch_size : int
        Number of rows of a minibatch.
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
        self._rng = np.random.default_rng([seed, RandomStream.RANDOM_ROWS])

    def all_rows(self) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """All rows at once."""
        yield {name: np.ascontiguousarray(a) for name, a in self._data.items()}, self.n_rows

    def replace_rows(self, name: str, rows: np.ndarray) -> None:
        """Replace the rows of a container; see `RowSource.replace_rows`."""
        self._data[name] = rows

    def _examples(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], None]:
        return self._data, self.whole, None

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the rows of the next ``n`` minibatches into ``arrays``."""
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
    """Minibatches of several tables, each with its own rows and batch size.

    The compiled gradient has one first row for all its data. Therefore minibatch k of each source
    is copied to position k times the largest batch size.

    Parameters
    ----------
    sources : list of RowSource
        Sources of the groups of data that are drawn together, with arrays of different names.

    Attributes
    ----------
    batch_size : int
        Largest batch size.
    n_rows : int
        Number of rows of all sources.
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
        """Start a chain, with another seed for each source."""
        rng = np.random.default_rng([seed, RandomStream.GROUPS])
        seeds = rng.integers(2**63, size=len(self._sources))
        for source, own in zip(self._sources, seeds, strict=True):
            source.reset(int(own))

    def refresh(self) -> None:
        """Copy the rows of containers with new values; see `RowSource.refresh`."""
        for source in self._sources:
            source.refresh()

    def next_starts(self, n: int) -> np.ndarray:
        """Copy the next ``n`` minibatches of each source."""
        if self._starts.size != n:
            self._reserve(n)
        for source in self._sources:
            size = source.batch_size
            rows = source.next_starts(n)[:, np.newaxis] + np.arange(size)
            for name, array in source.arrays.items():
                minibatches = self.arrays[name].reshape(n, self.batch_size, *array.shape[1:])
                minibatches[:, :size] = array[rows]
        return self._starts

    def example_rows(self, n: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Choose some rows of each source; see `RowSource.example_rows`."""
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
        """Raise ValueError: the sources have different rows."""
        raise ValueError("local= needs rows of one table, named by minibatch=")

    @property
    def state(self) -> dict[str, Any]:
        """States of the sources, in their order."""
        return {"sources": [source.state for source in self._sources]}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for source, own in zip(self._sources, state["sources"], strict=True):
            source.state = own
