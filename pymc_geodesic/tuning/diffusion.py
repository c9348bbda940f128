"""Choosing the step size of Langevin dynamics without a velocity."""

from __future__ import annotations

import math

from pymc_geodesic.tuning.cooling import CoolingTuner
from pymc_geodesic.tuning.inflation import (
    independent_inflation,
    longest_time,
    shuffled_inflation,
)

__all__ = ["DiffusionTuner"]

LAST_DIFFUSION_EXCESS = 0.05
"""What is allowed last without a velocity, of the variance of the draws."""

LONGEST_TIME = 0.5
"""Bound of h² · curvature / 2 for a step without velocity, which diverges from 2 on."""


class DiffusionTuner(CoolingTuner):
    r"""Chooses the step h of Langevin dynamics without velocity.

    Along a direction with curvature λ and gradient noise V a step takes the time a = h²λ/2, and
    the variance is too large by the part (V/λ) i(a) + a/2, where i is
    `pymc_geodesic.tuning.inflation.independent_inflation` or `shuffled_inflation`: noise that adds
    up to zero over an epoch allows for longer steps. h is the longest that keeps to what is
    allowed for the largest λ and the V below.

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
