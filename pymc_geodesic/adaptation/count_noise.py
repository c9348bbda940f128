"""Adaptation of the step size of SCIR and SGRLD to the noise of the count estimates.

A chain with noisy estimates of the counts has a larger variance than the posterior, by the relative
noise of the estimates times a function of the step size h (Baker et al. 2018, corollary 3.2).
During warm-up the noise is measured along the chain, from the difference of the drifts of two
minibatches at the same position. h is the largest step size whose inflation of the variance is at
most `pymc_geodesic.adaptation.variance_inflation.allowed_inflation`: a large factor at first, so
that a chain that starts far from the posterior converges, and 5 % after 70 % of the warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_geodesic.adaptation.count_control_variates import CountDrift
from pymc_geodesic.adaptation.variance_inflation import (
    allowed_inflation,
    independent_inflation,
    longest_time,
)
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.kernels.counts import Prior, clip_small_values
from pymc_geodesic.schedules import Schedule


@dataclass(frozen=True)
class CountNoiseSettings:
    """Constants of the adaptation.

    Attributes
    ----------
    n_measured_draws : int
        Number of draws in each half of the warm-up at which the noise is measured if the step size
        is user-specified, for the sample stat ``variance_inflation``.
    """

    n_measured_draws: int = 20


SETTINGS = CountNoiseSettings()


@dataclass(eq=False)
class CIRChain:
    """State of a chain between two draws, which `pymc_geodesic.samplers.cir.CIRSampler` owns.

    Attributes
    ----------
    log_state : ndarray, shape (size,)
        log θ; empty before the first draw.
    stream : ndarray of uint64, shape (2,)
        Random stream.
    prior : Prior
        Parameters of the priors at the current values of other variables.
    n : int
        Number of draws so far, including the warm-up.
    needs_totals : bool
        Whether Σθ of simplex rows has not been drawn since the position was set.
    """

    log_state: np.ndarray
    stream: np.ndarray
    prior: Prior
    n: int = 0
    needs_totals: bool = True


class CIRParameters(NamedTuple):
    """Parameters of the inner steps of a draw; see `pymc_geodesic.kernels.scir.scir`.

    Parameters
    ----------
    step_size : float
        h, a duration in units of 1 / b̄.
    reference_rate : ndarray, shape (size,)
        b̄, the rate near β + c that defines the unit of time; 1 for Dirichlet variables.
    count_totals : ndarray, shape (size,) or (0,)
        M, near the mean of Σn; NaN if Σn is constant. Empty if all are NaN.
    """

    step_size: float
    reference_rate: np.ndarray
    count_totals: np.ndarray


class CountNoise:
    """Averages over the measurements of a warm-up.

    Parameters
    ----------
    n_variables, size : int
        Number of variables, and of coordinates of all of them.

    Attributes
    ----------
    count : int
        Number of measurements so far.
    """

    def __init__(self, n_variables: int, size: int) -> None:
        self._shape = n_variables, size
        self.reset()

    def reset(self) -> None:
        """Discard all measurements."""
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
            Variance of the estimated drift of each variable, relative to that of the variable.
        exposures : ndarray, shape (size,)
            Estimated exposures.
        totals : ndarray, shape (size,)
            Estimated counts, summed over the simplex row of each coordinate; zero if the sum does
            not depend on the values.
        """
        self.count += 1
        self._noise += noise
        self._exposures += exposures
        self._totals += totals

    @property
    def largest(self) -> float:
        """Largest relative noise of any variable, Var[â] / a."""
        return float(self._noise.max() / max(self.count, 1))

    @property
    def exposures(self) -> np.ndarray:
        """Mean exposures, shape (size,)."""
        return self._exposures / max(self.count, 1)

    @property
    def totals(self) -> np.ndarray:
        """Mean sum of the counts in the simplex row of each coordinate, shape (size,)."""
        return self._totals / max(self.count, 1)

    @property
    def state(self) -> dict[str, Any]:
        """All measurements; exposures and sums are empty if all are zero."""
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


