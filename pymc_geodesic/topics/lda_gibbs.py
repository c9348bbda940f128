r"""Collapsed Gibbs sampling of latent Dirichlet allocation.

The state is the topic of every token; topics φ and proportions θ are integrated out,

.. math:: P(z_i = k \mid z_{-i}, w) \propto (\alpha_k + n_{dk}^{-i})
          \frac{\beta_{w_i} + n_{k w_i}^{-i}}{\sum_w \beta_w + n_k^{-i}},

A sweep visits all tokens of the corpus. The sampler is exact in the limit of many sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.runtime.iterations import draw_after, each_chain
from pymc_geodesic.runtime.jit import (
    Integers,
    Matrix,
    SmallIntegers,
    Stream,
    Vector,
    borrow,
    kernel,
)
from pymc_geodesic.runtime.streams import fill_uniform, new_stream, pick
from pymc_geodesic.sparse.count_matrices import concentration, word_counts
from pymc_geodesic.topics.lda import document_coords


class Tokens(NamedTuple):
    """All tokens of all documents.

    Parameters
    ----------
    starts : ndarray of int64, shape (D + 1,)
        Index of the first token of each document, and the number of tokens.
    words, topics : ndarray of int32, shape (n_tokens,)
        Word and topic of each token.
    """

    starts: Integers
    words: SmallIntegers
    topics: SmallIntegers


class Totals(NamedTuple):
    """Number of tokens in each topic.

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
    """Concentrations of the Dirichlet priors.

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
        Output.
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
        Updated.

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


def lda_gibbs(
    counts: ArrayLike | sparse.csr_array,
    n_topics: int,
    alpha: ArrayLike = 0.1,
    beta: ArrayLike = 0.01,
    *,
    draws: int = 100,
    tune: int = 100,
    thin: int = 1,
    chains: int = 1,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample the posterior of latent Dirichlet allocation by collapsed Gibbs sampling.

    The posterior of `lda`, without minibatches; exact in the limit of many sweeps. Topics and
    proportions are integrated out of the sweeps and drawn from their conditional distributions,

    .. math::

        \varphi_k \mid z \sim \text{Dirichlet}(\beta + n_{k \cdot}), \qquad
        \theta_d \mid z \sim \text{Dirichlet}(\alpha + n_{d \cdot}).

    Parameters
    ----------
    counts, n_topics, alpha, beta, documents, vocabulary
        See `lda`.
    draws, tune : int
        Number of draws to keep, and of sweeps before the first.
    thin : int
        Number of sweeps per draw.
    chains : int
        Number of independent chains, sampled in sequence.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``topics`` (chain, draw, topic, word) and ``theta`` (chain, draw,
        document, topic), and ``constant_data`` with ``alpha`` and ``beta``.

    Raises
    ------
    ValueError
        As `lda`, and if a number of draws, sweeps or chains is too small.

    References
    ----------
    Griffiths, Steyvers (2004), Finding scientific topics.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import lda_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0]])
    >>> idata = lda_gibbs(
    ...     counts, n_topics=2, draws=20, tune=20, random_seed=1, progressbar=False
    ... )
    >>> dict(idata.posterior["topics"].sizes)
    {'chain': 1, 'draw': 20, 'topic': 2, 'word': 4}
    """
    matrix = word_counts(counts)
    coords = document_coords(counts, matrix.shape, documents, vocabulary)
    n_documents, n_words = matrix.shape
    check_integers(
        n_topics=(n_topics, 2),
        draws=(draws, 1),
        tune=(tune, 0),
        thin=(thin, 1),
        chains=(chains, 1),
    )
    a = concentration("alpha", alpha, int(n_topics))
    b = concentration("beta", beta, n_words)
    lengths = np.asarray(matrix.sum(axis=1)).ravel().astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    words = np.repeat(matrix.indices, matrix.data.astype(np.int64)).astype(np.int32)

    topics = np.empty((chains, draws, int(n_topics), n_words))
    theta = np.empty((chains, draws, n_documents, int(n_topics)))
    totals = Totals(
        np.empty((n_documents, int(n_topics))),
        np.empty((n_words, int(n_topics))),
        np.empty(int(n_topics)),
    )
    all_sweeps = tune + draws * thin
    for chain, rng, sweeps in each_chain(random_seed, chains, all_sweeps, progressbar=progressbar):
        stream = new_stream(rng)
        first = rng.integers(int(n_topics), size=len(words), dtype=np.int32)
        tokens = Tokens(starts, words, first)
        count_assignments(tokens, totals)
        for sweep in sweeps:
            collapsed_sweep(tokens, Concentrations(a, b), stream, totals)
            draw = draw_after(sweep, tune, thin)
            if draw is not None:
                topics[chain, draw] = draw_dirichlet(rng, totals.of_words.T + b)
                theta[chain, draw] = draw_dirichlet(rng, totals.of_documents + a)
    return from_dict(
        {"posterior": {"topics": topics, "theta": theta}, "constant_data": {"alpha": a, "beta": b}},
        dims={
            "topics": ["topic", "word"],
            "theta": ["document", "topic"],
            "alpha": ["topic"],
            "beta": ["word"],
        },
        coords=coords | {"topic": np.arange(int(n_topics))},
    )


def draw_dirichlet(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """Draw positive rows on the simplex from Dirichlet distributions."""
    # Gamma variates of small shape underflow, their logarithms do not.
    gamma = np.log(rng.standard_gamma(concentration + 1.0))
    gamma += np.log1p(-rng.uniform(size=concentration.shape)) / concentration
    gamma -= gamma.max(axis=-1, keepdims=True)
    draw = np.maximum(np.exp(gamma), 1e-307)
    return draw / draw.sum(axis=-1, keepdims=True)
