"""Interfaces of minibatch estimators: `Estimator` and `GradientEstimator`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pymc_geodesic.densities.compilation import CompiledGradient
from pymc_geodesic.densities.sufficient_statistics import NormalStatistics
from pymc_geodesic.gradients.full_gradient import RowCurvature, TotalGradient
from pymc_geodesic.gradients.structured_hessian import HessianStructure
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.threads import defer_interrupts


class Estimator(ABC):
    """An estimator from minibatches.

    Attributes
    ----------
    source : RowSource
        Source of the minibatches.
    """

    source: RowSource

    @abstractmethod
    def refresh_data(self) -> None:
        """Read the current values of the data containers."""

    @abstractmethod
    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other step methods sample."""

    @abstractmethod
    def next_minibatches(self, n: int) -> np.ndarray:
        """Next ``n`` minibatches, shape ``(n,)``: the integer argument of each evaluation."""

    def reset(self, seed: int) -> None:
        """Start a chain."""
        self.source.reset(seed)

    @property
    def state(self) -> dict[str, Any]:
        """State that, with the values of the variables, determines all further estimates."""
        return {"rows": self.source.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.source.state = state["rows"]

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:  # noqa: B027
        """Set the local variables to the values of a point, if the estimator draws any."""

    def write_local(self, point: dict[str, np.ndarray]) -> None:  # noqa: B027
        """Write the values of the local variables to a point, if the estimator draws any."""

    def forget_local(self) -> None:  # noqa: B027
        """Reset the local variables to initial values, if the estimator draws any."""

    def draw_context(self) -> AbstractContextManager[Any]:
        """Context manager for one draw, such as one that delays interrupts."""
        return nullcontext()

    def stats(self) -> dict[str, Any]:
        """Sample stats of the estimate for the last draw."""
        return {}


class GradientEstimator(Estimator):
    """An estimator of the gradient of a log-density.

    Attributes
    ----------
    logp_grad : CompiledGradient
        Gradient function whose argument is the minibatch, optionally followed by the log-density.
    """

    logp_grad: CompiledGradient

    is_local: bool = False
    """Whether the estimator draws local variables given the position."""

    @property
    def value_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of PyMC's value of each variable; empty if `row_curvature` returns None."""
        return {}

    def draw_context(self) -> AbstractContextManager[Any]:
        """Delay interrupts while compiled code calls Python."""
        return defer_interrupts() if self.logp_grad.interpreted else nullcontext()

    def gradient_at(self, position: np.ndarray, minibatch: int) -> np.ndarray:
        """Gradient of the log-density of one minibatch, shape (size,)."""
        output = np.empty(position.size + 1)  # the function may write the log-density too
        evaluate(self.logp_grad.address, position, minibatch, self.logp_grad.context, output)
        self.logp_grad.raise_error()
        return output[:-1]

    @property
    @abstractmethod
    def total_size(self) -> int:
        """N, the number of rows that minibatches represent."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether the estimate is the exact gradient, with each row used once."""

    @property
    @abstractmethod
    def depends_on_others(self) -> bool:
        """Whether the log-density depends on variables that other steps sample."""

    def begin_draw(
        self, position: np.ndarray, n_steps: int, stream: np.ndarray, *, tune: bool
    ) -> tuple[np.ndarray, int]:
        """Prepare `logp_grad` for the inner steps of a draw.

        Parameters
        ----------
        position : ndarray, shape (size,)
            Position at the beginning of the draw.
        n_steps : int
            Number of inner steps.
        stream : ndarray of uint64
            Random stream, advanced if the estimator draws variables.
        tune : bool
            Whether the chain is tuning.

        Returns
        -------
        minibatches : ndarray of int64, shape (n_steps,)
            Minibatch of each inner step, usually its first row.
        n_grad : int
            Number of gradient evaluations.
        """
        return self.next_minibatches(n_steps), 0

    def total_gradient(self) -> TotalGradient | None:
        """Compile log-density and gradient of any number of rows; None if that is not possible."""
        return None

    @property
    def statistics(self) -> Sequence[NormalStatistics]:
        """Sufficient statistics that replace rows."""
        return ()

    def count_statistics(self) -> int | None:
        """Return the number of sufficient statistics that could replace all rows of minibatches.

        None if they cannot, or do not save time.
        """
        return None

    @property
    def row_names(self) -> list[str]:
        """Names of the terms of the log-density that are sums over rows."""
        return []

    @property
    def has_kinks(self) -> bool:
        """Whether the gradient of a row may be discontinuous, so that Hessians are misleading."""
        return False

    def row_shares(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return 1 / (number of rows in the rarest level of each row), by container of the levels.

        Parameters
        ----------
        arrays : mapping of str to ndarray, shape (at least N, ...)
            All rows.
        """
        return {}

    def row_curvature(
        self, structure: HessianStructure | None = None, *, with_other_terms: bool = False
    ) -> RowCurvature | None:
        """Compile gradient and Hessian of any number of rows; None if that is not possible.

        Parameters
        ----------
        structure : HessianStructure, optional
            Dense by default.
        with_other_terms : bool
            Whether the function includes the terms that do not depend on the rows.
        """
        return None

    def compile_noise(self) -> CompiledGradient:
        """Compile an estimate of the variance of the gradient from the rows of a minibatch.

        Raises
        ------
        ValueError
            If there is no such estimate.
        """
        raise ValueError(
            'gradient_noise="fisher" is not available with local=. Omit gradient_noise=, and the '
            "noise is measured during tuning"
        )
