"""Choosing step size and friction so that the kinetic temperature is one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pymc_geodesic.adaptation.variance_inflation import (
    independent_inflation,
    longest_time,
    shuffled_inflation,
)
from pymc_geodesic.runtime.finite import all_finite

FIRST_EXCESS, LAST_EXCESS = 10.0, 0.02
"""Excess of the temperature by gradient noise that is allowed first and last."""

NEAR_EXCESS = 0.5
"""The first where the chain starts in the posterior, whose mode is to be kept."""

FAR_BY_NOISE, FAR_BY_CURVATURE = 4.0, 25.0
"""Squares of a mean gradient from which a start is far, in units of what they are at a draw.

That is the variance of the mean, and the curvature: five standard deviations from the mode.
"""

COOLING = 0.7
"""Part of the tuning phase over which the allowed excess falls."""

_MEMORY = 0.95
_GUESS = 1e-9
"""Weight of noise that was guessed."""


class CoolingTuner:
    """Running averages of curvature and gradient noise, and the excess they may cause.

    What is allowed falls from hot, where the sampler crosses the posterior quickly, to cold.

    Parameters
    ----------
    n_noises : int
        Numbers that describe the noise.
    last_excess, first_excess : float
        Allowed excess of the temperature at the end and at the beginning of tuning.
    least_curvature : float
        Curvature that bounds the step size where the density is flat.
    """

    _first_excess: float

    def __init__(
        self,
        n_noises: int,
        last_excess: float,
        least_curvature: float,
        first_excess: float = FIRST_EXCESS,
    ) -> None:
        self._n_noises = n_noises
        self._usual_excess = max(first_excess, last_excess)
        self._last_excess = last_excess
        self._least_curvature = max(least_curvature, 1e-12)
        self.reset(0)

    def reset(self, n_tune: int) -> None:
        """Forget what was measured."""
        self._n_tune = n_tune
        self._first_excess = self._usual_excess
        self._seen = 0
        self._curvature = 0.0
        self._noise = np.zeros(self._n_noises)
        self._weight = 0.0
        self._noise_weight = 0.0
        self._shrink = 1.0

    @property
    def state(self) -> dict:
        """All that was measured."""
        return {name: getattr(self, name) for name in self._STATE}

    @state.setter
    def state(self, state: dict) -> None:
        for name in self._STATE:
            setattr(self, name, state[name])

    _STATE = (
        "_n_tune",
        "_first_excess",
        "_seen",
        "_curvature",
        "_noise",
        "_weight",
        "_noise_weight",
        "_shrink",
    )

    @property
    def has_measured(self) -> bool:
        """Whether there is anything to choose by."""
        return self._weight > 0.0

    @property
    def curvature(self) -> float:
        """Largest curvature of −log π, the inverse square of a length."""
        measured = self._curvature / self._weight if self._weight else 0.0
        return max(measured, self._least_curvature)

    @property
    def noise(self) -> np.ndarray:
        """What describes the noise, averaged."""
        return self._noise / self._noise_weight if self._noise_weight else self._noise

    def observe(self, curvature: float, noise: np.ndarray | None, counts: bool = True) -> None:
        """Take in one measurement, and count it as a draw of the tuning phase or not."""
        self._seen += counts
        if math.isfinite(curvature):
            self._curvature = _MEMORY * self._curvature + (1.0 - _MEMORY) * abs(curvature)
            self._weight = _MEMORY * self._weight + (1.0 - _MEMORY)
        if noise is not None and all_finite(noise):
            self._noise = _MEMORY * self._noise + (1.0 - _MEMORY) * noise
            self._noise_weight = _MEMORY * self._noise_weight + (1.0 - _MEMORY)

    def shrink(self) -> None:
        """Halve every step size from now on: the last one was not stable."""
        self._shrink *= 0.5

    def suppose_noise(self, noise: np.ndarray) -> None:
        """Go by a guess until noise was measured, which then counts alone."""
        if self._noise_weight == 0.0:
            self._noise, self._noise_weight = _GUESS * noise, _GUESS

    def start_near(self) -> None:
        """Heat little: the chain starts in the posterior."""
        self._first_excess = max(min(self._first_excess, NEAR_EXCESS), self._last_excess)

    @property
    def allowed_excess(self) -> float:
        """Excess of the temperature allowed at this moment of the tuning phase."""
        progress = min(self._seen / max(COOLING * self._n_tune, 1.0), 1.0)
        return float(self._first_excess * (self._last_excess / self._first_excess) ** progress)


def is_far(
    gradients: np.ndarray, slices: Sequence[slice], dims: np.ndarray, curvature: float
) -> bool:
    r"""Say whether a point is far from the posterior, by the gradients of some minibatches there.

    At a draw of the posterior the square of the gradient has the expectation tr ∇²(−log π), at most
    m λ for m coordinates and the largest curvature λ; the mean of K estimates of it adds m V/K.

    Parameters
    ----------
    gradients : ndarray, shape (n, size)
        Tangential gradients of independent minibatches.
    slices : sequence of slice
        Place of each variable.
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
        > FAR_BY_NOISE * squares[part].sum() + FAR_BY_CURVATURE * dim * curvature
        for part, dim in zip(slices, dims, strict=True)
    )


