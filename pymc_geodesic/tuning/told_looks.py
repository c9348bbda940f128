"""Gradients compared with draws where a step runs as it was told, in the coordinates of the model.

There is no metric and no anchor: gradients are those of minibatches as they are, and centre and
scale of each coordinate are those of the draws themselves, once they are known. What can be seen so
is less than adapted dynamics see, and costs no minibatch: the one that a draw begins with has had
no part in where it begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pymc_geodesic.manifolds import Product
from pymc_geodesic.tuning.complaint import complaint_in_the_model
from pymc_geodesic.tuning.stationarity import CHECK_EVERY, N_BATCHES, Stationarity
from pymc_geodesic.tuning.tangents import Tangents

__all__ = ["ToldLooks"]

LARGEST_SHARE = 40
"""Inner steps for each gradient of a look, at least."""

SUMMED_EVERY = 25
"""Looks after which the stats are computed anew: from all sums, as the scale is new, too."""


class ToldLooks:
    """Sums over looks, of which means and temperatures are made when centre and scale are known.

    Parameters
    ----------
    product : Product
        The variables of the model, Euclidean ones first.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product
    >>> from pymc_geodesic.tuning.told_looks import ToldLooks
    >>> looks = ToldLooks(Product([("a", Euclidean(1), 1), ("b", Euclidean(1), 1)]))
    >>> looks.reset(n_draws=2000, n_steps=10)
    >>> rng = np.random.default_rng(1)
    >>> for x in rng.normal(size=(500, 2)) * [1.0, 2.0]:  # the law of b has an sd of 1
    ...     looks.take(x + 100.0, -x)
    >>> looks.complaint(["a", "b"])[:29], looks.temperatures.round(1).tolist()
    ("the variance of 'b' is off: i", [1.0, 4.0])
    """

    def __init__(self, product: Product) -> None:
        self._blocks, self._size = product.blocks, product.size
        self._sizes = [part.stop - part.start for part in product.slices.values()]
        self._tangents = Tangents(product)
        self._d = product.size - self._tangents.n_curved
        self.reset(0, 1)

    def reset(self, n_draws: int, n_steps: int) -> None:
        """Forget the previous chain."""
        self._every = max(CHECK_EVERY, math.ceil(LARGEST_SHARE / n_steps))
        self._n_looks = max(-(-n_draws // self._every), 1)
        self._first = np.empty(0)
        self._counts = np.zeros(N_BATCHES)
        self._gradients = np.zeros((N_BATCHES, self._size))
        self._products = np.zeros((N_BATCHES, self._d))
        self._moments = np.zeros((2, self._size))
        self.last_temperature = self.largest_gradient = math.nan

    def is_due(self, draw: int) -> bool:
        """Whether the draw of this number, from 0 after tuning, is to be looked at."""
        return draw % self._every == 0

    def take(self, position: np.ndarray, gradient: np.ndarray) -> None:
        """Take in a position and a gradient there that knows nothing of how it was reached.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
        """
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
            self.last_temperature = float(stationarity.temperatures.mean()) if d else math.nan
            self.largest_gradient = float(np.abs(stationarity.mean_gradient).max())

    def _stationarity(self) -> Stationarity:
        """Put together what the looks say, in standard deviations of the draws from their mean."""
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

    def complaint(
        self, names: Sequence[str], *, minibatches: str = "larger minibatches"
    ) -> str | None:
        """Say what is wrong with the draws, of which variable; None if nothing is.

        Parameters
        ----------
        names : list of str, one for each number of a position
        """
        return complaint_in_the_model(self._stationarity(), names, minibatches=minibatches)

    @property
    def state(self) -> dict[str, np.ndarray]:
        """All that was summed up."""
        shown = (self.last_temperature, self.largest_gradient)
        return {name: getattr(self, name).copy() for name in self._STATE} | {
            "shown": np.array([] if math.isnan(shown[1]) else shown),  # NaN differs from itself
        }

    @state.setter
    def state(self, state: dict[str, np.ndarray]) -> None:
        for name in self._STATE:
            setattr(self, name, state[name].copy())
        shown: Sequence[float] = state["shown"].tolist() or [math.nan, math.nan]
        self.last_temperature, self.largest_gradient = shown

    _STATE = ("_first", "_counts", "_gradients", "_products", "_moments")
