r"""Tests of uniformity on the sphere: Rayleigh, Bingham and Giné."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from pymc_geodesic.arguments import check_count
from pymc_geodesic.distributions.validation import unit_points
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_uniform_directions

Array = NDArray[np.float64]

N_HARMONICS = 40
"""Degrees of spherical harmonics in the limit distribution of Giné's statistics; higher degrees
are replaced by their mean."""

BATCH_ENTRIES = 2**18
"""Approximate number of simulated entries in memory at a time."""


class DirectionalTestResult(NamedTuple):
    """Statistic and p-value of a test of directions.

    Attributes
    ----------
    statistic : float
    pvalue : float

    Examples
    --------
    >>> from pymc_geodesic.directional import DirectionalTestResult
    >>> statistic, pvalue = DirectionalTestResult(3.2, 0.36)
    >>> pvalue
    0.36
    """

    statistic: float
    pvalue: float


def in_batches(n: int, entries: int) -> Iterator[int]:
    """Yield batch sizes that sum to n, for samples with a number of entries each."""
    most = max(1, BATCH_ENTRIES // entries)
    for start in range(0, n, most):
        yield min(most, n - start)


def _rayleigh(x: Array) -> Array:
    """Return Rayleigh's statistic with Jupp's correction, for each sample of shape (n, d)."""
    n, d = x.shape[-2:]
    plain = d / n * np.sum(x.sum(axis=-2) ** 2, axis=-1)
    return (1.0 - 0.5 / n) * plain + plain**2 / (2.0 * n * (d + 2.0))


def _bingham(x: Array) -> Array:
    """Return Bingham's statistic with Jupp's correction, for each sample of shape (n, d)."""
    n, d = x.shape[-2:]
    scatter = np.swapaxes(x, -1, -2) @ x / n
    plain = 0.5 * n * d * (d + 2.0) * (np.sum(scatter**2, axis=(-2, -1)) - 1.0 / d)
    square = d * d + d + 2.0
    b0 = (2.0 * d * d + 3.0 * d + 4.0) / (6.0 * (d + 4.0))
    b1 = -(4.0 * d * d + 3.0 * d - 4.0) / (3.0 * (d + 4.0) * square)
    b2 = 4.0 * (d * d - 4.0) / (3.0 * (d + 4.0) * square * (square + 4.0))
    # The correction is not monotone; the statistic is capped at its maximum, far in the tail.
    largest = (np.sqrt(b1 * b1 + 3.0 * b2 * (n - b0)) - b1) / (3.0 * b2) if b2 else np.inf
    plain = np.minimum(plain, largest)
    return plain * (1.0 - (b0 + b1 * plain + b2 * plain**2) / n)


def _kernels(angle: Array, d: int) -> tuple[Array, Array]:
    """Return the kernels of Giné's G and of four times Ajne's A."""
    ratio = np.exp(special.gammaln(0.5 * (d - 1)) - special.gammaln(0.5 * d))
    return 0.5 - 0.25 * (d - 1) * ratio**2 * np.sin(angle), 1.0 - 2.0 / np.pi * angle


def gine_statistic(x: Array, antipodal: bool = False) -> Array:
    """Return Giné's F, or G if x and −x are equivalent, for each sample of shape (n, d)."""
    n, d = x.shape[-2:]
    angle = np.arccos(np.clip(x @ np.swapaxes(x, -1, -2), -1.0, 1.0))
    angle[..., np.arange(n), np.arange(n)] = 0.0
    even, odd = _kernels(angle, d)
    return (even if antipodal else even + odd).sum(axis=(-2, -1)) / n


class _LimitDistribution(NamedTuple):
    """Weighted sum of independent chi-squared variables, plus a constant."""

    weights: Array
    freedom: Array
    constant: float


@lru_cache(maxsize=64)
def _limit_distribution(d: int, antipodal: bool) -> _LimitDistribution:
    """Return the limit distribution of Giné's statistics.

    The weights are the eigenvalues of the kernel by the Funk–Hecke formula, one for the spherical
    harmonics of each degree.
    """
    nodes, weights = np.polynomial.legendre.leggauss(600)
    angle = 0.5 * np.pi * (nodes + 1.0)
    weights = weights * np.sin(angle) ** (d - 2)
    weights /= weights.sum()
    even, odd = _kernels(angle, d)
    kernel, total = (even, 0.5) if antipodal else (even + odd, 1.5)
    degree = np.arange(1, N_HARMONICS + 1)
    if d == 2:
        harmonics = np.cos(degree[:, None] * angle)
    else:
        order = 0.5 * d - 1.0
        harmonics = special.eval_gegenbauer(degree[:, None], order, np.cos(angle))
        harmonics /= special.eval_gegenbauer(degree, order, 1.0)[:, None]
    eigenvalues = np.maximum(harmonics @ (weights * kernel), 0.0)
    count = special.binom(d + degree - 1, degree) - np.where(
        degree > 1, special.binom(d + degree - 3, np.maximum(degree - 2, 0)), 0.0
    )
    seen = eigenvalues > 1e-15
    return _LimitDistribution(
        eigenvalues[seen], count[seen], total - float(np.sum((count * eigenvalues)[seen]))
    )


