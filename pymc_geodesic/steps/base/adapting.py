"""What step methods share that find their own coordinates, anchor and noise in tuning."""

from __future__ import annotations

import logging
from abc import abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.arguments import checked_control_variates, checked_metric_or_covariance
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.steps.base.adaptable import NotAdapted, adapted_gradient
from pymc_geodesic.steps.base.adapted_langevin import AdaptedLangevin
from pymc_geodesic.steps.base.adapted_trajectories import flat_names
from pymc_geodesic.steps.base.adaptor import GeodesicStep
from pymc_geodesic.steps.base.dynamics import Dynamics
from pymc_geodesic.steps.base.options import AdaptationOptions
from pymc_geodesic.steps.base.pymc_parts import SamplerWarning
from pymc_geodesic.tuning.factor_rule import factor_rule

__all__ = ["AdaptingStep"]

_log = logging.getLogger("pymc")


class AdaptingStep(GeodesicStep):
    """A step that runs adapted dynamics where nothing was set that they choose."""

    metric: str | np.ndarray | None
    control_variates: str | int
    n_steps: int
    _wanted_steps: int | None
    _finds_metric: bool
    _adapted: AdaptedLangevin | None
    _obstacle: NotAdapted | None = None

    def _build(self) -> None:
        super()._build()
        options: AdaptationOptions = self.options
        self.metric = checked_metric_or_covariance(options.metric)
        self._finds_metric = isinstance(self.metric, str) and self.metric == "auto"
        self.control_variates = checked_control_variates(options.control_variates)
        self._wanted_steps = options.wanted_steps
        self.n_steps = options.told_steps

    @property
    @abstractmethod
    def _leaves_all_to_tuning(self) -> bool:
        """Whether nothing was set that the adapted dynamics would choose."""

    @abstractmethod
    def _make_dynamics(self) -> Dynamics:
        """Make what runs in the coordinates that are found."""

    def _make_adapted(self) -> AdaptedLangevin | None:
        """Dynamics that find their own coordinates, where the model allows it.

        Raises
        ------
        ValueError
            If a covariance was given, and nothing would look at it.
        """
        adapted = self._adapted_dynamics()
        if adapted is None and isinstance(self.metric, np.ndarray):
            raise ValueError(
                "metric= is a covariance, which only adapted dynamics use, and this step does not "
                "adapt: leave out step_size, friction and other dynamics, local= and "
                'splitting="paper"; simplices, and rows from disk in few or sparse minibatches, '
                "never adapt"
            )
        return adapted

    def _adapted_dynamics(self) -> AdaptedLangevin | None:
        self._obstacle = None
        if self.metric is None or not self._leaves_all_to_tuning:
            return None
        gradient = adapted_gradient(
            self.estimator, self.product, control_variates=self.control_variates
        )
        if isinstance(gradient, NotAdapted):
            self._obstacle = gradient
            self._report_obstacle(gradient)
            return None
        return AdaptedLangevin(
            gradient,
            self.product,
            self.estimator.next_arguments,
            self._make_dynamics(),
            order=self.control_variates,
            rule=factor_rule(self.metric, flat_names(self.product), angles_of(self.variables)),
            n_steps=self._wanted_steps,
        )

    def _report_obstacle(self, obstacle: NotAdapted) -> None:
        """Warn where another batch_size is the remedy, and inform otherwise."""
        sampled = ", ".join(variable.name for variable in self.variables)
        message = f"{type(self).__name__}[{sampled}] {self.adaptation}"
        if obstacle.largest_batch is not None:
            _log.warning(see(message, "no-adaptation"))
        else:
            _log.info(message)

    @property
    def adaptation(self) -> str:
        """What this step adapts, or why it does not and what to do."""
        if self._obstacle is not None:
            remedy = f" {self._obstacle.remedy}." if self._obstacle.remedy else ""
            return (
                "adapts a step size in the coordinates of the model, without a metric and without "
                f"control variates: {self._obstacle.reason}.{remedy}"
            )
        if self._adapted is None:
            return (
                "adapts neither metric nor control variates: step_size or other settings that they "
                "depend on are fixed."
            )
        parts = [f"metric={self.metric!r}" if isinstance(self.metric, str) else "the given metric"]
        gradient = self._adapted.gradient
        if gradient.variates is not None:
            parts.append(f"control_variates={self.control_variates!r}")
        parts.append("step size, friction and n_steps" if gradient.has_noise else "step size")
        return f"adapts {', '.join(parts)}."

    @property
    def _larger_minibatches(self) -> str:
        """Remedy for much gradient noise; larger minibatches would keep adaptation off."""
        if self._obstacle is not None and self._obstacle.largest_batch is not None:
            return f"batch_size <= {self._obstacle.largest_batch}, with which the step adapts"
        return "larger minibatches"

    def use_covariance(self, covariance: np.ndarray) -> None:
        """Take the coordinates of a covariance where the metric is left to tuning.

        Parameters
        ----------
        covariance : ndarray, shape (d, d)
            Of the Euclidean coordinates; see ``metric=``.
        """
        if self._adapted is not None and self._finds_metric:
            self.metric = covariance
            self._adapted.use_rule(factor_rule(covariance, flat_names(self.product)))

    def meet_rows(self, known: dict[bytes, np.ndarray]) -> None:
        """Go on with a state that another step left, which has other rows of the same data.

        Parameters
        ----------
        known : dict
            See `AdaptedGradient.meet_rows`.
        """
        if self._adapted is not None:
            self._adapted.gradient.meet_rows(known)

    @property
    def _searches_on_all_rows(self) -> bool:
        """Whether the field itself must have the log-density that the search needs."""
        return self._leaves_all_to_tuning and self.options.minibatch is None

    @property
    def adapted_state(self) -> dict:
        """State of the adapted dynamics."""
        return {} if self._adapted is None else self._adapted.state

    @adapted_state.setter
    def adapted_state(self, state: dict) -> None:
        if self._adapted is not None and state:
            self._adapted.use_sample(self.estimator)
            self._adapted.state = state

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"adapted_state": self.adapted_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        adapted_state = state.pop("adapted_state")
        super().__setstate__(state)
        self.adapted_state = adapted_state

    def _reset_adapted(self) -> None:
        """Forget the previous chain, except what tuning chose if there is no tuning phase."""
        if self._adapted is not None:
            self._adapted.reset(self._n_tune, self._n_draws)
            if self._n_tune:
                self._adapted.use_sample(self.estimator)

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
        names = [name for variable in self.variables for name in variable.number_names]
        complaint = self._adapted.complaint(names)
        if complaint is None:
            return None
        sampled = ", ".join(variable.name for variable in self.variables)
        return self._warn(f"{type(self).__name__}[{sampled}]: {complaint}", "stationarity")
