r"""Collapsed Gibbs sampling of the topics of words, document by document, given the topics.

With :math:`z_i` the topic of token i of a document, its word :math:`w_i`, and the document's
topic proportions θ ~ Dirichlet(α) integrated out,

.. math:: P(z_i = k \mid z_{-i}, \varphi) \propto (\alpha_k + n_k^{-i})\, \varphi_{k w_i},

where :math:`n_k^{-i}` counts the other tokens of the document in topic k. The weights are the
sum of :math:`n_k^{-i} \varphi_{k w_i}`, which is zero but for the few topics that the document
has, and of :math:`\alpha_k \varphi_{k w_i}`, whose sum is the same for every token of a word [1]_.
Documents are independent of each other given the topics φ, so that they can be sampled side by
side.

References
----------
.. [1] L. Yao, D. Mimno, A. McCallum, "Efficient methods for topic model inference on streaming
   document collections", KDD 2009, section 3.4.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import fill_uniform
from pymc_geodesic.runtime.variates import fill_log_gamma

__all__ = ["collect_words", "pick", "sample_documents"]

SMALLEST_TOTAL = 1e-280
"""Sum of weights below which they are taken to logarithms: some may have become zero."""

_GROUP = 8


@compiled
def collect_words(columns: np.ndarray, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """List the words of some documents, each once, in the order in which they come.

    Parameters
    ----------
    columns : ndarray of int, shape (nnz,)
        Word of every non-zero count.
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``columns``.
    slots : ndarray of int32, shape (V,)
        All −1 on entry; receives the place of every word in the list.

    Returns
    -------
    ndarray of int32, shape (n_words,)
    """
    words = np.empty(slots.size, dtype=np.int32)
    n_words = 0
    for row in range(rows.shape[0]):
        for position in range(rows[row, 0], rows[row, 1]):
            word = columns[position]
            if slots[word] < 0:
                slots[word] = n_words
                words[n_words] = word
                n_words += 1
    return words[:n_words].copy()


@compiled(inline="always")
def pick(weights: np.ndarray, left: float) -> int:
    """Choose the index at which the cumulative sum of some weights exceeds a number.

    Parameters
    ----------
    weights : ndarray, shape (n,)
        Not negative.
    left : float
        At least 0, and below their sum; a uniform number times that sum chooses an index with a
        probability proportional to its weight.

    Returns
    -------
    int
    """
    size = weights.size
    start = 0
    # Whole groups are stepped over by their sums, which are vector instructions.
    while start + _GROUP < size:
        group = 0.0
        for k in range(_GROUP):
            group += weights[start + k]
        if left < group:
            break
        left -= group
        start += _GROUP
    for k in range(start, size - 1):
        left -= weights[k]
        if left < 0.0:
            return k
    return size - 1


@compiled
def _first_assignments(
    words: np.ndarray,
    topics: np.ndarray,
    log_theta: np.ndarray,
    uniforms: np.ndarray,
    weights: np.ndarray,
    assignments: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Draw the topic of every token given the proportions θ of its document."""
    n_topics = log_theta.size
    theta = np.exp(log_theta - log_theta.max())
    totals[:] = 0
    for i in range(words.size):
        row = topics[words[i]]
        total = 0.0
        for k in range(n_topics):
            weights[k] = row[k] * theta[k]
            total += weights[k]
        if total < SMALLEST_TOTAL:
            top = -np.inf
            for k in range(n_topics):
                weights[k] = math.log(row[k]) + log_theta[k]
                top = max(top, weights[k])
            total = 0.0
            for k in range(n_topics):
                weights[k] = math.exp(weights[k] - top)
                total += weights[k]
        topic = pick(weights, uniforms[i] * total)
        assignments[i] = topic
        totals[topic] += 1.0


