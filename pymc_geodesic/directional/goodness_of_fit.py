"""A test that directions or frames come from a distribution, by its gradient alone."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.stein.discrepancy import p_value_of, statistics_of
from pymc_geodesic.diagnostics.stein.sample import (
    SteinSample,
    Units,
    median_distance,
    tangent_fields,
)
from pymc_geodesic.directional.uniformity import DirectionalTestResult
from pymc_geodesic.distributions.frames import are_frames
from pymc_geodesic.distributions.unit_points import unit_points
from pymc_geodesic.gradients.point_law import PointLaw
from pymc_geodesic.manifolds import Manifold, Product, Sphere

METHODS = ("bootstrap", "monte-carlo")

NO_UNITS = Units(np.empty(0), np.eye(0), np.ones(1), None)


def stein_test(
    x: ArrayLike,
    distribution: Any,
    *,
    method: Literal["bootstrap", "monte-carlo"] = "bootstrap",
    bandwidth: float | Literal["median"] = "median",
    beta: float = -0.5,
    n_resamples: int = 999,
    random_seed: int | np.random.Generator | None = None,
) -> DirectionalTestResult:
    r"""Test that independent directions, or frames, come from a distribution.

    The statistic is the kernel Stein discrepancy of `ksd`, without the pairs of a point and itself,

    .. math::

        T = \frac{1}{n (n - 1)} \sum_{i \ne j} k_p(x_i, x_j) ,

    whose kernel k_p knows the density p by the gradient of its logarithm: its constant plays no
    part. The mean of T is zero where the points come from p, and positive for any other law with a
    density. Unlike `uniformity_test` and `vmf_residual_test` it takes every distribution of this
    package on a sphere or on frames.

    Parameters
    ----------
    x : array_like of float, shape (n, d) or (n, m, p)
        Unit vectors, or matrices with orthonormal columns; n at least 5.
    distribution : TensorVariable, shape (d,) or (m, p)
        The law of one point, as ``Kent.dist(...)`` makes it. Its parameters are numbers that have
        not been fitted to x: after a fit the test seldom rejects.
    method : {"bootstrap", "monte-carlo"}
        P-value from a wild bootstrap, which needs no draws and holds for many points, or from
        samples of the distribution, which is exact for any n and takes `n_resamples` times as
        long as the statistic.
    bandwidth : float or "median"
        ℓ of the kernel, a chordal distance; by default the median distance of the points.
    beta : float
        β of the kernel, between −1 and 0.
    n_resamples : int
        Number of repetitions.
    random_seed : int or numpy.random.Generator, optional
        Of the repetitions.

    Returns
    -------
    DirectionalTestResult
        ``statistic`` and ``pvalue``.

    Raises
    ------
    TypeError
        If the distribution is not one of directions or frames.
    ValueError
        If points are not on the manifold, too few or of another shape, an argument is unknown, the
        parameters of the distribution are random, or a gradient is not finite.

    References
    ----------
    Xu and Matsuda (2021), Interpretable Stein goodness-of-fit tests on Riemannian manifolds,
    section 3; Chwialkowski, Strathmann and Gretton (2016), A kernel test of goodness of fit.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic import Watson
    >>> from pymc_geodesic.directional import stein_test
    >>> axes = Watson.dist([0.0, 0.0, 1.0], 5.0)
    >>> x = pm.draw(axes, draws=100, random_seed=1)
    >>> girdle = Watson.dist([0.0, 0.0, 1.0], -5.0)
    >>> stein_test(x, axes, random_seed=1).pvalue > 0.05
    True
    >>> stein_test(x, girdle, random_seed=1).pvalue < 0.01
    True
    """
    return SteinTest(PointLaw(distribution))(x, method, bandwidth, beta, n_resamples, random_seed)


class SteinTest:
    """The test against one law; see `stein_test`."""

    def __init__(self, law: PointLaw) -> None:
        self._law = law
        self._product = Product([("x", law.manifold, 1)])

    def __call__(
        self,
        x: ArrayLike,
        method: str,
        bandwidth: float | str,
        beta: float,
        n_resamples: int,
        random_seed: int | np.random.Generator | None,
    ) -> DirectionalTestResult:
        """Return statistic and p-value."""
        if method not in METHODS:
            raise ValueError(f'method={method!r} is unknown; choose "bootstrap" or "monte-carlo"')
        check_count("n_resamples", n_resamples)
        if not -1.0 < beta < 0.0:
            raise ValueError(f"beta must lie between -1 and 0, got {beta}")
        if bandwidth != "median" and not 0.0 < float(bandwidth) < np.inf:
            raise ValueError(f'bandwidth must be a positive number or "median", got {bandwidth!r}')
        points = _points(x, self._law.manifold)
        rng = np.random.default_rng(random_seed)
        if method == "bootstrap":
            weights = rng.standard_normal((len(points), n_resamples))
            value, repeated = self._statistics(points, bandwidth, beta, weights)
        else:
            no_weights = np.empty((len(points), 0))
            samples = self._law.draws(len(points), n_resamples, rng)
            value, *others = (
                self._statistics(each, bandwidth, beta, no_weights)[0]
                for each in (points, *samples)
            )
            repeated = np.array(others)
        return DirectionalTestResult(value, p_value_of(value, repeated))

    def _statistics(
        self, points: np.ndarray, bandwidth: float | str, beta: float, weights: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the statistic of points, and with each column of weights."""
        gradients = self._law.gradient(points)
        if not np.isfinite(gradients).all():
            raise ValueError(
                "the gradient of the log-density is not finite at some of the points, which the "
                "distribution cannot have made"
            )
        n, product = len(points), self._product
        positions = np.ascontiguousarray(points.reshape(n, -1))
        if bandwidth == "median":
            bandwidth = median_distance(product, NO_UNITS, positions)
        sample = SteinSample(
            product,
            NO_UNITS,
            positions,
            tangent_fields(product, positions, gradients.reshape(n, -1)),
            np.full(n, np.nan),
            float(bandwidth),
            beta,
            np.zeros(n, dtype=np.int64),
            np.arange(n),
            [],
            1,
        )
        return statistics_of(sample, weights, "U")


def _points(x: ArrayLike, manifold: Manifold) -> np.ndarray:
    """Check the points; return them in an array of float64."""
    points = np.asarray(x, dtype=float)
    if points.shape[1:] != manifold.shape or len(points) < 5:
        raise ValueError(
            f"x must hold at least 5 points of shape {manifold.shape}, as the distribution has "
            f"them, got an array of shape {points.shape}"
        )
    if isinstance(manifold, Sphere):
        return np.asarray(unit_points(points), dtype=float)
    wrong = ~are_frames(points)
    if wrong.any():
        raise ValueError(
            f"{wrong.sum()} of the {len(points)} points have columns that are not orthonormal, the "
            f"first of them x[{int(np.argmax(wrong))}]; np.linalg.qr(x).Q gives bases that are"
        )
    return points
