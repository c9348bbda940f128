"""Adaptation of Langevin dynamics by temperature annealing, and user-specified parameters.

Where coordinates cannot be adapted (variables with local ones, simplices, streams of few
minibatches), step size and friction follow from curvature and gradient noise measured along the
chain: the excess of the kinetic temperature that the noise causes starts high, so that the chain
crosses the posterior, and falls over the warm-up.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptable import NotAdapted
from pymc_geodesic.adaptation.adaptation import (
    LARGER_MINIBATCHES,
    Exploration,
    LangevinChain,
    Proposal,
)
from pymc_geodesic.adaptation.annealed_parameters import TemperatureTuner, is_far
from pymc_geodesic.adaptation.langevin_parameters import LangevinSettings
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import probe, probe_in_turn
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Product
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.fields import FieldLike, evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.schedules import Schedule

FIRST_MEASUREMENTS = 10

LONGEST_PROBE = 0.1
"""Arc over which curvature is measured before there is a step size, where the density is flat."""

RUNAWAY = 1e9
"""Kinetic temperature in the warm-up from which a draw counts as diverging.

Steps that are too long for the curvature grow without bound, but where the density has tails like a
normal density they take a long time to overflow.
"""

REPORTED_EXCESS = 0.05
"""Excess of the variance by minibatch noise from which draws with local variables are diagnosed."""

LARGEST_THERMOSTAT = 5.0
"""Bound of (γ + ξ)/γ in the warm-up: a start far from the posterior would raise ξ for long."""


@dataclass(frozen=True)
class UserParameters:
    """Step size and friction as the user specified them, each in one of two ways.

    Attributes
    ----------
    step_size : float, callable or None
        ε, a time, or a schedule.
    learning_rate : float or None
        γ with ε = sqrt(γ / N).
    friction : float or None
        C, per unit of time.
    momentum_decay : float or None
        ρ with C = ρ / ε.
    """

    step_size: float | Schedule | None = None
    learning_rate: float | None = None
    friction: float | None = None
    momentum_decay: float | None = None

    @property
    def has_step_size(self) -> bool:
        """Whether the step size is specified."""
        return self.step_size is not None or self.learning_rate is not None

    @property
    def has_friction(self) -> bool:
        """Whether the friction is specified."""
        return self.friction is not None or self.momentum_decay is not None

    def step_size_of(self, draw: int, n_rows: int) -> float | None:
        """ε of a draw, with N rows; None where it is not specified."""
        if callable(self.step_size):
            return step_size_at(self.step_size, draw)
        if self.step_size is None and self.learning_rate is not None:
            return math.sqrt(self.learning_rate / n_rows)
        return self.step_size

    def friction_of(self, step_size: float) -> float | None:
        """C for a step size; None where it is not specified."""
        return self.friction if self.momentum_decay is None else self.momentum_decay / step_size


class KnownNoise:
    """Variance of the gradient estimate that is subtracted from the injected noise.

    Parameters
    ----------
    variance : ndarray, shape (size,)
        Zeros where it is unknown.
    by_rows : FieldLike, optional
        Computes it from the rows of a minibatch, the empirical Fisher information.
    """

    def __init__(self, variance: np.ndarray, by_rows: FieldLike | None = None) -> None:
        self._variance, self._by_rows = variance, by_rows

    def at(self, position: np.ndarray, minibatch: int) -> np.ndarray:
        """Variance at a position, shape (size,)."""
        if self._by_rows is not None:
            field = self._by_rows
            evaluate(field.address, position, minibatch, field.context, self._variance)
        return self._variance


class FixedParameters:
    """Step size and friction that the user specified, in the coordinates of the model.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    parameters : UserParameters
        With step size and friction.
    known_noise : KnownNoise
    n_steps : int
        Inner steps of a draw.
    """

    is_whitened = False
    noise_ratio = 1.0
    needs_warm_up = is_tuned = False
    minibatch_remedy = LARGER_MINIBATCHES

    def __init__(
        self,
        estimate: GradientEstimate,
        product: Product,
        parameters: UserParameters,
        known_noise: KnownNoise,
        *,
        n_steps: int,
    ) -> None:
        self._estimate, self.product = estimate, product
        self._parameters, self._known_noise, self._n_steps = parameters, known_noise, n_steps
        self._settings: LangevinSettings | None = None

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return "adapts nothing: step size and friction are user-specified."

    def initialize(self, n_tune: int) -> None:
        """Adapt nothing."""

    @property
    def is_constant(self) -> bool:
        """Whether the step size is no schedule."""
        return not callable(self._parameters.step_size)

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient estimate in the coordinates of the model."""
        return self._estimate.field

    def start(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of a position; see `LangevinAdaptation`."""
        return x, np.empty(0)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return z

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Explore nothing."""
        return None

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """Find nothing: only whitened coordinates show it."""
        return None

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Find nothing: no noise is measured by coordinate."""
        return None

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Return the parameters; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimate.prepare(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        step_size = self._parameters.step_size_of(chain.n, self._estimate.total_size)
        assert step_size is not None
        known = self._known_noise.at(chain.z, int(minibatches[0]))
        if self._settings is None or step_size != self._settings.step_size:
            friction = np.full(self.product.size, self._parameters.friction_of(step_size))
            self._settings = LangevinSettings(step_size, friction, known, self._n_steps)
        return Proposal(self._settings, minibatches, n_grad)

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Undo a draw that diverged; see `LangevinAdaptation`."""
        if diverging or abs(temperature) > RUNAWAY:
            chain.z = before
            chain.dynamics.initialize(self.product)
            chain.refresh(self.product)
            return True, 0
        return False, 0

    @property
    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass


class TemperatureAnnealing:
    """Step size and friction from measured curvature and noise, with a falling temperature.

    Parameters
    ----------
    estimate : GradientEstimate
    product : Product
    tuner : TemperatureTuner
        Chooses step size and friction.
    parameters : UserParameters
        What the user specified of them.
    known_noise : KnownNoise
    noise_is_known : bool
        Whether it replaces the measured noise.
    n_steps : int
        Inner steps of a draw.
    starts_anywhere : bool
        Whether the temperature starts high wherever the chain starts.
    largest_while_annealing : float
        Bound of (γ + ξ)/γ where a temperature above 1 is wanted.
    obstacle : NotAdapted
        Why coordinates are not whitened.
    """

    is_whitened = False
    noise_ratio = 1.0
    needs_warm_up = True

    def __init__(
        self,
        estimate: GradientEstimate,
        product: Product,
        tuner: TemperatureTuner,
        parameters: UserParameters,
        known_noise: KnownNoise,
        *,
        noise_is_known: bool,
        n_steps: int,
        starts_anywhere: bool,
        largest_while_annealing: float = LARGEST_THERMOSTAT,
        obstacle: NotAdapted,
    ) -> None:
        self._estimate, self.product, self._tuner = estimate, product, tuner
        self._parameters, self._known_noise, self._n_steps = parameters, known_noise, n_steps
        self._noise_is_known, self._starts_anywhere = noise_is_known, starts_anywhere
        self._largest_while_annealing = largest_while_annealing
        self._obstacle = obstacle
        self._widths = [part.stop - part.start for part in product.slices.values()]
        prepare(probe, probe_in_turn, project, evaluate)
        self._has_tuned = False
        self._last: tuple[float, np.ndarray] = (0.0, np.empty(0))
        self.initialize(1)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return f"adapts {self._obstacle.instead_of_whitening('step size and friction')}"

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the parameters."""
        return self._has_tuned

    @property
    def minibatch_remedy(self) -> str:
        """What to do about too much gradient noise."""
        return self._obstacle.minibatch_remedy

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        self._has_tuned = self._has_tuned and n_tune == 0
        if n_tune or not self._tuner.has_measured:
            self._tuner.reset(n_tune)
            self._step_size, self._friction = 0.0, np.zeros(len(self.product.dims))
        self._direction = self._last_gradient = np.empty(0)
        self._settings: LangevinSettings | None = None

    @property
    def is_constant(self) -> bool:
        """Whether the step size is no schedule."""
        return not callable(self._parameters.step_size)

    @property
    def logp_grad(self) -> FieldLike:
        """Gradient estimate in the coordinates of the model."""
        return self._estimate.field

    def start(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._last_gradient = np.empty(0)
        return x, np.empty(0)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return z

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Explore nothing."""
        return None

    def funnel(self, in_model: Collection[tuple[str, str]]) -> Funnel | None:
        """Find nothing: only whitened coordinates show it."""
        return None

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Describe draws that one minibatch in all inner steps of a draw widens."""
        if not self._estimate.is_local or self._estimate.is_exact or not self._tuner.has_measured:
            return None
        step_size, friction = self._last
        excess = self._tuner.position_excess(step_size, friction)
        if excess < REPORTED_EXCESS:
            return None
        factor = math.sqrt(0.02 / excess)
        return Diagnosis(
            quantity="possible error of the standard deviations",
            condition="by minibatch noise",
            value=math.sqrt(1.0 + excess) - 1.0,
            expected=math.sqrt(1.0 + REPORTED_EXCESS) - 1.0,
            limit="at most ",
            number=".1%",
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

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Measure curvature, and choose parameters by it; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimate.prepare(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        known = self._known_noise.at(chain.z, int(minibatches[0]))
        if tune or not self._tuner.has_measured:
            if not self._tuner.has_measured:
                n_grad += self._measure_at_start(chain, minibatches, known, tune=tune)
                self._step_size = self._tuner.step_size()
            self._measure(chain, int(minibatches[0]), known)
            self._step_size = self._tuner.step_size()
            n_grad += 2
        step_size = self._parameters.step_size_of(chain.n, self._estimate.total_size)
        if step_size is None:
            step_size = self._step_size
        given = self._parameters.friction_of(step_size)
        if given is not None:
            friction = np.full(len(self.product.dims), given)
        else:
            if tune or not self._friction[0]:
                self._friction = self._tuner.friction(step_size)
            friction = self._friction
        if not tune and self._settings is not None and step_size == self._last[0]:
            return Proposal(self._settings, minibatches, n_grad)
        self._last = step_size, friction
        temperatures = self._tuner.annealing(step_size, friction) if tune else None
        settings = LangevinSettings(
            step_size,
            np.repeat(friction, self._widths),
            known,
            self._n_steps,
            temperatures,
            None if temperatures is None else self._bounds(temperatures),
            block_friction=friction,
        )
        self._settings = None if tune else settings
        return Proposal(settings, minibatches, n_grad)

    def _bounds(self, temperatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of ξ/γ in the warm-up; ξ stays positive where a temperature above 1 is wanted."""
        anneals = temperatures != 1.0
        most = np.where(anneals, self._largest_while_annealing, LARGEST_THERMOSTAT) - 1.0
        return np.where(anneals, 0.0, -LARGEST_THERMOSTAT - 1.0), most

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Halve the step after a divergence; see `LangevinAdaptation`."""
        self._has_tuned = True
        if diverging or abs(temperature) > RUNAWAY:
            self._tuner.shrink()
            chain.z = before
            chain.dynamics.initialize(self.product)
            chain.refresh(self.product)
            self._last_gradient = np.empty(0)
            return True, 0
        return False, self._remember_gradient(chain.z, int(proposal.minibatches[-1]))

    def _measure_at_start(
        self, chain: LangevinChain, minibatches: np.ndarray, known: np.ndarray, *, tune: bool
    ) -> int:
        """Measure at the starting point, so that the first step is not too long.

        Return the number of gradient evaluations.
        """
        n_grad = 1 + 2 * FIRST_MEASUREMENTS
        field = self._estimate.field
        gradient = self._estimate.gradient_at(chain.z, int(minibatches[0]))
        project(self.product.blocks, chain.z, gradient)
        # over this length the density changes by a factor e, and a few kinks are likely crossed
        length = 1.0 / max(math.sqrt(gradient @ gradient), 1.0 / LONGEST_PROBE)
        self._begin_power_iteration(chain)
        full = self._estimate.source.is_everything
        one_minibatch = full or minibatches[0] == minibatches[-1]
        last_gradient = np.empty(0 if one_minibatch else gradient.size)
        curvatures = np.empty(FIRST_MEASUREMENTS)
        noises = np.zeros((FIRST_MEASUREMENTS, len(self.product.dims)))
        probe_in_turn.call(
            field.callback,
            np.resize(minibatches, FIRST_MEASUREMENTS),
            self.product.space,
            Line(chain.z, self._direction, length),
            chain.stream,
            last_gradient,
            curvatures,
            noises,
        )
        field.raise_error()
        self._last_gradient = last_gradient
        for i in range(FIRST_MEASUREMENTS // 2, FIRST_MEASUREMENTS):  # the direction has turned
            self._observe(curvatures[i], noises[i], known, counts=False)
        if one_minibatch:
            if not self._noise_is_known and self._n_steps == 1 and not full:
                # there is no second minibatch yet: all of the gradient may be noise
                squares = [gradient[part] @ gradient[part] for part in self.product.slices.values()]
                self._tuner.suppose_noise(np.array(squares) / self.product.dims)
            return n_grad
        n_grad += FIRST_MEASUREMENTS
        if self._starts_anywhere or not tune:
            return n_grad
        different = minibatches[:FIRST_MEASUREMENTS]
        gradients = np.array([self._estimate.gradient_at(chain.z, int(one)) for one in different])
        if all_finite(gradients.ravel()):
            for each in gradients:
                project(self.product.blocks, chain.z, each)
            parts = list(self.product.slices.values())
            if not is_far(gradients, parts, self.product.dims, self._tuner.curvature):
                self._tuner.start_near()
        return n_grad + len(different)

    def _begin_power_iteration(self, chain: LangevinChain) -> None:
        self._direction = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, chain.z, self._direction, chain.stream)

    def _measure(self, chain: LangevinChain, minibatch: int, known: np.ndarray) -> None:
        """Measure curvature over an arc, and gradient noise, at the present position."""
        if self._direction.size == 0:
            self._begin_power_iteration(chain)
        noise = np.zeros(len(self.product.dims))
        field = self._estimate.field
        curvature = probe.call(
            field.callback,
            minibatch,
            self.product.space,
            Line(chain.z, self._direction, self._step_size),
            self._last_gradient,
            noise,
            1,
        )
        field.raise_error()
        self._observe(curvature, noise, known)

    def _observe(
        self, curvature: float, noise: np.ndarray, known: np.ndarray, *, counts: bool = True
    ) -> None:
        """Pass a measurement to the tuner."""
        if not math.isfinite(curvature):
            self._direction = np.empty(0)
        has_noise = self._noise_is_known or self._last_gradient.size > 0
        if self._noise_is_known:
            noise[:] = [known[part].max() for part in self.product.slices.values()]
        self._tuner.observe(curvature, noise if has_noise else None, counts)

    def _remember_gradient(self, z: np.ndarray, minibatch: int) -> int:
        """Keep the gradient at the end of a draw, to compare with another minibatch.

        Return the number of gradient evaluations.
        """
        if self._estimate.source.is_everything:
            return 0
        self._last_gradient = self._estimate.gradient_at(z, minibatch)
        return 1

    @property
    def state(self) -> dict[str, Any]:
        """What was measured and chosen."""
        named = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        return named | {"tuner": copy.deepcopy(self._tuner.state)}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self._tuner.state = copy.deepcopy(state["tuner"])

    _STATE = ("_step_size", "_friction", "_direction", "_last_gradient", "_has_tuned")
