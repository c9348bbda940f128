"""Inner steps of SCIR and SGRLD for topic models: topic assignments, then updates of the topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.counts.topic_counts import TopicCountEstimator, TopicCounts
from pymc_geodesic.kernels.topic_assignments import collect_words, sample_documents
from pymc_geodesic.kernels.topic_updates import (
    add_counts,
    read_words,
    scir_words,
    sgrld_words,
    sum_words,
)
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import parts_of


@dataclass(frozen=True)
class TopicRunSettings:
    """Constants of the inner steps.

    Attributes
    ----------
    words_per_part : int
        Number of words that are updated together with one random stream. It is independent of the
        number of cores, so that draws are too.
    """

    words_per_part: int = 500


SETTINGS = TopicRunSettings()

TOPIC_KERNELS = (
    collect_words, read_words, split_stream, sample_documents, sum_words, add_counts
)  # fmt: skip
"""Compiled functions for minibatches of documents, without the update of the words."""

UpdateWords = Callable[[np.ndarray, np.ndarray, np.ndarray, TopicCounts, float, np.ndarray], None]
"""Function that updates some words. Its arguments are log θ and â, both of shape (V, K), log Σθ,
counts, duration and random stream."""


def update_words_exactly(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_totals: np.ndarray,
    counts: TopicCounts,
    time: float,
    stream: np.ndarray,
) -> None:
    """Draw from the exact transition of SCIR; see `UpdateWords`."""
    scir_words(log_state, shape, time, stream)


def update_words_by_euler(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_totals: np.ndarray,
    counts: TopicCounts,
    time: float,
    stream: np.ndarray,
) -> None:
    """Take the reflected Euler step of SGRLD; see `UpdateWords`."""
    sgrld_words(log_state, shape, log_totals, counts.totals, time, stream)


def run_topics(
    estimator: TopicCountEstimator,
    update: UpdateWords,
    position: np.ndarray,
    prior_shape: np.ndarray,
    minibatches: np.ndarray,
    step_size: float,
    stream: np.ndarray,
) -> None:
    """Take one inner step with every minibatch, in place.

    The drift of SCIR is α + n̂ − θ, without the term ω (M − Σn̂) of `pymc_geodesic.kernels.scir.scir`
    for counts with a sum that depends on ω. Draws of topics are therefore biased; the notes of
    `pymc_geodesic.SCIR` state by how much.

    Parameters
    ----------
    estimator : TopicCountEstimator
    update : UpdateWords
    position, prior_shape : ndarray, shape (K, V)
        log θ, and the concentration of the prior of the topics.
    minibatches : ndarray of int64, shape (n_steps,)
        Argument of ``estimator.assign`` for each step.
    step_size : float
        h. For minibatches with fewer documents than the largest it is reduced in proportion.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    """
    log_state = np.ascontiguousarray(position.T)
    prior = np.ascontiguousarray(prior_shape.T)
    shape = np.empty_like(prior)
    n_words, n_topics = log_state.shape
    parts = parts_of(n_words, -(-n_words // SETTINGS.words_per_part))
    largest, sums = np.empty((len(parts), n_topics)), np.empty((len(parts), n_topics))

    def add_up(i: int) -> None:
        sum_words(log_state[parts[i]], largest[i], sums[i])

    estimator.workers.run(add_up, len(parts))
    for minibatch in minibatches:
        top = largest.max(axis=0)
        log_totals = top + np.log(np.sum(sums * np.exp(largest - top), axis=0))
        counts = estimator.assign(log_state, log_totals, int(minibatch), stream)
        time = step_size * counts.share
        streams = split_stream(stream, len(parts))

        def update_part(
            i: int,
            log_totals: np.ndarray = log_totals,
            counts: TopicCounts = counts,
            time: float = time,
            streams: np.ndarray = streams,
        ) -> None:
            part = parts[i]
            add_counts(prior[part], counts.slots[part], counts.parts, counts.scale, shape[part])
            update(log_state[part], shape[part], log_totals, counts, time, streams[i])
            add_up(i)

        estimator.workers.run(update_part, len(parts))
    position[:] = log_state.T
