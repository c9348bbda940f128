r"""Rows of rare coordinates, such as the coefficient of an indicator that the model computes.

The rows of a coordinate are those whose derivative along it is not zero at a generic position. They
are found by group testing: the derivative of the sum over a block of rows is zero if no row of the
block is one of them. Rows are divided into random blocks, and the few blocks with a derivative
along a rare coordinate are halved, down to single rows.

Dorfman (1943), The Detection of Defective Members of Large Populations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.gradients.full_gradient import CHUNK, TotalGradient


@dataclass(frozen=True)
class RareCoordinateSettings:
    """Constants of the search for rows; heuristic, no measurement supports them.

    Attributes
    ----------
    n_single : int
        Number of single rows that are evaluated first.
    frequent : float
        Fraction of these rows above which a coordinate is not rare. The search ends if none is.
    n_blocks : int
        Minimum number of blocks.
    max_hits : int
        Maximum number of pairs of a rare coordinate and a block, each of which takes about 20
        gradients: the coordinates with the fewest blocks are examined.
    distinct : float
        Ratio of the number of blocks of a coordinate to that of coordinates beyond this maximum, up
        to which it counts as rarer than these.
    """

    n_single: int = 30
    frequent: float = 0.4
    n_blocks: int = 1_000
    max_hits: int = 500
    distinct: float = 0.8


SETTINGS = RareCoordinateSettings()


def _rarest(n_hits: np.ndarray, max_rows: int) -> np.ndarray:
    """Return the coordinates with the fewest blocks, of which none has more than ``max_rows``."""
    counts, n_coordinates = np.unique(n_hits[n_hits > 0], return_counts=True)
    is_left_out = np.cumsum(counts * n_coordinates) > SETTINGS.max_hits
    most = max_rows
    if is_left_out.any():
        most = min(most, SETTINGS.distinct * counts[is_left_out][0])
    return np.flatnonzero((n_hits > 0) & (n_hits <= most))


def shares_of_rare_coordinates(
    total: TotalGradient,
    x: np.ndarray,
    arrays: Mapping[str, np.ndarray],
    n_rows: int,
    max_rows: int,
    n_partitions: int = 1,
) -> np.ndarray:
    """Return 1 / n for the rarest coordinate of each row, with the number n of its rows.

    Parameters
    ----------
    total : TotalGradient
        Gradient of any number of rows.
    x : ndarray, shape (size,)
        Position at which no derivative is zero by chance.
    arrays : mapping of str to ndarray, shape (at least N, ...)
        Rows by container.
    n_rows : int
        N.
    max_rows : int
        Maximum number of rows of a rare coordinate.
    n_partitions : int
        Number of partitions into blocks. Derivatives of a loss with kinks may be c and −c, whose
        sum is zero: a row of a coordinate with n rows is missed in a partition with a probability
        of about n / 2000. It is found unless it is missed in all of them.

    Returns
    -------
    ndarray, shape (N,)
        0 for rows without a rare coordinate.
    """
    shares, rng = np.zeros(n_rows), np.random.default_rng(0)

    def is_nonzero(rows: np.ndarray) -> np.ndarray:
        chosen = {name: np.ascontiguousarray(arrays[name][rows]) for name in total.names}
        return total.gradient_of_rows(x, chosen, len(rows)) != 0.0

    singles = [is_nonzero(row) for row in rng.integers(n_rows, size=(SETTINGS.n_single, 1))]
    if np.mean(singles, axis=0).min(initial=1.0) > SETTINGS.frequent or n_rows <= max_rows:
        return shares
    found: dict[int, set[int]] = {}
    n_blocks = min(max(SETTINGS.n_blocks, -(-n_rows // CHUNK)), n_rows)
    for _ in range(n_partitions):
        blocks = np.array_split(rng.permutation(n_rows), n_blocks)
        n_hits, packed = np.zeros(x.size, dtype=np.int64), []
        for block in blocks:
            is_hit = is_nonzero(block)
            n_hits += is_hit
            packed.append(np.packbits(is_hit))
        rare = _rarest(n_hits, max_rows)
        hits = [rare[np.unpackbits(each, count=x.size)[rare] == 1] for each in packed]
        left = [each for each in zip(blocks, hits, strict=True) if each[1].size]
        while left:
            rows, coordinates = left.pop()
            if len(rows) == 1:
                for j in coordinates:
                    found.setdefault(int(j), set()).add(int(rows[0]))
                continue
            for half in np.array_split(rows, 2):
                own = coordinates[is_nonzero(half)[coordinates]]
                if own.size:
                    left.append((half, own))
    for each in found.values():
        if len(each) <= max_rows:
            rows = np.array(sorted(each))
            shares[rows] = np.maximum(shares[rows], 1.0 / len(rows))
    return shares
