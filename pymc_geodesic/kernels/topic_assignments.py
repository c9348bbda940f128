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
        Their words.
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``values`` and ``columns``. A document may be empty.
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
    """List the words of some documents, each once, in the order in which they come.

    Parameters
    ----------
    columns : ndarray of int, shape (nnz,)
        Word of every non-zero count.
    rows : ndarray of int, shape (n, 2)
        Where each document begins and ends in ``columns``.
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
"""Sum of weights below which they are taken to logarithms: some may have become zero."""


class Sweeps(NamedTuple):
    """Sweeps over the tokens of a document.

    Parameters
    ----------
    n_discarded, n_kept : int
        Those that are not counted, and those that are.
    """

    n_discarded: int
    n_kept: int


class Expectations(NamedTuple):
    """What is averaged over topics of tokens.

    Parameters
    ----------
    counts : ndarray, shape (n_words, K)
        Receives, added over documents and kept sweeps, P(z_i = k | z₋ᵢ, φ) of all tokens: the
        counts of words in topics, with the draw of the token itself averaged over.
    proportions : ndarray, shape (n, K)
        Receives E[θ | z], averaged over the kept sweeps.
    """

    counts: Matrix
    proportions: Matrix


class Document(NamedTuple):
    """Tokens of one document, and its topics.

    Parameters
    ----------
    words, assignments : ndarray of int32, shape (length,)
        Slot of the word, and topic, of each token.
    uniforms : ndarray, shape (length,)
        A uniform number for each token.
    totals : ndarray, shape (K,)
        Tokens in each topic.
    present, places : ndarray of int32, shape (K,)
        First the topics that have tokens, and where among them each of these is.
    """

    words: np.ndarray
    assignments: np.ndarray
    uniforms: np.ndarray
    totals: np.ndarray
    present: np.ndarray
    places: np.ndarray


class Smoothing(NamedTuple):
    """The part of the weights that every topic has.

    Parameters
    ----------
    alpha : ndarray, shape (K,)
    sums : ndarray, shape (n_words,)
        Σ_k α_k φ_kw.
    inverses : ndarray, shape (n_words,)
        Σ 1 / total over the tokens of a word, by which its α φ enters the expected counts.
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
            document.present[n_present], document.places[k] = k, n_present
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
    """Draw the topic of every token given those of the others, θ integrated out.

    Parameters
    ----------
    n_present : int
        How many topics have tokens.
    kept : bool
        Whether ``counts`` and ``smoothing.inverses`` receive the probabilities.

    Returns
    -------
    int
        How many topics have tokens then.
    """
    words, assignments, uniforms, totals, present, places = document
    alpha, sums, inverses = smoothing
    for i in range(words.size):
        word, topic = words[i], assignments[i]
        totals[topic] -= 1.0
        if totals[topic] == 0.0:
            n_present -= 1
            present[places[topic]] = present[n_present]
            places[present[n_present]] = places[topic]
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
            present[n_present], places[topic] = topic, n_present
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

    The first topics are drawn from p(z | θ, φ), followed by sweeps that draw every one from
    p(z_i | z₋ᵢ, φ), θ integrated out, and θ from p(θ | z): transitions that leave p(z, θ | φ, w)
    as it is.

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
            memory.places,
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
