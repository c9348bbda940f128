"""Files of one chain: draws and checkpoints of its state, and the buffer of draws to be written.

A folder ``chain-0`` contains ``start.npz``, the initial point and sampling state;
``draws-000000000.npz``, a segment of draws that starts at the draw in its name; and
``state-000000050.npz``, the sampling state after 50 draws. Files are written once and not changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.pymc_backend import SamplerWarning
from pymc_geodesic.runs.serialization import UnreadableFileError, read_tree, write_tree

_KEPT_CHECKPOINTS = 2
"""The last but one is used if the last segment of draws is damaged."""


class Draws(NamedTuple):
    """Consecutive draws of one chain.

    Attributes
    ----------
    values : dict of str to ndarray, shape (n, ...)
        Draws of each variable.
    stats : list of dict of str to list or ndarray
        Sample stats of each step method, n entries each; None where a draw has none.
    n : int
        Number of draws.
    """

    values: dict[str, np.ndarray]
    stats: list[dict[str, Any]]
    n: int


class Checkpoint(NamedTuple):
    """State of a chain after ``n`` draws: its point and the sampling state of the step method."""

    n: int
    point: dict[str, np.ndarray]
    state: Any


def concatenate(parts: Sequence[Draws]) -> Draws:
    """Concatenate segments of draws."""
    if not parts:
        return Draws({}, [], 0)
    values = {
        name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values
    }
    stats = [
        {
            name: concatenate_columns([part.stats[i][name] for part in parts])
            for name in parts[0].stats[i]
        }
        for i in range(len(parts[0].stats))
    ]
    return Draws(values, stats, sum(part.n for part in parts))


class ChainFiles:
    """Reader and writer of the files of one chain.

    Parameters
    ----------
    folder : Path
        Folder of the chain; it is created by `write_start`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _numbered(self, kind: str) -> dict[int, Path]:
        paths = sorted(self.folder.glob(f"{kind}-*.npz"))
        return {int(path.stem.split("-")[1]): path for path in paths}

    def write_start(self, start: Checkpoint) -> None:
        """Write the initial point and state."""
        self.folder.mkdir(exist_ok=True)
        write_tree(self.folder / "start.npz", tuple(start))

    def read_start(self) -> Checkpoint | None:
        """Read the initial point and state; None if the chain has not started."""
        try:
            return Checkpoint(*read_tree(self.folder / "start.npz"))
        except FileNotFoundError:
            return None

    def write_draws(self, first: int, content: dict[str, Any]) -> None:
        """Write a segment, see `DrawBuffer.content`; ``first`` is the number of its first draw."""
        write_tree(self.folder / f"draws-{first:09d}.npz", content)

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, and remove older ones but for the last."""
        write_tree(self.folder / f"state-{checkpoint.n:09d}.npz", tuple(checkpoint))
        for path in list(self._numbered("state").values())[:-_KEPT_CHECKPOINTS]:
            path.unlink()

    def segments(self, *, warn: bool = True) -> list[tuple[int, Draws]]:
        """Read the segments, with the number of the first draw of each, up to the first gap."""
        found: list[tuple[int, Draws]] = []
        n = 0
        for first, path in self._numbered("draws").items():
            try:
                content = read_tree(path)
            except FileNotFoundError:  # a resumed run has replaced it
                break
            except UnreadableFileError as error:
                if warn:
                    message = (
                        f"{error}. The {n} draws before it are read; pymc_geodesic.resume draws "
                        "those after it again, from the last valid state"
                    )
                    warnings.warn(see(message, "damaged-run"), stacklevel=2)
                break
            if first != n:
                if warn:
                    message = (
                        f"{self.folder} has no draws {n} to {first - 1}; earlier draws are read"
                    )
                    warnings.warn(see(message, "damaged-run"), stacklevel=2)
                break
            values = content["values"]
            size = len(next(iter(values.values())))
            stats = [
                {name: expand_column(column) for name, column in columns.items()}
                for columns in content["stats"]
            ]
            found.append((first, Draws(values, stats, size)))
            n += size
        return found

    def read(self, *, warn: bool = True) -> Draws:
        """Read all draws up to the first gap."""
        return concatenate([draws for _, draws in self.segments(warn=warn)])

    def count(self) -> int:
        """Count the draws, by the last readable segment."""
        for first, path in reversed(self._numbered("draws").items()):
            try:
                return first + len(next(iter(read_tree(path)["values"].values())))
            except (FileNotFoundError, UnreadableFileError):
                continue
        return 0

    def last_checkpoint(self, n_draws: int) -> Checkpoint | None:
        """Read the latest checkpoint after at most ``n_draws`` draws."""
        for n, path in reversed(self._numbered("state").items()):
            if n <= n_draws:
                try:
                    return Checkpoint(*read_tree(path))
                except UnreadableFileError as error:
                    warnings.warn(
                        see(f"{error}. An earlier state is taken", "damaged-run"), stacklevel=2
                    )
        return None

    def remove_after(self, n: int, *, keep_next: bool = False) -> None:
        """Remove segments and checkpoints after draw n, from which a chain is resumed.

        The segment that starts there may be kept until it is replaced by the next one.
        """
        for first, path in self._numbered("draws").items():
            if first > n or (first == n and not keep_next):
                path.unlink()
        for number, path in self._numbered("state").items():
            if number > n:
                path.unlink()

    def written_at(self) -> float | None:
        """Time of the last write, in seconds since 1970; None if there are no files."""
        times = [path.stat().st_mtime for path in self.folder.glob("*.npz")]
        return max(times, default=None)


_FIRST_ROWS = 64
"""Initial capacity of a buffer; it doubles when it is full."""


def stack_column(entries: Sequence[Any]) -> Any:
    """Array of the entries if they have the same kind and shape, otherwise a list."""
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


def expand_column(column: Any) -> Any:
    """List of all entries of a sparse column, ``{"n": 3, "some": {1: ...}}``."""
    if not isinstance(column, dict):
        return column
    return [column["some"].get(row) for row in range(column["n"])]


def concatenate_columns(parts: Sequence[Any]) -> Any:
    """Concatenate columns, to a list if one is a list or their shapes differ."""
    kinds = {
        (part.dtype.kind, part.shape[1:]) if isinstance(part, np.ndarray) else None
        for part in parts
    }
    if len(kinds) == 1 and None not in kinds:
        return np.concatenate(parts)
    return [entry for part in parts for entry in part]


def _serializable(value: Any) -> Any:
    """Remove the parts of a warning that cannot be serialized."""
    if isinstance(value, SamplerWarning):
        return SamplerWarning(value.kind, value.message, value.level, value.step)
    return value


class _StatsBuffer:
    """Sample stats of a step method: a structured array, and a sparse column for each object."""

    def __init__(self, kinds: Mapping[str, np.dtype], capacity: int) -> None:
        self._fields = [(name, kind) for name, kind in kinds.items() if not kind.hasobject]
        self._names = [name for name, _ in self._fields]
        # Assigning a whole row takes half as long as assigning its entries.
        self._take = itemgetter(*self._names) if len(self._names) > 1 else None
        self.numbers = np.zeros(capacity, self._fields)
        self.others: dict[str, dict[int, Any]] = {
            name: {} for name, kind in kinds.items() if kind.hasobject
        }

    def put(self, row: int, entries: Mapping[str, Any]) -> None:
        try:
            self.numbers[row] = self._take(entries)  # type: ignore[misc]
        except (
            KeyError,
            TypeError,
            ValueError,
        ):  # an entry is missing or None, or there is one field
            for name in self._names:
                entry = entries.get(name)
                self.numbers[name][row] = 0 if entry is None else entry
        for name, column in self.others.items():
            if (entry := entries.get(name)) is not None:
                column[row] = _serializable(entry)

    def content(self, n: int) -> dict[str, Any]:
        return {name: self.numbers[name][:n].copy() for name in self._names} | {
            name: _sparse(column, n) for name, column in self.others.items()
        }

    def clear(self) -> None:
        for column in self.others.values():
            column.clear()


class DrawBuffer:
    """Values of variables and sample stats of consecutive draws that are not yet written.

    As in PyMC, stats of a numeric type that a draw does not have are zero. Objects are stored
    unless they are None.

    Parameters
    ----------
    names : list of str
        Variables, in the order of their values.
    kinds : list of dict of str to dtype
        Types of the sample stats of each step method.

    Attributes
    ----------
    n : int
        Number of complete draws; an interrupted `append` does not count.
    """

    def __init__(self, names: Sequence[str], kinds: Sequence[Mapping[str, np.dtype]]) -> None:
        self._names = list(names)
        self._values: list[np.ndarray] = []
        self._stats = [_StatsBuffer(dtypes, _FIRST_ROWS) for dtypes in kinds]
        self._capacity = _FIRST_ROWS
        self.n = 0

    def append(self, values: Sequence[np.ndarray], stats: Sequence[Mapping[str, Any]]) -> None:
        """Append a copy of a draw."""
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
        self._values = [_grown(array, capacity) for array in self._values]
        for kept in self._stats:
            kept.numbers = _grown(kept.numbers, capacity)
        self._capacity = capacity

    def content(self) -> dict[str, Any]:
        """Content of a segment, as views that are valid until the next draw is appended."""
        values = [array[: self.n] for array in self._values]
        return {
            "values": dict(zip(self._names, values, strict=True)),
            "stats": [kept.content(self.n) for kept in self._stats],
        }

    def clear(self) -> None:
        """Remove the draws; the memory is reused."""
        self.n = 0
        for kept in self._stats:
            kept.clear()


def _sparse(column: Mapping[int, Any], n: int) -> Any:
    """Dense column if all draws have an entry, otherwise a sparse one."""
    some = {row: entry for row, entry in column.items() if row < n}
    if some and len(some) == n:
        return stack_column([some[row] for row in range(n)])
    return {"n": n, "some": some}


def _grown(array: np.ndarray, capacity: int) -> np.ndarray:
    grown = np.zeros((capacity, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
