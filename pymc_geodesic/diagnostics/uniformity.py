r"""Tests of uniformity on the sphere: Rayleigh, Bingham and Giné."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, special, stats

from pymc_geodesic.arguments import check_count
from pymc_geodesic.distributions.draws import draw_uniform_directions
from pymc_geodesic.distributions.unit_points import unit_points

__all__ = ["DirectionalTestResult", "gine_statistic", "uniformity_test"]

Array = NDArray[np.float64]
N_HARMONICS = 40
"""Degrees of spherical harmonics in the limit law of Giné's statistics; the rest is its mean."""


class DirectionalTestResult(NamedTuple):
    """Result of a test.

    Attributes
    ----------
    statistic : float
    pvalue : float

    Examples
    --------
    >>> from pymc_geodesic.diagnostics import DirectionalTestResult
    >>> statistic, pvalue = DirectionalTestResult(3.2, 0.36)
    >>> pvalue
    0.36
    """

    statistic: float
    pvalue: float


def _rayleigh(x: Array) -> float:
    """Return Rayleigh's statistic with Jupp's correction."""
    n, d = x.shape
    plain = d / n * float(np.sum(x.sum(axis=0) ** 2))
    return (1.0 - 0.5 / n) * plain + plain**2 / (2.0 * n * (d + 2.0))


def _bingham(x: Array) -> float:
    """Return Bingham's statistic with Jupp's correction."""
    n, d = x.shape
    scatter = x.T @ x / n
    plain = 0.5 * n * d * (d + 2.0) * (float(np.sum(scatter**2)) - 1.0 / d)
    square = d * d + d + 2.0
    b0 = (2.0 * d * d + 3.0 * d + 4.0) / (6.0 * (d + 4.0))
    b1 = -(4.0 * d * d + 3.0 * d - 4.0) / (3.0 * (d + 4.0) * square)
    b2 = 4.0 * (d * d - 4.0) / (3.0 * (d + 4.0) * square * (square + 4.0))
    return plain * (1.0 - (b0 + b1 * plain + b2 * plain**2) / n)


def _kernels(angle: Array, d: int) -> tuple[Array, Array]:
    """Return the kernels of Giné's G and of four times Ajne's A."""
    ratio = np.exp(special.gammaln(0.5 * (d - 1)) - special.gammaln(0.5 * d))
    return 0.5 - 0.25 * (d - 1) * ratio**2 * np.sin(angle), 1.0 - 2.0 / np.pi * angle


def gine_statistic(x: Array, antipodal: bool = False) -> float:
    """Return Giné's F, or G, which sees x and −x as the same."""
    n, d = x.shape
    angle = np.arccos(np.clip(x @ x.T, -1.0, 1.0))
    angle[np.diag_indices(n)] = 0.0
    even, odd = _kernels(angle, d)
    return float((even if antipodal else even + odd).sum()) / n


def _gine_tail(value: float, d: int, antipodal: bool) -> float:
    """Return the limit of the tail probability by Imhof's integral."""
    nodes, weights = np.polynomial.legendre.leggauss(600)
    angle = 0.5 * np.pi * (nodes + 1.0)
    weights = weights * np.sin(angle) ** (d - 2)
    weights /= weights.sum()
    even, odd = _kernels(angle, d)
    kernel, total = (even, 0.5) if antipodal else (even + odd, 1.5)
    degree = np.arange(1, N_HARMONICS + 1)
    order = 0.5 * d - 1.0
    if d == 2:
        harmonics = np.cos(degree[:, None] * angle)
    else:
        harmonics = special.eval_gegenbauer(degree[:, None], order, np.cos(angle))
        harmonics /= special.eval_gegenbauer(degree, order, 1.0)[:, None]
    eigenvalues = np.maximum(harmonics @ (weights * kernel), 0.0)
    count = special.binom(d + degree - 1, degree) - np.where(
        degree > 1, special.binom(d + degree - 3, np.maximum(degree - 2, 0)), 0.0
    )
    remaining = value - (total - np.sum(count * eigenvalues))

    def integrand(u: float) -> float:
        phase = 0.5 * np.sum(count * np.arctan(eigenvalues * u)) - 0.5 * remaining * u
        damping = 0.25 * np.sum(count * np.log1p((eigenvalues * u) ** 2))
        return float(np.sin(phase) * np.exp(-damping) / u)

    # The damping is e^−0.25 Σ count log(1 + λ²u²): nothing is left beyond the last of these.
    ends = np.array([0.0, 2.0, 8.0, 30.0, 100.0, 300.0, 1000.0])
    parts = [
        integrate.quad(integrand, a or 1e-12, b, limit=400, epsabs=1e-9)[0]
        for a, b in pairwise(ends)
    ]
    return float(np.clip(0.5 + sum(parts) / np.pi, 0.0, 1.0))


_STATISTICS: dict[str, Any] = {
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
        ``"rayleigh"`` sees a mean direction, ``"bingham"`` axes, ``"gine"`` (F) every departure,
        ``"gine_gn"`` (G) every departure that is the same at x and −x.
    method : {"asymptotic", "monte-carlo"}
        Limit law, or simulation of uniform samples, which is exact for every n.
    n_resamples : int
        Number of simulated samples.
    random_seed : int or numpy.random.Generator, optional
        Of the simulation.

    Returns
    -------
    DirectionalTestResult
        ``statistic`` and ``pvalue``.

    Raises
    ------
    ValueError
        If rows are not unit vectors, there are fewer than two, or an argument is unknown.

    Notes
    -----
    Giné's statistics take memory and time of n².

    References
    ----------
    Jupp (2001), Modifications of the Rayleigh and Bingham tests for uniformity of directions;
    Giné (1975), Invariant tests for uniformity on compact Riemannian manifolds based on Sobolev
    norms; Prentice (1978), On invariant tests of uniformity for directions and orientations.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import uniformity_test
    >>> axes = np.concatenate([np.eye(3), -np.eye(3)])  # far apart, and balanced
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
            statistic(draw_uniform_directions(rng, (n, d))) >= value for _ in range(n_resamples)
        )
        return DirectionalTestResult(value, (1.0 + larger) / (1.0 + n_resamples))
    if test == "rayleigh":
        return DirectionalTestResult(value, float(stats.chi2.sf(value, d)))
    if test == "bingham":
        return DirectionalTestResult(value, float(stats.chi2.sf(value, (d - 1) * (d + 2) / 2)))
    return DirectionalTestResult(value, _gine_tail(value, d, test == "gine_gn"))
