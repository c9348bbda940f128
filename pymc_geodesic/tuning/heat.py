"""Whether dynamics without Metropolis correction run too hot or too cold."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["HeatWatch", "hottest_draw"]

WATCHED, MUCH_HEAT, HEAT_ERRORS = 40, 0.05, 4.0
"""Draws over which the temperature is averaged, the excess and the standard errors beyond it that
are acted on."""


HOTTEST, HOTTEST_SQUARE, HOTTER = 10.0, 100.0, 3.0
"""Temperature, and sum of squares, that no velocity of a normal law comes near; and by what they
grow where a chain was as hot before."""


def hottest_draw(dim: int, n_before: int = 0) -> float:
    """Temperature of a draw from which a chain is taken to run away.

    A chain that leaves the posterior gets hot long before its numbers overflow, and is far away by
    then. Where it is as hot with shorter steps as well, it is on its way to the posterior: the
    bound grows.

    Parameters
    ----------
    dim : int
    n_before : int
        How often the chain was that hot before.

    Examples
    --------
    >>> from pymc_geodesic.tuning.heat import hottest_draw
    >>> hottest_draw(1), hottest_draw(100), hottest_draw(100, n_before=2)
    (110.0, 11.0, 99.0)
    """
    bound = HOTTEST + HOTTEST_SQUARE / max(dim, 1)
    return bound * HOTTER ** min(n_before, 100)


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
