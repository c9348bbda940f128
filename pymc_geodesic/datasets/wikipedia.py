"""Bags of words of English Wikipedia pages, over the word list of the SGRLD paper."""

import os
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pymc_geodesic.datasets.folder import read_arrays, sparse_rows

FILENAME = "wiki_bow_7702.npz"

ORIGIN = (
    "It holds counts of words of English Wikipedia pages over the list of 7,702 words that "
    "Patterson and Teh (2013) took from Hoffman, Blei and Bach (2010): CSR matrices of shape "
    "(pages, words) as 'X_data', 'X_indices', 'X_indptr', 'X_shape' and 'H_data', 'H_indices', "
    "'H_indptr', where X has all words of a page that are in the list and H every tenth of them, "
    "and the words as 'vocab'."
)


@dataclass(frozen=True)
class CompletionCorpus:
    """Documents to learn topics from, and others in two parts to be completed.

    Parameters
    ----------
    train : scipy.sparse.csr_matrix of float64, shape (D, V)
        Counts of words.
    observed, held_out : scipy.sparse.csr_matrix of float64, shape (D_test, V)
        Counts of the words of test documents that are seen, and of those to be predicted.
    vocabulary : numpy.ndarray of str, shape (V,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import CompletionCorpus
    >>> rows = sparse.csr_matrix(np.eye(2))
    >>> CompletionCorpus(rows, rows, rows, np.array(["sun", "moon"]))
    CompletionCorpus(2 train and 2 test documents, 2 words)
    """

    train: sparse.csr_matrix
    observed: sparse.csr_matrix
    held_out: sparse.csr_matrix
    vocabulary: np.ndarray

    def __repr__(self) -> str:
        return (
            f"CompletionCorpus({self.train.shape[0]} train and {self.observed.shape[0]} test "
            f"documents, {len(self.vocabulary)} words)"
        )


def load_wikipedia(
    data_home: str | os.PathLike | None = None,
    *,
    n_test: int = 1000,
    least_words: int = 20,
    random_seed: int = 0,
) -> CompletionCorpus:
    """Load counts of words of Wikipedia pages, in random order.

    Parameters
    ----------
    data_home : path-like, optional
        Folder that holds ``wiki_bow_7702.npz``; by default the one named by the environment
        variable ``PYMC_GEODESIC_DATA``.
    n_test : int
        Pages that are kept for completion. They have a held-out word.
    least_words : int
        Words of the list that a page must have. Half of the pages are stubs.
    random_seed : int
        Seed of the order of the pages, and so of the choice of the test pages.

    Returns
    -------
    CompletionCorpus
        The training pages with all their words; of every test page one word in ten is held out.

    Raises
    ------
    FileNotFoundError
        If the file is missing; the message says what it must hold.
    ValueError
        If there are not that many pages, or the file holds out words that a page does not have.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, section 5.2.
    Hoffman, Blei, Bach (2010), Online Learning for Latent Dirichlet Allocation.

    Examples
    --------
    >>> from pymc_geodesic.datasets import load_wikipedia
    >>> load_wikipedia("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: There is no file 'wiki_bow_7702.npz' in the data folder 'nowhere'. ...
    """
    arrays = read_arrays(FILENAME, data_home=data_home, origin=ORIGIN)
    arrays["H_shape"] = arrays["X_shape"]
    every, held_out = sparse_rows(arrays, "X"), sparse_rows(arrays, "H")
    lengths = np.asarray(every.sum(axis=1)).ravel()
    n_held_out = np.asarray(held_out.sum(axis=1)).ravel()
    pages = np.flatnonzero((lengths >= least_words) & (n_held_out > 0))
    if not 0 <= n_test < len(pages):
        raise ValueError(
            f"`n_test` must be between 0 and {len(pages) - 1}: there are {len(pages)} pages of "
            f"{least_words} words or more."
        )
    pages = np.random.default_rng(random_seed).permutation(pages)
    test, train = pages[:n_test], pages[n_test:]
    observed = sparse.csr_matrix(every[test] - held_out[test])
    if observed.nnz and observed.data.min() < 0:
        raise ValueError(f"{FILENAME!r} holds out words that its pages do not have.")
    observed.eliminate_zeros()
    return CompletionCorpus(
        train=sparse.csr_matrix(every[train]),
        observed=observed,
        held_out=sparse.csr_matrix(held_out[test]),
        vocabulary=arrays["vocab"],
    )
