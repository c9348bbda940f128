"""Rows on disk in random order: an external sort by random keys, in bounded memory."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from scipy import sparse

from pymc_geodesic.datasets.blocks import ROWS_PER_READ, RowSlices, row_bytes, sliceable_rows
from pymc_geodesic.datasets.parquet import ParquetRows, pyarrow_module

MAX_BUCKETS = 2**16
"""Maximum number of buckets; a bucket number has 16 bits."""

BUCKET_Z = 6.0
"""Standard deviations by which the largest bucket may exceed the mean number of rows."""

_PARQUET = (".parquet", ".pq")

type Write = Callable[[Any, int], None]
"""Append rows of a bucket to the target."""


def shuffle_rows(
    source: Any,
    target: str | os.PathLike | Sequence[str | os.PathLike],
    *,
    random_seed: Any = None,
    memory: int = 2**28,
    progressbar: bool = True,
) -> None:
    r"""Write the rows of files in random order, in two passes and bounded memory.

    Every row i has a random key :math:`u_i` of 64 bits, and the rows are written in the order of
    their keys. The keys are independent and identically distributed, so that all N! permutations
    are equally likely, except that rows with equal keys keep their order: the probability of two
    equal keys is at most :math:`N^2 / 2^{65}`, 3e-6 for ten million rows.

    The first pass writes the rows to K buckets on disk, row i to bucket
    :math:`\lfloor K u_i / 2^{64} \rfloor`; the second pass sorts each bucket in memory. K follows
    from ``memory``, and the order does not depend on it: files with the same number of rows get
    the same order from the same seed, independent of their contents.

    Parameters
    ----------
    source : path-like, sequence of path-like, array_like, or pyarrow.dataset.Dataset
        An ``.npy`` file, or several whose rows belong together; arrays that `row_blocks` takes; or
        what `parquet_blocks` takes, with all columns, of any type. The source is only read.
    target : path-like or sequence of path-like
        New ``.npy`` files, one for each array. For Parquet files one file, ``"new.parquet"``, or a
        folder, which gets a file for each bucket, with the schema and compression of the source.
    random_seed : int, sequence of int, numpy.random.Generator, or None
    memory : int
        Maximum number of bytes of the rows in memory, including what sorting them takes but not
        the interpreter and libraries. Stored chunks and row groups that are larger are decoded
        nevertheless. The size of rows of text is estimated from the first rows of each file.
    progressbar : bool

    Raises
    ------
    FileExistsError
        If the target exists.
    FileNotFoundError
        If the source does not exist.
    ValueError
        If arrays have different numbers of rows, masked values or Python objects, columns of
        Parquet files have no common type, the target does not match the source, there are no rows,
        or ``memory`` is too small.
    ImportError
        If pyarrow is needed and not installed.

    Notes
    -----
    The target gets its name when all rows are on disk. If the process ends before, there is no
    target, and at worst a hidden temporary file or folder in its folder. The disk needs space for
    the rows twice, and for eight bytes per row.

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
    paths = [Path(target)] if isinstance(target, str | os.PathLike) else [*map(Path, target)]
    rows = (_Table if _is_parquet(source) else _Arrays)(source, paths)
    n_buckets, size = bucket_sizes(rows.n_rows, rows.row_bytes, int(memory))
    if isinstance(random_seed, np.random.Generator):
        random_seed = int(random_seed.integers(2**63))
    keys = np.random.PCG64(np.random.SeedSequence(random_seed))
    with ExitStack() as stack:
        new = [stack.enter_context(_renamed_when_complete(path)) for path in paths]
        buckets = stack.enter_context(_temporary(paths[0].with_suffix(".buckets")))
        buckets.mkdir()
        count_read, count_written = stack.enter_context(_progress(rows.n_rows, progressbar))
        for part in rows.read(size):
            scatter(part, rows, keys.random_raw(len(part)), n_buckets, buckets)
            count_read(len(part))
        write = stack.enter_context(rows.writer(new))
        for number in range(n_buckets):
            files = buckets / f"{number}.keys", buckets / f"{number}.rows"
            if not files[0].exists():
                continue
            # The bucket first: it fits into the memory that the one before has left.
            bucket, order = rows.load(files[1]), key_order(np.fromfile(files[0], np.uint64))
            for start in range(0, len(order), size):
                some = order[start : start + size]
                write(rows.take(bucket, some), number)
                count_written(len(some))
            del bucket, order
            for file in files:
                file.unlink()


def _is_parquet(source: Any) -> bool:
    if type(source).__module__.startswith("pyarrow"):
        return True
    if isinstance(source, list | tuple) and source:
        source = source[0]
    if not isinstance(source, str | os.PathLike):
        return False
    return Path(source).suffix in _PARQUET or Path(source).is_dir()


