"""Example rows that a model may join: consecutive rows, and rows with equal integer values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

_RUNS = 2
"""Number of runs of consecutive rows."""

_GROUP_ROWS = 4
"""Largest number of rows of one group of equal values."""

_DRAWN_GROUPS = 32
"""Rows drawn to find groups of two or more rows with equal values. If a fraction p of the rows
belongs to such groups, none is found with probability (1 − p)^32: 3 % for p = 0.1."""

_COLUMNS = 16
"""Largest number of integer columns that are examined."""

_PAIRED_COLUMNS = 4
"""Largest number of integer columns whose values are also compared in pairs."""

_SHARED_PAIRS = 8
"""Pairs of rows with equal values, one row in each part of a random sample, that suffice."""


def related_rows(
    arrays: Mapping[str, np.ndarray], n: int, numbers: np.ndarray | None = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Choose rows that depend on each other in models of time series, panels and groups.

    Related rows are neighbors in the result, so that its even and its odd elements are two parts
    that share every run and every group. Columns of few values are left out where two parts of
    random rows share values anyway.

    Parameters
    ----------
    arrays : mapping of str to ndarray, shape (n_rows, ...)
        At least one.
    n : int
        Number of rows to choose, even.
    numbers : ndarray of int, shape (n_rows,), optional
        Row of the data, in their original order, that each row of the arrays is; by default the
        arrays are in this order.

    Yields
    ------
    description : str
        What the rows have in common, with a preposition.
    rows : ndarray of int, shape (n,)
        Positions in the arrays. Rows may be repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.related_rows import related_rows
    >>> group = np.repeat(np.arange(1000), 2)
    >>> (_, consecutive), (_, equal) = related_rows({"group": group}, 4)
    >>> int(consecutive[1] - consecutive[0]), bool(group[equal[0]] == group[equal[1]])
    (1, True)
    """
    n_rows = len(next(iter(arrays.values()))) if numbers is None else len(numbers)
    if numbers is None:
        numbers = np.arange(n_rows)
    rng = np.random.default_rng(0)
    yield "of consecutive rows", _consecutive(n, numbers, rng)
    sample = rng.integers(n_rows, size=n)
    columns = _integer_columns({name: a[:n_rows] for name, a in arrays.items()}, sample)
    paired = []
    for name, column in columns.items():
        if _are_shared([column], sample):
            paired.append(name)
        elif (rows := _with_equal_values([column], n, numbers, rng)) is not None:
            paired.append(name)
            yield f"of rows with equal values of {name}", rows
    for pair in combinations(paired[:_PAIRED_COLUMNS], 2):
        both = [columns[name] for name in pair]
        if not _are_shared(both, sample):
            rows = _with_equal_values(both, n, numbers, rng)
            if rows is not None:
                yield f"of rows with equal values of {pair[0]} and {pair[1]}", rows


def _consecutive(n: int, numbers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose runs of rows that are consecutive in the data."""
    positions = np.empty(len(numbers), dtype=np.int64)
    positions[numbers] = np.arange(len(numbers))
    starts = rng.integers(len(numbers), size=_RUNS)[:, np.newaxis]
    return positions[(starts + np.arange(n // _RUNS)).ravel() % len(numbers)]


def _integer_columns(arrays: Mapping[str, np.ndarray], sample: np.ndarray) -> dict[str, np.ndarray]:
    """Find columns whose values are integers, of any data type, first of one-dimensional arrays."""
    found: dict[str, np.ndarray] = {}
    for name, array in sorted(arrays.items(), key=lambda item: item[1].ndim):
        if array.ndim > 2 or array.dtype.kind not in "iuf":
            continue
        columns = {repr(name): array} if array.ndim == 1 else {}
        for i in range(array.shape[1] if array.ndim == 2 else 0):
            columns[f"column {i} of {name!r}"] = array[:, i]
        for called, column in columns.items():
            if len(found) == _COLUMNS:
                return found
            values = column[sample]
            if np.array_equal(values, np.floor(values)):
                found[called] = np.ascontiguousarray(column)
    return found


def _are_shared(columns: Sequence[np.ndarray], sample: np.ndarray) -> bool:
    """Whether the two parts of a random sample share values."""
    first, second = sample[::2, np.newaxis], sample[1::2]
    equal = first != second
    for column in columns:
        equal &= column[first] == column[second]
    return int(equal.sum()) >= _SHARED_PAIRS


def _with_equal_values(
    columns: Sequence[np.ndarray], n: int, numbers: np.ndarray, rng: np.random.Generator
) -> np.ndarray | None:
    """Choose groups of rows with equal values of all columns; None if no group is found."""
    chosen: list[np.ndarray] = []
    length = 0
    for row in rng.choice(len(numbers), size=min(_DRAWN_GROUPS, len(numbers)), replace=False):
        equal = columns[0] == columns[0][row]
        for column in columns[1:]:
            equal &= column == column[row]
        group = np.flatnonzero(equal)
        size = min(len(group) // 2 * 2, _GROUP_ROWS)
        if size:
            group = group[np.argsort(numbers[group], kind="stable")]
            start = rng.integers(len(group) - size + 1)
            chosen.append(group[start : start + size])
            length += size
        if length >= n:
            break
    return np.resize(np.concatenate(chosen), n) if chosen else None
