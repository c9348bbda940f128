"""The non-zeros of rows, laid out in the order of the rows."""

import numpy as np


def positions_of(rows: np.ndarray) -> np.ndarray:
    """Positions of all non-zeros of some rows, one row after the other.

    Parameters
    ----------
    rows : ndarray of int, shape (n, 2)
        Where each row begins, and where it ends.

    Returns
    -------
    ndarray of int, shape (nnz,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_order import positions_of
    >>> positions_of(np.array([[5, 7], [2, 2], [0, 3]]))
    array([5, 6, 0, 1, 2])
    """
    lengths = rows[:, 1] - rows[:, 0]
    ends = np.cumsum(lengths)
    return np.repeat(rows[:, 1] - ends, lengths) + np.arange(ends[-1] if len(ends) else 0)


def in_order(
    values: np.ndarray, columns: np.ndarray, rows: np.ndarray, n_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy the non-zeros so that consecutive rows are consecutive in memory.

    Parameters
    ----------
    values, columns : ndarray, shape (nnz,)
        Non-zeros and their columns.
    rows : ndarray of int, shape (m, 2)
        Where each row begins and ends in ``values``.
    n_rows : int
        Rows that are laid out; the others repeat the first of them.

    Returns
    -------
    values, columns, rows : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.sparse_order import in_order
    >>> rows = np.array([[2, 3], [0, 2], [2, 3]])
    >>> values, columns, rows = in_order(np.array([1.0, 2, 3]), np.array([7, 8, 9]), rows, 2)
    >>> values
    array([3., 1., 2.])
    >>> rows.tolist()
    [[0, 1], [1, 3], [0, 1]]
    """
    positions = positions_of(rows[:n_rows])
    ends = np.cumsum(rows[:n_rows, 1] - rows[:n_rows, 0])
    moved = np.empty_like(rows)
    moved[:n_rows, 1] = ends
    moved[1:n_rows, 0] = ends[:-1]
    moved[0, 0] = 0
    moved[n_rows:] = moved[: len(rows) - n_rows]
    return values[positions], columns[positions], moved
