"""Langevin dynamics with a momentum in the coordinates of the model, as users set them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.arguments import step_size_at
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.measuring import MeasuringStep
from pymc_geodesic.steps.base.pymc_parts import (
    SamplerWarning,
)

__all__ = ["ToldLangevin"]

RUNAWAY = 1e9
"""Kinetic temperature in tuning from which a draw counts as diverging.

Steps that are too long for the curvature grow without bound, but where the density has tails like a
normal law they take a long time to overflow, and what is finite so far away is no good state.
"""


class ToldLangevin(MeasuringStep):
    """A step in the coordinates of the model, with what is not given measured along the chain."""

    step_size: float | Schedule | None
    learning_rate: float | None
    friction: float | None
    momentum_decay: float | None
    velocity: np.ndarray
    tuned_friction: np.ndarray
    _ones: np.ndarray
    _noise_field: CompiledField | None

    @property
    def _tunes_itself(self) -> bool:
        step_is_set = self.step_size is not None or self.learning_rate is not None
        friction_is_set = self.friction is not None or self.momentum_decay is not None
        return not (step_is_set and friction_is_set)

    def _step_and_friction(self) -> tuple[float, np.ndarray]:
        if callable(self.step_size):
            step_size = step_size_at(self.step_size, self.draw)
        elif self.step_size is not None:
            step_size = self.step_size
        elif self.learning_rate is not None:
            step_size = math.sqrt(self.learning_rate / self.estimator.total_size)
        else:
            step_size = self.tuned_step_size
        if self.friction is not None:
            friction = self.friction * self._ones
        elif self.momentum_decay is not None:
            friction = self.momentum_decay / step_size * self._ones
        elif self.tune or not self.tuned_friction[0]:
            friction = self._tuner.friction(step_size)
            self.tuned_friction = friction
        else:
            friction = self.tuned_friction
        return step_size, friction

    @abstractmethod
    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        """Run the kernel; return temperature and clips."""

    @abstractmethod
    def _warning_of(
        self, temperature: float, step_size: float, friction: np.ndarray
    ) -> SamplerWarning | None:
        """Take in a draw after tuning; return the warning that the last one deserves."""

    def _move_as_told(self) -> dict[str, Any]:
        arguments, n_grad = self.estimator.prepare(
            self.position, self.n_steps, self.stream, tune=self.tune
        )
        n_grad += self.n_steps + self._look(int(arguments[0]))
        if self._noise_field is not None:
            evaluate(
                self._noise_field.address,
                self.position,
                arguments[0],
                self._noise_field.context,
                self._noise_variance,
            )
        tuning = self._tunes_itself and (self.tune or not self._tuner.has_measured)
        if tuning:
            if not self._tuner.has_measured:
                n_grad += self._measure_before_moving(arguments)
                self.tuned_step_size = self._tuner.step_size()
            self._measure(arguments[0], self.tuned_step_size)
            self.tuned_step_size = self._tuner.step_size()
            n_grad += 2
        step_size, friction = self._step_and_friction()
        if self.tune or self.draw == 0:
            position, velocity = self.position.copy(), self.velocity.copy()
        temperature, clips = self._run(arguments, step_size, friction)
        diverging = not (math.isfinite(temperature) and all_finite(self.position))
        diverging = diverging or (self.tune and abs(temperature) > RUNAWAY)
        if diverging:
            self.estimator.field.raise_error()
            if self.draw == 0:
                self._check_gradients(position, arguments)
            if not self.tune:
                raise self._fail(step_size, self._failing_names(self.velocity + self.position))
            self._tuner.shrink()
            self.position[:], self.velocity[:] = position, velocity
            refresh_velocity(self.product.blocks, self.position, self.velocity, self.stream)
            self.last_gradient = np.empty(0)
            temperature = np.nan
        elif tuning:
            n_grad += self._remember_gradient(arguments[-1])
        return {
            **self._stats_as_told(),
            "step_size": step_size,
            "temperature": temperature,
            "friction": math.fsum(friction) / friction.size,
            "noise_clips": clips,
            "diverging": diverging,
            "n_grad": n_grad,
            "warning": self._warning_of(temperature, step_size, friction),
            **self.estimator.stats(),
        }
