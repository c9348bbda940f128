"""What all rows on disk have in common, and how rows of any array are read in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["PIECE", "StoredRows", "needed_module", "origin_of", "piece_of", "pieces_of_rows"]

PIECE = 2**14
"""Rows that are read at a time, unless they are wide."""

_PIECE_BYTES = 2**25


class StoredRows(ABC):
    """Rows that are read from disk when they are sliced; no file is open between two reads.

    Processes and threads can use them at once, and a pickle of them holds no numbers.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows in consecutive arrays.

        Raises
        ------
        FileNotFoundError
            If the file is gone; the message names it.
        ValueError
            If it has other rows than it had.
        """

    @abstractmethod
    def origin(self, row: int) -> str:
        """Say where a row is, in words: file, and row in it."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        found = list(self.pieces(start, stop))
        return np.concatenate(found) if found else np.empty((0, *self.shape[1:]), self.dtype)


def piece_of(array: Any) -> int:
    """Rows of an array that are read at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.stored.rows import piece_of
    >>> piece_of(np.empty((10**6, 28), "f4")), piece_of(np.empty((10, 10**6), "f4"))
    (16384, 8)
    """
    row = int(np.prod(array.shape[1:], dtype=int)) * np.dtype(array.dtype).itemsize
    return max(1, min(PIECE, _PIECE_BYTES // max(row, 1)))


def pieces_of_rows(array: Any, start: int, stop: int) -> Iterator[Any]:
    """Read rows in consecutive arrays that are short, or as long as a stored chunk.

    Parameters
    ----------
    array : StoredRows, or anything with ``shape`` and ``dtype`` whose rows can be sliced
    start, stop : int

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.stored.rows import pieces_of_rows
    >>> [len(piece) for piece in pieces_of_rows(np.zeros(40_000), 10_000, 40_000)]
    [6384, 16384, 7232]
    """
    if isinstance(array, StoredRows):
        yield from array.pieces(start, stop)
        return
    chunks = getattr(array, "chunks", None)
    longest = max(piece_of(array), chunks[0] if chunks else 1)
    while start < stop:
        end = min(stop, (start // longest + 1) * longest)
        piece = array[start:end]
        yield piece if sparse.issparse(piece) else np.asarray(piece)
        start = end


def origin_of(array: Any, row: int) -> str:
    """Say where a row of an array is, in words."""
    return array.origin(row) if isinstance(array, StoredRows) else f"row {row}"


def needed_module(name: str, extra: str, what: str) -> ModuleType:
    """Import a package that the user need not have.

    Parameters
    ----------
    name : str
    extra : str
        Optional dependencies of this package that bring it.
    what : str
        What needs it.

    Raises
    ------
    ImportError
        If it is not there; the message says how to install it.

    Examples
    --------
    >>> from pymc_geodesic.datasets.stored.rows import needed_module
    >>> needed_module("no_such_package", "parquet", "Reading tables")
    Traceback (most recent call last):
        ...
    ImportError: Reading tables needs no_such_package; install it with pip install ...
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{what} needs {package}; install it with pip install 'pymc_geodesic[{extra}]'"
        ) from error
