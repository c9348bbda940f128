"""Minibatches of documents: rows of sparse counts in memory, or blocks that pass by."""

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
            f"{name!r} holds numbers that are no counts; local= needs whole numbers of at least 0"
        )


class Documents(Protocol):
    """Sparse counts of the documents of a minibatch."""

    def check(self) -> None:
        """Refuse data that are no counts; blocks that pass by are checked as they come."""

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Find the documents of a minibatch.

        Returns
        -------
        values, columns : ndarray, shape (n_entries,)
            Counts and their words.
        bounds : ndarray of int64, shape (n, 2)
            Where the entries of each document begin and end.
        numbers : ndarray or None
            Which documents of the data they are; None where they pass by.
        """

    def share(self, argument: int) -> float:
        """Documents of a minibatch, divided by those of the largest one."""


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
        """Refuse data that are no counts."""
        check_counts(self._name, self._source.whole_array(self._containers.values))

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Find the documents of a minibatch; see `Documents.minibatch`."""
        rows = self._source.arrays[self._containers.rows.name]
        return (
            self._source.whole_array(self._containers.values),
            self._source.whole_array(self._containers.columns),
            rows[argument : argument + self._source.batch_size],
            self._source.row_indices(argument),
        )

    def share(self, argument: int) -> float:
        """One: all minibatches have the same number of documents."""
        return 1.0


class StreamedDocuments(StreamedSource):
    """Blocks of documents of an iterable, each a minibatch.

    Parameters
    ----------
    batches : iterable
        Re-iterable that yields matrices of counts, shape (n, V), sparse or dense, or mappings
        with one of the name of the data. It is started again when it is exhausted.
    name : str
        Data container the blocks stand for.
    n_words : int
        V.
    largest : int
        Documents that a block may have.
    n_rows : int
        N, all documents.
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
                    f"batches= yields a mapping without {self._name!r}, which minibatch= names; "
                    f"it has {sorted(block)}"
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
                f"batches= yields a block of {rows.shape[0]} documents, but the model has places "
                f"for 1 to {self._largest}: make the model with as many documents as the largest "
                "block has, such as the first block"
            )
        check_counts(self._name, rows.data)
        # One type, so that the same compiled code, which rounds the same, sees every block.
        rows = rows.astype(np.float64)
        rows.indices = rows.indices.astype(np.int32, copy=False)
        return rows

    def next_starts(self, n: int) -> np.ndarray:
        """Take the next ``n`` blocks; return their places among them."""
        self._blocks = [self._pass.next_block() for _ in range(n)]
        return np.arange(n, dtype=np.int64)

    def check(self) -> None:
        """Nothing to do: every block is checked as it comes."""

    def minibatch(
        self, argument: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Find the documents of a block; see `Documents.minibatch`."""
        block = self._blocks[argument]
        bounds = np.column_stack([block.indptr[:-1], block.indptr[1:]]).astype(np.int64)
        return block.data, block.indices, bounds, None

    def share(self, argument: int) -> float:
        """Documents of a block, divided by those that a block may have."""
        return self._blocks[argument].shape[0] / self._largest

    @property
    def state(self) -> dict[str, Any]:
        """How many blocks of the current pass were used."""
        return {"consumed": self._pass.consumed}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._pass.restart(state["consumed"])
