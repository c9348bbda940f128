"""Protocol of the samplers, which are Markov chains on a vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.eligibility import Ineligibility


class Sampler(Protocol):
    """A Markov chain on a vector.

    Attributes
    ----------
    adaptation
        An object with the attributes ``needs_warm_up``, ``is_tuned`` and ``whitens``.
    state : dict
        State of the chain, including that of the adaptation; it determines all further draws.
    """

    adaptation: Any
    state: dict[str, Any]

    @property
    def ineligibility(self) -> Ineligibility | None:
        """Reason why a Langevin sampler adapts without whitening; None otherwise."""

    @property
    def position(self) -> np.ndarray:
        """Position in the coordinates of the model; empty before the first draw."""

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain.

        Parameters
        ----------
        stream : ndarray of uint64, shape (2,)
            Random stream.
        n_tune, n_draws : int
            Number of draws in the warm-up, and after it. Without a warm-up the parameters of the
            previous one are used.
        """

    def start(self, x: np.ndarray) -> None:
        """Set the position, at the first draw and after another step has moved the variables.

        Parameters
        ----------
        x : ndarray, shape (size,)
            Position in the coordinates of the model.

        Raises
        ------
        NotFiniteError
            If the gradient is not finite there.
        """

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Generate one draw, and return its sample stats by name.

        Raises
        ------
        NotFiniteError
            If the draw is not finite, and it cannot be undone in the warm-up.
        """

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other step methods sample."""
