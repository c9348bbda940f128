"""Variance of gradient noise: mean and standard deviation over points of the posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np


@dataclass
class NoiseVariance:
    r"""Moments of the variance of gradient noise over points of the posterior.

    For n pairs of minibatches at a point, with s half the squared difference of a pair,

    .. math:: E[s] = b(x), \qquad E[s s'] = b(x)^2

    for two different pairs, also if the noise has heavy tails. This separates the variance of b
    over points from the sampling error of single pairs.

    Attributes
    ----------
    sums : ndarray, shape (5, size)
        Sums over points of s̄, p, s̄², s̄ p and p², where s̄ is the mean of s over the pairs of a point
        and p the mean of s s′ over its different pairs, zero for a single pair.
    n_points, n_pairs : int

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.noise_variance import NoiseVariance
    >>> rng = np.random.default_rng(1)
    >>> noise = NoiseVariance.empty(2)
    >>> variance = np.stack([np.ones(2000), rng.exponential(size=2000)], axis=-1)
    >>> noise.add(variance[:, np.newaxis] * rng.normal(size=(2000, 4, 2)) ** 2)
    >>> noise.mean.round(1).tolist(), noise.sd.round(1).tolist()
    ([1.0, 1.0], [0.0, 0.9])
    """

    sums: np.ndarray
    n_points: int = 0
    n_pairs: int = 0

    @classmethod
    def empty(cls, size: int) -> Self:
        """Create the moments before any measurement, for a number of coordinates."""
        return cls(np.zeros((5, size)))

    def add(self, squares: np.ndarray) -> None:
        """Add measurements.

        Parameters
        ----------
        squares : ndarray, shape (n_points, n_pairs, size)
            Half the squared differences of two independent gradient estimates.
        """
        n = squares.shape[1]
        here = squares.mean(axis=1)
        products = np.zeros_like(here)
        if n > 1:
            products = (n * here) ** 2 - np.einsum("pnj,pnj->pj", squares, squares)
            products /= n * (n - 1)
        moments = (here, products, here**2, here * products, products**2)
        self.sums += [moment.sum(axis=0) for moment in moments]
        self.n_points += len(squares)
        self.n_pairs += len(squares) * n

    @property
    def mean(self) -> np.ndarray:
        """Mean variance; zero without measurements."""
        return self.sums[0] / max(self.n_points, 1)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of the variance over points: a lower confidence bound.

        One standard error is subtracted from its square.
        """
        if self.n_points < 2:
            return np.zeros(self.sums.shape[1])
        mean, product, square, mixed, of_products = self.sums / self.n_points
        variance = product - mean**2
        # the contribution of a point to the variance is p − 2 m s + m²
        squares = of_products + 4.0 * mean**2 * square + mean**4
        squares += 2.0 * mean**2 * product - 4.0 * mean * mixed - 4.0 * mean**4
        error = np.sqrt(np.maximum(squares - variance**2, 0.0) / self.n_points)
        return np.sqrt(np.maximum(variance - error, 0.0))

    @property
    def error(self) -> np.ndarray:
        """Standard error of the mean variance.

        It is large compared with the mean if few pairs contribute most of the noise, as for an
        indicator that is nonzero in few rows.
        """
        if self.n_points < 2:
            return np.zeros(self.sums.shape[1])
        variance = self.sums[2] / self.n_points - self.mean**2
        return np.sqrt(np.maximum(variance, 0.0) / self.n_points)

    def __add__(self, other: NoiseVariance) -> NoiseVariance:
        return NoiseVariance(
            self.sums + other.sums, self.n_points + other.n_points, self.n_pairs + other.n_pairs
        )