@compiled
def sample_documents(
    values: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    slots: np.ndarray,
    topics: np.ndarray,
    alpha: np.ndarray,
    n_discarded: int,
    n_kept: int,
    streams: np.ndarray,
    log_theta: np.ndarray,
    counts: np.ndarray,
    proportions: np.ndarray,
) -> None:
    r"""Sample the topics of all tokens of some documents, and the proportions of the documents.

    The first topics are drawn from p(z | θ, φ), followed by sweeps that draw every one from
    p(z_i | z₋ᵢ, φ), θ integrated out, and θ from p(θ | z): transitions that leave p(z, θ | φ, w)
    as it is.

    Parameters
    ----------
    values : ndarray, shape (nnz,)
        Counts, whole numbers.
    columns : ndarray of int, shape (nnz,)
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``values`` and ``columns``. A document may be empty.
    slots : ndarray of int32, shape (V,)
        Row of each word in ``topics``.
    topics : ndarray, shape (n_words, K)
        φ of the words of the documents, positive.
    alpha : ndarray, shape (K,)
        Concentration of the proportions.
    n_discarded, n_kept : int
        Sweeps that are not counted, and sweeps that are.
    streams : ndarray of uint64, shape (n, 2)
        One random stream for each document, advanced.
    log_theta : ndarray, shape (n, K)
        log θ; replaced by the draw.
    counts : ndarray, shape (n_words, K)
        Receives, added over documents and kept sweeps, P(z_i = k | z₋ᵢ, φ) of all tokens: the
        counts of words in topics, with the draw of the token itself averaged over.
    proportions : ndarray, shape (n, K)
        Receives E[θ | z], averaged over the kept sweeps.

    References
    ----------
    Griffiths, Steyvers (2004), Finding scientific topics; Patterson, Teh (2013), section 4.
    """
    values, columns, rows, slots = borrow(values), borrow(columns), borrow(rows), borrow(slots)
    topics, alpha, counts = borrow(topics), borrow(alpha), borrow(counts)
    n_words, n_topics = topics.shape
    longest = 0
    for document in range(rows.shape[0]):
        length = 0
        for position in range(rows[document, 0], rows[document, 1]):
            length += int(values[position])
        longest = max(longest, length)
    words = np.empty(longest, dtype=np.int32)
    assignments = np.empty(longest, dtype=np.int32)
    uniforms = np.empty(longest)
    weights = np.empty(n_topics)
    totals = np.empty(n_topics)
    present = np.empty(n_topics, dtype=np.int32)
    places = np.empty(n_topics, dtype=np.int32)
    smoothing = np.zeros(n_words)
    for word in range(n_words):
        for k in range(n_topics):
            smoothing[word] += alpha[k] * topics[word, k]
    # Σ 1 / total over the tokens of a word, by which its α φ enters the expected counts.
    inverses = np.zeros(n_words)
    alpha_sum = alpha.sum()
    for document in range(rows.shape[0]):
        length = 0
        for position in range(rows[document, 0], rows[document, 1]):
            for _ in range(int(values[position])):
                words[length] = slots[columns[position]]
                length += 1
        stream = streams[document]
        fill_uniform(stream, uniforms[:length])
        _first_assignments(
            words[:length], topics, log_theta[document], uniforms, weights, assignments, totals
        )
        n_present = 0
        for k in range(n_topics):
            proportions[document, k] = 0.0
            if totals[k] > 0.0:
                present[n_present], places[k] = k, n_present
                n_present += 1
        for sweep in range(n_discarded + n_kept):
            fill_uniform(stream, uniforms[:length])
            kept = sweep >= n_discarded
            for i in range(length):
                word, topic = words[i], assignments[i]
                totals[topic] -= 1.0
                if totals[topic] == 0.0:
                    n_present -= 1
                    present[places[topic]] = present[n_present]
                    places[present[n_present]] = places[topic]
                own = 0.0
                for j in range(n_present):
                    weights[j] = totals[present[j]] * topics[word, present[j]]
                    own += weights[j]
                total = own + smoothing[word]
                if kept:
                    share = 1.0 / total
                    inverses[word] += share
                    for j in range(n_present):
                        counts[word, present[j]] += share * weights[j]
                left = uniforms[i] * total
                if left < own:
                    topic = present[pick(weights[:n_present], left)]
                else:
                    for k in range(n_topics):
                        weights[k] = alpha[k] * topics[word, k]
                    topic = pick(weights, left - own)
                assignments[i] = topic
                if totals[topic] == 0.0:
                    present[n_present], places[topic] = topic, n_present
                    n_present += 1
                totals[topic] += 1.0
            if kept:
                share = 1.0 / (n_kept * (length + alpha_sum))
                for k in range(n_topics):
                    proportions[document, k] += share * (alpha[k] + totals[k])
        for k in range(n_topics):
            weights[k] = alpha[k] + totals[k]
        fill_log_gamma(stream, weights, log_theta[document])
        top = log_theta[document].max()
        total = 0.0
        for k in range(n_topics):
            total += math.exp(log_theta[document, k] - top)
        shift = top + math.log(total)
        for k in range(n_topics):
            log_theta[document, k] -= shift
    for word in range(n_words):
        if inverses[word] > 0.0:
            for k in range(n_topics):
                counts[word, k] += inverses[word] * alpha[k] * topics[word, k]
