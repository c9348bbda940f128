"""Whether all numbers of a state are finite, asked after every draw."""

import math

import numpy as np

__all__ = ["all_finite"]


def all_finite(numbers: np.ndarray) -> bool:
    """Whether no number of a vector is infinite or NaN.

    The sum of the squares tells it in a fifth of the time, unless it overflows.

    Parameters
    ----------
    numbers : ndarray, shape (size,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.steps.finite import all_finite
    >>> all_finite(np.array([1.0, 1e300])), all_finite(np.array([1.0, np.nan]))
    (True, False)
    """
    return math.isfinite(numbers.dot(numbers)) or bool(np.isfinite(numbers).all())
