"""Columns of Parquet files as rows of numbers."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import Any

import numpy as np

from pymc_geodesic.datasets.columns import ArrayColumns
from pymc_geodesic.datasets.stored.rows import PIECE, StoredRows, needed_module

__all__ = ["FileOfTable", "ParquetTable", "RowsOfTable", "parquet_dataset", "parquet_table"]


@dataclass(frozen=True)
class FileOfTable:
    """One Parquet file.

    Attributes
    ----------
    path : str
    lengths : tuple of int
        Rows of its row groups.
    constants : dict of str to object
        Columns whose value stands in the name of the folder.
    dtypes : dict of str to numpy.dtype
        Of the other columns; None for those that hold no numbers.
    """

    path: str
    lengths: tuple[int, ...]
    constants: dict[str, Any]
    dtypes: dict[str, np.dtype | None]


class ParquetTable:
    """Parquet files that are one table, in the order of their names or as they are given.

    Parameters
    ----------
    files : list of FileOfTable
    filesystem : pyarrow.fs.FileSystem
    dtypes : dict of str to numpy.dtype
        Of all columns; None for those that hold no numbers.

    Attributes
    ----------
    n_rows : int
    """

    def __init__(
        self,
        files: Sequence[FileOfTable],
        filesystem: Any,
        dtypes: dict[str, np.dtype | None],
    ) -> None:
        self.files = tuple(files)
        self.filesystem, self.dtypes = filesystem, dtypes
        self._ends = list(accumulate(sum(file.lengths) for file in self.files))
        self.n_rows = self._ends[-1] if self._ends else 0

    def place(self, row: int) -> tuple[int, int]:
        """Say in which file a row is, and which row of it."""
        file = bisect_right(self._ends, row)
        return file, row - (self._ends[file - 1] if file else 0)

    def opened(self, file: FileOfTable) -> Any:
        """Open a file, which has the rows that it had.

        Raises
        ------
        FileNotFoundError
            If it is gone.
        ValueError
            If it has other rows.
        """
        parquet = _pyarrow("pyarrow.parquet")
        opened = parquet.ParquetFile(file.path, filesystem=self.filesystem, pre_buffer=False)
        metadata = opened.metadata
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        if groups != list(file.lengths):
            opened.close()
            raise ValueError(
                f"{file.path} had {sum(file.lengths)} rows in {len(file.lengths)} row groups "
                f"before and has {sum(groups)} in {len(groups)} now; make the blocks again"
            )
        return opened


class RowsOfTable(StoredRows):
    """Some columns of Parquet files, of which no other columns are read.

    Parameters
    ----------
    table : ParquetTable
    columns : ArrayColumns

    Raises
    ------
    ValueError
        If a file is without one of the columns, or holds other numbers there than the first file.
    """

    def __init__(self, table: ParquetTable, columns: ArrayColumns) -> None:
        self._table, self._columns = table, columns
        self.shape = columns.shape(table.n_rows)
        self.dtype = columns.dtype
        for file in table.files:
            for name in set(columns.names) - set(file.constants):
                dtype = file.dtypes.get(name)
                if dtype is None or not _fits(dtype, columns.dtype):
                    raise ValueError(
                        f"column {name!r} is {table.dtypes[name]} in {table.files[0].path} and "
                        f"{dtype or 'not there, or no numbers,'} in {file.path}; write all files "
                        "with the same columns"
                    )
                # Later files may have wider numbers, which would not fit into those of the first.
                self.dtype = np.result_type(self.dtype, dtype)

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        while start < stop:
            number, first = self._table.place(start)
            file = self._table.files[number]
            last = min(first + stop - start, sum(file.lengths))
            yield from self._pieces_of_file(file, first, last)
            start += last - first

    def _pieces_of_file(self, file: FileOfTable, first: int, last: int) -> Iterator[np.ndarray]:
        names = [name for name in self._columns.names if name not in file.constants]
        with self._table.opened(file) as opened:
            begin = 0
            for group, length in enumerate(file.lengths):
                if begin < last and first < begin + length:
                    here = begin
                    batches = opened.iter_batches(
                        PIECE, row_groups=[group], columns=names, use_threads=False
                    )
                    for batch in batches:
                        rows = slice(max(first - here, 0), max(last - here, 0))
                        if len(part := batch[rows]):
                            yield self._array(part, file, here + rows.start)
                        here += len(batch)
                        if here >= last:
                            break
                begin += length

    def _array(self, batch: Any, file: FileOfTable, first: int) -> np.ndarray:
        """Copy a batch that begins in a row of a file."""
        array = np.empty((len(batch), len(self._columns.names)), self.dtype)
        for j, name in enumerate(self._columns.names):
            if name in file.constants:
                array[:, j] = file.constants[name]
                continue
            column = batch.column(name)
            if column.null_count and self.dtype.kind != "f":
                row = first + int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
                raise ValueError(
                    f"column {name!r} has no value in row {row} of {file.path}; drop or impute "
                    "those rows first"
                )
            array[:, j] = column.to_numpy(zero_copy_only=False)
        return array[:, 0] if self._columns.is_vector else array

    def origin(self, row: int) -> str:
        """Row and file."""
        number, first = self._table.place(row)
        return f"row {first} of {self._table.files[number].path}"


def _fits(dtype: np.dtype, first: np.dtype) -> bool:
    """Whether there is a type of the kind of the first that holds both."""
    both = np.result_type(dtype, first)
    return np.can_cast(dtype, first, "same_kind") and (both.kind == "f") == (first.kind == "f")


def _dtypes(schema: Any) -> dict[str, np.dtype | None]:
    """Types of the columns; None for those that hold no numbers."""
    types = _pyarrow("pyarrow").types
    are_numbers = (types.is_integer, types.is_floating, types.is_boolean)
    return {
        field.name: np.dtype(field.type.to_pandas_dtype())
        if any(holds(field.type) for holds in are_numbers)
        else None
        for field in schema
    }


def _pyarrow(name: str) -> ModuleType:
    return needed_module(name, "parquet", "Reading Parquet files")


def parquet_dataset(source: str | os.PathLike | Sequence[str | os.PathLike] | Any) -> Any:
    """Find Parquet files.

    Parameters
    ----------
    source : path-like, sequence of path-like, or pyarrow.dataset.Dataset
        A file, several, or a folder, in folders of which named ``year=2020`` files have a
        column of that name and value.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ImportError
        If pyarrow is not installed.
    """
    dataset = _pyarrow("pyarrow.dataset")
    if isinstance(source, dataset.Dataset):
        return source
    if isinstance(source, str | os.PathLike):
        names: str | list[str] = os.fspath(source)
    else:
        names = [os.fspath(path) for path in source]
    return dataset.dataset(names, format="parquet", partitioning="hive")


def parquet_table(source: Any) -> ParquetTable:
    """Read how many rows the groups of Parquet files have, and which columns.

    Parameters
    ----------
    source : pyarrow.dataset.Dataset

    Raises
    ------
    ValueError
        If there are no rows.
    """
    dataset = _pyarrow("pyarrow.dataset")
    types: dict[str, dict[str, np.dtype | None]] = {}
    files = [
        FileOfTable(
            # Processes may work in other folders.
            os.path.abspath(fragment.path) if os.path.exists(fragment.path) else fragment.path,
            tuple(group.num_rows for group in fragment.row_groups),
            dataset.get_partition_keys(fragment.partition_expression),
            # One dictionary for all files that are alike.
            types.setdefault(str(fragment.physical_schema), _dtypes(fragment.physical_schema)),
        )
        for fragment in source.get_fragments()
    ]
    table = ParquetTable(files, source.filesystem, _dtypes(source.schema))
    if not table.n_rows:
        raise ValueError(f"there are no rows in {source.files or 'no files'}")
    return table
