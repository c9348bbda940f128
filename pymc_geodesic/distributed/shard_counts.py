r"""Counts of the rows of shards, for proportions, positive numbers and topics.

The likelihood of a shard, as the minibatches of SCIR estimate it, is given by counts n_s(ω) and
exposures c_s(ω). A chain that visits shard s with probability f_s follows

.. math::

    \sum_t n_t(\omega^*) + \frac{1}{f_s} \bigl(\hat n_s(\omega) - \hat n_s(\omega^*)\bigr) ,

which on average over the visits is the sum over all shards. The surrogate of a shard is the
Dirichlet or gamma density with its counts at ω*. For labels and Poisson counts it equals the
likelihood. If counts depend on ω, as in mixtures, it ignores this dependence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_geodesic.counts.layout import log_of_value
from pymc_geodesic.distributed.heterogeneity import (
    N_POINTS,
    Heterogeneity,
    check_shifts,
    last_points,
)
from pymc_geodesic.distributed.visits import VisitDraws
from pymc_geodesic.distributed.workers import WorkerPool
from pymc_geodesic.kernels.counts import LOG_NORMAL, SIMPLEX, CountsAt
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgrld import SGRLD

MAX_PASSES = 20
"""Passes over all rows in the search for ω*."""

TOLERANCE = 0.1
"""Change of a count, in standard deviations, at which the search for ω* stops."""

N_DOCUMENTS = 500
"""Documents in each of two subsamples that estimate the drift of topics."""

Point = dict[str, np.ndarray]


class RowCounts:
    """Counts of all rows of a shard, and the conjugate posterior that they imply.

    Parameters
    ----------
    step : SCIR
        It samples all variables, so that their priors are constant.
    share : float
        Inverse of the weight of each row in the counts of the step.
    """

    def __init__(self, step: SCIR, share: float) -> None:
        self._step, self._share = step, share
        self._estimate = step.estimator.compile_all_rows()
        self._shape, self._rate = step.sampler.priors({})
        self._layout = step.sampler.layout

    def values_of(self, point: Point) -> np.ndarray:
        """Values of the variables at a point, shape (size,): proportions and positive numbers."""
        return self._layout.values(self._step.packing.pack(point))

    def at(self, values: np.ndarray) -> CountsAt:
        """Count each row once.

        Raises
        ------
        ValueError
            If a count is negative or not finite.
        """
        counts, exposures = np.empty(values.size), np.empty(values.size)
        failed = self._estimate(values.copy(), counts, exposures)
        if failed >= 0:
            names = [variable.name for variable in self._step.variables]
            raise ValueError(
                f"the counts of the rows of a shard are negative or not finite for one of {names}: "
                "check the shards for NaN, or pass conducive=False"
            )
        return CountsAt(values, self._share * counts, self._share * exposures)

    def posterior_mean(self, found: CountsAt) -> np.ndarray:
        """Mean of the variables given counts; for log-normal ones exp of the mean logarithm."""
        shape, rate = self._shape + found.counts, self._rate + found.exposures
        values = shape / rate
        for kind, start, rows, width in self._layout.table:
            part = slice(start, start + rows * width)
            if kind == LOG_NORMAL:
                values[part] = np.exp(values[part])
            elif kind == SIMPLEX:
                table = values[part].reshape(rows, width)
                values[part] = (table / table.sum(axis=1, keepdims=True)).ravel()
        return values

    def standardize(self, change: CountsAt, found: CountsAt) -> np.ndarray:
        """Shift of the variables by a change of counts, in posterior standard deviations.

        Parameters
        ----------
        change : CountsAt
            Counts and exposures that are added, at some values of the variables.
        found : CountsAt
            Counts of all rows.

        Returns
        -------
        ndarray, shape (size,)
        """
        is_log_normal = self._layout.is_log_normal
        location = np.where(is_log_normal, np.log(change.values), change.values)
        precision = np.where(
            is_log_normal, self._rate + found.exposures, self._shape + found.counts
        )
        return (change.counts - change.exposures * location) / np.sqrt(precision)


def common_counts(pool: WorkerPool, start: Point) -> CountsAt:
    """Count the rows of all shards at a fixed point ω*.

    In each pass the variables are set to their means given the counts (the EM algorithm if latent
    variables are marginalized).
    """
    found = _sum_counts(pool, pool.call(0, "values_of", start))
    for _ in range(MAX_PASSES):
        before, found = found, _sum_counts(pool, pool.call(0, "posterior_mean", found))
        change = CountsAt(
            found.values, found.counts - before.counts, found.exposures - before.exposures
        )
        if np.abs(pool.call(0, "standardize", change, found)).max() < TOLERANCE:
            break
    return found


def _sum_counts(pool: WorkerPool, values: np.ndarray) -> CountsAt:
    parts = pool.map("count_at", values)
    return CountsAt(values, sum(p.counts for p in parts), sum(p.exposures for p in parts))


def compare_counts(
    pool: WorkerPool,
    common: CountsAt,
    f: np.ndarray,
    chains: Sequence[Sequence[VisitDraws]],
) -> Heterogeneity:
    """Compare the counts of the shards at the last draws.

    The shift of a shard is the largest over the variables of its root mean square over the draws:
    the deviation of a surrogate changes sign at ω*.

    Parameters
    ----------
    pool : WorkerPool
    common : CountsAt
        Of all shards.
    f : ndarray, shape (shard,)
        Probabilities with which shards are visited.
    chains : sequence of sequence of VisitDraws
    """
    points = last_points(chains, N_POINTS)
    own = pool.map("count_at", common.values)
    squares = np.zeros((len(f), common.values.size))
    for point in points:
        values = pool.call(0, "values_of", point)
        found = pool.map("count_at", values)
        changes = [
            CountsAt(values, (a.counts - b.counts) / g, (a.exposures - b.exposures) / g)
            for a, b, g in zip(found, own, f, strict=True)
        ]
        shifts = np.array([pool.call(0, "standardize", each, common) for each in changes])
        squares += (shifts - f @ shifts) ** 2
    return check_shifts(np.sqrt(squares.max(axis=1) / len(points)), conducive=True)


class TopicDrift(NamedTuple):
    """Drift of topics due to the documents of a shard, in counts of words, estimated twice.

    Attributes
    ----------
    drift : ndarray, shape (2, K, n_words)
        n̂ − ω Σn̂, of two subsamples of documents.
    variance : float
        Sum of (β + n̂)(1 − ω) over the words: the variance of the topics given the counts.
    rate : float
        Relaxation rate of the topics per unit of time, mean over words.
    """

    drift: np.ndarray
    variance: float
    rate: float


class DocumentCounts:
    """Counts of words of the documents of a shard, and the drift of topics that they imply.

    Parameters
    ----------
    step : SCIR or SGRLD
        With topics, and local proportions.
    """

    def __init__(self, step: SCIR | SGRLD) -> None:
        self._step = step

    def drift(self, point: Point, words: np.ndarray, seed: int) -> TopicDrift:
        """Estimate the drift of topics.

        Parameters
        ----------
        point : dict
            With the topics.
        words : ndarray of int
            Words that are compared.
        seed : int
            Of the subsamples of documents and the topic assignments.
        """
        step = self._step
        (topics,) = step.variables
        logarithm = log_of_value(topics, step.model, np.asarray(point[topics.value_name]))
        values = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
        step.estimator.set_others(point)
        step.estimator.source.reset(seed)
        stream = new_stream(np.random.default_rng(seed))
        counts = np.stack([self._mean_counts(values, stream) for _ in range(2)])
        drift = counts - values * counts.sum(axis=-1, keepdims=True)
        prior = step.sampler.priors(point)[0].reshape(values.shape)
        variance = ((prior + counts.mean(axis=0)) * (1.0 - values))[:, words]
        rate = 1.0
        if not step.sampler.inner_steps.adds_counts_to_total:  # the likelihood changes ω alone
            in_topics = counts.mean(axis=0).sum(axis=1)
            rate += in_topics @ (in_topics / prior.sum(axis=1)) / max(in_topics.sum(), 1.0)
        return TopicDrift(drift[..., words], float(variance.sum()), float(rate))

    def _mean_counts(self, values: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Mean of the counts of some minibatches, shape (K, V)."""
        estimator = self._step.estimator
        estimator.forget_local()
        found, exposures = np.empty(values.size), np.empty(values.size)
        total = np.zeros(values.size)
        minibatches = estimator.next_minibatches(-(-N_DOCUMENTS // estimator.source.batch_size))
        for minibatch in minibatches:
            estimator.estimate(values.ravel(), int(minibatch), stream, found, exposures)
            total += found
        return (total / len(minibatches)).reshape(values.shape)
