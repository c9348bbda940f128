"""Moves of topics, word by word, given the counts of the words in them.

Topics ω = θ / Σθ are kept as log θ in an array of shape (V, K), the K numbers of a word side by
side: that is how the documents read them, and parts of the vocabulary can be moved side by side.
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
        Receive max log θ and Σ exp(log θ − max log θ) of every topic.
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
        Receives ω of these words, no less than 10⁻²⁹⁰.
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
    """Add the counts of a minibatch, as estimates for all data, to the prior.

    Parameters
    ----------
    prior_shape : ndarray, shape (V, K)
        β of some words.
    slots : ndarray of int32, shape (V,)
        Place of these words in ``counts``; −1 where the minibatch does not hold a word.
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
    """Follow the CIR process with the estimate â for the time h, in place.

    Parameters
    ----------
    log_state : ndarray, shape (V, K)
        log θ of some words.
    shape : ndarray, shape (V, K)
        â, the prior and the counts of all data that a minibatch estimates.
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
        Counts of the topics that the minibatch estimates, over all words.
    step_size : float
        h, half of the ε of the authors.
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
