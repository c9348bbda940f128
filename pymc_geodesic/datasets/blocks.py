"""Row blocks of arrays, in memory or on disk, for the argument ``batches=`` of the step methods."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse

ROWS_PER_READ = 2**14
"""Maximum number of rows per read of rows that are narrow."""

_BYTES_PER_READ = 2**25
"""Maximum number of bytes per read of rows that are wide."""


class StoredRows(ABC):
    """Array on disk that is read when it is sliced.

    No file stays open between two reads, so that several processes and threads can read from it,
    and a pickle of it contains no data.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    @abstractmethod
    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read the rows from ``start`` to ``stop`` in consecutive arrays.

        Raises
        ------
        FileNotFoundError
            If the file was removed; the message names it.
        ValueError
            If the file has a different number of rows than before.
        """

    @abstractmethod
    def origin(self, row: int) -> str:
        """Describe the position of a row: its file and its number in it."""

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(self.shape[0])
        found = list(self.pieces(start, stop))
        return np.concatenate(found) if found else np.empty((0, *self.shape[1:]), self.dtype)


@dataclass(frozen=True)
class FlatFileRows(StoredRows):
    """Array in C order in a flat file, such as an ``.npy`` file.

    Unlike the pages of a memory map, the rows that were read do not count as memory of the process,
    and a pickle of the array contains its path and no data.
    """

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        size = int(np.prod(self.shape[1:], dtype=int))
        for first, last in _ranges(start, stop, rows_per_read(self)):
            wanted = (last - first) * size
            offset = self.offset + first * size * self.dtype.itemsize
            values = np.fromfile(self.path, self.dtype, count=wanted, offset=offset)
            if values.size < wanted:
                raise ValueError(
                    f"{self.path} had {self.shape[0]} rows and now ends in row "
                    f"{first + values.size // max(size, 1)}. Create the row blocks again."
                )
            yield values.reshape(last - first, *self.shape[1:])

    def origin(self, row: int) -> str:
        """Row and file."""
        return f"row {row} of {self.path}"


@dataclass(frozen=True)
class HDF5Rows(StoredRows):
    """Data set of an HDF5 file, opened for each read: data sets of h5py cannot be pickled."""

    path: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        import h5py

        with h5py.File(self.path, "r") as file:
            found = file.get(self.name)
            if found is None or found.shape != self.shape:
                raise ValueError(
                    f"{self.path} had a data set {self.name!r} of shape {self.shape} and has "
                    f"{'none' if found is None else found.shape} now. Create the row blocks again."
                )
            yield from pieces_of_rows(found, start, stop)

    def origin(self, row: int) -> str:
        """Row, data set and file."""
        return f"row {row} of {self.name!r} in {self.path}"


class MatrixRows:
    """Rows of a sparse matrix in CSR format, the three arrays of which may be memory maps."""

    def __init__(self, matrix: Any) -> None:
        rows = sparse.csr_array(matrix)
        self.shape: tuple[int, int] = rows.shape
        self.dtype = rows.dtype
        self._values, self._columns, self._starts = (
            _without_pages(_memory_map_of(each)) for each in (rows.data, rows.indices, rows.indptr)
        )

    def __getitem__(self, rows: slice) -> sparse.csr_array:
        first, last, _ = rows.indices(self.shape[0])
        starts = np.asarray(self._starts[first : last + 1])
        part = slice(int(starts[0]), int(starts[-1]))
        arrays = (self._values[part], self._columns[part], starts - starts[0])
        return sparse.csr_array(arrays, shape=(last - first, self.shape[1]))

    def lengths(self, first: int, last: int) -> np.ndarray:
        """Return the number of non-zeros of each row of a range."""
        return np.diff(self._starts[first : last + 1])


def _memory_map_of(array: np.ndarray) -> np.ndarray:
    """Return the memory map that an array of SciPy is a view of, if it is a view of all of it."""
    base: object = array
    while isinstance(base, np.ndarray) and (base.shape, base.dtype) == (array.shape, array.dtype):
        if isinstance(base, np.memmap):
            return base
        base = base.base
    return array


def _without_pages(array: Any) -> Any:
    """Replace a memory map or a data set of h5py by an array that opens its file for each read."""
    if isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous:
        base: object = array.base
        if isinstance(base, mmap.mmap):  # the offset of a view of a map is not known
            return FlatFileRows(os.fspath(array.filename), array.offset, array.dtype, array.shape)
    is_h5py = type(array).__module__.partition(".")[0] == "h5py"
    if is_h5py and getattr(array.file, "driver", "") in ("sec2", "stdio"):
        path = os.path.abspath(array.file.filename)
        return HDF5Rows(path, array.name, array.dtype, array.shape)
    return array


def sliceable_rows(array: Any) -> Any:
    """Return an array the rows of which can be sliced, without keeping those that were read.

    Parameters
    ----------
    array : path-like, array_like, pandas.DataFrame, or matrix of scipy.sparse
        A path names an ``.npy`` file.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If a path does not name an ``.npy`` file, or the array has masked values or Python objects.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.blocks import sliceable_rows
    >>> sliceable_rows([[1, 2], [3, 4]])[1:]
    array([[3, 4]])
    """
    if sparse.issparse(array):
        return MatrixRows(array)
    if isinstance(array, str | os.PathLike):
        if os.path.splitext(array)[1] != ".npy":
            raise ValueError(
                f"{os.fspath(array)!r} is not the path of an .npy file. Open arrays of HDF5 files "
                "with h5py and arrays of zarr stores with zarr; read Parquet files with "
                "parquet_blocks."
            )
        array = np.load(array, mmap_mode="r")
    if np.ma.is_masked(array):
        raise ValueError(
            f"{np.ma.count_masked(array)} values of an array are masked and would be read as data. "
            "Drop or impute those rows."
        )
    array = _without_pages(array)
    if hasattr(array, "iloc") and hasattr(array, "to_numpy"):  # pandas
        array = array.to_numpy()
    array = array if hasattr(array, "shape") else np.asarray(array)
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise ValueError(
            "An array of Python objects has no numeric rows. Select numeric columns without "
            "missing values and convert them, as in .to_numpy(dtype=float)."
        )
    return array


def _ranges(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
    """Divide a range of rows at the multiples of a length."""
    while start < stop:
        end = min(stop, (start // length + 1) * length)
        yield start, end
        start = end


def rows_per_read(array: Any) -> int:
    """Return the number of rows of an array that are read at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.blocks import rows_per_read
    >>> rows_per_read(np.empty((10**6, 28), "f4")), rows_per_read(np.empty((10, 10**6), "f4"))
    (16384, 8)
    """
    return max(1, min(ROWS_PER_READ, _BYTES_PER_READ // row_bytes(array)))


def row_bytes(array: Any) -> int:
    """Return the number of bytes of a row, at least one."""
    return max(1, int(np.prod(array.shape[1:], dtype=int)) * np.dtype(array.dtype).itemsize)


def pieces_of_rows(array: Any, start: int, stop: int) -> Iterator[Any]:
    """Read rows in consecutive arrays that are short, or as long as a stored chunk.

    Parameters
    ----------
    array : StoredRows, or anything with ``shape`` and ``dtype`` the rows of which can be sliced
    start, stop : int

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.blocks import pieces_of_rows
    >>> [len(piece) for piece in pieces_of_rows(np.zeros(40_000), 10_000, 40_000)]
    [6384, 16384, 7232]
    """
    if isinstance(array, StoredRows):
        yield from array.pieces(start, stop)
        return
    # Chunks along the rows: one length for h5py and zarr, one for each chunk for dask.
    chunks = getattr(array, "chunks", None)
    length = max(rows_per_read(array), int(np.max(chunks[0])) if chunks else 1)
    for first, last in _ranges(start, stop, length):
        piece = array[first:last]
        yield piece if sparse.issparse(piece) else np.asarray(piece)


def optional_module(name: str, extra: str, purpose: str) -> ModuleType:
    """Import a module of an optional dependency.

    Parameters
    ----------
    name : str
    extra : str
        Extra of this package that installs it.
    purpose : str
        What the module is needed for, at the beginning of the error message.

    Raises
    ------
    ImportError
        If it is not installed; the message states how to install it.

    Examples
    --------
    >>> from pymc_geodesic.datasets.blocks import optional_module
    >>> optional_module("no_such_package", "parquet", "Reading Parquet files")
    Traceback (most recent call last):
        ...
    ImportError: Reading Parquet files needs no_such_package. Install it with pip install ...
    """
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{purpose} needs {package}. Install it with pip install 'pymc_geodesic[{extra}]'."
        ) from error


class RowSlices:
    """Ranges of rows of an array, read when they are needed.

    Yielded by `row_blocks`; ``numpy.asarray`` reads all of them.

    Parameters
    ----------
    array : array_like
        Anything with ``shape`` and ``dtype`` the rows of which can be sliced.
    ranges : list of (int, int)
        First and last row, exclusive, of each range.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import RowSlices
    >>> rows = RowSlices(np.arange(10), [(0, 2), (6, 9)])
    >>> rows.shape
    (5,)
    >>> np.asarray(rows)
    array([0, 1, 6, 7, 8])
    """

    def __init__(self, array: Any, ranges: list[tuple[int, int]]) -> None:
        self._array = array
        self._ranges = ranges
        length = sum(stop - start for start, stop in ranges)
        self.shape: tuple[int, ...] = (length, *array.shape[1:])
        self.dtype = np.dtype(array.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def pieces(self) -> Iterator[Any]:
        """Read the rows in consecutive arrays that are short, or as long as a stored chunk."""
        for start, stop in self._ranges:
            yield from pieces_of_rows(self._array, start, stop)

    def origin(self, row: int) -> str:
        """Describe the position of a row in the data: its number, and its file if it has one."""
        for start, stop in self._ranges:
            if row < stop - start:
                row += start
                is_stored = isinstance(self._array, StoredRows)
                return self._array.origin(row) if is_stored else f"row {row}"
            row -= stop - start
        raise IndexError(f"Row {row} does not exist: there are {len(self)} rows.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all rows."""
        out = np.empty(self.shape, self.dtype if dtype is None else dtype)
        first = 0
        for piece in self.pieces():
            out[first : first + len(piece)] = piece
            first += len(piece)
        return out


