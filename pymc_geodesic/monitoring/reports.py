"""Monitors of kinetic temperature, effective sample size and acceptance, and reports of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.effective_size import RunningSize
from pymc_geodesic.monitoring.kinetic_temperature import (
    TEMPERATURE_TOLERANCE,
    temperature_complaint,
    temperature_error,
)

AT_THE_BOUND = 0.9
"""ξh from which a thermostat that does not hold the temperature is at its bound 1/h."""


REPORTED_INFLATION = 0.1
"""Relative excess of the variance by the noise of counts from which it is reported."""


class Report:
    """A diagnosis that is computed elsewhere, such as that of a sampler.

    Parameters
    ----------
    compute : callable
        Names of the coordinates → diagnosis or None.
    """

    def __init__(self, compute: Callable[[Sequence[str]], Diagnosis | None]) -> None:
        self._compute = compute

    def initialize(self, n_draws: int) -> None:
        """Begin a chain."""

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Observe nothing."""

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return what is wrong; see `DrawMonitor`."""
        return self._compute(names)

    @property
    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        pass


class EffectiveSizeMonitor:
    """Effective sample size of one chain; see `pymc_geodesic.monitoring.effective_size`.

    Parameters
    ----------
    product : Product
    angles : collection of str
        Euclidean variables that are angles.
    minibatch_remedy : str
        What to do about too much gradient noise.
    """

    def __init__(self, product: Product, angles: Collection[str], *, minibatch_remedy: str) -> None:
        self._size, self._minibatch_remedy = RunningSize(product, angles), minibatch_remedy
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._n, self._n_draws = 0, n_draws
        self._sums = self._size.start()

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw into account; see `DrawMonitor`."""
        self._size.take(self._sums, position, self._n, max(self._n_draws, 1))
        self._n += 1

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return that a chain is too short; see `DrawMonitor`."""
        message = self._size.complaint(
            self._sums, self._n_draws, minibatches=self._minibatch_remedy
        )
        return None if message is None else Diagnosis(message, "few-effective-draws")

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws so far."""
        return {"n": self._n, "sums": self._sums.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._n, self._sums = state["n"], state["sums"].copy()


class TemperatureMonitor:
    """Mean kinetic temperature of a chain.

    Parameters
    ----------
    dims : ndarray, shape (n_blocks,)
        Dimension of each block of the coordinates that the dynamics run in.
    friction_name : str
        Name of the sample stat that is the friction.
    too_hot, too_cold : str
        Remedies.
    """

    def __init__(
        self, dims: np.ndarray, *, friction_name: str, too_hot: str, too_cold: str
    ) -> None:
        self._dims, self._friction_name = dims, friction_name
        self._too_hot, self._too_cold = too_hot, too_cold
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._sum, self._n = 0.0, 0
        self._n_steps = self._step_size = self._friction = 0.0

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw into account; see `DrawMonitor`."""
        self._sum += stats["temperature"]
        self._n += 1
        self._n_steps += stats["n_steps"]
        self._step_size, self._friction = stats["step_size"], stats["friction"]

    @property
    def mean(self) -> float:
        """Mean kinetic temperature of the draws so far."""
        return self._sum / self._n

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return that the mean temperature deviates from 1; see `DrawMonitor`."""
        decay = np.full(len(self._dims), self._step_size * self._friction)
        message = temperature_complaint(
            self.mean,
            temperature_error(self._dims, decay, int(self._n_steps)),
            dynamics=(
                f"step size {self._step_size:.3g}, {self._friction_name} {self._friction:.3g}"
            ),
            too_hot=self._too_hot,
            too_cold=self._too_cold,
        )
        return None if message is None else Diagnosis(message, "temperature")

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws so far."""
        return {name: getattr(self, name) for name in self._STATE}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name])

    _STATE = ("_sum", "_n", "_n_steps", "_step_size", "_friction")


class EulerMonitor:
    """Temperature of Euler's method, whose positions have 1 − ξh/2 times their variance.

    Parameters
    ----------
    temperature : TemperatureMonitor
    """

    def __init__(self, temperature: TemperatureMonitor) -> None:
        self._temperature = temperature
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._temperature.initialize(n_draws)
        self._missing, self._n, self._decay, self._step_size = 0.0, 0, 0.0, 0.0

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw into account; see `DrawMonitor`."""
        self._temperature.observe(position, stats)
        self._step_size = stats["step_size"]
        self._decay = self._step_size * stats["largest_thermostat"]
        self._missing += 0.5 * self._step_size * stats["thermostat"]
        self._n += 1

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return that temperature or variance is off; see `DrawMonitor`."""
        found = self._temperature.diagnosis(names)
        missing = self._missing / self._n
        if found is not None and self._decay > AT_THE_BOUND:
            return Diagnosis(
                f"ran at a kinetic temperature of {self._temperature.mean:.3g} instead of 1 with "
                f"the thermostat at its bound, 1/step_size = {1.0 / self._step_size:.3g}: gradient "
                "noise exceeds what it can compensate. Use a smaller step_size or larger "
                "minibatches, or let tuning choose.",
                "temperature",
            )
        if found is not None or missing <= TEMPERATURE_TOLERANCE:
            return found
        return Diagnosis(
            f"ran with a thermostat of {2.0 * missing:.3g} per step, with which Euler's method "
            f"leaves the draws narrower than the posterior, {missing:.0%} of their variance "
            "missing. Use a smaller step_size, less diffusion or larger minibatches, let tuning "
            "choose, or use gSGNHT, which has no such error.",
            "temperature",
        )

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws so far."""
        named = {name: getattr(self, name) for name in self._STATE}
        return named | {"temperature": self._temperature.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name])
        self._temperature.state = state["temperature"]

    _STATE = ("_missing", "_n", "_decay", "_step_size")


class AcceptanceMonitor:
    """Mean acceptance rate of a chain with Metropolis correction.

    Parameters
    ----------
    target : float
        Acceptance rate that the step size is adapted to.
    """

    def __init__(self, target: float) -> None:
        self._target = target
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._sum, self._n = 0.0, 0

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw into account; see `DrawMonitor`."""
        self._sum += stats["acceptance_rate"]
        self._n += 1

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return that too few proposals were accepted; see `DrawMonitor`."""
        mean, largest_error = self._sum / self._n, 0.5 / math.sqrt(self._n)
        if mean + 2.0 * largest_error >= 0.5 * self._target:
            return None
        return Diagnosis(
            f"accepted {mean:.2f} of its proposals where {self._target:.2f} were wanted. Use more "
            "tuning draws or a smaller step_size.",
            "acceptance",
        )

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws so far."""
        return {"sum": self._sum, "n": self._n}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._sum, self._n = state["sum"], state["n"]


class InflationMonitor:
    """Excess of the variance that the noise of estimated counts adds, at the last draw."""

    def __init__(self) -> None:
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._inflation = self._step_size = 0.0

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Take a draw into account; see `DrawMonitor`."""
        self._inflation, self._step_size = stats["variance_inflation"], stats["step_size"]

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Return that the draws are too wide; see `DrawMonitor`."""
        if self._inflation <= REPORTED_INFLATION:
            return None
        return Diagnosis(
            f"ran with step size {self._step_size:.3g}, at which the noise of the minibatches "
            f"widens the variance by {100 * self._inflation:.0f} %. Use a smaller step_size or "
            "larger minibatches, or let tuning choose.",
            "temperature",
        )

    @property
    def state(self) -> dict[str, Any]:
        """Inflation and step size of the last draw."""
        return {"inflation": self._inflation, "step_size": self._step_size}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._inflation, self._step_size = state["inflation"], state["step_size"]
