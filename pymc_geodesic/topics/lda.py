"""Latent Dirichlet allocation: the model, and proportions of documents given topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.distributions.initial_values import DirichletFromDraw
from pymc_geodesic.kernels.topic_assignments import (
    Entries,
    Expectations,
    Sweeps,
    Topics,
    collect_words,
    sample_documents,
)
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.sparse import SparseData, admixture_log_likelihood
from pymc_geodesic.sparse.count_matrices import axis_coords, concentration, word_counts


def document_coords(
    data: Any,
    shape: tuple[int, ...],
    documents: Sequence[Any] | None,
    vocabulary: Sequence[Any] | None,
    of: str = "counts",
) -> dict[str, Any]:
    """Coordinates of documents and words; see `axis_coords`."""
    axes = {"document": ("documents", documents), "word": ("vocabulary", vocabulary)}
    return axis_coords(data, shape, of=of, **axes)


def lda(
    counts: ArrayLike | sparse.csr_array,
    n_topics: int,
    alpha: ArrayLike = 0.1,
    beta: ArrayLike = 0.01,
    *,
    documents: Sequence[Any] | None = None,
    vocabulary: Sequence[Any] | None = None,
) -> pm.Model:
    r"""Latent Dirichlet allocation (LDA) of documents given as counts of words.

    .. math::

        \varphi_k \sim \text{Dirichlet}(\beta), \quad
        \theta_d \sim \text{Dirichlet}(\alpha), \quad
        \log p(c \mid \theta, \varphi)
        = \sum_{d, w} c_{dw} \log \sum_k \theta_{dk} \varphi_{kw}

    The likelihood sums over the topics of the single words and is evaluated on the non-zero
    counts. Three ways to sample it:

    - ``SCIR(["topics", "theta"], local=["theta"], minibatch=["counts"], batch_size=50)``, or
      `SGRLD`: collapsed Gibbs sweeps over the words of the documents of each minibatch, as in
      the papers;
    - ``SGGMC(local=["theta"], minibatch=["counts"], batch_size=50)``: geodesic Monte Carlo of θ,
      for β near or above one;
    - ``pm.sample()``: NUTS, for a few documents.

    Parameters
    ----------
    counts : array_like, data frame or scipy.sparse matrix, shape (document, word)
        Number of occurrences of each word in each document. Documents may be empty. For streams
        (``batches=``) pass the largest block.
    n_topics : int
        K.
    alpha : float or array_like, shape (topic,)
        Concentration of the topic proportions of a document.
    beta : float or array_like, shape (word,)
        Concentration of the words of a topic.
    documents, vocabulary : sequence, optional
        Coordinates of the dimensions; index and columns of a data frame by default.

    Returns
    -------
    pymc.Model
        With free variables ``topics`` (topic, word) and ``theta`` (document, topic); the
        potential ``words`` (document), the log-likelihood of each document without its
        multinomial coefficient; and data ``alpha`` (topic), ``beta`` (word) and the
        `SparseData` named ``counts``, in the containers ``counts_values``, ``counts_columns`` and
        ``counts_rows`` (``SparseData.find("counts", model=model)``).

    Raises
    ------
    ValueError
        If counts are negative, fractional or not finite, a parameter is out of range, or the
        number of names does not match.

    References
    ----------
    Blei, Ng, Jordan (2003), Latent Dirichlet Allocation.
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, section 4.
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, section 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import lda
    >>> model = lda(np.random.default_rng(1).poisson(0.5, size=(30, 8)), n_topics=3)
    >>> model.named_vars_to_dims["topics"], model.named_vars_to_dims["theta"]
    (('topic', 'word'), ('document', 'topic'))
    """
    matrix = word_counts(counts)
    n_words = matrix.shape[1]
    check_integers(n_topics=(n_topics, 2))
    if n_words < 2:
        raise ValueError("counts needs at least two words (columns)")
    concentrations = {
        "alpha": concentration("alpha", alpha, int(n_topics)),
        "beta": concentration("beta", beta, n_words),
    }
    coords = document_coords(counts, matrix.shape, documents, vocabulary)
    coords["topic"] = np.arange(int(n_topics))
    with pm.Model(coords=coords) as model:
        data = SparseData("counts", matrix, dims=("document", "word"))
        a = pm.Data("alpha", concentrations["alpha"], dims="topic")
        b = pm.Data("beta", concentrations["beta"], dims="word")
        # Starts at a random draw: equal topics separate slowly.
        topics = DirichletFromDraw("topics", b, dims=("topic", "word"))
        theta = pm.Dirichlet("theta", a, dims=("document", "topic"))
        pm.Potential("words", admixture_log_likelihood(data, theta, topics), dims="document")
    return model


SMALLEST = 1e-290
"""Least probability of a word in a topic that the Gibbs sampler of the proportions uses."""


def stored_alpha(tree: xr.DataTree) -> np.ndarray | None:
    """Return ``constant_data["alpha"]``, the concentration of the proportions, or None."""
    if "constant_data" not in tree.children:
        return None
    data = tree["constant_data"].to_dataset()
    return np.asarray(data["alpha"].values) if "alpha" in data.data_vars else None


def mean_proportions(
    topics: np.ndarray,
    counts: sparse.csr_array,
    alpha: np.ndarray,
    n_tune: int,
    n_sweeps: int,
    stream: np.ndarray,
) -> np.ndarray:
    """Posterior mean of the proportions of documents given topics, by collapsed Gibbs sampling.

    Parameters
    ----------
    topics : ndarray, shape (K, V)
        Positive probabilities of words.
    counts : scipy.sparse.csr_array, shape (D, V)
    alpha : ndarray, shape (K,)
    n_tune, n_sweeps : int
        Sweeps over each document that are discarded, and that are averaged over.
    stream : ndarray of uint64, shape (2,)
        Random stream.

    Returns
    -------
    ndarray, shape (D, K)
    """
    if n_tune < 0 or n_sweeps < 1:
        raise ValueError("`n_tune` must be at least 0 and `n_sweeps` at least 1.")
    n_documents, n_topics = counts.shape[0], len(topics)
    rows = np.column_stack([counts.indptr[:-1], counts.indptr[1:]]).astype(np.int64)
    slots = np.full(counts.shape[1], -1, dtype=np.int32)
    columns = counts.indices.astype(np.int32, copy=False)
    words = collect_words(columns, rows, slots)
    gathered = np.ascontiguousarray(topics[:, words].T)
    proportions = np.empty((n_documents, n_topics))
    sample_documents(
        Entries(counts.data, columns, rows),
        Topics(slots, gathered),
        alpha,
        Sweeps(n_tune, n_sweeps),
        split_stream(stream, n_documents),
        np.zeros((n_documents, n_topics)),
        Expectations(np.zeros_like(gathered), proportions),
    )
    return proportions
