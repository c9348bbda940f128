"""Files that rows are written to in their new order: under another name until all are there."""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pymc_geodesic.datasets.stored.rows import needed_module

__all__ = ["ArrayTarget", "array_target", "hidden_beside", "moved_when_done", "refuse_existing"]

_CHUNK = 2**22
"""Bytes of a chunk, about."""


def refuse_existing(path: Path) -> None:
    """Raise where something would be overwritten."""
    if path.exists():
        raise FileExistsError(f"{path} exists; name another target, or remove it first")


@contextmanager
def hidden_beside(path: Path) -> Iterator[Path]:
    """Name of a file or folder beside another, which is removed in the end if it is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.stem}-{uuid.uuid4().hex[:8]}{path.suffix}")
    try:
        yield hidden
    finally:
        if hidden.is_dir():
            shutil.rmtree(hidden, ignore_errors=True)
        else:
            hidden.unlink(missing_ok=True)


@contextmanager
def moved_when_done(path: Path) -> Iterator[Path]:
    """Name to write under; what is written gets its own name when all went well.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pymc_geodesic.datasets.shuffling.targets import moved_when_done
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.txt")
    ...     with moved_when_done(path) as hidden:
    ...         _ = hidden.write_text("one")
    ...         before = path.exists()
    ...     print(before, path.read_text(), len(list(Path(folder).iterdir())))
    False one 1
    """
    refuse_existing(path)
    with hidden_beside(path) as hidden:
        yield hidden
        for each in [*hidden.rglob("*"), hidden]:
            if each.is_file():
                with each.open("rb") as file:
                    os.fsync(file.fileno())
        refuse_existing(path)
        hidden.rename(path)


class ArrayTarget(ABC):
    """Arrays that are written from their first row to the last."""

    @abstractmethod
    def write(self, rows: Mapping[str, np.ndarray]) -> None:
        """Append the same number of rows to each array."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""


class _FlatFile(ArrayTarget):
    """An ``.npy`` file; not a memory map, whose pages would count as memory."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._file = path.open("wb")
        description = np.lib.format.dtype_to_descr(dtype)
        header = {"descr": description, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(self._file, header)

    def write(self, rows: Mapping[str, np.ndarray]) -> None:
        """Append rows."""
        (array,) = rows.values()
        np.ascontiguousarray(array).tofile(self._file)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Chunked(ArrayTarget):
    """Arrays in a zarr group or an HDF5 file, of which only whole chunks are written."""

    def __init__(self, file: Any, arrays: Mapping[str, Any], chunk: int) -> None:
        self._file, self._arrays, self._chunk = file, arrays, chunk
        self._waiting: list[Mapping[str, np.ndarray]] = []
        self._n_waiting = self._n_written = 0

    def write(self, rows: Mapping[str, np.ndarray]) -> None:
        """Append rows."""
        self._waiting.append({name: array.copy() for name, array in rows.items()})
        self._n_waiting += len(next(iter(rows.values())))
        if self._n_waiting >= self._chunk:
            self._flush(self._n_waiting - self._n_waiting % self._chunk)

    def _flush(self, n: int) -> None:
        first, self._n_written = self._n_written, self._n_written + n
        left = {}
        for name, array in self._arrays.items():
            rows = np.concatenate([part[name] for part in self._waiting])
            array[first : first + n] = rows[:n]
            left[name] = rows[n:].copy()
        self._waiting, self._n_waiting = [left], self._n_waiting - n

    def close(self) -> None:
        """Write what does not fill a chunk."""
        if self._n_waiting:
            self._flush(self._n_waiting)
        if hasattr(self._file, "close"):
            self._file.close()


def array_target(path: Path, hidden: Path, arrays: Mapping[str, Any], memory: int) -> ArrayTarget:
    """Make a file for arrays with the shapes and types of others.

    Parameters
    ----------
    path : Path
        Its ending says which kind of file.
    hidden : Path
        Where to write it.
    arrays : mapping of str to array_like
    memory : int
        Bytes, of which chunks take a small part.
    """
    n_rows = next(iter(arrays.values())).shape[0]
    widest = max(row_bytes(array) for array in arrays.values())
    chunk = max(1, min(n_rows, min(_CHUNK, memory // 32) // widest))
    if path.suffix == ".npy":
        (array,) = arrays.values()
        return _FlatFile(hidden, tuple(array.shape), np.dtype(array.dtype))
    file: Any
    if path.suffix == ".zarr":
        file = needed_module("zarr", "zarr", f"Writing {path}").open_group(hidden, mode="w-")
        make = file.create_array
    else:
        import h5py

        file = h5py.File(hidden, "w-")
        make = file.create_dataset
    made = {
        name: make(
            name,
            shape=tuple(array.shape),
            dtype=np.dtype(array.dtype),
            chunks=(chunk, *(max(1, n) for n in array.shape[1:])),
        )
        for name, array in arrays.items()
    }
    return _Chunked(file, made, chunk)


def row_bytes(array: Any) -> int:
    """Bytes of a row, at least one."""
    return max(1, int(np.prod(array.shape[1:], dtype=int)) * np.dtype(array.dtype).itemsize)
