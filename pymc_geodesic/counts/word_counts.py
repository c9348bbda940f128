"""Counts of words in topics, as a minibatch of documents has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["TopicCounts"]


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the words of a minibatch in topics.

    Attributes
    ----------
    words : ndarray of int32, shape (n_words,)
        The words of the minibatch.
    slots : ndarray of int32, shape (V,)
        Place of every word in ``words``, or −1.
    parts : ndarray, shape (n_parts, n_words, K)
        Counts in the parts of the minibatch, to be added.
    scale : float
        What turns them into counts of all documents.
    share : float
        Documents of the minibatch, divided by those of the largest one. An estimate is followed
        for this part of a step, so that every document counts the same.
    """

    words: np.ndarray
    slots: np.ndarray
    parts: np.ndarray
    scale: float
    share: float = 1.0

    def of_words(self) -> np.ndarray:
        """Estimated counts of all documents in the words of the minibatch, shape (n_words, K)."""
        return self.scale * self.parts.sum(axis=0)

    @cached_property
    def totals(self) -> np.ndarray:
        """Estimated counts of all documents in each topic, shape (K,)."""
        return self.scale * self.parts.sum(axis=(0, 1))
