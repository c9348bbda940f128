"""Exact random directions, one at a time, for Numba to compile.

The formulas are those of `pymc_geodesic.distributions.draws`, which explains them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pymc_geodesic.distributions.draws import LENGTH_TOLERANCE, Array


class CompiledDraws(NamedTuple):
    """Compiled functions; see `compiled_draws`."""

    fill_uniform: Callable[..., None]
    fill_around_mean: Callable[..., None]
    fill_von_mises_fisher: Callable[..., None]


@cache
def compiled_draws(njit: Any) -> CompiledDraws:
    """Build the functions that fill an array with a direction.

    Parameters
    ----------
    njit : callable
        Decorator for every function, as `WithLoop.numba_loop` gets it.

    Returns
    -------
    CompiledDraws
        Functions of the generator, the parameters and the array to fill.
    """

    @njit
    def fill_uniform(rng: np.random.Generator, out: Array) -> None:
        """Fill ``out``, shape (d,), with a uniform direction."""
        squared = 0.0
        for i in range(out.size):
            normal = rng.standard_normal()
            out[i] = normal
            squared += normal * normal
        out /= np.sqrt(squared)

    @njit
    def circle_deficit(rng: np.random.Generator, kappa: float) -> tuple[float, float]:
        """Draw t, one minus the cosine to the mean direction, and the sine, for d = 2.

        The odds Z / (1 − Z) of Beta(1/2, 1/2) are the square of a Cauchy variable, a ratio of two
        normal ones, whose sign is the side of the mean direction. The logarithm of the acceptance
        probability lies above the parabola −x² / (2 (1 + min(x, 0))), which settles most proposals.
        """
        slope = 1.0 / (2.0 * kappa + np.sqrt(4.0 * kappa * kappa + 1.0))
        mode = 2.0 * slope / (1.0 + slope)
        width = np.sqrt(slope)
        while True:
            half_tangent = width * (rng.standard_normal() / rng.standard_normal())
            odds = half_tangent * half_tangent
            deficit = 2.0 * odds / (1.0 + odds)
            excess = kappa * (deficit - mode)
            limit = rng.standard_exponential()
            # An odds of infinity makes these comparisons fail, and the proposal is drawn again.
            if limit >= 0.5 * excess * excess / (1.0 + min(excess, 0.0)) or (
                limit >= excess - np.log1p(excess)
            ):
                return deficit, 2.0 * half_tangent / (1.0 + odds)

    @njit
    def deficit(rng: np.random.Generator, kappa: float, d: int) -> float:
        """Draw t, one minus the cosine to the mean direction, for d at least 3."""
        if d == 3:
            uniform = rng.random()
            if kappa == 0.0:
                return 2.0 * uniform
            return -np.log1p(uniform * np.expm1(-2.0 * kappa)) / kappa
        freedom = d - 1.0
        slope = freedom / (2.0 * kappa + np.sqrt(4.0 * kappa * kappa + freedom * freedom))
        mode = 2.0 * slope / (1.0 + slope)
        while True:
            odds = slope * rng.standard_gamma(freedom / 2.0) / rng.standard_gamma(freedom / 2.0)
            proposal = 2.0 * odds / (1.0 + odds)
            excess = kappa / freedom * (proposal - mode)
            if rng.standard_exponential() >= freedom * (excess - np.log1p(excess)):
                return proposal

    @njit
    def require_unit_vector(mu: Array) -> None:
        length = 0.0
        for i in range(mu.shape[0]):
            length += mu[i] * mu[i]
        if not np.abs(length - 1.0) <= 2.0 * LENGTH_TOLERANCE:
            raise ValueError("mu must hold unit vectors; divide each by its length")

    @njit
    def fill_around_mean(rng: np.random.Generator, mu: Array, t: float, out: Array) -> None:
        """Fill ``out``, shape (d,), with a direction at a deficit t around a mean."""
        require_unit_vector(mu)
        d = mu.shape[0]
        sign = 1.0 if mu[d - 1] >= 0.0 else -1.0
        squared = 0.0
        along = 0.0
        for i in range(d - 1):
            normal = rng.standard_normal()
            out[i] = normal
            squared += normal * normal
            along += normal * mu[i]
        scale = np.sqrt(t * (2.0 - t) / squared)
        # Householder reflection along normal = sign * mu + pole, for which nothing cancels.
        projection = sign * scale * along / (1.0 + np.abs(mu[d - 1])) + 1.0 - t
        for i in range(d - 1):
            out[i] = projection * mu[i] - sign * scale * out[i]
        out[d - 1] = projection * (mu[d - 1] + sign) - sign * (1.0 - t)

    @njit
    def fill_von_mises_fisher(
        rng: np.random.Generator, mu: Array, kappa: float, out: Array
    ) -> None:
        """Fill ``out``, shape (d,), with a draw around the unit vector ``mu``, shape (d,)."""
        if not (kappa >= 0.0 and kappa < np.inf):
            raise ValueError("kappa must be finite and at least 0")
        d = mu.shape[0]
        if d == 2:
            require_unit_vector(mu)
            t, sine = circle_deficit(rng, kappa)
            out[0] = (1.0 - t) * mu[0] - sine * mu[1]
            out[1] = (1.0 - t) * mu[1] + sine * mu[0]
            return
        fill_around_mean(rng, mu, deficit(rng, kappa, d), out)

    return CompiledDraws(fill_uniform, fill_around_mean, fill_von_mises_fisher)
