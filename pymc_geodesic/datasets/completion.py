"""Documents in two parts: the words that are seen, and those to be predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def hold_out_words(
    counts: Any, share: float = 0.5, *, random_seed: int | np.random.Generator | None = None
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Divide the words of every document at random into two parts.

    For `pymc_geodesic.topics.document_completion_perplexity`.

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (D, V)
        How often every word occurs in every document.
    share : float
        Probability of every single word to be held out.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    observed, held_out : scipy.sparse.csr_matrix of float64, shape (D, V)
        Counts that add up to ``counts``.

    Raises
    ------
    ValueError
        If counts are not whole numbers of at least zero, or `share` does not lie between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import hold_out_words
    >>> counts = np.array([[6, 0, 2], [0, 1, 4]])
    >>> observed, held_out = hold_out_words(counts, random_seed=1)
    >>> bool((observed.toarray() + held_out.toarray() == counts).all())
    True
    """
    rows = sparse.csr_matrix(counts, dtype=np.float64)
    if np.any(~(rows.data >= 0) | (rows.data != np.floor(rows.data))):
        raise ValueError("`counts` must hold whole numbers of at least 0.")
    if not 0 <= share <= 1:
        raise ValueError(f"`share` must lie between 0 and 1, got {share}.")
    taken = np.random.default_rng(random_seed).binomial(rows.data.astype(np.int64), share)
    held_out = sparse.csr_matrix((taken.astype(np.float64), rows.indices, rows.indptr), rows.shape)
    observed = sparse.csr_matrix((rows.data - taken, rows.indices, rows.indptr), rows.shape)
    parts = observed.copy(), held_out.copy()
    for part in parts:
        part.eliminate_zeros()
    return parts
