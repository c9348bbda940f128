r"""Gibbs sampling of the weights of support vector machines by data augmentation.

.. math:: e^{-2 b \max(0, u)} = \int_0^\infty \frac{1}{\sqrt{2 \pi \lambda}}
          \exp\Bigl(-\frac{(\lambda + b u)^2}{2 \lambda}\Bigr) d\lambda, \qquad
          u = \ell - y\, \eta \cdot x, \quad b = c / 2,

so that 1/λ given η is inverse Gaussian with mean 1/(b|u|) and shape 1, and η given λ is normal.

References
----------
N. G. Polson, S. L. Scott (2011), Data Augmentation for Support Vector Machines, section 2.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

SMALLEST_SCALE = 1e-12
"""Lower bound on λ: a precision c²/λ above 10¹² would exceed the others by more than rounding."""


def draw_scales(rng: np.random.Generator, slack: np.ndarray, cost: float) -> np.ndarray:
    r"""Draw λ given the slack, without cancellation if the slack is near zero.

    The method of Michael, Schucany and Haas for an inverse Gaussian variable, in terms of the
    inverse m = b|u| of its mean: :math:`\lambda_1 = m + \nu / 2 + \sqrt{\nu (\nu + 4 m)} / 2`
    with ν ~ χ²₁, or :math:`m^2 / \lambda_1` with probability :math:`m / (m + \lambda_1)`.

    Parameters
    ----------
    rng : numpy.random.Generator
    slack : ndarray, shape (...)
        u = ℓ − y η·x.
    cost : float
        c.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.hinge_augmentation import draw_scales
    >>> scales = draw_scales(np.random.default_rng(1), np.full(200_000, 4.0), 1.0)
    >>> bool(abs(scales.mean() - (1 + 0.5 * 4.0)) < 0.02)  # E λ = 1 + b|u|
    True
    """
    inverse_mean = 0.5 * cost * np.abs(slack)
    square = rng.standard_normal(slack.shape) ** 2
    root = inverse_mean + 0.5 * (square + np.sqrt(square * (square + 4.0 * inverse_mean)))
    root = np.maximum(root, SMALLEST_SCALE)
    is_other = rng.uniform(size=slack.shape) * (inverse_mean + root) < inverse_mean
    return np.maximum(np.where(is_other, inverse_mean**2 / root, root), SMALLEST_SCALE)


def draw_weights(
    rng: np.random.Generator,
    features: np.ndarray,
    signs: np.ndarray,
    scales: np.ndarray,
    *,
    cost: float,
    margin: float,
    prior_scale: float,
) -> np.ndarray:
    r"""Draw the weights of a classifier given λ.

    .. math:: \eta \sim N(\Sigma\, b \sum_d y_d \frac{\lambda_d + b \ell}{\lambda_d} x_d, \Sigma),
              \qquad \Sigma^{-1} = \tau^{-2} I + b^2 \sum_d x_d x_d^\top / \lambda_d

    Parameters
    ----------
    rng : numpy.random.Generator
    features : ndarray, shape (D, K)
    signs, scales : ndarray, shape (D,)
    cost, margin, prior_scale : float
        c, ℓ and τ.

    Returns
    -------
    ndarray, shape (K,)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.kernels.hinge_augmentation import draw_weights
    >>> rng = np.random.default_rng(1)
    >>> x, y = np.ones((1000, 1)), np.ones(1000)
    >>> weights = draw_weights(rng, x, y, np.ones(1000), cost=2.0, margin=1.0, prior_scale=1.0)
    >>> bool(abs(weights[0] - 2.0) < 0.2)  # b (λ + b ℓ) / b² = 2
    True
    """
    half = 0.5 * cost
    precision = half**2 * (features.T / scales) @ features
    precision[np.diag_indices(len(precision))] += prior_scale**-2.0
    lower = np.linalg.cholesky(precision)
    linear = half * features.T @ (signs * (1.0 + half * margin / scales))
    mean = cho_solve((lower, True), linear)
    noise = rng.standard_normal(len(mean))
    return mean + solve_triangular(lower, noise, lower=True, trans="T")
