"""Rows of Parquet files, as row blocks of numeric arrays and as tables of pyarrow."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.datasets.blocks import ROWS_PER_READ, RowBlocks, StoredRows, optional_module

type Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""One column, several columns, or the column or columns of each data container."""


class RowGroup(NamedTuple):
    """Row group of a Parquet file.

    Attributes
    ----------
    path : str
    number : int
        Index of the row group in the file.
    first : int
        Index of its first row in the file.
    n_rows, file_rows : int
        Number of rows of the row group and of the file.
    constants : dict of str to object
        Columns given by the names of the folders, as ``year=2020``.
    """

    path: str
    number: int
    first: int
    n_rows: int
    file_rows: int
    constants: dict[str, Any]


class ParquetRows:
    """Rows of Parquet files as one table, in the order of the file names or as they are given.

    Opening it reads the metadata of the files. A pickle of it contains no data.

    Parameters
    ----------
    source : path-like, sequence of path-like, or pyarrow.dataset.Dataset
        A file, several, or a folder. Files in a folder named ``year=2020`` have a column of that
        name and value.

    Attributes
    ----------
    schema : pyarrow.Schema
        All columns of all files, with types that hold the values of each file.
    n_rows : int

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    ImportError
        If pyarrow is not installed.
    ValueError
        If a column has no common type in all files, or there are no rows.
    """

    def __init__(self, source: Any) -> None:
        dataset = pyarrow_module("pyarrow.dataset")
        if isinstance(source, dataset.Dataset):
            self.schema = source.schema
        else:
            is_one = isinstance(source, str | os.PathLike)
            paths = os.fspath(source) if is_one else [os.fspath(path) for path in source]
            source = dataset.dataset(paths, format="parquet", partitioning="hive")
            self.schema = _common_schema(source)
        self._filesystem = source.filesystem
        self._groups = [
            group for fragment in source.get_fragments() for group in _row_groups(fragment)
        ]
        self._ends = list(accumulate(group.n_rows for group in self._groups))
        self.n_rows = self._ends[-1] if self._ends else 0
        if not self.n_rows:
            raise ValueError(f"There are no rows in {source.files or 'no files'}.")

    @property
    def dtypes(self) -> dict[str, np.dtype | None]:
        """Data types of the columns; None for those that are not numeric."""
        types = pyarrow_module("pyarrow").types
        is_numeric = (types.is_integer, types.is_floating, types.is_boolean)
        return {
            field.name: np.dtype(field.type.to_pandas_dtype())
            if any(test(field.type) for test in is_numeric)
            else None
            for field in self.schema
        }

    @property
    def compression(self) -> str:
        """Compression of the first column of the first file."""
        with self._open(self._groups[0]) as file:
            name = str(file.metadata.row_group(0).column(0).compression).lower()
        return "none" if name == "uncompressed" else name

    def n_missing(self, columns: Collection[str]) -> dict[str, int]:
        """Count the missing values of those columns for which all files have statistics."""
        counts = dict.fromkeys(columns, 0)
        for first_group in (each for each in self._groups if each.number == 0):
            with self._open(first_group) as file:
                groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
            for group in groups:
                found = [group.column(j) for j in range(group.num_columns)]
                statistics = {each.path_in_schema: each.statistics for each in found}
                for name in list(counts):
                    if name in first_group.constants:
                        continue
                    if name not in statistics:
                        counts[name] += group.num_rows
                    elif getattr(statistics[name], "has_null_count", False):
                        counts[name] += statistics[name].null_count
                    else:
                        del counts[name]
        return counts

    def file_starts(self) -> list[int]:
        """Return the index of the first row of each file."""
        starts = [0, *self._ends]
        return [starts[i] for i, group in enumerate(self._groups) if group.number == 0]

    def batches(
        self, start: int, stop: int, columns: Sequence[str], size: int
    ) -> Iterator[tuple[int, Any]]:
        """Read the rows from ``start`` to ``stop``.

        Parameters
        ----------
        start, stop : int
        columns : sequence of str
        size : int
            Maximum number of rows of a batch.

        Yields
        ------
        int
            Index of the first row of the batch.
        pyarrow.RecordBatch

        Raises
        ------
        FileNotFoundError
            If a file was removed.
        ValueError
            If a file has a different number of rows than before.
        """
        for i in range(bisect_right(self._ends, start), len(self._groups)):
            group = self._groups[i]
            row = self._ends[i] - group.n_rows
            if row >= stop:
                return
            with self._open(group) as file:
                found = file.iter_batches(
                    size,
                    row_groups=[group.number],
                    columns=[name for name in columns if name in file.schema_arrow.names],
                    use_threads=False,
                )
                for batch in found:
                    first, last = max(start, row), min(stop, row + len(batch))
                    if first < last:
                        part = batch.slice(first - row, last - first)
                        yield first, self._complete(part, columns, group)
                    row += len(batch)
                    if row >= stop:
                        return

    def _open(self, group: RowGroup) -> Any:
        """Open the file of a row group."""
        parquet = pyarrow_module("pyarrow.parquet")
        file = parquet.ParquetFile(group.path, filesystem=self._filesystem, pre_buffer=False)
        if file.metadata.num_rows != group.file_rows:
            file.close()
            raise ValueError(
                f"{group.path} had {group.file_rows} rows and has {file.metadata.num_rows} now. "
                "Create the row blocks again."
            )
        return file

    def _complete(self, batch: Any, columns: Sequence[str], group: RowGroup) -> Any:
        """Convert columns to the common types; add those of the folder, and missing ones."""
        pyarrow = pyarrow_module("pyarrow")
        arrays = []
        for name in columns:
            if name in batch.schema.names:
                array = batch.column(name)
            else:
                value = pyarrow.scalar(group.constants.get(name))
                array = pyarrow.repeat(value, len(batch))
            arrays.append(array.cast(self.schema.field(name).type))
        fields = [self.schema.field(name) for name in columns]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema(fields))

    def origin(self, row: int) -> str:
        """Describe the position of a row: its number in its file, and the file."""
        i = bisect_right(self._ends, row)
        group = self._groups[i]
        return f"row {group.first + row - self._ends[i] + group.n_rows} of {group.path}"


