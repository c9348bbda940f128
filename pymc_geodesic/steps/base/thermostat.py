"""What step methods share whose friction is a thermostat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_geodesic.steps.base.pymc_parts import PointType, dataclass_state
from pymc_geodesic.steps.base.underdamped import LangevinState, LangevinStep

__all__ = ["ThermostatState", "ThermostatStep"]

SMALL_DIMENSION = 20.0
"""Dimension below which a thermostat needs more inertia than 1 / C².

There a single v·v strays far from its mean, and a thermostat that answers in a few steps bends the
law of the positions: by −8 % in the variance at dimension 2 and Cε = 1.
"""

LARGEST_THERMOSTAT = 5.0
"""Bound of ξ / C while tuning chooses C."""


@dataclass_state
class ThermostatState(LangevinState):
    """State of a step with thermostats.

    Attributes
    ----------
    thermostat : ndarray
        ξ of every variable, per unit of time; empty before the first draw.
    last_friction : ndarray
        C of every variable at the last draw; thermostats follow its changes.
    """

    thermostat: np.ndarray
    last_friction: np.ndarray


class ThermostatStep(LangevinStep):
    """Base of `gSGNHT` and `SSGNHT`; see there for the parameters."""

    _state_class = ThermostatState
    stats_dtypes_shapes: dict = {
        **LangevinStep.stats_dtypes_shapes,
        "thermostat": (np.float64, []),
    }
    thermostat_inertia: float | None
    _largest_while_annealing = LARGEST_THERMOSTAT

    @property
    def _counts_on_white_noise(self) -> bool:
        return True

    def _reset(self) -> None:
        super()._reset()
        self.thermostat = np.empty(0)
        self.last_friction = np.empty(0)

    def _read(self, point: PointType) -> None:
        super()._read(point)
        self.thermostat = np.empty(0)

    @property
    def _leaves_all_to_tuning(self) -> bool:
        return self.thermostat_inertia is None and super()._leaves_all_to_tuning

    def _move_adapted(self) -> dict[str, Any]:
        stats = super()._move_adapted()
        stats["thermostat"] = stats["friction"] + float(self._dynamics.thermostat.mean())
        return stats

    def _move_as_told(self) -> dict[str, Any]:
        thermostat, last_friction = self.thermostat.copy(), self.last_friction
        stats = super()._move_as_told()
        stats["thermostat"] = math.fsum(self.thermostat) / self.thermostat.size
        if stats["diverging"]:
            self.thermostat, self.last_friction = thermostat, last_friction
        return stats

    def _inertia(self, friction: np.ndarray, targets: np.ndarray) -> np.ndarray:
        if self.thermostat_inertia is None:
            return (1.0 + SMALL_DIMENSION / self.product.dims) / friction**2 * targets
        return self.thermostat_inertia * targets

    def _prepare_thermostat(self, friction: np.ndarray) -> None:
        """Start the thermostats at C, or let them follow its changes."""
        if self.thermostat.size == 0:
            self.thermostat = friction.copy()
        elif friction is not self.last_friction:
            self.thermostat *= friction / self.last_friction
        self.last_friction = friction

    def _targets(self, step_size: float, friction: np.ndarray) -> np.ndarray:
        """Kinetic temperature of every variable that its thermostat is to hold."""
        if self.tune and self._tunes_itself:
            return self._tuner.annealing(step_size, friction)
        return self._ones

    def _bound_thermostat(self, friction: np.ndarray, targets: np.ndarray) -> None:
        """Keep a start far from the posterior from winding the thermostat up for long.

        Where noise is to heat beyond 1 the thermostat is not: it stays above C.
        """
        if self.tune and self._tunes_itself:
            anneals = targets != 1.0
            most = np.where(anneals, self._largest_while_annealing, LARGEST_THERMOSTAT) * friction
            least = np.where(anneals, friction, -most)
            np.minimum(np.maximum(self.thermostat, least), most, out=self.thermostat)
