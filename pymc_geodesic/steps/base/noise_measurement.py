"""Gradient noise along each coordinate, measured between pairs of minibatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product import geodesic, project
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.steps.base.step_bounds import points_of
from pymc_geodesic.tuning.noise import differences_of_pairs, principal_directions

__all__ = ["NoiseMeasurement"]

PAIRS, PAIRS_PER_DIMENSION, MOST_PAIRS = 200, 20, 2000
PAIRS_AT_ONCE = 25

SECOND_ORDER_COST = 1.5
"""Cost of a difference of second order, in such of first order."""

MORE_THAN_LEAST = 1.2
"""What second order has to promise before it is compiled, if it left no noise at all."""

ENOUGH_AT_DRAWS = 1000
"""Squares of differences at draws that tell how much more noise there is than around the centre."""

USELESS_VARIATES = 0.5
"""Part of the plain noise from which control variates do not pay."""


class NoiseMeasurement:
    """Variance of the gradient estimate in the coordinates of the metric.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        Its Euclidean coordinates are one variable, and the first.
    next_arguments : callable
        n → arguments of the minibatch field for n evaluations.
    order : {"auto", 1, 2, 0}
        Of control variates.

    Attributes
    ----------
    variates_ratio : float
        Noise with control variates over noise without; 1 without variates.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_arguments: Callable[[int], np.ndarray],
        order: str | int = "auto",
    ) -> None:
        self._gradient, self._product = gradient, product
        self._order = order
        self._next_arguments = next_arguments
        self._points = points_of(product)
        self._widths = gradient.widths
        prepare(differences_of_pairs, fill_normal, geodesic)
        self.reset()

    def reset(self) -> None:
        """Forget all that was measured."""
        self._squares = np.zeros(self._product.size)
        self._n_pairs = 0
        self._squares_at_draws, self._n_at_draws = np.zeros(self._product.size), 0
        self._n_grad = 0
        self.variates_ratio = 1.0

    @property
    def state(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "squares": self._squares.copy(),
            "n_pairs": self._n_pairs,
            "squares_at_draws": self._squares_at_draws.copy(),
            "n_at_draws": self._n_at_draws,
            "variates_ratio": self.variates_ratio,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._squares, self._n_pairs = state["squares"].copy(), state["n_pairs"]
        self._squares_at_draws = state["squares_at_draws"].copy()
        self._n_at_draws = state["n_at_draws"]
        self.variates_ratio = state["variates_ratio"]

    def spent(self) -> int:
        """Count the evaluations of minibatch gradients since this was asked last."""
        n_grad, self._n_grad = self._n_grad, 0
        return n_grad

    @property
    def n_wanted(self) -> int:
        """Pairs that tell the noise along each coordinate."""
        wanted = max(PAIRS, PAIRS_PER_DIMENSION * self._gradient.n_euclidean)
        return min(wanted, MOST_PAIRS)

    @property
    def variances(self) -> np.ndarray:
        """Variance b_j of the estimate, one for all coordinates of a point on a manifold.

        Zero where nothing was measured. Draws lie farther from the centre than N(0, I) does where
        the metric is not all there is to know, and differences to an anchor are noisier there: what
        was measured around the centre is multiplied by how much more there is at draws.
        """
        around = self._squares / max(self._n_pairs, 1)
        seen = around > 0.0
        if self._n_at_draws * np.count_nonzero(seen) >= ENOUGH_AT_DRAWS:
            at_draws = self._squares_at_draws / self._n_at_draws
            around = around * np.mean(at_draws[seen] / around[seen])
        together = self._n_pairs * around + self._squares_at_draws
        noise = together / max(self._n_pairs + self._n_at_draws, 1)
        for part, dim in self._points:
            noise[part] = noise[part].sum() / dim
        return noise

    def take(self, differences: np.ndarray) -> None:
        """Forget what was measured before, and take in pairs instead."""
        self._squares = 0.5 * np.sum(differences**2, axis=0)
        self._n_pairs = len(differences)
        self._squares_at_draws, self._n_at_draws = np.zeros(self._product.size), 0

    def choose_variates(
        self, z: np.ndarray, stream: np.ndarray, steps_of_draw: Callable[[np.ndarray], int]
    ) -> np.ndarray:
        """Choose the order of control variates that makes an independent draw cheapest.

        Parameters
        ----------
        z, stream
            See `differences`.
        steps_of_draw : callable
            Variances along coordinates → inner steps of an independent draw.

        Returns
        -------
        ndarray, shape (n, size)
            Differences of pairs of what was chosen.
        """
        gradient = self._gradient
        if not gradient.is_anchored:
            return self.differences(z, self.n_wanted, stream)
        if self._order == 2:
            gradient.expand(self._no_curvature)
        differences = self.differences(z, self.n_wanted, stream)
        if self._order == "auto":
            differences = self._try_second_order(differences, z, stream, steps_of_draw)
        order = gradient.order
        gradient.drop_anchor()
        plain = self.differences(z, PAIRS_AT_ONCE, stream)
        self.variates_ratio = float(np.mean(differences**2) / np.mean(plain**2))
        if not self.variates_ratio < USELESS_VARIATES:
            self.variates_ratio = 1.0
            return self.differences(z, self.n_wanted, stream)
        if order == 2:
            gradient.expand()
            self._n_grad += self._product.size
        else:
            gradient.order = order
        return differences

    @property
    def _no_curvature(self) -> np.ndarray:
        """Stands for the Hessian of all rows in differences of pairs, where it cancels."""
        return np.zeros((self._product.size, self._product.size))

    def _try_second_order(
        self,
        differences: np.ndarray,
        z: np.ndarray,
        stream: np.ndarray,
        steps_of_draw: Callable[[np.ndarray], int],
    ) -> np.ndarray:
        """Go over to second order if it pays; return differences of what was chosen."""
        least = SECOND_ORDER_COST * steps_of_draw(np.zeros(self._product.size))
        first_cost = steps_of_draw(self._principal_variances(differences))
        if first_cost <= MORE_THAN_LEAST * least or not self._gradient.has_second_order():
            return differences
        self._gradient.expand(self._no_curvature)
        # of the same minibatches: where rows have heavy tails a few of them make all the noise
        first, second = self._differences_of_orders((1, 2), z, self.n_wanted, stream)
        costs = [steps_of_draw(self._principal_variances(each)) for each in (first, second)]
        self._gradient.order = 2 if SECOND_ORDER_COST * costs[1] < costs[0] else 1
        return second if self._gradient.order == 2 else first

    def _principal_variances(self, differences: np.ndarray) -> np.ndarray:
        """Variances along the directions that friction may differ in."""
        variances = 0.5 * np.mean(differences**2, axis=0)
        d = self._gradient.n_euclidean
        if self._gradient.metric.is_dense and d:
            _, variances[:d] = principal_directions(differences[:, :d])
        return variances

    def differences(self, z: np.ndarray, n_pairs: int, stream: np.ndarray) -> np.ndarray:
        """Differences of pairs of gradients, each at a place of its own around the centre.

        Parameters
        ----------
        z : ndarray, shape (size,)
            Its coordinates on manifolds are the centre there.
        n_pairs : int
        stream : ndarray

        Returns
        -------
        ndarray, shape (n_pairs, size)
            Tangent at those places.
        """
        return self._differences_of_orders((self._gradient.order,), z, n_pairs, stream)[0]

    def _differences_of_orders(
        self, orders: Sequence[int], z: np.ndarray, n_pairs: int, stream: np.ndarray
    ) -> np.ndarray:
        """Differences with control variates of each order, from the same minibatches and places."""
        size, d = self._product.size, self._gradient.n_euclidean
        differences = np.empty((len(orders), n_pairs, size))
        places = np.empty((n_pairs, size))
        fill_normal(stream, places.ravel())
        for place in places:
            away = place.copy()
            place[:d] = 0.0
            place[d:] = z[d:]
            project(self._product.blocks, place, away)
            away[d:] *= np.repeat(self._gradient.metric.lengths, self._widths)
            geodesic(self._product.blocks, place, away, 1.0)
        for first in range(0, n_pairs, PAIRS_AT_ONCE):
            part = slice(first, min(first + PAIRS_AT_ONCE, n_pairs))
            arguments = self._next_arguments(2 * len(places[part]))
            for i, order in enumerate(orders):
                self._gradient.order = order
                self._compare(arguments, places[part], differences[i, part])
        for of_order in differences:
            for place, difference in zip(places, of_order, strict=True):
                project(self._product.blocks, place, difference)
        return differences

    def _compare(self, arguments: np.ndarray, places: np.ndarray, differences: np.ndarray) -> None:
        """Write the difference of two minibatches at each place."""
        count, field = len(places), self._gradient.noisy
        differences_of_pairs(
            field.address,
            field.context,
            arguments[:count],
            arguments[count:],
            places,
            differences,
        )
        field.raise_error()
        self._n_grad += 2 * count

    def look_at(self, z: np.ndarray) -> None:
        """Take in one more pair, at a place."""
        difference = np.empty((1, self._product.size))
        self._compare(self._next_arguments(2), z[np.newaxis], difference)
        project(self._product.blocks, z, difference[0])
        if np.isfinite(difference).all():
            self._squares_at_draws += 0.5 * difference[0] ** 2
            self._n_at_draws += 1
