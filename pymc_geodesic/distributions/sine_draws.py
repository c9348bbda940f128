r"""Exact random pairs of angles of the bivariate von Mises distribution with sines.

With the means at zero, the second angle given the first, a, is von Mises with concentration
:math:`r(a) = \sqrt{\kappa_2^2 + \lambda^2 \sin^2 a}`, and the logarithm of the density of the
first is :math:`\kappa_1 \cos a + \log I_0(r(a))`. The logarithm of :math:`I_0(\sqrt z)` is
concave in z, so that its tangent bounds it: with :math:`\beta = \lambda^2 A(r_0) / (2 r_0)`,
A = I₁/I₀, up to a constant by :math:`h(a) = \kappa_1 \cos a + \beta \sin^2 a`, a parabola in the
cosine. Two von Mises envelopes lie above h:

- around zero, by a tangent in :math:`y = \sin^2(a/2)`, where
  :math:`h = \kappa_1 - (2\kappa_1 - 4\beta) y - 4\beta y^2`;
- around :math:`\pm a_0`, :math:`\cos a_0 = \kappa_1 / (2\beta)`, where h has its maxima if this is
  below one: :math:`h = h_0 - 4\beta \sin^2\frac{a - a_0}{2} \sin^2\frac{a + a_0}{2}
  \le h_0 - (\beta - \kappa_1 / 2)(1 - \cos(a - a_0))` for a in [0, π].

The angle with the smaller concentration is drawn first. Proposals are accepted with the ratio of
the density to the envelope, hence exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_geodesic.distributions.angle_draws import compiled_von_mises, draw_von_mises
from pymc_geodesic.distributions.angular import wrapped
from pymc_geodesic.ops.bessel import bessel_functions

Array = NDArray[np.float64]

N_ITERATIONS = 12
"""Of the fixed point for r₀; the envelope is one wherever they end."""

_NUMPY = bessel_functions(np.sqrt, np.log)


class Envelope(NamedTuple):
    """Logarithm of an envelope: height − concentration · (1 − cos(a − centre)), mirrored."""

    centre: Any
    concentration: Any
    height: Any


def _log_bessel(r: Any, log_normalizer: Callable[..., Any]) -> Any:
    """Return log I₀(r)."""
    return -log_normalizer(2.0, r) - math.log(2.0 * math.pi)


def envelopes(k1: Array, k2: Array, lam: Array) -> Envelope:
    """Build the better of the two envelopes for each pair; see the module.

    Parameters
    ----------
    k1, k2, lam : ndarray, shape (n,)
        Concentration of the angle that is drawn first, of the other, interaction.
    """
    squared = lam**2
    z = k2**2 + squared
    for _ in range(N_ITERATIONS):
        slope = _tangent_slope(z)
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = np.where(2.0 * squared * slope > k1, k1 / (2.0 * squared * slope), 1.0)
        z = k2**2 + squared * (1.0 - cosine**2)
    slope = _tangent_slope(z)
    beta = squared * slope
    offset = _log_bessel(np.sqrt(z), _NUMPY.log_normalizer) + slope * (k2**2 - z)
    positive = np.where(beta > 0.0, beta, 1.0)
    mode = np.where(beta > 0.0, np.maximum(0.5 - 0.25 * k1 / positive, 0.0), 0.0)
    narrow = np.maximum(k1 - 2.0 * beta, 1e-300)
    tangent = mode + np.where(
        beta > 0.0, np.minimum(1.0 / np.sqrt(8.0 * positive), 0.5 / narrow), 0.0
    )
    around_zero = k1 - 2.0 * beta + 4.0 * beta * tangent
    split = 4.0 * beta * mode**2 > 1.0
    cosine = np.where(split, 0.5 * k1 / positive, 1.0)
    return Envelope(
        np.where(split, np.arccos(np.minimum(cosine, 1.0)), 0.0),
        np.maximum(np.where(split, beta - 0.5 * k1, around_zero), 0.0),
        offset + np.where(split, 0.25 * k1**2 / positive + beta, k1 + 4.0 * beta * tangent**2),
    )


def _tangent_slope(z: Any) -> Any:
    """Return the derivative of log I₀(√z), A(r) / (2r), 1/4 at zero."""
    r = np.sqrt(np.maximum(z, 1e-300))
    return 0.5 * _NUMPY.mean_resultant_length(2.0, r) / r


def _first_angles(rng: np.random.Generator, k1: Array, k2: Array, lam: Array) -> tuple[Array, int]:
    """Draw the first angle of each pair; return also the number of proposals."""
    centre, concentration, height = envelopes(k1, k2, lam)
    angles = np.empty(k1.size)
    rows, proposals = np.arange(k1.size), 0
    while rows.size:
        proposals += rows.size
        side = np.where(rng.random(rows.size) < 0.5, -1.0, 1.0)
        away = draw_von_mises(rng, np.zeros(()), concentration[rows])
        proposal = wrapped(centre[rows] + away)
        r = np.sqrt(k2[rows] ** 2 + (lam[rows] * np.sin(proposal)) ** 2)
        target = k1[rows] * np.cos(proposal) + _log_bessel(r, _NUMPY.log_normalizer)
        bound = height[rows] - concentration[rows] * 2.0 * np.sin(0.5 * away) ** 2
        kept = -rng.standard_exponential(rows.size) <= target - bound
        kept &= (centre[rows] == 0.0) | (proposal >= 0.0)
        angles[rows[kept]] = (side * proposal)[kept]
        rows = rows[~kept]
    return angles, proposals


def draw_sine_bivariate(
    rng: np.random.Generator,
    mu: ArrayLike,
    kappa: ArrayLike,
    lam: ArrayLike,
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw pairs of angles exactly, all at once.

    Parameters
    ----------
    rng : numpy.random.Generator
    mu, kappa : array_like of float, shape (..., 2)
    lam : array_like of float, shape (...)
    size : tuple of int, optional
        Shape of the result without its last axis.

    Returns
    -------
    ndarray of float, shape (*size, 2)
        Angles in (−π, π].

    Raises
    ------
    ValueError
        If ``kappa`` is negative or a parameter is not finite.

    References
    ----------
    Singh, Hnizdo and Demchuk (2002), section 3, for the conditional law.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributions.sine_draws import draw_sine_bivariate
    >>> x = draw_sine_bivariate(np.random.default_rng(1), [0.0, 1.0], [1e6, 1e6], 0.0, (2,))
    >>> x.round(1) + 0.0
    array([[0., 1.], [0., 1.]])
    """
    means, kappas, lams = (np.asarray(each, dtype=float) for each in (mu, kappa, lam))
    if not (np.all(kappas >= 0) and np.all(np.isfinite(kappas)) and np.all(np.isfinite(lams))):
        raise ValueError("kappa must be finite and at least 0, lam finite")
    if size is None:
        size = np.broadcast_shapes(means.shape[:-1], kappas.shape[:-1], lams.shape)
    kappas = np.broadcast_to(kappas, (*size, 2)).reshape(-1, 2)
    lams = np.broadcast_to(lams, size).reshape(-1)
    first = np.argmin(kappas, axis=1)
    rows = np.arange(len(kappas))
    k1, k2 = kappas[rows, first], kappas[rows, 1 - first]
    angles = np.empty((len(kappas), 2))
    a, _ = _first_angles(rng, k1, k2, lams)
    pull = lams * np.sin(a)
    angles[rows, first] = a
    angles[rows, 1 - first] = draw_von_mises(rng, np.arctan2(pull, k2), np.hypot(k2, pull))
    return wrapped(means + angles.reshape(*size, 2))


