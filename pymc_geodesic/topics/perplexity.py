"""Perplexity of held-out documents: completion of counts of words, density of directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from scipy import sparse

from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced
from pymc_geodesic.ops.bessel import log_vmf_normalizer
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.sparse.count_matrices import word_counts
from pymc_geodesic.topics.alignment import get_topics
from pymc_geodesic.topics.lda import SMALLEST, mean_proportions

BLOCK_SIZE = 2**22
"""Number of log-densities held at once, of a block of documents: 32 MB."""


def perplexity(
    idata: xr.DataTree | np.ndarray,
    observed: Any,
    held_out: Any,
    *,
    alpha: float | np.ndarray | None = None,
    n_tune: int = 20,
    n_sweeps: int = 30,
    n_draws: int | None = None,
    var_name: str = "topics",
    random_seed: int | np.random.Generator | None = None,
) -> float:
    r"""Document-completion perplexity of a topic model of counts.

    Part of the words of each new document is observed, and the others are predicted:

    .. math::

        \exp\Bigl(-\frac{\sum_{dw} h_{dw} \log p_{dw}}{\sum_{dw} h_{dw}}\Bigr), \qquad
        p_{dw} = \frac{1}{M} \sum_{m=1}^M \sum_k \hat\theta^{(m)}_{dk} \varphi^{(m)}_{kw},

    over M posterior draws of the topics φ, with :math:`\hat\theta^{(m)}` the mean of the
    proportions given φ⁽ᵐ⁾ and the observed words of the document, by collapsed Gibbs sampling.
    Smaller is better; a uniform distribution of the words has the size of the vocabulary.

    Parameters
    ----------
    idata : xarray.DataTree or array_like, shape (..., K, V)
        Posterior draws of the topics: ``posterior[var_name]``, or an array of them, rows that sum
        to one.
    observed, held_out : array_like or scipy.sparse matrix, shape (D, V)
        Counts of the observed words and of those to be predicted, of documents that the topics
        were not estimated from; see `pymc_geodesic.datasets.hold_out_words`.
    alpha : float or array_like, shape (K,), optional
        Concentration of the proportions; by default ``constant_data["alpha"]``.
    n_tune, n_sweeps : int
        Gibbs sweeps over each document that are discarded, and that are averaged over.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    var_name : str
        Name of the topics.
    random_seed : int or numpy.random.Generator, optional

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If shapes do not match, topics do not sum to one, counts are negative or fractional,
        nothing is held out, or `alpha` is neither given nor stored.

    See Also
    --------
    log_perplexity : the same question for documents that are directions.

    References
    ----------
    Wallach, Murray, Salakhutdinov, Mimno (2009), Evaluation methods for topic models, section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.topics import perplexity
    >>> topics = np.array([[0.49, 0.49, 0.01, 0.01], [0.01, 0.01, 0.49, 0.49]])
    >>> observed, held_out = np.array([[8, 0, 0, 0]]), np.array([[0, 3, 0, 0]])
    >>> value = perplexity(topics, observed, held_out, alpha=0.1, random_seed=1)
    >>> bool(2.0 < value < 2.2)  # two words to choose from, not four
    True
    """
    topics, stored = _draws_and_settings(idata, var_name)
    if alpha is None:
        if "alpha" not in stored:
            raise ValueError("`alpha` is not in `constant_data`: pass it as an argument.")
        alpha = stored["alpha"]
    topics = topics[evenly_spaced(n_draws, len(topics))]
    held = word_counts(held_out, topics.shape[-1], name="held_out")
    rng = np.random.default_rng(random_seed)
    total = np.zeros(held.nnz)
    for draw in topics:
        total += completion_probabilities(
            draw, observed, held, alpha=alpha, n_tune=n_tune, n_sweeps=n_sweeps, random_seed=rng
        )
    with np.errstate(divide="ignore"):
        log_p = np.log(total / len(topics))
    return float(np.exp(-np.sum(held.data * log_p) / np.sum(held.data)))


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

    The :math:`\sum_k \hat\theta_{dk} \varphi_{kw}` of `perplexity`, for averages that are updated
    while a sampler runs.

    Parameters
    ----------
    topics : ndarray, shape (K, V)
    observed, held_out, alpha, n_tune, n_sweeps, random_seed
        See `perplexity`.

    Returns
    -------
    ndarray, shape (nnz,)
        One for each non-zero of ``held_out``, in the order of its rows and of the words in them.

    Raises
    ------
    ValueError
        If shapes do not match, topics do not sum to one, or counts are negative or fractional.

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
        word_counts(observed, n_words, name="observed"),
        word_counts(held_out, n_words, name="held_out"),
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


def log_perplexity(
    idata: xr.DataTree | np.ndarray,
    held_out: np.ndarray | sparse.csr_matrix,
    *,
    alpha: float | np.ndarray | None = None,
    kappa: float | np.ndarray | None = None,
    n_theta: int = 200,
    n_draws: int | None = None,
    var_name: str = "beta",
    random_seed: int | np.random.Generator | None = None,
) -> float:
    r"""Log-perplexity of held-out directions under a spherical admixture model.

    .. math::

        -\frac{1}{D} \sum_{d=1}^D \log \frac{1}{M N} \sum_{m=1}^M \sum_{n=1}^N
        c_V(\kappa)\, e^{\kappa\, v_d \cdot \bar v(\beta^{(m)}, \theta^{(n)})},
        \qquad \bar v(\beta, \theta) = \frac{\beta^\top \theta}{\lVert \beta^\top \theta \rVert},

    with :math:`M` posterior draws and :math:`\theta^{(n)} \sim \mathrm{Dir}(\alpha)` from the
    prior, the same for all documents and draws: section 5.3 of [1]_. Smaller is better. The unit
    is nats per document, not per word, and the logarithm is that of a density with respect to
    surface measure: the value does not compare with `perplexity`. The logarithm of a mean of few
    terms is biased: the estimate is too large on average, the more so the fewer :math:`\theta` are
    drawn. Compare only figures with the same `n_theta` and `n_draws`.

    Parameters
    ----------
    idata : xarray.DataTree or array_like, shape (..., K, V)
        Posterior draws of the topics: ``posterior[var_name]`` with dimensions
        (chain, draw, topic, word), or an array of them.
    held_out : numpy.ndarray or scipy.sparse matrix, shape (D, V)
        Held-out documents, unit vectors in rows.
    alpha : float or array_like, shape (K,), optional
        Concentration of the Dirichlet prior; by default ``constant_data["alpha"]``.
    kappa : float or array_like, shape (M,), optional
        Concentration of the documents, one for all or one per draw; by default
        ``posterior["kappa"]`` where it was sampled, else ``constant_data["kappa"]``.
    n_theta : int
        Number N of topic proportions.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.
    var_name : str
        Name of the topics.
    random_seed : int or numpy.random.Generator, optional
        Seed of the topic proportions.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If shapes do not match, topics or rows of `held_out` are not unit vectors, or `alpha` or
        `kappa` is neither given nor stored.

    See Also
    --------
    perplexity : document completion, for models of counts.

    References
    ----------
    .. [1] C. Liu, J. Zhu, Y. Song. "Stochastic Gradient Geodesic MCMC Methods", NeurIPS 2016.

    Examples
    --------
    Two topics about two disjoint sets of words predict documents about one set each better than
    two topics that both mix everything:

    >>> import numpy as np
    >>> from pymc_geodesic.topics import log_perplexity
    >>> topics = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]) / np.sqrt(2)
    >>> mixed = np.full((2, 4), 0.5)
    >>> options = dict(alpha=1.0, kappa=50.0, random_seed=1)
    >>> log_perplexity(topics, topics, **options) < log_perplexity(mixed, topics, **options)
    True
    """
    if not sparse.issparse(held_out):
        held_out = np.asarray(held_out, dtype=np.float64)
    beta, stored = _draws_and_settings(idata, var_name)
    alpha = _setting("alpha", alpha, stored)
    kappas = np.broadcast_to(_setting("kappa", kappa, stored).ravel(), len(beta))
    _validate_directions(beta, held_out, alpha)
    kept = evenly_spaced(n_draws, len(beta))
    beta, kappas = beta[kept], kappas[kept]
    rng = np.random.default_rng(random_seed)
    theta = rng.dirichlet(np.broadcast_to(alpha, beta.shape[1]), size=n_theta)

    log_c = log_vmf_normalizer(beta.shape[2], kappas)
    n_documents = held_out.shape[0]
    log_likelihood = np.full(n_documents, -np.inf)
    block = max(1, BLOCK_SIZE // n_theta)
    for topics, concentration, constant in zip(beta, kappas, log_c, strict=True):
        gram = topics @ topics.T
        length = np.sqrt(np.einsum("nk,kl,nl->n", theta, gram, theta, optimize=True))
        weight = concentration * theta.T / length
        cross = held_out @ topics.T
        for start in range(0, n_documents, block):
            rows = slice(start, start + block)
            exponent = cross[rows] @ weight
            largest = exponent.max(axis=1)
            exponent -= largest[:, None]
            total = np.exp(exponent, out=exponent).sum(axis=1)
            of_draw = constant + largest + np.log(total)
            log_likelihood[rows] = np.logaddexp(log_likelihood[rows], of_draw)
    return float(np.log(len(beta) * n_theta) - log_likelihood.mean())


def _draws_and_settings(
    idata: xr.DataTree | np.ndarray, var_name: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return topics of shape (M, K, V), and alpha and kappa where they are stored."""
    if isinstance(idata, np.ndarray | list | tuple):
        topics = np.asarray(idata, dtype=np.float64)
        if topics.ndim < 2:
            raise ValueError(f"Topics need the shape (..., K, V), got {topics.shape}.")
        return topics.reshape(-1, *topics.shape[-2:]), {}
    tree = convert_to_datatree(idata)
    draws = get_topics(tree, var_name)
    stored = {
        name: tree[group].to_dataset()[name].values
        for group, names in (("constant_data", ("alpha", "kappa")), ("posterior", ("kappa",)))
        for name in names
        if group in tree.children and name in tree[group].data_vars
    }
    return draws.values.reshape(-1, *draws.shape[2:]), stored


