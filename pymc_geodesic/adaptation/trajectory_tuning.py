"""Step size, length and metric of trajectories with Metropolis correction, tuned together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.mass_matrix import FactorRule, MetricWindows
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.kernels.dual_averaging import DualAveraging

QUARTER_PERIOD = 0.5 * math.pi
"""Time in which a normal law with standard deviation 1 forgets where it began."""

SPREAD = 0.4
"""Lengths are uniform on (1 ± 0.4) of the mean, so that no direction comes back to its start."""

FEW, SHORT, LONG = 30, 8, 64
"""The first draws take short trajectories, later tuning draws longer ones at most."""

_FIRST_STEP, _NEXT_STEP = 0.1, 0.3


class TrajectoryTuner:
    """Settings of Hamiltonian trajectories in the coordinates of a metric that changes.

    Parameters
    ----------
    n_tune : int
        Draws of the tuning phase.
    target_accept : float
    rule : FactorRule
        What the metric is made of.
    n_euclidean : int
        Length of the Euclidean part of a position, which comes first.
    compact : sequence of (slice, int)
        Place and dimension of the variables behind it.
    longest : sequence of float
        Bound of the length scale of each of them.
    adapts_metric : bool
    """

    def __init__(
        self,
        n_tune: int,
        target_accept: float,
        rule: FactorRule,
        n_euclidean: int,
        compact: Sequence[tuple[slice, int]] = (),
        longest: Sequence[float] = (),
        *,
        adapts_metric: bool = True,
    ) -> None:
        self._n_euclidean, self._compact = n_euclidean, list(compact)
        self._longest = list(longest)
        self.step_size = DualAveraging(_FIRST_STEP, target_accept)
        # the step size settles in what is left behind the last window
        n_windows = n_tune - max(n_tune // 10, min(50, n_tune // 2))
        self.windows = MetricWindows(n_windows, rule) if adapts_metric else None
        self._n_windows = n_windows
        self._draw = 0

    def n_steps(self, step_size: float, share: float, *, tune: bool) -> int:
        """Leapfrog steps of the next trajectory.

        Parameters
        ----------
        step_size : float
            ε in the coordinates of the metric.
        share : float
            Uniform random number of the trajectory, from 0 to 1.
        tune : bool
            While tuning, trajectories are bounded: a step size on its way may be tiny.
        """
        length = QUARTER_PERIOD * (1.0 + SPREAD * (2.0 * share - 1.0))
        wanted = max(round(length / step_size), 1)
        return min(wanted, SHORT if self._draw < FEW else LONG) if tune else min(wanted, 1024)

    def observe(
        self, acceptance: float, position: np.ndarray, gradient: np.ndarray
    ) -> Metric | None:
        """Take in one tuning draw; return a new metric when it is time for one.

        Parameters
        ----------
        acceptance : float
            Mean acceptance probability.
        position, gradient : ndarray, shape (size,)
            Coordinates of the model, and the tangential gradient of the log-density there.
        """
        self._draw += 1
        self.step_size.update(acceptance)
        if self.windows is None or self._draw > self._n_windows:
            return None
        if not self.windows.observe(position, gradient):
            return None
        self.windows.forget()
        factor = self.windows.factor(self._n_euclidean)
        if factor is None:
            return None
        self.step_size.restart(_NEXT_STEP)
        lengths = [
            self.windows.length(part, dim, longest)
            for (part, dim), longest in zip(self._compact, self._longest, strict=True)
        ]
        return Metric(position[: self._n_euclidean].copy(), factor, np.array(lengths))

    @property
    def state(self) -> dict[str, Any]:
        """All that decides the settings to come."""
        return {
            "draw": self._draw,
            "step_size": self.step_size.state,
            "windows": None if self.windows is None else self.windows.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._draw = state["draw"]
        self.step_size.state = state["step_size"]
        if self.windows is not None:
            self.windows.state = state["windows"]
