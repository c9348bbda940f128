"""How well a spherical admixture predicts documents it has not seen."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from scipy import sparse

from pymc_geodesic.diagnostics.plots.canvas import new_axes
from pymc_geodesic.distributions.special import log_vmf_normalizer
from pymc_geodesic.topics.alignment import topics_of

# Doubles held at once for one block of documents, about 32 MB.
BLOCK_SIZE = 2**22


def log_perplexity(
    idata: xr.DataTree | np.ndarray,
    held_out: np.ndarray | sparse.csr_matrix,
    *,
    alpha: float | np.ndarray | None = None,
    kappa: float | np.ndarray | None = None,
    n_theta: int = 200,
    draws: int | None = None,
    var_name: str = "beta",
    random_seed: int | np.random.Generator | None = None,
) -> float:
    r"""Estimate the log-perplexity of held-out documents under a spherical admixture model.

    .. math::

        -\frac{1}{D} \sum_{d=1}^D \log \frac{1}{M N} \sum_{m=1}^M \sum_{n=1}^N
        c_V(\kappa)\, e^{\kappa\, v_d \cdot \bar v(\beta^{(m)}, \theta^{(n)})},
        \qquad \bar v(\beta, \theta) = \frac{\beta^\top \theta}{\lVert \beta^\top \theta \rVert},

    with :math:`M` posterior draws and :math:`\theta^{(n)} \sim \mathrm{Dir}(\alpha)` from the
    prior, the same for all documents and draws: section 5.3 of [1]_. Smaller is better; the unit
    is nats per document. Because a mean of few terms stands inside a logarithm the estimate is
    too large on average, the more so the fewer :math:`\theta` are drawn: compare only figures
    with the same `n_theta` and number of draws.

    Parameters
    ----------
    idata : xarray.DataTree or array_like, shape (..., K, V)
        Posterior draws of the topics: ``posterior[var_name]`` with dimensions
        (chain, draw, topic, word), or the bare values.
    held_out : numpy.ndarray or scipy.sparse matrix, shape (D, V)
        Held-out documents, unit vectors in rows.
    alpha : float or array_like, shape (K,), optional
        Concentration of the Dirichlet prior; by default ``constant_data["alpha"]``.
    kappa : float or array_like, shape (M,), optional
        Concentration of the documents, one for all or one per draw; by default
        ``posterior["kappa"]`` where it was sampled, else ``constant_data["kappa"]``.
    n_theta : int
        Number N of topic proportions.
    draws : int, optional
        Use only this many posterior draws, evenly spaced over all chains.
    var_name : str
        Name of the topics.
    random_seed : int or numpy.random.Generator, optional
        Seed of the topic proportions.

    Returns
    -------
    float
        Log-perplexity.

    Raises
    ------
    ValueError
        If shapes do not fit, topics or rows of `held_out` are not unit vectors, or `alpha` or
        `kappa` is neither given nor stored.

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
    beta, stored = _topics(idata, var_name)
    alpha = _setting("alpha", alpha, stored)
    kappas = np.broadcast_to(_setting("kappa", kappa, stored).ravel(), len(beta))
    _check(beta, held_out, alpha)
    if draws is not None:
        if not 1 <= draws <= len(beta):
            raise ValueError(f"`draws` must be between 1 and the {len(beta)} draws, got {draws}.")
        kept = np.linspace(0, len(beta) - 1, draws).round().astype(int)
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


def _topics(
    idata: xr.DataTree | np.ndarray, var_name: str
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return topics of shape (M, K, V) and the stored values of alpha and kappa."""
    if isinstance(idata, np.ndarray | list | tuple):
        beta = np.asarray(idata, dtype=np.float64)
        if beta.ndim < 2:
            raise ValueError(f"Topics need the shape (..., K, V), got {beta.shape}.")
        return beta.reshape(-1, *beta.shape[-2:]), {}
    idata = convert_to_datatree(idata)
    draws = topics_of(idata, var_name)
    stored = {
        name: idata[group].to_dataset()[name].values
        for group in ("constant_data", "posterior")
        for name in ("alpha", "kappa")
        if group in idata.children and name in idata[group].data_vars
    }
    return draws.values.reshape(-1, *draws.shape[2:]), stored


def _setting(
    name: str, given: float | np.ndarray | None, stored: dict[str, np.ndarray]
) -> np.ndarray:
    """Return a hyper-parameter from the argument or the draws."""
    if given is None and name not in stored:
        raise ValueError(
            f"`{name}` is neither in `constant_data` nor in `posterior`: pass it as an argument."
        )
    return np.asarray(stored[name] if given is None else given, dtype=np.float64)


def _check(beta: np.ndarray, held_out: np.ndarray | sparse.csr_matrix, alpha: np.ndarray) -> None:
    """Raise if documents or prior do not fit the topics."""
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
            f"Topic {topic} of draw {draw} is no unit vector: divide each topic by its norm."
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


def plot_perplexity(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    baselines: Mapping[str, float] | None = None,
    log_time: bool = True,
    ax: Any | None = None,
) -> Any:
    """Plot the held-out log-perplexity of several samplers against wall time.

    Parameters
    ----------
    curves : mapping of str to (array_like, array_like)
        Seconds and log-perplexities by the name of the sampler.
    baselines : mapping of str to float, optional
        Log-perplexities to draw as horizontal lines.
    log_time : bool
        Show time on a logarithmic axis, as the figures of the SGGMC paper do.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from pymc_geodesic.topics import plot_perplexity
    >>> ax = plot_perplexity({"SGGMC": ([1, 10, 60], [4900, 4100, 3850])},
    ...                      baselines={"corpus mean": 5093})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['SGGMC', 'corpus mean']
    """
    ax = new_axes(ax, figsize=(7, 4))
    for name, (seconds, values) in curves.items():
        ax.plot(seconds, values, marker=".", label=name)
    for index, (name, value) in enumerate((baselines or {}).items()):
        style = ("--", ":", "-.")[index % 3]
        ax.axhline(value, color="grey", linestyle=style, label=name)
    if log_time:
        ax.set_xscale("log")
    ax.set(xlabel="wall time (seconds)", ylabel="held-out log-perplexity (nats per document)")
    ax.legend()
    return ax
