"""What step methods share that find their own coordinates, anchor and noise in tuning."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.steps.base.adapted_langevin import AdaptedLangevin, adapted_gradient
from pymc_geodesic.steps.base.adaptor import GeodesicStep, SamplerWarning
from pymc_geodesic.steps.base.dynamics import Dynamics
from pymc_geodesic.tuning.metric import LARGEST_DENSE

__all__ = ["AdaptingStep"]


class AdaptingStep(GeodesicStep):
    """A step that runs adapted dynamics where nothing was set that they choose."""

    metric: str | None
    control_variates: str | int
    _wanted_steps: int | None
    _adapted: AdaptedLangevin | None

    @property
    @abstractmethod
    def _leaves_all_to_tuning(self) -> bool:
        """Whether nothing was set that the adapted dynamics would choose."""

    @abstractmethod
    def _make_dynamics(self) -> Dynamics:
        """Make what runs in the coordinates that are found."""

    def _make_adapted(self) -> AdaptedLangevin | None:
        """Dynamics that find their own coordinates, where the model allows it."""
        estimator = self.estimator
        if not self._leaves_all_to_tuning or not isinstance(estimator, GradientEstimator):
            return None
        gradient = adapted_gradient(
            estimator, self.product, use_variates=bool(self.control_variates)
        )
        if gradient is None:
            return None
        d = gradient.n_euclidean
        return AdaptedLangevin(
            gradient,
            self.product,
            estimator.next_arguments,
            self._make_dynamics(),
            dense=self.metric == "dense" or (self.metric == "auto" and d <= LARGEST_DENSE),
            n_steps=self._wanted_steps,
        )

    @property
    def _searches_on_all_rows(self) -> bool:
        """Whether the field itself must have the log-density that the search needs."""
        return self._leaves_all_to_tuning and self._minibatches.names is None

    @property
    def adaptation(self) -> dict:
        """State of the adapted dynamics."""
        return {} if self._adapted is None else self._adapted.state

    @adaptation.setter
    def adaptation(self, state: dict) -> None:
        if self._adapted is not None and state:
            self._adapted.use_sample(self.estimator.source)
            self._adapted.state = state

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"adaptation": self.adaptation}

    def __setstate__(self, state: dict[str, Any]) -> None:
        adaptation = state.pop("adaptation")
        super().__setstate__(state)
        self.adaptation = adaptation

    def _reset_adapted(self) -> None:
        """Forget the previous chain, except what tuning chose if there is no tuning phase."""
        if self._adapted is not None:
            self._adapted.reset(self._n_tune, self._n_draws)
            if self._n_tune:
                self._adapted.use_sample(self.estimator.source)

    @property
    def _adapts(self) -> bool:
        """Whether the adapted dynamics are at work: they need a tuning phase, or one before."""
        adapted = self._adapted
        return adapted is not None and (self._n_tune > 0 or adapted.settings is not None)

    def _start_adapted(self) -> None:
        """Begin at a position that was read."""
        if self._adapts:
            assert self._adapted is not None
            gradient = self._adapted.start(self.position, self.stream)
            if not np.isfinite(gradient).all():
                raise self._fail_at_start(gradient)

    def _stationarity_warning(self) -> SamplerWarning | None:
        assert self._adapted is not None
        names = [
            name
            for name, part in self.product.slices.items()
            for _ in range(part.stop - part.start)
        ]
        complaint = self._adapted.complaint(names)
        if complaint is None:
            return None
        sampled = ", ".join(variable.name for variable in self.variables)
        return self._warn(f"{type(self).__name__}[{sampled}]: {complaint}")
