"""The step size of a sampler with Metropolis correction, by dual averaging."""

from __future__ import annotations

import math

_SHRINKAGE, _DELAY, _FORGETTING = 0.05, 10.0, 0.75
_FIRST_FACTOR = 10.0
_RECENT = 0.05


class DualAveraging:
    """Finds the step size at which proposals are accepted with the probability wanted.

    Parameters
    ----------
    first : float
        ε to begin with; the search is drawn towards ten times as much.
    target : float
        Acceptance probability wanted.

    References
    ----------
    Hoffman, Gelman (2014), The No-U-Turn Sampler, section 3.2.

    Examples
    --------
    >>> from pymc_geodesic.kernels.dual_averaging import DualAveraging
    >>> tuner = DualAveraging(0.1, target=0.8)
    >>> for _ in range(2000):
    ...     tuner.observe(1.0 / (1.0 + tuner.exploring))  # 0.8 at a step of 0.25
    >>> round(tuner.settled, 2)
    0.25
    """

    def __init__(self, first: float, target: float) -> None:
        self.target = target
        self.restart(first)

    def restart(self, first: float) -> None:
        """Begin again from another step size."""
        self._drawn_to = math.log(_FIRST_FACTOR * first)
        self._log_step = self._mean_log_step = self._recent_log_step = math.log(first)
        self._missing = 0.0
        self._count = 0

    @property
    def exploring(self) -> float:
        """ε to try next."""
        return math.exp(self._log_step)

    @property
    def settled(self) -> float:
        """ε averaged over what was tried, to sample with."""
        return math.exp(self._mean_log_step)

    @property
    def recent(self) -> float:
        """ε averaged over about the last twenty that were tried, which has forgotten the first."""
        return math.exp(self._recent_log_step)

    def observe(self, acceptance: float) -> None:
        """Take in the mean acceptance probability of a trajectory."""
        self._count += 1
        weight = 1.0 / (self._count + _DELAY)
        self._missing += weight * (self.target - acceptance - self._missing)
        self._log_step = self._drawn_to - math.sqrt(self._count) / _SHRINKAGE * self._missing
        weight = self._count**-_FORGETTING
        self._mean_log_step += weight * (self._log_step - self._mean_log_step)
        weight = max(1.0 / self._count, _RECENT)
        self._recent_log_step += weight * (self._log_step - self._recent_log_step)

    @property
    def state(self) -> dict[str, float]:
        """All that decides the step sizes to come."""
        return {
            "drawn_to": self._drawn_to,
            "log_step": self._log_step,
            "mean_log_step": self._mean_log_step,
            "recent_log_step": self._recent_log_step,
            "missing": self._missing,
            "count": self._count,
        }

    @state.setter
    def state(self, state: dict[str, float]) -> None:
        self._drawn_to, self._missing = state["drawn_to"], state["missing"]
        self._log_step, self._mean_log_step = state["log_step"], state["mean_log_step"]
        self._recent_log_step = state["recent_log_step"]
        self._count = int(state["count"])
