"""Curvature and noise as tuning measures them, and how much heat it allows: less and less."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pymc_geodesic.runtime.finite import all_finite

__all__ = ["CoolingTuner", "is_far"]

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
