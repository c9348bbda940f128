"""A Markov chain on a vector, as step methods see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

__all__ = ["NotFiniteError", "Sampler"]


class NotFiniteError(ArithmeticError):
    """A position, velocity, gradient or log-density that is not finite.

    Parameters
    ----------
    what : str
        Name of the quantity.
    step_size : float
        Of the draw.
    vector : ndarray, shape (size,)
        Its values, from which the variables are named.
    at_start : bool
        Whether it is not finite where the chain starts, so that no step size helps.
    """

    def __init__(
        self, what: str, step_size: float, vector: np.ndarray, *, at_start: bool = False
    ) -> None:
        super().__init__(f"{what} is not finite")
        self.what, self.step_size, self.vector, self.at_start = what, step_size, vector, at_start


class Sampler(Protocol):
    """A Markov chain on a vector.

    Attributes
    ----------
    adaptation
        With ``needs_warm_up``, ``is_tuned``, ``is_whitened`` and ``minibatch_remedy``.
    state : dict
        All that decides the draws to come: that of the chain, and nested in it that of the
        adaptation.
    """

    adaptation: Any
    state: dict[str, Any]

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model; empty before the first draw."""

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; without a warm-up, with the parameters of the last one."""

    def start(self, x: np.ndarray) -> None:
        """Set the position."""

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once, and return sample stats by name."""

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take the values of variables that other step methods sample."""
