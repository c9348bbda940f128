"""Adaptation of the step size to the measured noise of count estimates.

A chain that follows estimates of counts has a larger variance than the posterior, by the relative
noise of the estimates times a function of the step size h. During the warm-up the noise is measured
along the chain, from the difference of two minibatches at the same position, and h is the longest
step at which the variance is inflated by no more than `allowed_inflation`: much at first, so that a
chain that starts far away arrives, and 5 % from 70 % of the warm-up on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LARGER_MINIBATCHES
from pymc_geodesic.adaptation.count_control_variates import CountControlVariates
from pymc_geodesic.adaptation.variance_inflation import (
    allowed_inflation,
    independent_inflation,
    longest_time,
    shuffled_inflation,
)
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.kernels.positive_numbers import Prior, lift_small_values
from pymc_geodesic.schedules import Schedule


@dataclass(frozen=True)
class CountNoiseSettings:
    """Constants of the adaptation; steps are times in units of the relaxation time.

    Attributes
    ----------
    longest_exact_step : float
        Bound of the step size of exact transitions: the past is forgotten to within e⁻⁵.
    longest_euler_step : float
        Bound of the step size of Euler's method where no likelihood requires a shorter one.
    euler_resolution : float
        Longest step of Euler's method in units of the shortest relaxation time τ of the drift.
        Steps of h widen the variance there by 1 / (1 − h/2τ), 5 %.
    first_iterations : int
        Iterations of the power method for τ at the first measurement; one at each later one.
    relative_difference : float
        Largest relative change of a component in the differences of the drift.
    n_measured_draws : int
        Draws of each half of the warm-up at which the noise is measured if the step size is
        user-specified, for the sample stat ``variance_inflation``.
    """

    longest_exact_step: float = 5.0
    longest_euler_step: float = 0.1
    euler_resolution: float = 0.1
    first_iterations: int = 5
    relative_difference: float = 1e-3
    n_measured_draws: int = 20


SETTINGS = CountNoiseSettings()

CheckForm = Callable[[np.ndarray, int], int]
"""Variables and minibatch → gradient evaluations; raises ValueError for another likelihood."""


class CountNoise:
    """Averages over the measurements of a warm-up.

    Parameters
    ----------
    n_variables, size : int
        Number of variables, and of coordinates of all of them.

    Attributes
    ----------
    count : int
        Measurements so far.
    """

    def __init__(self, n_variables: int, size: int) -> None:
        self._shape = n_variables, size
        self.reset()

    def reset(self) -> None:
        """Forget all measurements."""
        n_variables, size = self._shape
        self.count = 0
        self._noise = np.zeros(n_variables)
        self._exposures = np.zeros(size)
        self._totals = np.zeros(size)

    def observe(self, noise: np.ndarray, exposures: np.ndarray, totals: np.ndarray) -> None:
        """Add a measurement.

        Parameters
        ----------
        noise : ndarray, shape (n_variables,)
            Variance of the estimates of each variable, relative to that of the variable.
        exposures : ndarray, shape (size,)
            Estimated exposures.
        totals : ndarray, shape (size,)
            Estimated counts, summed over the simplex row of each coordinate; zero where the sum
            does not depend on the point.
        """
        self.count += 1
        self._noise += noise
        self._exposures += exposures
        self._totals += totals

    @property
    def largest(self) -> float:
        """Relative noise of the variable where it is largest, Var[â] / a."""
        return float(self._noise.max() / max(self.count, 1))

    @property
    def exposures(self) -> np.ndarray:
        """Mean of the exposures, shape (size,)."""
        return self._exposures / max(self.count, 1)

    @property
    def totals(self) -> np.ndarray:
        """Mean sum of the counts in the row of each coordinate, shape (size,)."""
        return self._totals / max(self.count, 1)

    @property
    def state(self) -> dict[str, Any]:
        """All of it; exposures and sums are left out where there are none."""
        return {
            "count": self.count,
            "noise": self._noise.copy(),
            "exposures": self._exposures.copy() if self._exposures.any() else np.empty(0),
            "totals": self._totals.copy() if self._totals.any() else np.empty(0),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self._noise = state["noise"].copy()
        self._exposures, self._totals = np.zeros((2, self._shape[1]))
        if state["exposures"].size:
            self._exposures[:] = state["exposures"]
        if state["totals"].size:
            self._totals[:] = state["totals"]


class CountNoiseAdaptation(ABC):
    """Step size, user-specified or from the measured noise of count estimates.

    Parameters
    ----------
    estimate : CountEstimate
    layout : CountLayout
    step_size : float, callable or None
        h, or a schedule, a function of the draw; adapted if None.
    counts_depend : bool
        Whether the counts change with the point, so that they are out of date by the end of a step.
    sums_depend : ndarray of bool, shape (size,)
        Of each coordinate, whether the sum of the counts of its simplex row changes with the point.
    control_variates : CountControlVariates, optional

    Attributes
    ----------
    needs_warm_up : bool
        Whether the step size is adapted.
    is_tuned : bool
        Whether a warm-up has been completed, whose step size chains without one use.
    """

    is_whitened = False
    minibatch_remedy = LARGER_MINIBATCHES

    def __init__(
        self,
        estimate: CountEstimate,
        layout: CountLayout,
        *,
        step_size: float | Schedule | None,
        counts_depend: bool,
        sums_depend: np.ndarray,
        control_variates: CountControlVariates | None = None,
    ) -> None:
        self._estimate, self._layout = estimate, layout
        self._given, self.needs_warm_up = step_size, step_size is None
        self._counts_depend, self._sums_depend = counts_depend, sums_depend
        self._control_variates = control_variates
        self._counts, self._exposures = np.zeros(layout.size), np.zeros(layout.size)
        self._noise = CountNoise(len(layout.parts), layout.size)
        self.is_tuned = False
        self.initialize(0)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._given is not None:
            return "adapts nothing: the step size is user-specified."
        return "adapts the step size to the noise of the counts that minibatches estimate."

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without a warm-up, with what the last one has adapted."""
        self._n_tune = n_tune
        self.is_tuned = self.is_tuned and n_tune == 0
        if self.is_tuned:
            return
        self._noise.reset()
        self._step_size, self._shrinkage = 0.0, 1.0
        self._forget_drift()

    @property
    def n_grad(self) -> int:
        """Gradient evaluations of one inner step."""
        return self._estimate.evaluations * (1 if self._control_variates is None else 2)

    # --- a draw ------------------------------------------------------------------------------

    def begin_draw(self, draw: int, *, tune: bool) -> None:
        """Discard in the middle of the warm-up what was measured before the chain arrived."""
        if tune and draw == self._n_tune // 2:
            self._noise.reset()

    def forget_noise(self) -> None:
        """Discard the measurements: control variates have another centering point."""
        self._noise.reset()

    def is_due(self, draw: int, *, tune: bool) -> bool:
        """Whether the noise is to be measured at a draw."""
        half = max(self._n_tune // 2, 1)
        is_early = draw % half < SETTINGS.n_measured_draws
        return self._noise.count == 0 or (tune and (self._given is None or is_early))

    def measure(
        self,
        draw: int,
        log_state: np.ndarray,
        prior: Prior,
        minibatches: np.ndarray,
        stream: np.ndarray,
        *,
        tune: bool,
    ) -> int:
        """Measure the noise at a position, and choose the step size by it.

        Parameters
        ----------
        draw : int
            Number of the draw, warm-up included.
        log_state : ndarray, shape (size,)
            log θ.
        prior : Prior
        minibatches : ndarray of int64, shape (at least 2,)
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced where the estimate is random.
        tune : bool
            Whether the chain is in the warm-up.

        Returns
        -------
        int
            Gradient evaluations.
        """
        values = self._layout.values(log_state)
        lift_small_values(self._layout.blocks, prior.rate, values)
        n_grad = self._measure_noise(values, log_state, prior, minibatches, stream)
        n_grad += self._measure_drift(
            values, log_state, prior, int(minibatches[0]), stream, tune=tune
        )
        lag = 1.0 if self._counts_depend else 0.0
        self._step_size = longest_time(
            lambda time: self.inflation(time) + lag * independent_inflation(time),
            allowed_inflation(draw, self._n_tune),
            self._longest_step(prior),
        )
        return n_grad

    def step_size(self, draw: int) -> float:
        """Step size h of a draw, a time in units of the relaxation time."""
        if callable(self._given):
            step_size = step_size_at(self._given, draw)
        else:
            step_size = self._step_size if self._given is None else self._given
        return step_size * self._shrinkage

    def shrink(self) -> None:
        """Halve the step size for the rest of the chain, after a draw that failed."""
        self._shrinkage *= 0.5

    def end_draw(self, draw: int, *, tune: bool) -> None:
        """Keep what was adapted for chains without a warm-up, after the last draw of one."""
        self.is_tuned |= tune and draw >= self._n_tune - 1 and self._noise.count > 0

    def unit(self, prior: Prior) -> np.ndarray:
        """Rate b̄ near β + c, which makes step sizes numbers without unit; 1 on simplices."""
        return np.where(self._layout.is_simplex, 1.0, prior.rate + self._noise.exposures)

    def count_totals(self) -> np.ndarray:
        """M of every coordinate, near the mean of Σn; see `pymc_geodesic.kernels.scir.scir`."""
        if not self._sums_depend.any():
            return np.empty(0)
        if self._control_variates is not None and self._control_variates.is_centered:
            totals = self._layout.row_sums(self._control_variates.center.counts)
        else:
            totals = self._noise.totals
        return np.where(self._sums_depend, totals, np.nan)

    def measured_total(self, part: slice) -> np.ndarray | None:
        """Mean of Σn in the row of each coordinate of a variable, where it is not constant."""
        if self._sums_depend[part.start] and self._noise.count:
            return self._noise.totals[part]
        return None

    # --- measurements ------------------------------------------------------------------------

    def _is_usable(self, values: np.ndarray, minibatch: int, stream: np.ndarray) -> bool:
        """Estimate counts and exposures; return whether the dynamics can follow them."""
        failed = self._estimate.estimate(values, minibatch, stream, self._counts, self._exposures)
        return self._accepts(failed)

    def _measure_noise(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        minibatches: np.ndarray,
        stream: np.ndarray,
    ) -> int:
        """Compare the drifts of two minibatches; return the number of gradient evaluations."""
        if not self._is_usable(values, int(minibatches[0]), stream):
            return 1
        counts, exposures = self._counts.copy(), self._exposures.copy()
        drift = self._drift(values, log_state, int(minibatches[0]), stream)
        variance = self._variance(values, log_state, prior, counts, exposures)
        n_grad = self.n_grad
        noise = np.zeros(len(self._layout.parts))
        if not self._estimate.source.is_everything:
            if not self._is_usable(values, int(minibatches[1]), stream):
                return 2
            other = self._drift(values, log_state, int(minibatches[1]), stream)
            n_grad *= 2
            # Estimates that are followed for parts s of a step add s² of their variance.
            one, two = (self._estimate.share(int(minibatch)) for minibatch in minibatches[:2])
            weight = 2.0 * (one * two / (one + two)) ** 2
            for i, part in enumerate(self._layout.parts):
                deviation = np.sum((drift[part] - other[part]) ** 2)
                noise[i] = weight * deviation / np.sum(variance[part])
        totals = np.where(self._sums_depend, self._layout.row_sums(counts), 0.0)
        self._noise.observe(noise, exposures, totals)
        return n_grad

    def _drift(
        self, values: np.ndarray, log_state: np.ndarray, minibatch: int, stream: np.ndarray
    ) -> np.ndarray:
        """Drift that the last estimate contributes, without the prior, shape (size,).

        On a simplex it is n − ω Σn, which moves ω; what moves the sum of θ alone is left out.
        """
        counts, exposures = self._counts.copy(), self._exposures.copy()
        if self._control_variates is not None:
            counts, exposures = self._control_variates.correct(minibatch, counts, exposures, stream)
        drift = counts - exposures * np.where(self._layout.is_log_normal, log_state, values)
        return drift - np.where(self._layout.is_simplex, values * self._layout.row_sums(drift), 0.0)

    # --- what depends on the discretization --------------------------------------------------

    @abstractmethod
    def inflation(self, step_size: float) -> float:
        """Relative variance that the noise of the minibatches adds at a step size."""

    @abstractmethod
    def _accepts(self, failed: int) -> bool:
        """Whether the dynamics can follow an estimate, of which this index is negative (or −1)."""

    @abstractmethod
    def _variance(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> np.ndarray:
        """Variance of each coordinate that the noise is compared with, shape (size,)."""

    @abstractmethod
    def _longest_step(self, prior: Prior) -> float:
        """Bound of the step size."""

    @abstractmethod
    def _measure_drift(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        minibatch: int,
        stream: np.ndarray,
        *,
        tune: bool,
    ) -> int:
        """Check or measure how the drift changes with θ; return gradient evaluations."""

    @abstractmethod
    def _forget_drift(self) -> None:
        """Discard what `_measure_drift` has measured."""

    @property
    @abstractmethod
    def _drift_state(self) -> dict[str, Any]:
        """What `_measure_drift` has measured."""

    @_drift_state.setter
    @abstractmethod
    def _drift_state(self, state: dict[str, Any]) -> None: ...

    @property
    def state(self) -> dict[str, Any]:
        """Step size, and the measurements that it follows from."""
        return {
            "n_tune": self._n_tune,
            "is_tuned": self.is_tuned,
            "step_size": self._step_size,
            "shrinkage": self._shrinkage,
            "noise": self._noise.state,
            "drift": self._drift_state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._n_tune, self.is_tuned = state["n_tune"], state["is_tuned"]
        self._step_size, self._shrinkage = state["step_size"], state["shrinkage"]
        self._noise.state = state["noise"]
        self._drift_state = state["drift"]


class ExactStepSize(CountNoiseAdaptation):
    """Step size of exact transitions, which only the noise and the age of the counts limit.

    Minibatches of an epoch, whose deviations add up to zero, inflate the variance by less than
    independent ones; see `pymc_geodesic.adaptation.variance_inflation`.

    Parameters
    ----------
    estimate, layout, step_size, counts_depend, sums_depend, control_variates
        See `CountNoiseAdaptation`.
    check_form : callable, optional
        Check of the likelihood where the chain is in the warm-up; see `CheckForm`.
    """

    def __init__(
        self,
        estimate: CountEstimate,
        layout: CountLayout,
        *,
        step_size: float | Schedule | None,
        counts_depend: bool,
        sums_depend: np.ndarray,
        control_variates: CountControlVariates | None,
        check_form: CheckForm | None,
    ) -> None:
        super().__init__(
            estimate,
            layout,
            step_size=step_size,
            counts_depend=counts_depend,
            sums_depend=sums_depend,
            control_variates=control_variates,
        )
        self._check_form = check_form

    def inflation(self, step_size: float) -> float:
        """Relative variance that the noise adds: tanh(h/2) Var[â], less within epochs."""
        epoch = self._estimate.source.epoch
        if epoch is None:
            return self._noise.largest * independent_inflation(step_size)
        return self._noise.largest * shuffled_inflation(step_size, epoch)

    def _accepts(self, failed: int) -> bool:
        """Whether no count is negative."""
        return failed < 0

    def _variance(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> np.ndarray:
        """Shape α + n of each coordinate, at given ω on a simplex."""
        layout = self._layout
        shape = np.where(layout.is_log_normal, prior.rate + exposures, prior.shape + counts)
        return np.maximum(shape * (1.0 - np.where(layout.is_simplex, values, 0.0)), 0.0)

    def _longest_step(self, prior: Prior) -> float:
        """Return the step after which the past is forgotten."""
        return SETTINGS.longest_exact_step

    def _measure_drift(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        minibatch: int,
        stream: np.ndarray,
        *,
        tune: bool,
    ) -> int:
        """Check that the likelihood has the form of the prior, in the warm-up."""
        if self._check_form is None or not tune:
            return 0
        return self._check_form(values, minibatch)

    def _forget_drift(self) -> None:
        pass

    @property
    def _drift_state(self) -> dict[str, Any]:
        return {}

    @_drift_state.setter
    def _drift_state(self, state: dict[str, Any]) -> None:
        pass


class EulerStepSize(CountNoiseAdaptation):
    """Step size of Euler's method, which the fastest relaxation of the drift limits too.

    The shortest relaxation time τ is that of the direction in which the drift brings θ back
    fastest, by the power method with differences of the drift. Takes the parameters of
    `CountNoiseAdaptation`.
    """

    _direction: np.ndarray
    _fastest: float

    def inflation(self, step_size: float) -> float:
        """Relative variance that the noise adds, as independent minibatches do."""
        return self._noise.largest * independent_inflation(step_size)

    def _accepts(self, failed: int) -> bool:
        """Whether all counts are finite; they may be negative."""
        return bool(np.isfinite(self._counts).all() and np.isfinite(self._exposures).all())

    def _variance(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> np.ndarray:
        """θ (1 − ω) on a simplex, and α + n elsewhere."""
        theta = np.exp(log_state) * (1.0 - values)
        return np.where(self._layout.is_simplex, theta, prior.shape + np.maximum(counts, 0.0))

    def _longest_step(self, prior: Prior) -> float:
        """Return a part of the time in which the likelihood brings variables back."""
        longest, resolution = SETTINGS.longest_euler_step, SETTINGS.euler_resolution
        if self._estimate.repeats:
            return min(longest, resolution / max(self._fastest, 1.0))
        shape = self._layout.row_sums(prior.shape)
        counts = self._layout.row_sums(np.abs(self._counts))
        return min(longest, resolution * float(np.min(shape / (shape + counts))))

    def _measure_drift(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        minibatch: int,
        stream: np.ndarray,
        *,
        tune: bool,
    ) -> int:
        """Iterate the power method for the fastest relaxation; return gradient evaluations."""
        if not self._estimate.repeats:
            return 0
        if self._noise.count <= 1:
            self._fastest = 0.0
        n_iterations = 1 if self._direction.size else SETTINGS.first_iterations
        return sum(
            self._follow_fastest(values, log_state, prior, minibatch, stream)
            for _ in range(n_iterations)
        )

    def _follow_fastest(
        self,
        values: np.ndarray,
        log_state: np.ndarray,
        prior: Prior,
        minibatch: int,
        stream: np.ndarray,
    ) -> int:
        """Apply the differential of the drift to the direction; return gradient evaluations."""
        layout = self._layout
        if not self._direction.size:
            self._direction = values * np.random.default_rng(1).standard_normal(values.size)
        direction = self._direction
        tangent = np.where(layout.is_simplex, values * layout.row_sums(direction), 0.0)
        along = direction - tangent
        largest = np.max(np.abs(along) / values)
        if not (largest > 0.0 and math.isfinite(largest)):
            self._direction = np.empty(0)
            return 0
        along *= SETTINGS.relative_difference / largest
        difference = np.zeros(values.size)
        for sign in (1.0, -1.0):
            moved = values + sign * along
            if not self._is_usable(moved, minibatch, stream):
                return 2 * self.n_grad
            difference -= 0.5 * sign * self._drift(moved, log_state, minibatch, stream)
        # The sum of θ is that of the prior; it stands for its rate of one.
        totals = layout.row_sums(prior.shape)
        difference += np.where(layout.is_simplex, totals, prior.rate) * along
        back = difference / np.where(layout.is_simplex, totals, prior.rate + self._noise.exposures)
        rate = math.sqrt(np.sum(back**2 / values) / np.sum(along**2 / values))
        if math.isfinite(rate):
            self._fastest = max(self._fastest, rate)
            self._direction = back
        return 2 * self.n_grad

    def _forget_drift(self) -> None:
        self._direction, self._fastest = np.empty(0), 0.0

    @property
    def _drift_state(self) -> dict[str, Any]:
        return {"direction": self._direction.copy(), "fastest": self._fastest}

    @_drift_state.setter
    def _drift_state(self, state: dict[str, Any]) -> None:
        self._direction, self._fastest = state["direction"].copy(), state["fastest"]
