"""Products of a row of a sparse matrix and a vector, for compiled code.

A row consists of the values and columns from one position up to another (exclusive), which must not
be before it, as in compressed rows. Indices are converted to unsigned integers, since Numba
compiles additional instructions for negative ones.
"""

import numpy as np

from pymc_geodesic.runtime.jit import part


@part(reorders_sums=False)
def dot_row(
    values: np.ndarray, columns: np.ndarray, first: int, last: int, vector: np.ndarray
) -> float:
    """Return the scalar product of a row and a vector, in double precision.

    There are two partial sums, since the latency of additions limits a loop with one.
    """
    even = odd = 0.0
    one = np.uintp(1)
    k, end = np.uintp(first), np.uintp(last)
    if (end - k) & one:
        even = values[k] * vector[np.uintp(columns[k])]
        k += one
    while k < end:
        even += values[k] * vector[np.uintp(columns[k])]
        odd += values[k + one] * vector[np.uintp(columns[k + one])]
        k += one + one
    return even + odd


@part(reorders_sums=False)
def add_row(
    values: np.ndarray,
    columns: np.ndarray,
    first: int,
    last: int,
    factor: float,
    vector: np.ndarray,
) -> None:
    """Add the product of a row and a number to a vector."""
    for k in range(np.uintp(first), np.uintp(last)):
        vector[np.uintp(columns[k])] += values[k] * factor
