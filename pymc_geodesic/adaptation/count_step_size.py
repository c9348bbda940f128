"""Step size rules of exact transitions (SCIR) and of Euler's method (SGRLD)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.count_control_variates import CountDrift
from pymc_geodesic.adaptation.count_noise import CIRChain, CountNoise
from pymc_geodesic.adaptation.variance_inflation import independent_inflation, shuffled_inflation
from pymc_geodesic.kernels.counts import Prior


@dataclass(frozen=True)
class CountStepSizeSettings:
    """Constants of the rules; step sizes are durations in units of the relaxation time.

    Attributes
    ----------
    longest_exact_step : float
        Upper bound on the step size of exact transitions, after which the past has weight e⁻⁵.
    longest_euler_step : float
        Upper bound on the step size of Euler's method if the drift of the likelihood is slow.
    euler_resolution : float
        Upper bound on the step size of Euler's method in units of the shortest relaxation time τ of
        the drift. A step h increases the variance in that direction by the factor 1 / (1 − h/2τ),
        5 %.
    first_iterations : int
        Number of iterations of the power method for τ at the first measurement; later ones use one.
    relative_difference : float
        Largest relative change of a component in the finite differences of the drift.
    """

    longest_exact_step: float = 5.0
    longest_euler_step: float = 0.1
    euler_resolution: float = 0.1
    first_iterations: int = 5
    relative_difference: float = 1e-3


SETTINGS = CountStepSizeSettings()

CheckConjugacy = Callable[[np.ndarray, int], int]
"""Function of values and a minibatch that returns the number of estimates; it raises ValueError for
a likelihood that is not conjugate."""


class ExactStepSize:
    """Step size of exact transitions, limited by the noise and the change of the counts.

    The variance is inflated by tanh(h/2) Var[â] with independent minibatches (corollary 3.2), and
    by less with the minibatches of an epoch, whose deviations sum to zero; see
    `pymc_geodesic.adaptation.variance_inflation`.

    Parameters
    ----------
    drift : CountDrift
    check_conjugacy : callable
        Check of the likelihood at positions of the warm-up; see `CheckConjugacy`.
    """

    def __init__(self, drift: CountDrift, check_conjugacy: CheckConjugacy) -> None:
        self._source, self._layout = drift.estimator.source, drift.layout
        self._check_conjugacy = check_conjugacy

    def initialize(self) -> None:
        """Do nothing; see `StepSizeRule`."""

    def inflation(self, noise: float, step_size: float) -> float:
        """Relative variance added by the noise; see `StepSizeRule`."""
        epoch = self._source.epoch
        if epoch is None:
            return noise * independent_inflation(step_size)
        return noise * shuffled_inflation(step_size, epoch)

    def variance(
        self, values: np.ndarray, chain: CIRChain, counts: np.ndarray, exposures: np.ndarray
    ) -> np.ndarray:
        """Shape α + n of each coordinate, times 1 − ω on a simplex; see `StepSizeRule`."""
        layout, prior = self._layout, chain.prior
        shape = np.where(layout.is_log_normal, prior.rate + exposures, prior.shape + counts)
        return np.maximum(shape * (1.0 - np.where(layout.is_simplex, values, 0.0)), 0.0)

    def measure(
        self,
        values: np.ndarray,
        chain: CIRChain,
        minibatch: int,
        noise: CountNoise,
        *,
        tune: bool,
    ) -> int:
        """Check that the likelihood is conjugate, during warm-up; see `StepSizeRule`."""
        return self._check_conjugacy(values, minibatch) if tune else 0

    def longest_step(self, prior: Prior) -> float:
        """Return the constant upper bound; see `StepSizeRule`."""
        return SETTINGS.longest_exact_step

    @property
    def state(self) -> dict[str, Any]:
        """Empty."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass


