r"""Collapsed Gibbs sampling of topic assignments, given the topics.

With :math:`z_i` the topic of token i of a document, its word :math:`w_i`, and the document's
topic proportions θ ~ Dirichlet(α) integrated out,

.. math:: P(z_i = k \mid z_{-i}, \varphi) \propto (\alpha_k + n_k^{-i})\, \varphi_{k w_i},

where :math:`n_k^{-i}` counts the other tokens of the document in topic k. Each weight is the sum
of :math:`n_k^{-i} \varphi_{k w_i}`, which is nonzero only for the few topics of the document, and
of :math:`\alpha_k \varphi_{k w_i}`, whose sum over k is the same for every token of a word [1]_.
Documents are independent given the topics φ, so that they can be sampled in parallel.

References
----------
.. [1] L. Yao, D. Mimno, A. McCallum, "Efficient methods for topic model inference on streaming
   document collections", KDD 2009, section 3.4.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pymc_geodesic.runtime.jit import (
    Matrix,
    SmallIntegers,
    Streams,
    Table,
    Vector,
    borrow,
    compiled,
)
from pymc_geodesic.runtime.streams import fill_uniform, pick
from pymc_geodesic.runtime.variates import fill_log_gamma


class Entries(NamedTuple):
    """Counts of words in documents.

    Parameters
    ----------
    values : ndarray, shape (nnz,)
        Counts, whole numbers.
    columns : ndarray of int, shape (nnz,)
        Index of the word of each count.
    rows : ndarray of int, shape (n, 2)
        Start and stop index of each document in ``values`` and ``columns``. A document may be
        empty.
    """

    values: Vector
    columns: SmallIntegers
    rows: Table


class Topics(NamedTuple):
    """Probabilities of words in topics.

    Parameters
    ----------
    slots : ndarray of int32, shape (V,)
        Row of each word in ``shares``.
    shares : ndarray, shape (n_words, K)
        φ of the words of the documents, positive.
    """

    slots: SmallIntegers
    shares: Matrix


@compiled
def collect_words(columns: SmallIntegers, rows: Table, slots: SmallIntegers) -> np.ndarray:
    """List the distinct words of some documents, in order of first occurrence.

    Parameters
    ----------
    columns : ndarray of int, shape (nnz,)
        Word of every non-zero count.
    rows : ndarray of int, shape (n, 2)
        Start and stop index of each document in ``columns``.
    slots : ndarray of int32, shape (V,)
        All −1 on entry; receives the index of every word in the list.

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


SMALLEST_TOTAL = 1e-280
"""Sum of weights below which weights are computed from logarithms, since some may underflow."""


class Sweeps(NamedTuple):
    """Numbers of sweeps over the tokens of a document.

    Parameters
    ----------
    n_discarded, n_kept : int
        Number of sweeps to discard, and of sweeps to average over.
    """

    n_discarded: int
    n_kept: int


class Expectations(NamedTuple):
    """Expectations over the topic assignments.

    Parameters
    ----------
    counts : ndarray, shape (n_words, K)
        Receives P(z_i = k | z₋ᵢ, φ), summed over tokens, documents and kept sweeps: the counts of
        words in topics, averaged over the draw of each token (Rao-Blackwellized).
    proportions : ndarray, shape (n, K)
        Receives E[θ | z], averaged over the kept sweeps.
    """

    counts: Matrix
    proportions: Matrix


class Document(NamedTuple):
    """Tokens of one document, with their topics.

    Parameters
    ----------
    words, assignments : ndarray of int32, shape (length,)
        Slot of the word, and topic, of each token.
    uniforms : ndarray, shape (length,)
        A uniform variate for each token.
    totals : ndarray, shape (K,)
        Number of tokens in each topic.
    present, present_index : ndarray of int32, shape (K,)
        List of the topics that have tokens, and the index of each of these topics in it.
    """

    words: np.ndarray
    assignments: np.ndarray
    uniforms: np.ndarray
    totals: np.ndarray
    present: np.ndarray
    present_index: np.ndarray


class Smoothing(NamedTuple):
    """Prior part α φ of the weights, which is nonzero for all topics.

    Parameters
    ----------
    alpha : ndarray, shape (K,)
    sums : ndarray, shape (n_words,)
        Σ_k α_k φ_kw.
    inverses : ndarray, shape (n_words,)
        Σ 1 / total over the tokens of a word, the factor of α φ in the expected counts.
    """

    alpha: np.ndarray
    sums: np.ndarray
    inverses: np.ndarray


@compiled(inline="always")
def first_assignments(
    document: Document, shares: np.ndarray, log_theta: np.ndarray, weights: np.ndarray
) -> None:
    """Draw the topic of every token given the proportions θ of its document."""
    words, assignments, uniforms, totals, _, _ = document
    n_topics = log_theta.size
    theta = np.exp(log_theta - log_theta.max())
    totals[:] = 0
    for i in range(words.size):
        row = shares[words[i]]
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


@compiled(inline="always")
def list_topics(document: Document) -> int:
    """List the topics that have tokens, and return their number."""
    n_present = 0
    for k in range(document.totals.size):
        if document.totals[k] > 0.0:
            document.present[n_present], document.present_index[k] = k, n_present
            n_present += 1
    return n_present


