r"""Stationarity of a chain: sums of gradients and positions whose expectations are known.

For a distribution with density π, by integration by parts, and any constant c,

.. math:: E[\nabla \log \pi] = 0, \qquad E[-(x_j - c_j)\, \partial_j \log \pi] = 1 ,

and on the unit sphere of ℝᵈ E[P ∇log π − (d − 1) x] = 0. In coordinates where the posterior has
covariance I, the mean gradient is the error of the mean in standard deviations, and the second
mean, the configurational temperature, is the ratio of the variance of the draws to that of the
posterior. No thermostat controls either of them, and both refer to single coordinates.

Gradients are expensive and positions are not. The gradient g, or −z g, at the checked draws is
regressed on z, or z², whose means over all draws are known: where the posterior is nearly normal,
the errors are those of means over all draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import project


@dataclass(frozen=True)
class StationaritySettings:
    """Constants of the sums and of the monitors that use them.

    Attributes
    ----------
    check_every : int
        Draws between two checks.
    n_batches : int
        Batches of a chain, whose means give standard errors with 19 degrees of freedom.
    min_checks : int
        Checks, five in a batch, below which nothing is diagnosed.
    tolerance : float
        Error of a mean in standard deviations, or of a temperature, for which no warning is issued:
        10 %, as for the kinetic temperature. A convention, not chosen by a benchmark.
    false_alarm : float
        Upper bound on the probability of a warning of a chain that samples the posterior, over all
        coordinates together. `benchmarks/detectors.py` has no false alarm in 20 runs of two chains,
        and reports all of 20 runs that are wrong.
    min_variance_share : float
        Fraction of a mean square that a variance has to be to be regressed on: about the square
        root of the machine precision, below which it consists of rounding errors.
    standstill_sd : float
        Standard deviation of the draws, in posterior standard deviations, below which along all
        coordinates the chain does not move. A convention, not chosen by a benchmark.
    refresh_every : int
        Checks between two values of the sample stat ``whitened_gradient``, after the first ones,
        in whitened coordinates. It bounds the cost of a draw.
    refresh_every_in_model : int
        The same for both sample stats in the coordinates of the model, where each value needs all
        the sums.
    min_minibatches : int
        Minimum number of minibatch gradients of a check in whitened coordinates.
    steps_per_check_gradient : int
        Inner steps of a draw for each of these gradients, if they are more than the minimum. From 8
        inner steps on checks add at most 1/16 of gradients.
    steps_per_gradient : int
        Inner steps of a chain for each gradient in the coordinates of the model, which adds at most
        1/40 of gradients.
    """

    check_every: int = 4
    n_batches: int = 20
    min_checks: int = 100
    tolerance: float = 0.1
    false_alarm: float = 0.001
    min_variance_share: float = 1e-8
    standstill_sd: float = 0.05
    refresh_every: int = 8
    refresh_every_in_model: int = 25
    min_minibatches: int = 2
    steps_per_check_gradient: int = 4
    steps_per_gradient: int = 40


SETTINGS = StationaritySettings()


@dataclass(frozen=True)
class Deviation:
    """A mean that differs from its expectation by more than tolerance and chance.

    Attributes
    ----------
    kind : {"mean", "temperature", "all temperatures"}
        Mean gradient or configurational temperature of a coordinate, or mean of all temperatures.
    coordinate : int
        Index of the coordinate; −1 for all of them together.
    value, error : float
        Mean over the chain and its standard error.
    """

    kind: Literal["mean", "temperature", "all temperatures"]
    coordinate: int
    value: float
    error: float


@dataclass
class StationaritySums:
    """Sums over checks and draws, in batches of a chain.

    Attributes
    ----------
    n_checks : ndarray, shape (n_batches,)
        Checks of each batch.
    gradients : ndarray, shape (n_batches, size)
        Sums of g at the checks.
    temperatures : ndarray, shape (n_batches, n_euclidean)
        Sums of −z g at the checks.
    checked_moments : ndarray, shape (n_batches, 2 n_euclidean)
        Sums of z and z² at the checks.
    n_draws : ndarray, shape (n_batches,)
        Draws of each batch.
    moments : ndarray, shape (n_batches, 2 n_euclidean)
        Sums of z and z² at all draws.
    products, squares : ndarray, shape (2 n_euclidean,)
        Sums at the checks of g z and −z g z², and of z² and z⁴.
    latest : ndarray, shape (2,)
        Values of the sample stats: mean configurational temperature at the last check, and largest
        component of the mean gradient at one of the last checks; NaN before the first check.
    """

    n_checks: np.ndarray
    gradients: np.ndarray
    temperatures: np.ndarray
    checked_moments: np.ndarray
    n_draws: np.ndarray
    moments: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    latest: np.ndarray

    @classmethod
    def zeros(cls, size: int, n_euclidean: int) -> StationaritySums:
        """Return sums over no draws."""
        b, d = SETTINGS.n_batches, n_euclidean
        return cls(
            n_checks=np.zeros(b),
            gradients=np.zeros((b, size)),
            temperatures=np.zeros((b, d)),
            checked_moments=np.zeros((b, 2 * d)),
            n_draws=np.zeros(b),
            moments=np.zeros((b, 2 * d)),
            products=np.zeros(2 * d),
            squares=np.zeros(2 * d),
            latest=np.full(2, math.nan),
        )


class Stationarity:
    """Means of gradients, and of gradients times positions, with their standard errors.

    Parameters
    ----------
    size : int
        Number of coordinates.
    n_euclidean : int
        Number of Euclidean coordinates, which come first and have temperatures.
    n_checks : int
        Planned number of checks.
    sizes : sequence of int, optional
        Number of coordinates of each variable; by default each coordinate is a variable. All
        variables have the same part in the probability of a false alarm, so that the error of a
        scale is detected next to a thousand effects.

    Attributes
    ----------
    sums : StationaritySums

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.stationarity import Stationarity
    >>> rng = np.random.default_rng(1)
    >>> right, shifted = Stationarity(3, 3, 2000), Stationarity(3, 3, 2000)
    >>> for _ in range(2000):
    ...     x = rng.normal(size=3)
    ...     right.check(x, -x)
    ...     shifted.check(x + [0.0, 0.5, 0.0], -x - [0.0, 0.5, 0.0])
    >>> right.worst() is None
    True
    >>> shifted.worst().kind, shifted.worst().coordinate
    ('mean', 1)
    """

    def __init__(
        self, size: int, n_euclidean: int, n_checks: int, sizes: Sequence[int] | None = None
    ) -> None:
        self._size, self._d = size, n_euclidean
        widths = np.ones(size, dtype=int) if sizes is None else np.array(sizes, dtype=int)
        share = np.repeat(1.0 / widths, widths)
        shares = np.concatenate([share, share[:n_euclidean], np.ones(min(n_euclidean, 1))])
        self._false_alarms = SETTINGS.false_alarm * shares / shares.sum()
        self._n_planned = max(n_checks, 1)
        self.sums = StationaritySums.zeros(size, n_euclidean)

    @property
    def n_checks(self) -> int:
        """Checks so far."""
        return int(self.sums.n_checks.sum())

    @property
    def _batch(self) -> int:
        n = SETTINGS.n_batches
        return min(self.n_checks * n // self._n_planned, n - 1)

    def observe(self, position: np.ndarray) -> None:
        """Add the position of a draw, checked or not.

        Parameters
        ----------
        position : ndarray, shape (size,)
        """
        batch, z, d = self._batch, position[: self._d], self._d
        moments = self.sums.moments[batch]
        moments[:d] += z
        moments[d:] += z * z
        self.sums.n_draws[batch] += 1

    def check(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Add a position with a gradient that is independent of the way the chain reached it.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            On manifolds, the gradient less its expectation; see `TangentGradient`.
        """
        sums, d, batch = self.sums, self._d, self._batch
        z, g = position[:d], gradient[:d]
        temperatures = -z * g
        sums.gradients[batch] += gradient
        sums.temperatures[batch] += temperatures
        sums.n_checks[batch] += 1
        moments = np.concatenate([z, z**2])
        sums.checked_moments[batch] += moments
        sums.products += np.concatenate([g, temperatures]) * moments
        sums.squares += moments**2
        n = self.n_checks
        if n <= SETTINGS.refresh_every or not n % SETTINGS.refresh_every:
            sums.latest[1] = np.abs(self.mean_gradient).max()
        if d:
            sums.latest[0] = temperatures.mean()

    def _slopes(self) -> tuple[np.ndarray, np.ndarray]:
        """Regression coefficients of g on z, and of −z g on z², over all checks."""
        sums, n = self.sums, max(self.n_checks, 1)
        totals = (sums.gradients[:, : self._d].sum(axis=0), sums.temperatures.sum(axis=0))
        outcomes = np.concatenate(totals) / n
        moments, squares = sums.checked_moments.sum(axis=0) / n, sums.squares / n
        variances = squares - moments**2
        covariances = sums.products / n - moments * outcomes
        varies = variances > SETTINGS.min_variance_share * squares
        slopes = np.where(varies, covariances / np.where(varies, variances, 1.0), 0.0)
        return slopes[: self._d], slopes[self._d :]

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard errors of gradients, of temperatures, and of all temperatures.

        Returns
        -------
        means, errors : ndarray, shape (size + n_euclidean + 1,)
            Without the last component where there are no Euclidean coordinates.
        """
        sums, d = self.sums, self._d
        used = sums.n_checks > 0
        n_checks = sums.n_checks[used, np.newaxis]
        batches = np.concatenate([sums.gradients, sums.temperatures], axis=1)[used] / n_checks
        if sums.n_draws.any():
            all_draws = sums.moments[used] / np.maximum(sums.n_draws[used, np.newaxis], 1.0)
            unchecked = all_draws - sums.checked_moments[used] / n_checks
            of_gradient, of_temperature = self._slopes()
            batches[:, :d] += of_gradient * unchecked[:, :d]
            batches[:, self._size :] += of_temperature * unchecked[:, d:]
        if d:
            together = batches[:, self._size :].mean(axis=1, keepdims=True)
            batches = np.concatenate([batches, together], axis=1)
        weights = sums.n_checks[used] / sums.n_checks.sum()
        means = weights @ batches
        n = len(batches)
        errors = np.sqrt(((batches - means) ** 2).mean(axis=0) / max(n - 1, 1))
        return means, errors

    @property
    def mean_gradient(self) -> np.ndarray:
        """Mean gradient so far: in whitened coordinates, the error of the mean."""
        sums, d, n = self.sums, self._d, self.n_checks
        means = sums.gradients.sum(axis=0) / n
        if sums.n_draws.any():
            checked = sums.checked_moments[:, :d].sum(axis=0) / n
            weights = sums.n_checks / np.maximum(sums.n_draws, 1.0) / n
            means[:d] += self._slopes()[0] * (weights @ sums.moments[:, :d] - checked)
        return means

    @property
    def temperatures(self) -> np.ndarray:
        """Configurational temperature of each Euclidean coordinate so far."""
        return self.means()[0][self._size : self._size + self._d]

    @property
    def largest_sd(self) -> float:
        """Largest standard deviation of a Euclidean coordinate over all draws.

        Infinite before there are `StationaritySettings.min_checks`.
        """
        n, d = self.sums.n_draws.sum(), self._d
        if not d or self.n_checks < SETTINGS.min_checks or not n:
            return math.inf
        mean, square = np.split(self.sums.moments.sum(axis=0) / n, 2)
        return float(np.sqrt(np.maximum(square - mean**2, 0.0)).max())

    def deviations(self) -> list[Deviation]:
        """Means that deviate by more than tolerance and chance, the largest deviation first.

        The mean of all temperatures is included where no coordinate by itself deviates.
        """
        if self.n_checks < SETTINGS.min_checks:
            return []
        means, errors = self.means()
        deviations = means.copy()
        deviations[self._size :] -= 1.0
        freedom = int((self.sums.n_checks > 0).sum()) - 1
        critical = -stdtrit(freedom, 0.5 * self._false_alarms)
        beyond = np.abs(deviations) - SETTINGS.tolerance - critical * errors
        beyond[~np.isfinite(beyond)] = -np.inf
        found = np.flatnonzero(beyond > 0.0)
        single = found[found < self._size + self._d]
        found = single if single.size else found
        order = found[np.argsort(-beyond[found], kind="stable")]
        return [self._deviation_at(int(i), float(means[i]), float(errors[i])) for i in order]

    def _deviation_at(self, i: int, value: float, error: float) -> Deviation:
        if i < self._size:
            return Deviation("mean", i, value, error)
        if i < self._size + self._d:
            return Deviation("temperature", i - self._size, value, error)
        return Deviation("all temperatures", -1, value, error)

    def worst(self) -> Deviation | None:
        """Largest deviation; None without one."""
        return next(iter(self.deviations()), None)


class TangentGradient:
    """Gradients along the manifolds of a product, less their expectation under any density.

    Parameters
    ----------
    product : Product
        Manifolds of the variables.

    Examples
    --------
    On the sphere E[P ∇log π − (d − 1) x] = 0; with a gradient along x the second term is left:

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.monitoring.stationarity import TangentGradient
    >>> tangent = TangentGradient(Product([("b", Euclidean(1), 1), ("u", Sphere(3), 1)]))
    >>> x, gradient = np.array([7.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.0, 0.0, 3.0])
    >>> tangent(x, gradient).tolist()
    [0.5, 0.0, 0.0, -2.0]
    """

    def __init__(self, product: Product) -> None:
        self._blocks = product.blocks
        self._curved = [
            (product.slices[name], manifold, rows)
            for name, manifold, rows in product.components
            if not manifold.is_flat
        ]

    @property
    def n_curved(self) -> int:
        """Number of coordinates that are not Euclidean."""
        return sum(part.stop - part.start for part, _, _ in self._curved)

    def __call__(
        self, position: np.ndarray, gradient: np.ndarray, lengths: np.ndarray | None = None
    ) -> np.ndarray:
        """Project a gradient on the tangent space, and subtract its expectation.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
        lengths : ndarray, optional
            Unit of length of each variable on a manifold; 1 by default.

        Returns
        -------
        ndarray, shape (size,)
            Zero on manifolds for which no expectation is known.
        """
        tangent = gradient.copy()
        project(self._blocks, position, tangent)
        for i, (part, manifold, rows) in enumerate(self._curved):
            mean = manifold.mean_gradient(position[part].reshape(rows, *manifold.shape))
            if mean is None:
                tangent[part] = 0.0
            else:
                length = 1.0 if lengths is None else lengths[i]
                tangent[part] -= length * mean.ravel()
        return tangent
