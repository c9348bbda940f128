"""What a block of rows must look like to stand for the data containers of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["BlockFormat", "BlockPass", "pieces_of"]

_PIECE = 2**14
"""Rows that are read at a time from a block that may still be on disk."""


class BlockFormat:
    """Names, types and row shapes of the arrays of a block.

    Parameters
    ----------
    dtypes : mapping of str to str
        Data containers the blocks stand for, with their types.
    row_shapes : mapping of str to tuple of int
        Shape of one row of each.
    """

    def __init__(
        self, dtypes: Mapping[str, str], row_shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        self.row_shapes = dict(row_shapes)

    def named(self, block: Any) -> dict[str, Any]:
        """Give the arrays of a block their names, without reading them.

        Parameters
        ----------
        block : array, sequence of arrays in the order of the names, or mapping by name
            Arrays are whatever has ``shape`` and ``dtype`` and can be sliced.

        Raises
        ------
        ValueError
            If the block has the wrong number of arrays, names, types, columns, or arrays of
            different numbers of rows.
        """
        names = list(self.dtypes)
        if isinstance(block, Mapping):
            missing = [name for name in names if name not in block]
            if missing:
                raise ValueError(
                    f"batches= yields a mapping without {missing[0]!r}, which minibatch={names} "
                    f"names; it has {sorted(block)}"
                )
            found = {name: block[name] for name in names}
        else:
            parts = block if isinstance(block, tuple | list) else (block,)
            if len(parts) != len(names):
                raise ValueError(
                    f"batches= yields {len(parts)} arrays for the {len(names)} names of "
                    f"minibatch={names}"
                )
            found = dict(zip(names, parts, strict=True))
        named = {name: a if hasattr(a, "dtype") else np.asarray(a) for name, a in found.items()}
        lengths = {name: int(array.shape[0]) for name, array in named.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"batches= yields arrays with different numbers of rows: {lengths}")
        for name, array in named.items():
            if tuple(array.shape[1:]) != self.row_shapes[name]:
                raise ValueError(
                    f"batches= yields rows of shape {tuple(array.shape[1:])} for {name!r}, whose "
                    f"data container has rows of shape {self.row_shapes[name]}"
                )
            if not np.can_cast(array.dtype, self.dtypes[name], "same_kind"):
                raise ValueError(
                    f"batches= yields {array.dtype} for {name!r}, whose data container holds "
                    f"{self.dtypes[name]}; convert the blocks, or make the container with "
                    f"{array.dtype} values"
                )
        return named

    def empty(self, n: int) -> dict[str, np.ndarray]:
        """Allocate arrays of ``n`` rows."""
        return {
            name: np.empty((n, *self.row_shapes[name]), dtype)
            for name, dtype in self.dtypes.items()
        }


class BlockPass:
    """Blocks of an iterable, from its first to its last and over again.

    Parameters
    ----------
    batches : iterable
        It must be possible to iterate over it more than once.
    format : BlockFormat

    Attributes
    ----------
    consumed : int
        Blocks that were taken in the present pass.
    """

    def __init__(self, batches: Iterable[Any], format: BlockFormat) -> None:
        self._batches = batches
        self._format = format
        self.restart(0)

    def restart(self, consumed: int) -> None:
        """Begin a pass and skip blocks."""
        self._iterator: Iterator[Any] = iter(self._batches)
        self.consumed = 0
        while self.consumed < consumed:
            next(self._iterator)
            self.consumed += 1

    def next_block(self) -> dict[str, Any]:
        """Take the next block, arrays by name.

        Raises
        ------
        ValueError
            If there is none, or it does not fit the data containers.
        """
        for _ in range(2):
            for block in self._iterator:
                self.consumed += 1
                return self._format.named(block)
            self._iterator = iter(self._batches)
            self.consumed = 0
        raise ValueError("batches= yields no block; it must be possible to iterate over it again")


def pieces_of(array: Any) -> Iterator[np.ndarray]:
    """Read an array in consecutive pieces, so that all of it need not be in memory at once.

    Parameters
    ----------
    array : array_like
        With a method ``pieces`` of its own, or anything that has rows and can be sliced.
    """
    if hasattr(array, "pieces"):
        yield from array.pieces()
        return
    for start in range(0, int(array.shape[0]), _PIECE):
        yield np.asarray(array[start : start + _PIECE])
