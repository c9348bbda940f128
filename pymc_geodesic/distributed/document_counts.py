"""Counts of words of the documents of a shard, and the drift of topics that they imply."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_geodesic.counts.layout import log_of_value
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.steps.pymc_parts import PointType
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgrld import SGRLD

N_DOCUMENTS = 500
"""Documents of each of two samples."""


class TopicPushes(NamedTuple):
    """Where documents push topics, in counts of words, estimated twice.

    Attributes
    ----------
    away : ndarray, shape (2, K, n_words)
        n̂ − ω Σn̂, of two samples of documents.
    spread : float
        Sum of (β + n̂)(1 − ω) over the words: what the topics vary by given the counts.
    rate : float
        How often topics come back to their law within one unit of time, of the mean over words.
    """

    away: np.ndarray
    spread: float
    rate: float


class DocumentCounts:
    """Counts of documents at given topics.

    Parameters
    ----------
    step : SCIR or SGRLD
        It has topics, and local proportions.
    """

    def __init__(self, step: SCIR | SGRLD) -> None:
        self._step = step

    def pushes(self, point: PointType, words: np.ndarray, seed: int) -> TopicPushes:
        """Say where documents push topics.

        Parameters
        ----------
        point : dict
            With the topics.
        words : ndarray of int
            Words that are looked at.
        seed : int
            Which documents, and how their words are assigned.
        """
        step = self._step
        (topics,) = step.variables
        logarithm = log_of_value(topics, step.model, np.asarray(point[topics.value_name]))
        values = np.exp(logarithm - logarithm.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
        step.estimator.set_others(point)
        step.estimator.source.reset(seed)
        stream = new_stream(np.random.default_rng(seed))
        counts = np.stack([self._counted(values, stream) for _ in range(2)])
        away = counts - values * counts.sum(axis=-1, keepdims=True)
        prior = step.sampler.priors(point)[0].reshape(values.shape)
        spread = ((prior + counts.mean(axis=0)) * (1.0 - values))[:, words]
        rate = 1.0
        if not step.sampler.inner_steps.adds_counts_to_total:  # the likelihood changes ω alone
            in_topics = counts.mean(axis=0).sum(axis=1)
            rate += in_topics @ (in_topics / prior.sum(axis=1)) / max(in_topics.sum(), 1.0)
        return TopicPushes(away[..., words], float(spread.sum()), float(rate))

    def _counted(self, values: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Mean of the counts of some minibatches, shape (K, V)."""
        estimator = self._step.estimator
        estimator.forget_local()
        found, exposures = np.empty(values.size), np.empty(values.size)
        total = np.zeros(values.size)
        arguments = estimator.next_minibatches(-(-N_DOCUMENTS // estimator.source.batch_size))
        for argument in arguments:
            estimator.estimate(values.ravel(), int(argument), stream, found, exposures)
            total += found
        return (total / len(arguments)).reshape(values.shape)
