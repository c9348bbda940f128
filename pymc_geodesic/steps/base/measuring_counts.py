"""Measuring the noise of estimated counts along a chain, and the step that keeps it small."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.kernels.positive_numbers import SIMPLEX, expand_values, lift_small_values
from pymc_geodesic.steps.base.handing_on import HandingOnStep
from pymc_geodesic.steps.base.pymc_parts import (
    SamplerWarning,
)
from pymc_geodesic.tuning.count_noise import CountNoise
from pymc_geodesic.tuning.inflation import (
    allowed_inflation,
    independent_inflation,
    longest_time,
    shuffled_inflation,
)

__all__ = ["CountMeasuringStep"]

REPORTED_INFLATION = 0.1
"""Excess of the variance from which there is a warning."""

LONGEST_STEP = 5.0
"""Step after which the past is forgotten to within e⁻⁵."""


class CountMeasuringStep(HandingOnStep):
    """A step that knows by how much the noise of minibatches widens the variance."""

    estimator: CountEstimate  # type: ignore[assignment]  # counts instead of a gradient
    blocks: np.ndarray
    _depends: bool
    """Whether counts change with the point."""
    _sums_depend: np.ndarray
    """Of every number, whether the sum of the counts of its simplex row changes with the point."""
    _noise: CountNoise
    _is_log_normal: np.ndarray
    _prior_shape: np.ndarray
    _prior_rate: np.ndarray
    _values: np.ndarray
    _counts: np.ndarray
    _exposures: np.ndarray

    def _by_number(self, kind: int) -> np.ndarray:
        """Say of every number whether it belongs to a block of some kind."""
        return np.repeat(self.blocks[:, 0] == kind, self.blocks[:, 2] * self.blocks[:, 3])

    def _row_sums(self, numbers: np.ndarray) -> np.ndarray:
        """Sum over the row that a number belongs to, for every number of a simplex."""
        sums = np.zeros(numbers.size)
        for kind, start, rows, width in self.blocks:
            if kind == SIMPLEX:
                part = slice(start, start + rows * width)
                sums[part] = np.repeat(numbers[part].reshape(rows, width).sum(axis=1), width)
        return sums

    @property
    def noise_state(self) -> dict[str, Any]:
        """What tuning measured of the estimates."""
        return self._noise.state

    @noise_state.setter
    def noise_state(self, state: dict[str, Any]) -> None:
        self._noise.state = state

    @property
    def _has_noise(self) -> bool:
        return not self.estimator.source.is_everything

    def _estimate(self, values: np.ndarray, argument: int) -> int:
        """Write counts and exposures; return the index of a bad one or −1."""
        return self.estimator.estimate(values, argument, self.stream, self._counts, self._exposures)

    def _measure(self, arguments: np.ndarray) -> int:
        """Measure the noise of the estimates of two minibatches at the present position.

        Return the number of gradient evaluations.
        """
        expand_values(self.blocks, self.position, self._values)
        lift_small_values(self.blocks, self._prior_rate, self._values)
        if self._estimate(self._values, arguments[0]) >= 0:
            return 1
        counts, exposures = self._counts.copy(), self._exposures.copy()
        push = self._push(arguments[0], counts, exposures)
        spread = self._spread(counts, exposures)
        evaluations = self._evaluations
        noise = np.zeros(len(self.variables))
        if self._has_noise:
            if self._estimate(self._values, arguments[1]) >= 0:
                return 2
            other = self._push(arguments[1], self._counts.copy(), self._exposures.copy())
            evaluations *= 2
            # Estimates that are followed for parts s of a step add s² of their variance.
            one, two = (self.estimator.share(int(argument)) for argument in arguments[:2])
            weight = 2.0 * (one * two / (one + two)) ** 2
            for i, part in enumerate(self.product.slices.values()):
                deviation = np.sum((push[part] - other[part]) ** 2)
                noise[i] = weight * deviation / np.sum(spread[part])
        totals = np.where(self._sums_depend, self._row_sums(counts), 0.0)
        self._noise.observe(noise, exposures, totals)
        return evaluations

    def _spread(self, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """Variance of each number that the noise is compared with; at given ω on a simplex."""
        spread = np.where(
            self._is_log_normal, self._prior_rate + exposures, self._prior_shape + counts
        )
        share = np.where(self._by_number(SIMPLEX), self._values, 0.0)
        return np.maximum(spread * (1.0 - share), 0.0)

    def _push(self, argument: int, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """Drift that one minibatch estimates, without the prior.

        On a simplex only what moves ω, and not the sum of θ, counts.
        """
        place = np.where(self._is_log_normal, self.position, self._values)
        push = counts - exposures * place
        for kind, start, rows, width in self.blocks:
            if kind == SIMPLEX:
                part = slice(start, start + rows * width)
                totals = push[part].reshape(rows, width).sum(axis=1)
                push[part] -= (self._values[part].reshape(rows, width) * totals[:, None]).ravel()
        return push

    @property
    def _evaluations(self) -> int:
        """Gradient evaluations of one step."""
        return self.estimator.evaluations

    @property
    def _longest_step(self) -> float:
        """Bound of the step size that tuning chooses."""
        return LONGEST_STEP

    def _inflation(self, time: float) -> float:
        """Relative variance that the noise of the minibatches adds."""
        epoch = self.estimator.source.epoch
        if epoch is None:
            return self._noise.largest * independent_inflation(time)
        return self._noise.largest * shuffled_inflation(time, epoch)

    def _tune_step_size(self) -> float:
        lag = 1.0 if self._depends else 0.0
        return longest_time(
            lambda time: self._inflation(time) + lag * independent_inflation(time),
            allowed_inflation(self.draw, self._n_tune),
            self._longest_step,
        )

    def _inflation_warning(self, inflation: float, step_size: float) -> SamplerWarning | None:
        if inflation <= REPORTED_INFLATION:
            return None
        names = ", ".join(variable.name for variable in self.variables)
        return self._warn(
            f"{type(self).__name__}[{names}] ran with step size {step_size:.3g}, at which the "
            f"noise of the minibatches widens the variance by {100 * inflation:.0f} %. Use a "
            "smaller step_size or larger minibatches, or let tuning choose.",
            "temperature",
        )