def bucket_sizes(n_rows: int, row_bytes: int, memory: int) -> tuple[int, int]:
    """Return the number of buckets, and the number of rows to read or write at a time.

    Raises
    ------
    ValueError
        If the memory is too small.

    Examples
    --------
    >>> from pymc_geodesic.datasets.shuffle import bucket_sizes
    >>> bucket_sizes(10_000_000, 116, 200_000_000)
    (10, 67934)
    """
    # Rows are read, become records, and are copied in the order of the buckets.
    size = int(memory / 4 / (6 * row_bytes + 40))
    # A row of a bucket has its key, a copy of the key, its position, and what sorting takes.
    largest = 0.75 * memory / (row_bytes + 32)
    # The mean that solves mean + BUCKET_Z * sqrt(mean) = largest.
    mean = (math.sqrt(largest + BUCKET_Z**2 / 4) - BUCKET_Z / 2) ** 2
    n_buckets = max(1, math.ceil(n_rows / mean)) if largest < n_rows else 1
    if size < 1 or n_buckets > min(MAX_BUCKETS, max(n_rows, 1)):
        raise ValueError(
            f"memory={memory} is too small for {n_rows} rows of {row_bytes} bytes. Increase it."
        )
    return n_buckets, size


def assign_buckets(keys: np.ndarray, n_buckets: int) -> np.ndarray:
    """Return the bucket of each key; the first bucket has the smallest keys.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.shuffle import assign_buckets
    >>> assign_buckets(np.array([0, 2**62, 2**64 - 1], dtype="u8"), 3)
    array([0, 0, 2], dtype=uint16)
    """
    high = keys >> np.uint64(32)
    return ((high * np.uint64(n_buckets)) >> np.uint64(32)).astype(np.uint16)


def key_order(keys: np.ndarray) -> np.ndarray:
    """Return the order of the rows of a bucket."""
    return np.argsort(keys, kind="stable")


def scatter(part: Any, rows: _Rows, keys: np.ndarray, n_buckets: int, folder: Path) -> None:
    """Append rows and their keys to the files of their buckets."""
    bucket = assign_buckets(keys, n_buckets)
    order = np.argsort(bucket, kind="stable")
    lengths = np.bincount(bucket, minlength=n_buckets)
    part, keys = rows.take(part, order), keys[order]
    first = 0
    for number in np.flatnonzero(lengths):
        some = slice(first, first := first + int(lengths[number]))
        with (folder / f"{number}.keys").open("ab") as file:
            file.write(keys[some])
        with (folder / f"{number}.rows").open("ab") as file:
            rows.append(part[some], file)


class _Rows(ABC):
    """Rows that are shuffled: how they are read, kept in buckets and written.

    Attributes
    ----------
    n_rows : int
    row_bytes : int
        Bytes of a row in memory.
    """

    n_rows: int
    row_bytes: int

    @abstractmethod
    def read(self, size: int) -> Iterator[Any]:
        """Read all rows in parts, which have a length and can be sliced."""

    @abstractmethod
    def take(self, part: Any, order: np.ndarray) -> Any:
        """Return rows of a part in another order."""

    @abstractmethod
    def append(self, part: Any, file: Any) -> None:
        """Append a part to the open file of a bucket."""

    @abstractmethod
    def load(self, path: Path) -> Any:
        """Read a bucket."""

    @abstractmethod
    @contextmanager
    def writer(self, paths: list[Path]) -> Iterator[Write]:
        """Open the target."""


class _Arrays(_Rows):
    """Rows of arrays, as records with a field for each array."""

    def __init__(self, source: Any, targets: list[Path]) -> None:
        several = isinstance(source, list | tuple)
        self._arrays = [sliceable_rows(each) for each in (source if several else [source])]
        if any(sparse.issparse(each) for each in (source if several else [source])):
            raise ValueError(
                "shuffle_rows does not take sparse matrices. Shuffle in memory, "
                "matrix[rng.permutation(n)], or pass stretches= to row_blocks."
            )
        lengths = [array.shape[0] if array.shape else 0 for array in self._arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"The arrays have different numbers of rows: {lengths}.")
        if not any(lengths):
            raise ValueError("There are no rows to shuffle.")
        if [path.suffix for path in targets] != [".npy"] * len(self._arrays):
            raise ValueError(
                f"{[os.fspath(path) for path in targets]} do not match {len(self._arrays)} arrays. "
                "Name one .npy file for each array."
            )
        self.n_rows = lengths[0]
        self.row_bytes = sum(map(row_bytes, self._arrays))
        self._records = np.dtype(
            [(f"{i}", each.dtype, each.shape[1:]) for i, each in enumerate(self._arrays)]
        )
        # Records are moved as bytes, which is faster than field by field.
        self._bytes = np.dtype((np.void, self._records.itemsize))

    def read(self, size: int) -> Iterator[np.ndarray]:
        for start in range(0, self.n_rows, size):
            stop = min(start + size, self.n_rows)
            records = np.empty(stop - start, self._records)
            for i, array in enumerate(self._arrays):
                records[f"{i}"] = RowSlices(array, [(start, stop)])
            yield records.view(self._bytes)

    def take(self, part: np.ndarray, order: np.ndarray) -> np.ndarray:
        return part[order]

    def append(self, part: np.ndarray, file: Any) -> None:
        file.write(part.view(np.uint8))

    def load(self, path: Path) -> np.ndarray:
        return np.fromfile(path, self._bytes)

    @contextmanager
    def writer(self, paths: list[Path]) -> Iterator[Write]:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for file, array in zip(files, self._arrays, strict=True):
                description = np.lib.format.dtype_to_descr(np.dtype(array.dtype))
                header = {"descr": description, "fortran_order": False, "shape": array.shape}
                np.lib.format.write_array_header_2_0(file, header)

            def write(part: np.ndarray, _: int) -> None:
                records = part.view(self._records)
                for i, file in enumerate(files):
                    np.ascontiguousarray(records[f"{i}"]).tofile(file)

            yield write


