"""From texts to unit vectors: words, counts, document frequencies, tf-idf."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

_WORD = re.compile(r"[a-z]{3,}")


def tokenize(text: str) -> list[str]:
    """Split a text into lower-case words of three Latin letters or more.

    Parameters
    ----------
    text : str
        Any text; digits, underscores and punctuation separate words.

    Returns
    -------
    list of str
        The words in the order of the text, with repetitions.

    Examples
    --------
    >>> from pymc_geodesic.datasets import tokenize
    >>> tokenize("The SVD of a 3-by-3 matrix: U, s, Vh = svd(a)")
    ['the', 'svd', 'matrix', 'svd']
    """
    return _WORD.findall(text.lower())


def count_words(documents: Iterable[Iterable[str]], vocabulary: Sequence[str]) -> sparse.csr_matrix:
    """Count how often each word of a vocabulary occurs in each document.

    Parameters
    ----------
    documents : iterable of iterables of str
        The words of each document.
    vocabulary : sequence of str, length V
        The words to count; others are passed over.

    Returns
    -------
    scipy.sparse.csr_matrix of float64, shape (D, V)
        Term frequencies, columns in the order of `vocabulary`.

    Examples
    --------
    >>> from pymc_geodesic.datasets import count_words
    >>> count_words([["sun", "moon", "sun"], ["tide"]], ["moon", "sun"]).toarray()
    array([[1., 2.],
           [0., 0.]])
    """
    column: Mapping[str, int] = {word: index for index, word in enumerate(vocabulary)}
    columns: list[int] = []
    ends = [0]
    for words in documents:
        columns.extend(column[word] for word in words if word in column)
        ends.append(len(columns))
    counts = sparse.csr_matrix(
        (np.ones(len(columns)), columns, ends), shape=(len(ends) - 1, len(vocabulary))
    )
    counts.sum_duplicates()
    return counts


def document_frequency(counts: sparse.csr_matrix) -> np.ndarray:
    """Count the documents that hold each word.

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (D, V)
        Term frequencies.

    Returns
    -------
    numpy.ndarray of int, shape (V,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import document_frequency
    >>> document_frequency(sparse.csr_matrix(np.array([[3.0, 0.0], [1.0, 2.0]])))
    array([2, 1])
    """
    counts = _by_document(counts)
    return np.bincount(counts.indices[counts.data > 0], minlength=counts.shape[1])


def _by_document(counts: Any) -> sparse.csr_matrix:
    """Take counts as a sparse matrix of rows, each word of a document in one place."""
    rows = sparse.csr_matrix(counts)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def tf_idf(
    counts: sparse.csr_matrix,
    *,
    frequency: np.ndarray | None = None,
    n_documents: int | None = None,
) -> sparse.csr_matrix:
    r"""Turn term frequencies into unit vectors of tf-idf features.

    .. math:: x_{dv} \propto \mathrm{tf}(d, v) \log \frac{D}{1 + \mathrm{df}(v)},
              \qquad \lVert x_d \rVert = 1,

    as in appendix F.3 of Liu, Zhu and Song (2016).

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (D, V)
        Term frequencies.
    frequency : numpy.ndarray, shape (V,), optional
        Document frequencies df; those of `counts` itself by default. Give the ones of the
        training documents for held-out documents that must not see each other.
    n_documents : int, optional
        D; the number of rows by default.

    Returns
    -------
    scipy.sparse.csr_matrix of float64, shape (D, V)
        Rows of unit length.

    Raises
    ------
    ValueError
        If a document has no feature left, or a word is in so many documents that its weight
        is not positive.

    References
    ----------
    .. [1] C. Liu, J. Zhu, Y. Song. "Stochastic Gradient Geodesic MCMC Methods", NeurIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import tf_idf
    >>> counts = sparse.csr_matrix(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 5.0], [1.0, 0.0, 0.0]]))
    >>> tf_idf(counts, frequency=np.array([1, 1, 1]), n_documents=4).toarray().round(3)
    array([[0.707, 0.707, 0.   ],
           [0.   , 0.   , 1.   ],
           [1.   , 0.   , 0.   ]])
    """
    counts = _by_document(counts)
    if frequency is None:
        frequency = document_frequency(counts)
    if n_documents is None:
        n_documents = counts.shape[0]
    inverse_frequency = np.log(n_documents / (1.0 + frequency))
    used = document_frequency(counts) > 0
    if np.any(inverse_frequency[used] <= 0):
        column = int(np.flatnonzero(used & (inverse_frequency <= 0))[0])
        raise ValueError(
            f"The word in column {column} is in {frequency[column]} of {n_documents} documents, "
            "so its tf-idf weight log(D/(1+df)) is not positive: drop such words first."
        )
    weighted = counts @ sparse.diags(inverse_frequency)
    length = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
    if np.any(length == 0):
        raise ValueError(
            f"The document in row {int(np.flatnonzero(length == 0)[0])} holds no word of the "
            "vocabulary and has no direction: drop such documents first."
        )
    return sparse.csr_matrix(sparse.diags(1.0 / length) @ weighted)
