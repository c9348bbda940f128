"""Inner steps of a sampler of topics: assign the words of a minibatch, then move the topics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_geodesic.counts.estimate import AssignsTopics
from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.kernels.topic_assignments import collect_words, sample_documents
from pymc_geodesic.kernels.topic_updates import add_counts, read_words, sum_words
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import parts_of

__all__ = ["TOPIC_KERNELS", "MoveWords", "run_topics"]

WORDS_OF_PART = 500
"""Words that are moved together; their order is fixed, whatever the number of cores."""

TOPIC_KERNELS = (
    collect_words, read_words, split_stream, sample_documents, sum_words, add_counts
)  # fmt: skip
"""Compiled functions that every minibatch of documents needs, apart from the move of the words."""

MoveWords = Callable[[np.ndarray, np.ndarray, np.ndarray, TopicCounts, float, np.ndarray], None]
"""Move of some words: log θ and â of shape (V, K), log Σθ, counts, step size and stream."""


def run_topics(
    estimator: AssignsTopics,
    move: MoveWords,
    position: np.ndarray,
    prior_shape: np.ndarray,
    arguments: np.ndarray,
    step_size: float,
    stream: np.ndarray,
) -> None:
    """Take one inner step with every minibatch, in place.

    Parameters
    ----------
    estimator : AssignsTopics
    move : MoveWords
        Kernel of the sampler.
    position, prior_shape : ndarray, shape (K, V)
        log θ and β.
    arguments : ndarray of int64, shape (n_steps,)
        One argument of the estimator for each step.
    step_size : float
        h, a time; minibatches with fewer documents than the largest are followed for less.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    """
    log_state = np.ascontiguousarray(position.T)
    prior = np.ascontiguousarray(prior_shape.T)
    shape = np.empty_like(prior)
    n_words, n_topics = log_state.shape
    parts = parts_of(n_words, -(-n_words // WORDS_OF_PART))
    tops, sums = np.empty((len(parts), n_topics)), np.empty((len(parts), n_topics))

    def add_up(i: int) -> None:
        sum_words(log_state[parts[i]], tops[i], sums[i])

    estimator.workers.run(add_up, len(parts))
    for argument in arguments:
        top = tops.max(axis=0)
        log_totals = top + np.log(np.sum(sums * np.exp(tops - top), axis=0))
        found = estimator.assign(log_state, log_totals, int(argument), stream)
        time = step_size * found.share
        streams = split_stream(stream, len(parts))

        def move_part(
            i: int,
            log_totals: np.ndarray = log_totals,
            found: TopicCounts = found,
            time: float = time,
            streams: np.ndarray = streams,
        ) -> None:
            part = parts[i]
            add_counts(prior[part], found.slots[part], found.parts, found.scale, shape[part])
            move(log_state[part], shape[part], log_totals, found, time, streams[i])
            add_up(i)

        estimator.workers.run(move_part, len(parts))
    position[:] = log_state.T