ACCURACY = 0.35
"""Largest step size in units of the fastest oscillation, ε·sqrt(curvature)."""

FIRST_EXCESS_WITH_LOCAL = 100.0
"""The same where variables have local ones, which make a posterior of many modes."""

FIRST_EULER_EXCESS = 150.0
"""Excess that is allowed first for Euler's scheme, whose thermostats do not brake on the way.

From 100 to 200 the end of tuning is the same; with less the way takes longer, and with 200 a
posterior of 20,000 rows was overshot.
"""

WEAKEST_DECAY, STRONGEST_DECAY = 0.1, 1.0
"""Bounds of Cε, the friction of one step."""

EULER_DECAY = 0.05
"""Cε for Euler's scheme, whose positions are colder by half of it.

Where gradient noise limits the step nothing is lost by little friction: a position diffuses by
ε²/(Cε) per step, which the allowed excess ε²V/(2Cε) fixes whatever Cε is.
"""

_N_ANGLES = 25


def repetition(decay: float, repeats: int) -> float:
    """How much more noise heats if it stays the same for several steps.

    Parameters
    ----------
    decay : float
        exp(−Cε), what is left of a velocity after one step.
    repeats : int
        Steps that see the same noise.
    """
    if repeats == 1:
        return 1.0
    phases = np.arange(1, repeats + 1)
    first = (1.0 - decay**phases) ** 2
    later = decay ** (2 * phases) * (1.0 - decay**repeats) ** 2 / (1.0 - decay ** (2 * repeats))
    return float(np.mean(first + later) * (1.0 + decay) / (1.0 - decay))


def noise_excess(step_size: float, angle: float, noise: float, repeats: int = 1) -> float:
    r"""Excess of the kinetic temperature over 1 caused by gradient noise.

    Parameters
    ----------
    step_size : float
        ε.
    angle : float
        Cε.
    noise : float
        V, variance of a component of the gradient estimate.
    repeats : int
        Steps that see the same minibatch.

    Returns
    -------
    float
        (ε²V / 4) coth(Cε / 2), times the factor for repeated noise; about εV / (2C).
    """
    return (
        0.25 * step_size**2 * noise / math.tanh(0.5 * angle) * repetition(math.exp(-angle), repeats)
    )


def euler_noise_excess(step_size: float, angle: float, noise: float) -> float:
    r"""Excess of the kinetic temperature over 1 by gradient noise, in Euler's scheme.

    Parameters
    ----------
    step_size : float
        ε.
    angle : float
        Cε.
    noise : float
        V, variance of a component of the gradient estimate.

    Returns
    -------
    float
        ε²V / (2Cε), as v ← (1 − Cε)v + noise of variance 2Cε + ε²V has it where Cε is small.
    """
    return 0.5 * step_size**2 * noise / angle


