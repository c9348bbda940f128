r"""Online Bayesian passive-aggressive learning of max-margin topics (paMedLDA).

The approximate posterior after t minibatches is q(φ) q(η), a Dirichlet distribution of each topic
and a normal distribution of each classifier. The next minibatch updates them by mean-field
inference with λ of data augmentation and the topics z of its tokens as latent variables,

.. math::

    q(z, \lambda) &\propto p(z \mid \alpha)\, \exp\Bigl(\sum_i E \log \varphi_{z_i w_i}
        - \sum_d \frac{E (\lambda_d + b \zeta_d)^2}{2 \lambda_d}\Bigr) \prod_d \lambda_d^{-1/2},
        \qquad \zeta_d = \ell - y_d\, \eta \cdot \bar z_d, \quad b = c / 2, \\
    q'(\varphi_k) &= \text{Dirichlet}(\Delta_k + E\, n_k), \\
    q'(\eta) &= N(\Lambda'^{-1} h', \Lambda'^{-1}), \quad
        \Lambda' = \Lambda + b^2 \sum_d E\, \lambda_d^{-1} \bar z_d \bar z_d^\top, \quad
        h' = h + b \sum_d y_d\, E (1 + b \ell \lambda_d^{-1}) \bar z_d .

Expectations over z and λ are averages over Gibbs sweeps. Given z, 1/λ is inverse Gaussian with mean
:math:`1 / (b \sqrt{E \zeta^2})`, which replaces 1/λ in the expectations (Rao–Blackwellization).

References
----------
Shi, Zhu (2014), Online Bayesian Passive-Aggressive Learning, ICML; the longer text is JMLR 18:33
(2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import digamma

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.kernels.hinge_augmentation import draw_scales
from pymc_geodesic.kernels.topic_assignments import collect_words
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import fill_uniform, new_stream, pick
from pymc_geodesic.topics.labeled_documents import (
    Hinge,
    LabeledCounts,
    Passes,
    SamplingOptions,
    labeled_counts,
    sample_chains,
)
from pymc_geodesic.topics.max_margin import multiply_by_factor


@dataclass(frozen=True)
class OnlineSettings:
    """Settings of the update for one minibatch.

    Attributes
    ----------
    batch_size : int
        Maximum size n.
    n_discarded, n_kept : int
        Numbers of Gibbs sweeps over the documents of a minibatch.
    rounds : int
        Number of alternations between z and λ, and φ and η.
    multiple : int
        Divisor of the number of minibatches per pass.
    """

    batch_size: int
    n_discarded: int
    n_kept: int
    rounds: int
    multiple: int = 1


class NormalWeights:
    """Normal distributions of the classifiers, by their natural parameters.

    Parameters
    ----------
    precision : ndarray, shape (L, K, K)
        Λ.
    linear : ndarray, shape (L, K)
        h = Λμ.

    Attributes
    ----------
    mean : ndarray, shape (L, K)
    covariance : ndarray, shape (L, K, K)
    """

    def __init__(self, precision: np.ndarray, linear: np.ndarray) -> None:
        self.precision, self.linear = precision, linear
        self._lower = np.linalg.cholesky(precision)
        identity = np.eye(linear.shape[1])
        self.covariance = np.stack([cho_solve((lower, True), identity) for lower in self._lower])
        self.mean = np.einsum("ljk,lk->lj", self.covariance, linear)

    def updated(self, precision: np.ndarray, linear: np.ndarray) -> NormalWeights:
        """Return the distributions with incremented natural parameters."""
        return NormalWeights(self.precision + precision, self.linear + linear)

    def expected_square(self, zbar: np.ndarray, signs: np.ndarray, margin: float) -> np.ndarray:
        """Return E ζ² of the documents, shape (n, L)."""
        variance = np.stack([np.einsum("nj,jk,nk->n", zbar, c, zbar) for c in self.covariance], 1)
        return (margin - signs * (zbar @ self.mean.T)) ** 2 + np.maximum(variance, 0.0)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw η, shape (L, K)."""
        noise = rng.standard_normal(self.mean.shape)
        return self.mean + np.stack(
            [
                solve_triangular(lower, one, lower=True, trans="T")
                for lower, one in zip(self._lower, noise, strict=True)
            ]
        )


