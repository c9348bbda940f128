"""What all rows that a step holds say of proportions and positive numbers."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.counts.logarithms import log_of_value
from pymc_geodesic.kernels.expected_counts import CountsAt
from pymc_geodesic.kernels.positive_numbers import LOG_NORMAL, SIMPLEX, expand_values
from pymc_geodesic.steps.base.positive import PositiveStep
from pymc_geodesic.steps.pymc_parts import PointType

__all__ = ["CountsAt", "RowCounts"]


class RowCounts:
    """Counts of all rows of a step, and where they say that variables are.

    Parameters
    ----------
    step : PositiveStep
        It moves all variables, so that priors are constant.
    share : float
        The step counts each row as often as its inverse says.
    """

    def __init__(self, step: PositiveStep, share: float) -> None:
        self._step, self._share = step, share
        self._estimate = step.estimator.compile_all_rows()
        self._shape, self._rate = step.priors({})

    def values_of(self, point: PointType) -> np.ndarray:
        """Variables at a point, shape (size,): shares of a simplex, positive numbers."""
        step = self._step
        logarithms = [
            log_of_value(variable, step.model, np.asarray(point[variable.value_name])).ravel()
            for variable in step.variables
        ]
        values = np.empty(step.product.size)
        expand_values(step.blocks, np.concatenate(logarithms), values)
        return values

    def at(self, values: np.ndarray) -> CountsAt:
        """Count the rows, each of them once.

        Raises
        ------
        ValueError
            If a count is negative or not finite.
        """
        counts, exposures = np.empty(values.size), np.empty(values.size)
        failed = self._estimate(values.copy(), counts, exposures)
        if failed >= 0:
            names = [variable.name for variable in self._step.variables]
            raise ValueError(
                f"the counts of the rows of a shard are negative or not finite for one of {names}: "
                "look for NaN in the shards, or pass conducive=False"
            )
        return CountsAt(values, self._share * counts, self._share * exposures)

    def mean_given(self, found: CountsAt) -> np.ndarray:
        """Mean of the variables, the logarithm of log-normal ones, if the counts were data."""
        shape, rate = self._shape + found.counts, self._rate + found.exposures
        values = shape / rate
        for kind, start, rows, width in self._step.blocks:
            part = slice(start, start + rows * width)
            if kind == LOG_NORMAL:
                values[part] = np.exp(values[part])
            elif kind == SIMPLEX:
                table = values[part].reshape(rows, width)
                values[part] = (table / table.sum(axis=1, keepdims=True)).ravel()
        return values

    def in_deviations(self, push: CountsAt, found: CountsAt) -> np.ndarray:
        """Say how far a push takes the variables, in standard deviations given counts.

        Parameters
        ----------
        push : CountsAt
            Counts and exposures that are added at some values.
        found : CountsAt
            Counts of all rows.

        Returns
        -------
        ndarray, shape (size,)
        """
        kinds = np.repeat(
            self._step.blocks[:, 0], self._step.blocks[:, 2] * self._step.blocks[:, 3]
        )
        is_log_normal = kinds == LOG_NORMAL
        place = np.where(is_log_normal, np.log(push.values), push.values)
        precision = np.where(
            is_log_normal, self._rate + found.exposures, self._shape + found.counts
        )
        return (push.counts - push.exposures * place) / np.sqrt(precision)
