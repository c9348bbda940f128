"""Monitor of the kinetic temperature of Langevin samplers with a momentum.

The sample stat ``temperature`` is computed by `pymc_geodesic.integrators.position_temperature`, by
Euler's method v·v/m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor


@dataclass(frozen=True)
class TemperatureSettings:
    """Constants of the monitor; conventions, not chosen by a benchmark.

    Attributes
    ----------
    tolerance : float
        Error of the mean temperature, or of the relative variance of the positions, that is
        accepted: 5 % of a standard deviation.
    n_errors : float
        Standard errors by which a mean temperature has to leave the tolerance.
    thermostat_bound : float
        ξh from which a thermostat that does not hold the temperature is at its bound 1/h.
    """

    tolerance: float = 0.1
    n_errors: float = 3.0
    thermostat_bound: float = 0.9


SETTINGS = TemperatureSettings()


def temperature_error(dims: np.ndarray, decay: np.ndarray, n_steps: int) -> float:
    """Return the standard error of a mean kinetic temperature whose expectation is 1.

    A component v² has variance 2 and autocorrelation e^(−2Cε) from step to step.

    Parameters
    ----------
    dims : ndarray, shape (n_variables,)
        Dimension of every variable; the temperature is the mean over the variables.
    decay : ndarray, shape (n_variables,)
        Cε, the friction of one step.
    n_steps : int
        Inner steps that the mean is over.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.kinetic_temperature import temperature_error
    >>> temperature_error(np.array([50]), np.array([0.1]), 100_000)
    0.002
    """
    dependence = np.minimum(1.0 / (np.tanh(decay) * n_steps), 1.0)
    return float(np.sqrt(np.sum(2.0 / dims * dependence)) / len(dims))


@dataclass
class TemperatureSums:
    """Sums over the draws so far.

    Attributes
    ----------
    temperature : float
        Sum of the kinetic temperatures.
    n : int
        Draws.
    n_steps : int
        Inner steps.
    lost_variance : float
        Sum of ξh/2, the part of the variance of the positions that Euler's method loses.
    step_size, friction, largest_thermostat : float
        Of the last draw.
    """

    temperature: float = 0.0
    n: int = 0
    n_steps: int = 0
    lost_variance: float = 0.0
    step_size: float = 0.0
    friction: float = 0.0
    largest_thermostat: float = 0.0


class TemperatureMonitor(DrawMonitor):
    """Mean kinetic temperature of a chain.

    Parameters
    ----------
    dims : ndarray, shape (n_blocks,)
        Dimension of each block of the coordinates that the dynamics run in.
    arguments : str
        Arguments of the step that set the dynamics.
    friction_name : str
        That of them which sets the friction.
    by_euler : bool
        Whether Euler's method integrates the friction, so that positions have 1 − ξh/2 times their
        variance and thermostats ξ are bounded by 1/h.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.kinetic_temperature import TemperatureMonitor
    >>> monitor = TemperatureMonitor(np.array([10]))
    >>> stats = {"temperature": 1.25, "n_steps": 10, "step_size": 0.1, "friction": 2.0,
    ...          "thermostat": 2.0, "largest_thermostat": 2.0}
    >>> for _ in range(1000):
    ...     monitor.observe(np.zeros(10), stats)
    >>> monitor.diagnosis(["x"]).finding
    'The kinetic temperature with step size 0.1 and friction 2 is 1.25 (standard error 0.01,
    expected 1): the draws are wider than the posterior.'
    """

    def __init__(
        self,
        dims: np.ndarray,
        *,
        arguments: str = "step_size, friction and gradient_noise",
        friction_name: str = "friction",
        by_euler: bool = False,
    ) -> None:
        self._dims, self._friction_name, self._by_euler = dims, friction_name, by_euler
        self._remedy = (
            f"Omit {arguments} if they are set, so that they are adapted; otherwise use "
            "{minibatches}, GMC or NUTS, or 1,000 tuning draws if there were fewer."
        )
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self.sums = TemperatureSums()

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Add the temperature of a draw; see `DrawMonitor`."""
        sums = self.sums
        sums.temperature += stats["temperature"]
        sums.n += 1
        sums.n_steps += stats["n_steps"]
        sums.step_size, sums.friction = stats["step_size"], stats["friction"]
        if self._by_euler:
            sums.lost_variance += 0.5 * sums.step_size * stats["thermostat"]
            sums.largest_thermostat = stats["largest_thermostat"]

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the mean temperature with 1; see `DrawMonitor`."""
        sums = self.sums
        mean = sums.temperature / sums.n
        decay = np.full(len(self._dims), sums.step_size * sums.friction)
        error = temperature_error(self._dims, decay, sums.n_steps)
        if abs(mean - 1.0) > SETTINGS.tolerance + SETTINGS.n_errors * error:
            return self._temperature_diagnosis(mean, error)
        lost = sums.lost_variance / sums.n
        return self._euler_diagnosis(lost) if lost > SETTINGS.tolerance else None

    def _temperature_diagnosis(self, mean: float, error: float) -> Diagnosis:
        h, friction = self.sums.step_size, self.sums.friction
        condition = f"with step size {h:.3g} and {self._friction_name} {friction:.3g}"
        consequence = f"the draws are {'wider' if mean > 1.0 else 'narrower'} than the posterior"
        if self._by_euler and h * self.sums.largest_thermostat > SETTINGS.thermostat_bound:
            condition = f"with the thermostat at its bound, 1/step_size = {1.0 / h:.3g},"
            consequence = "gradient noise exceeds what the thermostat can compensate"
        return Diagnosis(
            quantity="kinetic temperature",
            condition=condition,
            value=mean,
            error=error,
            expected=1.0,
            consequence=consequence,
            remedy=self._remedy,
            anchor="temperature",
        )

    def _euler_diagnosis(self, lost: float) -> Diagnosis:
        return Diagnosis(
            quantity="loss of variance by Euler's method",
            condition=f"with a thermostat of {2.0 * lost:.3g} per step",
            value=lost,
            expected=SETTINGS.tolerance,
            limit="at most ",
            format_spec=".0%",
            consequence="the draws are narrower than the posterior",
            remedy=f"{self._remedy} gSGNHT has no such error.",
            anchor="temperature",
        )