@compiled
def sweep_expected_margins(
    starts: np.ndarray,
    words: np.ndarray,
    documents: np.ndarray,
    slots: np.ndarray,
    topics: np.ndarray,
    alpha: np.ndarray,
    mean: np.ndarray,
    second: np.ndarray,
    signs: np.ndarray,
    scales: np.ndarray,
    cost: float,
    margin: float,
    weight: float,
    stream: np.ndarray,
    assignments: np.ndarray,
    counts: np.ndarray,
    in_topics: np.ndarray,
) -> None:
    r"""Draw the topics of the tokens of some documents given λ, in place.

    .. math::

        \log P(z_i = k \mid z_{-i}) = \log (\alpha_k + n_k^{-i}) + E \log \varphi_{k w_i}
        + \sum_l \frac{b y_l (\lambda_l + b \ell)}{N \lambda_l} \mu_{lk}
        - \frac{b^2}{2 N^2 \lambda_l} \bigl(S_{lkk} + 2 (S_l n^{-i})_k\bigr) + \text{const},
        \qquad S_l = E\, \eta_l \eta_l^\top .

    Parameters
    ----------
    starts, words, documents, slots, alpha, stream
        See `pymc_geodesic.topics.max_margin.sample_assignments`.
    topics : ndarray, shape (n_words, K)
        exp E log φ of the words of the documents, positive.
    mean : ndarray, shape (L, K)
        E η.
    second : ndarray, shape (L, K, K)
        E ηηᵀ.
    signs : ndarray, shape (D, L)
    scales : ndarray, shape (n, L)
        λ of the documents.
    cost, margin : float
    weight : float
        Weight of a token in ``counts``.
    assignments : ndarray of int32, shape (n_tokens,)
        Topic of each token, updated; a token with −1 is first assigned without its label.
    counts : ndarray, shape (n_words, K)
        Incremented by ``weight`` times P(z_i = k | z₋ᵢ, λ) of all tokens.
    in_topics : ndarray, shape (D, K)
        Output, counts of the tokens of the documents in topics.
    """
    words, slots, topics, alpha = borrow(words), borrow(slots), borrow(topics), borrow(alpha)
    mean, second = borrow(mean), borrow(second)
    n_classes, n_topics = mean.shape
    weights, logs = np.empty(n_topics), np.empty(n_topics)
    products = np.empty((n_classes, n_topics))
    longest = 0
    for document in documents:
        longest = max(longest, starts[document + 1] - starts[document])
    uniforms = np.empty(longest)
    for row in range(documents.size):
        document = documents[row]
        first, last = starts[document], starts[document + 1]
        share = 1.0 / max(last - first, 1)
        fill_uniform(stream, uniforms[: last - first])
        totals = in_topics[document]
        totals[:] = 0.0
        for i in range(first, last):
            if assignments[i] >= 0:
                totals[assignments[i]] += 1.0
        products[:] = 0.0
        for j in range(n_classes):
            for m in range(n_topics):
                if totals[m] > 0.0:
                    for k in range(n_topics):
                        products[j, k] += totals[m] * second[j, m, k]
        for i in range(first, last):
            slot, topic = slots[words[i]], assignments[i]
            logs[:] = 0.0
            if topic >= 0:
                totals[topic] -= 1.0
                for j in range(n_classes):
                    inverse = 0.5 * cost / scales[row, j]
                    slope = 0.5 * cost * signs[document, j] * share * (1.0 + inverse * margin)
                    curvature = 0.25 * cost * inverse * share * share
                    for k in range(n_topics):
                        products[j, k] -= second[j, topic, k]
                        square = second[j, k, k] + 2.0 * products[j, k]
                        logs[k] += slope * mean[j, k] - curvature * square
            for k in range(n_topics):
                weights[k] = (totals[k] + alpha[k]) * topics[slot, k]
            total = multiply_by_factor(weights, logs)
            part = weight / total
            for k in range(n_topics):
                counts[slot, k] += part * weights[k]
            topic = pick(weights, uniforms[i - first] * total)
            assignments[i] = topic
            totals[topic] += 1.0
            for j in range(n_classes):
                for k in range(n_topics):
                    products[j, k] += second[j, topic, k]


