r"""Tests of the fit of a von Mises–Fisher distribution by its residuals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, stats

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.uniformity import DirectionalTestResult, gine_statistic
from pymc_geodesic.distributions.draws import draw_von_mises_fisher
from pymc_geodesic.distributions.special import (
    mean_resultant_length,
    mean_resultant_length_slope,
)
from pymc_geodesic.distributions.unit_points import unit_points

__all__ = ["VonMisesFisherResidualTest", "vmf_residual_test"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class VonMisesFisherResidualTest:
    """Tests of residuals around a fitted mean direction.

    Attributes
    ----------
    colatitude, longitude, two_variable : DirectionalTestResult
        Statistics and p-values.
    mu : ndarray, shape (d,)
        Fitted mean direction.
    kappa : float
        Fitted concentration.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import DirectionalTestResult, VonMisesFisherResidualTest
    >>> fine = DirectionalTestResult(0.8, 0.4)
    >>> VonMisesFisherResidualTest(fine, fine, fine, np.eye(3)[2], 4.0).longitude.pvalue
    0.4
    """

    colatitude: DirectionalTestResult
    longitude: DirectionalTestResult
    two_variable: DirectionalTestResult
    mu: Array
    kappa: float


def _fit(x: Array) -> tuple[Array, float]:
    """Return the maximum-likelihood mean direction and concentration."""
    d = x.shape[1]
    mean = x.mean(axis=0)
    length = float(np.linalg.norm(mean))
    kappa = length * (d - length**2) / max(1.0 - length**2, 1e-12)
    for _ in range(20):
        excess = float(mean_resultant_length(d, kappa)) - length
        kappa = max(kappa - excess / float(mean_resultant_length_slope(d, kappa)), 0.5 * kappa)
    return mean / length, kappa


def _colatitude_cdf(deficit: Array, kappa: float, d: int) -> Array:
    """Return the distribution function of 1 − μ·x."""
    if d == 3:
        return np.expm1(-kappa * deficit) / np.expm1(-2.0 * kappa)
    angle = 2.0 * np.arcsin(np.sqrt(np.clip(0.5 * deficit, 0.0, 1.0)))
    grid = np.linspace(0.0, min(np.pi, 1.2 * float(angle.max()) + 8.0 / np.sqrt(kappa + d)), 1001)
    log_density = -2.0 * kappa * np.sin(0.5 * grid) ** 2
    density = np.exp(log_density) * np.sin(grid) ** (d - 2)
    cumulative = integrate.cumulative_simpson(density, x=grid, initial=0.0)
    return np.interp(angle, grid, cumulative / cumulative[-1])


def _steps(uniform: Array) -> tuple[float, float]:
    """Return D⁺ and D⁻ of numbers that should be uniform."""
    ordered, n = np.sort(uniform), uniform.size
    ranks = np.arange(1, n + 1) / n
    return float(np.max(ranks - ordered)), float(np.max(ordered - ranks + 1.0 / n))


def _statistics(x: Array) -> tuple[float, float, float]:
    """Return the three statistics of a sample, fitted anew."""
    mu, kappa = _fit(x)
    n, d = x.shape
    root = np.sqrt(n)
    # The reflection that takes the pole to the mean: its own inverse.
    sign = 1.0 if mu[-1] >= 0.0 else -1.0
    normal = sign * mu + np.eye(d)[-1]
    turned = x - np.outer(x @ normal, normal) / (1.0 + abs(mu[-1]))
    turned *= -sign
    deficit = 0.5 * np.sum((x - mu) ** 2, axis=1)
    ahead, behind = _steps(_colatitude_cdf(deficit, kappa, d))
    colatitude = (max(ahead, behind) - 0.2 / n) * (root + 0.26 + 0.5 / root)
    across = turned[:, :-1]
    if d == 3:
        turn = np.arctan2(across[:, 1], across[:, 0]) / (2.0 * np.pi) % 1.0
        longitude = sum(_steps(turn)) * (root - 0.567 + 1.623 / root)
        side = np.arctan2(across[:, 0], turned[:, 2])
        product = side * np.sqrt(np.sqrt(np.clip(1.0 - across[:, 1] ** 2, 0.0, 1.0)))
        ahead, behind = _steps(stats.norm.cdf(product / np.sqrt(np.mean(product**2))))
        two_variable = max(ahead, behind) * (root - 0.01 + 0.85 / root)
        return colatitude, float(longitude), float(two_variable)
    tangent = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    weight = (deficit - deficit.mean()) / deficit.std()
    shape = (tangent.T * weight) @ tangent - np.eye(d - 1) * np.sum(weight) / (d - 1)
    return colatitude, gine_statistic(tangent), float(np.sum(shape**2)) / n


def vmf_residual_test(
    x: ArrayLike,
    *,
    n_resamples: int = 999,
    random_seed: int | np.random.Generator | None = None,
) -> VonMisesFisherResidualTest:
    r"""Test that directions are von Mises–Fisher, with mean and concentration fitted to them.

    Three tests look at the residuals around the fitted mean direction.

    - *Colatitude*: Kolmogorov's statistic of :math:`1 - \hat\mu \cdot x` against its exact law,
      :math:`(D_n - 0.2/n)(\sqrt n + 0.26 + 0.5/\sqrt n)`.
    - *Longitude*: for d = 3 Kuiper's statistic of uniform longitudes,
      :math:`V_n(\sqrt n - 0.567 + 1.623/\sqrt n)`; else Giné's F of the directions in the tangent
      space.
    - *Two variables*: for d = 3 Kolmogorov's statistic of
      :math:`\varphi'' (\sin \theta'')^{1/2}`, longitude and colatitude about an axis across the
      mean, against a normal law, :math:`D_n(\sqrt n - 0.01 + 0.85/\sqrt n)`; else the dependence of
      colatitude on the axis of the tangent direction, :math:`\tfrac1n \|\sum_i z_i (\xi_i
      \xi_i^\top - I / (d - 1))\|^2` with standardised colatitudes z.

    P-values come from samples of the fitted distribution, to which the fit is repeated.

    Parameters
    ----------
    x : array_like of float, shape (n, d)
        Unit vectors, d at least 3, n at least 5.
    n_resamples : int
        Number of simulated samples.
    random_seed : int or numpy.random.Generator, optional
        Of the simulation.

    Returns
    -------
    VonMisesFisherResidualTest

    Raises
    ------
    ValueError
        If rows are not unit vectors, too few, all the same, or have two coordinates.

    References
    ----------
    Fisher and Best (1984), Goodness-of-fit tests for Fisher's distribution on the sphere; Fisher,
    Lewis and Embleton (1987), *Statistical Analysis of Spherical Data*, section 5.3.2, for d = 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import vmf_residual_test
    >>> y = np.random.default_rng(1).normal(size=(60, 3)) * [2.0, 0.2, 0.2]  # a girdle's poles
    >>> x = y / np.linalg.norm(y, axis=1, keepdims=True)
    >>> vmf_residual_test(x, n_resamples=99, random_seed=1).colatitude.pvalue
    0.01
    """
    check_count("n_resamples", n_resamples)
    points = np.asarray(unit_points(x), dtype=float)
    n, d = points.shape
    if d < 3 or n < 5:
        raise ValueError(
            f"residuals need at least 5 points of at least 3 coordinates, got the shape {(n, d)}; "
            "for angles see uniformity_test"
        )
    if np.linalg.norm(points.mean(axis=0)) > 1.0 - 1e-12:
        raise ValueError("the points are all the same direction, so that there are no residuals")
    rng = np.random.default_rng(random_seed)
    mu, kappa = _fit(points)
    values = np.array(_statistics(points))
    larger = np.zeros(3)
    for _ in range(n_resamples):
        larger += np.array(_statistics(draw_von_mises_fisher(rng, mu, kappa, (n,)))) >= values
    results = [
        DirectionalTestResult(float(value), float((1.0 + count) / (1.0 + n_resamples)))
        for value, count in zip(values, larger, strict=True)
    ]
    return VonMisesFisherResidualTest(results[0], results[1], results[2], mu, kappa)
