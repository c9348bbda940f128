"""Numbers in the rows of data that point into an array, and whether they point beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Beyond:
    """An index that an array does not have.

    Attributes
    ----------
    row : int or None
        Where it stands, if it belongs to a row.
    said : str
        What it is.
    """

    row: int | None
    said: str


@dataclass(frozen=True)
class RowIndex:
    """Indices that a log-density computes from rows, such as numbers of groups.

    Compiled code does not look whether an index is one: a number of 57 reads what lies in memory
    behind a table of 50 entries.

    Parameters
    ----------
    containers : tuple of str
        Data that the indices are, or are computed from.
    length : int
        Entries of the array that they point into.
    table : str
        What the array is.
    of_rows : callable
        Takes the data by their names and returns the indices, an array of int.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_indices import RowIndex
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> groups.first_beyond({"group": np.array([0, 2, -1])}) is None
    True
    >>> groups.first_beyond({"group": np.array([0, 3])})
    Beyond(row=1, said="the index 3 into 'effect', which has the 3 entries 0 to 2")
    """

    containers: tuple[str, ...]
    length: int
    table: str
    of_rows: Callable[[Mapping[str, np.ndarray]], np.ndarray]

    def first_beyond(self, arrays: Mapping[str, np.ndarray]) -> Beyond | None:
        """Find the first index that is none; negative ones count from the end, as in NumPy."""
        found = np.atleast_1d(self.of_rows(arrays))
        if not found.size or (found.max() < self.length and found.min() >= -self.length):
            return None
        place = np.argwhere((found >= self.length) | (found < -self.length))[0]
        row = int(place[0]) if len(found) == len(arrays[self.containers[0]]) else None
        entries = f"the {self.length} entries 0 to {self.length - 1}"
        said = f"the index {found[tuple(place)]} into {self.table}, which has {entries}"
        return Beyond(row, said)

    @property
    def of(self) -> str:
        """The data, as messages name them."""
        return " and ".join(map(repr, self.containers))


REMEDY = (
    "number what the rows belong to from 0 without gaps, as pandas.factorize does, or give the "
    "array an entry for each number"
)


def beyond_in_memory(indices: Sequence[RowIndex], arrays: Mapping[str, np.ndarray]) -> str | None:
    """Say where data in memory point beyond an array, and what to do; None if nowhere.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_indices import RowIndex, beyond_in_memory
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> beyond_in_memory([groups], {"group": np.array([0, 3])})
    "row 1 of 'group' gives the index 3 into 'effect', which has the 3 entries 0 to 2; number..."
    """
    for index in indices:
        beyond = index.first_beyond(arrays)
        if beyond is not None:
            where = "" if beyond.row is None else f"row {beyond.row} of "
            return f"{where}{index.of} gives {beyond.said}; {REMEDY}"
    return None
