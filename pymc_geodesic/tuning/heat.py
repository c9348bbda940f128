"""Whether dynamics without Metropolis correction run too hot or too cold."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["HeatWatch"]

WATCHED, MUCH_HEAT, HEAT_ERRORS = 40, 0.05, 4.0
"""Draws over which the temperature is averaged, the excess and the standard errors beyond it that
are acted on."""


class HeatWatch:
    """Averages the kinetic temperature over some draws at a time, and judges the mean.

    Examples
    --------
    >>> from pymc_geodesic.tuning.heat import HeatWatch
    >>> watch = HeatWatch()
    >>> sum(watch.observe(1.0 + 0.1 * (-1) ** draw) for draw in range(400))
    0
    >>> [watch.observe(1.3 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    1
    >>> [watch.observe(0.7 + 0.1 * (-1) ** draw) for draw in range(40)][-1]
    -1
    """

    def __init__(self) -> None:
        self.sums = np.zeros(3)

    def forget(self) -> None:
        """Begin anew, for the settings have changed."""
        self.sums = np.zeros(3)

    def observe(self, temperature: float) -> int:
        """Take in a draw; return 1 if it is too hot beyond doubt, −1 if too cold, and else 0."""
        self.sums += (1.0, temperature, temperature**2)
        count, total, squares = self.sums
        if count < WATCHED:
            return 0
        mean = total / count
        error = math.sqrt(max(squares / count - mean**2, 0.0) / count)
        self.forget()
        if abs(mean - 1.0) <= MUCH_HEAT + HEAT_ERRORS * error:
            return 0
        return 1 if mean > 1.0 else -1
