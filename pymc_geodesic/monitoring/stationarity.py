r"""What draws and gradients say of each other where a chain samples its posterior.

For any law with density π, by parts, and any constant c,

.. math:: E[\nabla \log \pi] = 0, \qquad E[-(x_j - c_j)\, \partial_j \log \pi] = 1 ,

and on the unit sphere of ℝᵈ E[P ∇log π − (d − 1) x] = 0. In coordinates where the posterior has
covariance I the mean gradient is the error of the mean in standard deviations, and the second
mean, the configurational temperature, is the ratio of the variance to the right one. Neither is
held by a thermostat, and both look at one coordinate at a time.

Gradients are dear and positions are not. What is seen of g, or of −z g, at some draws is regressed
on z, or z², which are known at all of them: where the posterior is nearly normal the errors
are those of means over all draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import project

CHECK_EVERY = 4
"""Draws between two looks, each of which costs one gradient."""

SUMMED_EVERY = 8
"""Looks between two values of the mean gradient that a chain reports, behind the first ones."""

N_BATCHES = 20
FEWEST_LOOKS = 100

SMALL_ERROR = 0.1
"""Error of a mean in standard deviations, or of a temperature, that is not worth a word."""

FALSE_ALARM = 0.001
"""Chance of a word about a chain that is right."""

_LEAST_SHARE = 1e-8
"""Part of a mean square that a variance has to be, for a regression on what varies so little."""


@dataclass(frozen=True)
class StationarityError:
    """An error that is beyond doubt.

    Attributes
    ----------
    kind : {"mean", "temperature", "all temperatures"}
    coordinate : int
        Of the position, in the coordinates of the metric; −1 of all of them together.
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
    sizes : sequence of int, optional
        Numbers of each variable, one behind the other; by default each is a variable. All variables
        have the same part in the chance of a false alarm, so that a scale beside a thousand effects
        is not drowned by them.

    Attributes
    ----------
    last_temperature : float
        Mean configurational temperature at the last look; NaN before there was one.
    largest_gradient : float
        Largest component of `mean_gradient` a few looks ago at most; NaN before there was one.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.stationarity import Stationarity
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

    def __init__(
        self, size: int, n_euclidean: int, n_looks: int, sizes: Sequence[int] | None = None
    ) -> None:
        self._size, self._d = size, n_euclidean
        numbers = np.ones(size, dtype=int) if sizes is None else np.array(sizes, dtype=int)
        part = np.repeat(1.0 / numbers, numbers)
        parts = np.concatenate([part, part[:n_euclidean], np.ones(min(n_euclidean, 1))])
        self._chances = FALSE_ALARM * parts / parts.sum()
        self._planned = max(n_looks, 1)
        self.sums = np.zeros((N_BATCHES, size + n_euclidean))
        self.counts = np.zeros(N_BATCHES)
        d = n_euclidean
        self._seen, self._passed = np.zeros((N_BATCHES, 2 * d)), np.zeros((N_BATCHES, 2 * d))
        self._n_passed = np.zeros(N_BATCHES)
        self._products, self._squares = np.zeros(2 * d), np.zeros(2 * d)
        self.last_temperature = self.largest_gradient = math.nan

    @classmethod
    def from_batches(
        cls,
        counts: np.ndarray,
        gradients: np.ndarray,
        products: np.ndarray,
        sizes: Sequence[int] | None = None,
    ) -> Stationarity:
        """Make it of what was summed up elsewhere, when the coordinates were not known yet.

        Parameters
        ----------
        counts : ndarray, shape (N_BATCHES,)
            Looks in each part of the chain.
        gradients : ndarray, shape (N_BATCHES, size)
            Their sums of gradients.
        products : ndarray, shape (N_BATCHES, n_euclidean)
            Their sums of −z g.
        sizes : sequence of int, optional
            Numbers of each variable.
        """
        made = cls(gradients.shape[1], products.shape[1], int(counts.sum()), sizes)
        made.counts = counts.copy()
        made.sums = np.concatenate([gradients, products], axis=1)
        return made

    @property
    def n_looks(self) -> int:
        """Looks so far."""
        return int(self.counts.sum())

    @property
    def _batch(self) -> int:
        return min(self.n_looks * N_BATCHES // self._planned, N_BATCHES - 1)

    def _known(self, position: np.ndarray) -> np.ndarray:
        """Return what is known at all draws: z and z² of the Euclidean coordinates."""
        z = position[: self._d]
        return np.concatenate([z, z**2])

    def pass_by(self, position: np.ndarray) -> None:
        """Take in the position of a draw; of every one, looked at or not.

        Parameters
        ----------
        position : ndarray, shape (size,)
            In the coordinates of the metric.
        """
        batch, z, d = self._batch, position[: self._d], self._d
        passed = self._passed[batch]
        passed[:d] += z
        passed[d:] += z * z
        self._n_passed[batch] += 1

    def look(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Take in a position and a gradient there that knows nothing of how it was reached.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            In the coordinates of the metric; of the parts on a manifold, the gradient less what its
            mean should be.
        """
        d, batch = self._d, self._batch
        products = -position[:d] * gradient[:d]
        self.sums[batch, : gradient.size] += gradient
        self.sums[batch, gradient.size :] += products
        self.counts[batch] += 1
        known = self._known(position)
        self._seen[batch] += known
        self._products += np.concatenate([gradient[:d], products]) * known
        self._squares += known**2
        n = self.n_looks
        if n <= SUMMED_EVERY or not n % SUMMED_EVERY:
            self.largest_gradient = float(np.abs(self.mean_gradient).max())
        if d:
            self.last_temperature = float(products.mean())

    def _slopes(self, part: slice) -> np.ndarray:
        """Regression of g on z, the first d, or of −z g on z², the last, over all looks."""
        d, n = self._d, max(self.n_looks, 1)
        of = self.sums[:, :d] if part.start == 0 else self.sums[:, self._size :]
        seen, of = self._seen[:, part].sum(axis=0) / n, of.sum(axis=0) / n
        squares = self._squares[part] / n
        variances = squares - seen**2
        covariances = self._products[part] / n - seen * of
        known = variances > _LEAST_SHARE * squares
        return np.where(known, covariances / np.where(known, variances, 1.0), 0.0)

    def _means(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard errors: of gradients, of temperatures, of all of these together."""
        seen = self.counts > 0
        counts = self.counts[seen, np.newaxis]
        batches = self.sums[seen] / counts
        if self._n_passed.any():
            passed = self._passed[seen] / np.maximum(self._n_passed[seen, np.newaxis], 1.0)
            missed, d = passed - self._seen[seen] / counts, self._d
            batches[:, :d] += self._slopes(slice(0, d)) * missed[:, :d]
            batches[:, self._size :] += self._slopes(slice(d, 2 * d)) * missed[:, d:]
        if self._d:
            together = batches[:, self._size :].mean(axis=1, keepdims=True)
            batches = np.concatenate([batches, together], axis=1)
        weights = self.counts[seen] / self.counts.sum()
        means = weights @ batches
        n = len(batches)
        errors = np.sqrt(((batches - means) ** 2).mean(axis=0) / max(n - 1, 1))
        return means, errors

    @property
    def mean_gradient(self) -> np.ndarray:
        """Mean gradient so far, an error of the mean in posterior standard deviations."""
        d, n = self._d, self.n_looks
        means = self.sums[:, : self._size].sum(axis=0) / n
        if self._n_passed.any():
            seen = self._seen[:, :d].sum(axis=0) / n
            weights = self.counts / np.maximum(self._n_passed, 1.0) / n
            means[:d] += self._slopes(slice(0, d)) * (weights @ self._passed[:, :d] - seen)
        return means

    @property
    def temperatures(self) -> np.ndarray:
        """Configurational temperature of each Euclidean coordinate so far."""
        return self._means()[0][self._size : self._size + self._d]

    @property
    def largest_sd(self) -> float:
        """Largest standard deviation of a Euclidean coordinate over all draws.

        Infinite before there are enough draws to tell.
        """
        n, d = self._n_passed.sum(), self._d
        if not d or self.n_looks < FEWEST_LOOKS or not n:
            return math.inf
        mean, square = np.split(self._passed.sum(axis=0) / n, 2)
        return float(np.sqrt(np.maximum(square - mean**2, 0.0)).max())

    def errors(self) -> list[StationarityError]:
        """Errors beyond what is small and what may be chance, the largest first.

        That of all temperatures together only where no coordinate by itself is in error.
        """
        if self.n_looks < FEWEST_LOOKS:
            return []
        means, errors = self._means()
        off = means.copy()
        off[self._size :] -= 1.0
        freedom = int((self.counts > 0).sum()) - 1
        critical = -stdtrit(freedom, 0.5 * self._chances)
        beyond = np.abs(off) - SMALL_ERROR - critical * errors
        beyond[~np.isfinite(beyond)] = -np.inf
        found = np.flatnonzero(beyond > 0.0)
        single = found[found < self._size + self._d]
        places = single if single.size else found
        order = places[np.argsort(-beyond[places], kind="stable")]
        return [self._error_at(int(i), float(means[i]), float(errors[i])) for i in order]

    def _error_at(self, place: int, value: float, error: float) -> StationarityError:
        if place < self._size:
            return StationarityError("mean", place, value, error)
        if place < self._size + self._d:
            return StationarityError("temperature", place - self._size, value, error)
        return StationarityError("all temperatures", -1, value, error)

    def worst(self) -> StationarityError | None:
        """Error that is largest beyond what is small and what may be chance; None without one."""
        return next(iter(self.errors()), None)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """All that was measured."""
        return {name: getattr(self, name).copy() for name in self._STATE} | {
            name: np.array([] if math.isnan(getattr(self, name)) else [getattr(self, name)])
            for name in self._LAST  # NaN would differ from itself
        }

    @state.setter
    def state(self, state: dict[str, np.ndarray]) -> None:
        for name in self._STATE:
            setattr(self, name, np.array(state[name]))
        for name in self._LAST:
            known = np.asarray(state[name])
            setattr(self, name, float(known[0]) if known.size else math.nan)

    _STATE = ("sums", "counts", "_seen", "_passed", "_n_passed", "_products", "_squares")
    _LAST = ("last_temperature", "largest_gradient")


class Tangents:
    """Gradients along the manifolds, less what they are by curvature alone.

    Parameters
    ----------
    product : Product
        The variables of the model.

    Examples
    --------
    On the sphere E[P ∇log π − (d − 1) x] = 0; with no gradient, the second term is left:

    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product, Sphere
    >>> from pymc_geodesic.monitoring.stationarity import Tangents
    >>> product = Product([("b", Euclidean(1), 1), ("u", Sphere(3), 1)])
    >>> x, gradient = np.array([7.0, 0.0, 0.0, 1.0]), np.array([0.5, 0.0, 0.0, 3.0])
    >>> Tangents(product).excess(product.blocks, x, gradient).tolist()
    [0.5, 0.0, 0.0, -2.0]
    """

    def __init__(self, product: Product) -> None:
        self._curved = [
            (product.slices[name], manifold, rows)
            for name, manifold, rows in product.components
            if not manifold.is_flat
        ]

    @property
    def n_curved(self) -> int:
        """How many numbers of a position are no Euclidean ones."""
        return sum(part.stop - part.start for part, _, _ in self._curved)

    def excess(
        self,
        blocks: np.ndarray,
        position: np.ndarray,
        gradient: np.ndarray,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Project a gradient, and take off the mean that it has under any law.

        Parameters
        ----------
        blocks : ndarray
            The manifolds, as compiled loops know them.
        position, gradient : ndarray, shape (size,)
        lengths : ndarray, optional
            Unit of length of each variable on a manifold; 1 by default.

        Returns
        -------
        ndarray, shape (size,)
            Zero for manifolds of which no mean is known.
        """
        tangent = gradient.copy()
        project(blocks, position, tangent)
        for place, (part, manifold, rows) in enumerate(self._curved):
            mean = manifold.mean_gradient(position[part].reshape(rows, *manifold.shape))
            if mean is None:
                tangent[part] = 0.0
            else:
                length = 1.0 if lengths is None else lengths[place]
                tangent[part] -= length * mean.ravel()
        return tangent
