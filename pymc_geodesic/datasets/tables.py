"""Tables of named columns, in Parquet files or in a Dask data frame, read a few rows at a time."""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pymc_geodesic.datasets.parquet import ParquetRows, pyarrow_module

ROWS_PER_FRAME = 2**16
"""Maximum number of rows of a data frame that is read at a time."""

_NUMBERS_PER_FRAME = 2**22
"""Maximum number of values of such a data frame."""


class Table(ABC):
    """Rows of named columns that are read as data frames of pandas.

    A pickle of it contains no rows.

    Attributes
    ----------
    where : str
        Path of the files, or kind of the table, in error messages.
    n_rows : int
    types : dict of str to str
        Name of the data type of each column.
    dtypes : dict of str to numpy.dtype or None
        Data type of each column; None for those that are not numeric.
    """

    where: str
    n_rows: int
    types: dict[str, str]
    dtypes: dict[str, np.dtype | None]

    @abstractmethod
    def frames(
        self, start: int, stop: int, columns: Sequence[str], factors: Collection[str] = ()
    ) -> Iterator[tuple[int, Any]]:
        """Read the rows from ``start`` to ``stop``.

        Parameters
        ----------
        start, stop : int
        columns : sequence of str
        factors : collection of str
            Columns that may be categories in the frames, which is faster.

        Yields
        ------
        int
            Index of the first row of the frame.
        pandas.DataFrame
            The columns, and at most `ROWS_PER_FRAME` rows.
        """

    @abstractmethod
    def origin(self, row: int) -> str:
        """Describe the position of a row, with a preposition."""

    @abstractmethod
    def n_missing(self, columns: Collection[str]) -> dict[str, int]:
        """Count missing values of columns, of those where that needs no reading of the rows."""

    def check_columns(self, columns: Collection[str]) -> None:
        """Check that the table has columns.

        Raises
        ------
        ValueError
            If it does not have one of them.
        """
        for name in columns:
            if name not in self.types:
                near = difflib.get_close_matches(name, self.types, n=1)
                guess = f" Did you mean {near[0]!r}?" if near else ""
                raise ValueError(
                    f"{self.where} has no column {name!r}, which the model needs; its columns are "
                    f"{list(self.types)}.{guess} Rename the column in the table, or in the data "
                    "frame before the model is built."
                )

    def missing_value(self, column: str, row: int | None, count: int = 1) -> ValueError:
        """Make the error for a column with missing values."""
        position = f"in {count} rows of {self.where}" if row is None else self.origin(row)
        return ValueError(
            f"Column {column!r} has no value {position}. Drop or impute those rows in the "
            f"table, as with .dropna(subset=[{column!r}])."
        )


class ParquetTable(Table):
    """Table in Parquet files.

    Parameters
    ----------
    source : path-like, sequence of path-like, or pyarrow.dataset.Dataset
        See `pymc_geodesic.datasets.parquet_blocks`.
    """

    def __init__(self, source: Any) -> None:
        self._rows = ParquetRows(source)
        self.where = os.fspath(source) if isinstance(source, str | os.PathLike) else "the table"
        self.n_rows, self.dtypes = self._rows.n_rows, self._rows.dtypes
        self.types = {field.name: str(field.type) for field in self._rows.schema}

    def frames(
        self, start: int, stop: int, columns: Sequence[str], factors: Collection[str] = ()
    ) -> Iterator[tuple[int, Any]]:
        """Read rows; see `Table.frames`."""
        encode = pyarrow_module("pyarrow.compute").dictionary_encode
        for first, batch in self._rows.batches(start, stop, columns, _rows_per_frame(columns)):
            for name in factors:
                i = batch.schema.get_field_index(name)
                batch = batch.set_column(i, name, encode(batch.column(i)))
            yield first, batch.to_pandas()

    def origin(self, row: int) -> str:
        """Row and file."""
        return f"in {self._rows.origin(row)}"

    def n_missing(self, columns: Collection[str]) -> dict[str, int]:
        """Count missing values by the statistics in the files."""
        return self._rows.n_missing(columns)


class DaskTable(Table):
    """Table in a Dask data frame, the partitions of which are computed one at a time.

    The last one is kept, so that blocks of consecutive rows compute each partition once.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    """

    def __init__(self, frame: Any) -> None:
        self._frame, self.where = frame, "the Dask data frame"
        lengths = frame.map_partitions(len).compute(scheduler="synchronous")
        self._ends = list(accumulate(int(length) for length in lengths))
        self.n_rows = self._ends[-1]
        if not self.n_rows:
            raise ValueError("The Dask data frame has no rows.")
        self.types = {str(name): str(dtype) for name, dtype in frame.dtypes.items()}
        self.dtypes = {
            str(name): dtype if isinstance(dtype, np.dtype) and dtype.kind in "biuf" else None
            for name, dtype in frame.dtypes.items()
        }
        self._last: tuple[Any, Any] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last": (None, None)}

    def _partition(self, number: int, columns: Sequence[str]) -> Any:
        key, frame = self._last
        if key != (number, *columns):
            part = self._frame[list(columns)].get_partition(number)
            frame = part.compute(scheduler="synchronous")
            self._last = ((number, *columns), frame)
        return frame

    def frames(
        self, start: int, stop: int, columns: Sequence[str], factors: Collection[str] = ()
    ) -> Iterator[tuple[int, Any]]:
        """Read rows; see `Table.frames`."""
        for number in range(bisect_right(self._ends, start), len(self._ends)):
            begin = self._ends[number - 1] if number else 0
            if begin >= stop:
                return
            frame = self._partition(number, columns)
            last = min(stop, self._ends[number])
            size = _rows_per_frame(columns)
            for first in range(max(start, begin), last, size):
                end = min(first + size, last)
                yield first, frame.iloc[first - begin : end - begin]

    def origin(self, row: int) -> str:
        """Row and partition."""
        number = bisect_right(self._ends, row)
        first = self._ends[number - 1] if number else 0
        return f"in row {row - first} of partition {number} of {self.where}"

    def n_missing(self, columns: Collection[str]) -> dict[str, int]:
        """Return nothing: a Dask data frame has no statistics."""
        return {}


def _rows_per_frame(columns: Sequence[str]) -> int:
    return max(1, min(ROWS_PER_FRAME, _NUMBERS_PER_FRAME // max(len(columns), 1)))


def open_table(source: Any) -> Table:
    """Open Parquet files or a Dask data frame.

    Raises
    ------
    TypeError
        If the source is a data frame in memory.
    ValueError
        If files are not Parquet files.
    ImportError
        If pyarrow is not installed.
    """
    if isinstance(source, Table):
        return source
    if hasattr(source, "map_partitions") and hasattr(source, "get_partition"):
        return DaskTable(source)
    if hasattr(source, "to_numpy") or hasattr(source, "to_pandas"):
        raise TypeError(
            f"table_blocks reads Parquet files or a Dask data frame, got a {type(source).__name__} "
            "in memory. Build the model on it and leave out batches=: batch_size= alone finds the "
            "rows of a model."
        )
    try:
        return ParquetTable(source)
    except pyarrow_module("pyarrow").ArrowInvalid as error:
        raise ValueError(
            f"{source} cannot be read as Parquet. Write it in this format, or read it as a Dask "
            "data frame, with dask.dataframe.read_csv for example."
        ) from error
