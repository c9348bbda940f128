r"""Adaptation of overdamped Langevin dynamics by annealing, in the coordinates of the model.

Along a direction with curvature λ and gradient noise V a step h takes the time a = h²λ/2, and the
variance is too large by the factor 1 + (V/λ) i(a) + a/2, where i is `independent_inflation` or
`shuffled_inflation` of `pymc_geodesic.adaptation.variance_inflation`: noise that sums to zero over
an epoch permits larger step sizes. h is the largest step size within the allowed bias at the
current draw of the warm-up, for the largest λ and the V below.

The noise is summarized by tr S and tr S², where S is its covariance matrix, and V = tr S² / tr S,
the mean variance along the direction of the noise: for isotropic noise it is the variance in every
direction, and otherwise close to the largest variance.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import LangevinChain, ModelCoordinateAdaptation, Proposal
from pymc_geodesic.adaptation.annealed_parameters import AnnealedMeasurements
from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.adaptation.variance_inflation import (
    independent_inflation,
    longest_time,
    shuffled_inflation,
)
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.kernels.sgld import adagrad_preconditioner
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.schedules import Schedule


@dataclass(frozen=True)
class OverdampedAnnealingSettings:
    """Constants of the measurements and of the step size.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    final_bias : float
        Allowed relative bias of the variance at the end of the warm-up.
    max_time : float
        Upper bound on h² · curvature / 2, 0.25 of the value at which Euler's method diverges; by
        calculation.
    n_start_measurements : int
        Number of measurements at the starting point.
    max_probe_length : float
        Upper bound on the length of finite differences before there is a step size.
    runaway_distance : float
        Distance, in units of the standard deviation of the injected noise, above which a draw of
        the warm-up counts as a divergence. With too large step sizes positions grow without bound,
        but overflow only after many draws.
    """

    final_bias: float = 0.05
    max_time: float = 0.5
    n_start_measurements: int = 20
    max_probe_length: float = 0.1
    runaway_distance: float = 1e6


SETTINGS = OverdampedAnnealingSettings()


def variance_bias(measured: AnnealedMeasurements, time: float, epoch: int | None) -> float:
    """Compute the relative bias of the variance for steps of a time a.

    Parameters
    ----------
    measured : AnnealedMeasurements
        Measurements of tr S and tr S².
    time : float
        a.
    epoch : int or None
        Steps after which the noise of shuffled rows sums to zero; None for independent noise.
    """
    trace, square = measured.noise
    bias = 0.5 * time
    if trace > 0.0:
        inflation = (
            independent_inflation(time) if epoch is None else shuffled_inflation(time, epoch)
        )
        bias += square / (trace * measured.curvature) * inflation
    return bias


@dataclass
class OverdampedState:
    """State of the adaptation without the measured averages.

    Attributes
    ----------
    is_tuned : bool
        Whether a warm-up has chosen the step size.
    step_size : float
        h of the last draw of the warm-up; 0 before the first.
    direction : ndarray, shape (size,) or (0,)
        Direction of the power iteration.
    last_gradient : ndarray, shape (size,) or (0,)
        Gradient at the position with the last minibatch.
    last_difference : ndarray, shape (size,) or (0,)
        Last difference of two such gradients at the same position.
    """

    is_tuned: bool = False
    step_size: float = 0.0
    direction: np.ndarray = field(default_factory=lambda: np.empty(0))
    last_gradient: np.ndarray = field(default_factory=lambda: np.empty(0))
    last_difference: np.ndarray = field(default_factory=lambda: np.empty(0))


class OverdampedAnnealing(ModelCoordinateAdaptation):
    """Step size of Euler's method, user-specified or computed from measured curvature and noise.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    step_size : float, callable or None
        h, a time, or a schedule; adapted by default.
    n_steps : int
        Number of inner steps per draw.
    ineligibility : Ineligibility
        Reason why coordinates are not whitened.
    """

    ineligibility: Ineligibility

    def __init__(
        self,
        estimator: GradientEstimator,
        product: Product,
        *,
        step_size: float | Schedule | None,
        n_steps: int,
        ineligibility: Ineligibility,
    ) -> None:
        super().__init__(estimator, product)
        self._given, self._n_steps, self.ineligibility = step_size, n_steps, ineligibility
        self.needs_warm_up, self.is_constant = step_size is None, not callable(step_size)
        self._epoch = estimator.source.epoch
        self._measured = AnnealedMeasurements(2, final_bias=SETTINGS.final_bias)
        self._state = OverdampedState()
        self.initialize(1)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        if self._given is not None:
            return "adapts nothing: the step size is user-specified."
        return f"adapts {self.ineligibility.describe('step size')}"

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the step size."""
        return self._state.is_tuned

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        state, self._state = self._state, OverdampedState()
        if n_tune or self._measured.is_empty:
            self._measured.reset(n_tune)
        else:
            self._state.step_size = state.step_size
        self._state.is_tuned = state.is_tuned and n_tune == 0
        self._has_compared = False
        self._parameters: LangevinParameters | None = None

    def start(self, x: np.ndarray) -> np.ndarray:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._state.last_gradient = np.empty(0)
        return x

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return None: the noise of each coordinate is not measured."""
        return None

    # --- a draw ------------------------------------------------------------------------------

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Measure curvature, and compute the step size; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimator.begin_draw(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        self._has_compared = False
        if tune:
            self._squares_before = chain.dynamics.squares.copy()
        if self._given is None and (tune or self._measured.is_empty):
            n_grad += self._measure(chain, minibatches)
        given = self._given
        step_size = step_size_at(given, chain.n) if callable(given) else given
        if step_size is None:
            step_size = self._state.step_size
        if self._parameters is None or step_size != self._parameters.step_size:
            friction = np.zeros(self.product.size)
            self._parameters = LangevinParameters(step_size, friction, np.empty(0), self._n_steps)
        return Proposal(self._parameters, minibatches, n_grad)

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
        step_size, n_steps = proposal.parameters.step_size, proposal.minibatches.size
        distance = 0.0 if diverging else float(np.abs(chain.z - before).max())
        if diverging or distance > SETTINGS.runaway_distance * step_size * math.sqrt(n_steps):
            self._measured.shrink()
            chain.z = before
            chain.dynamics.squares[:] = self._squares_before
            chain.refresh(self.product)
            self._state.last_gradient = np.empty(0)
            return True, 0
        if self._given is None and not (self._has_compared and n_steps == 1):
            return False, self._remember_gradient(chain.z, int(proposal.minibatches[-1]))
        return False, 0

    # --- measurements ------------------------------------------------------------------------

    def _measure(self, chain: LangevinChain, minibatches: np.ndarray) -> int:
        """Measure curvature and noise, and compute h; return the number of gradients."""
        n_grad = 2
        if self._measured.is_empty:
            n_grad += self._measure_at_start(chain, minibatches)
        self._measure_once(chain, int(minibatches[0]))
        self._state.step_size = self._step_size()
        return n_grad

    def _step_size(self) -> float:
        """Compute the largest h within the allowed bias."""
        measured = self._measured
        time = longest_time(
            lambda time: variance_bias(measured, time, self._epoch),
            measured.allowed_bias,
            SETTINGS.max_time,
        )
        return measured.shrinkage * math.sqrt(2.0 * time / measured.curvature)

    def _measure_at_start(self, chain: LangevinChain, minibatches: np.ndarray) -> int:
        """Measure several times, so that the first step is stable; return number of gradients."""
        n_grad = 2 * SETTINGS.n_start_measurements
        for i in range(SETTINGS.n_start_measurements):
            minibatch = int(minibatches[i % minibatches.size])
            self._measure_once(chain, minibatch, is_draw=False)
            if not self._has_compared and i + 1 < minibatches.size:
                n_grad += self._remember_gradient(chain.z, minibatch)
        self._state.last_difference = np.empty(0)
        if not self._estimator.source.has_all_rows:
            # with few inner steps the noise is unknown; as an upper bound, use the whole gradient
            gradient = self._estimator.gradient_at(chain.z, int(minibatches[0]))
            square = float(gradient @ gradient)
            self._measured.assume_noise(np.array([square, square**2]))
            n_grad += 1
        return n_grad

    def _measure_once(self, chain: LangevinChain, minibatch: int, *, is_draw: bool = True) -> None:
        """Measure curvature and gradient noise at the position, in the coordinates θ/√P.

        The squared inner product of two gradient differences estimates tr S² if the differences are
        independent, that is, have no minibatch in common.
        """
        x, squares, state = chain.z, chain.dynamics.squares, self._state
        gradient = self._estimator.gradient_at(x, minibatch)
        root: np.ndarray | float = 1.0
        if squares.size:
            root = np.sqrt([adagrad_preconditioner(square) for square in squares + gradient**2])
        if state.direction.size == 0:
            state.direction = np.empty(self.product.size)
            fill_normal(chain.stream, state.direction)
        direction = state.direction / math.sqrt(state.direction @ state.direction)
        length = state.step_size
        if not length:
            # over this length the density changes by a factor of e, and kinks are likely crossed
            scaled = root * gradient
            length = 1.0 / max(math.sqrt(scaled @ scaled), 1.0 / SETTINGS.max_probe_length)
        moved = self._estimator.gradient_at(x + length * root * direction, minibatch)
        change = root * (gradient - moved) / length
        curvature = float(direction @ change)
        noise = None
        self._has_compared = state.last_gradient.size > 0
        if self._has_compared:
            difference = root * (gradient - state.last_gradient)
            if state.last_difference.size:
                noise = np.array(
                    [
                        0.5 * difference @ difference,
                        0.25 * (difference @ state.last_difference) ** 2,
                    ]
                )
            state.last_difference = difference
            state.last_gradient = np.empty(0)
        self._measured.update(curvature, noise, is_draw=is_draw)
        if math.isfinite(curvature):
            # the old direction is kept as a small component, for regions between kinks
            state.direction = change + 1e-3 * max(abs(curvature), 1e-12) * direction
        else:
            state.direction = state.last_difference = np.empty(0)

    def _remember_gradient(self, x: np.ndarray, minibatch: int) -> int:
        """Store the gradient of a minibatch for a difference with that of the next one.

        Return the number of gradient evaluations.
        """
        if self._estimator.source.has_all_rows:
            return 0
        self._state.last_gradient = self._estimator.gradient_at(x, minibatch)
        return 1

    @property
    def state(self) -> dict[str, Any]:
        """Measurements, and the step size."""
        return asdict(self._state) | {"measured": self._measured.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        named = copy.deepcopy(state)
        self._measured.state = named.pop("measured")
        self._state = OverdampedState(**named)