class EulerStepSize:
    """Step size of Euler's method, also limited by the fastest relaxation of the drift.

    The shortest relaxation time τ, that of the direction with the fastest mean reversion, is
    computed by the power method with finite differences of the drift. If the estimate is random, τ
    is bounded by that of a likelihood of counts, Σα / (Σα + Σn).

    Parameters
    ----------
    drift : CountDrift
    """

    def __init__(self, drift: CountDrift) -> None:
        self._drift, self._layout = drift, drift.layout
        self.initialize()

    def initialize(self) -> None:
        """Discard direction and rate of the fastest relaxation; see `StepSizeRule`."""
        self._direction, self._fastest = np.empty(0), 0.0

    def inflation(self, noise: float, step_size: float) -> float:
        """Relative variance added by independent minibatches; see `StepSizeRule`."""
        return noise * independent_inflation(step_size)

    def variance(
        self, values: np.ndarray, chain: CIRChain, counts: np.ndarray, exposures: np.ndarray
    ) -> np.ndarray:
        """θ (1 − ω) on a simplex, and α + n elsewhere; see `StepSizeRule`."""
        theta = np.exp(chain.log_state) * (1.0 - values)
        shape = chain.prior.shape + np.maximum(counts, 0.0)
        return np.where(self._layout.is_simplex, theta, shape)

    def longest_step(self, prior: Prior) -> float:
        """Return a fraction of the shortest relaxation time; see `StepSizeRule`."""
        longest, resolution = SETTINGS.longest_euler_step, SETTINGS.euler_resolution
        if self._drift.estimator.is_deterministic:
            return min(longest, resolution / max(self._fastest, 1.0))
        shape = self._layout.row_sums(prior.shape)
        counts = self._layout.row_sums(np.abs(self._drift.counts))
        return min(longest, resolution * float(np.min(shape / (shape + counts))))

    def measure(
        self,
        values: np.ndarray,
        chain: CIRChain,
        minibatch: int,
        noise: CountNoise,
        *,
        tune: bool,
    ) -> int:
        """Iterate the power method for the fastest relaxation; see `StepSizeRule`."""
        if not self._drift.estimator.is_deterministic:
            return 0
        if noise.count <= 1:
            self._fastest = 0.0
        n_iterations = 1 if self._direction.size else SETTINGS.first_iterations
        return sum(
            self._iterate(values, chain, minibatch, noise.exposures) for _ in range(n_iterations)
        )

    def _iterate(
        self, values: np.ndarray, chain: CIRChain, minibatch: int, exposures: np.ndarray
    ) -> int:
        """Apply the Jacobian of the drift to the direction; return the gradient evaluations."""
        layout, prior = self._layout, chain.prior
        if not self._direction.size:
            self._direction = values * np.random.default_rng(1).standard_normal(values.size)
        direction = self._direction
        tangent = direction - np.where(layout.is_simplex, values * layout.row_sums(direction), 0.0)
        largest = np.max(np.abs(tangent) / values)
        if not (largest > 0.0 and math.isfinite(largest)):
            self._direction = np.empty(0)
            return 0
        tangent *= SETTINGS.relative_difference / largest
        difference = np.zeros(values.size)
        for sign in (1.0, -1.0):
            drift = self._drift(values + sign * tangent, chain.log_state, minibatch, chain.stream)
            if drift is None:
                return 2 * self._drift.n_grad
            difference -= 0.5 * sign * drift
        # In the expanded mean Σθ is near Σα, so that θ = ω Σα and the rate of the prior is one.
        totals = layout.row_sums(prior.shape)
        difference += np.where(layout.is_simplex, totals, prior.rate) * tangent
        restored = difference / np.where(layout.is_simplex, totals, prior.rate + exposures)
        rate = math.sqrt(np.sum(restored**2 / values) / np.sum(tangent**2 / values))
        if math.isfinite(rate):
            self._fastest = max(self._fastest, rate)
            self._direction = restored
        return 2 * self._drift.n_grad

    @property
    def state(self) -> dict[str, Any]:
        """Direction and rate of the fastest relaxation."""
        return {"direction": self._direction.copy(), "fastest": self._fastest}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._direction, self._fastest = state["direction"].copy(), state["fastest"]
