"""Which columns of a table make which arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["ArrayColumns", "array_columns"]

type Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""One column, several, or some by the name of a data container."""


class ArrayColumns(NamedTuple):
    """Columns of a table that make one array.

    Attributes
    ----------
    names : tuple of str
    is_vector : bool
        Whether a row is a number: the array has shape (N,) then, and (N, columns) otherwise.
    dtype : numpy.dtype
        The smallest that holds all of them.
    """

    names: tuple[str, ...]
    is_vector: bool
    dtype: np.dtype

    def shape(self, n_rows: int) -> tuple[int, ...]:
        """Shape of the array for so many rows."""
        return (n_rows,) if self.is_vector else (n_rows, len(self.names))


def array_columns(
    columns: Columns | None, dtypes: Mapping[str, np.dtype | None], where: str
) -> tuple[list[ArrayColumns], list[str] | None]:
    """Say which columns make which arrays, and what these are called.

    Parameters
    ----------
    columns : str, sequence of str, mapping of str to them, or None
        None for all.
    dtypes : mapping of str to numpy.dtype
        Of every column there is; None where it holds no numbers.
    where : str
        What errors call the table.

    Returns
    -------
    arrays : list of ArrayColumns
    names : list of str or None
        None where there is one array without a name.

    Raises
    ------
    ValueError
        If there is no such column, or it holds no numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.columns import array_columns
    >>> dtypes = {"a": np.dtype("f4"), "b": np.dtype("i2"), "day": None}
    >>> arrays, names = array_columns({"X": ["a", "b"], "y": "b"}, dtypes, "the table")
    >>> names, [str(array.dtype) for array in arrays]
    (['X', 'y'], ['float32', 'int16'])
    >>> array_columns(["a", "c"], dtypes, "the table")
    Traceback (most recent call last):
        ...
    ValueError: the table has no column 'c'; its columns are ['a', 'b', 'day']
    """
    if columns is None:
        columns = list(dtypes)
    if isinstance(columns, Mapping):
        arrays = [_one_array(each, dtypes, where) for each in columns.values()]
        names: list[str] | None = list(columns)
    else:
        arrays, names = [_one_array(columns, dtypes, where)], None
    if not arrays:
        raise ValueError(f"columns= names no column of {where}; there are {list(dtypes)}")
    return arrays, names


def _one_array(
    columns: str | Sequence[str], dtypes: Mapping[str, np.dtype | None], where: str
) -> ArrayColumns:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names:
        raise ValueError(f"columns= names no column of {where}; there are {list(dtypes)}")
    found = []
    for name in names:
        if name not in dtypes:
            raise ValueError(f"{where} has no column {name!r}; its columns are {list(dtypes)}")
        dtype = dtypes[name]
        if dtype is None:
            raise ValueError(
                f"column {name!r} of {where} holds no numbers; leave it out of columns=, or store "
                "numbers in its place"
            )
        found.append(dtype)
    return ArrayColumns(names, isinstance(columns, str), np.result_type(*found))
