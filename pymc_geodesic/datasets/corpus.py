"""A text corpus as sparse matrices with names."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse


@dataclass(frozen=True)
class Corpus:
    """Training and test documents over one vocabulary.

    Parameters
    ----------
    train, test : scipy.sparse.csr_matrix of float64, shapes (D_train, V) and (D_test, V)
        One row per document. For tf-idf features every row has unit length;
        ``train.toarray()`` gives the dense rows that a model takes.
    vocabulary : numpy.ndarray of str, shape (V,)
        The word of each column.
    train_titles, test_titles : numpy.ndarray of str, shapes (D_train,) and (D_test,)
        What each document is called, or the group it comes from.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import Corpus
    >>> rows = sparse.csr_matrix(np.eye(2))
    >>> corpus = Corpus(rows, rows, np.array(["sun", "moon"]), np.array(["a", "b"]),
    ...                 np.array(["c", "d"]))
    >>> corpus
    Corpus(2 train and 2 test documents, 2 words)
    """

    train: sparse.csr_matrix
    test: sparse.csr_matrix
    vocabulary: np.ndarray
    train_titles: np.ndarray
    test_titles: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Corpus({self.train.shape[0]} train and {self.test.shape[0]} test documents, "
            f"{len(self.vocabulary)} words)"
        )