class _Table(_Rows):
    """Rows of Parquet files, as tables of pyarrow with all columns."""

    def __init__(self, source: Any, targets: list[Path]) -> None:
        if len(targets) > 1 or targets[0].suffix == ".npy":
            raise ValueError(
                f"{[os.fspath(path) for path in targets]} do not match Parquet files. Name one "
                ".parquet file or one folder."
            )
        self._one_file = targets[0].suffix in _PARQUET
        self._rows = ParquetRows(source)
        self.n_rows = self._rows.n_rows
        most = 1
        for start in self._rows.file_starts():
            _, first = next(self._batches(start, self.n_rows, 1000))
            most = max(most, -(-first.nbytes // len(first)))
        # The parts of a bucket are joined, and the rows copied in their new order.
        self.row_bytes = 2 * most

    def _batches(self, start: int, stop: int, size: int) -> Iterator[tuple[int, Any]]:
        return self._rows.batches(start, stop, self._rows.schema.names, size)

    def read(self, size: int) -> Iterator[Any]:
        pyarrow = pyarrow_module("pyarrow")
        for _, batch in self._batches(0, self.n_rows, min(size, ROWS_PER_READ)):
            yield pyarrow.Table.from_batches([batch])

    def take(self, part: Any, order: np.ndarray) -> Any:
        return part.take(order)

    def append(self, part: Any, file: Any) -> None:
        pyarrow = pyarrow_module("pyarrow")
        with pyarrow.ipc.new_stream(file, part.schema) as stream:
            stream.write_table(part)

    def load(self, path: Path) -> Any:
        pyarrow = pyarrow_module("pyarrow")
        parts = []
        with path.open("rb") as file:
            while file.tell() < path.stat().st_size:
                parts.append(pyarrow.ipc.open_stream(file).read_all())
        return pyarrow.concat_tables(parts).unify_dictionaries().combine_chunks()

    @contextmanager
    def writer(self, paths: list[Path]) -> Iterator[Write]:
        (target,) = paths
        if not self._one_file:
            target.mkdir()
        parquet = pyarrow_module("pyarrow.parquet")
        writers: dict[Path, Any] = {}

        def write(part: Any, bucket: int) -> None:
            path = target if self._one_file else target / f"part-{bucket:05d}.parquet"
            if path not in writers:
                close()
                writers[path] = parquet.ParquetWriter(
                    path, self._rows.schema, compression=self._rows.compression
                )
            writers[path].write_table(part, row_group_size=len(part))

        def close() -> None:
            while writers:
                writers.popitem()[1].close()

        try:
            yield write
        finally:
            close()


def _check_absent(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{path} exists. Name another target or remove it.")


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Name of a hidden file or folder next to a path, which is removed at the end if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}{path.suffix}")
    try:
        yield hidden
    finally:
        if hidden.is_dir():
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            hidden.unlink(missing_ok=True)


@contextmanager
def _renamed_when_complete(path: Path) -> Iterator[Path]:
    """Temporary name of a target, which gets its own name if no error occurs."""
    _check_absent(path)
    with _temporary(path) as hidden:
        yield hidden
        for each in [*hidden.rglob("*"), hidden]:
            if each.is_file():
                with each.open("rb") as file:
                    os.fsync(file.fileno())
        _check_absent(path)
        hidden.rename(path)


@contextmanager
def _progress(n_rows: int, visible: bool) -> Iterator[tuple[Callable[[int], None], ...]]:
    """Bars of the rows that were read and written."""
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), disable=not visible
    )
    with bars:
        tasks = [bars.add_task(name, total=n_rows) for name in ("rows read", "rows written")]
        yield tuple(partial(bars.advance, task) for task in tasks)
