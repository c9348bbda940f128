"""Draws and sample stats that wait to be written, in arrays that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.runs.pymc_parts import SamplerWarning

__all__ = ["Columns", "column_of", "joined_columns", "listed"]

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
        self._numbers = [
            {
                name: np.zeros(_FIRST_ROWS, kind)
                for name, kind in of_step.items()
                if not kind.hasobject
            }
            for of_step in kinds
        ]
        self._others: list[dict[str, dict[int, Any]]] = [
            {name: {} for name, kind in of_step.items() if kind.hasobject} for of_step in kinds
        ]
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
        for array, value in zip(self._values, values, strict=True):
            array[row] = value
        for numbers, others, entries in zip(self._numbers, self._others, stats, strict=True):
            for name, entry in entries.items():
                if entry is None:
                    continue
                column = numbers.get(name)
                if column is not None:
                    column[row] = entry
                elif name in others:
                    others[name][row] = _entry(entry)
        self.n = row + 1

    def _grow(self) -> None:
        capacity = 2 * self._capacity
        self._values = [_longer(array, capacity) for array in self._values]
        for numbers in self._numbers:
            numbers.update({name: _longer(array, capacity) for name, array in numbers.items()})
        self._capacity = capacity

    def content(self) -> dict[str, Any]:
        """Give what is there, as a file holds it; it is valid until the next draw comes."""
        n = self.n
        values = [array[:n] for array in self._values]
        return {
            "values": dict(zip(self._names, values, strict=True)),
            "stats": [
                {name: column[:n] for name, column in numbers.items()}
                | {name: self._sparse(column) for name, column in others.items()}
                for numbers, others in zip(self._numbers, self._others, strict=True)
            ],
        }

    def _sparse(self, column: Mapping[int, Any]) -> Any:
        """Pack a column that is full to an array, if it can be one."""
        some = {row: entry for row, entry in column.items() if row < self.n}
        if some and len(some) == self.n:
            return column_of([some[row] for row in range(self.n)])
        return {"n": self.n, "some": some}

    def clear(self) -> None:
        """Forget the draws, and keep the memory."""
        n, self.n = self.n, 0
        for numbers, others in zip(self._numbers, self._others, strict=True):
            for column in numbers.values():
                column[: n + 1] = 0
            for entries in others.values():
                entries.clear()


def _longer(array: np.ndarray, capacity: int) -> np.ndarray:
    longer = np.zeros((capacity, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
