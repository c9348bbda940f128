"""How well a topic model of counts completes documents of which it sees a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from scipy import sparse

from pymc_geodesic.kernels.topic_assignments import (
    Entries,
    Expectations,
    Sweeps,
    Topics,
    collect_words,
    sample_documents,
)
from pymc_geodesic.runtime.missing_values import refuse_missing
from pymc_geodesic.runtime.streams import new_stream, split_stream
from pymc_geodesic.topics.alignment import topics_of

SMALLEST = 1e-290
"""Least probability of a word that the sampler of the proportions sees."""


def document_completion_perplexity(
    idata: xr.DataTree | np.ndarray,
    observed: Any,
    held_out: Any,
    *,
    alpha: float | np.ndarray | None = None,
    n_tune: int = 20,
    n_sweeps: int = 30,
    draws: int | None = None,
    var_name: str = "topics",
    random_seed: int | np.random.Generator | None = None,
) -> float:
    r"""Perplexity of the held-out words of documents whose other words are observed.

    .. math::

        \exp\Bigl(-\frac{\sum_{dw} h_{dw} \log p_{dw}}{\sum_{dw} h_{dw}}\Bigr), \qquad
        p_{dw} = \frac{1}{M} \sum_{m=1}^M \sum_k \hat\theta^{(m)}_{dk} \varphi^{(m)}_{kw},

    over M posterior draws of the topics φ, with :math:`\hat\theta^{(m)}` the mean of the
    proportions given φ⁽ᵐ⁾ and the observed words of the document, by collapsed Gibbs sampling.
    Smaller is better: a model that knows nothing has the size of the vocabulary.

    Parameters
    ----------
    idata : xarray.DataTree or array_like, shape (..., K, V)
        Posterior draws of the topics: ``posterior[var_name]``, or the bare values, rows that sum
        to one.
    observed, held_out : array_like or scipy.sparse matrix, shape (D, V)
        Counts of the words that are seen and of those to be predicted, of documents that the
        topics were not estimated from.
    alpha : float or array_like, shape (K,), optional
        Concentration of the proportions; by default ``constant_data["alpha"]``.
    n_tune, n_sweeps : int
        Gibbs sweeps over each document that are discarded, and that are averaged over.
    draws : int, optional
        Use only this many posterior draws, evenly spaced over all chains.
    var_name : str
        Name of the topics.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If shapes do not fit, topics do not sum to one, counts are none, nothing is held out, or
        `alpha` is neither given nor stored.

    References
    ----------
    Wallach, Murray, Salakhutdinov, Mimno (2009), Evaluation methods for topic models, section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import document_completion_perplexity
    >>> topics = np.array([[0.49, 0.49, 0.01, 0.01], [0.01, 0.01, 0.49, 0.49]])
    >>> observed, held_out = np.array([[8, 0, 0, 0]]), np.array([[0, 3, 0, 0]])
    >>> perplexity = document_completion_perplexity(
    ...     topics, observed, held_out, alpha=0.1, random_seed=1
    ... )
    >>> bool(2.0 < perplexity < 2.2)  # two words to choose from, not four
    True
    """
    if isinstance(idata, np.ndarray | list | tuple):
        topics = np.asarray(idata, dtype=np.float64)
        stored = None
    else:
        tree = convert_to_datatree(idata)
        topics = topics_of(tree, var_name).values
        stored = stored_alpha(tree)
    if topics.ndim < 2:
        raise ValueError(f"Topics need the shape (..., K, V), got {topics.shape}.")
    topics = topics.reshape(-1, *topics.shape[-2:])
    if alpha is None:
        if stored is None:
            raise ValueError("`alpha` is not in `constant_data`: pass it as an argument.")
        alpha = stored
    if draws is not None:
        if not 1 <= draws <= len(topics):
            raise ValueError(f"`draws` must be between 1 and the {len(topics)} draws, got {draws}.")
        topics = topics[np.linspace(0, len(topics) - 1, draws).round().astype(int)]
    held = counts_of_words("held_out", held_out, topics.shape[-1])
    rng = np.random.default_rng(random_seed)
    total = np.zeros(held.nnz)
    for draw in topics:
        total += completion_probabilities(
            draw, observed, held, alpha=alpha, n_tune=n_tune, n_sweeps=n_sweeps, random_seed=rng
        )
    return perplexity_of(total / len(topics), held)


def completion_probabilities(
    topics: np.ndarray,
    observed: Any,
    held_out: Any,
    *,
    alpha: float | np.ndarray,
    n_tune: int = 20,
    n_sweeps: int = 30,
    random_seed: int | np.random.Generator | None = None,
) -> np.ndarray:
    r"""Probabilities of held-out words under one draw of the topics.

    The :math:`\sum_k \hat\theta_{dk} \varphi_{kw}` of `document_completion_perplexity`, for
    averages that are kept while a sampler runs.

    Parameters
    ----------
    topics : ndarray, shape (K, V)
    observed, held_out, alpha, n_tune, n_sweeps, random_seed
        See `document_completion_perplexity`.

    Returns
    -------
    ndarray, shape (nnz,)
        One for each non-zero of ``held_out``, in the order of its rows and of the words in them.

    Raises
    ------
    ValueError
        If shapes do not fit, topics do not sum to one, or counts are none.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import completion_probabilities
    >>> topics = np.array([[0.5, 0.5], [0.5, 0.5]])
    >>> completion_probabilities(topics, [[3, 0]], [[0, 1]], alpha=0.1, random_seed=1)
    array([0.5])
    """
    topics = np.maximum(np.asarray(topics, dtype=np.float64), SMALLEST)
    if topics.ndim != 2:
        raise ValueError(f"Topics of one draw need the shape (K, V), got {topics.shape}.")
    sums = topics.sum(axis=1)
    if not np.allclose(sums, 1.0, atol=1e-4):
        worst = int(np.argmax(~np.isclose(sums, 1.0, atol=1e-4)))
        raise ValueError(
            f"Topics are probabilities of words, but those of topic {worst} sum to "
            f"{sums[worst]:.6g}: divide each row by its sum."
        )
    n_topics, n_words = topics.shape
    seen, held = (
        counts_of_words("observed", observed, n_words),
        counts_of_words("held_out", held_out, n_words),
    )
    if seen.shape[0] != held.shape[0]:
        raise ValueError(
            f"`observed` has {seen.shape[0]} documents and `held_out` {held.shape[0]}: both hold "
            "parts of the same ones."
        )
    if not held.nnz:
        raise ValueError("`held_out` holds no word.")
    concentration = np.asarray(alpha, dtype=np.float64)
    if concentration.shape not in ((), (1,), (n_topics,)) or not np.all(concentration > 0):
        raise ValueError(
            f"`alpha` must be one positive number or one for each of the {n_topics} topics, got "
            f"{concentration}."
        )
    proportions = mean_proportions(
        topics,
        seen,
        np.broadcast_to(concentration, (n_topics,)).copy(),
        n_tune,
        n_sweeps,
        new_stream(np.random.default_rng(random_seed)),
    )
    probabilities = np.empty(held.nnz)
    for document in range(held.shape[0]):
        part = slice(held.indptr[document], held.indptr[document + 1])
        probabilities[part] = proportions[document] @ topics[:, held.indices[part]]
    return probabilities


def perplexity_of(probabilities: np.ndarray, held_out: Any) -> float:
    """Perplexity of held-out words by their probabilities.

    Parameters
    ----------
    probabilities : ndarray, shape (nnz,)
        As `completion_probabilities` returns them.
    held_out : array_like or scipy.sparse matrix, shape (D, V)

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics.completion import perplexity_of
    >>> round(perplexity_of(np.array([0.25, 0.25]), np.array([[1, 0], [0, 2]])), 6)
    4.0
    """
    counts = counts_of_words("held_out", held_out, np.shape(held_out)[-1]).data
    with np.errstate(divide="ignore"):
        return float(np.exp(-np.sum(counts * np.log(probabilities)) / np.sum(counts)))


def stored_alpha(tree: xr.DataTree) -> np.ndarray | None:
    """Return the concentration that was stored with the draws."""
    if "constant_data" not in tree.children:
        return None
    data = tree["constant_data"].to_dataset()
    return np.asarray(data["alpha"].values) if "alpha" in data.data_vars else None


def counts_of_words(name: str, counts: Any, n_words: int) -> sparse.csr_array:
    """Take counts of words as a sparse matrix of floats, in order."""
    refuse_missing(f"`{name}`", counts)
    rows = sparse.csr_array(counts if sparse.issparse(counts) else np.atleast_2d(counts))
    if rows.ndim != 2 or rows.shape[1] != n_words:
        raise ValueError(
            f"`{name}` needs the shape (documents, {n_words}) of the topics' words, got "
            f"{rows.shape}."
        )
    rows = rows.astype(np.float64)
    if not rows.has_canonical_format or not np.all(rows.data > 0):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    if np.any(~(rows.data >= 0) | (rows.data != np.floor(rows.data))):
        raise ValueError(f"`{name}` must hold whole numbers of at least 0, counts of words.")
    return rows


def mean_proportions(
    topics: np.ndarray,
    seen: sparse.csr_array,
    alpha: np.ndarray,
    n_tune: int,
    n_sweeps: int,
    stream: np.ndarray,
) -> np.ndarray:
    """Mean proportions of documents given their words, shape (D, K)."""
    if n_tune < 0 or n_sweeps < 1:
        raise ValueError("`n_tune` must be at least 0 and `n_sweeps` at least 1.")
    n_documents, n_topics = seen.shape[0], len(topics)
    rows = np.column_stack([seen.indptr[:-1], seen.indptr[1:]]).astype(np.int64)
    slots = np.full(seen.shape[1], -1, dtype=np.int32)
    columns = seen.indices.astype(np.int32, copy=False)
    words = collect_words(columns, rows, slots)
    gathered = np.ascontiguousarray(topics[:, words].T)
    proportions = np.empty((n_documents, n_topics))
    sample_documents(
        Entries(seen.data, columns, rows),
        Topics(slots, gathered),
        alpha,
        Sweeps(n_tune, n_sweeps),
        split_stream(stream, n_documents),
        np.zeros((n_documents, n_topics)),
        Expectations(np.zeros_like(gathered), proportions),
    )
    return proportions