@cache
def compiled_sine_pair(njit: Any) -> Callable[..., None]:
    """Build the function that fills an array with a pair of angles around zero.

    Parameters
    ----------
    njit : callable
        Decorator, as `WithLoop.numba_loop` gets it.

    Returns
    -------
    callable
        Of the generator, κ₁, κ₂, λ and the array to fill, shape (2,).
    """
    von_mises = compiled_von_mises(njit)
    bessel = bessel_functions(np.sqrt, np.log, njit(fastmath=False))
    log_normalizer, mean_length = bessel.log_normalizer, bessel.mean_resultant_length
    log_circle = math.log(2.0 * math.pi)

    @njit
    def tangent_slope(z: float) -> float:
        r = np.sqrt(max(z, 1e-300))
        return 0.5 * mean_length(2.0, r) / r

    @njit
    def envelope(k1: float, k2: float, lam: float) -> tuple[float, float, float]:
        squared = lam * lam
        z = k2 * k2 + squared
        for _ in range(N_ITERATIONS):
            steep = 2.0 * squared * tangent_slope(z)
            cosine = k1 / steep if steep > k1 else 1.0
            z = k2 * k2 + squared * (1.0 - cosine * cosine)
        slope = tangent_slope(z)
        beta = squared * slope
        offset = -log_normalizer(2.0, np.sqrt(z)) - log_circle + slope * (k2 * k2 - z)
        mode, tangent = 0.0, 0.0
        if beta > 0.0:
            mode = max(0.5 - 0.25 * k1 / beta, 0.0)
            narrow = max(k1 - 2.0 * beta, 1e-300)
            tangent = mode + min(1.0 / np.sqrt(8.0 * beta), 0.5 / narrow)
        if 4.0 * beta * mode * mode > 1.0:
            centre = np.arccos(0.5 * k1 / beta)
            return centre, beta - 0.5 * k1, offset + 0.25 * k1 * k1 / beta + beta
        concentration = max(k1 - 2.0 * beta + 4.0 * beta * tangent, 0.0)
        return 0.0, concentration, offset + k1 + 4.0 * beta * tangent * tangent

    @njit
    def fill_pair(rng: np.random.Generator, k1: float, k2: float, lam: float, out: Array) -> None:
        if not (k1 >= 0.0 and k2 >= 0.0 and k1 < np.inf and k2 < np.inf and np.isfinite(lam)):
            raise ValueError("kappa must be finite and at least 0, lam finite")
        first = 0 if k1 <= k2 else 1
        near, far = min(k1, k2), max(k1, k2)
        centre, concentration, height = envelope(near, far, lam)
        while True:
            side = -1.0 if rng.random() < 0.5 else 1.0
            away = von_mises(rng, 0.0, concentration)
            angle = np.pi - (np.pi - centre - away) % (2.0 * np.pi)
            pull = lam * np.sin(angle)
            r = np.sqrt(far * far + pull * pull)
            target = near * np.cos(angle) - log_normalizer(2.0, r) - log_circle
            bound = height - concentration * 2.0 * np.sin(0.5 * away) ** 2
            if -rng.standard_exponential() <= target - bound and (centre == 0.0 or angle >= 0.0):
                break
        pull *= side
        out[first] = side * angle
        out[1 - first] = von_mises(rng, np.arctan2(pull, far), r)

    return fill_pair