class SparseRowSlices(RowSlices):
    """Ranges of rows of a sparse matrix, read when they are needed.

    Yielded by `row_blocks` for matrices of `scipy.sparse`. Takes the arguments of `RowSlices`.

    Examples
    --------
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import row_blocks
    >>> ((rows,),) = row_blocks(sparse.eye_array(3, format="csr"), block_size=3)
    >>> rows.indptr
    array([0, 1, 2, 3])
    >>> rows.tocsr().toarray()[1]
    array([0., 1., 0.])
    """

    @property
    def indptr(self) -> np.ndarray:
        """Offsets of the rows among the non-zeros, shape (n + 1,), as in SciPy."""
        lengths = [self._array.lengths(start, stop) for start, stop in self._ranges]
        return np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, int), *lengths]))])

    def tocsr(self) -> sparse.csr_array:
        """Read all rows."""
        pieces = list(self.pieces())
        return sparse.vstack(pieces, format="csr") if pieces else sparse.csr_array(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all rows, zeros included."""
        return self.tocsr().toarray().astype(dtype or self.dtype, copy=False)


class Division:
    """Division of rows into blocks.

    Parameters
    ----------
    total_size : int
        N, the number of rows.
    block_size, stretches : int
        See `row_blocks`.

    Raises
    ------
    ValueError
        If ``block_size`` or ``stretches`` is not an integer from 1 to N.

    Examples
    --------
    >>> from pymc_geodesic.datasets.blocks import Division
    >>> list(Division(8, 4, 2))
    [[(0, 2), (4, 6)], [(2, 4), (6, 8)]]
    """

    def __init__(self, total_size: int, block_size: int, stretches: int) -> None:
        for name, number in (("block_size", block_size), ("stretches", stretches)):
            if int(number) != number or not 1 <= number <= total_size:
                raise ValueError(f"{name} must be an integer from 1 to {total_size}, got {number}.")
        self.total_size = total_size
        self.block_size, self._stretches = int(block_size), int(stretches)

    def __len__(self) -> int:
        return -(-self.total_size // self.block_size)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for block in range(len(self)):
            yield self._ranges(block)

    def _ranges(self, block: int) -> list[tuple[int, int]]:
        """Rows of a block: one range, or one of each stretch of the data."""
        first = min(block * self.block_size, self.total_size)
        last = min(first + self.block_size, self.total_size)
        ranges = []
        for stretch in range(self._stretches):
            # Each block takes the same share of the rows of a stretch as of all rows.
            begin = stretch * self.total_size // self._stretches
            length = (stretch + 1) * self.total_size // self._stretches - begin
            start = begin + first * length // self.total_size
            stop = begin + last * length // self.total_size
            if start < stop:
                ranges.append((start, stop))
        return ranges


class RowBlocks:
    """Row blocks of arrays, made by `row_blocks` and `parquet_blocks`.

    Parameters
    ----------
    arrays : sequence of array_like, shape (N, ...)
    block_size : int
    stretches : int
        See `row_blocks`.
    names : sequence of str, optional
        Data containers of the arrays. With names a block is a dictionary, otherwise a tuple.

    Attributes
    ----------
    total_size : int
        N, the number of rows of the arrays.
    block_size : int
        Number of rows of every block but the last.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import RowBlocks
    >>> (block,) = RowBlocks([np.arange(2)], 2, 1, names=["X"])
    >>> np.asarray(block["X"])
    array([0, 1])
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        block_size: int,
        stretches: int,
        names: Sequence[str] | None = None,
    ) -> None:
        self._arrays = tuple(sliceable_rows(array) for array in arrays)
        self._names = names
        lengths = [int(array.shape[0]) for array in self._arrays]
        if len(set(lengths)) > 1:
            raise ValueError(f"The arrays have different numbers of rows: {lengths}.")
        self.total_size = lengths[0]
        self._division = Division(self.total_size, block_size, stretches)
        self.block_size = self._division.block_size

    def __len__(self) -> int:
        return len(self._division)

    def __iter__(self) -> Iterator[Any]:
        for ranges in self._division:
            parts = tuple(
                SparseRowSlices(array, ranges)
                if isinstance(array, MatrixRows)
                else RowSlices(array, ranges)
                for array in self._arrays
            )
            yield parts if self._names is None else dict(zip(self._names, parts, strict=True))


