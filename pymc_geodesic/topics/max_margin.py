r"""Gibbs sampling of token topics under a hinge loss of the document labels.

A document with N tokens has the mean assignment :math:`\bar z_k = n_k / N`, scores
:math:`s_l = \sum_k \eta_{kl} \bar z_k` and the pseudo-likelihood
:math:`\psi(s) = \exp(-c \sum_l \max(0, \ell - y_l s_l))`, with one term for each class
(one-vs-rest), or :math:`\exp(-c \max(0, \ell + \max_{l \ne y} s_l - s_y))`. The topic
of a token has

.. math:: P(z_i = k \mid z_{-i}) \propto (\alpha_k + n_k^{-i})\, g_k\, \psi(s \mid z_i = k),

with :math:`g_k` the probability of its word in topic k: :math:`\varphi_{kw}` given the topics, or
:math:`(\beta_w + n_{kw}^{-i}) / (\sum_w \beta_w + n_k^{-i})` with the topics integrated out.

Given the scale λ of data augmentation, :math:`e^{-2 b \max(0, u)}` becomes
:math:`\exp(-(\lambda + b u)^2 / (2 \lambda))` with b = c / 2.
"""

from __future__ import annotations

import numpy as np

from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.numerics import exponential
from pymc_geodesic.runtime.streams import fill_uniform, pick

ONE_VS_REST, AUGMENTED, MULTICLASS = 0, 1, 2
"""Losses: one-vs-rest hinges; the same given λ; multiclass hinge of Crammer and Singer (2001)."""


@compiled
def fill_log_factors(
    others: np.ndarray,
    eta: np.ndarray,
    share: float,
    signs: np.ndarray,
    scales: np.ndarray,
    cost: float,
    margin: float,
    loss: int,
    logs: np.ndarray,
) -> None:
    """Compute log ψ of one document as a function of the topic of one token.

    Parameters
    ----------
    others : ndarray, shape (L,)
        Scores without the token.
    eta : ndarray, shape (L, K)
    share : float
        1 / N, the weight of a token in the mean assignment.
    signs, scales : ndarray, shape (L,)
    cost, margin : float
    loss : int
    logs : ndarray, shape (K,)
        Output, log ψ.
    """
    others, eta, signs, scales = borrow(others), borrow(eta), borrow(signs), borrow(scales)
    logs = borrow(logs)
    n_classes, n_topics = eta.shape
    if loss == MULTICLASS:
        for k in range(n_topics):
            own, runner_up = -np.inf, -np.inf
            for j in range(n_classes):
                score = others[j] + share * eta[j, k]
                if signs[j] > 0.0:
                    own = score
                else:
                    runner_up = max(runner_up, score)
            logs[k] = -cost * max(0.0, margin + runner_up - own)
        return
    for k in range(n_topics):
        logs[k] = 0.0
    for j in range(n_classes):
        # Linear in η with one coefficient for all topics, so that LLVM vectorizes the loops.
        slack, slope = margin - signs[j] * others[j], signs[j] * share
        if loss == AUGMENTED:
            start, half = scales[j] + 0.5 * cost * slack, 0.5 / scales[j]
            slope *= 0.5 * cost
            for k in range(n_topics):
                distance = start - slope * eta[j, k]
                logs[k] -= half * distance * distance
        else:
            for k in range(n_topics):
                logs[k] -= cost * max(0.0, slack - slope * eta[j, k])


@compiled
def multiply_by_factor(weights: np.ndarray, logs: np.ndarray) -> float:
    """Multiply weights by exp(logs), up to a constant; return their sum."""
    weights, logs = borrow(weights), borrow(logs)
    top = logs[0]
    for k in range(1, weights.size):
        top = max(top, logs[k])
    total = 0.0
    for k in range(weights.size):
        weights[k] *= exponential(logs[k] - top)
        total += weights[k]
    return total


@compiled
def compute_scores(counts: np.ndarray, eta: np.ndarray, share: float, scores: np.ndarray) -> None:
    """Compute the scores of a document from its counts of tokens in topics."""
    for j in range(scores.size):
        scores[j] = 0.0
        for k in range(counts.size):
            scores[j] += share * counts[k] * eta[j, k]


