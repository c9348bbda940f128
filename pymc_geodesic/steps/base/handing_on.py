"""What a tuning phase chose, for chains that have none."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

from pymc_geodesic.steps.base.adaptor import GeodesicStep
from pymc_geodesic.tuning.cooling import CoolingTuner

__all__ = ["HandingOnStep", "TunerStep"]


class HandingOnStep(GeodesicStep):
    """A step that goes on with what it tuned last where a chain has no tuning phase."""

    _tuned_attributes: tuple[str, ...]
    """Names of what is handed on."""
    _handed_on: dict[str, Any] | None = None

    @property
    @abstractmethod
    def _has_tuned(self) -> bool:
        """Whether the tuning phase that ends has chosen anything."""

    def stop_tuning(self) -> None:
        """End the tuning phase, and keep what it chose for chains that have none."""
        super().stop_tuning()
        if self._n_tune and self._has_tuned:
            self._handed_on = {
                name: copy.deepcopy(getattr(self, name)) for name in self._tuned_attributes
            }

    def _take_over(self) -> None:
        """Begin a chain without a tuning phase with what was kept."""
        if self._n_tune == 0 and self._handed_on is not None:
            for name, value in self._handed_on.items():
                setattr(self, name, copy.deepcopy(value))


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
