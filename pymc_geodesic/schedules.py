"""Step size schedules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[int], float]
"""Step size as a function of the index of the draw, from 0, including the warm-up."""


@dataclass(frozen=True)
class PolynomialDecay:
    r"""The schedule h0 · (1 + t / b)^−γ.

    Parameters
    ----------
    h0 : float
        First step size, a time.
    b : float
        Number of draws after which the decay starts.
    gamma : float
        Exponent γ. In (0.5, 1] the sum of the step sizes diverges and the sum of their squares
        converges.

    Raises
    ------
    ValueError
        If h0 or b is not positive, or if gamma is negative.

    Examples
    --------
    >>> from pymc_geodesic.schedules import PolynomialDecay
    >>> schedule = PolynomialDecay(0.1, b=10, gamma=1.0)
    >>> schedule(0), schedule(10)
    (0.1, 0.05)

    References
    ----------
    Welling, Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics.
    """

    h0: float
    b: float
    gamma: float

    def __post_init__(self) -> None:
        if not (0.0 < self.h0 < math.inf and 0.0 < self.b < math.inf and self.gamma >= 0.0):
            raise ValueError(f"h0 and b must be positive and gamma must not be negative: {self}")

    def __call__(self, draw: int) -> float:
        """Step size of a draw."""
        return self.h0 * (1.0 + draw / self.b) ** -self.gamma