def row_blocks(*arrays: Any, block_size: int, stretches: int = 1) -> RowBlocks:
    """Divide arrays, in memory or on disk, into row blocks for ``batches=``.

    Rows are read when a sampler needs them, and then in pieces, so that a block is in memory only
    once. In an epoch every row is in exactly one block.

    Parameters
    ----------
    *arrays : array_like, shape (N, ...)
        Anything with ``shape`` and ``dtype`` the rows of which can be sliced: ordinary arrays, data
        frames, `numpy.memmap`, data sets of h5py, arrays of zarr and dask; paths of ``.npy`` files;
        and matrices of `scipy.sparse`, the arrays of which may be memory maps:
        ``scipy.sparse.csr_array((values, columns, starts), shape=(N, d))``. Files of ``.npy``
        paths, of memory maps in C order and of data sets of h5py are opened for each read, so that
        several processes can read them, and pages of a memory map do not accumulate in memory.
    block_size : int
        Rows of a block, except for the last one. Two blocks are in memory at a time.
    stretches : int
        Number of stretches of the data. Every block takes a range of consecutive rows of each.
        With 1 a block is one range, and rows that are sorted by time or label make blocks that
        differ from the rest of the data; with 20 each block has rows from twenty positions. Blocks
        then differ in length by up to ``stretches`` rows.

    Returns
    -------
    RowBlocks
        Iterable, any number of times, with the attribute ``total_size``; yields a tuple with one
        `RowSlices` for each array.

    Raises
    ------
    ValueError
        If there is no array, the arrays have different numbers of rows, masked values or Python
        objects, a path does not name an ``.npy`` file, or ``block_size`` or ``stretches`` is not
        an integer from 1 to N.
    FileNotFoundError
        If the file of a path does not exist.

    See Also
    --------
    parquet_blocks : row blocks of Parquet files.
    shuffle_rows : put rows on disk in random order.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import row_blocks
    >>> blocks = row_blocks(np.arange(10), np.arange(10) ** 2, block_size=4)
    >>> blocks.total_size, len(blocks)
    (10, 3)
    >>> [[np.asarray(array).tolist() for array in block] for block in blocks][-1]
    [[8, 9], [64, 81]]
    >>> blocks = row_blocks(np.arange(8), block_size=4, stretches=2)
    >>> [np.asarray(rows).tolist() for (rows,) in blocks]
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    if not arrays:
        raise ValueError("row_blocks needs at least one array.")
    return RowBlocks(arrays, block_size, stretches)
