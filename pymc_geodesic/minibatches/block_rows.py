"""Rows of one data container in a block: validation, and layout in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from pymc_geodesic.minibatches.source import describe_undefined
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.missing_values import missing_message
from pymc_geodesic.sparse import SparseContainers, canonical_rows


@compiled
def _scatter_rows(
    values: np.ndarray,
    columns: np.ndarray,
    starts: np.ndarray,
    begins: np.ndarray,
    into_values: np.ndarray,
    into_columns: np.ndarray,
) -> None:
    """Copy the nonzeros of each row to another position.

    Parameters
    ----------
    values, columns : ndarray, shape (nnz,)
        Nonzeros and their columns.
    starts : ndarray of int, shape (n + 1,)
        Start index of each row, and stop index of the last row.
    begins : ndarray of int, shape (n,)
        Start index of each row in the result.
    into_values, into_columns : ndarray
        The result.
    """
    for row in range(begins.size):
        shift = begins[row] - starts[row]
        for k in range(starts[row], starts[row + 1]):
            into_values[shift + k] = values[k]
            into_columns[shift + k] = columns[k]


type LaidOut = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Arrays with rows, and arrays that are indexed by rows, by the names of data containers."""

_PIECE = 2**14
"""Number of rows that are read at a time from a block that may be on disk."""


def length_of(part: Any) -> int:
    """Return the number of rows of an array or matrix."""
    return int(part.shape[0])


def is_sparse(part: Any) -> bool:
    """Whether rows are a SciPy sparse matrix, or have its attributes."""
    return sparse.issparse(part) or hasattr(part, "indptr")


def pieces_of(part: Any) -> Iterator[Any]:
    """Read rows in consecutive pieces, so that not all are in memory at once.

    Parameters
    ----------
    part : array_like or sparse matrix
        Object with a method ``pieces``, or with rows that can be sliced.
    """
    if hasattr(part, "pieces"):
        yield from part.pieces()
        return
    for start in range(0, length_of(part), _PIECE):
        piece = part[start : start + _PIECE]
        yield piece if sparse.issparse(piece) else np.asarray(piece)


def _undefined_row(rows: np.ndarray) -> int:
    """Find the first row with an undefined value."""
    return next(i for i in range(len(rows)) if describe_undefined(rows[i : i + 1]))


def origin(part: Any, row: int) -> str:
    """Describe the origin of a row, if the block has a method ``origin``."""
    return f", {part.origin(row)}" if hasattr(part, "origin") else ""


class Buffers:
    """Memory that is reused for one block after another."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an array in the buffer of a name, which is reallocated if it is too short.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_geodesic.minibatches.block_rows import Buffers
        >>> memory = Buffers()
        >>> first = memory.take("X", (3, 2), np.dtype(float))
        >>> np.shares_memory(first, memory.take("X", (2, 2), np.dtype(float)))
        True
        """
        size = int(np.prod(shape, dtype=int))
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers.pop(name, None)
            self._buffers[name] = np.empty(size, dtype)
        return self._buffers[name][:size].reshape(shape)


class ContainerRows(ABC):
    """Rows of blocks for one data container.

    Attributes
    ----------
    name : str
        Name of the container in ``minibatch=``.
    """

    name: str

    @abstractmethod
    def accept(self, part: Any) -> Any:
        """Check the part of a block for the container, without reading its values.

        Raises
        ------
        ValueError
            If it has the wrong kind, type or width.
        """

    @abstractmethod
    def in_memory(self, part: Any) -> Any:
        """Read all rows, without a copy if they are in memory."""

    @abstractmethod
    def joined(self, parts: Sequence[Any], order: np.ndarray) -> Any:
        """Concatenate several parts in memory, and reorder the rows.

        Parameters
        ----------
        parts : list
        order : ndarray of int, shape (n,)
            A permutation of the rows of all parts.
        """

    @abstractmethod
    def empty(self, n: int) -> LaidOut:
        """Return ``n`` rows of zeros."""

    @abstractmethod
    def lay_out(
        self,
        parts: Sequence[Any],
        positions: np.ndarray | None,
        length: int,
        memory: Buffers,
        where: str,
    ) -> LaidOut:
        """Copy rows to their positions.

        Parameters
        ----------
        parts : list
            Consecutive rows, n in total.
        positions : ndarray of int, shape (n,), or None
            Position of each row, a permutation; None for their order.
        length : int
            Number of rows of the result; rows after the first n repeat the first rows.
        memory : Buffers
            Memory of the result.
        where : str
            Description of the rows in error messages.

        Raises
        ------
        ValueError
            If a value is undefined, or too large for the type of the container.
        """


