"""Layout of the vector of all Dirichlet, Gamma and LogNormal variables of a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pymc_geodesic.kernels.positive_numbers import LOG_NORMAL, SIMPLEX, expand_values

__all__ = ["CountLayout"]


class CountLayout:
    """Which coordinates belong to which variable, and of which kind it is.

    Parameters
    ----------
    blocks : ndarray of int64, shape (n_variables, 4)
        Kind, first coordinate, rows and coordinates per row of each variable; see
        `pymc_geodesic.kernels.positive_numbers.expand_values`.

    Attributes
    ----------
    size : int
        Number of coordinates.
    parts : list of slice
        Coordinates of each variable.
    is_simplex, is_log_normal : ndarray of bool, shape (size,)
        Kind of the variable that a coordinate belongs to.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.counts.layout import CountLayout
    >>> layout = CountLayout(np.array([[0, 0, 2, 3], [1, 6, 1, 2]]))
    >>> layout.row_sums(np.arange(8.0))
    array([ 3.,  3.,  3., 12., 12., 12.,  0.,  0.])
    """

    def __init__(self, blocks: np.ndarray) -> None:
        self.blocks = blocks
        lengths = blocks[:, 2] * blocks[:, 3]
        self.size = int(lengths.sum())
        self.parts = [
            slice(int(start), int(start + length))
            for start, length in zip(blocks[:, 1], lengths, strict=True)
        ]
        self.is_simplex = self.by_coordinate(blocks[:, 0] == SIMPLEX)
        self.is_log_normal = self.by_coordinate(blocks[:, 0] == LOG_NORMAL)

    def by_coordinate(self, by_variable: np.ndarray) -> np.ndarray:
        """Repeat one value per variable for each of its coordinates, shape (size,)."""
        return np.repeat(by_variable, self.blocks[:, 2] * self.blocks[:, 3])

    def simplices(self) -> Iterator[tuple[slice, int, int]]:
        """Coordinates, rows and coordinates per row of each Dirichlet variable."""
        for part, (kind, _, rows, width) in zip(self.parts, self.blocks, strict=True):
            if kind == SIMPLEX:
                yield part, int(rows), int(width)

    def row_sums(self, vector: np.ndarray) -> np.ndarray:
        """Sum over the simplex row of each coordinate, shape (size,); zero off the simplices."""
        sums = np.zeros(vector.size)
        for part, rows, width in self.simplices():
            sums[part] = np.repeat(vector[part].reshape(rows, width).sum(axis=1), width)
        return sums

    def values(self, log_state: np.ndarray) -> np.ndarray:
        """Variables at log θ, shape (size,): θ / Σθ by rows of a simplex, θ otherwise."""
        values = np.empty(self.size)
        expand_values(self.blocks, log_state, values)
        return values
