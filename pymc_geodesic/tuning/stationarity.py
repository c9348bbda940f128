r"""What draws and gradients say of each other where a chain samples its posterior.

For any law with density π, by parts, and any constant c,

.. math:: E[\nabla \log \pi] = 0, \qquad E[-(x_j - c_j)\, \partial_j \log \pi] = 1 ,

and on the unit sphere of ℝᵈ E[P ∇log π − (d − 1) x] = 0. In coordinates where the posterior has
covariance I the mean gradient is the error of the mean in standard deviations, and the second
mean, the configurational temperature, is the ratio of the variance to the right one. Neither is
held by a thermostat, and both look at one coordinate at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["CHECK_EVERY", "Stationarity", "StationarityError"]

CHECK_EVERY = 4
"""Draws between two looks, each of which costs one gradient."""

N_BATCHES = 20
FEWEST_LOOKS = 100

SMALL_ERROR = 0.1
"""Error of a mean in standard deviations, or of a temperature, that is not worth a word."""

FALSE_ALARM = 0.001
"""Chance of a word about a chain that is right."""


@dataclass(frozen=True)
class StationarityError:
    """The largest error that is beyond doubt.

    Attributes
    ----------
    kind : {"mean", "temperature"}
    coordinate : int
        Of the position, in the coordinates of the metric.
    value, error : float
        What was measured, and its standard error.
    """

    kind: str
    coordinate: int
    value: float
    error: float


class Stationarity:
    """Running means of gradients, and of gradients times positions, with their errors.

    Parameters
    ----------
    size : int
        Length of a position.
    n_euclidean : int
        Length of its first part, of which temperatures are measured.
    n_looks : int
        How many looks there will be.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.stationarity import Stationarity
    >>> rng = np.random.default_rng(1)
    >>> right, shifted = Stationarity(3, 3, 2000), Stationarity(3, 3, 2000)
    >>> for _ in range(2000):
    ...     x = rng.normal(size=3)
    ...     right.look(x, -x)
    ...     shifted.look(x + [0.0, 0.5, 0.0], -x - [0.0, 0.5, 0.0])
    >>> right.worst() is None
    True
    >>> shifted.worst().kind, shifted.worst().coordinate
    ('mean', 1)
    """

    def __init__(self, size: int, n_euclidean: int, n_looks: int) -> None:
        self._d = n_euclidean
        self._n_looks = max(n_looks, 1)
        self.count = 0
        self.sums = np.zeros((N_BATCHES, size + n_euclidean))
        self.counts = np.zeros(N_BATCHES)
        self.last_temperature = math.nan

    def look(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Take in a position and a gradient there that knows nothing of how it was reached.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            In the coordinates of the metric; of the parts on a manifold, the gradient less what its
            mean should be.
        """
        batch = min(self.count * N_BATCHES // self._n_looks, N_BATCHES - 1)
        d = self._d
        products = -position[:d] * gradient[:d]
        self.sums[batch, : gradient.size] += gradient
        self.sums[batch, gradient.size :] += products
        self.counts[batch] += 1
        self.count += 1
        if d:
            self.last_temperature = float(products.mean())

    def _means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard errors of all that is measured."""
        seen = self.counts > 0
        batches = self.sums[seen] / self.counts[seen, np.newaxis]
        weights = self.counts[seen] / self.counts.sum()
        means = weights @ batches
        n = len(batches)
        errors = np.sqrt(((batches - means) ** 2).mean(axis=0) / max(n - 1, 1))
        return means, errors

    @property
    def mean_gradient(self) -> np.ndarray:
        """Mean gradient so far, an error of the mean in posterior standard deviations."""
        return self._means()[0][: self.sums.shape[1] - self._d]

    @property
    def largest_gradient(self) -> float:
        """Largest component of the mean gradient so far; NaN before the first look."""
        return float(np.abs(self.mean_gradient).max()) if self.count else math.nan

    @property
    def temperatures(self) -> np.ndarray:
        """Configurational temperature of each Euclidean coordinate so far."""
        return self._means()[0][self.sums.shape[1] - self._d :]

    def worst(self) -> StationarityError | None:
        """Error that is largest beyond what is small and what may be chance; None without one."""
        if self.count < FEWEST_LOOKS:
            return None
        means, errors = self._means()
        size = self.sums.shape[1] - self._d
        off = means - np.repeat([0.0, 1.0], [size, self._d])
        freedom = int((self.counts > 0).sum()) - 1
        critical = stats.t.isf(0.5 * FALSE_ALARM / off.size, freedom)
        beyond = np.abs(off) - SMALL_ERROR - critical * errors
        place = int(np.argmax(np.where(np.isfinite(beyond), beyond, -np.inf)))
        if not beyond[place] > 0.0:
            return None
        kind = "mean" if place < size else "temperature"
        coordinate = place if place < size else place - size
        return StationarityError(kind, coordinate, float(means[place]), float(errors[place]))

    @property
    def state(self) -> dict[str, np.ndarray]:
        """All that was measured."""
        return {
            "sums": self.sums.copy(),
            "counts": self.counts.copy(),
            "last_temperature": np.array(
                [] if math.isnan(self.last_temperature) else [self.last_temperature]
            ),  # NaN would differ from itself
        }

    @state.setter
    def state(self, state: dict[str, np.ndarray]) -> None:
        self.sums, self.counts = np.array(state["sums"]), np.array(state["counts"])
        self.count = int(self.counts.sum())
        known = np.asarray(state["last_temperature"])
        self.last_temperature = float(known[0]) if known.size else math.nan