def overflows(numbers: np.ndarray, stored: np.ndarray) -> bool:
    """Whether integers were too large for the type in which they are stored.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.block_rows import overflows
    >>> numbers = np.array([100, 300])
    >>> overflows(numbers, numbers.astype("int16")), overflows(numbers, numbers.astype("int8"))
    (False, True)
    """
    if stored.dtype.kind not in "iu" or np.can_cast(numbers.dtype, stored.dtype):
        return False
    return not np.array_equal(numbers, stored)


class DenseRows(ContainerRows):
    """Rows of a dense data container.

    Parameters
    ----------
    name : str
    dtype : str
        Data type.
    row_shape : tuple of int
        Shape of one row.
    """

    def __init__(self, name: str, dtype: str, row_shape: tuple[int, ...]) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.row_shape = row_shape

    def accept(self, part: Any) -> Any:
        """Check shape and type."""
        if is_sparse(part):
            raise ValueError(
                f"batches= yields a sparse matrix for {self.name!r}, which is a dense data "
                "container. Create it with SparseData, or yield dense arrays"
            )
        array = part if hasattr(part, "dtype") else np.asarray(part)
        if np.ma.is_masked(array):
            raise ValueError(missing_message("a block of batches= has", f" for {self.name!r}"))
        if tuple(array.shape[1:]) != self.row_shape:
            raise ValueError(
                f"batches= yields rows of shape {tuple(array.shape[1:])} for {self.name!r}, whose "
                f"data container has rows of shape {self.row_shape}"
            )
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ValueError(
                f"batches= yields {array.dtype} for {self.name!r}, whose data container has dtype "
                f"{self.dtype}. Convert the blocks, or create the container with dtype "
                f"{array.dtype}"
            )
        return array

    def in_memory(self, part: Any) -> np.ndarray:
        """Read an array of all rows."""
        return np.asarray(part)

    def joined(self, parts: Sequence[Any], order: np.ndarray) -> np.ndarray:
        """Return an array of the rows in another order."""
        return np.concatenate(parts)[order]

    def empty(self, n: int) -> LaidOut:
        """Return ``n`` rows of zeros."""
        return {self.name: np.zeros((n, *self.row_shape), self.dtype)}, {}

    def lay_out(
        self,
        parts: Sequence[Any],
        positions: np.ndarray | None,
        length: int,
        memory: Buffers,
        where: str,
    ) -> LaidOut:
        """Copy rows to their positions; see `ContainerRows.lay_out`."""
        array = memory.take(self.name, (length, *self.row_shape), self.dtype)
        first = 0
        for part in parts:
            begin = first
            for piece in pieces_of(part):
                if undefined := describe_undefined(piece):
                    what, remedy = undefined
                    where += origin(part, first - begin + _undefined_row(piece))
                    message = f"batches= yields {what} for {self.name!r} in {where}; {remedy}"
                    raise ValueError(message)
                rows = slice(first, first + len(piece))
                target = rows if positions is None else positions[rows]
                array[target] = piece
                if overflows(piece, array[target]):
                    raise ValueError(
                        f"batches= yields {piece.dtype} values for {self.name!r} that overflow "
                        f"{self.dtype}, the dtype of its data container, in {where}. Create the "
                        f"container with dtype {piece.dtype}"
                    )
                first += len(piece)
        array[first:] = array[: length - first]
        return {self.name: array}, {}


