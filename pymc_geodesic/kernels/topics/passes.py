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
    ends : ndarray of int, shape (n_minibatches + 1,)
        Where the minibatches of a pass end in its order, behind a zero; documents behind the last
        one are left out.

    Attributes
    ----------
    n_minibatches : int
        Of a pass.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.topics.passes import Passes
    >>> of_one_size = Passes.of_one_size(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_one_size.next_rows()) for _ in range(2)]
    [2, 2]
    >>> of_all = Passes.of_all(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_all.next_rows()) for _ in range(3)]
    [2, 1, 2]
    """

    def __init__(self, rng: np.random.Generator, n_documents: int, ends: np.ndarray) -> None:
        self._rng, self._ends = rng, ends
        self.n_minibatches = len(ends) - 1
        self._order = rng.permutation(n_documents)
        self._place = 0

    @classmethod
    def of_one_size(cls, rng: np.random.Generator, n_documents: int, batch_size: int) -> Passes:
        """Make passes of minibatches of one size, all documents at most; the rest is left out."""
        size = min(batch_size, n_documents)
        return cls(rng, n_documents, size * np.arange(n_documents // size + 1))

    @classmethod
    def of_all(
        cls, rng: np.random.Generator, n_documents: int, batch_size: int, multiple: int = 1
    ) -> Passes:
        """Make passes that leave no document out, of minibatches of nearly one size.

        They are a multiple of ``multiple`` where there are as many documents.
        """
        size = min(batch_size, n_documents)
        n_minibatches = min(-(-n_documents // (size * multiple)) * multiple, n_documents)
        ends = np.linspace(0, n_documents, n_minibatches + 1).round().astype(int)
        return cls(rng, n_documents, ends)

    def next_rows(self) -> np.ndarray:
        """Return the next minibatch."""
        if self._place == self.n_minibatches:
            self._order = self._rng.permutation(len(self._order))
            self._place = 0
        self._place += 1
        return self._order[self._ends[self._place - 1] : self._ends[self._place]]
