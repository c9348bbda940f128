"""Monitor of the effective sample size of a single chain, by the means of batches."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_geodesic.manifolds import Manifold, Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor


@dataclass(frozen=True)
class EffectiveSizeSettings:
    """Constants of the monitor.

    Attributes
    ----------
    n_batches : int
        Batches of a chain. The relative standard error of the size is √(2 / n_batches) = 32 %, and
        no size below about 20 can be measured.
    max_coordinates : int
        Coordinates that are monitored, evenly spaced over the variables. It bounds the cost of a
        draw, and was not chosen by a benchmark.
    min_draws : int
        Draws, ten in a batch, below which no warning is issued.
    min_size : float
        Effective sample size below which a warning is issued: that per chain below which PyMC
        warns.
    n_kept : int
        Draws that are kept until they are added to the sums together, which takes a fifth of the
        time of adding each of them.
    """

    n_batches: int = 20
    max_coordinates: int = 5
    min_draws: int = 200
    min_size: float = 100.0
    n_kept: int = 50


SETTINGS = EffectiveSizeSettings()


@dataclass
class BatchSums:
    """Sums over the draws so far, of values less those of the first draw.

    Attributes
    ----------
    n : int
        Draws.
    first : ndarray, shape (n_values,)
        Values at the first draw.
    batches : ndarray, shape (n_batches, n_values)
        Sums over the draws of each batch.
    lengths : ndarray, shape (n_batches,)
        Draws of each batch. They differ where a run is resumed for more draws than were planned.
    squares : ndarray, shape (n_values,)
        Sums of squares.
    """

    n: int
    first: np.ndarray
    batches: np.ndarray
    lengths: np.ndarray
    squares: np.ndarray


REMEDY = (
    "Omit step_size, n_steps and other arguments of the dynamics if they are set, so that they are "
    "adapted; otherwise use more draws, {minibatches} or GMC."
)


class EffectiveSizeMonitor(DrawMonitor):
    r"""Effective sample size of a chain by the means of batches.

    With the variance s² of a coordinate over all n draws and the variance s_B² of the means of B
    batches, the size is B s² / s_B²: as many independent draws have means that vary as much. It
    cannot be below about B, where the batches themselves are correlated. Batches of unequal lengths
    are weighted by their lengths.

    Parameters
    ----------
    product : Product
        Manifolds of the variables.
    angles : collection of str
        Euclidean variables that are angles. Their cosines and sines are monitored, which do not
        depend on how often a chain has gone around the circle.
    remedy : str
        Remedy of the diagnosis.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.manifolds import Euclidean, Product
    >>> from pymc_geodesic.monitoring.effective_size import EffectiveSizeMonitor
    >>> monitor = EffectiveSizeMonitor(Product([("x", Euclidean(3), 1)]))
    >>> monitor.initialize(5000)
    >>> rng, x = np.random.default_rng(1), np.zeros(3)
    >>> for _ in range(5000):
    ...     x = 0.98 * x + rng.normal(size=3)
    ...     monitor.observe(x, {})
    >>> monitor.diagnosis(["x[0]", "x[1]", "x[2]"]).finding
    "The effective sample size of 'x' is 53 (standard error 17, expected at least 100): means and
    intervals of this chain are unreliable."
    """

    def __init__(
        self,
        product: Product,
        angles: Collection[str] = (),
        *,
        remedy: str = REMEDY,
    ) -> None:
        n = min(SETTINGS.max_coordinates, product.size)
        self._coordinates = np.unique(np.linspace(0, product.size - 1, n).round().astype(np.int64))
        self._names = [
            next(name for name, part in product.slices.items() if coordinate < part.stop)
            for coordinate in self._coordinates
        ]
        self._angles = np.flatnonzero([name in angles for name in self._names])
        self._names += [self._names[angle] for angle in self._angles]
        free = {name: has_free_signs(manifold) for name, manifold, _ in product.components}
        self._is_squared = np.array([free[name] for name in self._names])
        self._has_squares = bool(self._is_squared.any())
        self._remedy = remedy
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._n_draws, n, b = n_draws, len(self._names), SETTINGS.n_batches
        self._kept, self._n_kept = np.empty((SETTINGS.n_kept, self._coordinates.size)), 0
        self._sums = BatchSums(0, np.zeros(n), np.zeros((b, n)), np.zeros(b), np.zeros(n))

    @property
    def sums(self) -> BatchSums:
        """Sums over the draws so far."""
        self._add_kept()
        return self._sums

    @sums.setter
    def sums(self, sums: BatchSums) -> None:
        self._sums, self._n_kept = sums, 0

    def observe(self, position: np.ndarray, stats: dict[str, Any]) -> None:
        """Keep a draw for its batch; see `DrawMonitor`."""
        self._kept[self._n_kept] = position[self._coordinates]
        self._n_kept += 1
        if self._n_kept == len(self._kept):
            self._add_kept()

    def _add_kept(self) -> None:
        """Add the draws that are kept to their batches, in their order."""
        n, self._n_kept, sums = self._n_kept, 0, self._sums
        if n == 0:
            return
        values = self._kept[:n].copy()
        if self._angles.size:
            angles = values[:, self._angles]
            values[:, self._angles] = np.cos(angles)
            values = np.append(values, np.sin(angles), axis=1)
        if self._has_squares:
            values = np.where(self._is_squared, values**2, values)
        if sums.n == 0:
            sums.first = values[0].copy()
        values -= sums.first
        order = (sums.n + np.arange(n)) * SETTINGS.n_batches // max(self._n_draws, 1)
        batches = np.minimum(order, SETTINGS.n_batches - 1)
        np.add.at(sums.batches, batches, values)
        np.add.at(sums.lengths, batches, 1.0)
        sums.squares += (values**2).sum(axis=0)
        sums.n += n

    def smallest(self) -> tuple[float, str]:
        """Smallest effective sample size of the monitored coordinates, and its variable."""
        sums, n = self.sums, self._n_draws
        mean = sums.batches.sum(axis=0) / n
        variance = sums.squares / n - mean**2
        lengths = sums.lengths[:, np.newaxis]
        between = (lengths * (sums.batches / lengths - mean) ** 2).sum(axis=0)
        between /= SETTINGS.n_batches - 1
        sizes = np.where(variance > 0.0, n * variance / np.maximum(between, 1e-300), 1.0)
        worst = int(np.argmin(sizes))
        return float(min(sizes[worst], n)), self._names[worst]

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the smallest size with its bound; see `DrawMonitor`.

        None in a worker process: such a chain is one of several, which PyMC compares.
        """
        if self._n_draws < SETTINGS.min_draws or multiprocessing.parent_process() is not None:
            return None
        size, variable = self.smallest()
        if size >= SETTINGS.min_size:
            return None
        return Diagnosis(
            quantity="effective sample size",
            value=size,
            error=size * math.sqrt(2.0 / SETTINGS.n_batches),
            expected=SETTINGS.min_size,
            limit="at least ",
            format_spec=".0f",
            coordinates=(variable,),
            consequence="means and intervals of this chain are unreliable",
            remedy=self._remedy,
            anchor="few-effective-draws",
        )


def has_free_signs(manifold: Manifold) -> bool:
    """Whether values do not depend on the signs of their coordinates, as on the simplex."""
    ones = np.ones(manifold.shape)
    return np.array_equal(manifold.from_coordinates(ones), manifold.from_coordinates(-ones))
