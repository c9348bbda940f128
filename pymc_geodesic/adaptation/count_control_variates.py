"""Control variates of count estimates: n(ω*) + n̂(ω) − n̂(ω*)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pymc_geodesic.counts.estimate import CountEstimate, DescribeNegative, LikelihoodError
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.kernels.expected_counts import CountsAt

CENTERINGS = (0.25, 0.5, 0.75, 1.0)
"""Fractions of the warm-up after which the control variates are centered at the mean since."""


class CountControlVariates:
    """Centering point of the control variates, and the counts of all rows there.

    The centering point ω* is the mean of the draws of a quarter of the warm-up, and at first the
    position where the chain starts.

    Parameters
    ----------
    estimate : CountEstimate
    layout : CountLayout
    describe_negative : callable
        Index, count and exposure → message of the error.

    Attributes
    ----------
    center : CountsAt
        ω*, and counts and exposures of all rows there; empty before the first draw.

    Raises
    ------
    ValueError
        If the counts of all rows are not available.
    """

    def __init__(
        self, estimate: CountEstimate, layout: CountLayout, describe_negative: DescribeNegative
    ) -> None:
        self._estimate, self._layout = estimate, layout
        self._describe_negative = describe_negative
        self._estimate_all_rows = estimate.compile_all_rows()
        self._fixed: CountsAt | None = None
        self.initialize(0, keep=False)

    def initialize(self, n_tune: int, *, keep: bool) -> None:
        """Begin a chain.

        Parameters
        ----------
        n_tune : int
            Draws of the warm-up.
        keep : bool
            Whether the centering point of the last chain is used.
        """
        self._times = [math.ceil(part * n_tune) - 1 for part in CENTERINGS]
        if self._fixed is not None:
            self.center = self._fixed
        elif not keep:
            self.center = CountsAt(np.empty(0), np.empty(0), np.empty(0))
        self._sum, self._n = np.zeros(self._layout.size), 0

    def fix_center(self, center: CountsAt) -> None:
        """Use this centering point, and these counts of all rows, in all chains to come.

        Parameters
        ----------
        center : CountsAt
            ω*, and counts and exposures there of all rows, also of those on other machines.
        """
        self._fixed = center

    @property
    def is_centered(self) -> bool:
        """Whether there is a centering point."""
        return self.center.values.size > 0

    def update(self, draw: int, log_state: np.ndarray) -> bool:
        """Observe the position before a draw, and move the centering point at some draws.

        Returns
        -------
        bool
            Whether it was moved, which takes one estimate of all rows.

        Raises
        ------
        LikelihoodError
            If a count of all rows is negative at the centering point.
        """
        if self._fixed is not None:
            return False
        self._sum += self._layout.values(log_state)
        self._n += 1
        if self.is_centered and draw not in self._times:
            return False
        values = self._sum / self._n
        self._sum, self._n = np.zeros(self._layout.size), 0
        self.center = self.count_all_rows(values)
        return True

    def count_all_rows(self, values: np.ndarray) -> CountsAt:
        """Estimate counts and exposures from all rows.

        Parameters
        ----------
        values : ndarray, shape (size,)
            ω.

        Raises
        ------
        LikelihoodError
            If one of them is negative.
        """
        counts, exposures = np.empty(values.size), np.empty(values.size)
        failed = self._estimate_all_rows(values, counts, exposures)
        if failed >= 0:
            message = self._describe_negative(failed, counts[failed], exposures[failed])
            raise LikelihoodError(message)
        return CountsAt(values, counts, exposures)

    def correct(
        self, minibatch: int, counts: np.ndarray, exposures: np.ndarray, stream: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Add what the minibatch misses at the centering point to its estimates.

        Parameters
        ----------
        minibatch : int
        counts, exposures : ndarray, shape (size,)
            Estimates of the minibatch.
        stream : ndarray of uint64, shape (2,)
            Random stream.

        Returns
        -------
        counts, exposures : ndarray, shape (size,)
            n(ω*) + n̂(ω) − n̂(ω*), and the same of the exposures.
        """
        if not self.is_centered:
            return counts, exposures
        values, all_counts, all_exposures = self.center
        there, exposed = np.empty(values.size), np.empty(values.size)
        if self._estimate.estimate(values, minibatch, stream, there, exposed) >= 0:
            return counts, exposures
        return counts + all_counts - there, exposures + all_exposures - exposed

    @property
    def state(self) -> dict[str, Any]:
        """Centering point, and the sum of the draws since it was moved."""
        return {
            **{name: array.copy() for name, array in self.center._asdict().items()},
            "is_fixed": self._fixed is not None,
            "times": list(self._times),
            "sum": self._sum.copy(),
            "n": self._n,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.center = CountsAt(*(state[name].copy() for name in CountsAt._fields))
        self._fixed = self.center if state["is_fixed"] else None
        self._times = list(state["times"])
        self._sum, self._n = state["sum"].copy(), state["n"]
