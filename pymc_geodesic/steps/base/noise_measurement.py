"""Gradient noise along each coordinate, measured between pairs of minibatches."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import geodesic, project
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.steps.base.step_bounds import points_of
from pymc_geodesic.tuning.noise import (
    LangevinSettings,
    differences_of_pairs,
    principal_directions,
)
from pymc_geodesic.tuning.noise_over_places import NoiseOverPlaces, heat_in_doubt

__all__ = ["PAIRS_AT_PLACE", "NoiseMeasurement"]

StepsOfDraw = Callable[[np.ndarray, np.ndarray], int]

PAIRS, PAIRS_PER_DIMENSION, MOST_PAIRS = 800, 20, 2000
PAIRS_AT_PLACE, PAIRS_AT_ONCE = 8, 24

MOST_TIMES, MOST_DOUBT = 7, 0.04
"""How often as many pairs are measured again, and the error of a temperature that is borne with."""

FEWEST_DRAWS, MOST_DRAWS = 50, 100
"""Draws that say where the posterior is, and how many of them are kept as places."""

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
        self._around = NoiseOverPlaces(self._product.size)
        self.forget_draws()
        self._draws = np.empty((0, self._product.size))
        self._n_grad = 0
        self.variates_ratio = 1.0

    @property
    def state(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "around": copy.deepcopy(vars(self._around)),
            "at_draws": copy.deepcopy(vars(self._at_draws)),
            "draws": self._draws.copy(),
            "variates_ratio": self.variates_ratio,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.reset()
        vars(self._around).update(copy.deepcopy(state["around"]))
        vars(self._at_draws).update(copy.deepcopy(state["at_draws"]))
        self._draws = state["draws"].copy()
        self.variates_ratio = state["variates_ratio"]

    def spent(self) -> int:
        """Count the evaluations of minibatch gradients since this was asked last."""
        n_grad, self._n_grad = self._n_grad, 0
        return n_grad

    @property
    def n_wanted(self) -> int:
        """Pairs that tell the noise along each coordinate."""
        wanted = max(PAIRS, PAIRS_PER_DIMENSION * self._gradient.n_euclidean)
        return PAIRS_AT_PLACE * (min(wanted, MOST_PAIRS) // PAIRS_AT_PLACE)

    @property
    def variances(self) -> np.ndarray:
        """Variance b_j of the estimate, one for all coordinates of a point on a manifold.

        Zero where nothing was measured. Draws lie farther from the centre than N(0, I) does where
        the metric is not all there is to know, and differences to an anchor are noisier there: what
        was measured around the centre is multiplied by how much more there is at draws.
        """
        around, n_around = self._around.mean, self._around.n_pairs
        at_draws, n_at_draws = self._at_draws.mean, self._at_draws.n_pairs
        seen = around > 0.0
        if n_at_draws * np.count_nonzero(seen) >= ENOUGH_AT_DRAWS:
            around = around * np.mean(at_draws[seen] / around[seen])
        noise = (n_around * around + n_at_draws * at_draws) / max(n_around + n_at_draws, 1)
        for part, dim in self._points:
            noise[part] = noise[part].sum() / dim
        return noise

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation over the posterior of the variances, none on manifolds."""
        spread = (self._around + self._at_draws).spread
        spread[self._gradient.n_euclidean :] = 0.0
        return spread

    @property
    def error(self) -> np.ndarray:
        """Standard error of the variances, none on manifolds."""
        error = (self._around + self._at_draws).error
        error[self._gradient.n_euclidean :] = 0.0
        return error

    def take(self, differences: np.ndarray) -> None:
        """Forget what was measured before, and take in pairs instead.

        Parameters
        ----------
        differences : ndarray, shape (n, size)
            As many pairs at a place, one behind the other, as `differences` makes.
        """
        self._around = NoiseOverPlaces(self._product.size)
        self._around.take(_by_place(differences))
        self.forget_draws()

    def take_more(
        self, z: np.ndarray, stream: np.ndarray, choose: Callable[[], LangevinSettings]
    ) -> None:
        """Go on while few minibatches make so much of the noise that it is known badly.

        Parameters
        ----------
        z, stream
            See `differences`.
        choose : callable
            Settings for what is known by now.
        """
        for _ in range(MOST_TIMES):
            doubt = heat_in_doubt(choose(), self.error)
            if not doubt.max(initial=0.0) > MOST_DOUBT:
                return
            self._around.take(_by_place(self.differences(z, self.n_wanted, stream)))
        choose()

    def forget_draws(self) -> None:
        """Forget what was measured at draws: the chain was not where it belongs."""
        self._at_draws = NoiseOverPlaces(self._product.size)

    def use_draws(self, positions: np.ndarray) -> None:
        """Measure at draws from now on, if they are enough to show the posterior.

        Parameters
        ----------
        positions : ndarray, shape (n, size)
            In the coordinates of the model.
        """
        if len(positions) >= FEWEST_DRAWS:
            some = np.linspace(0, len(positions) - 1, min(len(positions), MOST_DRAWS))
            self._draws = positions[some.astype(int)]

    def choose_variates(
        self, z: np.ndarray, stream: np.ndarray, steps_of_draw: StepsOfDraw
    ) -> np.ndarray:
        """Choose the order of control variates that makes an independent draw cheapest.

        Parameters
        ----------
        z, stream
            See `differences`.
        steps_of_draw : callable
            Variances along coordinates, and their standard deviations over the posterior → inner
            steps of an independent draw.

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
        steps_of_draw: StepsOfDraw,
    ) -> np.ndarray:
        """Go over to second order if it pays; return differences of what was chosen."""
        nothing = np.zeros(self._product.size)
        least = SECOND_ORDER_COST * steps_of_draw(nothing, nothing)
        first_cost = steps_of_draw(*self._principal_variances(differences))
        if first_cost <= MORE_THAN_LEAST * least or not self._gradient.has_second_order():
            return differences
        self._gradient.expand(self._no_curvature)
        # of the same minibatches: where rows have heavy tails a few of them make all the noise
        first, second = self._differences_of_orders((1, 2), z, self.n_wanted, stream)
        costs = [steps_of_draw(*self._principal_variances(each)) for each in (first, second)]
        self._gradient.order = 2 if SECOND_ORDER_COST * costs[1] < costs[0] else 1
        return second if self._gradient.order == 2 else first

    def _principal_variances(self, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Variances along the directions that friction may differ in, and their spread."""
        d = self._gradient.n_euclidean
        if self._gradient.metric.is_dense and d:
            rotation, _ = principal_directions(differences[:, :d])
            differences = differences.copy()
            differences[:, :d] @= rotation
        noise = NoiseOverPlaces(self._product.size)
        noise.take(_by_place(differences))
        spread = noise.spread
        spread[d:] = 0.0
        return noise.mean, spread

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
        size = self._product.size
        differences = np.empty((len(orders), n_pairs, size))
        n_places = -(-n_pairs // PAIRS_AT_PLACE)
        places = np.repeat(self._places(z, n_places, stream), PAIRS_AT_PLACE, axis=0)[:n_pairs]
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

    def _places(self, z: np.ndarray, n: int, stream: np.ndarray) -> np.ndarray:
        """Draws around the centre: those that were seen, or such of a normal law."""
        d = self._gradient.n_euclidean
        places = np.empty((n, self._product.size))
        if len(self._draws):
            some = np.linspace(0, len(self._draws), n, endpoint=False).astype(int)
            return np.array([self._gradient.from_position(x) for x in self._draws[some]])
        fill_normal(stream, places.ravel())
        for place in places:
            away = place.copy()
            place[:d] = 0.0
            place[d:] = z[d:]
            project(self._product.blocks, place, away)
            away[d:] *= np.repeat(self._gradient.metric.lengths, self._widths)
            geodesic(self._product.blocks, place, away, 1.0)
        return places

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
        """Take in the pairs of one more place."""
        places = np.repeat(z[np.newaxis], PAIRS_AT_PLACE, axis=0)
        differences = np.empty_like(places)
        self._compare(self._next_arguments(2 * PAIRS_AT_PLACE), places, differences)
        for difference in differences:
            project(self._product.blocks, z, difference)
        if np.isfinite(differences).all():
            self._at_draws.take(_by_place(differences))


def _by_place(differences: np.ndarray) -> np.ndarray:
    """Half the squares of differences, shape (places, pairs, size)."""
    return 0.5 * differences.reshape(-1, PAIRS_AT_PLACE, differences.shape[1]) ** 2
