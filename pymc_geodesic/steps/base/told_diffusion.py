"""Langevin dynamics without a momentum in the coordinates of the model, as users set them."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.arguments import (
    step_size_at,
)
from pymc_geodesic.integrators import Scratch
from pymc_geodesic.kernels import sgld
from pymc_geodesic.kernels.sgld import adagrad_metric
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.pymc_parts import (
    SamplerWarning,
)
from pymc_geodesic.steps.base.told_looks import LooksAsTold
from pymc_geodesic.tuning.diffusion import DiffusionTuner

__all__ = ["ToldDiffusion"]

FIRST_MEASUREMENTS = 20
LONGEST_PROBE = 0.1
"""Length over which curvature is measured at first, where the density is flat."""

RUNAWAY = 1e6
"""Distance in units of that of free noise, from which a draw in tuning counts as diverging.

Steps that are too long for the curvature grow without bound, but take a long time to overflow.
"""


class ToldDiffusion(LooksAsTold):
    """A step in the coordinates of the model, whose length is given or measured along the chain."""

    _tuner: DiffusionTuner
    step_size: float | Schedule | None
    n_steps: int
    squares: np.ndarray
    direction: np.ndarray
    last_gradient: np.ndarray
    last_difference: np.ndarray
    _scratch: Scratch

    @property
    def _tunes_itself(self) -> bool:
        return self.step_size is None

    @abstractmethod
    def _size_warning(self) -> SamplerWarning | None:
        """Count a draw after tuning, and complain at the last one if they are too few."""

    def _observe(self, argument: int, counts: bool = True) -> bool:
        """Measure curvature and gradient noise here, in the coordinates θ/√P.

        The square of the product of two differences of gradients tells tr S² if the differences
        are independent: no minibatch may enter both. Return whether this one entered one.
        """
        gradient = self._gradient_at(self.position, argument)
        root: np.ndarray | float = 1.0
        if self.squares.size:
            root = np.sqrt([adagrad_metric(square) for square in self.squares + gradient**2])
        if self.direction.size == 0:
            self.direction = np.empty(self.product.size)
            fill_normal(self.stream, self.direction)
        direction = self.direction / math.sqrt(self.direction @ self.direction)
        length = self.tuned_step_size
        if not length:
            # over this length the density changes by a factor e, and some kinks are likely crossed
            size = root * gradient
            length = 1.0 / max(math.sqrt(size @ size), 1.0 / LONGEST_PROBE)
        moved = self._gradient_at(self.position + length * root * direction, argument)
        change = root * (gradient - moved) / length
        curvature = float(direction @ change)
        noise = None
        paired = self.last_gradient.size > 0
        if paired:
            difference = root * (gradient - self.last_gradient)
            if self.last_difference.size:
                noise = np.array(
                    [0.5 * difference @ difference, 0.25 * (difference @ self.last_difference) ** 2]
                )
            self.last_difference = difference
            self.last_gradient = np.empty(0)
        self._tuner.observe(curvature, noise, counts)
        if math.isfinite(curvature):
            # the small part of the old direction keeps the power iteration alive between kinks
            self.direction = change + 1e-3 * max(abs(curvature), 1e-12) * direction
        else:
            self.direction, self.last_difference = np.empty(0), np.empty(0)
        return paired

    def _remember_gradient(self, argument: int) -> int:
        """Keep the gradient of a minibatch, to compare with that of the next one.

        Return the number of gradient evaluations.
        """
        if self.estimator.source.is_everything:
            return 0
        self.last_gradient = self._gradient_at(self.position, argument)
        return 1

    def _tune_step_size(self, arguments: np.ndarray) -> tuple[int, bool]:
        """Choose h for this draw.

        Return the number of gradient evaluations, and whether the noise of the first minibatch
        was measured.
        """
        n_grad = 2
        if not self._tuner.has_measured:
            for i in range(FIRST_MEASUREMENTS):
                paired = self._observe(arguments[i % arguments.size], counts=False)
                if not paired and i + 1 < arguments.size:
                    n_grad += self._remember_gradient(arguments[i])
            self.last_difference = np.empty(0)
            n_grad += 2 * FIRST_MEASUREMENTS
            if not self.estimator.source.is_everything:
                # with few inner steps there is no noise to go by yet: all of it may be noise
                gradient = self._gradient_at(self.position, arguments[0])
                square = float(gradient @ gradient)
                self._tuner.suppose_noise(np.array([square, square**2]))
                n_grad += 1
        paired = self._observe(arguments[0])
        self.tuned_step_size = self._tuner.step_size()
        return n_grad, paired

    def _move_as_told(self) -> dict[str, Any]:
        arguments, n_grad = self.estimator.prepare(
            self.position, self.n_steps, self.stream, tune=self.tune
        )
        n_grad += self.n_steps + self._look(int(arguments[0]))
        tuning = self._tunes_itself and (self.tune or not self._tuner.has_measured)
        paired = False
        if tuning:
            more, paired = self._tune_step_size(arguments)
            n_grad += more
        if callable(self.step_size):
            step_size = step_size_at(self.step_size, self.draw)
        else:
            step_size = self.tuned_step_size if self.step_size is None else self.step_size
        before = self.position.copy(), self.squares.copy()
        field = self.estimator.field
        sgld.call(
            field.callback,
            arguments,
            self.position,
            step_size,
            self.squares,
            self.stream,
            self._scratch,
        )
        diverging = not all_finite(self.position)
        if self.tune and not diverging:
            moved = float(np.abs(self.position - before[0]).max())
            diverging = moved > RUNAWAY * step_size * math.sqrt(self.n_steps)
        if diverging:
            field.raise_error()
            if self.draw == 0:
                self._check_gradients(before[0], arguments)
            if not self.tune:
                raise self._fail(step_size, self._failing_names(self.position))
            self._tuner.shrink()
            self.position, self.squares = before
            self.last_gradient = np.empty(0)
        elif tuning and not (paired and arguments.size == 1):
            n_grad += self._remember_gradient(arguments[-1])
        return {
            "step_size": step_size,
            "diverging": diverging,
            "n_grad": n_grad,
            **self._stats_as_told(),
            "warning": None if self.tune else self._size_warning(),
        }
