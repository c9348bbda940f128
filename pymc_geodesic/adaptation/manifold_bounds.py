"""Bounds of the step on manifolds, where neither metric nor friction can differ by direction."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import LONGEST_STEP, even_step, largest_square
from pymc_geodesic.adaptation.mass_matrix import MetricWindows
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Product

FEWEST_GRADIENTS = 10
"""Gradients that tell which direction is the stiffest."""


def points_of(product: Product) -> list[tuple[slice, int]]:
    """Place and dimension of each point that is not Euclidean, of half lines each number.

    Examples
    --------
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.adaptation.manifold_bounds import points_of
    >>> points_of(Product([("b", Euclidean(2), 1), ("mu", Sphere(3), 2)]))
    [(slice(2, 5, None), 2), (slice(5, 8, None), 2)]
    """
    points = []
    for name, manifold, _ in product.components:
        if manifold.is_flat:
            continue
        part = product.slices[name]
        width, dim = (manifold.size, manifold.dim) if manifold.is_constrained else (1, 1)
        points += [(slice(i, i + width), dim) for i in range(part.start, part.stop, width)]
    return points


def step_of_even_heat(points: Sequence[tuple[slice, int]], differences: np.ndarray) -> float:
    """Longest step at which the worst direction of no point is heated much; see `even_step`.

    Parameters
    ----------
    points
        See `points_of`.
    differences : ndarray, shape (n, size)
        See `pymc_geodesic.kernels.gradient_pairs.differences_of_pairs`.
    """
    longest = math.inf
    for part, dim in points:
        if dim > 1:
            here = differences[:, part]
            variance = 0.5 * float(np.mean(np.sum(here**2, axis=1))) / dim
            surplus = max(0.5 * largest_square(here) - variance, 0.0)
            longest = min(longest, even_step(variance, surplus))
    return longest


def stable_step(points: Sequence[tuple[slice, int]], gradients: np.ndarray) -> float:
    """Longest step that is short beside the stiffest direction of every point.

    Along a direction of curvature λ the mean square of the gradient is λ, and no metric softens it
    there.

    Parameters
    ----------
    points
        See `points_of`.
    gradients : ndarray, shape (n, size)
        Of the log-density at draws, multiplied by the length scales.
    """
    longest = math.inf
    for part, _ in points:
        stiffness = largest_square(gradients[:, part])
        longest = min(longest, LONGEST_STEP / math.sqrt(max(stiffness, 1.0)))
    return longest


def step_of_search(
    points: Sequence[tuple[slice, int]], windows: MetricWindows | None, gradient: AdaptedGradient
) -> float:
    """Longest step by the gradients that the search has met, infinite where they are few.

    Parameters
    ----------
    points
        See `points_of`.
    windows : MetricWindows or None
        What the search remembers.
    gradient : AdaptedGradient
        With the metric that the search has found.
    """
    if windows is None or len(windows) < FEWEST_GRADIENTS:
        return math.inf
    gradients, d = windows.gradients, gradient.n_euclidean
    gradients[:, d:] *= np.repeat(gradient.metric.lengths, gradient.widths)
    return stable_step(points, gradients)
