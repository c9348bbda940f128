"""Updates of topics by SCIR and SGRLD, given the counts of words in topics.

Topics ω = θ / Σθ are stored as log θ in an array of shape (V, K), in which the K values of a word
are contiguous: documents access them by word, and parts of the vocabulary can be updated in
parallel.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.counts import SMALLEST_VALUE
from pymc_geodesic.kernels.scir import cir_transition
from pymc_geodesic.runtime.jit import Matrix, SmallIntegers, Stack, Stream, Vector, borrow, compiled
from pymc_geodesic.runtime.numerics import exponential
from pymc_geodesic.runtime.streams import fill_normal


@compiled
def sum_words(log_state: Matrix, tops: Vector, sums: Vector) -> None:
    """Sum θ over words, relative to its largest value.

    Parameters
    ----------
    log_state : ndarray, shape (V, K)
        log θ of some words.
    tops, sums : ndarray, shape (K,)
        Receive max log θ and Σ exp(log θ − max log θ) of each topic.
    """
    log_state, tops, sums = borrow(log_state), borrow(tops), borrow(sums)
    n_words, n_topics = log_state.shape
    for k in range(n_topics):
        tops[k] = log_state[0, k]
        sums[k] = 0.0
    for word in range(1, n_words):
        for k in range(n_topics):
            tops[k] = max(tops[k], log_state[word, k])
    for word in range(n_words):
        for k in range(n_topics):
            sums[k] += exponential(log_state[word, k] - tops[k])


@compiled
def read_words(log_state: Matrix, log_totals: Vector, words: SmallIntegers, topics: Matrix) -> None:
    """Compute ω of some words.

    Parameters
    ----------
    log_state : ndarray, shape (V, K)
        log θ.
    log_totals : ndarray, shape (K,)
        log Σθ.
    words : ndarray of int32, shape (n_words,)
    topics : ndarray, shape (n_words, K)
        Receives ω of these words, at least 10⁻²⁹⁰.
    """
    log_state, log_totals, topics = borrow(log_state), borrow(log_totals), borrow(topics)
    for slot in range(words.size):
        word = words[slot]
        for k in range(log_totals.size):
            share = exponential(log_state[word, k] - log_totals[k])
            topics[slot, k] = max(share, SMALLEST_VALUE)


@compiled
def add_counts(
    prior_shape: Matrix, slots: SmallIntegers, counts: Stack, scale: float, shape: Matrix
) -> None:
    """Add the counts of a minibatch, scaled to all data, to the prior.

    Parameters
    ----------
    prior_shape : ndarray, shape (V, K)
        β of some words.
    slots : ndarray of int32, shape (V,)
        Index of these words in ``counts``; −1 for words that are not in the minibatch.
    counts : ndarray, shape (n_parts, n_words, K)
        Counts in the parts of a minibatch.
    scale : float
        N / n.
    shape : ndarray, shape (V, K)
        Receives β + N/n Σ counts.
    """
    prior_shape, counts, shape = borrow(prior_shape), borrow(counts), borrow(shape)
    n_words, n_topics = shape.shape
    for word in range(n_words):
        for k in range(n_topics):
            shape[word, k] = prior_shape[word, k]
        slot = slots[word]
        if slot >= 0:
            for part in range(counts.shape[0]):
                for k in range(n_topics):
                    shape[word, k] += scale * counts[part, slot, k]


@compiled
def scir_words(log_state: Matrix, shape: Matrix, step_size: float, stream: Stream) -> None:
    """Simulate the CIR process with the estimate â for the time h, in place.

    Parameters
    ----------
    log_state : ndarray, shape (V, K)
        log θ of some words.
    shape : ndarray, shape (V, K)
        â, the sum of the prior and the estimated counts of all data.
    step_size : float
        h, a time.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), algorithm 1 and eq. 2.3.
    """
    no_rate, time = np.zeros(1), np.full(1, step_size)
    cir_transition(log_state.reshape(-1), shape.reshape(-1), no_rate, time, stream)


@compiled
def sgrld_words(
    log_state: Matrix,
    shape: Matrix,
    log_totals: Vector,
    count_totals: Vector,
    step_size: float,
    stream: Stream,
) -> None:
    """Take the reflected Euler step of the expanded mean, in place.

    Parameters
    ----------
    log_state, shape
        See `scir_words`.
    log_totals : ndarray, shape (K,)
        log Σθ over all words.
    count_totals : ndarray, shape (K,)
        Estimated counts of the topics, summed over all words.
    step_size : float
        h, half of the ε of Patterson and Teh.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 4.
    """
    log_state, shape = borrow(log_state), borrow(shape)
    n_words, n_topics = log_state.shape
    noise = np.empty(n_topics)
    for word in range(n_words):
        fill_normal(stream, noise)
        for k in range(n_topics):
            state = math.exp(log_state[word, k])
            share = math.exp(log_state[word, k] - log_totals[k])
            drift = shape[word, k] - share * count_totals[k] - state
            state += step_size * drift + math.sqrt(2.0 * step_size * state) * noise[k]
            log_state[word, k] = math.log(max(abs(state), SMALLEST_VALUE))
