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
        All documents at most. The rest of a pass that is shorter than a minibatch is left out.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.topics.passes import Passes
    >>> passes = Passes(np.random.default_rng(1), n_documents=4, batch_size=2)
    >>> sorted([*passes.next_rows(), *passes.next_rows()]) == [0, 1, 2, 3]
    True
    """

    def __init__(self, rng: np.random.Generator, n_documents: int, batch_size: int) -> None:
        self._rng, self._size = rng, min(batch_size, n_documents)
        self._order = rng.permutation(n_documents)
        self._place = 0

    def next_rows(self) -> np.ndarray:
        """Return the next minibatch."""
        if self._place + self._size > len(self._order):
            self._order = self._rng.permutation(len(self._order))
            self._place = 0
        self._place += self._size
        return self._order[self._place - self._size : self._place]
