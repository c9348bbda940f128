"""Stratified samples of rows that represent every level and every rare indicator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

ROWS_PER_LEVEL = 20
"""Expected number of rows in the sample for each level or indicator: the relative standard error is
then about 20 % for the precision of its coordinate, and 10 % for its scale."""

_ROUNDING = 1e-12
"""Relative rounding error of a sum of squares, below which a column counts as constant."""

_CHUNK = 1 << 16
"""Number of elements of an array that are processed together."""


@dataclass(frozen=True)
class RowSample:
    """Rows of a stratified sample.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        C-contiguous rows by container, one stratum after the other.
    counts : ndarray of int64, shape (n_strata,)
        Number of rows of each stratum in the sample.
    weights : ndarray, shape (n_strata,)
        Number of rows of the data that a row of the sample represents. The sum of counts times
        weights is the number of rows of the data.
    n_noisy : float
        Effective number of rows that contribute the gradient noise of rare levels and indicators:
        (Σ sᵢ²)² / Σ sᵢ⁴ for rows with the shares sᵢ.
    """

    arrays: Mapping[str, np.ndarray]
    counts: np.ndarray
    weights: np.ndarray
    n_noisy: float = math.inf

    @classmethod
    def simple(cls, arrays: Mapping[str, np.ndarray], count: int, n_rows: int) -> RowSample:
        """Create a sample of one stratum, with ``count`` of ``n_rows`` rows."""
        return cls(arrays, np.array([count]), np.array([n_rows / count]))


def _chunks(array: np.ndarray, n_rows: int) -> Iterable[tuple[slice, np.ndarray]]:
    """Iterate over two-dimensional parts of an array that fit in the cache."""
    width = max(int(np.prod(array.shape[1:], dtype=int)), 1)
    length = max(_CHUNK // width, 1)
    for start in range(0, n_rows, length):
        part = slice(start, min(start + length, n_rows))
        yield part, array[part].reshape(part.stop - start, -1)


@np.errstate(invalid="ignore")  # bounds of censored observations may be infinite
def _shares_of_columns(array: np.ndarray, n_rows: int, least: float) -> np.ndarray | None:
    """Compute the largest share of each row in the centered sum of squares of a column.

    It is 1 / k for an indicator that is nonzero in k rows. Columns in which no row has a share
    above ``least``, or with infinite values, are skipped; return None if all are.
    """
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    width = int(np.prod(array.shape[1:], dtype=int))
    sums, squares = np.zeros(width), np.zeros(width)
    lowest, highest = np.full(width, np.inf), np.full(width, -np.inf)
    shift = array[0].reshape(-1).astype(float)  # avoids cancellation in sums of squares
    for _, rows in _chunks(array, n_rows):
        away = rows - shift
        sums += away.sum(axis=0)
        squares += np.einsum("ij,ij->j", away, away)
        np.minimum(lowest, away.min(axis=0), out=lowest)
        np.maximum(highest, away.max(axis=0), out=highest)
    mean = sums / n_rows
    total = squares - n_rows * mean**2
    farthest = np.maximum(highest - mean, mean - lowest) ** 2
    columns = np.flatnonzero((total > _ROUNDING * squares) & (farthest > least * total))
    if not columns.size:
        return None
    shares = np.empty(n_rows)
    for part, rows in _chunks(array, n_rows):
        away = rows[:, columns] - (shift + mean)[columns]
        shares[part] = (away**2 / total[columns]).max(axis=1)
    return shares


def shares_of_levels(levels: np.ndarray) -> np.ndarray:
    """Return 1 / n for the rarest level of each row, with the number n of rows of that level.

    Parameters
    ----------
    levels : ndarray of int, shape (N,) or (N, k)
        Indices of effects; negative ones count from the end.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.stratified_sample import shares_of_levels
    >>> shares_of_levels(np.array([0, 0, 0, 0, 7, 2, 2])).tolist()
    [0.25, 0.25, 0.25, 0.25, 1.0, 0.5, 0.5]
    """
    columns = np.asarray(levels).reshape(len(levels), -1).astype(np.int64)
    shares = np.zeros(len(columns))
    for column in columns.T:
        from_zero = column - min(int(column.min(initial=0)), 0)
        counts = np.bincount(from_zero)
        np.maximum(shares, 1.0 / counts[from_zero], out=shares)
    return shares


def shares_of_entries(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return 1 / n for the rarest column of each sparse row, with n entries in that column.

    Parameters
    ----------
    rows : ndarray of int, shape (N, 2)
        Start and stop index of the entries of each row, in order.
    columns : ndarray of int, shape (n_entries,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.stratified_sample import shares_of_entries
    >>> rows, columns = np.array([[0, 2], [2, 2], [2, 3]]), np.array([0, 4, 0])
    >>> shares_of_entries(rows, columns).tolist()
    [1.0, 0.0, 0.5]
    """
    columns = columns[: rows[-1, 1]]
    shares, is_filled = np.zeros(len(rows)), rows[:, 1] > rows[:, 0]
    if columns.size:
        of_entries = 1.0 / np.bincount(columns)[columns]
        shares[is_filled] = np.maximum.reduceat(of_entries, rows[is_filled, 0])
    return shares