@compiled
def collapsed_max_margin_sweep(
    starts: np.ndarray,
    words: np.ndarray,
    alpha: np.ndarray,
    beta: np.ndarray,
    eta: np.ndarray,
    signs: np.ndarray,
    scales: np.ndarray,
    cost: float,
    margin: float,
    loss: int,
    stream: np.ndarray,
    assignments: np.ndarray,
    of_documents: np.ndarray,
    of_words: np.ndarray,
    of_topics: np.ndarray,
) -> None:
    """Draw the topic of every token given those of all others and the classifiers, in place.

    Parameters
    ----------
    starts, words, alpha, beta, stream, assignments, of_documents, of_words, of_topics
        See `pymc_geodesic.topics.lda_gibbs.collapsed_sweep`.
    eta : ndarray, shape (L, K)
        Weights of the classifiers.
    signs : ndarray, shape (D, L)
        Labels, −1 or +1.
    scales : ndarray, shape (D, L)
        λ; used only if ``loss`` is `AUGMENTED`.
    cost, margin : float
        c and ℓ.
    loss : int
        `ONE_VS_REST`, `AUGMENTED` or `MULTICLASS`.

    References
    ----------
    Zhu, Chen, Perkins, Zhang (2014), Gibbs Max-margin Topic Models with Data Augmentation,
    section 4.2.
    """
    words, alpha, beta, eta = borrow(words), borrow(alpha), borrow(beta), borrow(eta)
    n_classes, n_topics = eta.shape
    beta_sum = beta.sum()
    weights, logs = np.empty(n_topics), np.empty(n_topics)
    others = np.empty(n_classes)
    longest = 0
    for document in range(starts.size - 1):
        longest = max(longest, starts[document + 1] - starts[document])
    uniforms = np.empty(longest)
    inverse = 1.0 / (of_topics + beta_sum)
    for document in range(starts.size - 1):
        first, last = starts[document], starts[document + 1]
        fill_uniform(stream, uniforms[: last - first])
        in_document = of_documents[document]
        share = 1.0 / max(last - first, 1)
        compute_scores(in_document, eta, share, others)
        for i in range(first, last):
            in_word, own_beta, topic = of_words[words[i]], beta[words[i]], assignments[i]
            in_document[topic] -= 1.0
            in_word[topic] -= 1.0
            of_topics[topic] -= 1.0
            inverse[topic] = 1.0 / (of_topics[topic] + beta_sum)
            for j in range(n_classes):
                others[j] -= share * eta[j, topic]
            for k in range(n_topics):
                of_word = (in_word[k] + own_beta) * inverse[k]
                weights[k] = (in_document[k] + alpha[k]) * of_word
            fill_log_factors(
                others, eta, share, signs[document], scales[document], cost, margin, loss, logs
            )
            total = multiply_by_factor(weights, logs)
            topic = pick(weights, uniforms[i - first] * total)
            assignments[i] = topic
            in_document[topic] += 1.0
            in_word[topic] += 1.0
            of_topics[topic] += 1.0
            inverse[topic] = 1.0 / (of_topics[topic] + beta_sum)
            for j in range(n_classes):
                others[j] += share * eta[j, topic]


@compiled
def add_subgradient(
    counts: np.ndarray,
    share: float,
    scores: np.ndarray,
    signs: np.ndarray,
    weight: float,
    margin: float,
    loss: int,
    gradient: np.ndarray,
) -> None:
    """Add a multiple of a subgradient of −max(0, …) in η for one document."""
    own, runner_up = -1, -1
    for j in range(scores.size):
        if loss == MULTICLASS:
            if signs[j] > 0.0:
                own = j
            elif runner_up < 0 or scores[j] > scores[runner_up]:
                runner_up = j
        elif margin - signs[j] * scores[j] > 0.0:
            for k in range(counts.size):
                gradient[j, k] += weight * signs[j] * share * counts[k]
    if loss == MULTICLASS and margin + scores[runner_up] - scores[own] > 0.0:
        for k in range(counts.size):
            gradient[own, k] += weight * share * counts[k]
            gradient[runner_up, k] -= weight * share * counts[k]


