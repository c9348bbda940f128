"""Blocks of the rows of arrays that need not fit into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from pymc_geodesic.datasets.stored.files import array_at, on_disk
from pymc_geodesic.datasets.stored.rows import origin_of, pieces_of_rows


class _RowsOfMatrix:
    """Rows of a sparse matrix, the arrays of which may be memory maps."""

    def __init__(self, matrix: Any) -> None:
        rows = sparse.csr_array(matrix)
        self.shape: tuple[int, int] = rows.shape
        self.dtype = rows.dtype
        self._values, self._columns, self._starts = (
            on_disk(_map_of(array)) for array in (rows.data, rows.indices, rows.indptr)
        )

    def __getitem__(self, rows: slice) -> sparse.csr_array:
        first, last, _ = rows.indices(self.shape[0])
        starts = np.asarray(self._starts[first : last + 1])
        part = slice(int(starts[0]), int(starts[-1]))
        arrays = (self._values[part], self._columns[part], starts - starts[0])
        return sparse.csr_array(arrays, shape=(last - first, self.shape[1]))

    def lengths(self, first: int, last: int) -> np.ndarray:
        """Non-zeros of each of some rows."""
        return np.diff(self._starts[first : last + 1])


def _map_of(array: np.ndarray) -> np.ndarray:
    """Memory map that an array of SciPy is a view of, if it is one of all of it."""
    base: object = array
    while isinstance(base, np.ndarray) and (base.shape, base.dtype) == (array.shape, array.dtype):
        if isinstance(base, np.memmap):
            return base
        base = base.base
    return array


def _readable(array: Any) -> Any:
    """Something that can be sliced by rows, without keeping what was read."""
    if sparse.issparse(array):
        return _RowsOfMatrix(array)
    if isinstance(array, str | os.PathLike):
        array = array_at(array)
    array = on_disk(array)
    # tables of pandas; what else has to_numpy, as lazy arrays of xarray, is not read here
    if hasattr(array, "iloc") and hasattr(array, "to_numpy"):
        array = array.to_numpy()
    array = array if hasattr(array, "shape") else np.asarray(array)
    if getattr(getattr(array, "dtype", None), "hasobject", False):
        raise ValueError(
            "an array of Python objects has no numbers that can be read as rows: choose columns of "
            "numbers without missing values, and convert them, as in .to_numpy(dtype=float)"
        )
    return array


class RowSlices:
    """Some ranges of rows of an array, read when they are asked for.

    Yielded by `row_blocks`; NumPy makes an array of it where it wants one.

    Parameters
    ----------
    array : array_like
        Anything with ``shape`` and ``dtype`` whose rows can be sliced.
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
        """Say where a row is in the data, in words."""
        for start, stop in self._ranges:
            if row < stop - start:
                return origin_of(self._array, start + row)
            row -= stop - start
        raise IndexError(f"there are {len(self)} rows")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all rows."""
        out = np.empty(self.shape, self.dtype if dtype is None else dtype)
        first = 0
        for piece in self.pieces():
            out[first : first + len(piece)] = piece
            first += len(piece)
        return out


class SparseRowSlices(RowSlices):
    """Some ranges of rows of a sparse matrix, read when they are asked for.

    Yielded by `row_blocks` for matrices of `scipy.sparse`. Takes the arguments of `RowSlices`.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from pymc_geodesic.datasets import SparseRowSlices, row_blocks
    >>> ((rows,),) = row_blocks(sparse.eye_array(3, format="csr"), block_size=3)
    >>> isinstance(rows, SparseRowSlices)
    True
    >>> rows.indptr
    array([0, 1, 2, 3])
    >>> rows.tocsr().toarray()[1]
    array([0., 1., 0.])
    """

    @property
    def indptr(self) -> np.ndarray:
        """Where the non-zeros of each row begin, shape (n + 1,), as SciPy has it."""
        lengths = [self._array.lengths(start, stop) for start, stop in self._ranges]
        return np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, int), *lengths]))])

    def tocsr(self) -> sparse.csr_array:
        """Read all rows."""
        pieces = list(self.pieces())
        return sparse.vstack(pieces, format="csr") if pieces else sparse.csr_array(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all rows, zeros included."""
        return self.tocsr().toarray().astype(dtype or self.dtype, copy=False)


