"""Check of arrays for missing and infinite values."""

from __future__ import annotations

from typing import Any

import numpy as np


def missing_message(
    subject: str, where: str = "", remedy: str = "drop these rows or impute them"
) -> str:
    """Error message for missing values.

    Examples
    --------
    >>> from pymc_geodesic.runtime.missing_values import missing_message
    >>> missing_message("X has", " in row 3")
    'X has missing values (NaN or masked) in row 3: drop these rows or impute them'
    """
    return f"{subject} missing values (NaN or masked){where}: {remedy}"


def check_missing(name: str, values: Any) -> None:
    """Check that an array has no missing and no infinite values.

    Masked values are missing, although NumPy functions may use the values behind the mask.

    Parameters
    ----------
    name : str
        Name of the argument.
    values : array_like or scipy.sparse matrix

    Raises
    ------
    ValueError
        If it has missing or infinite values; the message names the argument.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.runtime.missing_values import check_missing
    >>> check_missing("X", np.ma.masked_equal([0, 1], 2))
    >>> check_missing("X", np.ma.masked_equal([0, 1], 1))
    Traceback (most recent call last):
    ValueError: X has missing values (NaN or masked): drop these rows or impute them
    """
    if np.ma.is_masked(values):
        raise ValueError(missing_message(f"{name} has"))
    numbers = values.data if hasattr(values, "tocsr") else np.asarray(values)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
        return
    if np.isfinite(numbers).all():
        return
    if np.isnan(numbers).any():
        raise ValueError(missing_message(f"{name} has"))
    raise ValueError(f"{name} has infinite values: drop these rows, or use finite values")
