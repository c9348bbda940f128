"""Monitor of the acceptance rate of samplers with a Metropolis correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor


@dataclass(frozen=True)
class AcceptanceSettings:
    """Constants of the monitor; conventions, not chosen by a benchmark.

    Attributes
    ----------
    min_fraction : float
        Fraction of the target acceptance rate below which a warning is issued.
    n_errors : float
        Standard errors by which the mean rate has to be below it.
    """

    min_fraction: float = 0.5
    n_errors: float = 2.0


SETTINGS = AcceptanceSettings()


@dataclass
class AcceptanceSums:
    """Sum of the acceptance rates of ``n`` draws."""

    rate: float = 0.0
    n: int = 0


class AcceptanceMonitor(DrawMonitor):
    """Mean acceptance rate of a chain.

    Parameters
    ----------
    target : float
        Acceptance rate that the step size is adapted to.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.acceptance import AcceptanceMonitor
    >>> monitor = AcceptanceMonitor(0.8)
    >>> for _ in range(400):
    ...     monitor.observe(np.zeros(1), {"acceptance_rate": 0.2})
    >>> monitor.diagnosis(["x"]).finding
    'The mean acceptance rate is 0.2 (standard error 0.025, expected 0.8): few proposals are
    accepted.'
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self.sums = AcceptanceSums()

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Add the acceptance rate of a draw; see `DrawMonitor`."""
        self.sums.rate += stats["acceptance_rate"]
        self.sums.n += 1

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the mean acceptance rate with its target; see `DrawMonitor`."""
        mean = self.sums.rate / self.sums.n
        error = 0.5 / math.sqrt(self.sums.n)  # an upper bound: rates are between 0 and 1
        if mean + SETTINGS.n_errors * error >= SETTINGS.min_fraction * self._target:
            return None
        return Diagnosis(
            quantity="mean acceptance rate",
            value=mean,
            error=error,
            expected=self._target,
            consequence="few proposals are accepted",
            remedy=(
                "Omit step_size if it is set, so that it is adapted; otherwise use more tuning "
                "draws."
            ),
            anchor="acceptance",
        )