def pyarrow_module(name: str) -> ModuleType:
    """Import a module of pyarrow, or name the extra that installs it."""
    return optional_module(name, "parquet", "Reading and writing Parquet files")


def _row_groups(fragment: Any) -> Iterator[RowGroup]:
    # Worker processes may have another working folder.
    is_local = os.path.exists(fragment.path)
    path = os.path.abspath(fragment.path) if is_local else fragment.path
    lengths = [group.num_rows for group in fragment.row_groups]
    partition = fragment.partition_expression
    constants = pyarrow_module("pyarrow.dataset").get_partition_keys(partition)
    first = 0
    for number, n_rows in enumerate(lengths):
        yield RowGroup(path, number, first, n_rows, sum(lengths), constants)
        first += n_rows


def _common_schema(dataset: Any) -> Any:
    """Return the columns of all files, with the smallest types that hold the values of each."""
    pyarrow = pyarrow_module("pyarrow")
    schema = dataset.schema
    for fragment in dataset.get_fragments():
        try:
            schema = pyarrow.unify_schemas(
                [schema, fragment.physical_schema], promote_options="permissive"
            )
        except pyarrow.ArrowException as error:
            raise ValueError(
                f"The columns of {fragment.path} do not match those of the files before it: "
                f"{error}. Write all files with the same columns."
            ) from error
    return schema