def _setting(
    name: str, given: float | np.ndarray | None, stored: dict[str, np.ndarray]
) -> np.ndarray:
    """Return a hyperparameter from the argument or the draws."""
    if given is None and name not in stored:
        raise ValueError(
            f"`{name}` is neither in `constant_data` nor in `posterior`: pass it as an argument."
        )
    return np.asarray(stored[name] if given is None else given, dtype=np.float64)


def _validate_directions(
    beta: np.ndarray, held_out: np.ndarray | sparse.csr_matrix, alpha: np.ndarray
) -> None:
    """Validate documents and the prior of their proportions against the topics."""
    n_topics, n_words = beta.shape[1:]
    if held_out.ndim != 2 or held_out.shape[1] != n_words:
        raise ValueError(
            f"`held_out` needs the shape (documents, {n_words}) of the topics' words, got "
            f"{held_out.shape}."
        )
    uneven = ~np.isclose(np.linalg.norm(beta, axis=-1), 1.0, atol=1e-4)
    if uneven.any():
        draw, topic = np.argwhere(uneven)[0]
        raise ValueError(
            f"Topic {topic} of draw {draw} is not a unit vector: divide each topic by its norm."
        )
    if alpha.shape not in ((), (1,), (n_topics,)):
        raise ValueError(
            f"`alpha` must be one number or one for each of the {n_topics} topics, got shape "
            f"{alpha.shape}."
        )
    if isinstance(held_out, np.ndarray):
        squares = np.square(held_out)
    else:
        squares = held_out.multiply(held_out)
    length = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    if not np.allclose(length, 1.0, atol=1e-5):
        row = int(np.argmax(np.abs(length - 1.0)))
        raise ValueError(
            f"Row {row} of `held_out` has length {length[row]:.6g}: divide every row by its norm."
        )
