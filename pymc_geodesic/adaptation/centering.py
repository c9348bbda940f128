"""Looking for an anchor: a place near the mode at which the gradient of all rows is known."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.adaptation.trajectories import compact_parts
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import geodesic, project

LARGEST_SLOPE = 0.25
"""Mean square of the whitened gradient at an anchor, above which the anchor moves."""

MOST_PASSES = 6


class Anchor(NamedTuple):
    """Where passes over all rows ended.

    Attributes
    ----------
    place, gradient : ndarray or None
        None if the gradient was finite nowhere.
    n_passes : int
    """

    place: np.ndarray | None
    gradient: np.ndarray | None
    n_passes: int


def newton_step(
    product: Product, metric: Metric, x: np.ndarray, gradient: np.ndarray
) -> tuple[float, np.ndarray]:
    """Mean square of the whitened gradient at a place, and the Newton step from there.

    Parameters
    ----------
    product : Product
        The variables of the model, Euclidean ones first.
    metric : Metric
        Its L Lᵀ stands for the inverse of the Hessian.
    x, gradient : ndarray, shape (size,)
        In the coordinates of the model.
    """
    tangent = gradient.copy()
    project(product.blocks, x, tangent)
    step = np.empty_like(x)
    d = metric.center.size
    whitened = metric.to_gradient(tangent[:d])
    step[:d] = metric.to_direction(whitened)
    total = float(whitened @ whitened)
    for (part, _), length in zip(compact_parts(product), metric.lengths, strict=True):
        total += float(length**2 * tangent[part] @ tangent[part])
        step[part] = length**2 * tangent[part]
    return total / product.dim, step


def passes_to_anchor(
    gradient: AdaptedGradient, product: Product, x: np.ndarray, most_passes: int = MOST_PASSES
) -> Anchor:
    """Go to where the gradient of all rows is small, in a few Newton steps.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables of the model, Euclidean ones first.
    x : ndarray, shape (size,)
        Where to begin, in the coordinates of the model.
    most_passes : int
        With one the anchor is there, whatever the gradient says: the mean of draws is a better
        place than a mode, which may lie far from them where scales are variables.
    """
    x = x.copy()
    best = Anchor(None, None, 0)
    slope = math.inf
    for n_passes in range(1, most_passes + 1):
        total = gradient.gradient_of_all_rows(x)
        new_slope, step = newton_step(product, gradient.metric, x, total)
        if not math.isfinite(new_slope) or new_slope > slope:
            return best._replace(n_passes=n_passes)
        slope, best = new_slope, Anchor(x.copy(), total, n_passes)
        if slope <= LARGEST_SLOPE:
            break
        geodesic(product.blocks, x, step, 1.0)
    return best
