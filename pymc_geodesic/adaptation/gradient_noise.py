"""Gradient noise along each coordinate, measured between pairs of minibatches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.manifold_bounds import points_of
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.second_order import REACH
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import geodesic, project
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.tuning.noise import (
    LangevinSettings,
    differences_of_pairs,
)
from pymc_geodesic.tuning.noise_over_places import NoiseOverPlaces, heat_in_doubt

__all__ = ["PAIRS_AT_ONCE", "PAIRS_AT_PLACE", "NoiseMeasurement", "by_place"]

PAIRS, PAIRS_PER_DIMENSION, MOST_PAIRS = 800, 20, 2000
PAIRS_AT_PLACE, PAIRS_AT_ONCE = 8, 24

ENOUGH_NOISY, MOST_NOISY_PAIRS, MOST_NUMBERS = 100.0, 20_000, 10_000_000
"""Expected minibatches with a row that makes the noise of a rare coordinate, whose variance is then
measured with a relative standard error of some 20 %; and pairs, and numbers of them, at most."""

MOST_TIMES, MOST_DOUBT = 7, 0.04
"""How often as many pairs are measured again, and the error of a temperature that is borne with."""

FEWEST_DRAWS, MOST_DRAWS = 50, 100
"""Draws that say where the posterior is, and how many of them are kept as places."""

TAIL, TAIL_DRAWS = 1.6, 2
"""Distance of points in the tails, in that of the outermost of some 100 draws, about 4 posterior
standard deviations; and how many draws are moved there along each side of a coordinate."""

QUADRATIC, NEGLIGIBLE_SLOPE = 0.05, 1e-6
"""Noise of second order without a bound in the tails, as a ratio of that with one, below which the
log-density counts as quadratic along a coordinate; and variance over z² that always does."""

FARTHEST_DRAW = 10.0
"""Distance from the center along a coordinate, in posterior standard deviations, beyond which noise
is not measured: at most 1 % of any distribution lies there, and a chain that ran away may."""


class NoiseMeasurement:
    """Variance of the gradient estimate in the coordinates of the metric.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        Its Euclidean coordinates are one variable, and the first.
    next_arguments : callable
        n → arguments of the minibatch field for n evaluations.

    Attributes
    ----------
    gradient : AdaptedGradient
    variates_ratio : float
        Noise with control variates over noise without; 1 without variates.
    n_grad : int
        Evaluations of minibatch gradients, see `spent`.
    noisy_rate : float
        Probability that a minibatch holds one of the rows that make the noise of a rare coordinate.
    doubt : float
        Largest error of a temperature for noise known this badly; see `take_more`.
    tail_spread : ndarray, shape (size,)
        √½ b(z)/z² for the variance b of second order at points z in the tails: half the standard
        deviation that noise which grows like z² has over a normal distribution, for there is less
        of it near the center. Zero until `choose_reach`.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_arguments: Callable[[int], np.ndarray],
    ) -> None:
        self.gradient, self._product = gradient, product
        self._next_arguments = next_arguments
        self._points = points_of(product)
        self._widths = gradient.widths
        self.noisy_rate = 1.0
        prepare(differences_of_pairs, fill_normal, geodesic)
        self.reset()

    def reset(self) -> None:
        """Forget all that was measured."""
        self._around = NoiseOverPlaces(self.size)
        self.forget_draws()
        self._draws = np.empty((0, self.size))
        self.tail_spread = np.zeros(self.size)
        self.n_grad = 0
        self.doubt = 0.0
        self.variates_ratio = 1.0

    @property
    def state(self) -> dict[str, Any]:
        """What was measured."""
        return {
            "around": copy.deepcopy(vars(self._around)),
            "at_draws": copy.deepcopy(vars(self._at_draws)),
            "draws": self._draws.copy(),
            "tail_spread": self.tail_spread.copy(),
            "variates_ratio": self.variates_ratio,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.reset()
        vars(self._around).update(copy.deepcopy(state["around"]))
        vars(self._at_draws).update(copy.deepcopy(state["at_draws"]))
        self._draws = state["draws"].copy()
        self.tail_spread = state["tail_spread"].copy()
        self.variates_ratio = state["variates_ratio"]

    @property
    def size(self) -> int:
        """Length of a position."""
        return self._product.size

    def spent(self) -> int:
        """Count the evaluations of minibatch gradients since this was asked last."""
        n_grad, self.n_grad = self.n_grad, 0
        return n_grad

    @property
    def n_wanted(self) -> int:
        """Pairs that tell the noise along each coordinate."""
        most = min(MOST_NOISY_PAIRS, MOST_NUMBERS // self.size)
        rare = min(0.5 * ENOUGH_NOISY / self.noisy_rate, most)
        return PAIRS_AT_PLACE * (max(self._n_usual, int(rare)) // PAIRS_AT_PLACE)

    @property
    def _n_usual(self) -> int:
        """Pairs where no row makes much of the noise."""
        wanted = max(PAIRS, PAIRS_PER_DIMENSION * self.gradient.n_euclidean)
        return PAIRS_AT_PLACE * (min(wanted, MOST_PAIRS) // PAIRS_AT_PLACE)

    @property
    def variances(self) -> np.ndarray:
        """Variance b_j of the estimate, one for all coordinates of a point on a manifold.

        The mean over all points, those around the center and those of the chain. Zero where nothing
        was measured.
        """
        noise = (self._around + self._at_draws).mean
        for part, dim in self._points:
            noise[part] = noise[part].sum() / dim
        return noise

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation over the posterior of the variances, none on manifolds.

        With second order at least `tail_spread`.
        """
        spread = (self._around + self._at_draws).spread
        if self.gradient.order == 2:
            spread = np.maximum(spread, self.tail_spread)
        spread[self.gradient.n_euclidean :] = 0.0
        return spread

    @property
    def error(self) -> np.ndarray:
        """Standard error of the variances, none on manifolds."""
        error = (self._around + self._at_draws).error
        error[self.gradient.n_euclidean :] = 0.0
        return error

    def take(self, differences: np.ndarray) -> None:
        """Forget what was measured before, and take in pairs instead.

        Parameters
        ----------
        differences : ndarray, shape (n, size)
            As many pairs at a place, one behind the other, as `differences` makes.
        """
        self._around = NoiseOverPlaces(self.size)
        self._around.take(by_place(differences))
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
        for i in range(MOST_TIMES + 1):
            if i:
                self._around.take(by_place(self.differences(z, self._n_usual, stream)))
            self.doubt = float(heat_in_doubt(choose(), self.error).max(initial=0.0))
            if not self.doubt > MOST_DOUBT:
                return

    def forget_draws(self) -> None:
        """Forget what was measured at draws: the chain was not where it belongs."""
        self._at_draws = NoiseOverPlaces(self.size)

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
        return self.differences_of_orders((self.gradient.order,), z, n_pairs, stream)[0]

    def differences_of_orders(
        self, orders: Sequence[int], z: np.ndarray, n_pairs: int, stream: np.ndarray
    ) -> np.ndarray:
        """Differences with control variates of each order, from the same minibatches and places."""
        size = self.size
        differences = np.empty((len(orders), n_pairs, size))
        n_places = -(-n_pairs // PAIRS_AT_PLACE)
        places = np.repeat(self._places(z, n_places, stream), PAIRS_AT_PLACE, axis=0)[:n_pairs]
        for first in range(0, n_pairs, PAIRS_AT_ONCE):
            part = slice(first, min(first + PAIRS_AT_ONCE, n_pairs))
            arguments = self._next_arguments(2 * len(places[part]))
            for i, order in enumerate(orders):
                self.gradient.order = order
                self._compare(arguments, places[part], differences[i, part])
        for of_order in differences:
            for place, difference in zip(places, of_order, strict=True):
                project(self._product.blocks, place, difference)
        return differences

    def choose_reach(self, z: np.ndarray, stream: np.ndarray) -> None:
        """Bound differences of second order along coordinates where they add noise in the tails.

        Noise beyond a bound is that of first order, which an exactly quadratic log-density is
        without. Where third derivatives count, the noise of second order grows faster than that.
        The noise that is left in the tails is kept as `tail_spread`.

        Parameters
        ----------
        z, stream
            See `differences`.
        """
        d, reach = self.gradient.n_euclidean, self.gradient.reach
        if not d:
            return
        tails = self._tails(z, stream)
        n_pairs = PAIRS_AT_PLACE * (self.n_wanted // self._n_usual)
        places = np.repeat(tails.reshape(-1, self.size), n_pairs, axis=0)
        arguments = self._next_arguments(2 * len(places))
        own = np.arange(d)
        distances = np.mean(tails[own, :, :, own] ** 2, axis=-1)
        slopes = []
        for bound in (math.inf, REACH):
            reach[:] = bound
            differences = np.empty_like(places)
            self._compare(arguments, places, differences)
            squares = 0.5 * differences.reshape(d, 2, -1, self.size)[..., :d] ** 2
            slopes.append(np.max(squares.mean(axis=2).max(axis=-1) / distances, axis=1))
        unbounded, bounded = np.nan_to_num(slopes, nan=math.inf, posinf=math.inf)
        is_quadratic = unbounded <= np.maximum(QUADRATIC * bounded, NEGLIGIBLE_SLOPE)
        reach[:] = np.where(is_quadratic, math.inf, REACH)
        self.tail_spread[:d] = math.sqrt(0.5) * np.where(is_quadratic, unbounded, bounded)

    def _tails(self, z: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Draws that are outermost along each coordinate, moved farther out along it."""
        d = self.gradient.n_euclidean
        places = self._places(z, MOST_DRAWS, stream)
        order = np.argsort(places[:, :d], axis=0)
        outermost = np.concatenate([order[:TAIL_DRAWS], order[-TAIL_DRAWS:]]).T
        tails = places[outermost]
        for j in range(d):
            tails[j, :, j] *= TAIL
        return tails.reshape(d, 2, TAIL_DRAWS, self.size)

    def _places(self, z: np.ndarray, n: int, stream: np.ndarray) -> np.ndarray:
        """Draws around the centre: those that were seen, or such of a normal law."""
        d = self.gradient.n_euclidean
        places = np.empty((n, self.size))
        if len(self._draws):
            some = np.linspace(0, len(self._draws), n, endpoint=False).astype(int)
            return np.array([self.gradient.from_position(x) for x in self._draws[some]])
        fill_normal(stream, places.ravel())
        for place in places:
            away = place.copy()
            place[:d] = 0.0
            place[d:] = z[d:]
            project(self._product.blocks, place, away)
            away[d:] *= np.repeat(self.gradient.metric.lengths, self._widths)
            geodesic(self._product.blocks, place, away, 1.0)
        return places

    def _compare(self, arguments: np.ndarray, places: np.ndarray, differences: np.ndarray) -> None:
        """Write the difference of two minibatches at each place."""
        count, field = len(places), self.gradient.noisy
        differences_of_pairs(
            field.address,
            field.context,
            arguments[:count],
            arguments[count:],
            places,
            differences,
        )
        field.raise_error()
        self.n_grad += 2 * count

    def look_at(self, z: np.ndarray) -> None:
        """Take in the pairs of one more place, unless the chain has run away from the posterior.

        One place with noise of 10²⁰ times that of the posterior would decide the mean for good.
        """
        if not np.abs(z[: self.gradient.n_euclidean]).max(initial=0.0) <= FARTHEST_DRAW:
            return
        places = np.repeat(z[np.newaxis], PAIRS_AT_PLACE, axis=0)
        differences = np.empty_like(places)
        self._compare(self._next_arguments(2 * PAIRS_AT_PLACE), places, differences)
        for difference in differences:
            project(self._product.blocks, z, difference)
        if np.isfinite(differences).all():
            self._at_draws.take(by_place(differences))


def by_place(differences: np.ndarray) -> np.ndarray:
    """Half the squares of differences, shape (places, pairs, size)."""
    return 0.5 * differences.reshape(-1, PAIRS_AT_PLACE, differences.shape[1]) ** 2