class TemperatureTuner(CoolingTuner):
    """Chooses ε and C from the measured curvature and gradient noise.

    The step size is the largest that resolves the fastest oscillation and, with the strongest
    friction, keeps the excess of the temperature below what is allowed at that moment; the
    friction is then the weakest that does.

    Parameters
    ----------
    n_blocks : int
        Number of variables; each has its own friction and its own variance of a component of the
        gradient.
    repeats : int
        Inner steps that see the same minibatch.
    first_excess, last_excess : float
        Allowed excess at the beginning and at the end of tuning.
    least_curvature : float
        Curvature that bounds the step size where the density is flat.
    """

    def __init__(
        self,
        n_blocks: int,
        *,
        repeats: int = 1,
        first_excess: float = FIRST_EXCESS,
        last_excess: float = LAST_EXCESS,
        least_curvature: float = 0.0,
    ) -> None:
        self._angles = np.geomspace(WEAKEST_DECAY, STRONGEST_DECAY, _N_ANGLES)
        self._heat = np.array([noise_excess(1.0, angle, 1.0, repeats) for angle in self._angles])
        self._repeats = repeats
        super().__init__(n_blocks, last_excess, least_curvature, first_excess)

    def step_size(self) -> float:
        """ε, a time."""
        step_size = ACCURACY / math.sqrt(self.curvature)
        worst = float(self.noise.max())
        if worst > 0.0:
            step_size = min(step_size, math.sqrt(self.allowed_excess / (worst * self._heat[-1])))
        return step_size * self._shrink

    def friction(self, step_size: float) -> np.ndarray:
        """C of every block, per unit of time, for a given step size."""
        allowed = self.allowed_excess * (1.0 + 1e-9)
        enough = np.outer(self.noise * step_size**2, self._heat) <= allowed
        first = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
        return self._angles[first] / step_size

    def position_excess(self, step_size: float, friction: np.ndarray) -> float:
        """Largest relative excess of the variance of slow positions by the measured noise.

        The same noise in ``repeats`` steps moves a position that much further than independent
        noise does, while friction keeps most of it out of the kinetic temperature.
        """
        excess = [
            noise_excess(step_size, one * step_size, noise) * self._repeats
            for one, noise in zip(friction, self.noise, strict=True)
        ]
        return max(excess)

    def annealing(self, step_size: float, friction: np.ndarray) -> np.ndarray:
        """Kinetic temperature of every block that is wanted at this moment of the tuning phase.

        What the gradient noise makes of it, less what is allowed at the end: 1 where that is
        little, and after tuning.
        """
        excess = [
            noise_excess(step_size, one * step_size, noise, self._repeats)
            for one, noise in zip(friction, self.noise, strict=True)
        ]
        return 1.0 + np.maximum(np.array(excess) - self._last_excess, 0.0)


class EulerTuner(TemperatureTuner):
    """`TemperatureTuner` for Euler's scheme, which bears little friction.

    Parameters
    ----------
    n_blocks : int
    last_excess, first_excess : float
    """

    def __init__(
        self, n_blocks: int, *, last_excess: float, first_excess: float = FIRST_EULER_EXCESS
    ) -> None:
        super().__init__(n_blocks, first_excess=first_excess, last_excess=last_excess)
        self._angles = np.array([EULER_DECAY])
        self._heat = np.array([euler_noise_excess(1.0, angle, 1.0) for angle in self._angles])

    def friction(self, step_size: float) -> np.ndarray:
        """Return A of every block, per unit of time, for a given step size."""
        return np.full(self._n_noises, EULER_DECAY / step_size)

    def annealing(self, step_size: float, friction: np.ndarray) -> np.ndarray:
        """Kinetic temperature of every block; see `TemperatureTuner.annealing`."""
        excess = euler_noise_excess(1.0, 1.0, 1.0) * self.noise * step_size / friction
        return 1.0 + np.maximum(excess - self._last_excess, 0.0)


LAST_DIFFUSION_EXCESS = 0.05
"""What is allowed last without a velocity, of the variance of the draws."""

LONGEST_TIME = 0.5
"""Bound of h² · curvature / 2 for a step without velocity, which diverges from 2 on."""


class DiffusionTuner(CoolingTuner):
    r"""Chooses the step h of Langevin dynamics without velocity.

    Along a direction with curvature λ and gradient noise V a step takes the time a = h²λ/2, and
    the variance is too large by the factor 1 + (V/λ) i(a) + a/2, where i is `independent_inflation`
    or `shuffled_inflation` of `pymc_geodesic.adaptation.variance_inflation`: noise that sums to
    zero over an epoch permits longer steps. h is the longest step whose excess stays below the
    permitted one for the largest λ and the V below.

    The noise is described by tr S and tr S², S being its covariance matrix, and counts as
    V = tr S² / tr S: the variance along the noise itself, which is the same in all directions
    for isotropic noise and close to the largest one otherwise.

    Parameters
    ----------
    epoch : int, optional
        Steps after which the noise of shuffled rows adds up to zero; None for independent noise.
    last_excess : float
        Allowed excess at the end of tuning.
    """

    def __init__(
        self, *, epoch: int | None = None, last_excess: float = LAST_DIFFUSION_EXCESS
    ) -> None:
        super().__init__(2, last_excess, 0.0)
        self._epoch = epoch

    def excess(self, time: float) -> float:
        """Excess of the variance for steps of a given time a."""
        trace, square = self.noise
        excess = 0.5 * time
        if trace > 0.0:
            inflation = (
                shuffled_inflation(time, self._epoch)
                if self._epoch is not None
                else independent_inflation(time)
            )
            excess += square / (trace * self.curvature) * inflation
        return excess

    def step_size(self) -> float:
        """h, a time."""
        time = longest_time(self.excess, self.allowed_excess, LONGEST_TIME)
        return self._shrink * math.sqrt(2.0 * time / self.curvature)
