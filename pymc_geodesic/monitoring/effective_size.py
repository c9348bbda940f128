"""Monitor of the effective sample size of a single chain, by the means of batches."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtri

from pymc_geodesic.manifolds import Manifold, Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis, DrawMonitor, coordinate_names


@dataclass(frozen=True)
class EffectiveSizeSettings:
    """Constants of the monitor.

    Attributes
    ----------
    n_batches : int
        Batches of a chain. The relative standard error of the size is √(2 / n_batches) = 32 %, and
        no size below about 20 can be measured.
    max_per_variable : int
        Maximum number of coordinates of a variable that are monitored, evenly spaced. It bounds the
        state that is saved to 0.3 MB per variable.
    min_draws : int
        Draws, ten in a batch, below which no warning is issued.
    min_size : float
        Effective sample size below which a warning is issued: that per chain below which PyMC
        warns. With many coordinates the bound is lower; see `bound_on_smallest`.
    false_warnings : float
        Upper bound on the probability of a warning if each size is twice `min_size`.
    n_kept : int
        Draws that are kept until they are added to the sums together, which takes a fifth of the
        time of adding each of them.
    """

    n_batches: int = 20
    max_per_variable: int = 2000
    min_draws: int = 200
    min_size: float = 100.0
    false_warnings: float = 0.05
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


def bound_on_smallest(n_coordinates: int) -> float:
    r"""Bound on the smallest of several estimated sizes, below which a warning is issued.

    An estimate is the size times (B − 1) / χ² with B − 1 degrees of freedom for B batches. The
    bound is the size that is expected of a chain, unless the smallest of n independent estimates
    would fall below it too often in chains of twice that size.

    Parameters
    ----------
    n_coordinates : int
        n.

    Examples
    --------
    >>> from pymc_geodesic.monitoring.effective_size import bound_on_smallest
    >>> [round(bound_on_smallest(n)) for n in (1, 10, 100, 10_000)]
    [100, 98, 83, 64]
    """
    freedom = SETTINGS.n_batches - 1
    quantile = float(chdtri(freedom, SETTINGS.false_warnings / n_coordinates))
    return SETTINGS.min_size * min(1.0, 2.0 * freedom / quantile)


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
    "The effective sample size of 'x[2]' is 53 (standard error 17, expected at least 100): means and
    intervals of this chain are unreliable. This concerns 3 of 3 coordinates: 'x[2]', 'x[1]',
    'x[0]'."
    """

    def __init__(
        self,
        product: Product,
        angles: Collection[str] = (),
        *,
        remedy: str = REMEDY,
    ) -> None:
        every, names = [], []
        for name, part in product.slices.items():
            n = min(part.stop - part.start, SETTINGS.max_per_variable)
            every.append(np.linspace(part.start, part.stop - 1, n).round().astype(np.int64))
            names += [name] * n
        self._coordinates = np.concatenate(every)
        self._angles = np.flatnonzero(np.isin(names, list(angles)))
        free = {name: has_free_signs(manifold) for name, manifold, _ in product.components}
        self._is_squared = np.array([free[name] for name in names])
        self._has_squares = bool(self._is_squared.any())
        self._remedy = remedy
        self.initialize(0)

    def initialize(self, n_draws: int) -> None:
        """Begin a chain; see `DrawMonitor`."""
        self._n_draws, b = n_draws, SETTINGS.n_batches
        n = self._coordinates.size + self._angles.size
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
        if self._has_squares:
            values = np.where(self._is_squared, values**2, values)
        if self._angles.size:
            angles = values[:, self._angles]
            values[:, self._angles] = np.cos(angles)
            values = np.append(values, np.sin(angles), axis=1)
        if sums.n == 0:
            sums.first = values[0].copy()
        values -= sums.first
        order = (sums.n + np.arange(n)) * SETTINGS.n_batches // max(self._n_draws, 1)
        batches = np.minimum(order, SETTINGS.n_batches - 1)
        for batch in np.unique(batches):
            is_in = batches == batch
            sums.batches[batch] += values[is_in].sum(axis=0)
            sums.lengths[batch] += np.count_nonzero(is_in)
        sums.squares += (values**2).sum(axis=0)
        sums.n += n

    def sizes(self) -> np.ndarray:
        """Effective sample sizes of the monitored coordinates, of angles the smaller of two."""
        sums, n = self.sums, self._n_draws
        mean = sums.batches.sum(axis=0) / n
        variance = sums.squares / n - mean**2
        lengths = sums.lengths[:, np.newaxis]
        between = (lengths * (sums.batches / lengths - mean) ** 2).sum(axis=0)
        between /= SETTINGS.n_batches - 1
        found = np.where(variance > 0.0, n * variance / np.maximum(between, 1e-300), 1.0)
        sizes, sines = np.split(np.minimum(found, n), [self._coordinates.size])
        sizes[self._angles] = np.minimum(sizes[self._angles], sines)
        return sizes

    def diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Compare the sizes with their bound; see `DrawMonitor`.

        None in a worker process: such a chain is one of several, which PyMC compares.
        """
        if self._n_draws < SETTINGS.min_draws or multiprocessing.parent_process() is not None:
            return None
        sizes = self.sizes()
        bound = bound_on_smallest(sizes.size + self._angles.size)
        order = np.argsort(sizes, kind="stable")
        small = order[sizes[order] < bound]
        if not small.size:
            return None
        size = float(sizes[small[0]])
        return Diagnosis(
            quantity="effective sample size",
            value=size,
            error=size * math.sqrt(2.0 / SETTINGS.n_batches),
            expected=bound,
            limit="at least ",
            format_spec=".0f",
            coordinates=coordinate_names(self._coordinates[small], names),
            n_coordinates=sizes.size,
            consequence="means and intervals of this chain are unreliable",
            remedy=self._remedy,
            anchor="few-effective-draws",
        )


def has_free_signs(manifold: Manifold) -> bool:
    """Whether values do not depend on the signs of their coordinates, as on the simplex."""
    ones = np.ones(manifold.shape)
    return np.array_equal(manifold.from_coordinates(ones), manifold.from_coordinates(-ones))
