"""Gradient noise whose variance is known."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def noise_by_coordinate(gradient_noise: ArrayLike | str | None, size: int) -> np.ndarray:
    """Variance along every coordinate, nothing where it is unknown; zero before rows tell it.

    Raises
    ------
    ValueError
        If it is negative, or has another size.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.known_noise import noise_by_coordinate
    >>> noise_by_coordinate(0.5, 3)
    array([0.5, 0.5, 0.5])
    """
    if gradient_noise is None:
        return np.empty(0)
    if isinstance(gradient_noise, str):
        return np.zeros(size)
    noise = np.asarray(gradient_noise, dtype=float)
    if not np.all(noise >= 0):
        raise ValueError("gradient_noise= is a variance and must not be negative")
    if noise.size not in (1, size):
        raise ValueError(
            f"gradient_noise= has {noise.size} elements; give one or {size}, one per coordinate of "
            "the sampled variables"
        )
    return np.broadcast_to(noise.ravel(), (size,)).copy()
