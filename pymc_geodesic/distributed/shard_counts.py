r"""Counts of all shards together, for proportions and positive numbers.

The likelihood of a shard, as minibatches of SCIR see it, is counts n_s(ω) and exposures c_s(ω). A
chain that visits shard s with probability f_s follows

.. math::

    \sum_t n_t(\omega^*) + \frac{1}{f_s} \bigl(\hat n_s(\omega) - \hat n_s(\omega^*)\bigr) ,

which on average over the visits is the sum over all shards. The surrogate of a shard is the
Dirichlet or gamma law of its counts at ω*. Of labels and of Poisson numbers it is the likelihood
itself; where counts change with ω, as those of mixtures do, it says nothing of that change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_geodesic.distributed.crew import Crew
from pymc_geodesic.kernels.counts import CountsAt

MOST_PASSES = 20
"""Times that all rows are counted."""

STILL = 0.1
"""Change of a count, in standard deviations, below which counts are centred well enough."""


def common_counts(crew: Crew, start: dict[str, np.ndarray]) -> CountsAt:
    """Count the rows of all shards at a place that these counts agree with.

    From one pass to the next the variables are set to their means given the counts (the EM
    algorithm where something latent is summed over).
    """
    found = _counted(crew, crew.call(0, "values_of", start))
    for _ in range(MOST_PASSES):
        before, found = found, _counted(crew, crew.call(0, "mean_given", found))
        change = CountsAt(
            found.values, found.counts - before.counts, found.exposures - before.exposures
        )
        if np.abs(crew.call(0, "in_deviations", change, found)).max() < STILL:
            break
    return found


def _counted(crew: Crew, values: np.ndarray) -> CountsAt:
    parts = crew.map("count_at", values)
    return CountsAt(values, sum(p.counts for p in parts), sum(p.exposures for p in parts))


def shifts_of_counts(
    crew: Crew,
    common: CountsAt,
    f: np.ndarray,
    points: Sequence[dict[str, np.ndarray]],
) -> np.ndarray:
    """Compare what the shards count at draws, in standard deviations given the counts of all.

    Parameters
    ----------
    crew : Crew
    common : CountsAt
        Of all shards.
    f : ndarray, shape (shard,)
        Probabilities with which shards are visited.
    points : sequence of dict
        Draws.

    Returns
    -------
    ndarray, shape (shard,)
        Largest shift over the variables, the root of its mean square over the draws: what a shard
        leaves out has another sign on the other side of ω*.
    """
    own = crew.map("count_at", common.values)
    squares = np.zeros((len(f), common.values.size))
    for point in points:
        values = crew.call(0, "values_of", point)
        there = crew.map("count_at", values)
        changes = [
            CountsAt(values, (a.counts - b.counts) / g, (a.exposures - b.exposures) / g)
            for a, b, g in zip(there, own, f, strict=True)
        ]
        pushes = np.array([crew.call(0, "in_deviations", each, common) for each in changes])
        squares += (pushes - f @ pushes) ** 2
    return np.sqrt(squares.max(axis=1) / len(points))
