"""Moves of topics, rows of a matrix on the simplex, given the counts of their words."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.jit import compiled
from pymc_geodesic.kernels.scir import SIMPLEX, SMALLEST_VALUE, cir_transition, expand_values
from pymc_geodesic.streams import fill_normal

__all__ = ["expand_topics", "scir_topics", "sgrld_topics"]


@compiled
def expand_topics(log_state: np.ndarray, topics: np.ndarray) -> None:
    """Turn log θ into ω = θ / Σθ, row by row.

    Parameters
    ----------
    log_state : ndarray, shape (K, V)
    topics : ndarray, shape (K, V)
        Receives ω, no less than 10⁻²⁹⁰.
    """
    n_topics, n_words = log_state.shape
    blocks = np.array([[SIMPLEX, 0, n_topics, n_words]])
    expand_values(blocks, log_state.reshape(-1), topics.reshape(-1))


@compiled
def scir_topics(
    log_state: np.ndarray,
    prior_shape: np.ndarray,
    counts: np.ndarray,
    topics: np.ndarray,
    step_size: float,
    streams: np.ndarray,
) -> None:
    """Follow the CIR process with â = β + counts for the time h, in place.

    Parameters
    ----------
    log_state : ndarray, shape (K, V)
        log θ.
    prior_shape, counts : ndarray, shape (K, V)
        β and the counts of all data that a minibatch estimates.
    topics : ndarray, shape (K, V)
        Receives ω after the move.
    step_size : float
        h, a time.
    streams : ndarray of uint64, shape (K, 2)
        One random stream per topic, advanced.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), algorithm 1 and eq. 2.3.
    """
    no_rate, time = np.zeros(1), np.full(1, step_size)
    shape = np.empty(log_state.shape[1])
    for topic in range(log_state.shape[0]):
        for word in range(shape.size):
            shape[word] = prior_shape[topic, word] + counts[topic, word]
        cir_transition(log_state[topic], shape, no_rate, time, streams[topic])
    expand_topics(log_state, topics)


@compiled
def sgrld_topics(
    log_state: np.ndarray,
    prior_shape: np.ndarray,
    counts: np.ndarray,
    topics: np.ndarray,
    step_size: float,
    streams: np.ndarray,
) -> None:
    """Take the reflected Euler step of the expanded mean, in place.

    Parameters
    ----------
    log_state, prior_shape, counts
        See `scir_topics`.
    topics : ndarray, shape (K, V)
        ω before the move; receives ω after it.
    step_size : float
        h, half of the ε of the authors.
    streams : ndarray of uint64, shape (K, 2)
        One random stream per topic, advanced.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 4.
    """
    noise = np.empty(log_state.shape[1])
    for topic in range(log_state.shape[0]):
        fill_normal(streams[topic], noise)
        total = 0.0
        for word in range(noise.size):
            total += counts[topic, word]
        for word in range(noise.size):
            state = math.exp(log_state[topic, word])
            drift = prior_shape[topic, word] + counts[topic, word]
            drift -= topics[topic, word] * total + state
            state += step_size * drift + math.sqrt(2.0 * step_size * state) * noise[word]
            log_state[topic, word] = math.log(max(abs(state), SMALLEST_VALUE))
    expand_topics(log_state, topics)
