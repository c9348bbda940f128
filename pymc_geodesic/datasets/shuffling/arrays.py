"""Rows of arrays in random order: scattered to buckets on disk, then each bucket in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pymc_geodesic.datasets.blocks import RowSlices
from pymc_geodesic.datasets.shuffling.keys import Buckets, RandomKeys, bucket_of, order_of, ranges
from pymc_geodesic.datasets.shuffling.targets import ArrayTarget, row_bytes

__all__ = ["shuffle_arrays"]

type Advance = Callable[[int], None]
"""Tell how many more rows were read or written."""


class _Records:
    """Rows of several arrays and their keys, one after another."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = arrays
        fields = [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()]
        self.dtype = np.dtype([("", np.uint64), *fields])
        self.key = self.dtype.names[0]  # type: ignore[index]
        # Rows are moved as so many bytes, whatever they consist of.
        self.plain = np.dtype((np.void, self.dtype.itemsize))

    def read(self, start: int, stop: int, keys: np.ndarray) -> np.ndarray:
        """Rows of the arrays with their keys."""
        records = np.empty(stop - start, self.dtype)
        records[self.key] = keys
        for name, array in self._arrays.items():
            records[name] = RowSlices(array, [(start, stop)])
        return records.view(self.plain)

    def parts(self, plain: np.ndarray) -> dict[str, np.ndarray]:
        """Rows of each array, in its own memory."""
        records = plain.view(self.dtype)
        return {name: np.ascontiguousarray(records[name]) for name in self._arrays}


def shuffle_arrays(
    arrays: Mapping[str, Any],
    targets: list[ArrayTarget],
    scratch: Path,
    keys: RandomKeys,
    memory: int,
    advance: Advance,
) -> None:
    """Write the rows of arrays in the order of their keys.

    Parameters
    ----------
    arrays : mapping of str to array_like
        The same number of rows each.
    targets : list of ArrayTarget
        One for all arrays, or one for each.
    scratch : Path
        File for the buckets.
    keys : RandomKeys
    memory : int
    advance : callable
        Called with the number of rows that were read, and again when they are written.
    """
    records = _Records(arrays)
    n_rows = next(iter(arrays.values())).shape[0]
    buckets = Buckets(n_rows, sum(map(row_bytes, arrays.values())), memory)
    parts = ranges(n_rows, buckets.piece)
    counts = buckets.counts(keys, parts)
    with scratch.open("w+b") as file:
        _scatter(records, file.fileno(), keys, parts, counts, advance)
        first = 0
        for count in counts:
            file.seek(first * records.plain.itemsize)
            bucket = np.fromfile(file, records.plain, count)
            order = order_of(bucket.view(records.dtype)[records.key].copy())
            for start, stop in ranges(len(bucket), buckets.piece):
                rows = records.parts(bucket[order[start:stop]])
                if len(targets) == 1:
                    targets[0].write(rows)
                else:
                    for target, (name, array) in zip(targets, rows.items(), strict=True):
                        target.write({name: array})
                advance(stop - start)
            del bucket, order
            first += count
    scratch.unlink()


def _scatter(
    records: _Records,
    file: int,
    keys: RandomKeys,
    parts: list[tuple[int, int]],
    counts: np.ndarray,
    advance: Advance,
) -> None:
    """Write each row to the end of its bucket, for which there is just enough space in the file."""
    size = records.plain.itemsize
    ends = np.concatenate([[0], np.cumsum(counts)[:-1]])
    generator = keys.generator()
    for start, stop in parts:
        part = generator.random_raw(stop - start)
        bucket = bucket_of(part, len(counts))
        rows = records.read(start, stop, part)[np.argsort(bucket, kind="stable")]
        lengths = np.bincount(bucket, minlength=len(counts))
        first = 0
        for number in np.flatnonzero(lengths):
            last = first + lengths[number]
            _write_all(file, rows[first:last], int(ends[number]) * size)
            ends[number] += lengths[number]
            first = last
        advance(stop - start)


def _write_all(file: int, rows: np.ndarray, offset: int) -> None:
    left = memoryview(rows.view(np.uint8))
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written
