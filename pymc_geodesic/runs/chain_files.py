"""Files of one chain: segments of draws, and records of the state from which it can go on.

A folder ``chain-0`` holds ``start.npz``, the point and the state in which the chain began;
``draws-000000000.npz``, draws from the one whose number is in the name; and
``state-000000050.npz``, the state after 50 draws. A file is written once and never changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.columns import joined_columns, listed
from pymc_geodesic.runs.encoding import UnreadableFileError, read_tree, write_tree

_KEPT_RECORDS = 2
"""States that are kept: the one before the last serves where the last segment is damaged."""


class Draws(NamedTuple):
    """Consecutive draws of one chain.

    Attributes
    ----------
    values : dict of str to ndarray, shape (n, ...)
        Draws of each variable.
    stats : list of dict of str to list or ndarray
        Sample stats of each step method, n entries each; None where a draw has none.
    n : int
        How many there are.
    """

    values: dict[str, np.ndarray]
    stats: list[dict[str, Any]]
    n: int


class Record(NamedTuple):
    """What a chain goes on from: the state of its step after ``n`` draws, and its point."""

    n: int
    point: dict[str, np.ndarray]
    state: Any


def joined(parts: Sequence[Draws]) -> Draws:
    """Put segments one after another."""
    if not parts:
        return Draws({}, [], 0)
    values = {
        name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values
    }
    stats = [
        {
            name: joined_columns([part.stats[i][name] for part in parts])
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
        Where they are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _numbered(self, kind: str) -> dict[int, Path]:
        paths = sorted(self.folder.glob(f"{kind}-*.npz"))
        return {int(path.stem.split("-")[1]): path for path in paths}

    def write_start(self, start: Record) -> None:
        """Write the point and the state in which the chain begins."""
        self.folder.mkdir(exist_ok=True)
        write_tree(self.folder / "start.npz", tuple(start))

    def read_start(self) -> Record | None:
        """Read what `write_start` wrote, or nothing where the chain has not begun."""
        try:
            return Record(*read_tree(self.folder / "start.npz"))
        except FileNotFoundError:
            return None

    def write_draws(self, first: int, content: dict[str, Any]) -> None:
        """Write a segment, see `Columns.content`; ``first`` is the number of its first draw."""
        write_tree(self.folder / f"draws-{first:09d}.npz", content)

    def write_record(self, record: Record) -> None:
        """Write the state after a segment, and forget states that are not needed any more."""
        write_tree(self.folder / f"state-{record.n:09d}.npz", tuple(record))
        for path in list(self._numbered("state").values())[:-_KEPT_RECORDS]:
            path.unlink()

    def segments(self, *, warn: bool = True) -> list[tuple[int, Draws]]:
        """Read the segments, with the number of the first draw of each, up to the first gap."""
        found: list[tuple[int, Draws]] = []
        n = 0
        for first, path in self._numbered("draws").items():
            try:
                content = read_tree(path)
            except FileNotFoundError:  # a run that goes on has replaced it
                break
            except UnreadableFileError as error:
                if warn:
                    message = (
                        f"{error}. The {n} draws before it are read; pymc_geodesic.resume draws "
                        "those after it again, from the last state that fits"
                    )
                    warnings.warn(see(message, "damaged-run"), stacklevel=2)
                break
            if first != n:
                if warn:
                    message = (
                        f"{self.folder} has no draws {n} to {first - 1}; those before are read"
                    )
                    warnings.warn(see(message, "damaged-run"), stacklevel=2)
                break
            values = content["values"]
            size = len(next(iter(values.values())))
            stats = [
                {name: listed(column) for name, column in columns.items()}
                for columns in content["stats"]
            ]
            found.append((first, Draws(values, stats, size)))
            n += size
        return found

    def read(self, *, warn: bool = True) -> Draws:
        """Read all draws up to the first gap."""
        return joined([draws for _, draws in self.segments(warn=warn)])

    def count(self) -> int:
        """Count the draws, by the last segment that can be read."""
        for first, path in reversed(self._numbered("draws").items()):
            try:
                return first + len(next(iter(read_tree(path)["values"].values())))
            except (FileNotFoundError, UnreadableFileError):
                continue
        return 0

    def last_record(self, n_draws: int) -> Record | None:
        """Read the latest state that has all its draws, ``n_draws`` of them being readable."""
        for n, path in reversed(self._numbered("state").items()):
            if n <= n_draws:
                try:
                    return Record(*read_tree(path))
                except UnreadableFileError as error:
                    warnings.warn(
                        see(f"{error}. An earlier state is taken", "damaged-run"), stacklevel=2
                    )
        return None

    def forget_after(self, n: int, *, but_next: bool = False) -> None:
        """Remove segments and states behind the draw from which a chain goes on.

        The segment that begins there may stay; the next one that is written replaces it.
        """
        for first, path in self._numbered("draws").items():
            if first > n or (first == n and not but_next):
                path.unlink()
        for number, path in self._numbered("state").items():
            if number > n:
                path.unlink()

    def written_at(self) -> float | None:
        """Time of the last file, in seconds since 1970."""
        times = [path.stat().st_mtime for path in self.folder.glob("*.npz")]
        return max(times, default=None)