@compiled(inline="always")
def gibbs_sweep(
    document: Document,
    n_present: int,
    shares: np.ndarray,
    smoothing: Smoothing,
    weights: np.ndarray,
    kept: bool,
    counts: np.ndarray,
) -> int:
    """Draw the topic of each token given those of the others, with θ integrated out.

    Parameters
    ----------
    n_present : int
        Number of topics that have tokens.
    kept : bool
        Whether to add the probabilities to ``counts`` and ``smoothing.inverses``.

    Returns
    -------
    int
        Number of topics that have tokens after the sweep.
    """
    words, assignments, uniforms, totals, present, present_index = document
    alpha, sums, inverses = smoothing
    for i in range(words.size):
        word, topic = words[i], assignments[i]
        totals[topic] -= 1.0
        if totals[topic] == 0.0:
            n_present -= 1
            present[present_index[topic]] = present[n_present]
            present_index[present[n_present]] = present_index[topic]
        own = 0.0
        for j in range(n_present):
            weights[j] = totals[present[j]] * shares[word, present[j]]
            own += weights[j]
        total = own + sums[word]
        if kept:
            share = 1.0 / total
            inverses[word] += share
            for j in range(n_present):
                counts[word, present[j]] += share * weights[j]
        left = uniforms[i] * total
        if left < own:
            topic = present[pick(weights[:n_present], left)]
        else:
            for k in range(alpha.size):
                weights[k] = alpha[k] * shares[word, k]
            topic = pick(weights, left - own)
        assignments[i] = topic
        if totals[topic] == 0.0:
            present[n_present], present_index[topic] = topic, n_present
            n_present += 1
        totals[topic] += 1.0
    return n_present


@compiled(inline="always")
def draw_proportions(
    alpha: np.ndarray,
    totals: np.ndarray,
    stream: np.ndarray,
    weights: np.ndarray,
    log_theta: np.ndarray,
) -> None:
    """Draw log θ of a document from p(θ | z)."""
    n_topics = alpha.size
    for k in range(n_topics):
        weights[k] = alpha[k] + totals[k]
    fill_log_gamma(stream, weights, log_theta)
    top = log_theta.max()
    total = 0.0
    for k in range(n_topics):
        total += math.exp(log_theta[k] - top)
    shift = top + math.log(total)
    for k in range(n_topics):
        log_theta[k] -= shift


@compiled
def sample_documents(
    entries: Entries,
    topics: Topics,
    alpha: Vector,
    sweeps: Sweeps,
    streams: Streams,
    log_theta: Matrix,
    found: Expectations,
) -> None:
    r"""Sample the topics of all tokens of some documents, and the proportions of the documents.

    The initial topics are drawn from p(z | θ, φ). Sweeps then draw each topic from p(z_i | z₋ᵢ, φ),
    with θ integrated out, and finally θ is drawn from p(θ | z). These transitions leave
    p(z, θ | φ, w) invariant.

    Parameters
    ----------
    entries : Entries
    topics : Topics
    alpha : ndarray, shape (K,)
        Concentration of the proportions.
    sweeps : Sweeps
    streams : ndarray of uint64, shape (n, 2)
        One random stream for each document, advanced.
    log_theta : ndarray, shape (n, K)
        log θ; replaced by the draw.
    found : Expectations

    References
    ----------
    Griffiths, Steyvers (2004), Finding scientific topics; Patterson, Teh (2013), section 4.
    """
    (values, columns, rows), (slots, shares) = borrow(entries), borrow(topics)
    alpha, (counts, proportions) = borrow(alpha), borrow(found)
    n_words, n_topics = shares.shape
    longest = 0
    for document in range(rows.shape[0]):
        length = 0
        for position in range(rows[document, 0], rows[document, 1]):
            length += int(values[position])
        longest = max(longest, length)
    memory = Document(
        np.empty(longest, dtype=np.int32),
        np.empty(longest, dtype=np.int32),
        np.empty(longest),
        np.empty(n_topics),
        np.empty(n_topics, dtype=np.int32),
        np.empty(n_topics, dtype=np.int32),
    )
    weights = np.empty(n_topics)
    smoothing = Smoothing(alpha, np.zeros(n_words), np.zeros(n_words))
    for word in range(n_words):
        for k in range(n_topics):
            smoothing.sums[word] += alpha[k] * shares[word, k]
    alpha_sum = alpha.sum()
    for document in range(rows.shape[0]):
        length = 0
        for position in range(rows[document, 0], rows[document, 1]):
            for _ in range(int(values[position])):
                memory.words[length] = slots[columns[position]]
                length += 1
        tokens = Document(
            memory.words[:length],
            memory.assignments[:length],
            memory.uniforms[:length],
            memory.totals,
            memory.present,
            memory.present_index,
        )
        stream = streams[document]
        fill_uniform(stream, tokens.uniforms)
        first_assignments(tokens, shares, log_theta[document], weights)
        n_present = list_topics(tokens)
        for k in range(n_topics):
            proportions[document, k] = 0.0
        for sweep in range(sweeps.n_discarded + sweeps.n_kept):
            kept = sweep >= sweeps.n_discarded
            fill_uniform(stream, tokens.uniforms)
            n_present = gibbs_sweep(tokens, n_present, shares, smoothing, weights, kept, counts)
            if kept:
                share = 1.0 / (sweeps.n_kept * (length + alpha_sum))
                for k in range(n_topics):
                    proportions[document, k] += share * (alpha[k] + tokens.totals[k])
        draw_proportions(alpha, tokens.totals, stream, weights, log_theta[document])
    for word in range(n_words):
        if smoothing.inverses[word] > 0.0:
            for k in range(n_topics):
                counts[word, k] += smoothing.inverses[word] * alpha[k] * shares[word, k]
