r"""Rows of rare coordinates, such as the coefficient of an indicator that the model computes.

The rows of a coordinate are those with a nonzero derivative along it at a generic position. They
are found by group testing: the gradient of a block of rows is zero along a coordinate if no row of
the block is one of its rows. Coordinates whose derivative is nonzero in few blocks are rare, and
only these blocks are divided, down to single rows.

Dorfman (1943), The Detection of Defective Members of Large Populations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from pymc_geodesic.gradients.full_gradient import TotalGradient

_N_BLOCKS = 1_000
"""Number of blocks into which all rows are divided first. Heuristic: the rows of a coordinate with
up to a few hundred rows are in about as many blocks."""


class _RareCoordinates:
    """Gradients of consecutive rows along coordinates that may be rare.

    Parameters
    ----------
    total : TotalGradient
    x : ndarray, shape (size,)
        Position.
    arrays : mapping of str to ndarray
        Rows by container.
    coordinates : ndarray of int
        Coordinates that may be rare.
    max_rows : int
        Number of rows above which a coordinate is not rare.

    Attributes
    ----------
    rows : dict of int to list of int
        The rows found so far by coordinate. Lists of ``max_rows + 1`` rows are incomplete.
    """

    def __init__(
        self,
        total: TotalGradient,
        x: np.ndarray,
        arrays: Mapping[str, np.ndarray],
        coordinates: np.ndarray,
        max_rows: int,
    ) -> None:
        self._total, self._x, self._arrays, self._max_rows = total, x, arrays, max_rows
        self.rows: dict[int, list[int]] = {int(j): [] for j in coordinates}

    def search(self, first: int, last: int, coordinates: np.ndarray) -> None:
        """Find the rows from ``first`` up to ``last`` (exclusive) of some coordinates."""
        coordinates = coordinates[[len(self.rows[j]) <= self._max_rows for j in coordinates]]
        if not coordinates.size:
            return
        gradient = self._total.gradient_of_rows(self._x, self._arrays, first, last)
        coordinates = coordinates[gradient[coordinates] != 0.0]
        if last - first == 1:
            for j in coordinates:
                self.rows[j].append(first)
        elif coordinates.size:
            for part_first, part_last in _blocks(first, last, math.isqrt(last - first) + 1):
                self.search(part_first, part_last, coordinates)


def _blocks(first: int, last: int, n: int) -> list[tuple[int, int]]:
    """Divide a range into n parts of almost the same length, which are not empty."""
    bounds = np.linspace(first, last, min(n, last - first) + 1).astype(int).tolist()
    return list(pairwise(bounds))


def shares_of_rare_coordinates(
    total: TotalGradient,
    x: np.ndarray,
    arrays: Mapping[str, np.ndarray],
    n_rows: int,
    max_rows: int,
) -> np.ndarray:
    """Return 1 / n for the rarest coordinate of each row, with the number n of its rows.

    Parameters
    ----------
    total : TotalGradient
        Gradient of any number of rows.
    x : ndarray, shape (size,)
        Position at which no derivative is zero by chance.
    arrays : mapping of str to ndarray, shape (at least N, ...)
        Rows in random order, by container.
    n_rows : int
        N.
    max_rows : int
        Maximum number of rows of a coordinate, and of blocks of rows that are divided.

    Returns
    -------
    ndarray, shape (N,)
        0 for rows without a rare coordinate.
    """
    blocks = _blocks(0, n_rows, _N_BLOCKS)
    counts = np.zeros(x.size, dtype=np.int64)
    for first, last in blocks:
        counts += total.gradient_of_rows(x, arrays, first, last) != 0.0
    shares = np.zeros(n_rows)
    if len(blocks) <= max_rows:
        return shares
    ascending = np.argsort(counts, kind="stable")
    ascending = ascending[counts[ascending] > 0]
    rare = ascending[np.cumsum(counts[ascending]) <= max_rows]
    if not rare.size:
        return shares
    found = _RareCoordinates(total, x, arrays, rare, max_rows)
    for first, last in blocks:
        found.search(first, last, rare)
    for rows in found.rows.values():
        if len(rows) <= max_rows:
            shares[rows] = np.maximum(shares[rows], 1.0 / len(rows))
    return shares
