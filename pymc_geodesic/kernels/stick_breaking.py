"""Stick-breaking construction of probability weights."""

from __future__ import annotations

import numpy as np


def log_stick_breaking_weights(log_taken: np.ndarray, log_left: np.ndarray) -> np.ndarray:
    r"""Compute the logarithms of stick-breaking weights :math:`w_k = v_k \prod_{j<k} (1 - v_j)`.

    Parameters
    ----------
    log_taken, log_left : ndarray, shape (..., n)
        log v and log(1 − v), with the stick-breaking proportions v.

    Returns
    -------
    ndarray, shape (..., n + 1)
        The last weight is the remainder of the stick.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import log_stick_breaking_weights
    >>> np.exp(log_stick_breaking_weights(np.log([0.5, 0.2]), np.log([0.5, 0.8]))).round(3)
    array([0.5, 0.1, 0.4])
    """
    zero = np.zeros((*log_taken.shape[:-1], 1))
    before = np.concatenate([zero, np.cumsum(log_left, axis=-1)], axis=-1)
    return before + np.concatenate([log_taken, zero], axis=-1)


def stick_breaking_weights(sticks: np.ndarray) -> np.ndarray:
    r"""Compute the weights :math:`w_k = v_k \prod_{j<k} (1 - v_j)` and the remainder of the stick.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import stick_breaking_weights
    >>> stick_breaking_weights(np.array([0.5, 0.5]))
    array([0.5 , 0.25, 0.25])
    """
    with np.errstate(divide="ignore"):  # logarithm of zero
        return np.exp(log_stick_breaking_weights(np.log(sticks), np.log1p(-sticks)))


SMALLEST, LARGEST = float(np.finfo(float).tiny), 1.0 - 2.0**-53
"""Smallest and largest floating-point numbers between 0 and 1."""


def stick_proportions(
    weights: np.ndarray, smallest: float = SMALLEST, largest: float = LARGEST
) -> np.ndarray:
    """Compute the stick-breaking proportions of weights, clipped to bounds within (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import stick_proportions
    >>> stick_proportions(np.array([0.25, 0.25, 0.5])).round(3)
    array([0.25 , 0.333])
    """
    left = np.cumsum(weights[..., ::-1], axis=-1)[..., :0:-1]
    return np.clip(weights[..., :-1] / np.maximum(left, SMALLEST), smallest, largest)
