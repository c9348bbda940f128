"""How many independent draws one chain is worth, from running sums."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection

import numpy as np

from pymc_geodesic.manifolds import Product, Simplex

N_BATCHES = 20
"""Stretches into which a chain is divided; the error of the size is about sqrt(2 / N_BATCHES)."""

MOST_COORDINATES = 5
"""Coordinates that are followed, evenly spread over the variables."""

FEWEST_DRAWS = 200
"""Draws from which the means of the stretches say anything."""

ENOUGH = 100.0
"""Effective sample size below which a chain is too short."""


class RunningSize:
    r"""Effective sample size of a chain by the means of batches.

    With the variance s² of a coordinate over all n draws and that of the means of B batches, s_B²,
    the size is B s² / s_B²: as many independent draws have means that vary as much. It cannot be
    below about B, where the batches are what is correlated. Batches of unequal lengths count by
    their lengths.

    Parameters
    ----------
    product : Product
        Where the draws live.
    angles : collection of str
        Euclidean variables that are angles. Their cosines and sines are followed, which do not
        depend on how often a chain has gone around the circle.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product
    >>> from pymc_geodesic.monitoring.effective_size import RunningSize
    >>> size = RunningSize(Product([("x", Euclidean(3), 1)]))
    >>> sums, rng = size.start(), np.random.default_rng(1)
    >>> x = np.zeros(3)
    >>> for draw in range(10_000):
    ...     x = 0.98 * x + rng.normal(size=3)
    ...     size.take(sums, x, draw, 10_000)
    >>> 50 < size.smallest(sums, 10_000)[0] < 200
    True
    """

    def __init__(self, product: Product, angles: Collection[str] = ()) -> None:
        n = min(MOST_COORDINATES, product.size)
        self._places = np.unique(np.linspace(0, product.size - 1, n).round().astype(np.int64))
        self._names = [
            next(name for name, part in product.slices.items() if place < part.stop)
            for place in self._places
        ]
        self._angles = np.flatnonzero([name in angles for name in self._names])
        self._names += [self._names[angle] for angle in self._angles]
        # the proportions are the squares of these coordinates, which change their sign
        kinds = {name: manifold for name, manifold, _ in product.components}
        self._squared = np.array([isinstance(kinds[name], Simplex) for name in self._names])
        self._has_squares = bool(self._squared.any())

    def start(self) -> np.ndarray:
        """Return sums over no draws: of each batch, of the squares, and the first draw.

        The last column counts the draws of each batch, which are not equally many where a run goes
        on to more draws than it was to have.
        """
        return np.zeros((N_BATCHES + 2, len(self._names) + 1))

    def take(self, sums: np.ndarray, position: np.ndarray, draw: int, n_draws: int) -> None:
        """Add a draw to the sums, in place.

        Parameters
        ----------
        sums : ndarray
            From `start`.
        position : ndarray, shape (size,)
        draw, n_draws : int
            Number of the draw, from 0, and how many there will be.
        """
        values = position[self._places]
        if self._angles.size:
            angles = values[self._angles]
            values[self._angles] = np.cos(angles)
            values = np.append(values, np.sin(angles))
        if self._has_squares:
            values = np.where(self._squared, values**2, values)
        if draw == 0:
            sums[-1, :-1] = values
        values = values - sums[-1, :-1]
        batch = sums[min(draw * N_BATCHES // n_draws, N_BATCHES - 1)]
        batch[:-1] += values
        batch[-1] += 1.0
        sums[-2, :-1] += values**2

    def smallest(self, sums: np.ndarray, n_draws: int) -> tuple[float, str]:
        """Return the smallest size of the coordinates that were followed, and its variable."""
        batches, lengths = sums[:N_BATCHES, :-1], sums[:N_BATCHES, -1:]
        mean = batches.sum(axis=0) / n_draws
        variance = sums[-2, :-1] / n_draws - mean**2
        between = (lengths * (batches / lengths - mean) ** 2).sum(axis=0) / (N_BATCHES - 1)
        sizes = np.where(variance > 0.0, n_draws * variance / np.maximum(between, 1e-300), 1.0)
        worst = int(np.argmin(sizes))
        return float(min(sizes[worst], n_draws)), self._names[worst]

    def complaint(
        self, sums: np.ndarray, n_draws: int, *, minibatches: str = "larger minibatches"
    ) -> str | None:
        """Say that a chain is too short, or nothing.

        Chains in processes of their own are several, and PyMC judges them together.
        """
        if n_draws < FEWEST_DRAWS or multiprocessing.parent_process() is not None:
            return None
        size, name = self.smallest(sums, n_draws)
        if size >= ENOUGH:
            return None
        return (
            f"this chain has an effective sample size of about {size:.0f} in {name}, less than "
            f"{ENOUGH:.0f}: its means and intervals say little. Take more draws, more n_steps for "
            f"each, or {minibatches}."
        )
