"""Whether the densities that chains saw in different shards are one and the same posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

N_PLACES = 8
"""Draws at which the gradients of all shards are compared."""

LARGEST_SHIFT = 0.3
"""Shift of a shard, in posterior standard deviations, above which draws are too wide: half its
square is what it adds to their standard deviation."""


def shifts_of_shards(
    gradients: np.ndarray, probabilities: Sequence[float], covariance: np.ndarray
) -> np.ndarray:
    """How far the mean of what each shard shows lies from that of all, along each direction.

    A density whose gradient differs by δ from that of the posterior, whose covariance is Σ, has a
    mean that is Σδ off.

    Parameters
    ----------
    gradients : ndarray, shape (shard, place, size)
        Of the log-density that chains see in each shard, at draws.
    probabilities : sequence of float
        With which shards are visited.
    covariance : ndarray, shape (size, size)

    Returns
    -------
    ndarray, shape (shard,)
        Largest shift over the coordinates, in posterior standard deviations.
    """
    mean = np.einsum("s,spi->pi", np.asarray(probabilities), gradients)
    away = np.mean(gradients - mean, axis=1) @ covariance
    widths = np.sqrt(np.diag(covariance))
    moving = widths > 0
    return np.max(np.abs(away[:, moving]) / widths[moving], axis=1)


class Agreement(NamedTuple):
    """How far shards agree.

    Attributes
    ----------
    shifts : ndarray, shape (shard,)
        Shift of each, in posterior standard deviations.
    complaint : str or None
        What is wrong, if anything.
    variance_inflation : float or None
        Share that the visits add to the variance, where that is known.
    """

    shifts: np.ndarray
    complaint: str | None
    variance_inflation: float | None = None


def judged(shifts: np.ndarray, *, conducive: bool) -> Agreement:
    """Say of shifts whether they are too large."""
    worst = int(np.argmax(shifts))
    if not shifts[worst] > LARGEST_SHIFT:
        return Agreement(shifts, None)
    remedy = "rows that were shuffled over the shards, fewer shards or shorter visits (visit=)"
    if not conducive:
        remedy = f"conducive=True, {remedy}"
    complaint = (
        f"shard {worst} by itself would have a posterior mean {shifts[worst]:.2g} standard "
        f"deviations off: shards are too unlike, and the draws too wide. Try {remedy}."
    )
    return Agreement(shifts, complaint)
