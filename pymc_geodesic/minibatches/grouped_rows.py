"""Minibatches of several tables, each with rows and a batch size of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.minibatches.source import RowSource


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
