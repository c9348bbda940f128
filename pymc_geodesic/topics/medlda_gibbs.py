"""Collapsed Gibbs sampling of max-margin topics (Gibbs MedLDA) with data augmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.kernels.hinge_augmentation import draw_scales, draw_weights
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.topics.labeled_documents import (
    Hinge,
    LabeledCounts,
    SamplingOptions,
    labeled_counts,
    sample_chains,
)
from pymc_geodesic.topics.lda_gibbs import Tokens, Totals, count_assignments, draw_dirichlet
from pymc_geodesic.topics.max_margin import AUGMENTED, ONE_VS_REST, collapsed_max_margin_sweep


def medlda_gibbs(
    counts: ArrayLike | sparse.csr_array,
    labels: ArrayLike,
    n_topics: int,
    alpha: ArrayLike = 1.0,
    beta: ArrayLike = 1.0,
    cost: float = 1.0,
    margin: float = 1.0,
    *,
    prior_scale: float = 1.0,
    augmented_topics: bool = True,
    draws: int = 100,
    tune: int = 100,
    thin: int = 1,
    chains: int = 1,
    var_names: Sequence[str] | None = None,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
    classes: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample Gibbs MedLDA, topics that predict labels, by data augmentation.

    Latent Dirichlet allocation whose mean assignments :math:`\bar z_{dk} = n_{dk} / N_d` are the
    features of a support vector machine,

    .. math::

        p(z, \varphi, \theta, \eta \mid w, y) \propto p(\varphi, \theta, z, w)\,
        N(\eta \mid 0, \tau^2 I)
        \prod_d \exp\bigl(-c \max(0, \ell - y_d\, \eta \cdot \bar z_d)\bigr).

    A sweep draws λ given z and η (1/λ is inverse Gaussian), η given λ and z (normal), and the topic
    of every token given all others, with φ and θ integrated out. The sampler is exact in the limit
    of many sweeps. Labels 0 … L − 1 have L one-vs-rest classifiers that share the topics.

    Parameters
    ----------
    counts : array_like or scipy.sparse matrix, shape (document, word)
        Number of occurrences of each word in each document.
    labels : array_like, shape (document,)
        −1 and +1, or 0 … L − 1.
    n_topics : int
        K.
    alpha, beta : float or array_like, shape (topic,) and (word,)
        Concentrations of the proportions of a document and of the words of a topic.
    cost, margin : float
        c and ℓ, positive. The c of the reference is c / 2.
    prior_scale : float
        τ.
    augmented_topics : bool
        Whether topics are drawn given λ, as in the reference, or with λ integrated out, which has
        the same stationary distribution.
    draws, tune : int
        Number of draws to keep, and of sweeps before the first.
    thin : int
        Number of sweeps per draw.
    chains : int
        Number of independent chains, sampled in sequence.
    var_names : sequence of str, optional
        Variables to store among ``topics``, ``weights`` and ``zbar``; all by default.
    documents, vocabulary, classes : sequence, optional
        Coordinates of the dimensions.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``topics`` (chain, draw, topic, word), ``weights`` (chain, draw, topic)
        or (chain, draw, topic, class), and ``zbar`` (chain, draw, document, topic);
        ``sample_stats`` with the ``accuracy`` and the mean hinge ``loss`` of the documents,
        ``documents``, the number processed since the start, and ``perf_counter_diff``, the
        seconds since the previous draw; ``constant_data`` with ``alpha`` and ``beta``.

    Raises
    ------
    ValueError
        If counts, labels or other arguments are invalid.

    References
    ----------
    Zhu, Chen, Perkins, Zhang (2014), Gibbs Max-margin Topic Models with Data Augmentation,
    JMLR 15:1073, section 4.2 and algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import medlda_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0], [0, 1, 4, 5]])
    >>> idata = medlda_gibbs(
    ...     counts, [1, -1, 1, -1], n_topics=2, margin=16.0, draws=20, tune=20, random_seed=1,
    ...     progressbar=False,
    ... )
    >>> dict(idata.posterior["weights"].sizes)
    {'chain': 1, 'draw': 20, 'topic': 2}
    >>> float(idata.sample_stats["accuracy"][0, -1])
    1.0
    """
    hinge = Hinge(cost, margin, prior_scale)
    data = labeled_counts(counts, labels, n_topics, alpha, beta, documents, vocabulary, classes)
    options = SamplingOptions(draws, tune, chains, var_names, random_seed, progressbar, thin)

    def begin(rng: np.random.Generator) -> _Chain:
        return _Chain(data, hinge, augmented_topics, rng)

    return sample_chains(data, hinge, options, begin)


class _Chain:
    """Assignments, their counts and the classifiers; random topics and zero weights first."""

    def __init__(
        self,
        data: LabeledCounts,
        hinge: Hinge,
        augmented: bool,
        rng: np.random.Generator,
    ) -> None:
        self.data, self.hinge = data, hinge
        self._loss = AUGMENTED if augmented else ONE_VS_REST
        self.rng, self.stream = rng, new_stream(rng)
        n_topics = len(data.alpha)
        self.in_topics = np.empty((data.n_documents, n_topics))
        self.of_words = np.empty((len(data.beta), n_topics))
        self.of_topics = np.empty(n_topics)
        self.assignments = rng.integers(n_topics, size=len(data.words), dtype=np.int32)
        count_assignments(
            Tokens(data.starts, data.words, self.assignments),
            Totals(self.in_topics, self.of_words, self.of_topics),
        )
        self.eta = np.zeros((data.signs.shape[1], n_topics))
        self._documents = 0

    def topics(self) -> np.ndarray:
        """Draw φ, shape (K, V)."""
        return draw_dirichlet(self.rng, self.of_words.T + self.data.beta)

    def weights(self) -> np.ndarray:
        """Return η, shape (L, K)."""
        return self.eta

    def stats(self) -> dict[str, float]:
        """Return the number of documents processed."""
        return {"documents": self._documents}

    def advance(self, iteration: int) -> None:
        """Draw λ, η and all topics."""
        rng, data, hinge = self.rng, self.data, self.hinge
        zbar = data.mean_assignments(self.in_topics)
        scales = draw_scales(rng, hinge.margin - data.signs * (zbar @ self.eta.T), hinge.cost)
        for j in range(data.signs.shape[1]):
            self.eta[j] = draw_weights(
                rng,
                zbar,
                data.signs[:, j],
                scales[:, j],
                cost=hinge.cost,
                margin=hinge.margin,
                prior_scale=hinge.prior_scale,
            )
        collapsed_max_margin_sweep(
            data.starts,
            data.words,
            data.alpha,
            data.beta,
            self.eta,
            data.signs,
            scales,
            hinge.cost,
            hinge.margin,
            self._loss,
            self.stream,
            self.assignments,
            self.in_topics,
            self.of_words,
            self.of_topics,
        )
        self._documents += data.n_documents
