"""Sparse matrices in the one form that the products read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
from scipy import sparse


def canonical_rows(matrix: Any, what: str) -> sparse.csr_array:
    """Rows of a SciPy sparse matrix, columns in order, without duplicates, of finite numbers.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array, shape (n, d)
        Any format. It is not changed.
    what : str
        What errors call it.

    Returns
    -------
    scipy.sparse.csr_array, shape (n, d)
        Shares its memory with ``matrix`` where nothing had to be done.

    Raises
    ------
    ValueError
        If there are NaN or infinity, or columns that the shape has no place for.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.sparse.canonical import canonical_rows
    >>> twice = sparse.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(1, 3))
    >>> canonical_rows(twice, "the matrix").toarray()
    array([[0., 3., 0.]])
    """
    rows = sparse.csr_array(matrix)
    # The products trust the columns: SciPy does not look at them when a matrix is made.
    if rows.nnz and not 0 <= rows.indices.min() <= rows.indices.max() < rows.shape[1]:
        raise ValueError(
            f"{what} has entries in columns outside 0 to {rows.shape[1] - 1}; "
            "make the matrix with the shape it has"
        )
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(pytensor.config.floatX)
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{what} holds NaN or infinity; drop or impute them first")
    return rows