class StepSizeRule(Protocol):
    """Part of the adaptation that depends on the discretization.

    Implemented by `pymc_geodesic.adaptation.count_step_size.ExactStepSize` and
    `pymc_geodesic.adaptation.count_step_size.EulerStepSize`.

    Attributes
    ----------
    state : dict
        Measurements of the rule itself.
    """

    state: dict[str, Any]

    def initialize(self) -> None:
        """Discard the measurements of the rule."""

    def inflation(self, noise: float, step_size: float) -> float:
        """Relative variance that minibatches add, given their noise Var[â] / a."""

    def variance(
        self, values: np.ndarray, chain: CIRChain, counts: np.ndarray, exposures: np.ndarray
    ) -> np.ndarray:
        """Variance relative to which the noise of each coordinate is measured, shape (size,)."""

    def measure(
        self,
        values: np.ndarray,
        chain: CIRChain,
        minibatch: int,
        noise: CountNoise,
        *,
        tune: bool,
    ) -> int:
        """Check the likelihood or measure its drift; return the number of gradient evaluations."""

    def longest_step(self, prior: Prior) -> float:
        """Upper bound on the step size without noise."""


class CountNoiseAdaptation:
    """Step size of SCIR and SGRLD, user-specified or adapted to the noise of the counts.

    `pymc_geodesic.samplers.cir.CIRSampler.draw` calls `begin_draw`, `measure` if a measurement
    `is_due` (it computes the step size), `parameters`, `shrink` if the draw is not finite, and
    `end_draw`.

    Parameters
    ----------
    drift : CountDrift
    rule : StepSizeRule
    step_size : float, callable or None
        h, or a schedule, a function of the draw; adapted if None.
    counts_depend : bool
        Whether the counts depend on the values, and therefore change during a step.
    sums_depend : ndarray of bool, shape (size,)
        Whether the sum of the counts of the simplex row of each coordinate depends on the values.

    Attributes
    ----------
    needs_warm_up : bool
        Whether the step size is adapted.
    is_tuned : bool
        Whether a warm-up has been completed, whose step size is used by chains without warm-up.
    """

    whitens = False

    def __init__(
        self,
        drift: CountDrift,
        rule: StepSizeRule,
        *,
        step_size: float | Schedule | None,
        counts_depend: bool,
        sums_depend: np.ndarray,
    ) -> None:
        self._drift, self._rule, self._layout = drift, rule, drift.layout
        self._user_specified, self.needs_warm_up = step_size, step_size is None
        self._counts_depend, self._sums_depend = counts_depend, sums_depend
        self._any_sum_depends = bool(sums_depend.any())
        self._all_simplex = bool(self._layout.is_simplex.all())
        self._ones = np.ones(self._layout.size)
        self._noise = CountNoise(len(self._layout.parts), self._layout.size)
        self.is_tuned = False
        self.initialize(0)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._user_specified is not None:
            return "adapts nothing: the step size is user-specified."
        return "adapts the step size to the noise of the counts estimated from minibatches."

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; without warm-up, keep the parameters of the previous one."""
        self._n_tune = n_tune
        self.is_tuned = self.is_tuned and n_tune == 0
        if self.is_tuned:
            return
        self._noise.reset()
        self._step_size, self._shrinkage = 0.0, 1.0
        self._rule.initialize()

    @property
    def n_grad(self) -> int:
        """Gradient evaluations of one inner step."""
        return self._drift.n_grad

    # --- a draw ------------------------------------------------------------------------------

    def begin_draw(self, draw: int, *, tune: bool) -> None:
        """Discard the measurements of the first half of the warm-up, at its end."""
        if tune and draw == self._n_tune // 2:
            self._noise.reset()

    def discard_noise(self) -> None:
        """Discard the measurements, after a change of the centering point."""
        self._noise.reset()

    def is_due(self, draw: int, *, tune: bool) -> bool:
        """Whether the noise is measured at a draw."""
        half = max(self._n_tune // 2, 1)
        is_early = draw % half < SETTINGS.n_measured_draws
        return self._noise.count == 0 or (tune and (self._user_specified is None or is_early))

    def measure(self, chain: CIRChain, minibatches: np.ndarray, *, tune: bool) -> int:
        """Measure the noise at the position of a chain, and compute the step size.

        Parameters
        ----------
        chain : CIRChain
            State of the chain; its stream is advanced if the estimate is random.
        minibatches : ndarray of int64, shape (at least 2,)
        tune : bool
            Whether the chain is in the warm-up.

        Returns
        -------
        int
            Number of gradient evaluations.
        """
        values = self._layout.values(chain.log_state)
        clip_small_values(self._layout.table, chain.prior.rate, values)
        n_grad = self._measure_noise(values, chain, minibatches)
        n_grad += self._rule.measure(values, chain, int(minibatches[0]), self._noise, tune=tune)
        lag = 1.0 if self._counts_depend else 0.0
        self._step_size = longest_time(
            lambda time: self.inflation(time) + lag * independent_inflation(time),
            allowed_inflation(chain.n, self._n_tune),
            self._rule.longest_step(chain.prior),
        )
        return n_grad

    def _measure_noise(self, values: np.ndarray, chain: CIRChain, minibatches: np.ndarray) -> int:
        """Compare the drifts of two minibatches; return the number of gradient evaluations."""
        estimator, layout = self._drift.estimator, self._layout
        first, second = (int(minibatch) for minibatch in minibatches[:2])
        drift = self._drift(values, chain.log_state, first, chain.stream)
        if drift is None:
            return 1
        counts, exposures = self._drift.counts.copy(), self._drift.exposures.copy()
        variance = self._rule.variance(values, chain, counts, exposures)
        n_grad = self.n_grad
        noise = np.zeros(len(layout.parts))
        if not estimator.source.has_all_rows:
            other = self._drift(values, chain.log_state, second, chain.stream)
            if other is None:
                return 2
            n_grad *= 2
            # An estimate that is used for a fraction s of a step adds s² times its variance.
            one, two = estimator.share(first), estimator.share(second)
            weight = 2.0 * (one * two / (one + two)) ** 2
            for i, part in enumerate(layout.parts):
                squared = np.sum((drift[part] - other[part]) ** 2)
                noise[i] = weight * squared / np.sum(variance[part])
        totals = np.where(self._sums_depend, layout.row_sums(counts), 0.0)
        self._noise.observe(noise, exposures, totals)
        return n_grad

    def shrink(self) -> None:
        """Halve the step size for the rest of the chain, after a draw that is not finite."""
        self._shrinkage *= 0.5

    def end_draw(self, draw: int, *, tune: bool) -> None:
        """Mark the adaptation as tuned after the last draw of a warm-up."""
        self.is_tuned |= tune and draw >= self._n_tune - 1 and self._noise.count > 0

    # --- parameters --------------------------------------------------------------------------

    def parameters(self, chain: CIRChain) -> CIRParameters:
        """Parameters of the inner steps of the next draw."""
        return CIRParameters(
            self._step_size_of(chain.n), self._reference_rate(chain), self._count_totals()
        )

    def inflation(self, step_size: float) -> float:
        """Relative variance that the noise of the minibatches adds at a step size."""
        return self._rule.inflation(self._noise.largest, step_size)

    def _step_size_of(self, draw: int) -> float:
        if callable(self._user_specified):
            step_size = step_size_at(self._user_specified, draw)
        elif self._user_specified is not None:
            step_size = self._user_specified
        else:
            step_size = self._step_size
        return step_size * self._shrinkage

    def _reference_rate(self, chain: CIRChain) -> np.ndarray:
        if self._all_simplex:
            return self._ones
        return np.where(self._layout.is_simplex, 1.0, chain.prior.rate + self._noise.exposures)

    def _count_totals(self) -> np.ndarray:
        if not self._any_sum_depends:
            return np.empty(0)
        variates = self._drift.control_variates
        if variates is not None and variates.is_centered:
            totals = self._layout.row_sums(variates.center.counts)
        else:
            totals = self._noise.totals
        return np.where(self._sums_depend, totals, np.nan)

    def measured_total(self, part: slice) -> np.ndarray | None:
        """Mean Σn in the simplex row of each coordinate of a variable; None if Σn is constant."""
        if self._sums_depend[part.start] and self._noise.count:
            return self._noise.totals[part]
        return None

    @property
    def state(self) -> dict[str, Any]:
        """Step size, and the measurements from which it is computed."""
        return {
            "n_tune": self._n_tune,
            "is_tuned": self.is_tuned,
            "step_size": self._step_size,
            "shrinkage": self._shrinkage,
            "noise": self._noise.state,
            "rule": self._rule.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._n_tune, self.is_tuned = state["n_tune"], state["is_tuned"]
        self._step_size, self._shrinkage = state["step_size"], state["shrinkage"]
        self._noise.state = state["noise"]
        self._rule.state = state["rule"]