def largest_shares(
    arrays: Mapping[str, np.ndarray], n_rows: int, least: float, shares: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Compute the largest share of each row, shape (N,): 1 / k for a row of an indicator of k rows.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (at least N, ...)
    n_rows : int
        N.
    least : float
        Numerical columns without a larger share are skipped.
    shares : mapping of str to ndarray, shape (N,)
        See `shares_of_levels` and `shares_of_entries`. Other containers have numerical columns, in
        which the share of a row is its share of the sum of squares.
    """
    largest = np.zeros(n_rows)
    for name, array in arrays.items():
        share = shares.get(name)
        if share is None:
            share = _shares_of_columns(array, n_rows, least)
        if share is not None:
            np.maximum(largest, share, out=largest)
    return largest


def select_rare_rows(shares: np.ndarray, least: float, max_rows: int) -> np.ndarray:
    """Select the rows with the largest shares, with all rows of a share or none.

    Parameters
    ----------
    shares : ndarray, shape (N,)
        Largest share of each row in a level, an indicator or a coordinate.
    least : float
        Share above which a row may be selected.
    max_rows : int
        Maximum number of rows.

    Returns
    -------
    ndarray of bool, shape (N,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.stratified_sample import select_rare_rows
    >>> select_rare_rows(np.array([0.5, 0.1, 1.0, 0.5]), 0.2, 3).tolist()
    [True, False, True, True]
    >>> select_rare_rows(np.array([0.5, 0.1, 1.0, 0.5]), 0.2, 2).tolist()
    [False, False, True, False]
    """
    is_rare = shares > least
    if is_rare.sum() > max_rows:
        is_rare = shares > np.sort(shares)[-max_rows - 1]
    return np.asarray(is_rare)


def stratified_sample(
    arrays: Mapping[str, np.ndarray],
    n: int,
    shares: np.ndarray,
    is_complete: np.ndarray | None = None,
) -> RowSample | None:
    """Sample rows with probabilities proportional to their shares in rare levels and indicators.

    Strata have the inclusion probabilities 1, 1/2, 1/4, ...; rows whose levels and indicators all
    have `ROWS_PER_LEVEL` expected rows in a simple random sample form one stratum with probability
    n/N. Within a stratum rows are drawn without replacement, with a fixed seed. Weighted sums over
    the sample are unbiased estimates of sums over the rows.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (at least N, ...)
    n : int
        Number of rows of a simple random sample; strata add at most as many.
    shares : ndarray, shape (N,)
        Largest share of each row in a level, an indicator or a coordinate.
    is_complete : ndarray of bool, shape (N,), optional
        Rows without gradient noise.

    Returns
    -------
    RowSample or None
        None if no level and no indicator is too rare for a simple random sample.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.stratified_sample import stratified_sample
    >>> indicator = np.repeat([0.0, 1.0], [9_990, 10])
    >>> sample = stratified_sample({"x": indicator}, 1_000, indicator / 10.0)
    >>> sample.counts.tolist(), sample.weights.round(2).tolist()
    ([10, 999], [1.0, 10.0])
    >>> float(sample.arrays["x"].sum())
    10.0
    """
    base = n / len(shares)
    is_rare = ROWS_PER_LEVEL * shares > base
    if not is_rare.any():
        return None
    rare = np.flatnonzero(is_rare)
    probability = _probabilities(shares[rare], base, n)
    strata = [(rare[probability == p], p) for p in np.unique(probability)[::-1]]
    strata.append((np.flatnonzero(~is_rare), base))
    rng = np.random.default_rng(0)
    chosen, weights = [], []
    for members, p in strata:
        if members.size:
            count = min(math.ceil(members.size * p), members.size)
            chosen.append(np.sort(rng.choice(members, size=count, replace=False)))
            weights.append(members.size / count)
    rows = np.concatenate(chosen)
    noisy = shares if is_complete is None else shares[~is_complete]
    squares, fourth_powers = (noisy**2).sum(), (noisy**4).sum()
    return RowSample(
        {name: np.ascontiguousarray(array[rows]) for name, array in arrays.items()},
        np.array([len(each) for each in chosen]),
        np.array(weights),
        float(squares**2 / fourth_powers) if fourth_powers else math.inf,
    )


def _probabilities(shares: np.ndarray, base: float, n: int) -> np.ndarray:
    """Compute inclusion probabilities, powers of 1/2 that are at least ``base``.

    They are at least `ROWS_PER_LEVEL` times the shares, or smaller if that would exceed n rows.
    """
    wanted = float(ROWS_PER_LEVEL)
    while True:
        exponents = np.floor(-np.log2(np.clip(wanted * shares, base, 1.0)))
        probability = 0.5**exponents
        if probability.sum() <= n or wanted * shares.max() <= base:
            return probability
        wanted *= 0.5
