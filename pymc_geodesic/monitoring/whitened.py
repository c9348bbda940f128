"""Stationarity monitor in whitened coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.complaint import complaint_about
from pymc_geodesic.monitoring.stationarity import CHECK_EVERY, Stationarity, Tangents
from pymc_geodesic.runtime.fields import evaluate

FEWEST_MINIBATCHES = 2
"""Minimum number of minibatches of an evaluation."""


class WhitenedMonitor:
    """Gradients of minibatches that had no part in reaching a draw, compared with the draw.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables of the model, Euclidean ones first.
    next_minibatches : callable
        n → minibatches of the gradient function for n evaluations.
    mixes : bool
        Whether coordinates of the metric belong to several variables at once.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_minibatches: Callable[[int], np.ndarray],
        *,
        mixes: bool,
    ) -> None:
        self._gradient, self._next_minibatches = gradient, next_minibatches
        sizes = [part.stop - part.start for part in product.slices.values()]
        self._sizes = None if mixes else sizes
        self._tangents = Tangents(product)
        self._blocks, self._size = product.blocks, product.size
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain of so many draws after the warm-up."""
        n_looks = -(-n_draws // CHECK_EVERY)
        self._stationarity = Stationarity(
            self._size, self._gradient.n_euclidean, n_looks, self._sizes
        )

    @property
    def temperature(self) -> float:
        """Configurational temperature at the last evaluation; NaN before the first."""
        return self._stationarity.last_temperature

    @property
    def largest_gradient(self) -> float:
        """Largest error of a mean so far, in posterior sds; NaN before the first evaluation."""
        return self._stationarity.largest_gradient

    def before(self, z: np.ndarray, minibatches: np.ndarray) -> int:
        """Evaluate nothing before a draw."""
        return 0

    def after(self, draw: int, z: np.ndarray, n_steps: int) -> int:
        """Evaluate gradients after a draw now and then; return how many."""
        self._stationarity.pass_by(z)
        if draw % CHECK_EVERY:
            return 0
        # a small part of what the draws take
        n_grad = max(FEWEST_MINIBATCHES, n_steps // CHECK_EVERY) if self._gradient.has_noise else 1
        self._stationarity.look(z, self._mean_tangent(z, n_grad))
        return n_grad

    def _mean_tangent(self, z: np.ndarray, n_grad: int) -> np.ndarray:
        """Mean of the gradient along the manifolds, less what it is by their curvature alone."""
        field = self._gradient.estimated
        gradient, total = np.zeros(z.size + 1), np.zeros(z.size + 1)
        for minibatch in self._next_minibatches(n_grad):
            evaluate(field.address, z, int(minibatch), field.context, gradient)
            total += gradient
        field.raise_error()
        mean = total[: z.size] / n_grad
        return self._tangents.excess(self._blocks, z, mean, self._gradient.metric.lengths)

    def diagnosis(
        self, names: Sequence[str], *, minibatches: str = "larger minibatches"
    ) -> str | None:
        """Describe how draws contradict gradients, naming the coordinate; None if they agree.

        Parameters
        ----------
        names : list of str, one for each number of a position
        """
        return complaint_about(self._stationarity, self._gradient.metric, names)

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the evaluations so far."""
        return self._stationarity.state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._stationarity.state = state
