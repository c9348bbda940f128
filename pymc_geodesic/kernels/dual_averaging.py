"""Dual averaging of the step size of Metropolis-corrected samplers.

It is used by `pymc_geodesic.adaptation` and by the transitions of local variables in
`pymc_geodesic.gradients.local_gradient`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DualAveragingSettings:
    """Constants of dual averaging.

    The first four are those of Hoffman and Gelman (2014), section 3.2.1.

    Attributes
    ----------
    shrinkage : float
        γ, weight of the shrinkage of log ε towards `initial_factor` times the initial ε.
    delay : float
        t₀, which reduces the weight of the first iterations.
    decay : float
        κ, exponent with which the weight of an iteration in the average decreases.
    initial_factor : float
        Ratio of the step size towards which log ε is shrunk to the initial step size.
    recent_weight : float
        Weight of an iteration in the average of the recent step sizes, about the last twenty;
        heuristic, no measurement.
    """

    shrinkage: float = 0.05
    delay: float = 10.0
    decay: float = 0.75
    initial_factor: float = 10.0
    recent_weight: float = 0.05


SETTINGS = DualAveragingSettings()


@dataclass
class DualAveragingState:
    """Averages over the iterations so far.

    Attributes
    ----------
    log_shrunk_to : float
        μ, logarithm of the step size towards which log ε is shrunk.
    log_step, log_average, log_recent : float
        Logarithms of the next step size, and weighted averages of all and of the recent ones.
    error : float
        H̄, damped average of the target minus the acceptance probability.
    count : int
        Number of iterations.
    """

    log_shrunk_to: float
    log_step: float
    log_average: float
    log_recent: float
    error: float = 0.0
    count: int = 0


class DualAveraging:
    """Step size at which proposals are accepted with a target probability.

    Parameters
    ----------
    initial : float
        Initial step size ε.
    target : float
        Target acceptance probability.
    maximum : float
        Upper bound on the step size.
    shrinkage : float
        γ; the larger it is, the less the step size varies.
    initial_factor : float
        Ratio of the step size towards which log ε is shrunk to the initial step size.

    References
    ----------
    Hoffman, Gelman (2014), The No-U-Turn Sampler, section 3.2.

    Examples
    --------
    >>> from pymc_geodesic.kernels.dual_averaging import DualAveraging
    >>> averaging = DualAveraging(0.1, target=0.8)
    >>> for _ in range(2000):
    ...     averaging.update(1.0 / (1.0 + averaging.current))  # 0.8 at a step size of 0.25
    >>> round(averaging.average, 2)
    0.25
    """

    def __init__(
        self,
        initial: float,
        target: float,
        maximum: float = math.inf,
        shrinkage: float = SETTINGS.shrinkage,
        initial_factor: float = SETTINGS.initial_factor,
    ) -> None:
        self.target = target
        self._shrinkage, self._initial_factor = shrinkage, initial_factor
        self._log_maximum = math.log(maximum)
        self.restart(initial)

    def restart(self, initial: float) -> None:
        """Discard all iterations and begin with another step size."""
        log_step = math.log(initial)
        self._state = DualAveragingState(
            math.log(self._initial_factor * initial), log_step, log_step, log_step
        )

    @property
    def current(self) -> float:
        """Step size of the next iteration of the warm-up."""
        return math.exp(self._state.log_step)

    @property
    def average(self) -> float:
        """Averaged step size, which is used after the warm-up."""
        return math.exp(self._state.log_average)

    @property
    def recent_average(self) -> float:
        """Step size averaged over about the last twenty iterations."""
        return math.exp(self._state.log_recent)

    @property
    def count(self) -> int:
        """Number of iterations since the last `restart`."""
        return self._state.count

    def update(self, acceptance: float) -> None:
        """Update the step size with the mean acceptance probability of a trajectory."""
        state = self._state
        state.count += 1
        weight = 1.0 / (state.count + SETTINGS.delay)
        state.error += weight * (self.target - acceptance - state.error)
        log_step = state.log_shrunk_to - math.sqrt(state.count) / self._shrinkage * state.error
        state.log_step = min(log_step, self._log_maximum)
        weight = state.count**-SETTINGS.decay
        state.log_average += weight * (state.log_step - state.log_average)
        weight = max(1.0 / state.count, SETTINGS.recent_weight)
        state.log_recent += weight * (state.log_step - state.log_recent)

    @property
    def state(self) -> dict[str, Any]:
        """Averages over the iterations so far, as a dictionary."""
        return asdict(self._state)

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._state = DualAveragingState(**state)
