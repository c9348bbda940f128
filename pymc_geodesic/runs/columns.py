"""Draws and sample stats that wait to be written, in arrays that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from pymc_geodesic.runs.pymc_parts import SamplerWarning

_FIRST_ROWS = 64


def column_of(entries: Sequence[Any]) -> Any:
    """Pack entries of one kind and shape to an array, leave others a list."""
    try:
        arrays = [np.asarray(entry) for entry in entries]
    except ValueError:
        return list(entries)
    first = arrays[0]
    if first.dtype.kind not in "biufU" or any(entry is None for entry in entries):
        return list(entries)
    if any(a.shape != first.shape or a.dtype.kind != first.dtype.kind for a in arrays):
        return list(entries)
    return np.stack(arrays)


def listed(column: Any) -> Any:
    """Give a column that names only the entries it has, ``{"n": 3, "some": {1: ...}}``, all."""
    if not isinstance(column, dict):
        return column
    return [column["some"].get(row) for row in range(column["n"])]


def joined_columns(parts: Sequence[Any]) -> Any:
    """Put columns one after another; a list where one is, or where their shapes differ."""
    kinds = {
        (part.dtype.kind, part.shape[1:]) if isinstance(part, np.ndarray) else None
        for part in parts
    }
    if len(kinds) == 1 and None not in kinds:
        return np.concatenate(parts)
    return [entry for part in parts for entry in part]


def _entry(value: Any) -> Any:
    """Leave of a warning what can be written."""
    if isinstance(value, SamplerWarning):
        return SamplerWarning(value.kind, value.message, value.level, value.step)
    return value


class _Stats:
    """Sample stats of a step method: numbers in a table, of others those that are not None."""

    def __init__(self, kinds: Mapping[str, np.dtype], capacity: int) -> None:
        self._fields = [(name, kind) for name, kind in kinds.items() if not kind.hasobject]
        self._names = [name for name, _ in self._fields]
        # A whole row at once takes half the time that its entries take one by one.
        self._take = itemgetter(*self._names) if len(self._names) > 1 else None
        self.numbers = np.zeros(capacity, self._fields)
        self.others: dict[str, dict[int, Any]] = {
            name: {} for name, kind in kinds.items() if kind.hasobject
        }

    def put(self, row: int, entries: Mapping[str, Any]) -> None:
        try:
            self.numbers[row] = self._take(entries)  # type: ignore[misc]
        except (KeyError, TypeError, ValueError):  # one is missing, None, or there is one field
            for name in self._names:
                entry = entries.get(name)
                self.numbers[name][row] = 0 if entry is None else entry
        for name, column in self.others.items():
            if (entry := entries.get(name)) is not None:
                column[row] = _entry(entry)

    def content(self, n: int) -> dict[str, Any]:
        return {name: self.numbers[name][:n].copy() for name in self._names} | {
            name: _sparse(column, n) for name, column in self.others.items()
        }

    def clear(self) -> None:
        for column in self.others.values():
            column.clear()


class Columns:
    """Values of variables and sample stats of consecutive draws.

    Stats of a numeric type are numbers of this type, zero where a draw has none, as PyMC keeps
    them; of others only those are kept that are not None.

    Parameters
    ----------
    names : list of str
        Variables, in the order in which their values come.
    kinds : list of dict of str to dtype
        Types of the sample stats of each step method.

    Attributes
    ----------
    n : int
        Draws that are there as a whole; one that was interrupted while it came does not count.
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[Mapping[str, np.dtype]]) -> None:
        self._names = list(names)
        self._values: list[np.ndarray] = []
        self._stats = [_Stats(of_step, _FIRST_ROWS) for of_step in kinds]
        self._capacity = _FIRST_ROWS
        self.n = 0

    def append(self, values: Sequence[np.ndarray], stats: Sequence[Mapping[str, Any]]) -> None:
        """Add a draw, whose values are copied."""
        row = self.n
        if not self._values:
            self._values = [
                np.empty((self._capacity, *np.shape(value)), np.asarray(value).dtype)
                for value in values
            ]
        if row == self._capacity:
            self._grow()
        for i, array in enumerate(self._values):
            array[row] = values[i]
        for i, kept in enumerate(self._stats):
            kept.put(row, stats[i])
        self.n = row + 1

    def _grow(self) -> None:
        capacity = 2 * self._capacity
        self._values = [_longer(array, capacity) for array in self._values]
        for kept in self._stats:
            kept.numbers = _longer(kept.numbers, capacity)
        self._capacity = capacity

    def content(self) -> dict[str, Any]:
        """Give what is there, as a file holds it; it is valid until the next draw comes."""
        values = [array[: self.n] for array in self._values]
        return {
            "values": dict(zip(self._names, values, strict=True)),
            "stats": [kept.content(self.n) for kept in self._stats],
        }

    def clear(self) -> None:
        """Forget the draws, and keep the memory."""
        self.n = 0
        for kept in self._stats:
            kept.clear()


def _sparse(column: Mapping[int, Any], n: int) -> Any:
    """Pack a column that is full to an array, if it can be one."""
    some = {row: entry for row, entry in column.items() if row < n}
    if some and len(some) == n:
        return column_of([some[row] for row in range(n)])
    return {"n": n, "some": some}


def _longer(array: np.ndarray, capacity: int) -> np.ndarray:
    longer = np.zeros((capacity, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
