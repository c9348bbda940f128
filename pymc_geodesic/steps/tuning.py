"""Choosing step size and friction so that the kinetic temperature is one."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["TemperatureTuner", "noise_excess"]

ACCURACY = 0.35
"""Largest step size in units of the fastest oscillation, ε·sqrt(curvature)."""

FIRST_EXCESS, LAST_EXCESS = 10.0, 0.02
"""Excess of the temperature by gradient noise that is allowed first and last."""

COOLING = 0.7
"""Part of the tuning phase over which the allowed excess falls."""

WEAKEST_DECAY, STRONGEST_DECAY = 0.1, 1.0
"""Bounds of Cε, the friction of one step."""

_ANGLES = np.geomspace(WEAKEST_DECAY, STRONGEST_DECAY, 25)
_MEMORY = 0.95


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


class TemperatureTuner:
    """Chooses ε and C from the measured curvature and gradient noise.

    The step size is the largest that resolves the fastest oscillation and, with the strongest
    friction, keeps the excess of the temperature below what is allowed at that moment; the
    friction is then the weakest that does. What is allowed falls from hot, where the sampler
    crosses the posterior quickly, to cold.

    Parameters
    ----------
    n_blocks : int
        Number of variables; each has its own friction.
    repeats : int
        Inner steps that see the same minibatch.
    last_excess : float
        Allowed excess at the end of tuning.
    least_curvature : float
        Curvature that bounds the step size where the density is flat.
    """

    def __init__(
        self,
        n_blocks: int,
        *,
        repeats: int = 1,
        last_excess: float = LAST_EXCESS,
        least_curvature: float = 0.0,
    ) -> None:
        self._n_blocks = n_blocks
        self._repeats = repeats
        self._last_excess = last_excess
        self._least_curvature = max(least_curvature, 1e-12)
        self._heat = np.array([noise_excess(1.0, angle, 1.0, repeats) for angle in _ANGLES])
        self.reset(0)

    def reset(self, n_tune: int) -> None:
        """Forget what was measured."""
        self._n_tune = n_tune
        self._seen = 0
        self._curvature = 0.0
        self._noise = np.zeros(self._n_blocks)
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
        """Variance of a gradient component, by block."""
        return self._noise / self._noise_weight if self._noise_weight else self._noise

    def observe(self, curvature: float, noise: np.ndarray | None, counts: bool = True) -> None:
        """Take in one measurement, and count it as a draw of the tuning phase or not."""
        self._seen += counts
        if math.isfinite(curvature):
            self._curvature = _MEMORY * self._curvature + (1.0 - _MEMORY) * abs(curvature)
            self._weight = _MEMORY * self._weight + (1.0 - _MEMORY)
        if noise is not None and np.all(np.isfinite(noise)):
            self._noise = _MEMORY * self._noise + (1.0 - _MEMORY) * noise
            self._noise_weight = _MEMORY * self._noise_weight + (1.0 - _MEMORY)

    def shrink(self) -> None:
        """Halve every step size from now on: the last one was not stable."""
        self._shrink *= 0.5

    @property
    def allowed_excess(self) -> float:
        """Excess of the temperature allowed at this moment of the tuning phase."""
        progress = min(self._seen / max(COOLING * self._n_tune, 1.0), 1.0)
        return float(FIRST_EXCESS * (self._last_excess / FIRST_EXCESS) ** progress)

    def step_size(self) -> float:
        """ε, a time."""
        step_size = ACCURACY / math.sqrt(self.curvature)
        worst = float(np.max(self.noise))
        if worst > 0.0:
            step_size = min(step_size, math.sqrt(self.allowed_excess / (worst * self._heat[-1])))
        return step_size * self._shrink

    def friction(self, step_size: float) -> np.ndarray:
        """C of every block, per unit of time, for a given step size."""
        allowed = self.allowed_excess * (1.0 + 1e-9)
        enough = np.outer(self.noise * step_size**2, self._heat) <= allowed
        first = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
        return _ANGLES[first] / step_size
