"""Minibatches of consecutive rows, after the rows were put in random order once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.order import IndependentWalk, ShuffledWalk, Walk
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.sparse import in_order


def shuffled_order(n_rows: int) -> np.ndarray:
    """Order in which rows lie in memory, which depends on their number alone."""
    return np.random.default_rng([0, n_rows]).permutation(n_rows)


class ShuffledRows(RowSource):
    """Consecutive blocks of rows that were shuffled once, each row once per epoch.

    See `pymc_geodesic.minibatches.order.ShuffledWalk`.

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
    _walk_type: type[Walk] = ShuffledWalk

    def __init__(self, arrays: Mapping[str, np.ndarray], batch_size: int) -> None:
        super().__init__()
        self.n_rows = len(next(iter(arrays.values())))
        self.batch_size = batch_size
        self._order = shuffled_order(self.n_rows)
        self._circle = np.concatenate([self._order, self._order[: batch_size - 1]])
        self.arrays = {name: np.ascontiguousarray(a[self._circle]) for name, a in arrays.items()}
        self._walk = self._walk_type(self.n_rows, batch_size)

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

    def in_order_of_rows(
        self, name: str, values: np.ndarray, columns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Copy the entries in shuffled order; see `RowSource.in_order_of_rows`."""
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

    _walk_type = IndependentWalk

    @property
    def epoch(self) -> None:
        """None: rows may come again at any time."""
        return None
