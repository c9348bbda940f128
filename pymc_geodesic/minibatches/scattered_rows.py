"""Rows of a sparse matrix, each copied to a place of its own."""

import numpy as np

from pymc_geodesic.runtime.jit import compiled


@compiled
def scatter_rows(
    values: np.ndarray,
    columns: np.ndarray,
    starts: np.ndarray,
    begins: np.ndarray,
    into_values: np.ndarray,
    into_columns: np.ndarray,
) -> None:
    """Copy the non-zeros of each row to a place of its own.

    Parameters
    ----------
    values, columns : ndarray, shape (nnz,)
        Non-zeros and their columns.
    starts : ndarray of int, shape (n + 1,)
        Where each row begins, and where the last one ends.
    begins : ndarray of int, shape (n,)
        Where each row begins in the result.
    into_values, into_columns : ndarray
        The result.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.scattered_rows import scatter_rows
    >>> values, columns = np.zeros(3), np.zeros(3, dtype=int)
    >>> starts, begins = np.array([0, 2, 3]), np.array([1, 0])
    >>> scatter_rows(np.array([1.0, 2, 3]), np.array([7, 8, 9]), starts, begins, values, columns)
    >>> values
    array([3., 1., 2.])
    """
    for row in range(begins.size):
        shift = begins[row] - starts[row]
        for k in range(starts[row], starts[row + 1]):
            into_values[shift + k] = values[k]
            into_columns[shift + k] = columns[k]
