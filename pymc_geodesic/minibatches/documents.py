"""Minibatches of documents: rows of sparse counts, in memory or streamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from pymc_geodesic.minibatches.block_format import BlockPass
from pymc_geodesic.minibatches.source import RowSource, StreamedSource
from pymc_geodesic.minibatches.streamed_rows import random_first_block
from pymc_geodesic.sparse import SparseContainers


def check_counts(name: str, values: np.ndarray) -> None:
    """Raise ValueError if counts are not whole numbers of at least zero."""
    if np.any(~(values >= 0) | (values != np.floor(values))):
        raise ValueError(
            f"{name!r} has values that are not counts. With local= use nonnegative whole numbers"
        )


class Documents(Protocol):
    """Sparse counts of the documents of a minibatch."""

    def check(self) -> None:
        """Check that data in memory are counts; streamed blocks are checked when they are read."""

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the documents of a minibatch.

        Returns
        -------
        values, columns : ndarray, shape (n_entries,)
            Counts and the indices of their words.
        bounds : ndarray of int64, shape (n, 2)
            Start and stop index of the entries of each document.
        numbers : ndarray or None
            Indices of the documents in the data; None for streamed documents.
        """

    def share(self, argument: int) -> float:
        """Return the number of documents of a minibatch, relative to the largest minibatch."""


class ResidentDocuments:
    """Documents in memory.

    Parameters
    ----------
    name : str
        Data container of the counts.
    source : RowSource
        Minibatches of their rows.
    containers : SparseContainers
    """

    def __init__(self, name: str, source: RowSource, containers: SparseContainers) -> None:
        self._name, self._source, self._containers = name, source, containers

    def check(self) -> None:
        """Check that the data are counts."""
        check_counts(self._name, self._source.whole_array(self._containers.values))

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the documents of a minibatch; see `Documents.minibatch`."""
        rows = self._source.arrays[self._containers.rows.name]
        return (
            self._source.whole_array(self._containers.values),
            self._source.whole_array(self._containers.columns),
            rows[argument : argument + self._source.batch_size],
            self._source.row_indices(argument),
        )

    def share(self, argument: int) -> float:
        """Return 1: all minibatches have the same number of documents."""
        return 1.0


class StreamedDocuments(StreamedSource):
    """Blocks of documents from an iterable, each a minibatch.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields matrices of counts, shape (n, V), sparse or dense, or mappings that
        contain one by the name of the data. It is iterated over again when it is exhausted.
    name : str
        Data container of the blocks.
    n_words : int
        V.
    largest : int
        Largest number of documents of a block.
    n_rows : int
        N, the number of all documents.
    """

    def __init__(
        self, batches: Iterable[Any], name: str, n_words: int, largest: int, n_rows: int
    ) -> None:
        super().__init__()
        self._pass = BlockPass(batches, self._as_rows)
        self._name = name
        self._n_words = n_words
        self._largest = largest
        self.arrays = {}
        self.n_rows = n_rows
        self.batch_size = largest
        self._blocks: list[sparse.csr_array] = []
        self._pass.restart(0)

    def reset(self, seed: int) -> None:
        """Start a chain at a random block."""
        self._pass.restart(0)
        self._pass.skip(random_first_block(seed, self.n_rows, self._largest))

    def _as_rows(self, block: Any) -> sparse.csr_array:
        if isinstance(block, Mapping):
            if self._name not in block:
                raise ValueError(
                    f"batches= yields a mapping without {self._name!r}, which is in minibatch=. "
                    f"Its keys are {sorted(block)}"
                )
            block = block[self._name]
        elif isinstance(block, tuple | list) and len(block) == 1:
            block = block[0]
        rows = sparse.csr_array(block if sparse.issparse(block) else np.asarray(block))
        if rows.ndim != 2 or rows.shape[1] != self._n_words:
            raise ValueError(
                f"batches= yields counts of shape {rows.shape} for {self._name!r}, which has "
                f"{self._n_words} words"
            )
        if not 1 <= rows.shape[0] <= self._largest:
            raise ValueError(
                f"batches= yields a block of {rows.shape[0]} documents, but the model has "
                f"{self._largest}. Build the model with the number of documents of the largest "
                "block"
            )
        check_counts(self._name, rows.data)
        # one data type, so that all blocks have the same compiled code and rounding
        rows = rows.astype(np.float64)
        rows.indices = rows.indices.astype(np.int32, copy=False)
        return rows

    def next_starts(self, n: int) -> np.ndarray:
        """Read the next ``n`` blocks; return their positions in the list."""
        self._blocks = [self._pass.next_block() for _ in range(n)]
        return np.arange(n, dtype=np.int64)

    def check(self) -> None:
        """Do nothing: blocks are checked when they are read."""

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the documents of a block; see `Documents.minibatch`."""
        block = self._blocks[argument]
        bounds = np.column_stack([block.indptr[:-1], block.indptr[1:]]).astype(np.int64)
        return block.data, block.indices, bounds, None

    def share(self, argument: int) -> float:
        """Return the number of documents of a block, divided by the largest number."""
        return self._blocks[argument].shape[0] / self._largest

    @property
    def state(self) -> dict[str, Any]:
        """Number of blocks of the current pass that were used."""
        return {"consumed": self._pass.consumed}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._pass.restart(state["consumed"])
