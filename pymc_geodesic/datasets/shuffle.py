"""Put rows on disk in random order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pymc_geodesic.datasets.shuffling.arrays import Advance, shuffle_arrays
from pymc_geodesic.datasets.shuffling.keys import RandomKeys
from pymc_geodesic.datasets.shuffling.sources import arrays_of, is_table
from pymc_geodesic.datasets.shuffling.tables import shuffle_table
from pymc_geodesic.datasets.shuffling.targets import (
    array_target,
    hidden_beside,
    moved_when_done,
    refuse_existing,
)
from pymc_geodesic.datasets.stored.parquet import (
    ParquetTable,
    parquet_dataset,
    parquet_table,
)

__all__ = ["shuffle_rows"]

_ARRAY_FILES = (".npy", ".zarr", ".h5", ".hdf5", ".hdf")


def shuffle_rows(
    source: Any,
    target: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    random_seed: Any = None,
    memory: int = 2**28,
    progressbar: bool = True,
) -> None:
    r"""Write the rows of files in random order, in two passes and little memory.

    Every row i has a random key :math:`u_i` of 64 bits, and the rows are written in the order of
    their keys. Keys that are independent and of the same law are in each of their N! orders with
    the same probability, so that all permutations are equally likely; but for rows with the same
    key, which stay in the order they had: there are such with probability
    :math:`N^2 / 2^{65}` at most, 3e-6 for ten million rows.

    The first pass scatters the rows to K buckets on disk, row i to bucket
    :math:`\lfloor K u_i / 2^{64} \rfloor`; the second sorts one bucket after another in memory. K
    follows from ``memory``, and the order does not depend on it: files of the same number of rows
    get the same order from the same seed, whatever they hold.

    Parameters
    ----------
    source : path-like, sequence of path-like, array_like, or pyarrow.dataset.Dataset
        What `row_blocks` and `parquet_blocks` take: an ``.npy`` file, ``"rows.zarr/X"``,
        ``"rows.h5/X"``, arrays that are open; all arrays of ``"rows.zarr"`` or ``"rows.h5"``;
        several ``.npy`` files whose rows belong together; Parquet files or a folder of them, with
        all columns, of any type. It is only read.
    target : path-like or sequence of path-like
        It must not exist. For arrays an ``.npy`` file, ``"new.zarr"`` or ``"new.h5"``, or as many
        ``.npy`` files as there are arrays. For Parquet ``"new.parquet"``, or a folder, which gets a
        file for each bucket. Arrays keep names, shapes and types, and no attributes; Parquet files
        keep schema and compression.
    random_seed : int, sequence of int, numpy.random.Generator, or None
    memory : int
        Bytes that the rows in memory may have, with what it takes to sort them; beside them there
        are the interpreter and libraries. Chunks of zarr and HDF5 files and row groups of Parquet
        files that are larger are decoded all the same. Of texts of unequal length the first ones of
        each file are taken for all.
    progressbar : bool

    Raises
    ------
    FileExistsError
        If the target exists.
    FileNotFoundError
        If there is no source.
    ValueError
        If arrays have different numbers of rows or masked values, Parquet files different columns,
        the target is of no known kind or does not fit the source, there are no rows, or ``memory``
        is too little.
    ImportError
        If pyarrow or zarr is needed and not installed.

    Notes
    -----
    What is written gets its name when all of it is on disk: whoever ends the process finds no
    target, and at worst hidden files beside it. While it runs, the disk needs space for the rows
    twice, and for eight bytes a row.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import shuffle_rows
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     old, new = Path(folder, "sorted.npy"), Path(folder, "shuffled.npy")
    ...     np.save(old, np.arange(8))
    ...     shuffle_rows(old, new, random_seed=1, progressbar=False)
    ...     np.load(new).tolist()
    [2, 4, 7, 5, 0, 6, 3, 1]
    """
    keys = RandomKeys(random_seed)
    memory = int(memory)
    if is_table(source):
        _shuffle_table(source, target, keys, memory, progressbar)
    else:
        _shuffle_arrays(source, target, keys, memory, progressbar)


def _shuffle_arrays(
    source: Any, target: Any, keys: RandomKeys, memory: int, progressbar: bool
) -> None:
    arrays = arrays_of(source)
    n_rows = next(iter(arrays.values())).shape[0]
    paths = [Path(target)] if isinstance(target, str | os.PathLike) else [*map(Path, target)]
    for path in paths:
        _check_array_file(path)
    flat = [path for path in paths if path.suffix == ".npy"]
    if len(paths) not in (1, len(arrays)) or (len(paths) == 1 and flat and len(arrays) > 1):
        raise ValueError(
            f"there are {len(arrays)} arrays, {list(arrays)}, and {len(paths)} files to write them "
            "to; name one .npy file for each, or one .zarr or .h5 for all"
        )
    if len(paths) > 1 and len(flat) < len(paths):
        raise ValueError("several targets must be .npy files; one .zarr or .h5 file holds all")
    shares = [arrays] if len(paths) == 1 else [{name: each} for name, each in arrays.items()]
    with ExitStack() as stack:
        hidden = [stack.enter_context(moved_when_done(path)) for path in paths]
        scratch = stack.enter_context(hidden_beside(paths[0].with_suffix(".buckets")))
        advance = stack.enter_context(_progress(n_rows, progressbar))
        files = ExitStack()
        with files:
            targets = []
            for path, beside, share in zip(paths, hidden, shares, strict=True):
                targets.append(array_target(path, beside, share, memory))
                files.callback(targets[-1].close)
            shuffle_arrays(arrays, targets, scratch, keys, memory, advance)


def _check_array_file(path: Path) -> None:
    refuse_existing(path)
    if path.suffix not in _ARRAY_FILES:
        raise ValueError(
            f"{os.fspath(path)!r} is no target for arrays: name an .npy, .zarr or .h5 file"
        )


def _shuffle_table(
    source: Any, target: Any, keys: RandomKeys, memory: int, progressbar: bool
) -> None:
    if not isinstance(target, str | os.PathLike):
        raise ValueError("the target of Parquet files is one file or one folder")
    path = Path(target)
    if path.suffix in _ARRAY_FILES:
        raise ValueError(
            f"{os.fspath(path)!r} is no target for tables: name a .parquet or a folder"
        )
    refuse_existing(path)
    dataset = parquet_dataset(source)
    table = parquet_table(dataset)
    if dataset is not source:  # a data set says itself which columns it has
        _refuse_more_columns(table, dataset.schema)
    with (
        moved_when_done(path) as hidden,
        hidden_beside(path.with_suffix(".buckets")) as scratch,
        _progress(table.n_rows, progressbar) as advance,
    ):
        one_file = path.suffix in (".parquet", ".pq")
        shuffle_table(
            table, dataset.schema, hidden, scratch, keys, memory, advance, one_file=one_file
        )


def _refuse_more_columns(table: ParquetTable, schema: Any) -> None:
    """Raise if later files have columns that the first has not, and that would be left out."""
    for file in table.files:
        if more := set(file.dtypes) - set(schema.names):
            raise ValueError(
                f"{file.path} has a column {min(more)!r}, which the first file has not; write all "
                "files with the same columns"
            )


@contextmanager
def _progress(n_rows: int, shown: bool) -> Iterator[Advance]:
    """Bars of the rows that are read, and that are written."""
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), disable=not shown
    )
    with bars:
        tasks = [bars.add_task(name, total=n_rows) for name in ("rows read", "rows written")]
        left = n_rows

        def advance(n: int) -> None:
            nonlocal left
            bars.advance(tasks[left <= 0], n)
            left -= n

        yield advance
