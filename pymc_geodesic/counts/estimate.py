"""Interface of count estimates, for samplers of Dirichlet, Gamma and LogNormal variables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.gradients.estimate import Estimate
from pymc_geodesic.runtime.threads import Workers

__all__ = [
    "AssignsTopics",
    "CountEstimate",
    "CountKernels",
    "DescribeNegative",
    "EstimateOfAllRows",
    "LikelihoodError",
]


class LikelihoodError(ArithmeticError):
    """A likelihood with negative counts, found while sampling.

    Its message names the variable, and what to do.
    """


class AssignsTopics(Protocol):
    """An estimate that assigns the words of a minibatch to topics.

    Attributes
    ----------
    workers : Workers
        What threads there are.
    """

    workers: Workers

    def assign(
        self, log_state: np.ndarray, log_totals: np.ndarray, argument: int, stream: np.ndarray
    ) -> TopicCounts:
        """Sample the topics of the words of a minibatch; see `TopicCountEstimator.assign`."""


class CountKernels(Protocol):
    """The two kernels of a sampler: for a compiled gradient, and for topics of words.

    Both take the minibatches of the inner steps and the step size, run the inner steps of a draw,
    and return the index of a coordinate that failed, or −1, and further sample stats.
    """

    def run_gradient_kernel(
        self, logp_grad: CompiledField, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that reads counts off the gradient of each minibatch."""

    def run_topic_kernel(
        self, topics: AssignsTopics, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that assigns the words of each minibatch to topics."""


EstimateOfAllRows = Callable[[np.ndarray, np.ndarray, np.ndarray], int]
"""Takes values, and fills counts and exposures of all rows; see `CountEstimate.estimate`."""

DescribeNegative = Callable[[int, float, float], str]
"""Index of a negative estimate, count and exposure → which variable has it, and what to do."""


class CountEstimate(Estimate):
    """An estimate of what data say of Dirichlet, Gamma and LogNormal variables.

    Attributes
    ----------
    repeats : bool
        Whether an estimate from the same minibatch at the same place is the same again, so that
        differences of estimates tell how counts change with the place.
    """

    repeats: bool

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Gradient evaluations that one estimate stands for."""

    @abstractmethod
    def share(self, argument: int) -> float:
        """Rows of a minibatch, divided by those of the largest one."""

    @abstractmethod
    def estimate(
        self,
        values: np.ndarray,
        argument: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate counts and exposures from one minibatch.

        Parameters
        ----------
        values : ndarray, shape (size,)
            ω.
        argument : int
            Which minibatch.
        stream : ndarray of uint64, shape (2,)
            Random stream, advanced where the estimate is random.
        counts, exposures : ndarray, shape (size,)
            Receive the estimates.

        Returns
        -------
        int
            Index of a negative or undefined estimate, or −1.
        """

    @abstractmethod
    def advance(
        self, kernels: CountKernels, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that suits the estimate; see `CountKernels`."""

    def compile_all_rows(self) -> EstimateOfAllRows:
        """Compile the counts of all rows at once, for control variates.

        Raises
        ------
        ValueError
            If there is no such thing.
        """
        raise ValueError(
            "control_variates= is not available with local=: how words are assigned to topics is "
            "random, and changes with the topics; leave it out"
        )
