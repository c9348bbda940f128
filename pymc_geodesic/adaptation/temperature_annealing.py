"""Adaptation of Langevin dynamics by temperature annealing, in the coordinates of the model.

If coordinates cannot be whitened (local variables, simplices, streams of few minibatches), step
size and friction are computed from curvature and gradient noise, which are measured along the
chain, and from a temperature bias that is annealed over the warm-up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LangevinChain, ModelCoordinateAdaptation, Proposal
from pymc_geodesic.adaptation.annealed_parameters import (
    AnnealedMeasurements,
    AnnealingRule,
    is_far,
    position_bias,
)
from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.adaptation.fixed import SETTINGS as FIXED
from pymc_geodesic.adaptation.fixed import KnownNoise, UserParameters
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import probe, probe_minibatches
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.product_flows import project
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.numerics import all_finite


@dataclass(frozen=True)
class TemperatureAnnealingSettings:
    """Constants of the measurements and of the thermostats.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    n_start_measurements : int
        Number of measurements at the starting point. The second half is used, after the power
        iteration has converged towards the largest curvature.
    max_probe_length : float
        Upper bound on the arc length of finite differences before there is a step size.
    max_thermostat : float
        Upper bound on the ratio (C + ξ)/C of total to nominal friction, in multiples of the value
        that compensates gradient noise. Without a bound, a starting point far from the posterior,
        or a visit to the edge of a simplex, would increase ξ for many draws: the effective sample
        size of the squares of three proportions was 345 of 20,000 without it, and 19,500 with it
        (gSGNHT, "compact" of ``tests/steps/test_every_route.py``).
    reported_bias : float
        Bias of the variance due to minibatch noise above which draws with local variables are
        diagnosed.
    remedied_bias : float
        Bias with the recommended step size and friction: 1 % of the standard deviation.
    """

    n_start_measurements: int = 10
    max_probe_length: float = 0.1
    max_thermostat: float = 5.0
    reported_bias: float = 0.05
    remedied_bias: float = 0.02


SETTINGS = TemperatureAnnealingSettings()


@dataclass
class AnnealingState:
    """State of the adaptation without the measured averages.

    Attributes
    ----------
    is_tuned : bool
        Whether the parameters have been adapted in a warm-up.
    step_size : float
        ε of the last draw of the warm-up; 0 before the first.
    friction : ndarray, shape (n_blocks,)
        C of the last draw of the warm-up; zeros before the first.
    direction : ndarray, shape (size,) or (0,)
        Direction of the power iteration.
    last_gradient : ndarray, shape (size,) or (0,)
        Gradient at the position with the last minibatch.
    """

    is_tuned: bool
    step_size: float
    friction: np.ndarray
    direction: np.ndarray = field(default_factory=lambda: np.empty(0))
    last_gradient: np.ndarray = field(default_factory=lambda: np.empty(0))


class TemperatureAnnealing(ModelCoordinateAdaptation):
    """Adaptation of step size and friction to measured curvature and noise, with annealing.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    rule : AnnealingRule
    measured : AnnealedMeasurements
        Measurements, with one noise variance for each variable, and the allowed temperature bias.
    parameters : UserParameters
        User-specified parameters.
    known_noise : KnownNoise
    noise_is_known : bool
        Whether the known noise replaces the measured noise.
    n_steps : int
        Number of inner steps per draw.
    fixed_initial_temperature : bool
        Whether the initial temperature is the same for all starting points.
    max_annealed_thermostat : float
        Upper bound on (C + ξ)/C while the target temperature is above 1, in the same multiples as
        ``max_thermostat``.
    ineligibility : Ineligibility
        Reason why coordinates are not whitened.
    """

    ineligibility: Ineligibility
    needs_warm_up = True

    def __init__(
        self,
        estimator: GradientEstimator,
        product: Product,
        rule: AnnealingRule,
        measured: AnnealedMeasurements,
        parameters: UserParameters,
        known_noise: KnownNoise,
        *,
        noise_is_known: bool,
        n_steps: int,
        fixed_initial_temperature: bool,
        max_annealed_thermostat: float = SETTINGS.max_thermostat,
        ineligibility: Ineligibility,
    ) -> None:
        super().__init__(estimator, product)
        self._rule, self._measured = rule, measured
        self._user, self._known_noise, self._n_steps = parameters, known_noise, n_steps
        self._noise_is_known = noise_is_known
        self._max_annealed_thermostat = max_annealed_thermostat
        self._fixed_initial_temperature = fixed_initial_temperature
        self.ineligibility = ineligibility
        self.is_constant = parameters.is_constant
        self._slices = list(product.slices.values())
        self._widths = [part.stop - part.start for part in self._slices]
        prepare(probe, probe_minibatches, project, evaluate)
        self._state = self._initial_state()
        self._last: tuple[float, np.ndarray] = (0.0, np.empty(0))
        self.initialize(1)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        user = self._user
        open_ones = {"step size": not user.has_step_size, "friction": not user.has_friction}
        adapted = " and ".join(name for name, is_open in open_ones.items() if is_open)
        return f"adapts {self.ineligibility.describe(adapted)}"

    @property
    def is_tuned(self) -> bool:
        """Whether the parameters have been adapted in a warm-up."""
        return self._state.is_tuned

    def _initial_state(self) -> AnnealingState:
        return AnnealingState(False, 0.0, np.zeros(len(self.product.dims)))

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        state, self._state = self._state, self._initial_state()
        if n_tune or self._measured.is_empty:
            self._measured.reset(n_tune)
        else:
            self._state.step_size, self._state.friction = state.step_size, state.friction
        self._state.is_tuned = state.is_tuned and n_tune == 0
        self._fixed: LangevinParameters | None = None

    def start(self, x: np.ndarray) -> np.ndarray:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._state.last_gradient = np.empty(0)
        return x

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Diagnose a variance that is inflated by the same minibatch in all steps of a draw."""
        if not self._estimator.is_local or self._estimator.is_exact or self._measured.is_empty:
            return None
        step_size, friction = self._last
        bias = position_bias(step_size, friction, self._measured.noise, self._n_steps)
        if bias < SETTINGS.reported_bias:
            return None
        factor = math.sqrt(SETTINGS.remedied_bias / bias)
        return Diagnosis(
            quantity="possible error of the standard deviations",
            condition="caused by minibatch noise",
            value=math.sqrt(1.0 + bias) - 1.0,
            expected=math.sqrt(1.0 + SETTINGS.reported_bias) - 1.0,
            limit="at most ",
            format_spec=".1%",
            consequence=(
                f"with local=, all {self._n_steps} inner steps of a draw use the same minibatch, "
                "which the kinetic temperature does not show"
            ),
            remedy=(
                f"Use {{minibatches}}, or step_size={factor * step_size:.2g} and "
                f"friction={friction.max() / factor:.2g}, which mix more slowly and keep the error "
                "below about 1%."
            ),
            anchor="temperature",
        )

    # --- a draw ------------------------------------------------------------------------------

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Measure curvature and compute the parameters; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimator.begin_draw(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        noise = self._known_noise.at(chain.z, int(minibatches[0]))
        if tune or self._measured.is_empty:
            n_grad += self._measure(chain, minibatches, noise, tune=tune)
        step_size = self._user.step_size_of(chain.n, self._estimator.total_size)
        if step_size is None:
            step_size = self._state.step_size
        friction = self._friction(step_size, tune=tune)
        if not tune and self._fixed is not None and step_size == self._last[0]:
            return Proposal(self._fixed, minibatches, n_grad)
        self._last = step_size, friction
        bias = self._rule.bias(self._measured, step_size, friction)
        temperatures = self._temperatures(bias) if tune else np.ones(friction.size)
        parameters = LangevinParameters(
            step_size,
            np.repeat(friction, self._widths),
            noise,
            self._n_steps,
            temperatures,
            self._thermostat_bounds(temperatures, bias),
            block_friction=friction,
        )
        self._fixed = None if tune else parameters
        return Proposal(parameters, minibatches, n_grad)

    def _friction(self, step_size: float, *, tune: bool) -> np.ndarray:
        """Compute C of each variable for a step size."""
        given = self._user.friction_of(step_size)
        if given is not None:
            return np.full(len(self.product.dims), given)
        if tune or not self._state.friction[0]:
            self._state.friction = self._rule.friction(self._measured, step_size)
        return self._state.friction

    def _temperatures(self, bias: np.ndarray) -> np.ndarray:
        """Compute target temperatures from the bias due to gradient noise and the allowed bias.

        With a user-specified step size or friction the bias may exceed the allowed one. Then the
        thermostats compensate the difference, and have equilibrated at the end of the warm-up.
        """
        annealed = np.minimum(bias, self._measured.allowed_bias)
        return 1.0 + np.maximum(annealed - self._measured.final_bias, 0.0)

    def _thermostat_bounds(
        self, temperatures: np.ndarray, bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute bounds on ξ/C; ξ ≥ 0 while the target temperature is above 1.

        Gradient noise that raises the temperature to 1 + bias is compensated by a mean (C + ξ)/C of
        (1 + bias)/T; the standard deviation of ξ/C is below 0.25. Near the edge of a simplex, where
        the gradient is not bounded, a single kick may multiply v·v by hundreds, and a ξ of that
        size would stop the variable for hundreds of draws.
        """
        anneals, largest = temperatures != 1.0, SETTINGS.max_thermostat
        multiple = np.where(anneals, self._max_annealed_thermostat, largest)
        upper = multiple * (1.0 + bias) / temperatures - 1.0
        return np.where(anneals, 0.0, -largest - 1.0), upper

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Halve the step size after a divergence; see `LangevinAdaptation`."""
        self._state.is_tuned = True
        if diverging or abs(temperature) > FIXED.overflow_temperature:
            self._measured.shrink()
            chain.restart_at(before, self.product)
            self._state.last_gradient = np.empty(0)
            return True, 0
        if self._estimator.source.has_all_rows:
            return False, 0
        # for a difference with the gradient of another minibatch at the next draw
        last = int(proposal.minibatches[-1])
        self._state.last_gradient = self._estimator.gradient_at(chain.z, last)
        return False, 1

    # --- measurements ------------------------------------------------------------------------

    def _measure(
        self, chain: LangevinChain, minibatches: np.ndarray, known: np.ndarray, *, tune: bool
    ) -> int:
        """Measure curvature and noise, and compute ε; return the number of gradients."""
        n_grad = 2
        if self._measured.is_empty:
            n_grad += self._measure_at_start(chain, minibatches, known, tune=tune)
            self._state.step_size = self._rule.step_size(self._measured)
        if self._state.direction.size == 0:
            self._begin_power_iteration(chain)
        noise = np.zeros(len(self.product.dims))
        logp_grad = self._estimator.logp_grad
        curvature = probe.call(
            logp_grad.callback,
            int(minibatches[0]),
            self.product.space,
            Line(chain.z, self._state.direction, self._state.step_size),
            self._state.last_gradient,
            noise,
            1,
        )
        logp_grad.raise_error()
        self._add(curvature, noise, known)
        self._state.step_size = self._rule.step_size(self._measured)
        return n_grad

    def _measure_at_start(
        self, chain: LangevinChain, minibatches: np.ndarray, known: np.ndarray, *, tune: bool
    ) -> int:
        """Measure several times, so that the first step is stable; return number of gradients."""
        n = SETTINGS.n_start_measurements
        n_grad = 1 + 2 * n
        logp_grad = self._estimator.logp_grad
        gradient = self._tangent_gradient(chain.z, int(minibatches[0]))
        # to first order log π changes by at most 1 over this length, which is long enough to
        # include the curvature of kinks
        length = 1.0 / max(math.sqrt(gradient @ gradient), 1.0 / SETTINGS.max_probe_length)
        self._begin_power_iteration(chain)
        all_rows = self._estimator.source.has_all_rows
        one_minibatch = all_rows or minibatches[0] == minibatches[-1]
        last_gradient = np.empty(0 if one_minibatch else gradient.size)
        curvatures, noises = np.empty(n), np.zeros((n, len(self.product.dims)))
        probe_minibatches.call(
            logp_grad.callback,
            np.resize(minibatches, n),
            self.product.space,
            Line(chain.z, self._state.direction, length),
            chain.stream,
            last_gradient,
            curvatures,
            noises,
        )
        logp_grad.raise_error()
        self._state.last_gradient = last_gradient
        for i in range(n // 2, n):
            self._add(curvatures[i], noises[i], known, is_draw=False)
        if one_minibatch:
            if not self._noise_is_known and self._n_steps == 1 and not all_rows:
                # without a second minibatch all of the gradient may be noise
                squares = [gradient[part] @ gradient[part] for part in self._slices]
                self._measured.assume_noise(np.array(squares) / self.product.dims)
            return n_grad
        n_grad += n
        if self._fixed_initial_temperature or not tune:
            return n_grad
        gradients = np.array([self._tangent_gradient(chain.z, int(b)) for b in minibatches[:n]])
        is_finite = all_finite(gradients.ravel())
        curvature = self._measured.curvature
        if is_finite and not is_far(gradients, self._slices, self.product.dims, curvature):
            self._measured.start_near()
        return n_grad + len(gradients)

    def _tangent_gradient(self, z: np.ndarray, minibatch: int) -> np.ndarray:
        gradient = self._estimator.gradient_at(z, minibatch)
        project(self.product.blocks, z, gradient)
        return gradient

    def _begin_power_iteration(self, chain: LangevinChain) -> None:
        self._state.direction = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, chain.z, self._state.direction, chain.stream)

    def _add(
        self, curvature: float, noise: np.ndarray, known: np.ndarray, *, is_draw: bool = True
    ) -> None:
        """Add a measurement to the averages."""
        if not math.isfinite(curvature):
            self._state.direction = np.empty(0)
        has_noise = self._noise_is_known or self._state.last_gradient.size > 0
        if self._noise_is_known:
            noise[:] = [known[part].max() for part in self._slices]
        self._measured.update(curvature, noise if has_noise else None, is_draw=is_draw)

    @property
    def state(self) -> dict[str, Any]:
        """Measurements, and the parameters computed from them."""
        return asdict(self._state) | {"measured": self._measured.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        named = copy.deepcopy(state)
        self._measured.state = named.pop("measured")
        self._state = AnnealingState(**named)
