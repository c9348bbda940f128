"""The order in which minibatches walk over rows that lie in memory in random order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

_LONGEST_RUN = 16
"""Blocks read one after the other; with more, the memory is no faster."""

_LEAST_RUNS = 64
"""Runs of an epoch whose order is random; with fewer blocks than that, each is a run."""

_DRAWN_AHEAD = 1024
"""Independent places drawn at once: a call of the generator takes as long as two inner steps."""


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


class IndependentWalk(Walk):
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
