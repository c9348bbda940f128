"""User-specified step size, friction and gradient noise of Langevin dynamics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.adaptation import LangevinChain, ModelCoordinateAdaptation, Proposal
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters
from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate
from pymc_geodesic.schedules import Schedule


@dataclass(frozen=True)
class FixedParameterSettings:
    """Constants of dynamics in the coordinates of the model.

    Attributes
    ----------
    overflow_temperature : float
        Kinetic temperature in the warm-up above which a draw counts as a divergence; heuristic, no
        measurement. With too large step sizes positions grow without bound, but in a density with
        normal tails they overflow only after many draws.
    """

    overflow_temperature: float = 1e9


SETTINGS = FixedParameterSettings()


@dataclass(frozen=True)
class UserParameters:
    """User-specified step size and friction, each in one of two parametrizations.

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

    @property
    def is_constant(self) -> bool:
        """Whether the step size is the same in all draws."""
        return not callable(self.step_size)

    def step_size_of(self, draw: int, n_rows: int) -> float | None:
        """ε of a draw, with N rows; None if it is not specified."""
        if callable(self.step_size):
            return step_size_at(self.step_size, draw)
        if self.step_size is None and self.learning_rate is not None:
            return math.sqrt(self.learning_rate / n_rows)
        return self.step_size

    def friction_of(self, step_size: float) -> float | None:
        """C for a step size; None if it is not specified."""
        return self.friction if self.momentum_decay is None else self.momentum_decay / step_size


def noise_by_coordinate(gradient_noise: ArrayLike | str | None, size: int) -> np.ndarray:
    """Convert the argument ``gradient_noise`` to a variance for each coordinate.

    Returns
    -------
    ndarray, shape (size,)
        Zeros for None and for ``"fisher"``, which computes it from the rows.

    Raises
    ------
    ValueError
        If a value is negative, or the number of values is wrong.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.fixed import noise_by_coordinate
    >>> noise_by_coordinate(0.5, 3)
    array([0.5, 0.5, 0.5])
    """
    if gradient_noise is None or isinstance(gradient_noise, str):
        return np.zeros(size)
    noise = np.asarray(gradient_noise, dtype=float)
    if not np.all(noise >= 0):
        raise ValueError("gradient_noise= is a variance and must not be negative")
    if noise.size not in (1, size):
        raise ValueError(
            f"gradient_noise= has {noise.size} elements. Pass one number, or {size}, one for each "
            "coordinate of the sampled variables"
        )
    return np.broadcast_to(noise.ravel(), (size,)).copy()


class KnownNoise:
    """Variance of the gradient estimate that is subtracted from the injected noise.

    Parameters
    ----------
    variance : ndarray, shape (size,)
        Zeros if it is unknown.
    by_rows : GradientFunctionLike, optional
        Function that computes it from the rows of a minibatch, by the empirical Fisher information.
    """

    def __init__(self, variance: np.ndarray, by_rows: GradientFunctionLike | None = None) -> None:
        self._variance, self._by_rows = variance, by_rows

    def at(self, position: np.ndarray, minibatch: int) -> np.ndarray:
        """Variance at a position, shape (size,), in an array that is overwritten at each call."""
        by_rows = self._by_rows
        if by_rows is not None:
            evaluate(by_rows.address, position, minibatch, by_rows.context, self._variance)
        return self._variance


class FixedParameters(ModelCoordinateAdaptation):
    """Adaptation with user-specified step size and friction, which adapts nothing.

    Parameters
    ----------
    estimator : GradientEstimator
    product : Product
    parameters : UserParameters
        Step size and friction.
    known_noise : KnownNoise
    n_steps : int
        Number of inner steps per draw.
    """

    needs_warm_up = is_tuned = False

    def __init__(
        self,
        estimator: GradientEstimator,
        product: Product,
        parameters: UserParameters,
        known_noise: KnownNoise,
        *,
        n_steps: int,
    ) -> None:
        super().__init__(estimator, product)
        self._user, self._known_noise, self._n_steps = parameters, known_noise, n_steps
        self.is_constant = parameters.is_constant
        self._last: LangevinParameters | None = None

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return "adapts nothing: step size and friction are user-specified."

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""

    def start(self, x: np.ndarray) -> np.ndarray:
        """Coordinates of a position; see `LangevinAdaptation`."""
        return x

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return None: no noise is measured."""
        return None

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Return the parameters; see `LangevinAdaptation`."""
        minibatches, n_grad = self._estimator.begin_draw(
            chain.z, self._n_steps, chain.stream, tune=tune
        )
        step_size = self._user.step_size_of(chain.n, self._estimator.total_size)
        assert step_size is not None
        noise = self._known_noise.at(chain.z, int(minibatches[0]))
        # `noise` is the same array at each draw: only the step size can change
        if self._last is None or step_size != self._last.step_size:
            friction = np.full(self.product.size, self._user.friction_of(step_size))
            self._last = LangevinParameters(step_size, friction, noise, self._n_steps)
        return Proposal(self._last, minibatches, n_grad)

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
        diverging |= abs(temperature) > SETTINGS.overflow_temperature
        if diverging:
            chain.restart_at(before, self.product)
        return diverging, 0

    @property
    def state(self) -> dict[str, Any]:
        """Return an empty dictionary: nothing is adapted."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass
