"""Rows of arrays in flat files, in HDF5 files and in zarr stores."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pymc_geodesic.datasets.stored.rows import StoredRows, needed_module, piece_of, pieces_of_rows

__all__ = ["RowsOfFile", "RowsOfHDF5", "RowsOfZarr", "array_at", "array_names", "on_disk"]

_HDF5 = (".h5", ".hdf5", ".hdf")


@dataclass(frozen=True)
class RowsOfFile(StoredRows):
    """Array in a flat file, of which no page stays in memory after it was read.

    The pages of a memory map belong to the process until somebody else needs the memory, and
    in another process a pickled map becomes an array.
    """

    path: str
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        size = int(np.prod(self.shape[1:], dtype=int))
        piece = piece_of(self)
        while start < stop:
            end = min(stop, (start // piece + 1) * piece)
            wanted = (end - start) * size
            offset = self.offset + start * size * self.dtype.itemsize
            numbers = np.fromfile(self.path, self.dtype, count=wanted, offset=offset)
            if numbers.size < wanted:
                raise ValueError(
                    f"{self.path} ends in row {start + numbers.size // max(size, 1)} and had "
                    f"{self.shape[0]} rows before; make the blocks again"
                )
            yield numbers.reshape(end - start, *self.shape[1:])
            start = end

    def origin(self, row: int) -> str:
        """Row and file."""
        return f"row {row} of {self.path}"


@dataclass(frozen=True)
class RowsOfHDF5(StoredRows):
    """A data set in an HDF5 file, which is opened for each read: open files cannot travel."""

    path: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        import h5py

        with h5py.File(self.path, "r") as file:
            found = file.get(self.name)
            if found is None or found.shape != self.shape:
                raise ValueError(
                    f"{self.path} had {self.shape[0]} rows of {self.name!r} before and has "
                    f"{'none' if found is None else found.shape[0]} now; make the blocks again"
                )
            yield from pieces_of_rows(found, start, stop)

    def origin(self, row: int) -> str:
        """Row, data set and file."""
        return f"row {row} of {self.name!r} in {self.path}"


class RowsOfZarr(StoredRows):
    """An array in a folder of zarr files.

    Chunks that are not there are read as zeros, so it is asked first whether the array still is.
    """

    def __init__(self, array: Any, folder: Path) -> None:
        self._array = array
        self._folder = folder.absolute()
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)

    def pieces(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Read rows; see `StoredRows.pieces`."""
        if not self._folder.is_dir():
            raise FileNotFoundError(f"the zarr array {self._folder} is gone")
        yield from pieces_of_rows(self._array, start, stop)

    def origin(self, row: int) -> str:
        """Row and folder."""
        return f"row {row} of {self._folder}"


def on_disk(array: Any) -> Any:
    """Read an array from its file where it has one; otherwise return it as it is.

    Parameters
    ----------
    array : array_like
        Memory maps, data sets of h5py and zarr arrays have files.

    Raises
    ------
    ValueError
        If values are masked.
    """
    if np.ma.is_masked(array):
        raise ValueError(
            f"{np.ma.count_masked(array)} values of an array are masked, and the numbers behind "
            "the mask would be read as data; drop or impute those rows first"
        )
    if isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous:
        base: object = array.base
        if isinstance(base, mmap.mmap):  # a part of a map does not know where it begins
            return RowsOfFile(os.fspath(array.filename), array.offset, array.dtype, array.shape)
    module = type(array).__module__.partition(".")[0]
    if module == "h5py" and getattr(array.file, "driver", "") in ("sec2", "stdio"):
        path = os.path.abspath(array.file.filename)
        return RowsOfHDF5(path, array.name, array.dtype, array.shape)
    if module == "zarr" and (root := getattr(array.store, "root", None)) is not None:
        return RowsOfZarr(array, Path(root) / array.path)
    return array


def array_at(path: str | os.PathLike) -> Any:
    """Open the array that a path names.

    Parameters
    ----------
    path : path-like
        An ``.npy`` file, or the name of an array within a zarr store or an HDF5 file:
        ``"rows.zarr"``, ``"rows.zarr/X"``, ``"rows.h5/X"``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the kind of file is unknown, or it holds no array of that name.
    ImportError
        If zarr is needed and not installed.

    Examples
    --------
    >>> from pymc_geodesic.datasets.stored.files import array_at
    >>> array_at("rows.txt")
    Traceback (most recent call last):
        ...
    ValueError: 'rows.txt' is no path of an array: name an .npy file, 'rows.zarr/X' or ...
    """
    file, name = _file_and_name(path)
    if file.suffix == ".npy":
        return np.load(file, mmap_mode="r")
    return _in_zarr(file, name) if file.suffix == ".zarr" else _in_hdf5(file, name)


def _file_and_name(path: str | os.PathLike) -> tuple[Path, str]:
    """Divide a path into that of a file, and a name in it."""
    parts = Path(path).parts
    for length in range(1, len(parts) + 1):
        file, name = Path(*parts[:length]), "/".join(parts[length:])
        if file.suffix in (".zarr", *_HDF5) or (file.suffix == ".npy" and not name):
            return file, name
    raise ValueError(
        f"{os.fspath(path)!r} is no path of an array: name an .npy file, 'rows.zarr/X' or "
        "'rows.h5/X'; for Parquet files there is parquet_blocks"
    )


def array_names(path: str | os.PathLike) -> dict[str, Path]:
    """Paths of all arrays below a path, by their names there; of one that is an array, itself.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        See `array_at`.
    """
    file, name = _file_and_name(path)
    found = {"": Path(path)}
    if file.suffix == ".zarr" and file.is_dir():
        zarr = needed_module("zarr", "zarr", f"Reading {file}")
        opened = zarr.open(file, mode="r", path=name)
        if isinstance(opened, zarr.Group):
            members = opened.members(max_depth=None)
            found = {n: file / name / n for n, each in members if isinstance(each, zarr.Array)}
    elif file.suffix in _HDF5:
        import h5py

        with h5py.File(file, "r") as opened:
            group = opened.get(name) if name else opened
            if isinstance(group, h5py.Group):
                found = {}
                group.visititems(
                    lambda n, each: (
                        found.update({n: file / name / n})
                        if isinstance(each, h5py.Dataset)
                        else None
                    )
                )
    return dict(sorted(found.items()))


def _in_zarr(folder: Path, name: str) -> Any:
    zarr = needed_module("zarr", "zarr", f"Reading {folder}")
    if not (folder / name).is_dir():
        raise FileNotFoundError(f"there is no zarr array {folder / name}")
    found = zarr.open(folder, mode="r", path=name) if name else zarr.open(folder, mode="r")
    if not isinstance(found, zarr.Array):
        raise ValueError(f"{folder / name} is a group; name one of its arrays {sorted(found)}")
    return found


def _in_hdf5(file: Path, name: str) -> RowsOfHDF5:
    import h5py

    with h5py.File(file, "r") as opened:
        found = opened.get(name) if name else opened
        if not isinstance(found, h5py.Dataset):
            names = sorted(opened if found is None or not name else found)
            raise ValueError(f"{file} has no data set {name!r}; name one of {names}")
        return RowsOfHDF5(str(file.absolute()), f"/{name}", found.dtype, found.shape)
