r"""Whether documents in different shards say the same of topics, and what it does to draws.

A chain that stays in shard s for a time T follows counts n_s/f_s instead of Σ_t n_t. Where the
shards are visited in cycles this adds to the variance of topics, as blocks of rows do,

.. math::

    \sum_s f_s d_s^2 \, v(T, S) ,

d_s the distance between the two in posterior standard deviations, and v what blocks of variance one
add (`shuffled_inflation`; `independent_inflation` where shards are drawn with probabilities).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_geodesic.adaptation.variance_inflation import independent_inflation, shuffled_inflation
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.distributed.agreement import Agreement
from pymc_geodesic.distributed.crew import Crew
from pymc_geodesic.distributed.resident import VisitDraws
from pymc_geodesic.distributed.settling import last_points

N_PLACES = 2
"""Draws at which shards are compared."""

MOST_WORDS = 1000
"""Words that are looked at, those of the largest probability."""

REPORTED_INFLATION = 0.1
"""Excess of the variance from which there is a warning."""


def judged_visits(
    squares: np.ndarray, probabilities: np.ndarray, time: float, *, cycles: bool
) -> Agreement:
    """Say what visits add to the variance of topics.

    Parameters
    ----------
    squares : ndarray, shape (shard,)
        Squared distances in posterior standard deviations, of the mean over words and topics. As
        they are estimated without bias, small ones may be negative.
    probabilities : ndarray, shape (shard,)
        With which shards are visited.
    time : float
        Of a visit, in relaxation times.
    cycles : bool
        Whether every shard comes once before any comes again.
    """
    shifts = np.sqrt(np.maximum(squares, 0.0))
    added = shuffled_inflation(time, len(squares)) if cycles else independent_inflation(time)
    inflation = max(float(probabilities @ squares) * added, 0.0)
    if inflation <= REPORTED_INFLATION:
        return Agreement(shifts, None, inflation)
    complaint = (
        f"documents in different shards push topics to different places, by {shifts.max():.2g} "
        "posterior standard deviations, and visits are so long that this widens the variance by "
        f"{100 * inflation:.0f} %. Try a smaller step_size, shorter visits (visit=, n_steps=), or "
        "documents that were shuffled over fewer shards."
    )
    return Agreement(shifts, complaint, inflation)


def agreement_on_topics(
    crew: Crew,
    topics: ManifoldVariable,
    probabilities: np.ndarray,
    chains: Sequence[Sequence[VisitDraws]],
    seed: int,
    *,
    cycles: bool,
) -> Agreement:
    """Compare where documents of all shards push topics, at some of the last draws."""
    squares = np.zeros(len(probabilities))
    points = last_points(chains)[:N_PLACES]
    for number, point in enumerate(points):
        shares = topics.backward(np.asarray(point[topics.value_name]))
        words = np.argsort(-shares.sum(axis=0), kind="stable")[:MOST_WORDS]
        told = crew.map("topic_pushes", point, words, seed + number)
        away = np.stack([each.away for each in told])
        away -= np.tensordot(probabilities, away, axes=1)
        spread = probabilities @ [each.spread for each in told]
        squares += np.einsum("skw,skw->s", away[:, 0], away[:, 1]) / spread
    rate = float(probabilities @ [each.rate for each in told])
    time = rate * _time_of_visit(chains)
    return judged_visits(squares / len(points), probabilities, time, cycles=cycles)


def _time_of_visit(chains: Sequence[Sequence[VisitDraws]]) -> float:
    """Time that chains spent in their last visits, of which the very last may be short."""
    times = [
        max(float(visit.stats["step_size"] @ visit.stats["n_grad"]) for visit in visits[-2:])
        for visits in chains
    ]
    return float(np.mean(times))
