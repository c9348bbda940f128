"""Interface of count estimators of Dirichlet, Gamma and LogNormal variables.

Implemented by `pymc_geodesic.counts.gradient_counts.GradientCountEstimator`, from gradients, and
`pymc_geodesic.counts.topic_counts.TopicCountEstimator`, from Gibbs sampling of topic assignments.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from pymc_geodesic.gradients.estimator import Estimator

CountAllRows = Callable[[np.ndarray, np.ndarray, np.ndarray], int]
"""Function of values that fills counts and exposures of all rows; see `CountEstimator.estimate`."""

DescribeNegative = Callable[[int, float, float], str]
"""Function of the index, count and exposure of a negative estimate that returns an error
message."""


class LikelihoodError(ArithmeticError):
    """Error for a likelihood with negative counts, detected while sampling.

    The message names the variable and a remedy.
    """


class CountEstimator(Estimator):
    """Estimator of the counts and exposures of a likelihood from minibatches.

    The counts are n = ω ⊙ ∂ log p / ∂ω; see `pymc_geodesic.kernels.counts`.

    Attributes
    ----------
    is_deterministic : bool
        Whether the estimate is a function of the values and the minibatch, so that differences of
        estimates show how the counts depend on the values.
    """

    is_deterministic: bool

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Number of gradient evaluations of one estimate."""

    @abstractmethod
    def share(self, minibatch: int) -> float:
        """Return the number of rows of a minibatch, divided by that of the largest minibatch."""

    @abstractmethod
    def estimate(
        self,
        values: np.ndarray,
        minibatch: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate counts and exposures from one minibatch.

        Parameters
        ----------
        values : ndarray, shape (size,)
            ω for Dirichlet variables, θ for others.
        minibatch : int
            Element of `next_minibatches`.
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced if the estimate is random.
        counts, exposures : ndarray, shape (size,)
            Receive the estimates.

        Returns
        -------
        int
            Index of a negative or undefined estimate, or −1.
        """

    @abstractmethod
    def compile_all_rows(self) -> CountAllRows:
        """Compile the counts of all rows, for control variates.

        Raises
        ------
        ValueError
            If control variates are not available.
        """
