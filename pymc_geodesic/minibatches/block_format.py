"""Format of row blocks, with a part for each data container, and passes over an iterable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.block_rows import (
    Buffers,
    ContainerRows,
    DenseRows,
    LaidOut,
    length_of,
    origin,
    pieces_of,
)
from pymc_geodesic.minibatches.row_inputs import REMEDY, RowIndex


def rows_of(block: Mapping[str, Any]) -> int:
    """Return the number of rows of a block."""
    return length_of(next(iter(block.values())))


class BlockFormat:
    """The parts of a block, one for each data container.

    Parameters
    ----------
    containers : list of ContainerRows
        Rows of each container, in the order of the names of ``minibatch=``.

    Attributes
    ----------
    indices : tuple of RowIndex
        Indices whose bounds are checked when rows are copied.
    """

    def __init__(self, containers: Sequence[ContainerRows]) -> None:
        self._containers = {each.name: each for each in containers}
        self.indices: tuple[RowIndex, ...] = ()

    def named(self, block: Any) -> dict[str, Any]:
        """Check a block and return its arrays by container name, without reading them.

        Parameters
        ----------
        block : array, sequence of arrays in the order of the names, or mapping by name
            Arrays are objects that have ``shape`` and ``dtype`` and can be sliced, or matrices of
            `scipy.sparse`.

        Raises
        ------
        ValueError
            If the block has the wrong number of arrays, names, types, columns, or arrays of
            different numbers of rows.
        """
        names = list(self._containers)
        if isinstance(block, Mapping):
            missing = [name for name in names if name not in block]
            if missing:
                raise ValueError(
                    f"batches= yields a mapping without {missing[0]!r}, which is in "
                    f"minibatch={names}. Its keys are {sorted(block)}"
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
        named = {name: self._containers[name].accept(part) for name, part in found.items()}
        lengths = {name: length_of(part) for name, part in named.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"batches= yields arrays with different numbers of rows: {lengths}")
        return named

    def in_memory(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Read the parts as arrays, without a copy if they are in memory."""
        return {name: each.in_memory(block[name]) for name, each in self._containers.items()}

    def copied(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the parts, since an iterable may reuse the memory of a block."""
        return {name: part.copy() for name, part in self.in_memory(block).items()}

    def kept(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the parts in memory; parts that are read in pieces are not read yet."""
        return {
            name: part if hasattr(part, "pieces") else self._containers[name].in_memory(part).copy()
            for name, part in block.items()
        }

    def first_rows(self, block: Mapping[str, Any], n: int, number: int = 1) -> LaidOut:
        """Copy the first ``n`` rows of a block with this number, or of its first piece."""
        pieces = {name: next(iter(pieces_of(part))) for name, part in block.items()}
        length = min(n, *map(length_of, pieces.values()))
        rows = {name: piece[:length] for name, piece in pieces.items()}
        return self.lay_out([rows], None, length, Buffers(), f"block {number}")

    def shuffled(self, blocks: Sequence[Mapping[str, Any]], order: np.ndarray) -> dict[str, Any]:
        """Concatenate blocks in memory, and reorder the rows."""
        return {
            name: each.joined([block[name] for block in blocks], order)
            for name, each in self._containers.items()
        }

    def dense_rows(self, arrays: Mapping[str, np.ndarray], n_rows: int) -> dict[str, np.ndarray]:
        """Return the rows of dense data containers, without those of sparse matrices."""
        return {
            name: arrays[name][:n_rows]
            for name, each in self._containers.items()
            if isinstance(each, DenseRows)
        }

    def one_pass(
        self, batches: Iterable[Any]
    ) -> Iterator[tuple[dict[str, np.ndarray], int]] | None:
        """Iterate over all blocks once; return None for sparse matrices.

        Yields
        ------
        arrays : dict of str to ndarray
            Rows by container, valid until the next block.
        n_rows : int
        """
        if not all(isinstance(each, DenseRows) for each in self._containers.values()):
            return None
        return self._dense_pass(batches)

    def _dense_pass(self, batches: Iterable[Any]) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        memory = Buffers()
        for number, block in enumerate(batches):
            rows = self.named(block)
            length = rows_of(rows)
            if length:
                yield self.lay_out([rows], None, length, memory, f"block {number + 1}")[0], length

    def evenly_spaced(self, batches: Iterable[Any], n_rows: int, n: int) -> dict[str, np.ndarray]:
        """Copy ``n`` evenly spaced rows of one pass.

        Parameters
        ----------
        batches : iterable
        n_rows : int
            Number of rows of a pass.
        n : int
        """
        every, passed, left = max(n_rows // n, 1), 0, n
        kept: list[dict[str, np.ndarray]] = []
        for arrays, length in self._dense_pass(batches):
            first = -passed % every
            taken = np.arange(first, length, every)[:left]
            kept.append({name: array[taken] for name, array in arrays.items()})
            passed, left = passed + length, left - len(taken)
            if not left:
                break
        return {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}

    def empty(self, n: int) -> LaidOut:
        """Return ``n`` rows of zeros."""
        return _joined([each.empty(n) for each in self._containers.values()])

    def lay_out(
        self,
        blocks: Sequence[Mapping[str, Any]],
        positions: np.ndarray | None,
        length: int,
        memory: Buffers,
        where: str,
        *,
        in_order: bool = True,
    ) -> LaidOut:
        """Copy the rows of blocks to their positions; see `ContainerRows.lay_out`.

        With ``in_order=False`` the rows are not in the order of the blocks.
        """
        laid_out = _joined(
            [
                each.lay_out([block[name] for block in blocks], positions, length, memory, where)
                for name, each in self._containers.items()
            ]
        )
        for index in self.indices:
            found = index.first_out_of_bounds(laid_out[0])
            if found is not None:
                if in_order and found.row is not None:
                    where += _describe_origin(found.row, blocks, positions, index.containers[0])
                message = (
                    f"batches= yields {index.names} in {where} with {found.description}; {REMEDY}"
                )
                raise ValueError(see(message, "beyond-array"))
        return laid_out


def _describe_origin(
    position: int,
    blocks: Sequence[Mapping[str, Any]],
    positions: np.ndarray | None,
    name: str,
) -> str:
    """Describe the origin of a row that was copied."""
    row = position % sum(map(rows_of, blocks))
    if positions is not None:
        row = int(np.flatnonzero(positions == row)[0])
    if len(blocks) == 1:
        return origin(blocks[0][name], row) or f", row {row}"
    for block in blocks[:-1]:
        if row < rows_of(block):
            return origin(block[name], row)
        row -= rows_of(block)
    return origin(blocks[-1][name], row)


def _joined(parts: Iterable[LaidOut]) -> LaidOut:
    arrays: dict[str, np.ndarray] = {}
    whole: dict[str, np.ndarray] = {}
    for with_rows, pointed_into in parts:
        arrays |= with_rows
        whole |= pointed_into
    return arrays, whole


class BlockPass[Block]:
    """Repeated passes over the blocks of an iterable.

    Parameters
    ----------
    batches : iterable
        Iterable that can be iterated over repeatedly.
    accept : callable
        Function that validates and converts a block.

    Attributes
    ----------
    consumed : int
        Number of blocks of the current pass that were used.
    """

    def __init__(self, batches: Iterable[Any], accept: Callable[[Any], Block]) -> None:
        self._batches = batches
        self._accept = accept
        self.restart(0)

    def restart(self, consumed: int) -> None:
        """Begin a pass and skip blocks."""
        self._iterator: Iterator[Any] = iter(self._batches)
        self.consumed = 0
        self.skip(consumed)

    def skip(self, n: int) -> None:
        """Skip blocks, into the next pass if necessary.

        Raises
        ------
        ValueError
            If the iterable has no blocks.
        """
        for _ in range(n):
            self._next()

    def next_block(self) -> Block:
        """Return the next block.

        Raises
        ------
        ValueError
            If the iterable has no blocks, or the block is invalid.
        """
        return self._accept(self._next())

    def _next(self) -> Any:
        for _ in range(2):
            for block in self._iterator:
                self.consumed += 1
                return block
            self._iterator = iter(self._batches)
            self.consumed = 0
        if isinstance(self._batches, Iterator):
            raise ValueError(
                f"batches= is an exhausted {type(self._batches).__name__}, which can be iterated "
                "over only once. Pass an iterable that can be iterated over repeatedly, such as a "
                "list, datasets.row_blocks, or an object whose __iter__ returns a new generator"
            )
        raise ValueError(
            f"batches= yields no blocks: the {type(self._batches).__name__} is empty, or can be "
            "iterated over only once. Pass an iterable that can be iterated over repeatedly"
        )
