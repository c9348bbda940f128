"""Words of documents, and what topics say of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.kernel import Matrix, SmallIntegers, Table, Vector

__all__ = ["Entries", "Topics", "collect_words"]


class Entries(NamedTuple):
    """Counts of words in documents.

    Parameters
    ----------
    values : ndarray, shape (nnz,)
        Counts, whole numbers.
    columns : ndarray of int, shape (nnz,)
        Their words.
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``values`` and ``columns``. A document may be empty.
    """

    values: Vector
    columns: SmallIntegers
    rows: Table


class Topics(NamedTuple):
    """Probabilities of words in topics.

    Parameters
    ----------
    slots : ndarray of int32, shape (V,)
        Row of each word in ``shares``.
    shares : ndarray, shape (n_words, K)
        φ of the words of the documents, positive.
    """

    slots: SmallIntegers
    shares: Matrix


@compiled
def collect_words(columns: SmallIntegers, rows: Table, slots: SmallIntegers) -> np.ndarray:
    """List the words of some documents, each once, in the order in which they come.

    Parameters
    ----------
    columns : ndarray of int, shape (nnz,)
        Word of every non-zero count.
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``columns``.
    slots : ndarray of int32, shape (V,)
        All −1 on entry; receives the place of every word in the list.

    Returns
    -------
    ndarray of int32, shape (n_words,)
    """
    words = np.empty(slots.size, dtype=np.int32)
    n_words = 0
    for row in range(rows.shape[0]):
        for position in range(rows[row, 0], rows[row, 1]):
            word = columns[position]
            if slots[word] < 0:
                slots[word] = n_words
                words[n_words] = word
                n_words += 1
    return words[:n_words].copy()
