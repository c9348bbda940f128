r"""Heterogeneity of shards: how far the posteriors that chains target in them differ.

For documents, a chain that stays in shard s for a time T follows counts n_s/f_s instead of
Σ_t n_t. If shards are visited in cycles this adds to the variance of topics, as minibatches do,

.. math::

    \sum_s f_s d_s^2 \, v(T, S) ,

with d_s the distance between the two in posterior standard deviations, and v the variance that
minibatches of unit variance add (`shuffled_inflation`; `independent_inflation` if shards are drawn
with probabilities).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_geodesic.adaptation.variance_inflation import independent_inflation, shuffled_inflation
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.distributed.laplace import LaplaceApproximation, point_to_position
from pymc_geodesic.distributed.visits import VisitDraws
from pymc_geodesic.distributed.workers import WorkerPool

N_POINTS = 8
"""Draws at which the gradients of all shards are compared."""

MAX_SHIFT = 0.3
"""Shift of a shard in posterior standard deviations above which a warning is issued: the standard
deviation of the draws is overestimated by half the square of the shift."""

N_TOPIC_POINTS = 2
"""Draws at which the counts of documents are compared."""

MAX_WORDS = 1000
"""Number of words that are compared, those of the largest probability."""

MAX_INFLATION = 0.1
"""Relative increase of the variance of topics above which a warning is issued."""


class Heterogeneity(NamedTuple):
    """Difference between the targets of the shards.

    Attributes
    ----------
    shifts : ndarray, shape (shard,)
        Shift of the mean of each shard's target, in posterior standard deviations.
    warning : str or None
        Message, if the difference biases the draws.
    variance_inflation : float or None
        Relative increase of the variance due to the visits, for topics.
    """

    shifts: np.ndarray
    warning: str | None
    variance_inflation: float | None = None


def last_points(chains: Sequence[Sequence[VisitDraws]], n: int) -> list[dict[str, np.ndarray]]:
    """Last draws of the last visits of all chains, at most `n`."""
    n = min(n, len(chains) * min(len(visits) for visits in chains))
    last = [chains[i % len(chains)][-1 - i // len(chains)] for i in range(n)]
    return [{name: drawn[-1] for name, drawn in visit.values.items()} for visit in last]


def check_shifts(shifts: np.ndarray, *, conducive: bool) -> Heterogeneity:
    """Compare the shifts with `MAX_SHIFT`, and compose the warning."""
    worst = int(np.argmax(shifts))
    if not shifts[worst] > MAX_SHIFT:
        return Heterogeneity(shifts, None)
    remedy = "rows that were shuffled over the shards, fewer shards or shorter visits (visit=)"
    if not conducive:
        remedy = f"conducive=True, {remedy}"
    warning = (
        f"The shards are too heterogeneous: the target of shard {worst} has a mean "
        f"{shifts[worst]:.2g} posterior standard deviations away, and the draws overestimate the "
        f"posterior variance. Try {remedy}."
    )
    return Heterogeneity(shifts, warning)


def gradient_shifts(
    gradients: np.ndarray, probabilities: Sequence[float], covariance: np.ndarray
) -> np.ndarray:
    """Distance of the mean of each shard's target from that of the posterior.

    A density whose gradient differs by δ from that of the posterior, whose covariance is Σ, has a
    mean that differs by Σδ.

    Parameters
    ----------
    gradients : ndarray, shape (shard, point, size)
        Gradients of the target of each shard at draws.
    probabilities : sequence of float
        With which shards are visited.
    covariance : ndarray, shape (size, size)

    Returns
    -------
    ndarray, shape (shard,)
        Largest shift over the coordinates, in posterior standard deviations.
    """
    mean = np.einsum("s,spi->pi", np.asarray(probabilities), gradients)
    shift = np.mean(gradients - mean, axis=1) @ covariance
    sd = np.sqrt(np.diag(covariance))
    varies = sd > 0
    return np.max(np.abs(shift[:, varies]) / sd[varies], axis=1)


def compare_gradients(
    pool: WorkerPool,
    approximation: LaplaceApproximation,
    variables: Sequence[ManifoldVariable],
    probabilities: np.ndarray,
    chains: Sequence[Sequence[VisitDraws]],
    *,
    conducive: bool,
) -> Heterogeneity:
    """Compare the gradients of all shards at the last draws; see `gradient_shifts`."""
    positions = [point_to_position(variables, p) for p in last_points(chains, N_POINTS)]
    gradients = np.array(pool.map("gradients", np.array(positions)))
    shifts = gradient_shifts(gradients, list(probabilities), approximation.covariance)
    return check_shifts(shifts, conducive=conducive)


def compare_topics(
    pool: WorkerPool,
    topics: ManifoldVariable,
    probabilities: np.ndarray,
    chains: Sequence[Sequence[VisitDraws]],
    seed: int,
    *,
    cycles: bool,
) -> Heterogeneity:
    """Compare the drift of topics due to the documents of each shard, at the last draws.

    Parameters
    ----------
    pool : WorkerPool
    topics : ManifoldVariable
    probabilities : ndarray, shape (shard,)
        With which shards are visited.
    chains : sequence of sequence of VisitDraws
    seed : int
    cycles : bool
        Whether each shard is visited once per cycle.
    """
    squares = np.zeros(len(probabilities))
    points = last_points(chains, N_TOPIC_POINTS)
    for number, point in enumerate(points):
        proportions = topics.backward(np.asarray(point[topics.value_name]))
        words = np.argsort(-proportions.sum(axis=0), kind="stable")[:MAX_WORDS]
        found = pool.map("topic_drift", point, words, seed + number)
        drift = np.stack([each.drift for each in found])
        drift -= np.tensordot(probabilities, drift, axes=1)
        variance = probabilities @ [each.variance for each in found]
        # the product of independent estimates has no bias, and may be negative
        squares += np.einsum("skw,skw->s", drift[:, 0], drift[:, 1]) / variance
    rate = float(probabilities @ [each.rate for each in found])
    return _check_inflation(
        squares / len(points), probabilities, rate * _time_of_visit(chains), cycles=cycles
    )


def _check_inflation(
    squares: np.ndarray, probabilities: np.ndarray, time: float, *, cycles: bool
) -> Heterogeneity:
    """Variance inflation of topics by visits that last `time` relaxation times."""
    shifts = np.sqrt(np.maximum(squares, 0.0))
    added = shuffled_inflation(time, len(squares)) if cycles else independent_inflation(time)
    inflation = max(float(probabilities @ squares) * added, 0.0)
    if inflation <= MAX_INFLATION:
        return Heterogeneity(shifts, None, inflation)
    warning = (
        f"The documents of different shards imply topics that are up to {shifts.max():.2g} "
        "posterior standard deviations apart, and visits are so long that this increases the "
        f"variance of the draws by {100 * inflation:.0f} %. Try a smaller step_size, shorter "
        "visits (visit=, n_steps=), or documents that were shuffled over fewer shards."
    )
    return Heterogeneity(shifts, warning, inflation)


def _time_of_visit(chains: Sequence[Sequence[VisitDraws]]) -> float:
    """Mean integration time of the last visits; the very last may be short."""
    times = [
        max(float(visit.stats["step_size"] @ visit.stats["n_grad"]) for visit in visits[-2:])
        for visits in chains
    ]
    return float(np.mean(times))
