"""Stationarity monitors of Langevin samplers: gradients at the draws, compared with the draws."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis, coordinate_names, dominant_coordinate
from pymc_geodesic.monitoring.stationarity import (
    SETTINGS,
    Deviation,
    Stationarity,
    StationaritySums,
    TangentGradient,
)
from pymc_geodesic.runtime.gradient_functions import evaluate

_ADAPT = (
    "Omit step_size and other arguments of the dynamics if they are set, so that they are adapted"
)
_MEAN_REMEDY = (
    "Use GMC or NUTS, which correct each step, or 1,000 tuning draws if there were fewer."
)
_MEAN_REMEDY_IN_MODEL = f"{_ADAPT}; otherwise use GMC or NUTS, or more tuning draws."
_VARIANCE_REMEDY = (
    "Use GMC or NUTS, which correct each step, {minibatches}, or 1,000 tuning draws if there were "
    "fewer. If other variables depend on it as a scale, change their parametrization (centered or "
    "non-centered)."
)
_VARIANCE_REMEDY_IN_MODEL = f"{_ADAPT}; otherwise use GMC or NUTS, or {{minibatches}}."


class StationarityMonitor(Protocol):
    """Evaluates gradients at some draws after the warm-up, and compares them with the draws.

    Attributes
    ----------
    state : dict
        Sums over the checks so far.
    """

    state: dict[str, Any]

    @property
    def temperature(self) -> float:
        """Mean configurational temperature at a recent check; NaN before the first."""

    @property
    def largest_gradient(self) -> float:
        """Largest component of the mean gradient; NaN before the first check."""

    def initialize(self, n_draws: int) -> None:
        """Begin a chain of ``n_draws`` draws after the warm-up."""

    def before_draw(self, position: np.ndarray, minibatches: np.ndarray) -> int:
        """Check the position where a draw begins, if due, and return the gradient evaluations."""

    def after_draw(self, draw: int, position: np.ndarray, n_steps: int) -> int:
        """Check the position where a draw ends, if due, and return the gradient evaluations."""

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose the draws so far, given a name for each coordinate."""


