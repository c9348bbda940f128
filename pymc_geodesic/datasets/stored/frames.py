"""Columns of Dask dataframes as rows of numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np

from pymc_geodesic.datasets.columns import ArrayColumns
from pymc_geodesic.datasets.stored.rows import PIECE, StoredRows, needed_module

__all__ = ["Partitions", "RowsOfFrame", "frame_partitions"]

_HERE = "synchronous"
"""Dask's scheduler without threads and processes of its own: the sampler has them."""


class Partitions:
    """A dataframe, and how many rows its partitions have.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    lengths : list of int
    """

    def __init__(self, frame: Any, lengths: list[int]) -> None:
        self.frame, self.lengths = frame, lengths
        self._ends = list(accumulate(lengths))
        self.n_rows = self._ends[-1] if lengths else 0

    def place(self, row: int) -> tuple[int, int]:
        """Say in which partition a row is, and which row of it."""
        partition = bisect_right(self._ends, row)
        return partition, row - (self._ends[partition - 1] if partition else 0)

    def dtypes(self) -> dict[str, np.dtype | None]:
        """Types of the columns; None for those that hold no numbers."""
        return {str(name): _number_type(dtype) for name, dtype in self.frame.dtypes.items()}


def _number_type(dtype: Any) -> np.dtype | None:
    """Type of NumPy for a type of pandas, which has numbers with and without missing values."""
    plain = getattr(dtype, "numpy_dtype", dtype)
    return plain if isinstance(plain, np.dtype) and plain.kind in "fiub" else None


class RowsOfFrame(StoredRows):
    """Some columns of a Dask dataframe, computed when they are asked for.

    Parameters
    ----------
    partitions : Partitions
    columns : ArrayColumns
    """

    def __init__(self, partitions: Partitions, columns: ArrayColumns) -> None:
        self._partitions, self._columns = partitions, columns
        self._delayed = partitions.frame[list(columns.names)].to_delayed()
        self.shape = columns.shape(partitions.n_rows)
        self.dtype = columns.dtype

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Compute rows; see `StoredRows.pieces`."""
        while start < stop:
            number, first = self._partitions.place(start)
            length = self._partitions.lengths[number]
            table = self._delayed[number].compute(scheduler=_HERE)
            if len(table) != length:
                raise ValueError(
                    f"partition {number} had {length} rows before and has {len(table)} now; write "
                    "the dataframe to disk, and make the blocks of what was written"
                )
            last = min(first + stop - start, length)
            for begin in range(first, last, PIECE):
                yield self._array(table.iloc[begin : min(begin + PIECE, last)], number, begin)
            start += last - first

    def _array(self, table: Any, partition: int, first: int) -> np.ndarray:
        """Copy rows that begin in a row of a partition."""
        array = np.empty((len(table), len(self._columns.names)), self.dtype)
        for j, name in enumerate(self._columns.names):
            column = table[name]
            missing = column.isna().to_numpy()
            if self.dtype.kind != "f":
                if missing.any():
                    row = first + int(np.argmax(missing))
                    raise ValueError(
                        f"column {name!r} has no value in row {row} of partition {partition}; "
                        "drop or impute those rows first"
                    )
                array[:, j] = column.to_numpy(self.dtype)
            else:
                array[:, j] = column.to_numpy(self.dtype, na_value=np.nan)
        return array[:, 0] if self._columns.is_vector else array

    def origin(self, row: int) -> str:
        """Row and partition."""
        number, first = self._partitions.place(row)
        return f"row {first} of partition {number}"


def frame_partitions(frame: Any) -> Partitions:
    """Count the rows of each partition.

    Raises
    ------
    ImportError
        If dask is not installed.
    TypeError
        If ``frame`` is no Dask dataframe.
    """
    dask = needed_module("dask.dataframe", "dask", "Reading Dask dataframes")
    if not isinstance(frame, dask.DataFrame):
        raise TypeError(
            f"dask_blocks takes a Dask dataframe, got {type(frame).__name__}; for a dataframe in "
            "memory there is row_blocks(frame.to_numpy(), ...), for files parquet_blocks"
        )
    return Partitions(frame, [int(n) for n in frame.map_partitions(len).compute()])
