"""Log predictive probability and perplexity of new rows under a mixture of categoricals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse
from scipy.special import gammaln, logsumexp

from pymc_geodesic.diagnostics.posterior_draws import group_with
from pymc_geodesic.sparse.count_matrices import word_counts

PACKAGE = str(Path(__file__).parents[1])


def log_predictive(idata: xr.DataTree, counts: Any, *, average: bool = True) -> xr.DataArray:
    r"""Log predictive probability of new rows of counts under a mixture of categoricals.

    .. math::

        \log \frac{1}{M} \sum_{m=1}^M \Bigl[ \sum_k w_k^{(m)} \prod_w
        \bigl(\theta_{kw}^{(m)}\bigr)^{c_{iw}} + w_0^{(m)} f_0(c_i) \Bigr],

    for the tokens of a row in a given order, that is, without the multinomial coefficient.
    :math:`w_0 = 1 - \sum_k w_k` is the weight of the clusters without rows, which predict with the
    prior θ ~ Dirichlet(β): :math:`f_0(c) = \text{E} \prod_w \theta_w^{c_w}`.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.mixtures.dp_categorical_gibbs` or another sampler of the mixture:
        ``posterior`` with ``weights`` (component) and ``topics`` (component, category), and
        ``constant_data`` with ``beta`` if the weights do not sum to one.
    counts : array_like or scipy.sparse matrix, shape (row, category)
        Held-out rows.
    average : bool
        Whether to average the probability over all draws. If not, return one log-probability for
        each draw.

    Returns
    -------
    xarray.DataArray, shape (row,) or (chain, draw, row)

    Raises
    ------
    ValueError
        If the draws are from another model, or the number of categories differs.

    Warns
    -----
    UserWarning
        If draws had more clusters than ``n_components=`` kept: the weights of the others count as
        those of clusters without rows, which predict less well.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import log_predictive
    >>> draws = {
    ...     "weights": np.full((1, 2, 2), 0.5),
    ...     "topics": np.tile([[0.5, 0.5], [0.1, 0.9]], (1, 2, 1, 1)),
    ... }
    >>> idata = az.from_dict({"posterior": draws})
    >>> np.exp(log_predictive(idata, [[1, 0], [1, 1]]).values)
    array([0.3 , 0.17])
    """
    takes = "log_predictive takes the draws of mixtures.dp_categorical_gibbs or a similar sampler"
    posterior = group_with(idata, ("weights", "topics"), takes)
    weights, topics = posterior["weights"].values, posterior["topics"].values
    _validate_weights(weights, topics, takes)
    rows = word_counts(counts, topics.shape[-1])
    rest = np.clip(1.0 - weights.sum(axis=-1), 0.0, 1.0)
    log_prior = np.full(rows.shape[0], -np.inf)
    if np.any(rest > 1e-9):
        if "constant_data" not in idata.children or "beta" not in idata["constant_data"].data_vars:
            raise ValueError(
                "The weights do not sum to one, and `constant_data` has no variable 'beta', the "
                "prior of the components that have the rest of the weight."
            )
        log_prior = _log_prior(rows, idata["constant_data"].to_dataset()["beta"].values)
    _warn_of_dropped_clusters(posterior, weights.shape[-1])
    shape = weights.shape[:2]
    found = np.full(rows.shape[0], -np.inf) if average else np.empty((*shape, rows.shape[0]))
    for index in np.ndindex(*shape):
        with np.errstate(divide="ignore"):
            parts = np.log(weights[index]) + rows @ np.log(topics[index]).T
            value = np.logaddexp(logsumexp(parts, axis=1), np.log(rest[index]) + log_prior)
        if average:
            found = np.logaddexp(found, value - np.log(rest.size))
        else:
            found[index] = value
    dims = ("row",) if average else ("chain", "draw", "row")
    return xr.DataArray(found, dims=dims, name="log_predictive")


def perplexity(idata: xr.DataTree, counts: Any) -> float:
    r"""Perplexity of new rows of counts under a mixture of categoricals.

    .. math:: \exp\Bigl(-\frac{\sum_i \log p(c_i)}{\sum_{iw} c_{iw}}\Bigr)

    with log p from `log_predictive`. Smaller is better; a uniform distribution has the number of
    categories.

    Parameters
    ----------
    idata, counts
        See `log_predictive`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As `log_predictive`, and if all rows are empty.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import perplexity
    >>> draws = {"weights": np.ones((1, 1, 1)), "topics": np.full((1, 1, 1, 4), 0.25)}
    >>> round(perplexity(az.from_dict({"posterior": draws}), [[1, 0, 2, 0]]), 6)
    4.0
    """
    total = float(np.sum(counts))
    if not total > 0:
        raise ValueError("counts has no tokens.")
    return float(np.exp(-log_predictive(idata, counts).sum() / total))


def _validate_weights(weights: np.ndarray, topics: np.ndarray, takes: str) -> None:
    """Raise ValueError if weights and topics are not those of a mixture."""
    if weights.shape != topics.shape[:-1]:
        raise ValueError(
            f"{takes}, but 'weights' of shape {weights.shape} do not match 'topics' of shape "
            f"{topics.shape}"
        )
    if np.any(weights < 0.0) or np.any(weights.sum(axis=-1) > 1.0 + 1e-6):
        raise ValueError(f"{takes}, but 'weights' are negative, or sum to more than one")


def _warn_of_dropped_clusters(posterior: xr.Dataset, n_kept: int) -> None:
    """Warn if clusters with rows were left out of the draws."""
    most = int(posterior["n_clusters"].max()) if "n_clusters" in posterior.data_vars else 0
    if most > n_kept:
        warnings.warn(
            f"The draws had up to {most} clusters, of which the {n_kept} largest were kept. The "
            "weights of the others count as those of clusters without rows, which underestimates "
            "the predictive probability. Sample with a larger n_components=, or None for all.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )


def _log_prior(rows: sparse.csr_array, beta: np.ndarray) -> np.ndarray:
    """Return the log prior predictive probability of rows, shape (n,)."""
    beta = np.broadcast_to(beta, (rows.shape[1],))
    gained = rows.copy()
    gained.data = gammaln(beta[rows.indices] + rows.data) - gammaln(beta[rows.indices])
    lengths = rows.sum(axis=1)
    return gained.sum(axis=1) + gammaln(beta.sum()) - gammaln(beta.sum() + lengths)
