"""Stationarity monitor for Langevin samplers with user-specified or annealed parameters.

Such a sampler has no metric and no centering point: gradients are those of minibatches; mean and
standard deviation of each coordinate are those of the draws, once they are known. Less is seen than
in whitened coordinates, and no minibatch is spent: the one that a draw begins with had no part in
reaching the position where it begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.complaint import complaint_in_the_model
from pymc_geodesic.monitoring.stationarity import CHECK_EVERY, N_BATCHES, Stationarity, Tangents

STEPS_PER_GRADIENT = 40
"""Minimum number of inner steps for each gradient of the monitor."""

SUMMED_EVERY = 25
"""Evaluations between two values of the sample stats."""


class FixedParameterMonitor:
    """Sums over gradients and positions, from which means and temperatures follow.

    Parameters
    ----------
    product : Product
        The variables of the model, Euclidean ones first.
    gradient_at : callable
        Position and minibatch → gradient estimate, shape (size,).
    n_steps : int
        Inner steps of a draw.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product
    >>> from pymc_geodesic.monitoring.fixed_parameters import FixedParameterMonitor
    >>> product = Product([("a", Euclidean(1), 1), ("b", Euclidean(1), 1)])
    >>> monitor = FixedParameterMonitor(product, lambda x, minibatch: 100.0 - x, n_steps=10)
    >>> monitor.initialize(n_draws=2000)
    >>> rng = np.random.default_rng(1)
    >>> for x in rng.normal(size=(2000, 2)) * [1.0, 2.0]:  # the target of b has an sd of 1
    ...     _ = monitor.before(x + 100.0, np.zeros(1, dtype=int))
    >>> monitor.diagnosis(["a", "b"])[:29], monitor.temperatures.round(0).tolist()
    ("the variance of 'b' is off: i", [1.0, 4.0])
    """

    def __init__(
        self,
        product: Product,
        gradient_at: Callable[[np.ndarray, int], np.ndarray],
        n_steps: int,
    ) -> None:
        self._gradient_at = gradient_at
        self._blocks, self._size = product.blocks, product.size
        self._sizes = [part.stop - part.start for part in product.slices.values()]
        self._tangents = Tangents(product)
        self._d = product.size - self._tangents.n_curved
        self._every = max(CHECK_EVERY, math.ceil(STEPS_PER_GRADIENT / n_steps))
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain of so many draws after the warm-up."""
        self._n = 0
        self._n_looks = max(-(-n_draws // self._every), 1)
        self._first = np.empty(0)
        self._counts = np.zeros(N_BATCHES)
        self._gradients = np.zeros((N_BATCHES, self._size))
        self._products = np.zeros((N_BATCHES, self._d))
        self._moments = np.zeros((2, self._size))
        self.temperature = self.largest_gradient = math.nan

    def before(self, position: np.ndarray, minibatches: np.ndarray) -> int:
        """Evaluate a gradient where a draw begins, now and then; return how many.

        Parameters
        ----------
        position : ndarray, shape (size,)
        minibatches : ndarray of int64, shape (n_steps,)
            Of the draw that begins.
        """
        is_due = self._n % self._every == 0
        self._n += 1
        if not is_due:
            return 0
        gradient = self._gradient_at(position, int(minibatches[0]))
        if not self._first.size:
            self._first = position.copy()
        tangent = self._tangents.excess(self._blocks, position, gradient)
        away, d = position - self._first, self._d
        count = int(self._counts.sum())
        batch = min(count * N_BATCHES // self._n_looks, N_BATCHES - 1)
        self._counts[batch] += 1
        self._gradients[batch] += tangent
        self._products[batch] -= away[:d] * tangent[:d]
        self._moments += [away, away**2]
        if (count + 1) % SUMMED_EVERY == 0:
            stationarity = self._stationarity()
            self.temperature = float(stationarity.temperatures.mean()) if d else math.nan
            self.largest_gradient = float(np.abs(stationarity.mean_gradient).max())
        return 1

    def after(self, draw: int, position: np.ndarray, n_steps: int) -> int:
        """Evaluate nothing after a draw."""
        return 0

    def _stationarity(self) -> Stationarity:
        """Scale the sums to standard deviations of the draws from their mean."""
        d, count = self._d, max(self._counts.sum(), 1.0)
        mean, square = self._moments / count
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        return Stationarity.from_batches(
            self._counts,
            self._gradients * spread,
            self._products + mean[:d] * self._gradients[:, :d],
            self._sizes,
        )

    @property
    def temperatures(self) -> np.ndarray:
        """Configurational temperature of each Euclidean coordinate."""
        return self._stationarity().temperatures

    def diagnosis(
        self, names: Sequence[str], *, minibatches: str = "larger minibatches"
    ) -> str | None:
        """Describe how draws contradict gradients, naming the coordinate; None if they agree.

        Parameters
        ----------
        names : list of str, one for each number of a position
        """
        return complaint_in_the_model(self._stationarity(), names, minibatches=minibatches)

    @property
    def state(self) -> dict[str, Any]:
        """All that was summed up."""
        shown = (self.temperature, self.largest_gradient)
        return {name: getattr(self, name).copy() for name in self._STATE} | {
            "n": self._n,
            "shown": np.array([] if math.isnan(shown[1]) else shown),  # NaN differs from itself
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name].copy())
        self._n = state["n"]
        shown: Sequence[float] = state["shown"].tolist() or [math.nan, math.nan]
        self.temperature, self.largest_gradient = shown

    _STATE = ("_first", "_counts", "_gradients", "_products", "_moments")
