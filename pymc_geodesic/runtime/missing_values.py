"""What is said of values that are missing, wherever they are found."""

from __future__ import annotations

from typing import Any

import numpy as np


def missing(subject: str, place: str = "", remedy: str = "drop these rows or impute them") -> str:
    """Word the refusal of missing values.

    Examples
    --------
    >>> from pymc_geodesic.runtime.missing_values import missing
    >>> missing("X has", " in row 3")
    'X has missing values (NaN or masked) in row 3: drop these rows or impute them'
    """
    return f"{subject} missing values (NaN or masked){place}: {remedy}"


def refuse_missing(name: str, values: Any) -> None:
    """Refuse arrays with missing or infinite values.

    NumPy would take the numbers behind a mask for data.

    Parameters
    ----------
    name : str
        What the user knows the values as.
    values : array_like or scipy.sparse matrix

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.missing_values import refuse_missing
    >>> refuse_missing("X", np.ma.masked_equal([0, 1], 2))
    >>> refuse_missing("X", np.ma.masked_equal([0, 1], 1))
    Traceback (most recent call last):
    ValueError: X has missing values (NaN or masked): drop these rows or impute them
    """
    if np.ma.is_masked(values):
        raise ValueError(missing(f"{name} has"))
    numbers = values.data if hasattr(values, "tocsr") else np.asarray(values)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
        return
    if np.isfinite(numbers).all():
        return
    if np.isnan(numbers).any():
        raise ValueError(missing(f"{name} has"))
    raise ValueError(f"{name} has infinite values: drop these rows, or give finite numbers")
