"""Interface of the estimates, from minibatches, that step methods compose their samplers of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.gradients.row_curvature import RowCurvature
from pymc_geodesic.gradients.total_gradient import TotalGradient
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.runtime.threads import defer_interrupts


class Estimate(ABC):
    """An estimate made from minibatches.

    Attributes
    ----------
    source : RowSource
        Where its minibatches come from.
    """

    source: RowSource

    @abstractmethod
    def refresh_data(self) -> None:
        """Read the data containers, which may hold other values since."""

    @abstractmethod
    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other step methods sample."""

    @abstractmethod
    def next_minibatches(self, n: int) -> np.ndarray:
        """Next ``n`` minibatches, shape ``(n,)``: each the integer argument of one evaluation."""

    def reset(self, seed: int) -> None:
        """Start a chain."""
        self.source.reset(seed)

    @property
    def state(self) -> dict[str, Any]:
        """State that, with the values of the variables, determines all estimates to come."""
        return {"rows": self.source.state}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.source.state = state["rows"]

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:  # noqa: B027
        """Set the local variables to the values of a point, if the estimate draws any."""

    def write_local(self, point: dict[str, np.ndarray]) -> None:  # noqa: B027
        """Write the values of the local variables to a point, if the estimate draws any."""

    def forget_local(self) -> None:  # noqa: B027
        """Initialize the local variables again, if the estimate draws any."""

    def draw_context(self) -> AbstractContextManager[Any]:
        """Context manager for one draw, such as one that delays interrupts."""
        return nullcontext()

    def stats(self) -> dict[str, Any]:
        """Sample stats of the last draw that are the estimate's own."""
        return {}


class GradientEstimate(Estimate):
    """An estimate of the gradient of a log-density.

    It can be wrapped: a kernel sees the address of a field, and a step this class.

    Attributes
    ----------
    field : CompiledField
        Gradient of the minibatch that its argument names, with the log-density behind it where
        that was asked for.
    """

    field: CompiledField

    is_local: bool = False
    """Whether it draws local variables given the position."""

    def draw_context(self) -> AbstractContextManager[Any]:
        """Delay interrupts while machine code calls back into Python."""
        return defer_interrupts() if self.field.interpreted else nullcontext()

    def gradient_at(self, position: np.ndarray, minibatch: int) -> np.ndarray:
        """Gradient of the log-density of one minibatch, shape (size,)."""
        output = np.empty(position.size + 1)  # the function may write the log-density too
        evaluate(self.field.address, position, minibatch, self.field.context, output)
        self.field.raise_error()
        return output[:-1]

    @property
    @abstractmethod
    def total_size(self) -> int:
        """N, the rows that the gradient stands for."""

    @property
    @abstractmethod
    def is_exact(self) -> bool:
        """Whether the field is the gradient of all rows, once each."""

    @property
    @abstractmethod
    def depends_on_others(self) -> bool:
        """Whether the log-density depends on variables that other steps sample."""

    def prepare(
        self, position: np.ndarray, n_steps: int, stream: np.ndarray, *, tune: bool
    ) -> tuple[np.ndarray, int]:
        """Make the field ready for the inner steps of a draw.

        Parameters
        ----------
        position : ndarray, shape (size,)
            Where the draw begins.
        n_steps : int
            Inner steps.
        stream : ndarray of uint64
            Random stream, advanced where the estimate draws variables of its own.
        tune : bool
            Whether the chain is still tuning.

        Returns
        -------
        arguments : ndarray of int64, shape (n_steps,)
            Minibatch of each inner step, usually its first row.
        n_grad : int
            Gradient evaluations that this took.
        """
        return self.next_minibatches(n_steps), 0

    def total_gradient(self) -> TotalGradient | None:
        """Compile log-density and gradient of any number of rows; None where that cannot be."""
        return None

    @property
    def row_names(self) -> list[str]:
        """Terms of the log-density that are sums over rows."""
        return []

    @property
    def has_kinks(self) -> bool:
        """Whether the gradient of a row may jump, so that its Hessian says little of it."""
        return False

    def row_shares(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the share of each row in its rarest level, by the containers of the levels.

        Parameters
        ----------
        arrays : mapping of str to ndarray, shape (at least N, ...)
            All rows.
        """
        return {}

    def row_curvature(self) -> RowCurvature | None:
        """Compile gradient and Hessian of any number of rows; None where that cannot be."""
        return None

    def compile_noise(self) -> CompiledField:
        """Compile the variance of the gradient estimate that the rows of a minibatch tell.

        Raises
        ------
        ValueError
            If there is no such estimate.
        """
        raise ValueError('gradient_noise="fisher" is not available with local=; leave it to tuning')
