"""Weights as the pieces of a stick, each a share of what the ones before have left."""

from __future__ import annotations

import numpy as np


def log_pieces(log_taken: np.ndarray, log_left: np.ndarray) -> np.ndarray:
    r"""Logarithms of the pieces :math:`w_k = v_k \prod_{j<k} (1 - v_j)` of a stick and its rest.

    Parameters
    ----------
    log_taken, log_left : ndarray, shape (..., n)
        log v and log(1 − v), the shares that each piece takes and leaves.

    Returns
    -------
    ndarray, shape (..., n + 1)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import log_pieces
    >>> np.exp(log_pieces(np.log([0.5, 0.2]), np.log([0.5, 0.8]))).round(3)
    array([0.5, 0.1, 0.4])
    """
    zero = np.zeros((*log_taken.shape[:-1], 1))
    before = np.concatenate([zero, np.cumsum(log_left, axis=-1)], axis=-1)
    return before + np.concatenate([log_taken, zero], axis=-1)


def weights_of_sticks(sticks: np.ndarray) -> np.ndarray:
    r"""Weights :math:`w_k = v_k \prod_{j<k} (1 - v_j)`, the last one being what is left.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import weights_of_sticks
    >>> weights_of_sticks(np.array([0.5, 0.5]))
    array([0.5 , 0.25, 0.25])
    """
    with np.errstate(divide="ignore"):  # the logarithm of nothing
        return np.exp(log_pieces(np.log(sticks), np.log1p(-sticks)))


SMALLEST, LARGEST = float(np.finfo(float).tiny), 1.0 - 2.0**-53
"""Bounds of the numbers between 0 and 1."""


def sticks_of_weights(
    weights: np.ndarray, smallest: float = SMALLEST, largest: float = LARGEST
) -> np.ndarray:
    """Sticks that give these weights, within bounds that keep them away from 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.stick_breaking import sticks_of_weights
    >>> sticks_of_weights(np.array([0.25, 0.25, 0.5])).round(3)
    array([0.25 , 0.333])
    """
    left = np.cumsum(weights[..., ::-1], axis=-1)[..., :0:-1]
    return np.clip(weights[..., :-1] / np.maximum(left, SMALLEST), smallest, largest)
