"""Noise, exposures and sums of count estimates, averaged over a tuning phase."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["CountNoise"]


class CountNoise:
    """Averages over the measurements of a tuning phase.

    Parameters
    ----------
    n_variables, size : int
        Number of variables, and of numbers in all of them.

    Attributes
    ----------
    count : int
        Measurements so far.
    """

    def __init__(self, n_variables: int, size: int) -> None:
        self._shape = n_variables, size
        self.reset()

    def reset(self) -> None:
        """Forget all measurements."""
        n_variables, size = self._shape
        self.count = 0
        self._noise = np.zeros(n_variables)
        self._exposures = np.zeros(size)
        self._totals = np.zeros(size)

    def observe(self, noise: np.ndarray, exposures: np.ndarray, totals: np.ndarray) -> None:
        """Add a measurement.

        Parameters
        ----------
        noise : ndarray, shape (n_variables,)
            Variance of the estimates of each variable, relative to that of the variable.
        exposures : ndarray, shape (size,)
            Estimated exposures.
        totals : ndarray, shape (size,)
            Estimated counts, summed over the simplex row that each number belongs to; zero where
            the sum does not depend on the point.
        """
        self.count += 1
        self._noise += noise
        self._exposures += exposures
        self._totals += totals

    @property
    def largest(self) -> float:
        """Relative noise of the variable where it is largest, Var[â] / a."""
        return float(self._noise.max() / max(self.count, 1))

    @property
    def exposures(self) -> np.ndarray:
        """Mean of the exposures, shape (size,)."""
        return self._exposures / max(self.count, 1)

    @property
    def totals(self) -> np.ndarray:
        """Mean sum of the counts in the row of each number, shape (size,)."""
        return self._totals / max(self.count, 1)

    @property
    def state(self) -> dict[str, Any]:
        """All of it; exposures and sums are left out where there are none."""
        return {
            "count": self.count,
            "noise": self._noise,
            "exposures": self._exposures if self._exposures.any() else np.empty(0),
            "totals": self._totals if self._totals.any() else np.empty(0),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self._noise = state["noise"].copy()
        self._exposures, self._totals = np.zeros((2, self._shape[1]))
        if state["exposures"].size:
            self._exposures[:] = state["exposures"]
        if state["totals"].size:
            self._totals[:] = state["totals"]
