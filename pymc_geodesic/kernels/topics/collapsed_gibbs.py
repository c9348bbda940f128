r"""Collapsed Gibbs sampling of latent Dirichlet allocation: one topic per word, nothing else.

Topics φ and proportions θ are integrated out,

.. math:: P(z_i = k \mid z_{-i}, w) \propto (\alpha_k + n_{dk}^{-i})
          \frac{\beta_{w_i} + n_{k w_i}^{-i}}{\sum_w \beta_w + n_k^{-i}},

so that every sweep sees all documents. Exact in the limit of many sweeps, at a cost per sweep
in proportion to the words of the whole corpus.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_geodesic.kernels.topics.assignments import pick
from pymc_geodesic.runtime.jit import borrow
from pymc_geodesic.runtime.kernel import (
    Integers,
    Matrix,
    SmallIntegers,
    Stream,
    Vector,
    kernel,
)
from pymc_geodesic.runtime.streams import fill_uniform

__all__ = ["Concentrations", "Tokens", "Totals", "collapsed_sweep", "count_assignments"]


class Tokens(NamedTuple):
    """All tokens of all documents.

    Parameters
    ----------
    starts : ndarray of int64, shape (D + 1,)
        Where the tokens of each document begin, and the number of tokens.
    words, topics : ndarray of int32, shape (n_tokens,)
        Word and topic of each token.
    """

    starts: Integers
    words: SmallIntegers
    topics: SmallIntegers


class Totals(NamedTuple):
    """Tokens in each topic.

    Parameters
    ----------
    of_documents : ndarray, shape (D, K)
    of_words : ndarray, shape (V, K)
    of_topics : ndarray, shape (K,)
    """

    of_documents: Matrix
    of_words: Matrix
    of_topics: Vector


class Concentrations(NamedTuple):
    """Priors.

    Parameters
    ----------
    alpha : ndarray, shape (K,)
        Of the proportions of a document.
    beta : ndarray, shape (V,)
        Of the words of a topic.
    """

    alpha: Vector
    beta: Vector


@kernel
def count_assignments(tokens: Tokens, totals: Totals) -> None:
    """Count the tokens of documents, words and all tokens in each topic.

    Parameters
    ----------
    tokens : Tokens
    totals : Totals
        Receives the counts.
    """
    starts, words, assignments = tokens
    of_documents, of_words, of_topics = totals
    of_documents[:] = 0.0
    of_words[:] = 0.0
    of_topics[:] = 0.0
    for document in range(starts.size - 1):
        for i in range(starts[document], starts[document + 1]):
            of_documents[document, assignments[i]] += 1.0
            of_words[words[i], assignments[i]] += 1.0
            of_topics[assignments[i]] += 1.0


@kernel
def collapsed_sweep(
    tokens: Tokens, concentrations: Concentrations, stream: Stream, totals: Totals
) -> None:
    """Draw the topic of every token given those of all others, in place.

    Parameters
    ----------
    tokens : Tokens
    concentrations : Concentrations
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    totals : Totals
        Kept up to date.

    References
    ----------
    Griffiths, Steyvers (2004), Finding scientific topics, eq. 5.
    """
    starts, words, assignments = borrow(tokens)
    alpha, beta = borrow(concentrations)
    of_documents, of_words, of_topics = borrow(totals)
    n_topics = alpha.size
    beta_sum = beta.sum()
    weights = np.empty(n_topics)
    longest = 0
    for document in range(starts.size - 1):
        longest = max(longest, starts[document + 1] - starts[document])
    uniforms = np.empty(longest)
    inverse = np.empty(n_topics)
    for k in range(n_topics):
        inverse[k] = 1.0 / (of_topics[k] + beta_sum)
    for document in range(starts.size - 1):
        first, last = starts[document], starts[document + 1]
        fill_uniform(stream, uniforms[: last - first])
        in_document = of_documents[document]
        for i in range(first, last):
            in_word, own_beta, topic = of_words[words[i]], beta[words[i]], assignments[i]
            in_document[topic] -= 1.0
            in_word[topic] -= 1.0
            of_topics[topic] -= 1.0
            inverse[topic] = 1.0 / (of_topics[topic] + beta_sum)
            total = 0.0
            for k in range(n_topics):
                weight = (in_document[k] + alpha[k]) * (in_word[k] + own_beta) * inverse[k]
                weights[k] = weight
                total += weight
            topic = pick(weights, uniforms[i - first] * total)
            assignments[i] = topic
            in_document[topic] += 1.0
            in_word[topic] += 1.0
            of_topics[topic] += 1.0
            inverse[topic] = 1.0 / (of_topics[topic] + beta_sum)
