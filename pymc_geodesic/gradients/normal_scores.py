r"""Normal scores: monotone changes of single coordinates, after which they are N(0, 1).

.. math:: x = F^{-1}(\Phi(z))

for the distribution function F of a coordinate x, as a cubic spline in z that is continued
linearly. They are for log scales that may be very small: the density decreases like the scale
itself, and a trajectory crosses little of this tail, because the gradient is small there. In z it
is the tail of a normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline, PchipInterpolator
from scipy.special import ndtri_exp

from pymc_geodesic.runtime.jit import part


@dataclass(frozen=True)
class NormalScoreSettings:
    """Constants of the splines.

    Attributes
    ----------
    n_intervals : int
        Number of cubic polynomials.
    n_subdivisions : int
        Number of points in each interval of the given ones at which the density is integrated.
    """

    n_intervals: int = 24
    n_subdivisions: int = 16


SETTINGS = NormalScoreSettings()


@dataclass(frozen=True, eq=False)
class NormalScores:
    """Cubic splines on equidistant knots, one for each of some coordinates.

    Attributes
    ----------
    grid : ndarray, shape (n, 2)
        First knot, and distance between knots.
    coefficients : ndarray, shape (n, n_intervals, 4)
        Of the powers 0 to 3 of the distance from the knot before z.
    """

    grid: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def join(cls, splines: list[NormalScores]) -> NormalScores:
        """Join the splines of several coordinates, or of none."""
        if not splines:
            return cls(np.empty((0, 2)), np.empty((0, SETTINGS.n_intervals, 4)))
        return cls(
            np.concatenate([each.grid for each in splines]),
            np.concatenate([each.coefficients for each in splines]),
        )


def normal_scores(x: np.ndarray, slopes: np.ndarray) -> NormalScores | None:
    """Compute the spline of one coordinate from derivatives of its log-density.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Increasing values of the coordinate.
    slopes : ndarray, shape (n,)
        Derivatives of the log-density there. The density is exponential beyond the first and last.

    Returns
    -------
    NormalScores or None
        None if a slope is not finite, the density does not decrease beyond the first and last
        value, or the spline is not finite or not monotone.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.gradients.normal_scores import normal_scores
    >>> x = np.linspace(-12.0, 12.0, 49)
    >>> scores = normal_scores(x, -(x - 1.0) / 4.0)  # N(1, 2²)
    >>> constant, linear, *_ = scores.coefficients[0, 12]
    >>> np.round([scores.grid[0, 0] + 12 * scores.grid[0, 1], constant, linear], 2)
    array([-0.5,  0. ,  2. ])
    """
    if len(x) < 3 or not np.isfinite(slopes).all() or not (slopes[0] > 0.0 > slopes[-1]):
        return None
    log_density = PchipInterpolator(x, slopes).antiderivative()
    share = np.linspace(0.0, 1.0, SETTINGS.n_subdivisions, endpoint=False)
    fine = np.append((x[:-1, np.newaxis] + np.diff(x)[:, np.newaxis] * share).ravel(), x[-1])
    values = log_density(fine)
    values -= values.max()
    parts = np.logaddexp(values[1:], values[:-1]) + np.log(0.5 * np.diff(fine))
    below = np.logaddexp.accumulate([values[0] - np.log(slopes[0]), *parts])
    above = np.logaddexp.accumulate([values[-1] - np.log(-slopes[-1]), *parts[::-1]])[::-1]
    total = np.logaddexp(below, above)  # includes no interval twice
    z = np.where(below < above, ndtri_exp(below - total), -ndtri_exp(above - total))
    knots = np.linspace(z[0], z[-1], SETTINGS.n_intervals + 1)
    if not (np.isfinite(z).all() and (np.diff(z) > 0.0).all()):
        return None
    positions = PchipInterpolator(z, fine)(knots)
    if not np.isfinite(positions).all():  # cubes of the largest scores overflow
        return None
    spline = CubicSpline(knots, positions, bc_type="natural")
    slope, extremes = spline.derivative(), spline.derivative(2).roots(extrapolate=False)
    if slope(np.concatenate([knots, extremes[np.isfinite(extremes)]])).min() <= 0.0:
        return None
    grid = np.array([[knots[0], knots[1] - knots[0]]])
    return NormalScores(grid, np.ascontiguousarray(spline.c[::-1].T)[np.newaxis])


@part
def from_score(grid: np.ndarray, coefficients: np.ndarray, z: float) -> tuple[float, float, float]:
    """Evaluate a spline.

    Parameters
    ----------
    grid : ndarray, shape (2,)
    coefficients : ndarray, shape (n_intervals, 4)
    z : float

    Returns
    -------
    x, slope, curvature : float
        Value and first and second derivatives.
    """
    last = coefficients.shape[0] - 1
    number, k = (z - grid[0]) / grid[1], 0  # k = 0 also for NaN
    if number >= last:
        k = last
    elif number > 0.0:
        k = int(number)
    a, b, c, d = coefficients[k, 0], coefficients[k, 1], coefficients[k, 2], coefficients[k, 3]
    h = z - (grid[0] + k * grid[1])
    inside = min(max(h, 0.0), grid[1])
    x = a + inside * (b + inside * (c + inside * d))
    slope = b + inside * (2.0 * c + 3.0 * inside * d)
    if number < 0.0 or number > last + 1:
        return x + slope * (h - inside), slope, 0.0
    return x + slope * (h - inside), slope, 2.0 * c + 6.0 * inside * d


@part
def to_score(grid: np.ndarray, coefficients: np.ndarray, x: float) -> float:
    """Invert a spline, by Newton steps within bounds."""
    n = coefficients.shape[0]
    low, high = grid[0], grid[0] + n * grid[1]
    at_low, slope_low, _ = from_score(grid, coefficients, low)
    if x <= at_low:
        return low + (x - at_low) / slope_low
    at_high, slope_high, _ = from_score(grid, coefficients, high)
    if x >= at_high:
        return high + (x - at_high) / slope_high
    z = 0.5 * (low + high)
    for _ in range(100):
        found, slope, _ = from_score(grid, coefficients, z)
        if found < x:
            low = z
        else:
            high = z
        new = z + (x - found) / slope
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - z) <= 1e-15 * (1.0 + abs(z)):
            return new
        z = new
    return z
