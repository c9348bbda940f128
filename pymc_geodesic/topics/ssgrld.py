r"""Stochastic subgradient Riemannian Langevin dynamics of topics and classifiers.

Each inner step takes a minibatch of documents, draws the topics of their tokens given the topics φ
and the classifiers η (`pymc_geodesic.topics.max_margin`), and moves

- φ = ω / Σω by `scir_words` or `sgrld_words`, with the counts of the minibatch times D / n;
- η by Langevin dynamics in units of its prior standard deviation, x = η / τ, whose stochastic
  gradient is :math:`\hat g = -x + \tau \frac{D}{n} \sum_d \partial_\eta \log \psi_d`: the
  thermostat :math:`v' = v - h \xi v + h \hat g + \sqrt{2 A h}\, n`, :math:`x' = x + h v'`,
  :math:`\xi' = \xi + h (v \cdot v / m - 1)`.

Where documents are remembered, counts and subgradients are those of the present assignments of all
documents, of which the minibatch replaces its own: they are without noise, and what is left of
stochastic gradients is that a step redraws a part of the assignments.

References
----------
Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, algorithm 1 and eq. 30.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.kernels.topic_assignments import collect_words
from pymc_geodesic.kernels.topic_updates import (
    add_counts,
    read_words,
    scir_words,
    sgrld_words,
    sum_words,
)
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.topics.max_margin import add_subgradient, sample_labelled_documents, scores_of


class Passes:
    """Passes over documents, each in a random order.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_documents : int
    ends : ndarray of int, shape (n_minibatches + 1,)
        Where the minibatches of a pass end in its order, behind a zero; documents behind the last
        one are left out.

    Attributes
    ----------
    n_minibatches : int
        Of a pass.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics.ssgrld import Passes
    >>> of_one_size = Passes.of_one_size(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_one_size.next_rows()) for _ in range(2)]
    [2, 2]
    >>> of_all = Passes.of_all(np.random.default_rng(1), 5, batch_size=2)
    >>> [len(of_all.next_rows()) for _ in range(3)]
    [2, 1, 2]
    """

    def __init__(self, rng: np.random.Generator, n_documents: int, ends: np.ndarray) -> None:
        self._rng, self._ends = rng, ends
        self.n_minibatches = len(ends) - 1
        self._order = rng.permutation(n_documents)
        self._place = 0

    @classmethod
    def of_one_size(cls, rng: np.random.Generator, n_documents: int, batch_size: int) -> Passes:
        """Make passes of minibatches of one size, all documents at most; the rest is left out."""
        size = min(batch_size, n_documents)
        return cls(rng, n_documents, size * np.arange(n_documents // size + 1))

    @classmethod
    def of_all(
        cls, rng: np.random.Generator, n_documents: int, batch_size: int, multiple: int = 1
    ) -> Passes:
        """Make passes that leave no document out, of minibatches of nearly one size.

        They are a multiple of ``multiple`` where there are as many documents.
        """
        size = min(batch_size, n_documents)
        n_minibatches = min(-(-n_documents // (size * multiple)) * multiple, n_documents)
        ends = np.linspace(0, n_documents, n_minibatches + 1).round().astype(int)
        return cls(rng, n_documents, ends)

    def next_rows(self) -> np.ndarray:
        """Return the next minibatch."""
        if self._place == self.n_minibatches:
            self._order = self._rng.permutation(len(self._order))
            self._place = 0
        self._place += 1
        return self._order[self._ends[self._place - 1] : self._ends[self._place]]


@dataclass(frozen=True)
class LabelledTokens:
    """Documents as lists of tokens, with labels and the concentrations of their priors.

    Attributes
    ----------
    starts : ndarray of int64, shape (D + 1,)
    words : ndarray of int32, shape (n_tokens,)
    signs : ndarray, shape (D, L)
    alpha, beta : ndarray, shape (K,) and (V,)
    cost, margin, prior_scale : float
        c, ℓ and τ.
    loss : int
        `ONE_AGAINST_ALL` or `MULTICLASS`.
    """

    starts: np.ndarray
    words: np.ndarray
    signs: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    cost: float
    margin: float
    prior_scale: float
    loss: int


@dataclass(frozen=True)
class TopicSettings:
    """How to move.

    Attributes
    ----------
    batch_size : int
        n.
    n_discarded, n_kept : int
        Sweeps over the documents of a minibatch.
    exact_transitions : bool
        Whether topics move by SCIR, or by the Euler steps of SGRLD.
    has_thermostat : bool
        Whether weights move by SSGNHT, or by SSGLD.
    diffusion : float
        A.
    remembers : bool
        Whether counts are those of the present assignments of all documents.
    """

    batch_size: int
    n_discarded: int
    n_kept: int
    exact_transitions: bool
    has_thermostat: bool
    diffusion: float
    remembers: bool


@compiled
def move_counts(
    starts: np.ndarray,
    words: np.ndarray,
    documents: np.ndarray,
    assignments: np.ndarray,
    change: float,
    of_words: np.ndarray,
) -> None:
    """Add a change for every token of some documents to the counts of words in topics."""
    for document in documents:
        for i in range(starts[document], starts[document + 1]):
            of_words[words[i], assignments[i]] += change


@compiled
def total_subgradient(
    starts: np.ndarray,
    in_topics: np.ndarray,
    eta: np.ndarray,
    signs: np.ndarray,
    cost: float,
    margin: float,
    loss: int,
    gradient: np.ndarray,
) -> None:
    """Add a subgradient of Σ log ψ given the assignments of all documents."""
    scores = np.empty(eta.shape[0])
    for document in range(starts.size - 1):
        share = 1.0 / max(starts[document + 1] - starts[document], 1)
        scores_of(in_topics[document], eta, share, scores)
        add_subgradient(
            in_topics[document], share, scores, signs[document], cost, margin, loss, gradient
        )


class MaxMarginTopics:
    """One chain: topics, classifiers, thermostat, and the assignments of all tokens.

    Parameters
    ----------
    data : LabelledTokens
    settings : TopicSettings
    rng : numpy.random.Generator
        Chooses the start, the order of the documents and the random streams.

    Attributes
    ----------
    eta : ndarray, shape (L, K)
    in_topics : ndarray, shape (D, K)
        Counts of the tokens of each document in topics, when it was last visited.
    temperature : float
        v·v / m of the last step; 1 for `TopicSettings.has_thermostat` false.
    documents_seen : int
    """

    def __init__(
        self, data: LabelledTokens, settings: TopicSettings, rng: np.random.Generator
    ) -> None:
        self.data, self.settings, self.rng = data, settings, rng
        self.stream = new_stream(rng)
        n_topics, n_words = len(data.alpha), len(data.beta)
        self._prior = np.ascontiguousarray(np.broadcast_to(data.beta[:, None], (n_words, n_topics)))
        self.assignments = rng.integers(n_topics, size=len(data.words), dtype=np.int32)
        self._of_words = np.zeros((n_words, n_topics))
        every = np.arange(len(data.signs))
        move_counts(data.starts, data.words, every, self.assignments, 1.0, self._of_words)
        self.log_state = np.log(rng.standard_gamma(self._prior + self._of_words) + 1e-290)
        tokens = np.repeat(every, np.diff(data.starts))
        self.in_topics = np.zeros((len(every), n_topics))
        np.add.at(self.in_topics, (tokens, self.assignments), 1.0)
        self.eta = np.zeros((data.signs.shape[1], n_topics))
        self._velocity = rng.standard_normal(self.eta.shape)
        self._friction = settings.diffusion
        self.temperature = 1.0
        self.documents_seen = 0
        self._passes = Passes.of_one_size(rng, len(every), settings.batch_size)
        self._tops, self._sums = np.empty(n_topics), np.empty(n_topics)

    def log_totals(self) -> np.ndarray:
        """Return log Σω of the topics, shape (K,)."""
        sum_words(self.log_state, self._tops, self._sums)
        return self._tops + np.log(self._sums)

    def topics(self) -> np.ndarray:
        """Return φ, shape (K, V)."""
        return np.exp(self.log_state - self.log_totals()).T

    def step(self, topic_step: float, weight_step: float) -> None:
        """Move with the next minibatch.

        Parameters
        ----------
        topic_step : float
            h of `scir_words` or `sgrld_words`, a time.
        weight_step : float
            h of the weights, a time in prior standard deviations.
        """
        data, settings = self.data, self.settings
        documents = self._passes.next_rows()
        n_topics, n_words = len(data.alpha), len(data.beta)
        tokens = np.concatenate(
            [data.words[data.starts[d] : data.starts[d + 1]] for d in documents]
        )
        slots = np.full(n_words, -1, dtype=np.int32)
        words = collect_words(tokens, np.array([[0, len(tokens)]]), slots)
        log_totals = self.log_totals()
        topics = np.empty((len(words), n_topics))
        read_words(self.log_state, log_totals, words, topics)
        counts, gradient = np.zeros((1, len(words), n_topics)), np.zeros_like(self.eta)
        place = (data.starts, data.words, documents, self.assignments)
        if settings.remembers:
            move_counts(*place, -1.0, self._of_words)
        sample_labelled_documents(
            data.starts,
            data.words,
            documents,
            slots,
            topics,
            data.alpha,
            self.eta,
            data.signs,
            data.cost,
            data.margin,
            data.loss,
            settings.n_discarded,
            settings.n_kept,
            self.stream,
            self.assignments,
            counts[0],
            gradient,
            self.in_topics,
        )
        shape = np.empty_like(self._prior)
        if settings.remembers:
            move_counts(*place, 1.0, self._of_words)
            np.add(self._prior, self._of_words, out=shape)
            gradient[:] = 0.0
            labels = (data.signs, data.cost, data.margin, data.loss)
            total_subgradient(data.starts, self.in_topics, self.eta, *labels, gradient)
        else:
            scale = len(data.signs) / len(documents)
            add_counts(self._prior, slots, counts, scale, shape)
            gradient *= scale
        if settings.exact_transitions:
            scir_words(self.log_state, shape, topic_step, self.stream)
        else:
            totals = (shape - self._prior).sum(axis=0)
            sgrld_words(self.log_state, shape, log_totals, totals, topic_step, self.stream)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller looks for infinities
            self._move_weights(gradient, weight_step)
        self.documents_seen += len(documents)

    def _move_weights(self, gradient: np.ndarray, step_size: float) -> None:
        scale, noise = self.data.prior_scale, self.rng.standard_normal(self.eta.shape)
        push = scale * gradient - self.eta / scale
        if not self.settings.has_thermostat:
            self.eta += scale * step_size * (0.5 * step_size * push + noise)
            return
        v = self._velocity
        before = float(np.mean(v * v))
        v *= 1.0 - step_size * self._friction
        v += step_size * push + math.sqrt(2.0 * self.settings.diffusion * step_size) * noise
        self.eta += scale * step_size * v
        # Beyond 1/h friction would turn velocities round, and heat.
        self._friction = min(self._friction + step_size * (before - 1.0), 1.0 / step_size)
        self.temperature = float(np.mean(v * v))
