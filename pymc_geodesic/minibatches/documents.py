"""Documents that pass by: blocks of sparse counts from an iterable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from pymc_geodesic.minibatches.block_as_minibatch import NO_ROW_NUMBERS, random_first_block
from pymc_geodesic.minibatches.block_format import BlockPass
from pymc_geodesic.minibatches.source import RowSource

__all__ = ["StreamedDocuments", "check_counts"]


def check_counts(name: str, values: np.ndarray) -> None:
    """Raise ValueError if counts are not whole numbers of at least zero."""
    if np.any(~(values >= 0) | (values != np.floor(values))):
        raise ValueError(
            f"{name!r} holds numbers that are no counts; local= needs whole numbers of at least 0"
        )


class StreamedDocuments(RowSource):
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
        self.blocks: list[sparse.csr_array] = []
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
        """Take the next ``n`` blocks; return their places in ``blocks``."""
        self.blocks = [self._pass.next_block() for _ in range(n)]
        return np.arange(n, dtype=np.int64)

    def row_indices(self, start: int) -> np.ndarray:
        """Not known for documents that only pass by.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(NO_ROW_NUMBERS)

    @property
    def state(self) -> dict[str, Any]:
        """How many blocks of the current pass were used."""
        return {"consumed": self._pass.consumed}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._pass.restart(state["consumed"])
