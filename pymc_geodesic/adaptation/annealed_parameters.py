"""Step size and friction for an annealed temperature bias.

In the coordinates of the model the gradient noise of minibatches raises the kinetic temperature.
The allowed bias is large at the beginning of the warm-up, so that the chain crosses the posterior
quickly, and is annealed to nearly zero. Step size and friction are computed from it, and from
running averages of the largest curvature and the gradient noise along the chain.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.runtime.numerics import all_finite


@dataclass(frozen=True)
class AnnealingSettings:
    """Constants of the annealing. A bias is that of the kinetic temperature, T − 1.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    initial_bias : float
        Allowed bias at the beginning of the warm-up.
    initial_bias_with_local : float
        The same with local variables. Topics whose annealing began at a bias of 10 ended in worse
        modes, at perplexities of 3,957 to 4,078 instead of below 3,920 (``docs/experiments.md``).
    initial_euler_bias : float
        The same for Euler's method. With 150 SSGNHT reaches the posterior of ijcnn1 in 0.5 ms, with
        10 in 40 ms (``docs/experiments.md``). From 100 to 200 the end of the warm-up is the same;
        with 200 a chain overshot a posterior of 20,000 rows.
    near_bias : float
        Upper bound on the initial bias of a chain that starts in the posterior, so that it does not
        leave its mode.
    final_bias : float
        Allowed bias at the end of the warm-up.
    final_bias_with_thermostats : float
        The same with thermostats, which compensate the mean of this bias over the coordinates of a
        variable, and not the differences.
    final_bias_of_known_noise : float
        Fraction of the noise of the dynamics that gradient noise of known variance may replace.
    far_by_noise, far_by_curvature : float
        Multiples of the variance of the mean gradient, and of its expected square at a draw of the
        posterior, above which a starting point counts as far from the posterior: two standard
        errors, and five posterior standard deviations.
    annealing : float
        Fraction of the warm-up over which the bias decreases.
    memory : float
        Decay factor of the running averages, which average over about twenty draws.
    assumed_weight : float
        Weight of assumed noise in the averages, negligible compared with measured noise.
    max_angle : float
        Upper bound on the step size times the square root of the largest curvature.
    min_decay, max_decay : float
        Bounds on Cε, the friction of a step.
    n_decays : int
        Number of grid points of Cε between these bounds.
    euler_decay : float
        Cε of Euler's method, which reduces the variance of the positions by half of this fraction.
        If gradient noise limits the step size, weak friction has no cost: a position diffuses by
        ε²/(Cε) per step, which the bias ε²V/(2Cε) determines for any C.
    """

    initial_bias: float = 10.0
    initial_bias_with_local: float = 100.0
    initial_euler_bias: float = 150.0
    near_bias: float = 0.5
    final_bias: float = 0.02
    final_bias_with_thermostats: float = 0.05
    final_bias_of_known_noise: float = 0.5
    far_by_noise: float = 4.0
    far_by_curvature: float = 25.0
    annealing: float = 0.7
    memory: float = 0.95
    assumed_weight: float = 1e-9
    max_angle: float = 0.35
    min_decay: float = 0.1
    max_decay: float = 1.0
    n_decays: int = 25
    euler_decay: float = 0.05


SETTINGS = AnnealingSettings()


# --- measurements ----------------------------------------------------------------------------


@dataclass
class MeasurementState:
    """State of `AnnealedMeasurements`: sums and weights of running averages.

    Attributes
    ----------
    n_tune : int
        Number of draws of the warm-up.
    initial_bias : float
        Allowed bias at the beginning of the warm-up.
    noise : ndarray, shape (n_noises,)
        Weighted sum of the measured noise.
    n_draws : int
        Number of draws of the warm-up so far.
    shrinkage : float
        Factor of all step sizes, halved at each divergence.
    """

    n_tune: int
    initial_bias: float
    noise: np.ndarray
    noise_weight: float = 0.0
    curvature: float = 0.0
    curvature_weight: float = 0.0
    n_draws: int = 0
    shrinkage: float = 1.0


class AnnealedMeasurements:
    """Running averages of curvature and gradient noise, and the allowed temperature bias.

    Parameters
    ----------
    n_noises : int
        Number of values that describe the noise.
    final_bias, initial_bias : float
        Allowed bias at the end and at the beginning of the warm-up.
    min_curvature : float
        Lower bound on the curvature, which bounds the step size if the density is flat.
    """

    def __init__(
        self,
        n_noises: int,
        *,
        final_bias: float,
        initial_bias: float = SETTINGS.initial_bias,
        min_curvature: float = 0.0,
    ) -> None:
        self._n_noises = n_noises
        self._initial_bias, self.final_bias = max(initial_bias, final_bias), final_bias
        self._min_curvature = max(min_curvature, 1e-12)
        self.reset(0)

    def reset(self, n_tune: int) -> None:
        """Discard all measurements."""
        self._state = MeasurementState(n_tune, self._initial_bias, np.zeros(self._n_noises))

    @property
    def state(self) -> dict[str, Any]:
        """Sums and weights of the averages."""
        return asdict(self._state)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._state = MeasurementState(**copy.deepcopy(state))

    @property
    def is_empty(self) -> bool:
        """Whether no curvature has been measured."""
        return self._state.curvature_weight == 0.0

    @property
    def curvature(self) -> float:
        """Largest curvature of −log π, the inverse square of a length."""
        state = self._state
        measured = 0.0 if self.is_empty else state.curvature / state.curvature_weight
        return max(measured, self._min_curvature)

    @property
    def noise(self) -> np.ndarray:
        """Mean of the values that describe the noise."""
        state = self._state
        return state.noise / state.noise_weight if state.noise_weight else state.noise

    @property
    def shrinkage(self) -> float:
        """Factor of all step sizes."""
        return self._state.shrinkage

    @property
    def allowed_bias(self) -> float:
        """Allowed bias at the current draw of the warm-up."""
        state = self._state
        progress = min(state.n_draws / max(SETTINGS.annealing * state.n_tune, 1.0), 1.0)
        return float(state.initial_bias * (self.final_bias / state.initial_bias) ** progress)

    def update(self, curvature: float, noise: np.ndarray | None, *, is_draw: bool = True) -> None:
        """Add a measurement; ``is_draw`` counts it as a draw of the warm-up."""
        state, memory = self._state, SETTINGS.memory
        state.n_draws += is_draw
        if math.isfinite(curvature):
            state.curvature = memory * state.curvature + (1.0 - memory) * abs(curvature)
            state.curvature_weight = memory * state.curvature_weight + (1.0 - memory)
        if noise is not None and all_finite(noise):
            state.noise = memory * state.noise + (1.0 - memory) * noise
            state.noise_weight = memory * state.noise_weight + (1.0 - memory)

    def shrink(self) -> None:
        """Halve all further step sizes, after a divergence."""
        self._state.shrinkage *= 0.5

    def assume_noise(self, noise: np.ndarray) -> None:
        """Use an assumed noise until the noise has been measured."""
        if self._state.noise_weight == 0.0:
            weight = SETTINGS.assumed_weight
            self._state.noise, self._state.noise_weight = weight * noise, weight

    def start_near(self) -> None:
        """Bound the initial bias of a chain that starts in the posterior."""
        self._state.initial_bias = max(
            min(self._state.initial_bias, SETTINGS.near_bias), self.final_bias
        )


def is_far(
    gradients: np.ndarray, slices: Sequence[slice], dims: np.ndarray, curvature: float
) -> bool:
    r"""Test whether a point is far from the posterior, by gradients of several minibatches.

    At a draw of the posterior the expected square of the gradient is tr ∇²(−log π), at most m λ for
    m coordinates and the largest curvature λ. The noise of the mean of K estimates adds m V/K.

    Parameters
    ----------
    gradients : ndarray, shape (n, size)
        Tangential gradients of independent minibatches.
    slices : sequence of slice
        Coordinates of each variable.
    dims : ndarray, shape (n_blocks,)
        Dimension m of each variable.
    curvature : float
        λ.
    """
    n = len(gradients)
    mean = gradients.mean(axis=0)
    squares = ((gradients - mean) ** 2).sum(axis=0) / (n * (n - 1))
    return any(
        mean[part] @ mean[part]
        > SETTINGS.far_by_noise * squares[part].sum() + SETTINGS.far_by_curvature * dim * curvature
        for part, dim in zip(slices, dims, strict=True)
    )


# --- temperature bias by gradient noise ------------------------------------------------------


def repetition(decay: float, repeats: int) -> float:
    """Factor by which noise that is repeated in several steps increases the temperature bias.

    Parameters
    ----------
    decay : float
        exp(−Cε), the factor by which friction reduces a velocity in one step.
    repeats : int
        Number of steps with the same noise.
    """
    if repeats == 1:
        return 1.0
    phases = np.arange(1, repeats + 1)
    first = (1.0 - decay**phases) ** 2
    later = decay ** (2 * phases) * (1.0 - decay**repeats) ** 2 / (1.0 - decay ** (2 * repeats))
    return float(np.mean(first + later) * (1.0 + decay) / (1.0 - decay))


def noise_bias(step_size: float, decay_rate: float, noise: float, repeats: int = 1) -> float:
    r"""Bias of the kinetic temperature by gradient noise.

    Parameters
    ----------
    step_size : float
        ε.
    decay_rate : float
        Cε.
    noise : float
        V, variance of a component of the gradient estimate.
    repeats : int
        Number of steps with the same minibatch.

    Returns
    -------
    float
        (ε²V / 4) coth(Cε / 2), times the factor for repeated noise; about εV / (2C).
    """
    factor = repetition(math.exp(-decay_rate), repeats)
    return 0.25 * step_size**2 * noise / math.tanh(0.5 * decay_rate) * factor


def euler_noise_bias(step_size: float, decay_rate: float, noise: float) -> float:
    r"""Bias of the kinetic temperature by gradient noise, for Euler's method.

    Parameters
    ----------
    step_size, decay_rate, noise
        See `noise_bias`.

    Returns
    -------
    float
        ε²V / (2Cε), the bias of v ← (1 − Cε)v + noise of variance 2Cε + ε²V for small Cε.
    """
    return 0.5 * step_size**2 * noise / decay_rate


def position_bias(step_size: float, friction: np.ndarray, noise: np.ndarray, repeats: int) -> float:
    """Largest relative bias of the variance of slow positions by gradient noise.

    Noise that is repeated in several steps moves a position farther than independent noise by the
    same factor, while friction removes most of it from the kinetic temperature.

    Parameters
    ----------
    step_size : float
        ε.
    friction, noise : ndarray, shape (n_blocks,)
        C and V of each variable.
    repeats : int
        Number of steps with the same minibatch.
    """
    return max(
        noise_bias(step_size, one * step_size, variance) * repeats
        for one, variance in zip(friction, noise, strict=True)
    )


# --- rules -----------------------------------------------------------------------------------


class AnnealingRule(Protocol):
    """Step size and friction for measured curvature and gradient noise, and their bias."""

    def step_size(self, measured: AnnealedMeasurements) -> float:
        """Largest ε that resolves the fastest oscillation, within the allowed bias."""

    def friction(self, measured: AnnealedMeasurements, step_size: float) -> np.ndarray:
        """Smallest C of each variable within the allowed bias, for a step size."""

    def bias(
        self, measured: AnnealedMeasurements, step_size: float, friction: np.ndarray
    ) -> np.ndarray:
        """Bias of the kinetic temperature of each variable."""


def _step_size(measured: AnnealedMeasurements, unit_bias: float) -> float:
    """Step size for a friction with which noise of variance 1 has the bias ``unit_bias`` ε²."""
    step_size = SETTINGS.max_angle / math.sqrt(measured.curvature)
    largest = float(measured.noise.max())
    if largest > 0.0:
        step_size = min(step_size, math.sqrt(measured.allowed_bias / (largest * unit_bias)))
    return step_size * measured.shrinkage


class UnderdampedAnnealing:
    """Rule for exact friction: the largest step size with the maximal C, then the smallest C.

    Parameters
    ----------
    repeats : int
        Number of inner steps with the same minibatch.
    """

    def __init__(self, repeats: int = 1) -> None:
        self._repeats = repeats
        self._decays = np.geomspace(SETTINGS.min_decay, SETTINGS.max_decay, SETTINGS.n_decays)
        self._unit_biases = np.array(
            [noise_bias(1.0, decay, 1.0, repeats) for decay in self._decays]
        )

    def step_size(self, measured: AnnealedMeasurements) -> float:
        """Return ε for the maximal friction; see `AnnealingRule`."""
        return _step_size(measured, self._unit_biases[-1])

    def friction(self, measured: AnnealedMeasurements, step_size: float) -> np.ndarray:
        """Return the smallest C on a grid; see `AnnealingRule`."""
        allowed = measured.allowed_bias * (1.0 + 1e-9)
        enough = np.outer(measured.noise * step_size**2, self._unit_biases) <= allowed
        first = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
        return self._decays[first] / step_size

    def bias(
        self, measured: AnnealedMeasurements, step_size: float, friction: np.ndarray
    ) -> np.ndarray:
        """Return T − 1; see `noise_bias`."""
        return np.array(
            [
                noise_bias(step_size, one * step_size, noise, self._repeats)
                for one, noise in zip(friction, measured.noise, strict=True)
            ]
        )


class EulerAnnealing:
    """Rule for Euler's method, with a weak friction that is the same for all variables."""

    def step_size(self, measured: AnnealedMeasurements) -> float:
        """Return ε; see `AnnealingRule`."""
        return _step_size(measured, euler_noise_bias(1.0, SETTINGS.euler_decay, 1.0))

    def friction(self, measured: AnnealedMeasurements, step_size: float) -> np.ndarray:
        """Return A, the same for all variables; see `AnnealingRule`."""
        return np.full(measured.noise.size, SETTINGS.euler_decay / step_size)

    def bias(
        self, measured: AnnealedMeasurements, step_size: float, friction: np.ndarray
    ) -> np.ndarray:
        """Return T − 1; see `euler_noise_bias`."""
        return np.array(
            [
                euler_noise_bias(step_size, one * step_size, noise)
                for one, noise in zip(friction, measured.noise, strict=True)
            ]
        )
