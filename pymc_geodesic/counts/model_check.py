"""Checks of a likelihood by its counts at random points, before and while a chain runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.counts.gradient_counts import count_blocks
from pymc_geodesic.counts.refusals import negative_estimate, wrong_form
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.kernels.positive_numbers import LOG_NORMAL, SIMPLEX, expand_values
from pymc_geodesic.runtime.streams import new_stream

__all__ = ["CountProbe", "Dependence"]

TRIALS = 3

ROUNDING, ROUNDING_IN_CHAINS = 1e-6, 1e-4
"""Relative deviation from the form of a prior that rounding may explain."""


def _changes(trials: np.ndarray) -> bool:
    """Return whether any number differs from that of the first trial, beyond rounding."""
    with np.errstate(invalid="ignore"):
        return not np.allclose(trials[1:], trials[:1], rtol=1e-6, atol=1e-9)


class Dependence(NamedTuple):
    """Which estimates change with the point.

    Parameters
    ----------
    counts : bool
        Whether any count or exposure does.
    sums : ndarray of bool, shape (n_variables,)
        Whether the sum of the counts of any simplex row of a variable does.
    """

    counts: bool
    sums: np.ndarray


class CountProbe:
    """Estimates of single minibatches at random points, for checks of the likelihood.

    Parameters
    ----------
    sampler : str
        Name of the step method, for errors.
    variables : list of ManifoldVariable
    estimator : CountEstimate
        One that is deterministic, but for `describe_negative`.
    """

    def __init__(
        self,
        sampler: str,
        variables: Sequence[ManifoldVariable],
        estimator: CountEstimate,
    ) -> None:
        self._sampler = sampler
        self._variables = variables
        self._estimator = estimator
        self._blocks = count_blocks(variables)
        self._splits = self._blocks[:, 0] != SIMPLEX

    def describe_negative(self, index: int, count: float, exposure: float) -> str:
        """Describe a negative estimate, and what to do.

        Parameters
        ----------
        index : int
            Coordinate among those of all variables.
        count, exposure : float
        """
        ends = self._blocks[:, 1] + self._blocks[:, 2] * self._blocks[:, 3]
        block = int(np.searchsorted(ends, index, side="right"))
        return negative_estimate(
            self._sampler,
            self._variables[block].name,
            index - int(self._blocks[block, 1]),
            count,
            exposure,
            log_normal=bool(self._blocks[block, 0] == LOG_NORMAL),
        )

    def dependence(self, minibatch: int, *, needs_counts: bool) -> Dependence:
        """Return which estimates change with the point.

        Parameters
        ----------
        minibatch : int
        needs_counts : bool
            Whether estimates must not be negative, and the likelihood be of the prior's form.

        Raises
        ------
        ValueError
            If they must not and are.
        """
        blocks = self._blocks
        size = int(np.sum(blocks[:, 2] * blocks[:, 3]))
        values = np.empty(size)
        rng = np.random.default_rng(1)
        found = []
        for trial in range(TRIALS):
            log_state = np.log(rng.gamma(1.0 if trial else 0.3, size=size) + 1e-12)
            expand_values(blocks, log_state, values)
            failed, counts, exposures = self._estimate(values, minibatch)
            if needs_counts and failed >= 0 and math.isfinite(counts[failed]):
                raise ValueError(self.describe_negative(failed, counts[failed], exposures[failed]))
            if needs_counts and failed < 0:
                self._check_form(values, minibatch, counts, exposures, ROUNDING)
            found.append((counts, exposures))
        counts, exposures = (np.array(each) for each in zip(*found, strict=True))
        sums = np.zeros(len(blocks), dtype=bool)
        for variable, (kind, start, rows, width) in enumerate(blocks):
            if kind == SIMPLEX:
                own = counts[:, start : start + rows * width]
                sums[variable] = _changes(own.reshape(TRIALS, rows, width).sum(axis=-1))
        return Dependence(_changes(counts) or _changes(exposures), sums)

    def _estimate(self, values: np.ndarray, minibatch: int) -> tuple[int, np.ndarray, np.ndarray]:
        counts, exposures = np.empty_like(values), np.empty_like(values)
        stream = new_stream(np.random.default_rng(1))
        failed = self._estimator.estimate(values, minibatch, stream, counts, exposures)
        return failed, counts, exposures

    def check_form(self, values: np.ndarray, minibatch: int) -> int:
        """Check the form of the likelihood where a chain is; return the number of estimates.

        Parameters
        ----------
        values : ndarray, shape (size,)
        minibatch : int

        Raises
        ------
        ValueError
            If the likelihood of a positive variable has another form than its prior.
        """
        if not np.any(self._splits):
            return 0
        failed, counts, exposures = self._estimate(values, minibatch)
        if failed < 0:
            self._check_form(values, minibatch, counts, exposures, ROUNDING_IN_CHAINS)
        return 1 + int(np.sum(self._splits))

    def _check_form(
        self,
        values: np.ndarray,
        minibatch: int,
        counts: np.ndarray,
        exposures: np.ndarray,
        rounding: float,
    ) -> None:
        """Check that the likelihood of each positive variable has the form of its prior."""
        for variable, block in zip(self._variables, self._blocks, strict=True):
            kind, start, rows, width = block
            if kind == SIMPLEX:
                continue
            part = slice(start, start + rows * width)
            scaled = values.copy()
            scaled[part] *= 3.0
            failed, new_counts, new_exposures = self._estimate(scaled, minibatch)
            unit = 1.0 if kind == LOG_NORMAL else scaled[part]
            size = 1.0 + np.abs(counts[part]) + np.abs(exposures[part]) * unit
            deviation = np.abs(new_counts[part] - counts[part])
            deviation += np.abs(new_exposures[part] - exposures[part]) * unit
            if failed >= 0 or np.any(deviation > rounding * size):
                raise ValueError(
                    wrong_form(self._sampler, variable.name, log_normal=kind == LOG_NORMAL)
                )
