"""The order in which minibatches walk over rows that lie in memory in random order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

__all__ = ["IndependentWalk", "ShuffledWalk", "Walk"]

_LONGEST_RUN = 16
"""Blocks read one after the other; with more, the memory is no faster."""

_LEAST_RUNS = 64
"""Runs of an epoch whose order is random; with fewer blocks than that, each is a run."""


class Walk(ABC):
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

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start anew."""

    @abstractmethod
    def next_starts(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches, shape ``(n,)``."""

    @property
    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that decides the minibatches to come."""

    @state.setter
    @abstractmethod
    def state(self, state: dict[str, Any]) -> None: ...


class ShuffledWalk(Walk):
    """All rows once per epoch.

    Each epoch takes the ``N // batch_size`` whole blocks that follow the end of the previous
    epoch, in a new random order, so that no block is ever short and all rows are used equally
    often. Consecutive rows are what memory is fast at: random rows of a large array are a cache
    miss each. For the same reason it is runs of blocks that are put in random order, of up to 16
    blocks where there are many.
    """

    def reset(self, seed: int) -> None:
        """Start at a random place of the circle."""
        self._n_blocks = self.n_rows // self.batch_size
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


class IndependentWalk(Walk):
    """Blocks that begin at independent, uniform places of the circle."""

    def reset(self, seed: int) -> None:
        """Start anew."""
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
