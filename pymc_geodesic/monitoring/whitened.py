"""Gradients that had no part in reaching a draw, compared with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.tuning.complaint import complaint_about
from pymc_geodesic.tuning.stationarity import CHECK_EVERY, Stationarity
from pymc_geodesic.tuning.tangents import Tangents

__all__ = ["Looks"]

FEWEST_LOOKED_AT = 2
"""Minibatches of a look at least."""


class Looks:
    """What a chain knows of the gradients at its draws.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables of the model, Euclidean ones first.
    next_arguments : callable
        n → arguments of the minibatch field for n evaluations.
    mixes : bool
        Whether coordinates of the metric belong to several variables at once.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_arguments: Callable[[int], np.ndarray],
        *,
        mixes: bool,
    ) -> None:
        self._gradient, self._next_arguments = gradient, next_arguments
        sizes = [part.stop - part.start for part in product.slices.values()]
        self._sizes = None if mixes else sizes
        self._tangents = Tangents(product)
        self._size = product.size
        self.reset(0)

    def reset(self, n_draws: int) -> None:
        """Forget the previous chain."""
        n_looks = -(-n_draws // CHECK_EVERY)
        self._stationarity = Stationarity(
            self._size, self._gradient.n_euclidean, n_looks, self._sizes
        )

    @property
    def last_temperature(self) -> float:
        """Configurational temperature at the last look; NaN before there was one."""
        return self._stationarity.last_temperature

    @property
    def largest_gradient(self) -> float:
        """Largest error of a mean some looks ago, in posterior standard deviations."""
        return self._stationarity.largest_gradient

    def take(self, draw: int, z: np.ndarray, blocks: np.ndarray, n_steps: int) -> int:
        """Take in a draw; return how many gradients were evaluated for it."""
        self._stationarity.pass_by(z)
        if draw % CHECK_EVERY:
            return 0
        # a small part of what the draws take
        n_grad = max(FEWEST_LOOKED_AT, n_steps // CHECK_EVERY) if self._gradient.has_noise else 1
        self._stationarity.look(z, self._mean_tangent(z, blocks, n_grad))
        return n_grad

    def _mean_tangent(self, z: np.ndarray, blocks: np.ndarray, n_grad: int) -> np.ndarray:
        """Mean of the gradient along the manifolds, less what it is by their curvature alone."""
        field = self._gradient.noisy
        gradient, total = np.zeros(z.size + 1), np.zeros(z.size + 1)
        for argument in self._next_arguments(n_grad):
            evaluate(field.address, z, int(argument), field.context, gradient)
            total += gradient
        field.raise_error()
        mean = total[: z.size] / n_grad
        return self._tangents.excess(blocks, z, mean, self._gradient.metric.lengths)

    def complaint(self, names: Sequence[str]) -> str | None:
        """Say what is wrong with the draws, of which variable; None if nothing is.

        Parameters
        ----------
        names : list of str, one for each number of a position
        """
        return complaint_about(self._stationarity, self._gradient.metric, names)

    @property
    def state(self) -> dict[str, Any]:
        """All that the looks so far have told."""
        return self._stationarity.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._stationarity.state = state
