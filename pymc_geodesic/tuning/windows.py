"""Windows of the warm-up after which the metric is estimated anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from pymc_geodesic.tuning.factor_rule import FactorRule
from pymc_geodesic.tuning.funnel import Funnel, find_funnel
from pymc_geodesic.tuning.metric import Factor, LowRank
from pymc_geodesic.tuning.whitening import length_scale

__all__ = ["MetricWindows", "window_ends"]

FIRST_WINDOW = 10
GROWTH = 1.5
FORGOTTEN = 0.5
"""Part of the draws so far that is dropped when a window ends: they come from the way there."""


def window_ends(n: int) -> list[int]:
    """Draws after which the metric changes, in a phase of ``n`` draws.

    Windows grow by half: early ones are short, because what the first draws show is the way to
    the posterior. The last window ends with the phase.

    Examples
    --------
    >>> from pymc_geodesic.tuning.windows import window_ends
    >>> window_ends(200)
    [10, 25, 47, 80, 200]
    >>> window_ends(5)
    [5]
    """
    ends, width = [], float(FIRST_WINDOW)
    end = FIRST_WINDOW
    while end + GROWTH * width <= n:
        ends.append(end)
        width *= GROWTH
        end += int(width)
    if ends and n - ends[-1] < width:
        ends.pop()
    return [*ends, n]


class MetricWindows:
    """Collects draws with their gradients, and says what metric they ask for.

    Parameters
    ----------
    n_draws : int
        Draws of the phase.
    rule : FactorRule
    """

    def __init__(self, n_draws: int, rule: FactorRule) -> None:
        self._ends = set(window_ends(n_draws))
        self._rule = rule
        self._positions: list[np.ndarray] = []
        self._gradients: list[np.ndarray] = []
        self._seen = 0

    @property
    def state(self) -> dict[str, Any]:
        """What was collected."""
        return {
            "seen": self._seen,
            "positions": np.array(self._positions),
            "gradients": np.array(self._gradients),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._seen = state["seen"]
        self._positions = list(state["positions"])
        self._gradients = list(state["gradients"])

    def observe(self, position: np.ndarray, gradient: np.ndarray) -> bool:
        """Take in one draw; return whether a window ends with it.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            In the coordinates of the model, the gradient projected on the tangent space. What is
            not finite is left out.
        """
        self._seen += 1
        if np.isfinite(position).all() and np.isfinite(gradient).all():
            self._positions.append(position.copy())
            self._gradients.append(gradient.copy())
        return self._seen in self._ends

    def __len__(self) -> int:
        return len(self._positions)

    def forget(self) -> None:
        """Drop the earlier draws, which come from the way to the posterior."""
        first = int(FORGOTTEN * len(self._positions))
        self._positions = self._positions[first:]
        self._gradients = self._gradients[first:]

    def factor(self, d: int) -> Factor | None:
        """Factor that the rule makes of the first ``d`` coordinates; None if nothing was learned.

        That is so where there are too few draws, or where all proposals were rejected.
        """
        if len(self._positions) < 3 or not np.ptp(self._positions, axis=0).any():
            return None
        x, gradients = np.array(self._positions)[:, :d], np.array(self._gradients)[:, :d]
        factor = self._rule.factor(x, gradients)
        numbers = factor.times(np.ones(d)) if isinstance(factor, LowRank) else factor
        return factor if np.isfinite(numbers).all() else None

    def length(self, part: slice, dim: int, longest: float = 1.0) -> float:
        """Length scale of a variable that is not Euclidean; see `length_scale`."""
        x, gradients = np.array(self._positions)[:, part], np.array(self._gradients)[:, part]
        return length_scale(x, gradients, dim, longest)

    def funnel(
        self, parts: Mapping[str, slice], in_model: Collection[tuple[str, str]] = ()
    ) -> Funnel | None:
        """Look for a variable that sets the scale of another; see `find_funnel`."""
        positions, gradients = np.array(self._positions), np.array(self._gradients)
        return find_funnel(positions, gradients, parts, in_model)

    @property
    def positions(self) -> np.ndarray:
        """Draws that are remembered, shape (n, size)."""
        return np.array(self._positions)

    @property
    def gradients(self) -> np.ndarray:
        """Gradients of the draws that are remembered, shape (n, size)."""
        return np.array(self._gradients)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the draws that are remembered."""
        return np.mean(self._positions, axis=0)