class RowBlocks:
    """Iterable made by `row_blocks`, `parquet_blocks` and `dask_blocks`.

    Attributes
    ----------
    total_size : int
        N, rows of the arrays.
    block_size : int
        Rows of every block but the last.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import RowBlocks, row_blocks
    >>> isinstance(row_blocks(np.zeros(10), block_size=5), RowBlocks)
    True
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        block_size: int,
        stretches: int,
        names: Sequence[str] | None = None,
    ) -> None:
        self._arrays = tuple(_readable(array) for array in arrays)
        self._names = names
        self.total_size = int(self._arrays[0].shape[0])
        self.block_size = block_size
        self._stretches = stretches

    def __len__(self) -> int:
        return -(-self.total_size // self.block_size)

    def __iter__(self) -> Iterator[Any]:
        for block in range(len(self)):
            ranges = self._ranges(block)
            parts = tuple(
                SparseRowSlices(array, ranges)
                if isinstance(array, _RowsOfMatrix)
                else RowSlices(array, ranges)
                for array in self._arrays
            )
            yield parts if self._names is None else dict(zip(self._names, parts, strict=True))

    def _ranges(self, block: int) -> list[tuple[int, int]]:
        """Rows of a block: one range, or one of each of as many parts of the data."""
        first = min(block * self.block_size, self.total_size)
        last = min(first + self.block_size, self.total_size)
        ranges = []
        for part in range(self._stretches):
            # The part holds the share of the rows of all blocks together that it has of the data.
            begin = part * self.total_size // self._stretches
            length = (part + 1) * self.total_size // self._stretches - begin
            start = begin + first * length // self.total_size
            stop = begin + last * length // self.total_size
            if start < stop:
                ranges.append((start, stop))
        return ranges


def row_blocks(*arrays: Any, block_size: int, stretches: int = 1) -> RowBlocks:
    """Divide arrays, in memory or on disk, into blocks of rows for ``batches=``.

    Nothing is read before a sampler asks for it, and then in pieces, so that a block is in memory
    once. In an epoch every row is in exactly one block.

    Parameters
    ----------
    *arrays : array_like, shape (N, ...)
        `numpy.memmap`, zarr and HDF5 arrays, ordinary arrays: anything with ``shape`` and ``dtype``
        whose rows can be sliced; or paths, ``"X.npy"``, ``"rows.zarr/X"``, ``"rows.h5/X"``. What is
        in files is read from them, none of which stays open, so that several processes can. A
        memory map in C order is read as a file, too: its pages do not add up in memory. Matrices
        of `scipy.sparse`, too, the arrays of which may be memory maps:
        ``scipy.sparse.csr_array((values, columns, starts), shape=(N, d))``.
    block_size : int
        Rows of a block, those of the last one excepted. Two blocks are in memory at a time.
    stretches : int
        Parts of the data of which every block takes its share, a range of consecutive rows. With
        1 a block is one range, and rows that are sorted by time or label make blocks that
        do not look like all the data; with 20, say, each block has rows from twenty places.
        Blocks then differ in length by up to ``stretches`` rows.

    Returns
    -------
    RowBlocks
        Iterable, any number of times, with the attribute ``total_size``; yields a tuple with one
        `RowSlices`, or `SparseRowSlices`, for each array.

    Raises
    ------
    ValueError
        If there is no array, arrays have different numbers of rows, masked values or Python
        objects, or ``block_size`` or ``stretches`` does not lie between 1 and N.
    FileNotFoundError
        If there is no file of a path.
    ImportError
        If a path names a zarr store and zarr is not installed.

    See Also
    --------
    parquet_blocks, dask_blocks : rows of tables.
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
        raise ValueError("row_blocks needs at least one array")
    return blocks_of_arrays(arrays, block_size, stretches)


def blocks_of_arrays(
    arrays: Sequence[Any], block_size: int, stretches: int, names: Sequence[str] | None = None
) -> RowBlocks:
    """Divide arrays into blocks, mappings by name if there are names; see `row_blocks`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets.blocks import blocks_of_arrays
    >>> (block,) = blocks_of_arrays([np.arange(2)], 2, 1, ["X"])
    >>> np.asarray(block["X"])
    array([0, 1])
    """
    blocks = RowBlocks(arrays, int(block_size), int(stretches), names)
    lengths = [int(array.shape[0]) for array in blocks._arrays]
    if len(set(lengths)) > 1:
        raise ValueError(f"the arrays have different numbers of rows: {lengths}")
    for name, number in (("block_size", block_size), ("stretches", stretches)):
        if int(number) != number or not 1 <= number <= lengths[0]:
            raise ValueError(f"{name} must be an integer from 1 to {lengths[0]}, got {number}")
    return blocks