def _survival_function(value: float, limit: _LimitDistribution) -> float:
    """Return the probability of more than `value`, with a small relative error in the tail.

    It is the integral of M(s) exp(−s v) / (2πi s), with the moment generating function M, along a
    line or a parabola through the saddle point between the pole at zero and the singularities of
    M. The parabola passes around them, and the integrand decays along it also for large v.
    """
    weights, freedom, constant = limit
    rest = value - constant
    if rest <= 0.0:
        return 1.0
    edge = 0.5 / weights.max()

    def slope(s: float) -> float:
        return float(np.sum(freedom * weights / (1.0 - 2.0 * weights * s))) - 1.0 / s - rest

    saddle = optimize.brentq(slope, 1e-12 * edge, (1.0 - 1e-12) * edge, xtol=1e-14 * edge)
    curvature = np.sum(freedom * 2.0 * (weights / (1.0 - 2.0 * weights * saddle)) ** 2)
    width = 1.0 / np.sqrt(curvature + 1.0 / saddle**2)
    t = np.linspace(-9.0, 9.0, 1201)
    up = width * np.sinh(t)
    bend = 0.5 / (edge - saddle) if rest > np.sum(freedom * weights) else 0.0
    s = saddle + 1j * up + bend * up**2
    ds = width * np.cosh(t) * (1j + 2.0 * bend * up)
    away = -2.0 * weights * s[:, None]
    # NumPy's log1p of small complex numbers is inaccurate.
    log_length = 0.5 * np.log1p(2.0 * away.real + away.real**2 + away.imag**2)
    log_moment = -0.5 * (log_length + 1j * np.arctan2(away.imag, 1.0 + away.real)) @ freedom
    integral = np.sum(np.exp(log_moment - s * rest) / s * ds) * (t[1] - t[0])
    return float(np.clip(integral.imag / (2.0 * np.pi), 0.0, 1.0))


_STATISTICS: dict[str, Callable[[Array], Array]] = {
    "rayleigh": _rayleigh,
    "bingham": _bingham,
    "gine": gine_statistic,
    "gine_gn": lambda x: gine_statistic(x, antipodal=True),
}


def uniformity_test(
    x: ArrayLike,
    test: Literal["rayleigh", "bingham", "gine", "gine_gn"] = "rayleigh",
    *,
    method: Literal["asymptotic", "monte-carlo"] = "asymptotic",
    n_resamples: int = 999,
    random_seed: int | np.random.Generator | None = None,
) -> DirectionalTestResult:
    r"""Test that directions are uniform on the sphere :math:`S^{d-1}`.

    With the mean resultant length :math:`\bar R` and the scatter matrix
    :math:`T = \tfrac1n \sum x x^\top`,

    .. math::

        S_{\text{Rayleigh}} = n d \bar R^2, \qquad
        S_{\text{Bingham}} = \tfrac12 n d (d + 2) \{\operatorname{tr} T^2 - \tfrac1d\},

    both with Jupp's corrections, after which :math:`\chi^2` with d and (d − 1)(d + 2)/2 degrees of
    freedom is exact to order 1/n². Giné's statistics sum kernels of the angles ψ between all pairs,

    .. math::

        G_n = \frac n2 - \frac{d - 1}{2n}
            \Bigl\{\frac{\Gamma(\frac{d-1}{2})}{\Gamma(\frac d2)}\Bigr\}^2
            \sum_{i<j} \sin \psi_{ij}, \qquad
        F_n = G_n + n - \frac{4}{n\pi} \sum_{i<j} \psi_{ij} .

    Parameters
    ----------
    x : array_like of float, shape (n, d)
        Unit vectors.
    test : {"rayleigh", "bingham", "gine", "gine_gn"}
        Powerful against a mean direction (``"rayleigh"``), a preferred axis or plane
        (``"bingham"``), all alternatives (``"gine"``, F), or all antipodally symmetric ones
        (``"gine_gn"``, G).
    method : {"asymptotic", "monte-carlo"}
        Limit distribution, or simulation of uniform samples, which is exact for every n.
    n_resamples : int
        Number of simulated samples.
    random_seed : int or numpy.random.Generator, optional
        Seed of the simulation.

    Returns
    -------
    DirectionalTestResult
        ``statistic`` and ``pvalue``.

    Raises
    ------
    ValueError
        If rows are not unit vectors, there are fewer than two, or an argument is invalid.

    Notes
    -----
    Giné's statistics take memory and time proportional to n².

    References
    ----------
    Jupp (2001), Modifications of the Rayleigh and Bingham tests for uniformity of directions;
    Giné (1975), Invariant tests for uniformity on compact Riemannian manifolds based on Sobolev
    norms; Prentice (1978), On invariant tests of uniformity for directions and orientations.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import uniformity_test
    >>> axes = np.concatenate([np.eye(3), -np.eye(3)])  # balanced
    >>> result = uniformity_test(axes, "gine")
    >>> result.pvalue > 0.9
    True
    """
    if test not in _STATISTICS:
        raise ValueError(f"test={test!r} is unknown; choose one of {', '.join(_STATISTICS)}")
    if method not in ("asymptotic", "monte-carlo"):
        raise ValueError(f'method={method!r} is unknown; choose "asymptotic" or "monte-carlo"')
    check_count("n_resamples", n_resamples)
    points = np.asarray(unit_points(x), dtype=float)
    n, d = points.shape
    if n < 2:
        raise ValueError(f"a test of uniformity needs at least 2 points, got {n}")
    statistic = _STATISTICS[test]
    value = float(statistic(points))
    if method == "monte-carlo":
        rng = np.random.default_rng(random_seed)
        larger = sum(
            int(np.sum(statistic(draw_uniform_directions(rng, (m, n, d))) >= value))
            for m in in_batches(n_resamples, n * max(n, d))
        )
        return DirectionalTestResult(value, (1.0 + larger) / (1.0 + n_resamples))
    if test == "rayleigh":
        return DirectionalTestResult(value, float(stats.chi2.sf(value, d)))
    if test == "bingham":
        return DirectionalTestResult(value, float(stats.chi2.sf(value, (d - 1) * (d + 2) / 2)))
    return DirectionalTestResult(
        value, _survival_function(value, _limit_distribution(d, test == "gine_gn"))
    )
