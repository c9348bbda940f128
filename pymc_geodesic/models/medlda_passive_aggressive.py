"""Maximum-margin topics from a stream of documents by Bayesian passive-aggressive learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers, check_positive
from pymc_geodesic.kernels.topics.max_margin import ONE_AGAINST_ALL
from pymc_geodesic.kernels.topics.passive_aggressive import OnlineSettings, PassiveAggressiveTopics
from pymc_geodesic.models.labelled_chains import Run, sample_labelled
from pymc_geodesic.models.labelled_counts import labelled_counts

__all__ = ["medlda_passive_aggressive"]


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
    r"""Approximate Gibbs MedLDA from documents that pass once (paMedLDA).

    The model of `medlda_gibbs`. What is known after t minibatches is a Dirichlet law of every topic
    and a normal law of every classifier. They change with a minibatch as little as its words and
    hinge losses allow,

    .. math::

        q_{t+1} = \arg\min_q \text{KL}\bigl(q(\varphi) q(\eta) q(z) \bigm|
        q_t(\varphi)\, q_t(\eta)\, p(z, w \mid \varphi)\bigr)
        + c \sum_d E_q \max(0, \ell - y_d\, \eta \cdot \bar z_d),

    the sum over its documents, by data augmentation and a few Gibbs sweeps over their words. No
    step sizes, and a minibatch costs no more for more words in the vocabulary.

    Parameters
    ----------
    counts, labels, n_topics, alpha, beta, cost, margin, prior_scale
        See `medlda_gibbs`. Labels 0 … L − 1 make L machines that share the topics.
    batch_size : int
        n, documents of a minibatch at most: a pass has as many as hold all, of nearly one size.
    sweeps : tuple of int
        Sweeps over the documents of a minibatch that are not averaged over, and that are.
    rounds : int
        How often sweeps and laws follow each other for one minibatch.
    n_steps : int
        Minibatches between draws.
    draws : int, optional
        Draws that are kept, each from the laws of its time; by default as many as one pass over the
        documents has. Documents that come again count again: the laws are those of several copies.
    tune : int
        Draws before the first that is kept.
    chains, var_names, documents, vocabulary, classes, random_seed, progressbar
        See `medlda_gibbs`.

    Returns
    -------
    xarray.DataTree
        As `medlda_gibbs`. ``zbar`` is that of the last visit of each document, zero before the
        first. The last draws know most.

    Raises
    ------
    ValueError
        As `medlda_gibbs`.

    Notes
    -----
    Spreads are those of mean-field variational inference, too narrow.

    References
    ----------
    Shi, Zhu (2014), Online Bayesian Passive-Aggressive Learning, ICML, whose c is half of the cost.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.models import medlda_passive_aggressive
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
        n_topics=(n_topics, 2),
        batch_size=(batch_size, 1),
        rounds=(rounds, 1),
        n_steps=(n_steps, 1),
        **{"sweeps[0]": (sweeps[0], 0), "sweeps[1]": (sweeps[1], 1)},
        tune=(tune, 0),
        chains=(chains, 1),
    )
    for name, number in (("cost", cost), ("margin", margin), ("prior_scale", prior_scale)):
        check_positive(name, number)
    data = labelled_counts(counts, labels, n_topics, alpha, beta, documents, vocabulary, classes)
    if draws is None:
        draws = max(1, -(-data.n_documents // (batch_size * n_steps)) - tune)
    check_integers(draws=(draws, 1))
    tokens = data.tokens(cost, margin, prior_scale, ONE_AGAINST_ALL)
    settings = OnlineSettings(batch_size, *sweeps, rounds, n_steps)
    run = Run(chains, draws, tune, 1, var_names, random_seed, progressbar)

    def begin(rng: np.random.Generator) -> _Chain:
        return _Chain(PassiveAggressiveTopics(tokens, settings, rng), n_steps)

    return sample_labelled(data, run, begin, cost=tokens.cost, margin=tokens.margin)


class _Chain:
    """Some minibatches for each draw, which is one from the laws of its time."""

    def __init__(self, learner: PassiveAggressiveTopics, n_steps: int) -> None:
        self._learner, self._n_steps = learner, n_steps
        self.in_topics = learner.in_topics

    def advance(self, iteration: int) -> None:
        """Learn from the minibatches of a draw."""
        for _ in range(self._n_steps):
            self._learner.step()

    def topics(self) -> np.ndarray:
        """Draw φ, shape (K, V)."""
        return self._learner.topics()

    def weights(self) -> np.ndarray:
        """Draw η, shape (L, K)."""
        return self._learner.weights.draw(self._learner.rng)

    def stats(self) -> dict[str, float]:
        """How many documents were processed."""
        return {"documents": self._learner.documents_seen}
