"""What samplers of proportions and positive numbers ask of an estimate of counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.gradients.estimate import Estimate
from pymc_geodesic.runtime.threads import Workers

__all__ = ["AssignsTopics", "CountEstimate", "CountSampler", "EstimateOfAllRows"]


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


class CountSampler(Protocol):
    """A sampler with two kernels: one that calls a field, and one for topics.

    Both take the arguments of the inner steps and the step size, and return the index of a failure
    or −1, and further sample stats.
    """

    def follow_field(
        self, field: CompiledField, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that calls a field of counts."""

    def follow_topics(
        self, topics: AssignsTopics, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that moves topics when words were assigned to them."""


EstimateOfAllRows = Callable[[np.ndarray, np.ndarray, np.ndarray], int]
"""Takes values, and fills counts and exposures of all rows; see `CountEstimate.estimate`."""


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
        self, sampler: CountSampler, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel of a sampler that suits the estimate; see `CountSampler`."""

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