class ParquetArray(StoredRows):
    """Numeric columns of Parquet files as an array; other columns are not read.

    Parameters
    ----------
    rows : ParquetRows
    columns : str or sequence of str
        A name makes an array of shape (N,), a sequence one of shape (N, columns).

    Raises
    ------
    ValueError
        If a column does not exist or is not numeric.
    """

    def __init__(self, rows: ParquetRows, columns: str | Sequence[str]) -> None:
        self._rows, self._is_vector = rows, isinstance(columns, str)
        self._names = [columns] if isinstance(columns, str) else list(columns)
        dtypes, found = rows.dtypes, []
        if not self._names:
            raise ValueError(f"columns= is empty; the columns of the table are {list(dtypes)}.")
        for name in self._names:
            if name not in dtypes:
                raise ValueError(
                    f"The table has no column {name!r}; its columns are {list(dtypes)}."
                )
            if (dtype := dtypes[name]) is None:
                raise ValueError(
                    f"Column {name!r} of the table is not numeric. Omit it from columns= or store "
                    "numeric codes."
                )
            found.append(dtype)
        self.dtype = np.result_type(*found)
        self.shape = (rows.n_rows,) if self._is_vector else (rows.n_rows, len(self._names))

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        for first, batch in self._rows.batches(start, stop, self._names, ROWS_PER_READ):
            array = np.empty((len(batch), len(self._names)), self.dtype)
            for j, name in enumerate(self._names):
                column = batch.column(name)
                if column.null_count and self.dtype.kind != "f":
                    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
                    row = self.origin(first + int(np.argmin(is_valid)))
                    raise ValueError(
                        f"Column {name!r} has no value in {row}. Drop or impute those rows."
                    )
                array[:, j] = column.to_numpy(zero_copy_only=False)
            yield array[:, 0] if self._is_vector else array

    def origin(self, row: int) -> str:
        """Row and file."""
        return self._rows.origin(row)


def parquet_blocks(
    source: str | os.PathLike | Sequence[str | os.PathLike] | Any,
    *,
    columns: Columns | None = None,
    block_size: int,
    stretches: int = 1,
) -> RowBlocks:
    """Divide the rows of Parquet files into row blocks for ``batches=``.

    Only the metadata of the files is read here. A sampler reads the columns that are named, a few
    thousand rows at a time.

    Parameters
    ----------
    source : path-like, sequence of path-like, or pyarrow.dataset.Dataset
        A file, several in the order given, or a folder, the files of which are in the order of
        their names. Files in a folder named ``year=2020`` have a column of that name and value.
    columns : str, sequence of str, mapping of str to them, or None
        ``{"X": ["height", "weight"], "y": "label"}`` makes blocks with an array for each data
        container, of shape (n, 2) and (n,); a list makes one array of shape (n, columns), a name
        one of shape (n,), and None one of all columns. An array has the smallest type that holds
        its columns in all files: ``float32`` stays ``float32``.
    block_size : int
        Rows of a block, except for the last one. Two blocks are in memory at a time. Blocks of
        whole row groups are read fastest.
    stretches : int
        Number of stretches of the data that every block takes rows from; see `row_blocks`.

    Returns
    -------
    RowBlocks
        Iterable, any number of times, with the attribute ``total_size``.

    Raises
    ------
    ValueError
        If a column does not exist, is not numeric or has no common type in all files, there are no
        rows, or ``block_size`` or ``stretches`` is not an integer from 1 to N. While reading, if a
        column of integers or truth values has a missing value, or the number of rows of a file has
        changed; the message names the file and the row.
    FileNotFoundError
        If a file does not exist; the message names it.
    ImportError
        If pyarrow is not installed: ``pip install 'pymc_geodesic[parquet]'``.

    See Also
    --------
    row_blocks : row blocks of arrays.
    shuffle_rows : put rows on disk in random order.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from pymc_geodesic.datasets import parquet_blocks
    >>> table = pa.table({"height": [1.6, 1.8], "weight": [60.0, 80.0], "label": [-1, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/people.parquet")
    ...     blocks = parquet_blocks(
    ...         folder, columns={"X": ["height", "weight"], "y": "label"}, block_size=2
    ...     )
    ...     for block in blocks:
    ...         print({name: np.asarray(rows).tolist() for name, rows in block.items()})
    {'X': [[1.6, 60.0], [1.8, 80.0]], 'y': [-1, 1]}
    """
    rows = ParquetRows(source)
    if columns is None:
        columns = rows.schema.names
    names = list(columns) if isinstance(columns, Mapping) else None
    chosen = list(columns.values()) if isinstance(columns, Mapping) else [columns]
    if not chosen:
        raise ValueError(f"columns= is empty; the columns of the table are {rows.schema.names}.")
    arrays = [ParquetArray(rows, each) for each in chosen]
    return RowBlocks(arrays, block_size, stretches, names)
