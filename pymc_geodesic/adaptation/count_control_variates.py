"""Control variates of count estimates, n(ω*) + n̂(ω) − n̂(ω*), and the estimated drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.counts.count_estimator import CountEstimator, DescribeNegative, LikelihoodError
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.kernels.counts import CountsAt


@dataclass(frozen=True)
class CountControlVariateSettings:
    """Constants of the control variates.

    Attributes
    ----------
    updates : tuple of float
        Fractions of the warm-up at which the centering point is set to the mean of the positions
        since the previous update.
    """

    updates: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)


SETTINGS = CountControlVariateSettings()


class CountControlVariates:
    """Centering point of the control variates, and the counts of all rows there.

    The centering point ω* is initially the starting position. At the end of each quarter of the
    warm-up it is set to the mean of the positions of that quarter.

    Parameters
    ----------
    estimator : CountEstimator
    layout : CountLayout
    describe_negative : callable
        Function of the index, count and exposure of a negative count that returns an error message.

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
        self, estimator: CountEstimator, layout: CountLayout, describe_negative: DescribeNegative
    ) -> None:
        self._estimator, self._layout = estimator, layout
        self._describe_negative = describe_negative
        self._estimate_all_rows = estimator.compile_all_rows()
        self._fixed: CountsAt | None = None
        self.initialize(0, keep=False)

    def initialize(self, n_tune: int, *, keep: bool) -> None:
        """Begin a chain.

        Parameters
        ----------
        n_tune : int
            Number of warm-up draws.
        keep : bool
            Whether to keep the centering point of the previous chain.
        """
        self._times = [math.ceil(fraction * n_tune) - 1 for fraction in SETTINGS.updates]
        if self._fixed is not None:
            self.center = self._fixed
        elif not keep:
            self.center = CountsAt(np.empty(0), np.empty(0), np.empty(0))
        self._sum, self._n = np.zeros(self._layout.size), 0

    def fix_center(self, center: CountsAt) -> None:
        """Use a given centering point and counts in all chains from now on.

        Parameters
        ----------
        center : CountsAt
            ω*, with the counts and exposures of all rows, including rows on other machines.
        """
        self._fixed = center

    @property
    def is_centered(self) -> bool:
        """Whether there is a centering point."""
        return self.center.values.size > 0

    def update(self, draw: int, log_state: np.ndarray) -> bool:
        """Add the position before a draw to the mean, and update the centering point if due.

        Parameters
        ----------
        draw : int
            Index of the draw, including the warm-up.
        log_state : ndarray, shape (size,)
            log θ.

        Returns
        -------
        bool
            Whether the centering point was updated, which takes one estimate from all rows.

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
        """Compute counts and exposures of all rows.

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
        """Apply the control variates to the estimates from one minibatch.

        Parameters
        ----------
        minibatch : int
        counts, exposures : ndarray, shape (size,)
            n̂(ω) and ĉ(ω).
        stream : ndarray of uint64, shape (2,)
            Random stream.

        Returns
        -------
        counts, exposures : ndarray, shape (size,)
            n(ω*) + n̂(ω) − n̂(ω*), and likewise for the exposures.
        """
        if not self.is_centered:
            return counts, exposures
        values, all_counts, all_exposures = self.center
        at_center, exposed = np.empty(values.size), np.empty(values.size)
        if self._estimator.estimate(values, minibatch, stream, at_center, exposed) >= 0:
            return counts, exposures
        return counts + all_counts - at_center, exposures + all_exposures - exposed

    @property
    def state(self) -> dict[str, Any]:
        """Centering point, and the sum of the positions since it was set."""
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


class CountDrift:
    r"""Drift of the process due to the likelihood, estimated from one minibatch.

    It is n̂ − ĉθ for a Gamma variable, Â − B̂ log θ for a LogNormal variable and n̂ − ω Σn̂ for a
    Dirichlet variable: the part of the drift that changes ω, and not only Σθ.

    Parameters
    ----------
    estimator : CountEstimator
    layout : CountLayout
    control_variates : CountControlVariates, optional
    allows_negative : bool
        Whether the dynamics accept negative counts.

    Attributes
    ----------
    estimator, layout, control_variates
        As above.
    counts, exposures : ndarray, shape (size,)
        Estimates of the last call, without control variates.
    """

    def __init__(
        self,
        estimator: CountEstimator,
        layout: CountLayout,
        control_variates: CountControlVariates | None = None,
        *,
        allows_negative: bool,
    ) -> None:
        self.estimator, self.layout, self.control_variates = estimator, layout, control_variates
        self._allows_negative = allows_negative
        self.counts, self.exposures = np.zeros(layout.size), np.zeros(layout.size)

    @property
    def n_grad(self) -> int:
        """Gradient evaluations of one estimate of the drift, and of one inner step."""
        return self.estimator.evaluations * (1 if self.control_variates is None else 2)

    def __call__(
        self, values: np.ndarray, log_state: np.ndarray, minibatch: int, stream: np.ndarray
    ) -> np.ndarray | None:
        """Estimate the drift.

        Parameters
        ----------
        values : ndarray, shape (size,)
            ω for Dirichlet variables, θ for others.
        log_state : ndarray, shape (size,)
            log θ.
        minibatch : int
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced if the estimate is random.

        Returns
        -------
        ndarray, shape (size,), or None
            None if the counts are not finite, or are negative and the dynamics do not allow it.
        """
        failed = self.estimator.estimate(values, minibatch, stream, self.counts, self.exposures)
        if self._allows_negative:
            is_valid = bool(np.isfinite(self.counts).all() and np.isfinite(self.exposures).all())
        else:
            is_valid = failed < 0
        if not is_valid:
            return None
        counts, exposures = self.counts, self.exposures
        if self.control_variates is not None:
            counts, exposures = self.control_variates.correct(minibatch, counts, exposures, stream)
        layout = self.layout
        drift = counts - exposures * np.where(layout.is_log_normal, log_state, values)
        return drift - np.where(layout.is_simplex, values * layout.row_sums(drift), 0.0)
