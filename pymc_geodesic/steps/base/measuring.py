"""Measuring curvature and gradient noise along a chain, for tuning."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import probe, probe_in_turn
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.steps.base.told_looks import LooksAsTold
from pymc_geodesic.tuning.cooling import is_far
from pymc_geodesic.tuning.temperature import TemperatureTuner

__all__ = ["MeasuringStep"]

FIRST_MEASUREMENTS = 10
LONGEST_PROBE = 0.1
"""Arc over which curvature is measured before there is a step size, where the density is flat."""


class MeasuringStep(LooksAsTold):
    """A step whose tuner is told the curvature and the gradient noise where the chain is."""

    _tuner: TemperatureTuner
    n_steps: int
    gradient_noise: ArrayLike | str | None
    tune_temperature: float | None
    direction: np.ndarray
    last_gradient: np.ndarray
    _noise_variance: np.ndarray

    def _measure_before_moving(self, arguments: np.ndarray) -> int:
        """Measure at the starting point, so that the first step is not a leap in the dark."""
        n_grad = 1 + 2 * FIRST_MEASUREMENTS
        field = self.estimator.field
        gradient = self._gradient_at(self.position, arguments[0])
        project(self.product.blocks, self.position, gradient)
        # over this length the density changes by a factor e, and a few kinks are likely crossed
        length = 1.0 / max(math.sqrt(gradient @ gradient), 1.0 / LONGEST_PROBE)
        self._begin_power_iteration()
        full = self.estimator.source.is_everything
        one_minibatch = full or arguments[0] == arguments[-1]
        last_gradient = np.empty(0 if one_minibatch else gradient.size)
        curvatures = np.empty(FIRST_MEASUREMENTS)
        noises = np.zeros((FIRST_MEASUREMENTS, len(self.variables)))
        probe_in_turn.call(
            field.callback,
            np.resize(arguments, FIRST_MEASUREMENTS),
            self.product.space,
            Line(self.position, self.direction, length),
            self.stream,
            last_gradient,
            curvatures,
            noises,
        )
        field.raise_error()
        self.last_gradient = last_gradient
        for i in range(FIRST_MEASUREMENTS // 2, FIRST_MEASUREMENTS):  # by then it has turned
            self._take_in(curvatures[i], noises[i], counts=False)
        if one_minibatch:
            if self.gradient_noise is None and self.n_steps == 1 and not full:
                # there is no second minibatch yet: all of the gradient may be noise
                squares = [gradient[part] @ gradient[part] for part in self.product.slices.values()]
                self._tuner.suppose_noise(np.array(squares) / self.product.dims)
            return n_grad
        return n_grad + FIRST_MEASUREMENTS + self._judge_start(arguments)

    def _judge_start(self, arguments: np.ndarray) -> int:
        """Let tuning heat little if the chain starts in the posterior.

        Return the number of gradient evaluations.
        """
        if self.tune_temperature is not None or self.local or not self.tune:
            return 0
        different = arguments[:FIRST_MEASUREMENTS]
        gradients = np.array([self._gradient_at(self.position, one) for one in different])
        if not np.isfinite(gradients).all():
            return len(different)
        for gradient in gradients:
            project(self.product.blocks, self.position, gradient)
        parts = list(self.product.slices.values())
        if not is_far(gradients, parts, self.product.dims, self._tuner.curvature):
            self._tuner.start_near()
        return len(different)

    def _begin_power_iteration(self) -> None:
        self.direction = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, self.position, self.direction, self.stream)

    def _measure(self, argument: int, length: float) -> None:
        """Measure curvature over an arc and gradient noise at the present position, for tuning."""
        if self.direction.size == 0:
            self._begin_power_iteration()
        noise = np.zeros(len(self.variables))
        field = self.estimator.field
        curvature = probe.call(
            field.callback,
            argument,
            self.product.space,
            Line(self.position, self.direction, length),
            self.last_gradient,
            noise,
            1,
        )
        field.raise_error()
        self._take_in(curvature, noise)

    def _take_in(self, curvature: float, noise: np.ndarray, counts: bool = True) -> None:
        """Hand a measurement to the tuner."""
        if not math.isfinite(curvature):
            self.direction = np.empty(0)
        has_noise = self.last_gradient.size > 0
        if self.gradient_noise is not None:
            has_noise = True
            parts = self.product.slices.values()
            noise[:] = [self._noise_variance[part].max() for part in parts]
        self._tuner.observe(curvature, noise if has_noise else None, counts)

    def _remember_gradient(self, argument: int) -> int:
        """Keep the gradient at the end of a draw, to compare with another minibatch.

        Return the number of gradient evaluations.
        """
        if self.estimator.source.is_everything:
            return 0
        self.last_gradient = self._gradient_at(self.position, argument)
        return 1
