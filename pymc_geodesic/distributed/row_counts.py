"""Counts of all rows of a shard, and the conjugate posterior that they imply."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.kernels.counts import LOG_NORMAL, SIMPLEX, CountsAt
from pymc_geodesic.steps.pymc_parts import PointType
from pymc_geodesic.steps.scir import SCIR

__all__ = ["CountsAt", "RowCounts"]


class RowCounts:
    """Counts of all rows of a step, and means and standard deviations given counts.

    Parameters
    ----------
    step : SCIR
        It moves all variables, so that priors are constant.
    share : float
        The step counts each row as often as its inverse says.
    """

    def __init__(self, step: SCIR, share: float) -> None:
        self._step, self._share = step, share
        self._estimate = step.estimator.compile_all_rows()
        self._shape, self._rate = step.sampler.priors({})
        self._layout = step.sampler.layout

    def values_of(self, point: PointType) -> np.ndarray:
        """Variables at a point, shape (size,): shares of a simplex, positive numbers."""
        return self._layout.values(self._step.packing.pack(point))

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
        for kind, start, rows, width in self._layout.table:
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
        is_log_normal = self._layout.is_log_normal
        place = np.where(is_log_normal, np.log(push.values), push.values)
        precision = np.where(
            is_log_normal, self._rate + found.exposures, self._shape + found.counts
        )
        return (push.counts - push.exposures * place) / np.sqrt(precision)