@compiled
def sample_assignments(
    starts: np.ndarray,
    words: np.ndarray,
    documents: np.ndarray,
    slots: np.ndarray,
    topics: np.ndarray,
    alpha: np.ndarray,
    eta: np.ndarray,
    signs: np.ndarray,
    cost: float,
    margin: float,
    loss: int,
    n_discarded: int,
    n_kept: int,
    stream: np.ndarray,
    assignments: np.ndarray,
    counts: np.ndarray,
    gradient: np.ndarray,
    in_topics: np.ndarray,
) -> None:
    r"""Sample the topics of the tokens of some documents, given topics φ and classifiers η.

    Every sweep leaves p(z | φ, η, w, y) invariant.

    Parameters
    ----------
    starts : ndarray of int64, shape (D + 1,)
    words : ndarray of int32, shape (n_tokens,)
    documents : ndarray of int64, shape (n,)
        Documents of the minibatch.
    slots : ndarray of int32, shape (V,)
        Row of each word in ``topics``.
    topics : ndarray, shape (n_words, K)
        φ of the words of the documents, positive.
    alpha : ndarray, shape (K,)
    eta : ndarray, shape (L, K)
    signs : ndarray, shape (D, L)
    cost, margin : float
    loss : int
        `ONE_VS_REST` or `MULTICLASS`.
    n_discarded, n_kept : int
        Sweeps that are not averaged over, and sweeps that are.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    assignments : ndarray of int32, shape (n_tokens,)
        Topic of each token, updated for the documents.
    counts : ndarray, shape (n_words, K)
        Incremented by P(z_i = k | z₋ᵢ, …) of all tokens, averaged over the kept sweeps.
    gradient : ndarray, shape (L, K)
        Incremented by a subgradient of log ψ, averaged over the kept sweeps; by Fisher's identity
        an unbiased estimate for the loss with the topics of tokens summed out.
    in_topics : ndarray, shape (D, K)
        Output, counts of the tokens of the documents in topics after the last sweep.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, eqs. 39 and 40.
    """
    words, slots, topics, alpha = borrow(words), borrow(slots), borrow(topics), borrow(alpha)
    n_classes, n_topics = eta.shape
    weights, logs, totals = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    others, scores, no_scales = np.empty(n_classes), np.empty(n_classes), np.ones(n_classes)
    longest = 0
    for document in documents:
        longest = max(longest, starts[document + 1] - starts[document])
    uniforms = np.empty(longest)
    for document in documents:
        first, last = starts[document], starts[document + 1]
        share = 1.0 / max(last - first, 1)
        totals[:] = 0.0
        for i in range(first, last):
            totals[assignments[i]] += 1.0
        for sweep in range(n_discarded + n_kept):
            fill_uniform(stream, uniforms[: last - first])
            compute_scores(totals, eta, share, others)
            for i in range(first, last):
                slot, topic = slots[words[i]], assignments[i]
                totals[topic] -= 1.0
                for j in range(n_classes):
                    others[j] -= share * eta[j, topic]
                for k in range(n_topics):
                    weights[k] = (totals[k] + alpha[k]) * topics[slot, k]
                fill_log_factors(
                    others, eta, share, signs[document], no_scales, cost, margin, loss, logs
                )
                total = multiply_by_factor(weights, logs)
                if sweep >= n_discarded:
                    part = 1.0 / (n_kept * total)
                    for k in range(n_topics):
                        counts[slot, k] += part * weights[k]
                topic = pick(weights, uniforms[i - first] * total)
                assignments[i] = topic
                totals[topic] += 1.0
                for j in range(n_classes):
                    others[j] += share * eta[j, topic]
            if sweep >= n_discarded:
                compute_scores(totals, eta, share, scores)
                add_subgradient(
                    totals, share, scores, signs[document], cost / n_kept, margin, loss, gradient
                )
        in_topics[document] = totals
