"""Search for the centering point of the control variates, by Newton steps over all rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pymc_geodesic.adaptation.components import curved_variables
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import geodesic, project


@dataclass(frozen=True)
class CenteringSettings:
    """Constants of the search for a centering point.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    max_mean_square : float
        Maximum mean square of the whitened gradient at an accepted point. For a normal posterior it
        is the squared distance to the mode, per dimension, in posterior standard deviations.
    max_passes : int
        Maximum number of passes over all rows. In a logistic regression with 10⁷ rows one pass and
        one Newton step reduced the distance from 18 to 0.07 standard deviations.
    """

    max_mean_square: float = 0.25
    max_passes: int = 6


SETTINGS = CenteringSettings()


class CenteringPoint(NamedTuple):
    """Result of passes over all rows.

    Attributes
    ----------
    position, gradient : ndarray or None
        In the coordinates of the model; None if no gradient was finite.
    n_passes : int
    """

    position: np.ndarray | None
    gradient: np.ndarray | None
    n_passes: int


def newton_step(
    product: Product, metric: Metric, x: np.ndarray, gradient: np.ndarray
) -> tuple[float, np.ndarray]:
    """Compute the mean square of the whitened gradient at a point, and the Newton step.

    Parameters
    ----------
    product : Product
        Manifolds of the variables, Euclidean ones first.
    metric : Metric
        Metric whose L Lᵀ is used as the inverse of the Hessian.
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
    for (part, _), length in zip(curved_variables(product), metric.lengths, strict=True):
        total += float(length**2 * tangent[part] @ tangent[part])
        step[part] = length**2 * tangent[part]
    return total / product.dim, step


def find_center(
    gradient: AdaptedGradient,
    product: Product,
    x: np.ndarray,
    max_passes: int = SETTINGS.max_passes,
) -> CenteringPoint:
    """Find a point where the gradient over all rows is small, in a few Newton steps.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        Manifolds of the variables, Euclidean ones first.
    x : ndarray, shape (size,)
        Initial point, in the coordinates of the model.
    max_passes : int
        With 1 the result is ``x`` if the gradient is finite: the mean of draws is a better center
        than the mode, which may be far from the draws in hierarchical models.
    """
    x = x.copy()
    best = CenteringPoint(None, None, 0)
    mean_square = math.inf
    for n_passes in range(1, max_passes + 1):
        total = gradient.gradient_of_all_rows(x)
        new_square, step = newton_step(product, gradient.metric, x, total)
        if not math.isfinite(new_square) or new_square > mean_square:
            return best._replace(n_passes=n_passes)
        mean_square, best = new_square, CenteringPoint(x.copy(), total, n_passes)
        if mean_square <= SETTINGS.max_mean_square:
            break
        geodesic(product.blocks, x, step, 1.0)
    return best
