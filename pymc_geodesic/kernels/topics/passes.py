"""Minibatches of documents: every one once before any comes again."""

from __future__ import annotations

import numpy as np

__all__ = ["Passes"]


class Passes:
    """Passes over documents, each in a random order.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_documents : int
    batch_size : int
        All documents at most.
    multiple : int, optional
        Minibatches are as many as hold all documents, a multiple of this number, and of nearly one
        size. By default all are of the size that was asked for, and the rest of a pass that is
        shorter is left out.

    Attributes
    ----------
    n_minibatches : int
        Of a pass.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.topics.passes import Passes
    >>> passes = Passes(np.random.default_rng(1), n_documents=4, batch_size=2)
    >>> sorted([*passes.next_rows(), *passes.next_rows()]) == [0, 1, 2, 3]
    True
    """

    def __init__(
        self,
        rng: np.random.Generator,
        n_documents: int,
        batch_size: int,
        *,
        multiple: int | None = None,
    ) -> None:
        self._rng, size = rng, min(batch_size, n_documents)
        self.n_minibatches = n_documents // size
        used = self.n_minibatches * size
        if multiple is not None:
            whole = -(-n_documents // (size * multiple)) * multiple
            self.n_minibatches, used = min(whole, n_documents), n_documents
        self._ends = np.linspace(0, used, self.n_minibatches + 1).round().astype(int)
        self._order = rng.permutation(n_documents)
        self._place = 0

    def next_rows(self) -> np.ndarray:
        """Return the next minibatch."""
        if self._place == self.n_minibatches:
            self._order = self._rng.permutation(len(self._order))
            self._place = 0
        self._place += 1
        return self._order[self._ends[self._place - 1] : self._ends[self._place]]
