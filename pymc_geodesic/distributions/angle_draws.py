"""Exact random angles in NumPy and, one at a time, for Numba to compile."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_geodesic.distributions.angular import wrapped
from pymc_geodesic.distributions.compiled_draws import compiled_draws
from pymc_geodesic.distributions.draws import draw_von_mises_fisher

Array = NDArray[np.float64]


def draw_von_mises(
    rng: np.random.Generator,
    mu: NDArray[np.floating],
    kappa: NDArray[np.floating],
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw von Mises angles in (−π, π]; see `draw_von_mises_fisher` of the circle."""
    if not np.all(np.isfinite(mu)):
        raise ValueError("mu must be finite")
    x = draw_von_mises_fisher(rng, np.array([1.0, 0.0]), kappa, _size(size, mu, kappa))
    return wrapped(mu + np.arctan2(x[..., 1], x[..., 0]))


def draw_wrapped_cauchy(
    rng: np.random.Generator,
    mu: NDArray[np.floating],
    rho: NDArray[np.floating],
    size: tuple[int, ...] | None = None,
) -> Array:
    """Draw wrapped Cauchy angles in (−π, π], uniform ones moved by a Möbius map."""
    if not np.all((rho >= 0) & (rho < 1)):
        raise ValueError("rho must be at least 0 and below 1")
    uniform = rng.random(_size(size, mu, rho)) - 0.5
    return wrapped(mu + 2.0 * np.arctan((1.0 - rho) / (1.0 + rho) * np.tan(np.pi * uniform)))


def _size(size: tuple[int, ...] | None, *parameters: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(each) for each in parameters)) if size is None else size


@cache
def compiled_von_mises(njit: Any) -> Callable[..., float]:
    """Build the function that draws a von Mises angle from the generator, μ and κ."""
    fill_von_mises_fisher = compiled_draws(njit).fill_von_mises_fisher

    @njit
    def von_mises(rng: np.random.Generator, mu: float, kappa: float) -> float:
        pole = np.array([1.0, 0.0])
        out = np.empty(2)
        fill_von_mises_fisher(rng, pole, kappa, out)
        return np.pi - (np.pi - mu - np.arctan2(out[1], out[0])) % (2.0 * np.pi)

    return von_mises
