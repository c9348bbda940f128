"""Posteriors on a simplex with three components, by sums over a grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

Exact = tuple[np.ndarray, np.ndarray]
"""Mean and standard deviation of every coordinate."""


def grid(n: int = 300) -> np.ndarray:
    """Centres of the n² triangles that a simplex is divided into, shape (n², 3)."""
    i, j = (each.ravel() for each in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    upward, downward = i + j < n, i + j < n - 1
    first = np.concatenate([i[upward] + 1 / 3, i[downward] + 2 / 3]) / n
    second = np.concatenate([j[upward] + 1 / 3, j[downward] + 2 / 3]) / n
    return np.column_stack([first, second, 1.0 - first - second])


def exact_on_simplex(log_density: Callable[[np.ndarray], np.ndarray], n: int = 300) -> Exact:
    """Moments under a density, of any scale, that has a value for each row of an array."""
    points = grid(n)
    weights = softmax(log_density(points))
    mean = weights @ points
    return mean, np.sqrt(weights @ (points - mean) ** 2)
