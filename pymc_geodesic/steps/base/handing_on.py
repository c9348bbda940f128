"""Settings that a tuning phase chose, for later chains that are sampled with ``tune=0``."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.failure_modes import see
from pymc_geodesic.steps.base.adaptor import GeodesicStep
from pymc_geodesic.steps.base.pymc_parts import (
    PointType,
    RandomGenerator,
    SamplerWarning,
    SamplingError,
    StatsType,
)
from pymc_geodesic.tuning.cooling import CoolingTuner

__all__ = ["HandingOnStep", "TunerStep"]


class HandingOnStep(GeodesicStep):
    """A step that uses the settings of its last tuning phase in chains without one."""

    _tuned_attributes: tuple[str, ...]
    """Names of the attributes that hold these settings."""
    _handed_on: dict[str, Any] | None = None

    @property
    @abstractmethod
    def _has_tuned(self) -> bool:
        """Whether the tuning phase that ends has chosen anything."""

    @property
    @abstractmethod
    def _tunes_itself(self) -> bool:
        """Whether the user has left a setting to tuning."""

    @property
    def _adapts(self) -> bool:
        """Whether the adapted dynamics are used in this chain."""
        return False

    def stop_tuning(self) -> None:
        """End the tuning phase, and keep what it chose for chains that have none."""
        super().stop_tuning()
        if self._n_tune and self._has_tuned:
            self._handed_on = {
                name: copy.deepcopy(getattr(self, name)) for name in self._tuned_attributes
            }

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare for one chain; without a tuning phase, with the settings of the last one."""
        super().setup_chain(rng, tune, draws)
        if tune == 0 and self._handed_on is not None:
            for name, value in self._handed_on.items():
                setattr(self, name, copy.deepcopy(value))

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Draw once; at the first draw of a chain without a tuning phase check its start."""
        if self.draw or self._n_tune or not self._tunes_itself:
            return super().step(point)
        is_tuned = self._adapts or self._handed_on is not None
        if is_tuned:
            self._check_burn_in(point)
        point, stats = super().step(point)
        if not is_tuned and stats[0]["warning"] is None:
            stats[0]["warning"] = self._untuned_warning()
        return point, stats

    def _check_burn_in(self, point: PointType) -> None:
        """Reject the model's initial point as the start of a chain that has no burn-in.

        Raises
        ------
        SamplingError
            If a variable starts at its initial value in the model.
        """
        initial = self.model.initial_point()
        names = [
            variable.name
            for variable in self.variables
            if np.allclose(point[variable.value_name], initial[variable.value_name])
        ]
        if names:
            values = ", ".join(f'"{name}": posterior["{name}"].values[c, -1]' for name in names)
            message = (
                f"tune=0 continues with the settings that {type(self).__name__} tuned before, but "
                f"{', '.join(map(repr, names))} would start at the initial point of the model "
                "without burn-in, and the first draws would enter the result. Pass the last draws "
                f"of the tuned chains as starting points, initvals=[{{{values}}} for c in "
                "range(chains)], or sample with tune > 0."
            )
            raise SamplingError(see(message, "tune-0"))

    def _untuned_warning(self) -> SamplerWarning:
        return self._warn(
            f"{type(self).__name__}[{', '.join(variable.name for variable in self.variables)}] "
            "was sampled with tune=0 and has not been tuned in this process: its settings come "
            "from a few gradients at the starting point, and there is no burn-in. Sample with "
            "tune > 0. Settings tuned with cores > 1 stay in the processes of the chains; to use "
            "them again with tune=0, tune with cores=1.",
            "tune-0",
        )


class TunerStep(HandingOnStep):
    """A step whose step size is chosen by a tuner where nothing is adapted."""

    _tuner: CoolingTuner
    _tuned_attributes: tuple[str, ...] = ("tuned_step_size", "tuner_state")
    tuned_step_size: float

    @property
    def tuner_state(self) -> dict:
        """What tuning measured."""
        return self._tuner.state

    @tuner_state.setter
    def tuner_state(self, state: dict) -> None:
        self._tuner.state = state

    @property
    def _has_tuned(self) -> bool:
        return self._tuner.has_measured