class SparseRows(ContainerRows):
    """Rows of a sparse matrix.

    Parameters
    ----------
    name : str
    containers : SparseContainers
        The data containers of the matrix.
    """

    def __init__(self, name: str, containers: SparseContainers) -> None:
        self.name = name
        self.width = containers.width
        self._values, self._columns, self._rows = (
            part.name for part in (containers.values, containers.columns, containers.rows)
        )
        self.dtype = np.dtype(containers.values.type.dtype)

    def accept(self, part: Any) -> Any:
        """Check width and type of a matrix of any SciPy format."""
        if not is_sparse(part):
            raise ValueError(
                f"batches= yields {type(part).__name__} for the sparse matrix {self.name!r}. Yield "
                "scipy.sparse matrices, or create the container with pm.Data for dense rows"
            )
        if tuple(part.shape[1:]) != (self.width,):
            raise ValueError(
                f"batches= yields rows of shape {tuple(part.shape[1:])} for {self.name!r}, which "
                f"has {self.width} columns. Use the same vocabulary or features in all blocks, or "
                "create SparseData with that width"
            )
        if not np.can_cast(part.dtype, self.dtype, "same_kind"):
            raise ValueError(
                f"batches= yields {part.dtype} for {self.name!r}, whose SparseData has dtype "
                f"{self.dtype}. Convert the blocks to {self.dtype}"
            )
        if sparse.issparse(part) and part.format != "csr":
            return sparse.csr_array(part)
        return part

    def in_memory(self, part: Any) -> sparse.csr_array:
        """Read a matrix of all rows."""
        if sparse.issparse(part):
            return part
        pieces = list(pieces_of(part))
        return sparse.vstack(pieces, format="csr") if pieces else sparse.csr_array(part.shape)

    def joined(self, parts: Sequence[Any], order: np.ndarray) -> sparse.csr_array:
        """Return a matrix of the rows in another order."""
        return sparse.vstack(parts, format="csr")[order]

    def empty(self, n: int) -> LaidOut:
        """Return ``n`` rows without nonzeros."""
        return {self._rows: np.zeros((n, 2), np.int64)}, {
            self._values: np.zeros(0, self.dtype),
            self._columns: np.zeros(0, np.int32),
        }

    def lay_out(
        self,
        parts: Sequence[Any],
        positions: np.ndarray | None,
        length: int,
        memory: Buffers,
        where: str,
    ) -> LaidOut:
        """Copy the nonzeros of rows to their positions; see `ContainerRows.lay_out`."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        n = len(sizes)
        if positions is None:
            positions = np.arange(n)
        rows = memory.take(self._rows, (length, 2), np.dtype(np.int64))
        rows[positions, 0] = sizes
        np.cumsum(rows[:n, 0], out=rows[:n, 1])
        rows[:n, 0] = rows[:n, 1] - rows[:n, 0]
        total = int(rows[n - 1, 1]) if n else 0
        values = memory.take(self._values, (total,), self.dtype)
        columns = memory.take(self._columns, (total,), np.dtype(np.int32))
        first = 0
        for piece in (piece for part in parts for piece in pieces_of(part)):
            piece = canonical_rows(piece, f"{self.name!r} in {where} of batches=")
            here = positions[first : first + length_of(piece)]
            # rows are shorter if duplicate entries of a column were summed
            begins = rows[here, 0]
            rows[here, 1] = begins + np.diff(piece.indptr)
            _scatter_rows(piece.data, piece.indices, piece.indptr, begins, values, columns)
            first += length_of(piece)
        rows[n:] = rows[: length - n]
        return {self._rows: rows}, {self._values: values, self._columns: columns}
