"""How much the variance of gradient noise differs from one place of a posterior to another."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.adaptation.langevin_parameters import LangevinSettings

UNSTEADY_HEAT = 0.1
"""Standard deviation over the posterior of the temperature that noise of one variance leaves there,
which is what steps are bounded by."""


class NoiseOverPlaces:
    r"""Mean over places of the variance of gradient noise, and its standard deviation over them.

    From n pairs of minibatches at a place, of which each has half the square s of its difference,

    .. math:: E[s] = b(x), \qquad E[s s'] = b(x)^2

    for two different pairs, however heavy the tails of the noise are. So that what differs between
    places is told from the chance of single pairs.

    Parameters
    ----------
    size : int

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.noise_variance import NoiseOverPlaces
    >>> rng = np.random.default_rng(1)
    >>> noise = NoiseOverPlaces(2)
    >>> variance = np.stack([np.ones(2000), rng.exponential(size=2000)], axis=-1)
    >>> noise.take(variance[:, np.newaxis] * rng.normal(size=(2000, 4, 2)) ** 2)
    >>> noise.mean.round(1).tolist(), noise.spread.round(1).tolist()
    ([1.0, 1.0], [0.0, 0.9])
    """

    def __init__(self, size: int) -> None:
        self.sums = np.zeros((5, size))
        self.n_places = self.n_pairs = 0

    def take(self, squares: np.ndarray) -> None:
        """Take in some places.

        Parameters
        ----------
        squares : ndarray, shape (n_places, n_pairs, size)
            Half the squared differences of two independent gradient estimates.
        """
        n = squares.shape[1]
        here = squares.mean(axis=1)
        products = np.zeros_like(here)
        if n > 1:
            products = ((n * here) ** 2 - (squares**2).sum(axis=1)) / (n * (n - 1))
        moments = (here, products, here**2, here * products, products**2)
        self.sums += [moment.sum(axis=0) for moment in moments]
        self.n_places += len(squares)
        self.n_pairs += len(squares) * n

    @property
    def mean(self) -> np.ndarray:
        """Mean variance, zero where nothing was measured."""
        return self.sums[0] / max(self.n_places, 1)

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of the variance over places, as far as it is beyond doubt."""
        if self.n_places < 2:
            return np.zeros(self.sums.shape[1])
        mean, product, square, mixed, of_products = self.sums / self.n_places
        variance = product - mean**2
        # what a place tells of it is p − 2 m s + m²; one standard error of its mean is taken off
        squares = of_products + 4.0 * mean**2 * square + mean**4
        squares += 2.0 * mean**2 * product - 4.0 * mean * mixed - 4.0 * mean**4
        error = np.sqrt(np.maximum(squares - variance**2, 0.0) / self.n_places)
        return np.sqrt(np.maximum(variance - error, 0.0))

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean variance.

        It is large beside the mean where few pairs make most of the noise, as along an indicator
        that few rows have.
        """
        if self.n_places < 2:
            return np.zeros(self.sums.shape[1])
        variance = self.sums[2] / self.n_places - self.mean**2
        return np.sqrt(np.maximum(variance, 0.0) / self.n_places)

    def __add__(self, other: NoiseOverPlaces) -> NoiseOverPlaces:
        both = NoiseOverPlaces(self.sums.shape[1])
        both.sums = self.sums + other.sums
        both.n_places = self.n_places + other.n_places
        both.n_pairs = self.n_pairs + other.n_pairs
        return both


def steady_step(variance: np.ndarray, spread: np.ndarray, friction: float) -> float:
    """Longest step at which noise of one variance everywhere heats no place much.

    With the friction γ + h b/2 a place where the variance is b + s is heated by
    h s / (2 γ + h b).

    Parameters
    ----------
    variance, spread : ndarray, shape (size,)
        Mean of b over the posterior and its standard deviation.
    friction : float
        γ.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.noise_variance import steady_step
    >>> steady_step(np.array([5.0]), np.array([0.5]), 1.0)
    inf
    >>> round(steady_step(np.array([5.0, 4.0]), np.array([0.5, 4.4]), 1.0), 3)
    0.05
    """
    beyond = float(np.max(spread - UNSTEADY_HEAT * variance, initial=0.0))
    return 2.0 * friction * UNSTEADY_HEAT / beyond if beyond > 0.0 else math.inf


def heat_in_doubt(settings: LangevinSettings, error: np.ndarray) -> np.ndarray:
    """Error of the temperature along each coordinate for noise that is known badly.

    Noise of variance b which is taken off, and is not there, cools by h b / (2 γ), without a
    momentum by h² b / 4.

    Parameters
    ----------
    settings : LangevinSettings
    error : ndarray, shape (size,)
        Standard error of the variance of the noise.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import langevin_settings
    >>> from pymc_geodesic.adaptation.noise_variance import heat_in_doubt
    >>> settings = langevin_settings(np.array([4.0, 1.0]))
    >>> heat_in_doubt(settings, np.array([0.4, 0.4])).round(2).tolist()
    [0.05, 0.08]
    """
    h, friction = settings.step_size, settings.friction
    heat_by_noise = 0.5 * h / friction if friction.any() else 0.25 * h * h
    return np.asarray(heat_by_noise * np.minimum(error, settings.noise))
