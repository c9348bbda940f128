"""Minibatches of rows drawn with replacement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.source import RowSource


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