class PassiveAggressiveTopics:
    """State of a run: distributions of topics and classifiers, and assignments of all tokens.

    Parameters
    ----------
    data : LabeledCounts
    hinge : Hinge
    settings : OnlineSettings
    rng : numpy.random.Generator
        Generator of the order of the documents, the sweeps and the draws.

    Attributes
    ----------
    concentration : ndarray, shape (V, K)
        Δ.
    weights : NormalWeights
    in_topics : ndarray, shape (D, K)
        Counts of the tokens of each document in topics, when it was last visited.
    documents_seen : int
    """

    def __init__(
        self, data: LabeledCounts, hinge: Hinge, settings: OnlineSettings, rng: np.random.Generator
    ) -> None:
        self.data, self.hinge, self.settings, self.rng = data, hinge, settings, rng
        self.stream = new_stream(rng)
        n_documents, n_classes = data.signs.shape
        n_topics, n_words = len(data.alpha), len(data.beta)
        self.concentration = np.repeat(data.beta[:, None], n_topics, axis=1)
        self._totals = self.concentration.sum(axis=0)
        precision = np.broadcast_to(
            np.eye(n_topics) / hinge.prior_scale**2, (n_classes, n_topics, n_topics)
        )
        self.weights = NormalWeights(precision, np.zeros((n_classes, n_topics)))
        self.assignments = np.full(len(data.words), -1, dtype=np.int32)
        self.in_topics = np.zeros((n_documents, n_topics))
        self._slots = np.full(n_words, -1, dtype=np.int32)
        self._passes = Passes.of_all(rng, n_documents, settings.batch_size, settings.multiple)
        self.documents_seen = 0

    def topics(self) -> np.ndarray:
        """Draw φ, shape (K, V)."""
        drawn = self.rng.standard_gamma(self.concentration.T)
        return drawn / drawn.sum(axis=1, keepdims=True)

    def step(self) -> None:
        """Update the distributions with the next minibatch."""
        data = self.data
        documents = self._passes.next_rows()
        tokens = np.concatenate(
            [data.words[data.starts[d] : data.starts[d + 1]] for d in documents]
        )
        words = collect_words(tokens, np.array([[0, len(tokens)]]), self._slots)
        known, prior = self.concentration[words], self.weights
        totals = self._totals
        concentration, weights = known, prior
        for _ in range(self.settings.rounds):
            counts, precision, linear = self._local_steps(
                documents, digamma(concentration) - digamma(totals), weights
            )
            concentration, totals = known + counts, self._totals + counts.sum(axis=0)
            weights = prior.updated(precision, linear)
        self.concentration[words] = concentration
        self._totals, self.weights = totals, weights
        self._slots[words] = -1
        self.documents_seen += len(documents)

    def _local_steps(
        self, documents: np.ndarray, log_topics: np.ndarray, weights: NormalWeights
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Run Gibbs sweeps; return expected counts and the increments of Λ and h."""
        data, hinge, settings = self.data, self.hinge, self.settings
        half, signs = 0.5 * hinge.cost, data.signs[documents]
        lengths = np.maximum(np.diff(data.starts)[documents], 1)[:, None]
        second = weights.covariance + np.einsum("lj,lk->ljk", weights.mean, weights.mean)
        counts, discarded = np.zeros_like(log_topics), np.zeros_like(log_topics)
        precision, linear = np.zeros_like(weights.precision), np.zeros_like(weights.linear)
        shares = np.exp(log_topics - log_topics.max(axis=1, keepdims=True)) + 1e-290
        assigned = self.in_topics[documents].sum(axis=1)
        is_new = np.any(assigned < np.diff(data.starts)[documents])
        first = (
            -1 if is_new else 0
        )  # the first sweep over new documents ignores labels and is discarded
        for sweep in range(first, settings.n_discarded + settings.n_kept):
            zbar = self.in_topics[documents] / lengths
            square = weights.expected_square(zbar, signs, hinge.margin)
            scales = draw_scales(self.rng, np.sqrt(square), hinge.cost)
            is_kept = sweep >= settings.n_discarded
            sweep_expected_margins(
                data.starts,
                data.words,
                documents,
                self._slots,
                shares,
                data.alpha,
                weights.mean,
                second,
                data.signs,
                scales,
                hinge.cost,
                hinge.margin,
                1.0 / settings.n_kept,
                self.stream,
                self.assignments,
                counts if is_kept else discarded,
                self.in_topics,
            )
            if is_kept:
                zbar = self.in_topics[documents] / lengths
                square = weights.expected_square(zbar, signs, hinge.margin)
                inverse = 1.0 / (half * np.sqrt(square) * settings.n_kept)
                for j in range(signs.shape[1]):
                    precision[j] += half**2 * (zbar.T * inverse[:, j]) @ zbar
                slopes = signs * (1.0 / settings.n_kept + half * hinge.margin * inverse)
                linear += half * slopes.T @ zbar
        return counts, precision, linear


def medlda_passive_aggressive(
    counts: ArrayLike | sparse.csr_array,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 1.0,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    prior_scale: float = 1.0,
    batch_size: int = 64,
    sweeps: tuple[int, int] = (1, 2),
    rounds: int = 1,
    n_steps: int = 1,
    draws: int | None = None,
    tune: int = 0,
    chains: int = 1,
    var_names: Sequence[str] | None = None,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Approximate Gibbs MedLDA in one pass over the documents (paMedLDA).

    The model of `medlda_gibbs`. The approximate posterior after t minibatches is a Dirichlet
    distribution of every topic and a normal distribution of every classifier, updated by

    .. math::

        q_{t+1} = \arg\min_q \text{KL}\bigl(q(\varphi) q(\eta) q(z) \bigm|
        q_t(\varphi)\, q_t(\eta)\, p(z, w \mid \varphi)\bigr)
        + c \sum_d E_q \max(0, \ell - y_d\, \eta \cdot \bar z_d),

    with the sum over the documents of the minibatch, by data augmentation and a few Gibbs sweeps
    over their words. There is no step size, and the cost of a minibatch does not depend on the size
    of the vocabulary.

    Parameters
    ----------
    counts, labels, n_topics, alpha, beta, cost, margin, prior_scale
        See `medlda_gibbs`.
    batch_size : int
        Maximum size n of a minibatch. A pass covers all documents in minibatches of nearly equal
        size.
    sweeps : tuple of int
        Numbers of Gibbs sweeps over a minibatch that are discarded, and that are averaged over.
    rounds : int
        Number of alternations between sweeps and updates of the distributions per minibatch.
    n_steps : int
        Number of minibatches per draw.
    draws : int, optional
        Number of draws to keep, each from the current distributions; by default one pass over the
        documents. In further passes documents are counted again, as if they were copies.
    tune : int
        Number of draws before the first that is kept.
    chains, var_names, documents, vocabulary, classes, random_seed, progressbar
        See `medlda_gibbs`.

    Returns
    -------
    xarray.DataTree
        As `medlda_gibbs`. ``zbar`` is that of the last visit of each document, zero before the
        first. Only the last draws are based on all documents.

    Raises
    ------
    ValueError
        As `medlda_gibbs`.

    Notes
    -----
    Posterior variances are underestimated, as in any mean-field approximation.

    References
    ----------
    Shi, Zhu (2014), Online Bayesian Passive-Aggressive Learning, ICML. Its c is half of ``cost``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_passive_aggressive
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_passive_aggressive(
    ...     counts, [1, -1, 1, -1], n_topics=2, margin=16.0, batch_size=2, draws=8, random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dict(idata.posterior["weights"].sizes)
    {'chain': 1, 'draw': 8, 'topic': 2}
    >>> float(idata.sample_stats["accuracy"][0, -1])
    1.0
    """
    check_integers(
        batch_size=(batch_size, 1),
        rounds=(rounds, 1),
        n_steps=(n_steps, 1),
        **{"sweeps[0]": (sweeps[0], 0), "sweeps[1]": (sweeps[1], 1)},
    )
    hinge = Hinge(cost, margin, prior_scale)
    data = labeled_counts(counts, labels, n_topics, alpha, beta, documents, vocabulary, classes)
    if draws is None:
        draws = max(1, -(-data.n_documents // (batch_size * n_steps)) - tune)
    settings = OnlineSettings(batch_size, *sweeps, rounds, n_steps)
    options = SamplingOptions(draws, tune, chains, var_names, random_seed, progressbar)

    def begin(rng: np.random.Generator) -> _Chain:
        return _Chain(PassiveAggressiveTopics(data, hinge, settings, rng), n_steps)

    return sample_chains(data, hinge, options, begin)


class _Chain:
    """Learner and number of minibatches per draw."""

    def __init__(self, learner: PassiveAggressiveTopics, n_steps: int) -> None:
        self._learner, self._n_steps = learner, n_steps
        self.in_topics = learner.in_topics

    def advance(self, iteration: int) -> None:
        """Update the learner with the minibatches of one draw."""
        for _ in range(self._n_steps):
            self._learner.step()

    def topics(self) -> np.ndarray:
        """Draw φ, shape (K, V)."""
        return self._learner.topics()

    def weights(self) -> np.ndarray:
        """Draw η, shape (L, K)."""
        return self._learner.weights.draw(self._learner.rng)

    def stats(self) -> dict[str, float]:
        """Return the number of documents processed."""
        return {"documents": self._learner.documents_seen}