class WhitenedMonitor:
    """Monitor in whitened coordinates, with minibatches that no draw has used.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        Manifolds of the variables of the model, Euclidean ones first.
    next_minibatches : callable
        n → minibatches of the gradient function for n evaluations.
    is_dense : bool
        Whether every whitened coordinate may depend on every variable.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_minibatches: Callable[[int], np.ndarray],
        *,
        is_dense: bool,
    ) -> None:
        self._gradient, self._next_minibatches = gradient, next_minibatches
        sizes = [part.stop - part.start for part in product.slices.values()]
        self._sizes = None if is_dense else sizes
        self._tangent, self._size = TangentGradient(product), product.size
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `StationarityMonitor`."""
        n_checks = -(-n_draws // SETTINGS.check_every)
        n_euclidean = self._gradient.n_euclidean
        self._stationarity = Stationarity(self._size, n_euclidean, n_checks, self._sizes)

    @property
    def temperature(self) -> float:
        """Mean configurational temperature at the last check; NaN before the first."""
        return float(self._stationarity.sums.latest[0])

    @property
    def largest_gradient(self) -> float:
        """Largest error of a mean so far, in posterior standard deviations."""
        return float(self._stationarity.sums.latest[1])

    def before_draw(self, position: np.ndarray, minibatches: np.ndarray) -> int:
        """Evaluate nothing."""
        return 0

    def after_draw(self, draw: int, position: np.ndarray, n_steps: int) -> int:
        """Add the draw to the sums, and check every fourth; see `StationarityMonitor`."""
        self._stationarity.observe(position)
        if draw % SETTINGS.check_every:
            return 0
        n_grad = 1
        if self._gradient.has_noise:
            n_grad = max(SETTINGS.min_minibatches, n_steps // SETTINGS.steps_per_check_gradient)
        mean = self._mean_gradient(position, n_grad)
        lengths = self._gradient.metric.lengths
        self._stationarity.check(position, self._tangent(position, mean, lengths))
        return n_grad

    def _mean_gradient(self, z: np.ndarray, n_grad: int) -> np.ndarray:
        """Mean of the gradients of unused minibatches."""
        logp_grad = self._gradient.estimated
        gradient, total = np.zeros(z.size + 1), np.zeros(z.size + 1)
        for minibatch in self._next_minibatches(n_grad):
            evaluate(logp_grad.address, z, int(minibatch), logp_grad.context, gradient)
            total += gradient
        logp_grad.raise_error()
        return total[: z.size] / n_grad

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose the draws so far; see `diagnose_whitened`."""
        return diagnose_whitened(self._stationarity, self._gradient.metric, names)

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the checks so far."""
        return asdict(self._stationarity.sums)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._stationarity.sums = StationaritySums(**copy.deepcopy(state))


@dataclass
class ModelSums:
    """Sums over checks in the coordinates of the model.

    Attributes
    ----------
    n_draws : int
        Draws so far.
    first : ndarray, shape (size,)
        Position at the first check, subtracted from all positions; empty before.
    n_checks : ndarray, shape (n_batches,)
        Checks of each batch.
    gradients : ndarray, shape (n_batches, size)
        Sums of g.
    products : ndarray, shape (n_batches, n_euclidean)
        Sums of −x g.
    moments : ndarray, shape (2, size)
        Sums of x and x².
    latest : ndarray, shape (2,)
        Values of the sample stats, NaN before the first: mean configurational temperature, and
        largest component of the mean gradient.
    """

    n_draws: int
    first: np.ndarray
    n_checks: np.ndarray
    gradients: np.ndarray
    products: np.ndarray
    moments: np.ndarray
    latest: np.ndarray


class FixedParameterMonitor:
    """Monitor in the coordinates of the model, for user-specified or annealed parameters.

    There is no metric and no centering point: gradients are those of minibatches, and the unit of
    each coordinate is the standard deviation of its draws, which is known at the end. Errors are
    larger than in whitened coordinates. No minibatch is added: the first one of a draw is
    independent of the position where the draw begins.

    Parameters
    ----------
    product : Product
        Manifolds of the variables of the model, Euclidean ones first.
    gradient_at : callable
        Position and minibatch → gradient estimate, shape (size,).
    n_steps : int
        Inner steps of a draw.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product
    >>> from pymc_geodesic.monitoring.stationarity_monitors import FixedParameterMonitor
    >>> product = Product([("a", Euclidean(1), 1), ("b", Euclidean(1), 1)])
    >>> monitor = FixedParameterMonitor(product, lambda x, minibatch: 100.0 - x, n_steps=10)
    >>> monitor.initialize(n_draws=2000)
    >>> rng = np.random.default_rng(1)
    >>> for x in rng.normal(size=(2000, 2)) * [1.0, 2.0]:  # the target of b has an sd of 1
    ...     _ = monitor.before_draw(x + 100.0, np.zeros(1, dtype=int))
    >>> monitor.diagnosis(["a", "b"]).coordinates, monitor.temperatures.round(0).tolist()
    (('b',), [1.0, 4.0])
    """

    def __init__(
        self,
        product: Product,
        gradient_at: Callable[[np.ndarray, int], np.ndarray],
        n_steps: int,
    ) -> None:
        self._gradient_at, self._size = gradient_at, product.size
        self._sizes = [part.stop - part.start for part in product.slices.values()]
        self._tangent = TangentGradient(product)
        self._d = product.size - self._tangent.n_curved
        affordable = math.ceil(SETTINGS.steps_per_gradient / n_steps)
        self._check_every = max(SETTINGS.check_every, affordable)
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `StationarityMonitor`."""
        self._n_planned = max(-(-n_draws // self._check_every), 1)
        b = SETTINGS.n_batches
        self.sums = ModelSums(
            n_draws=0,
            first=np.empty(0),
            n_checks=np.zeros(b),
            gradients=np.zeros((b, self._size)),
            products=np.zeros((b, self._d)),
            moments=np.zeros((2, self._size)),
            latest=np.full(2, math.nan),
        )

    @property
    def temperature(self) -> float:
        """Mean configurational temperature so far; NaN before it is known."""
        return float(self.sums.latest[0])

    @property
    def largest_gradient(self) -> float:
        """Largest component of the mean gradient times the standard deviation of the draws."""
        return float(self.sums.latest[1])

    def before_draw(self, position: np.ndarray, minibatches: np.ndarray) -> int:
        """Check the position with the first minibatch of the draw; see `StationarityMonitor`."""
        sums, d = self.sums, self._d
        is_due = sums.n_draws % self._check_every == 0
        sums.n_draws += 1
        if not is_due:
            return 0
        gradient = self._gradient_at(position, int(minibatches[0]))
        if not sums.first.size:
            sums.first = position.copy()
        tangent = self._tangent(position, gradient)
        x = position - sums.first
        n = int(sums.n_checks.sum())
        batch = min(n * SETTINGS.n_batches // self._n_planned, SETTINGS.n_batches - 1)
        sums.n_checks[batch] += 1
        sums.gradients[batch] += tangent
        sums.products[batch] -= x[:d] * tangent[:d]
        sums.moments += [x, x**2]
        if (n + 1) % SETTINGS.refresh_every_in_model == 0:
            stationarity = self._stationarity()
            temperature = stationarity.temperatures.mean() if d else math.nan
            sums.latest[:] = temperature, np.abs(stationarity.mean_gradient).max()
        return 1

    def after_draw(self, draw: int, position: np.ndarray, n_steps: int) -> int:
        """Evaluate nothing."""
        return 0

    def _stationarity(self) -> Stationarity:
        """Scale the sums to standard deviations of the draws from their mean."""
        sums, d = self.sums, self._d
        n_checks = sums.n_checks.sum()
        mean, square = sums.moments / max(n_checks, 1.0)
        sd = np.sqrt(np.maximum(square - mean**2, 0.0))
        stationarity = Stationarity(self._size, d, int(n_checks), self._sizes)
        stationarity.sums.n_checks = sums.n_checks.copy()
        stationarity.sums.gradients = sums.gradients * sd
        stationarity.sums.temperatures = sums.products + mean[:d] * sums.gradients[:, :d]
        return stationarity

    @property
    def temperatures(self) -> np.ndarray:
        """Configurational temperature of each Euclidean coordinate."""
        return self._stationarity().temperatures

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose the draws so far; see `diagnose_in_model`."""
        return diagnose_in_model(self._stationarity(), names)

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the checks so far."""
        return asdict(self.sums)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.sums = ModelSums(**copy.deepcopy(state))


def diagnose_whitened(
    stationarity: Stationarity, metric: Metric, names: Sequence[str]
) -> Diagnosis | None:
    """Diagnose a chain that does not move, or means or variances that deviate.

    Parameters
    ----------
    stationarity : Stationarity
        Sums in the coordinates of the metric.
    metric : Metric
    names : list of str
        Name of each coordinate of the model.
    """
    largest_sd = stationarity.largest_sd
    if largest_sd < SETTINGS.standstill_sd:
        return Diagnosis(
            quantity="largest standard deviation of the draws",
            value=largest_sd,
            expected=1.0,
            unit=" posterior standard deviations",
            format_spec=".1g",
            consequence=(
                "the chain does not move, because its gradient noise is too large for any step size"
            ),
            remedy="Discard the chain. Use GMC or NUTS, or a larger batch_size.",
            anchor="stationarity",
        )
    deviations = _of_worst_kind(stationarity)
    if not deviations:
        return None
    worst = deviations[0]
    concerned = coordinate_names(_model_coordinates(stationarity, metric, deviations), names)
    if worst.kind != "mean":
        return _diagnose_variance(worst, concerned, len(names), _VARIANCE_REMEDY)
    return Diagnosis(
        quantity="error of the mean",
        value=abs(worst.value),
        error=worst.error,
        expected=0.0,
        unit=" posterior standard deviations",
        coordinates=concerned,
        n_coordinates=len(names),
        consequence="the draws are inconsistent with their gradients",
        remedy=_MEAN_REMEDY,
        anchor="stationarity",
    )


def diagnose_in_model(stationarity: Stationarity, names: Sequence[str]) -> Diagnosis | None:
    """Diagnose means or variances that deviate, without a metric.

    A mean gradient that is not zero shows that the mean of the variable is wrong, or that of
    others that it is correlated with, and not by how much.

    Parameters
    ----------
    stationarity : Stationarity
        Sums with each coordinate in standard deviations of the draws.
    names : list of str
        Name of each coordinate.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.stationarity import Stationarity
    >>> from pymc_geodesic.monitoring.stationarity_monitors import diagnose_in_model
    >>> stationarity = Stationarity(1, 1, 400)
    >>> for x in np.random.default_rng(1).normal(0.5, 1.0, size=(400, 1)):
    ...     stationarity.check(x, -x)
    >>> diagnose_in_model(stationarity, ["b"]).finding
    "The mean gradient of 'b' is -0.418 per standard deviation of the draws (standard error 0.031,
    expected 0): its mean, or that of correlated variables, is wrong."
    """
    deviations = _of_worst_kind(stationarity)
    if not deviations:
        return None
    worst = deviations[0]
    concerned = coordinate_names(_coordinates(deviations), names)
    if worst.kind != "mean":
        return _diagnose_variance(worst, concerned, len(names), _VARIANCE_REMEDY_IN_MODEL)
    return Diagnosis(
        quantity="mean gradient",
        value=worst.value,
        error=worst.error,
        expected=0.0,
        unit=" per standard deviation of the draws",
        coordinates=concerned,
        n_coordinates=len(names),
        consequence="its mean, or that of correlated variables, is wrong",
        remedy=_MEAN_REMEDY_IN_MODEL,
        anchor="stationarity",
    )


def _of_worst_kind(stationarity: Stationarity) -> list[Deviation]:
    """Deviations of the kind of the largest one, the worst first."""
    deviations = stationarity.deviations()
    return [each for each in deviations if each.kind == deviations[0].kind]


def _coordinates(deviations: Sequence[Deviation]) -> list[int]:
    """Coordinates that deviate by themselves."""
    return [each.coordinate for each in deviations if each.coordinate >= 0]


def _model_coordinates(
    stationarity: Stationarity, metric: Metric, deviations: Sequence[Deviation]
) -> list[int]:
    """Coordinates of the model on which those that deviate depend most, the worst first."""
    whitened, d = _coordinates(deviations), metric.center.size
    coordinates = [dominant_coordinate(metric, each) for each in whitened]
    if not metric.is_dense or deviations[0].kind != "mean" or whitened[0] >= d:
        return coordinates
    factor = np.asarray(metric.factor)
    lengths = np.sqrt(np.sum(factor**2, axis=1))
    shifts = np.abs(factor @ stationarity.mean_gradient[:d] / lengths)
    return [int(np.argmax(shifts)), *coordinates]


def _diagnose_variance(
    worst: Deviation, concerned: tuple[str, ...], n_coordinates: int, remedy: str
) -> Diagnosis:
    """Diagnose the configurational temperature of a coordinate, or of all where none is named."""
    return Diagnosis(
        quantity="configurational temperature" if concerned else "mean configurational temperature",
        value=worst.value,
        error=worst.error,
        expected=1.0,
        coordinates=concerned,
        n_coordinates=n_coordinates,
        consequence=(
            "the variance of its draws is wrong"
            if concerned
            else "the variances of all variables together are wrong"
        ),
        remedy=remedy,
        anchor="stationarity",
    )
