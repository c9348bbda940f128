"""Measurement of the gradient noise along each whitened coordinate, with pairs of minibatches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from pymc_geodesic.adaptation.components import curved_points
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.adaptation.noise_variance import NoiseVariance
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.control_variate_gradients import SETTINGS as SECOND_ORDER
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.probe import differences_of_pairs
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import geodesic, project
from pymc_geodesic.runtime.gradient_functions import NotFiniteError
from pymc_geodesic.runtime.streams import fill_normal


@dataclass(frozen=True)
class GradientNoiseSettings:
    """Constants of the measurement; distances in posterior standard deviations.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    min_pairs, pairs_per_dimension, max_pairs : int
        Number of pairs of minibatches of a measurement: 800, or 20 for each Euclidean coordinate if
        that is more, and at most 2,000. The standard error of a variance is 5 % with 800 pairs of
        normal noise, by calculation.
    trial_pairs : int
        Number of pairs for the choice of the order of the control variates without a dense metric.
    max_pair_values : int
        Upper bound on the number of pairs above the minimum, times the number of coordinates.
    rare_minibatches : float
        Expected number of minibatches that contain a row with an effect on a rare coordinate, for
        which more pairs are measured; the relative standard error of its variance is then about
        20 %.
    max_rare_pairs, max_rare_values : int
        Upper bounds on the number of these pairs, and of that number times the number of
        coordinates.
    pairs_per_point : int
        Number of pairs at the same point, from which noise heterogeneity is estimated.
    pairs_per_chunk : int
        Number of pairs whose minibatches are requested together, a multiple of `pairs_per_point`.
    max_repetitions : int
        Maximum number of additional measurements if few minibatches contribute most of the noise.
    max_temperature_error : float
        Error of a temperature, due to poorly known noise, below which no more pairs are measured.
    min_draws, max_draws : int
        Minimum number of draws of the exploration for the measurement to use them as points, and
        maximum number of draws that are used, unless a measurement has more points.
    tail_distance : float
        Ratio of the distance of points in the tails to that of the outermost of 100 draws: about 4
        posterior standard deviations.
    tail_draws : int
        Number of draws that are moved into each tail of a coordinate.
    quadratic_ratio : float
        Ratio of second-order noise without clipping to that with clipping, below which the
        log-density counts as quadratic along a coordinate.
    negligible_slope : float
        Second-order variance, divided by the squared distance, below which the log-density counts
        as quadratic in any case.
    max_draw_distance : float
        Distance from the center along a coordinate beyond which no noise is measured. Such draws
        have at most 1 % of the mass of any distribution (Chebyshev), or come from chains that have
        left the posterior.
    """

    min_pairs: int = 800
    pairs_per_dimension: int = 20
    max_pairs: int = 2000
    trial_pairs: int = 400
    max_pair_values: int = 20_000_000
    rare_minibatches: float = 100.0
    max_rare_pairs: int = 20_000
    max_rare_values: int = 10_000_000
    pairs_per_point: int = 8
    pairs_per_chunk: int = 24
    max_repetitions: int = 7
    max_temperature_error: float = 0.04
    min_draws: int = 30
    max_draws: int = 100
    tail_distance: float = 1.6
    tail_draws: int = 2
    quadratic_ratio: float = 0.05
    negligible_slope: float = 1e-6
    max_draw_distance: float = 10.0


SETTINGS = GradientNoiseSettings()

_ROUNDING = 1e-9
"""Relative rounding error of a gradient that was transformed twice."""


@dataclass
class NoiseState:
    """State of a measurement.

    Attributes
    ----------
    around_center, at_draws : NoiseVariance
        Measurements around the center of the coordinates, and at draws of the dynamics.
    draws : ndarray, shape (n, size)
        Points around the center, in the coordinates of the model. If empty, points are drawn from a
        normal distribution.
    tail_sd : ndarray, shape (size,)
        √½ b(z)/z² for the second-order variance b at points z in the tails: half the standard
        deviation that noise proportional to z² has over a normal distribution, since there is less
        noise near the center. Zero until `NoiseMeasurement.choose_clipping`.
    noise_ratio : float
        Variance with control variates over that without; 1 without control variates.
    informative_fraction : ndarray, shape (size,)
        Fraction of informative pairs for each coordinate of the model: pairs of minibatches whose
        gradients differ along it. 1 on manifolds and without measurements.
    """

    around_center: NoiseVariance
    at_draws: NoiseVariance
    draws: np.ndarray
    tail_sd: np.ndarray
    informative_fraction: np.ndarray
    noise_ratio: float = 1.0

    @classmethod
    def empty(cls, size: int) -> Self:
        """Return the state before any measurement."""
        around_center, at_draws = NoiseVariance.empty(size), NoiseVariance.empty(size)
        return cls(around_center, at_draws, np.empty((0, size)), np.zeros(size), np.ones(size))


class NoiseMeasurement:
    """Variance of the gradient estimate along each whitened coordinate.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        Manifolds of the whitened coordinates: one for all Euclidean ones, then the others.
    next_minibatches : callable
        Function of n that returns the minibatches of n gradient evaluations.

    Attributes
    ----------
    gradient : AdaptedGradient
    measured : NoiseState
    rare_row_probability : float
        Probability that a minibatch contains a row with an effect on a rare coordinate.
    temperature_error : float
        Largest error of a temperature due to poorly known noise; see `refine`.
    n_grad : int
        Evaluations of minibatch gradients since the last `pop_n_grad`.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_minibatches: Callable[[int], np.ndarray],
    ) -> None:
        self.gradient, self._product = gradient, product
        self._next_minibatches = next_minibatches
        self._points = curved_points(product)
        self.rare_row_probability = 1.0
        prepare(differences_of_pairs, fill_normal, geodesic)
        self.reset()

    def reset(self) -> None:
        """Discard all measurements."""
        self.measured = NoiseState.empty(self.size)
        self.temperature_error, self.n_grad = 0.0, 0

    @property
    def state(self) -> dict[str, Any]:
        """Results of the measurements."""
        return asdict(self.measured)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.reset()
        named = copy.deepcopy(state)
        around_center = NoiseVariance(**named.pop("around_center"))
        at_draws = NoiseVariance(**named.pop("at_draws"))
        self.measured = NoiseState(around_center, at_draws, **named)

    @property
    def size(self) -> int:
        """Length of a position."""
        return self._product.size

    def pop_n_grad(self) -> int:
        """Return the number of gradient evaluations since the last call."""
        n_grad, self.n_grad = self.n_grad, 0
        return n_grad

    # --- results -----------------------------------------------------------------------------

    @property
    def variances(self) -> np.ndarray:
        """Variance b_j of the estimate, the same for all coordinates of a point on a manifold.

        The mean over all points, around the center and at draws; zero without measurements.
        """
        noise = (self.measured.around_center + self.measured.at_draws).mean
        for part, dim in self._points:
            noise[part] = noise[part].sum() / dim
        return noise

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of b_j over the posterior; zero on manifolds.

        With second order at least `NoiseState.tail_sd`.
        """
        sd = (self.measured.around_center + self.measured.at_draws).sd
        if self.gradient.order == 2:
            sd = np.maximum(sd, self.measured.tail_sd)
        return self._euclidean(sd)

    @property
    def error(self) -> np.ndarray:
        """Standard error of b_j; zero on manifolds."""
        return self._euclidean((self.measured.around_center + self.measured.at_draws).error)

    def _euclidean(self, values: np.ndarray) -> np.ndarray:
        values[self.gradient.n_euclidean :] = 0.0
        return values

    # --- measurements around the center ------------------------------------------------------

    @property
    def n_pairs(self) -> int:
        """Number of pairs of a measurement, larger if few rows contribute most of the noise."""
        most = min(SETTINGS.max_rare_pairs, SETTINGS.max_rare_values // self.size)
        n_rare = min(0.5 * SETTINGS.rare_minibatches / self.rare_row_probability, most)
        at_point = SETTINGS.pairs_per_point
        return at_point * (max(self._n_usual_pairs, int(n_rare)) // at_point)

    @property
    def n_trial_pairs(self) -> int:
        """Number of pairs for the choice of the order, and of directions of a dense metric."""
        if self.gradient.metric.is_dense:
            return self.n_pairs
        return SETTINGS.trial_pairs * (self.n_pairs // self._n_usual_pairs)

    @property
    def _n_usual_pairs(self) -> int:
        """Number of pairs of a measurement if no row contributes much of the noise."""
        most = min(SETTINGS.max_pairs, SETTINGS.max_pair_values // self.size)
        wanted = SETTINGS.pairs_per_dimension * self.gradient.n_euclidean
        at_point = SETTINGS.pairs_per_point
        return at_point * (max(SETTINGS.min_pairs, min(wanted, most)) // at_point)

    def set_draws(self, positions: np.ndarray) -> None:
        """Set the points of later measurements to these draws, if there are enough of them.

        Parameters
        ----------
        positions : ndarray, shape (n, size)
            In the coordinates of the model.
        """
        n = len(positions)
        if n >= SETTINGS.min_draws:
            n_points = self._n_usual_pairs // SETTINGS.pairs_per_point
            every = np.linspace(0, n - 1, min(n, max(n_points, SETTINGS.max_draws)))
            self.measured.draws = positions[every.astype(int)]

    def rescale_draws(self, ratio: np.ndarray) -> None:
        """Multiply the distances of these draws from the center by a ratio, shape (d,)."""
        d, center = len(ratio), self.gradient.metric.center
        draws = self.measured.draws
        draws[:, :d] = center + ratio * (draws[:, :d] - center)

    def replace(self, differences: np.ndarray) -> None:
        """Replace all measurements.

        Parameters
        ----------
        differences : ndarray, shape (n, size)
            Result of `differences`.
        """
        self.measured.around_center = NoiseVariance.empty(self.size)
        self.measured.around_center.add(squares_by_point(differences))
        d = self.gradient.n_euclidean
        self.measured.informative_fraction[:d] = compute_informative_fraction(
            differences[:, :d], self.gradient.metric
        )
        self.discard_draws()

    def refine(
        self, z: np.ndarray, stream: np.ndarray, choose: Callable[[], LangevinParameters]
    ) -> None:
        """Measure more pairs while the variance of the noise is poorly known.

        Parameters
        ----------
        z, stream
            See `differences`.
        choose : callable
            Function that returns the parameters for the current measurements.
        """
        for repetition in range(SETTINGS.max_repetitions + 1):
            if repetition:
                differences = self.differences(z, self._n_usual_pairs, stream)
                self.measured.around_center.add(squares_by_point(differences))
            error = choose().temperature_error(self.error)
            self.temperature_error = float(error.max(initial=0.0))
            if not self.temperature_error > SETTINGS.max_temperature_error:
                return

    def differences(self, z: np.ndarray, n_pairs: int, stream: np.ndarray) -> np.ndarray:
        """Compute differences of pairs of gradient estimates at points around the center.

        Parameters
        ----------
        z : ndarray, shape (size,)
            Position whose coordinates on manifolds are the center there.
        n_pairs : int
        stream : ndarray

        Returns
        -------
        ndarray, shape (n_pairs, size)
            Differences, tangent at the points; `GradientNoiseSettings.pairs_per_point` successive
            pairs have the same point.
        """
        return self.differences_of_orders((self.gradient.order,), z, n_pairs, stream)[0]

    def differences_of_orders(
        self, orders: Sequence[int], z: np.ndarray, n_pairs: int, stream: np.ndarray
    ) -> np.ndarray:
        """Differences with control variates of each order, for the same minibatches and points.

        Raises
        ------
        NotFiniteError
            If a gradient with control variates of the first of these orders is not finite.
        """
        differences = np.empty((len(orders), n_pairs, self.size))
        order_before = self.gradient.order
        n_points = -(-n_pairs // SETTINGS.pairs_per_point)
        points = np.repeat(
            self._points_around(z, n_points, stream), SETTINGS.pairs_per_point, axis=0
        )[:n_pairs]
        for first in range(0, n_pairs, SETTINGS.pairs_per_chunk):
            chunk = slice(first, min(first + SETTINGS.pairs_per_chunk, n_pairs))
            minibatches = self._next_minibatches(2 * len(points[chunk]))
            for i, order in enumerate(orders):
                self.gradient.order = order
                self._evaluate_pairs(minibatches, points[chunk], differences[i, chunk])
        self.gradient.order = order_before
        if not np.isfinite(differences[0]).all():
            raise NotFiniteError("gradient of a minibatch", None, np.empty(0))
        for of_order in differences:
            for point, difference in zip(points, of_order, strict=True):
                project(self._product.blocks, point, difference)
        return differences

    def choose_clipping(self, z: np.ndarray, stream: np.ndarray) -> None:
        """Clip second-order terms along coordinates where they add noise in the tails.

        Beyond the bound the noise is that of first order, which is larger if the log-density is
        quadratic. If third derivatives matter, second-order noise grows faster than first-order
        noise. The remaining noise in the tails is stored as `NoiseState.tail_sd`. Coordinates of
        groups are not clipped: in a logistic regression with 2,000 groups of unequal size, the
        largest standard deviation of the noise variance over the posterior was 24 with a bound of
        2, 14 with 3, and 10 without, by calculation. The noise along them is averaged, since few of
        the minibatches are informative about each of them.

        Parameters
        ----------
        z, stream
            See `differences`.
        """
        gradient, d = self.gradient, self.gradient.n_euclidean
        assert gradient.curvature is not None
        structure, clipping_distance = gradient.curvature.structure, gradient.clipping_distance
        clipping_distance[:] = math.inf
        self.measured.tail_sd[:] = 0.0
        own = structure.common[structure.common < d]
        if not own.size:
            return
        tails = self._tails(z, stream, own)
        n_pairs = SETTINGS.pairs_per_point * (self.n_pairs // self._n_usual_pairs)
        points = np.repeat(self._from_clipped(tails.reshape(-1, self.size)), n_pairs, axis=0)
        minibatches = self._next_minibatches(2 * len(points))
        distances = np.mean(tails[np.arange(own.size), :, :, own] ** 2, axis=-1)
        slopes = []
        for bound in (math.inf, SECOND_ORDER.clipping_distance):
            clipping_distance[own] = bound
            differences = np.empty_like(points)
            self._evaluate_pairs(minibatches, points, differences)
            squares = 0.5 * self._to_clipped_gradient(differences) ** 2
            squares = squares.reshape(own.size, 2, -1, d).mean(axis=2)
            of_groups = [squares[..., each].mean(axis=-1) for each in structure.vectors]
            largest = np.max([*np.moveaxis(squares[..., own], -1, 0), *of_groups], axis=0)
            slopes.append(np.max(largest / distances, axis=1))
        unbounded, bounded = np.nan_to_num(slopes, nan=math.inf, posinf=math.inf)
        is_quadratic = unbounded <= np.maximum(
            SETTINGS.quadratic_ratio * bounded, SETTINGS.negligible_slope
        )
        clipping_distance[own] = np.where(is_quadratic, math.inf, SECOND_ORDER.clipping_distance)
        slope = np.where(is_quadratic, unbounded, bounded)
        self.measured.tail_sd[own] = math.sqrt(0.5) * slope

    def _tails(self, z: np.ndarray, stream: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Move the outermost draws along each of some coordinates farther into the tails.

        Return points in the coordinates that are clipped, shape (n_own, 2, n_draws, size).
        """
        n = SETTINGS.tail_draws
        points = self._to_clipped(self._points_around(z, SETTINGS.max_draws, stream))
        order = np.argsort(points[:, own], axis=0)
        outermost = np.concatenate([order[:n], order[-n:]]).T
        tails = points[outermost]
        for tail, j in zip(tails, own, strict=True):
            tail[:, j] *= SETTINGS.tail_distance
        return tails.reshape(own.size, 2, n, self.size)

    @property
    def _clips_whitened(self) -> bool:
        """Whether second order clips whitened coordinates; otherwise those of the model."""
        assert self.gradient.second_order is not None
        return self.gradient.second_order.clips_whitened

    def _to_clipped(self, z: np.ndarray) -> np.ndarray:
        """Coordinates that are clipped, in standard deviations, of rows of whitened points."""
        if self._clips_whitened:
            return z
        d, metric = self.gradient.n_euclidean, self.gradient.metric
        y = z.copy()
        y[:, :d] = metric.to_direction(z[:, :d]) / metric.sd
        return y

    def _from_clipped(self, y: np.ndarray) -> np.ndarray:
        """Inverse of `_to_clipped`."""
        if self._clips_whitened:
            return y
        d, metric = self.gradient.n_euclidean, self.gradient.metric
        z = y.copy()
        z[:, :d] = metric.whiten(metric.center + metric.sd * y[:, :d])
        return z

    def _to_clipped_gradient(self, gradients: np.ndarray) -> np.ndarray:
        """Gradients along the Euclidean coordinates that are clipped, of whitened ones."""
        d, metric = self.gradient.n_euclidean, self.gradient.metric
        if self._clips_whitened:
            return gradients[:, :d]
        return metric.to_model_gradient(gradients[:, :d]) * metric.sd

    def _points_around(self, z: np.ndarray, n: int, stream: np.ndarray) -> np.ndarray:
        """Select draws as points around the center, or sample a normal distribution if too few."""
        d, draws = self.gradient.n_euclidean, self.measured.draws
        if len(draws):
            every = np.linspace(0, len(draws), n, endpoint=False).astype(int)
            return np.array([self.gradient.whiten(x) for x in draws[every]])
        points = np.empty((n, self.size))
        fill_normal(stream, points.ravel())
        for point in points:
            away = point.copy()
            point[:d] = 0.0
            point[d:] = z[d:]
            project(self._product.blocks, point, away)
            away[d:] *= np.repeat(self.gradient.metric.lengths, self.gradient.widths)
            geodesic(self._product.blocks, point, away, 1.0)
        return points

    def _evaluate_pairs(
        self, minibatches: np.ndarray, points: np.ndarray, differences: np.ndarray
    ) -> None:
        """Compute the difference of the gradients of two minibatches at each point."""
        n, estimated = len(points), self.gradient.estimated
        differences_of_pairs(
            estimated.address,
            estimated.context,
            minibatches[:n],
            minibatches[n:],
            points,
            differences,
        )
        estimated.raise_error()
        self.n_grad += 2 * n

    # --- measurements at draws ---------------------------------------------------------------

    def measure_at(self, z: np.ndarray) -> None:
        """Add pairs at a draw, unless the chain has left the posterior.

        Otherwise a single point with 10²⁰ times the noise of the posterior could dominate the mean.
        """
        distance = np.abs(z[: self.gradient.n_euclidean]).max(initial=0.0)
        if not distance <= SETTINGS.max_draw_distance:
            return
        n_pairs = SETTINGS.pairs_per_point
        points = np.repeat(z[np.newaxis], n_pairs, axis=0)
        differences = np.empty_like(points)
        self._evaluate_pairs(self._next_minibatches(2 * n_pairs), points, differences)
        for difference in differences:
            project(self._product.blocks, z, difference)
        if np.isfinite(differences).all():
            self.measured.at_draws.add(squares_by_point(differences))

    def discard_draws(self) -> None:
        """Discard the measurements at draws, for example of a chain that has left the posterior."""
        self.measured.at_draws = NoiseVariance.empty(self.size)


