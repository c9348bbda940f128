"""What one draw of Langevin dynamics reports of its adaptation, also where there is none."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ADAPTATION_STATS", "Draw", "stats_as_told"]

ADAPTATION_STATS: dict[str, tuple[Any, list[int]]] = {
    "phase": (np.dtype("<U6"), []),
    "configurational_temperature": (np.float64, []),
    "whitened_gradient": (np.float64, []),
    "noise_ratio": (np.float64, []),
}
"""Types and shapes of the stats that every step has which can adapt its dynamics."""


def stats_as_told(
    *, tune: bool, configurational_temperature: float = math.nan, largest_gradient: float = math.nan
) -> dict[str, Any]:
    """Make these stats for a draw in the coordinates of the model."""
    return {
        "phase": "tune" if tune else "sample",
        "configurational_temperature": configurational_temperature,
        "whitened_gradient": largest_gradient,
        "noise_ratio": 1.0,
    }


class Draw(NamedTuple):
    """What one draw reports.

    Attributes
    ----------
    step_size, friction, temperature : float
    n_grad, noise_clips : int
    diverging : bool
    phase : {"search", "tune", "sample"}
    configurational_temperature : float
        Mean over the Euclidean coordinates at the last look; NaN before there was one.
    whitened_gradient : float
        Largest error of a mean so far, in posterior standard deviations.
    noise_ratio : float
        Noise with control variates over noise without; 1 without variates.
    """

    step_size: float
    friction: float
    temperature: float
    n_grad: int
    noise_clips: int
    diverging: bool
    phase: str
    configurational_temperature: float = math.nan
    whitened_gradient: float = math.nan
    noise_ratio: float = 1.0

    @property
    def adaptation_stats(self) -> dict[str, Any]:
        """These stats of the draw."""
        return {name: getattr(self, name) for name in ADAPTATION_STATS}
