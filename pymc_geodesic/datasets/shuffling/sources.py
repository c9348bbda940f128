"""What there is to shuffle: arrays by name, or tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pymc_geodesic.datasets.stored.files import array_at, array_names, on_disk

__all__ = ["arrays_of", "is_table"]

_TABLES = (".parquet", ".pq")


def is_table(source: Any) -> bool:
    """Whether rows are those of Parquet files.

    Examples
    --------
    >>> from pymc_geodesic.datasets.shuffling.sources import is_table
    >>> is_table("rows.parquet"), is_table(["a.npy", "b.npy"])
    (True, False)
    """
    if type(source).__module__.startswith("pyarrow"):
        return True
    if isinstance(source, list | tuple) and source:
        source = source[0]
    if not isinstance(source, str | os.PathLike):
        return False
    path = Path(source)
    inside_zarr = any(part.endswith(".zarr") for part in path.parts)
    return path.suffix in _TABLES or (path.is_dir() and not inside_zarr)


def arrays_of(source: Any) -> Mapping[str, Any]:
    """Arrays by name, which are read when they are sliced.

    Parameters
    ----------
    source : path-like, array_like, or sequence of them
        The path of a zarr group or an HDF5 file stands for all arrays in it.

    Raises
    ------
    ValueError
        If there is none, or they have different numbers of rows.
    """
    if isinstance(source, list | tuple):
        arrays = {f"array {i}": _array(each) for i, each in enumerate(source)}
    elif isinstance(source, str | os.PathLike):
        arrays = {name or "rows": _array(path) for name, path in array_names(source).items()}
    else:
        arrays = {"rows": _array(source)}
    scalars = [name for name, array in arrays.items() if not array.shape]
    if scalars or not arrays:
        raise ValueError(f"{source} has {'no rows in ' + scalars[0] if scalars else 'no arrays'}")
    for name, array in arrays.items():
        if np.dtype(array.dtype).kind not in "biufcSUVmM":
            raise ValueError(f"{name!r} holds {array.dtype}, which has no fixed length on disk")
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the arrays have different numbers of rows: {lengths}")
    if not next(iter(lengths.values())):
        raise ValueError("there are no rows to shuffle")
    return arrays


def _array(source: Any) -> Any:
    if isinstance(source, str | os.PathLike):
        source = array_at(source)
    array = on_disk(source)
    return array if hasattr(array, "shape") else np.asarray(array)
