"""Choosing step size and friction so that the kinetic temperature is one."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.tuning.cooling import FIRST_EXCESS, LAST_EXCESS, CoolingTuner

__all__ = ["EulerTuner", "TemperatureTuner", "euler_noise_excess", "noise_excess"]

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