def squares_by_point(differences: np.ndarray) -> np.ndarray:
    """Compute half the squares of differences, shape (n_points, n_pairs, size)."""
    squares = differences.reshape(-1, SETTINGS.pairs_per_point, differences.shape[1]) ** 2
    squares *= 0.5
    return squares


def compute_informative_fraction(differences: np.ndarray, metric: Metric) -> np.ndarray:
    """Compute the fraction of nonzero differences along each coordinate of the model.

    Parameters
    ----------
    differences : ndarray, shape (n, d)
        Differences of gradient estimates in the coordinates of the metric.
    metric : Metric

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.gradient_noise import compute_informative_fraction
    >>> from pymc_geodesic.gradients.metric import Metric
    >>> metric = Metric(np.zeros(2), np.array([[1.0, 0.0], [0.9, 0.1]]))
    >>> in_model = np.array([[3.0, 0.0], [-2.0, 0.0], [1.0, 5.0], [4.0, 0.0]])
    >>> compute_informative_fraction(metric.to_gradient(in_model), metric).tolist()
    [1.0, 0.25]
    """
    if not differences.size:
        return np.ones(differences.shape[1])
    in_model = np.abs(metric.to_model_gradient(differences))
    # rounding errors are relative to gradients, whose difference may be zero in all coordinates
    largest = in_model.max(where=np.isfinite(in_model), initial=0.0)
    return np.mean(in_model > _ROUNDING * largest, axis=0)
