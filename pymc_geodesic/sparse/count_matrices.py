"""Coordinates of the rows and columns of data: names that users give, or those of a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.runtime.missing_values import check_missing


def axis_coords(
    data: Any,
    shape: tuple[int, ...],
    *,
    of: str = "counts",
    **axes: tuple[str, Sequence[Any] | None],
) -> dict[str, Sequence[Any] | np.ndarray]:
    """Return coordinates: the names that were given, those of a data frame, or numbers.

    Parameters
    ----------
    data : Any
        As the user passed it.
    shape : tuple of int
        Numbers of its rows and columns.
    of : str
        The argument that it was passed as.
    **axes : tuple of (str, sequence or None)
        Dimensions of rows and columns, each with the argument that may name it and what it is.

    Raises
    ------
    ValueError
        If there are not as many names as rows or columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from pymc_geodesic.sparse.count_matrices import axis_coords
    >>> counts = pd.DataFrame({"sun": [1, 0], "rain": [0, 2]}, index=["mon", "tue"])
    >>> axis_coords(counts, (2, 2), day=("days", None), sky=("skies", ["dry", "wet"]))
    {'day': ['mon', 'tue'], 'sky': ['dry', 'wet']}
    """
    coords: dict[str, Sequence[Any] | np.ndarray] = {}
    for (dim, (argument, names)), length, axis in zip(
        axes.items(), shape, ("rows", "columns"), strict=True
    ):
        if names is not None and len(names) != length:
            raise ValueError(
                f"{argument} must name the {length} {axis} of {of}, but has {len(names)} names"
            )
        found = _names_in(data, axis) if names is None else names
        coords[dim] = np.arange(length) if found is None else list(found)
    return coords


def _names_in(data: Any, axis: str) -> Any:
    """Names that a data frame has along an axis, unless each is more than one value."""
    if not hasattr(data, "columns"):  # lists have an index, too
        return None
    names = data.columns if axis == "columns" else getattr(data, "index", None)
    return None if getattr(names, "nlevels", 1) > 1 else names


def word_counts(counts: Any) -> sparse.csr_array:
    """Take counts of words as a sparse matrix, or raise ValueError if they are none."""
    check_missing("counts", counts)
    matrix = sparse.csr_array(counts if sparse.issparse(counts) else np.atleast_2d(counts))
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"counts must be a matrix (document, word), got shape {matrix.shape}")
    data = matrix.data
    if np.any(data < 0) or np.any(data != np.floor(data)):
        raise ValueError(
            "counts must be whole numbers of at least 0: LDA is a model of how often words occur, "
            "not of tf-idf features (see spherical_admixture for those)"
        )
    matrix = matrix.astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def concentration(name: str, value: ArrayLike, length: int) -> np.ndarray:
    """Take a vector of concentrations, or raise ValueError if they are none."""
    array = np.asarray(value, dtype=float)
    if array.shape not in ((), (length,)) or not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(
            f"{name} must be one positive number or {length} of them, got {np.array2string(array)}"
        )
    return np.broadcast_to(array, (length,)).copy()
