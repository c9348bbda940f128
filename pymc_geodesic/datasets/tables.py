"""Blocks of the rows of tables: Parquet files and Dask dataframes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pymc_geodesic.datasets.blocks import RowBlocks, blocks_of_arrays
from pymc_geodesic.datasets.columns import Columns, array_columns
from pymc_geodesic.datasets.stored.frames import RowsOfFrame, frame_partitions
from pymc_geodesic.datasets.stored.parquet import RowsOfTable, parquet_dataset, parquet_table

__all__ = ["dask_blocks", "parquet_blocks"]


def parquet_blocks(
    source: str | os.PathLike | Sequence[str | os.PathLike] | Any,
    *,
    columns: Columns | None = None,
    block_size: int,
    stretches: int = 1,
) -> RowBlocks:
    """Divide the rows of Parquet files into blocks for ``batches=``.

    Here only the ends of the files are read, which say how many rows there are. A sampler reads the
    columns that are named, a few thousand rows at a time.

    Parameters
    ----------
    source : path-like, sequence of path-like, or pyarrow.dataset.Dataset
        A file, several in the order given, or a folder, the files of which come in the order of
        their names. Files in a folder named ``year=2020`` have a column of that name and value.
    columns : str, sequence of str, mapping of str to them, or None
        ``{"X": ["height", "weight"], "y": "label"}`` makes blocks with an array for each data
        container, of shape (n, 2) and (n,); a list makes one array of shape (n, columns), a name
        one of shape (n,), and None one of all columns. An array has the smallest type that holds
        its columns in all files: ``float32`` stays what it is.
    block_size : int
        Rows of a block, those of the last one excepted. Two blocks are in memory at a time.
        Blocks of whole row groups are read fastest.
    stretches : int
        Parts of the data of which every block takes its share; see `row_blocks`.

    Returns
    -------
    RowBlocks
        Iterable, any number of times, with the attribute ``total_size``.

    Raises
    ------
    ValueError
        If a column is missing or holds no numbers, there are no rows, or ``block_size`` or
        ``stretches`` does not lie between 1 and N. While reading, if a column of integers or truth
        values has a row without a value, or a file has changed; the message names file and row.
    FileNotFoundError
        If a file does not exist, or no longer; the message names it.
    ImportError
        If pyarrow is not installed: ``pip install 'pymc_geodesic[parquet]'``.

    See Also
    --------
    row_blocks : rows of arrays.
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
    table = parquet_table(parquet_dataset(source))
    arrays, names = array_columns(columns, table.dtypes, "the table")
    rows = [RowsOfTable(table, each) for each in arrays]
    return blocks_of_arrays(rows, block_size, stretches, names)


def dask_blocks(
    frame: Any, *, columns: Columns | None = None, block_size: int, stretches: int = 1
) -> RowBlocks:
    """Divide the rows of a Dask dataframe into blocks for ``batches=``.

    The rows of all partitions are counted here, which computes each of them once. A sampler
    computes one partition after another in its own process, and keeps none.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Its partitions must come out the same each time: a frame that draws random numbers has to be
        written to disk first.
    columns : str, sequence of str, mapping of str to them, or None
        See `parquet_blocks`. Each array is computed for itself.
    block_size : int
        Rows of a block, those of the last one excepted. Two blocks are in memory at a time, and a
        partition. Blocks of whole partitions are computed fastest.
    stretches : int
        Parts of the data of which every block takes its share; see `row_blocks`.

    Returns
    -------
    RowBlocks
        Iterable, any number of times, with the attribute ``total_size``.

    Raises
    ------
    ValueError
        If a column is missing or holds no numbers, or ``block_size`` or ``stretches`` does not lie
        between 1 and N. While computing, if a partition has another number of rows than before.
    TypeError
        If ``frame`` is no Dask dataframe.
    ImportError
        If dask is not installed: ``pip install 'pymc_geodesic[dask]'``.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import numpy as np, pandas as pd
    >>> from pymc_geodesic.datasets import dask_blocks
    >>> frame = dd.from_pandas(pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1, -1, 1]}), npartitions=2)
    >>> [np.asarray(rows).tolist() for (rows,) in dask_blocks(frame, columns="y", block_size=2)]
    [[1, -1], [1]]
    """
    partitions = frame_partitions(frame)
    arrays, names = array_columns(columns, partitions.dtypes(), "the dataframe")
    rows = [RowsOfFrame(partitions, each) for each in arrays]
    return blocks_of_arrays(rows, block_size, stretches, names)
