r"""Stochastic subgradient Riemannian Langevin dynamics of topics and classifiers.

Each inner step takes a minibatch of documents, draws the topics of their tokens given the topics φ
and the classifiers η (`pymc_geodesic.topics.max_margin`), and updates

- φ = ω / Σω by SCIR or SGRLD, with the counts of the minibatch times D / n;
- η by Langevin dynamics in units of its prior standard deviation, x = η / τ, whose stochastic
  gradient is :math:`\hat g = -x + \tau \frac{D}{n} \sum_d \partial_\eta \log \psi_d`: the
  thermostat :math:`v' = v - h \xi v + h \hat g + \sqrt{2 A h}\, n`, :math:`x' = x + h v'`,
  :math:`\xi' = \xi + h (v \cdot v / m - 1)`.

With ``memoize=True`` counts and subgradients are those of the current assignments of all documents;
a step redraws the assignments of its minibatch, and the gradients have no minibatch noise.

References
----------
Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, algorithm 1 and eq. 30.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers, check_positive, step_size_at
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
from pymc_geodesic.schedules import PolynomialDecay, Schedule
from pymc_geodesic.topics.labeled_documents import (
    Hinge,
    LabeledCounts,
    Passes,
    SamplingOptions,
    labeled_counts,
    sample_chains,
)
from pymc_geodesic.topics.max_margin import (
    add_subgradient,
    compute_scores,
    sample_assignments,
)

TOPIC_STEPS: dict[str, Schedule] = {
    "SCIR": PolynomialDecay(1.0, b=10, gamma=0.6),
    "SGRLD": PolynomialDecay(1e-3, b=10, gamma=0.6),
}

WEIGHT_STEPS: dict[str, Schedule] = {
    "SSGNHT": PolynomialDecay(0.2, b=1, gamma=0.0),
    "SSGLD": PolynomialDecay(0.5, b=10, gamma=0.5),
}


@dataclass(frozen=True)
class TopicSettings:
    """Settings of the sampler.

    Attributes
    ----------
    batch_size : int
        n.
    n_discarded, n_kept : int
        Numbers of Gibbs sweeps over the documents of a minibatch.
    exact_transitions : bool
        Whether topics are updated by SCIR instead of SGRLD.
    has_thermostat : bool
        Whether weights are updated by SSGNHT instead of SSGLD.
    diffusion : float
        A.
    memoize : bool
        Whether counts are those of the current assignments of all documents.
    """

    batch_size: int
    n_discarded: int
    n_kept: int
    exact_transitions: bool
    has_thermostat: bool
    diffusion: float
    memoize: bool


@compiled
def shift_counts(
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
        compute_scores(in_topics[document], eta, share, scores)
        add_subgradient(
            in_topics[document], share, scores, signs[document], cost, margin, loss, gradient
        )


class MaxMarginTopics:
    """One chain: topics, classifiers, thermostat, and the assignments of all tokens.

    Parameters
    ----------
    data : LabeledCounts
    hinge : Hinge
    settings : TopicSettings
    rng : numpy.random.Generator
        Generator of the initial state, the order of the documents and the random streams.

    Attributes
    ----------
    eta : ndarray, shape (L, K)
    in_topics : ndarray, shape (D, K)
        Counts of the tokens of each document in topics, when it was last visited.
    temperature : float
        v·v / m of the last step; 1 without thermostat.
    documents_seen : int
    """

    def __init__(
        self, data: LabeledCounts, hinge: Hinge, settings: TopicSettings, rng: np.random.Generator
    ) -> None:
        self.data, self.hinge, self.settings, self.rng = data, hinge, settings, rng
        self.stream = new_stream(rng)
        n_topics, n_words = len(data.alpha), len(data.beta)
        self._prior = np.ascontiguousarray(np.broadcast_to(data.beta[:, None], (n_words, n_topics)))
        self.assignments = rng.integers(n_topics, size=len(data.words), dtype=np.int32)
        self._of_words = np.zeros((n_words, n_topics))
        every = np.arange(len(data.signs))
        shift_counts(data.starts, data.words, every, self.assignments, 1.0, self._of_words)
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
        """Update topics and weights with the next minibatch.

        Parameters
        ----------
        topic_step : float
            h of `scir_words` or `sgrld_words`, a time.
        weight_step : float
            h of the weights, a time in prior standard deviations.
        """
        data, hinge, settings = self.data, self.hinge, self.settings
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
        tokens_of_batch = (data.starts, data.words, documents, self.assignments)
        if settings.memoize:
            shift_counts(*tokens_of_batch, -1.0, self._of_words)
        sample_assignments(
            data.starts,
            data.words,
            documents,
            slots,
            topics,
            data.alpha,
            self.eta,
            data.signs,
            hinge.cost,
            hinge.margin,
            hinge.loss,
            settings.n_discarded,
            settings.n_kept,
            self.stream,
            self.assignments,
            counts[0],
            gradient,
            self.in_topics,
        )
        shape = np.empty_like(self._prior)
        if settings.memoize:
            shift_counts(*tokens_of_batch, 1.0, self._of_words)
            np.add(self._prior, self._of_words, out=shape)
            gradient[:] = 0.0
            labels = (data.signs, hinge.cost, hinge.margin, hinge.loss)
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
        with np.errstate(over="ignore", invalid="ignore"):  # checked by the caller
            self._update_weights(gradient, weight_step)
        self.documents_seen += len(documents)

    def _update_weights(self, gradient: np.ndarray, step_size: float) -> None:
        scale, noise = self.hinge.prior_scale, self.rng.standard_normal(self.eta.shape)
        scaled_gradient = scale * gradient - self.eta / scale
        if not self.settings.has_thermostat:
            self.eta += scale * step_size * (0.5 * step_size * scaled_gradient + noise)
            return
        v = self._velocity
        before = float(np.mean(v * v))
        v *= 1.0 - step_size * self._friction
        v += (
            step_size * scaled_gradient
            + math.sqrt(2.0 * self.settings.diffusion * step_size) * noise
        )
        self.eta += scale * step_size * v
        # Friction above 1/h would reverse velocities and increase the temperature.
        self._friction = min(self._friction + step_size * (before - 1.0), 1.0 / step_size)
        self.temperature = float(np.mean(v * v))


def medlda_ssgrld(
    counts: ArrayLike | sparse.csr_array,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 1.0,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    loss: Literal["one_vs_rest", "multiclass"] = "one_vs_rest",
    prior_scale: float = 1.0,
    batch_size: int = 64,
    topics_by: Literal["SCIR", "SGRLD"] = "SCIR",
    weights_by: Literal["SSGNHT", "SSGLD"] = "SSGNHT",
    topic_step: float | Schedule | None = None,
    weight_step: float | Schedule | None = None,
    diffusion: float = 1.0,
    memoize: bool = False,
    sweeps: tuple[int, int] = (1, 2),
    n_steps: int = 1,
    draws: int = 100,
    tune: int = 100,
    chains: int = 1,
    var_names: Sequence[str] | None = None,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample Gibbs MedLDA with minibatches of documents (SSGRLD).

    The posterior of `medlda_gibbs`. An inner step draws the topics of the tokens of a minibatch by
    Gibbs sampling given topics φ and weights η,

    .. math:: P(z_i = k \mid z_{-i}) \propto (\alpha_k + n_k^{-i})\, \varphi_{k w_i}\,
              \psi(y \mid \bar z, \eta),

    and scales their counts and their subgradient of :math:`\log \psi` by D / n to update φ by SCIR
    or SGRLD and η by SSGNHT or SSGLD.

    Parameters
    ----------
    counts, labels, n_topics, alpha, beta, cost, margin, prior_scale
        See `medlda_gibbs`.
    loss : {"one_vs_rest", "multiclass"}
        For labels 0 … L − 1, one hinge per class, or the multiclass hinge
        :math:`\max(0, \ell + \max_{l \ne y} s_l - s_y)`.
    batch_size : int
        n, documents of a minibatch.
    topics_by : {"SCIR", "SGRLD"}
        Exact transitions of the Cox–Ingersoll–Ross process, or its Euler steps.
    weights_by : {"SSGNHT", "SSGLD"}
        With a thermostat, which compensates the noise of minibatches, or without.
    topic_step, weight_step : float or callable, optional
        Step sizes, as times: of topics in units of their relaxation time, of weights in prior
        standard deviations. Numbers, or functions of the inner step such as `PolynomialDecay`.
    diffusion : float
        A of SSGNHT.
    memoize : bool
        Whether counts and subgradients of all documents are stored, and those of the minibatch
        replaced. There is no minibatch noise: every step leaves the posterior invariant up to the
        discretization of the weights. Convergence is slower at first, while most assignments are
        old.
    sweeps : tuple of int
        Numbers of Gibbs sweeps over a minibatch that are discarded, and that are averaged over.
    n_steps : int
        Number of inner steps per draw, one minibatch each.
    draws, tune, chains, var_names, documents, vocabulary, classes, random_seed, progressbar
        See `medlda_gibbs`.

    Returns
    -------
    xarray.DataTree
        As `medlda_gibbs`, and sample stats ``topic_step``, ``weight_step`` and ``temperature``
        (v·v / m of the last inner step of SSGNHT). ``zbar`` is that of the last visit of each
        document.

    Raises
    ------
    ValueError
        If counts, labels or other arguments are invalid.
    FloatingPointError
        If the weights become infinite or NaN.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-margin Models, section 4.1, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_ssgrld
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_ssgrld(
    ...     counts, [1, -1, 1, -1], n_topics=2, margin=16.0, batch_size=2, draws=20, random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dict(idata.posterior["weights"].sizes)
    {'chain': 1, 'draw': 20, 'topic': 2}
    >>> float(idata.sample_stats["accuracy"][0, -1])
    1.0
    """
    check_integers(
        batch_size=(batch_size, 1),
        n_steps=(n_steps, 1),
        **{"sweeps[0]": (sweeps[0], 0), "sweeps[1]": (sweeps[1], 1)},
    )
    for name, value, choices in (
        ("loss", loss, ("one_vs_rest", "multiclass")),
        ("topics_by", topics_by, tuple(TOPIC_STEPS)),
        ("weights_by", weights_by, tuple(WEIGHT_STEPS)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {choices}, got {value!r}")
    steps = {"diffusion": diffusion, "topic_step": topic_step, "weight_step": weight_step}
    for name, number in steps.items():
        check_positive(name, number)
    hinge = Hinge(cost, margin, prior_scale, multiclass=loss == "multiclass")
    data = labeled_counts(counts, labels, n_topics, alpha, beta, documents, vocabulary, classes)
    if hinge.multiclass and data.is_binary:
        raise ValueError("loss='multiclass' needs labels 0 … L - 1, got -1 and +1")
    settings = TopicSettings(
        batch_size=batch_size,
        n_discarded=sweeps[0],
        n_kept=sweeps[1],
        exact_transitions=topics_by == "SCIR",
        has_thermostat=weights_by == "SSGNHT",
        diffusion=float(diffusion),
        memoize=memoize,
    )
    topic_steps = _schedule(TOPIC_STEPS[topics_by] if topic_step is None else topic_step)
    weight_steps = _schedule(WEIGHT_STEPS[weights_by] if weight_step is None else weight_step)
    options = SamplingOptions(draws, tune, chains, var_names, random_seed, progressbar)

    def begin(rng: np.random.Generator) -> _Chain:
        return _Chain(
            MaxMarginTopics(data, hinge, settings, rng), n_steps, topic_steps, weight_steps
        )

    return sample_chains(data, hinge, options, begin)


class _Chain:
    """State and step size schedules of one chain."""

    def __init__(
        self, sampler: MaxMarginTopics, n_steps: int, topic_steps: Schedule, weight_steps: Schedule
    ) -> None:
        self._sampler, self._n_steps = sampler, n_steps
        self._topic_steps, self._weight_steps = topic_steps, weight_steps
        self._last = (0.0, 0.0)
        self.in_topics = sampler.in_topics

    def advance(self, iteration: int) -> None:
        """Take the inner steps of a draw."""
        for step in range(self._n_steps):
            inner = iteration * self._n_steps + step
            of_topics = step_size_at(self._topic_steps, inner)
            of_weights = step_size_at(self._weight_steps, inner)
            self._sampler.step(of_topics, of_weights)
            if not np.all(np.isfinite(self._sampler.eta)):
                raise FloatingPointError(
                    f"The weights are not finite at draw {iteration} with "
                    f"weight_step={of_weights}. Use a smaller weight_step."
                )
            self._last = of_topics, of_weights

    def topics(self) -> np.ndarray:
        """Return φ, shape (K, V)."""
        return self._sampler.topics()

    def weights(self) -> np.ndarray:
        """Return η, shape (L, K)."""
        return self._sampler.eta

    def stats(self) -> dict[str, float]:
        """Return documents processed, the last step sizes and the temperature."""
        topic_step, weight_step = self._last
        return {
            "documents": self._sampler.documents_seen,
            "topic_step": topic_step,
            "weight_step": weight_step,
            "temperature": self._sampler.temperature,
        }


def _schedule(step_size: float | Schedule) -> Schedule:
    """Convert a number to a constant schedule."""
    return step_size if callable(step_size) else PolynomialDecay(step_size, b=1, gamma=0.0)
