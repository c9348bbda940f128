"""Monitor of the variance that the noise of estimated counts adds to the draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor


@dataclass(frozen=True)
class InflationSettings:
    """Constants of the monitor.

    Attributes
    ----------
    max_inflation : float
        Relative increase of the variance above which a warning is issued: twice the 5 % that the
        adaptation of the step size allows.
    """

    max_inflation: float = 0.1


SETTINGS = InflationSettings()


@dataclass
class LastDraw:
    """Sample stats of the last draw."""

    inflation: float = 0.0
    step_size: float = 0.0


class InflationMonitor(DrawMonitor):
    """Relative increase of the variance of the draws by minibatch noise, at the last draw.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.variance_inflation import InflationMonitor
    >>> monitor = InflationMonitor()
    >>> monitor.observe(np.zeros(1), {"variance_inflation": 0.2, "step_size": 0.05})
    >>> monitor.diagnosis(["x"]).finding
    'The relative increase of the variance by minibatch noise with step size 0.05 is 20% (expected
    at most 10%): the draws are wider than the posterior.'
    """

    def __init__(self) -> None:
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self.sums = LastDraw()

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Keep the sample stats of a draw; see `DrawMonitor`."""
        self.sums = LastDraw(stats["variance_inflation"], stats["step_size"])

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the increase with its bound; see `DrawMonitor`."""
        if self.sums.inflation <= SETTINGS.max_inflation:
            return None
        return Diagnosis(
            quantity="relative increase of the variance by minibatch noise",
            condition=f"with step size {self.sums.step_size:.3g}",
            value=self.sums.inflation,
            expected=SETTINGS.max_inflation,
            limit="at most ",
            format_spec=".0%",
            consequence="the draws are wider than the posterior",
            remedy=(
                "Omit step_size if it is set, so that it is adapted; otherwise use {minibatches}."
            ),
            anchor="temperature",
        )
