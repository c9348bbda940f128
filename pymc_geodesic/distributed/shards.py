"""What a shard is: rows that a worker can get for itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse

type LoadedRows = np.ndarray | sparse.csr_array
type Rows = LoadedRows | sparse.spmatrix | sparse.sparray | str | os.PathLike | Callable[[], Any]
type Shard = Mapping[str, Rows] | Callable[[], Mapping[str, Any]]
"""Rows by data container: arrays, sparse matrices, paths of ``.npy`` files, or of ``.npz`` files of
`scipy.sparse.save_npz`, functions; or a function of all."""


def check_shards(shards: Any) -> list[Shard]:
    """Refuse what is no list of shards.

    Raises
    ------
    ValueError
        It names the shard that is none, and says what one is.
    """
    if isinstance(shards, Mapping) or callable(shards):
        raise ValueError("shards= is a list with one entry for each shard; put this one in a list")
    listed = list(shards)
    if not listed:
        raise ValueError("shards= is empty; give the rows of at least one shard")
    for number, shard in enumerate(listed):
        if not (callable(shard) or (isinstance(shard, Mapping) and shard)):
            raise ValueError(
                f"shard {number} is {type(shard).__name__}: give a mapping from data containers to "
                "arrays, paths or functions, or a function that returns such a mapping of arrays"
            )
    return listed


def load_rows(shard: Shard) -> dict[str, LoadedRows]:
    """Get the rows of a shard, on the machine that is to hold them.

    Raises
    ------
    ValueError
        If the containers have different numbers of rows, or none.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed.shards import load_rows
    >>> load_rows({"x": np.arange(3), "y": lambda: np.ones(3)})["y"]
    array([1., 1., 1.])
    """
    named = shard() if callable(shard) else shard
    arrays = {name: _array(rows) for name, rows in named.items()}
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise ValueError(f"the containers of a shard need one number of rows, got {lengths}")
    return arrays


def _array(rows: Any) -> LoadedRows:
    if callable(rows):
        rows = rows()
    if isinstance(rows, str | os.PathLike):
        rows = sparse.load_npz(rows) if os.fspath(rows).endswith(".npz") else np.load(rows)
    return sparse.csr_array(rows) if sparse.issparse(rows) else np.ascontiguousarray(rows)
