"""How well draws of a mixture of categoricals predict the counts of new rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse
from scipy.special import gammaln, logsumexp

from pymc_geodesic.diagnostics.draws import group_with
from pymc_geodesic.runtime.missing_values import refuse_missing

PACKAGE = str(Path(__file__).parents[1])


def mixture_log_predictive(
    idata: xr.DataTree, counts: Any, *, average: bool = True
) -> xr.DataArray:
    r"""Log-probability of new rows of counts, under a mixture of categoricals.

    .. math::

        \log \frac{1}{M} \sum_{m=1}^M \Bigl[ \sum_k w_k^{(m)} \prod_w
        \bigl(\theta_{kw}^{(m)}\bigr)^{c_{iw}} + w_0^{(m)} f_0(c_i) \Bigr],

    the tokens of a row taken in a given order, without multinomial coefficient. What the weights
    leave to one, :math:`w_0`, are clusters without rows: their share is
    :math:`f_0(c) = \text{E} \prod_w \theta_w^{c_w}` under the prior θ ~ Dirichlet(β).

    Parameters
    ----------
    idata : xarray.DataTree
        ``posterior`` with ``weights`` (component) and ``topics`` (component, category), and
        ``constant_data`` with ``beta`` where weights do not sum to one, as
        `pymc_geodesic.mixtures.dp_categorical_gibbs` returns them.
    counts : array_like or scipy.sparse matrix, shape (row, category)
        Rows that the draws were not made from.
    average : bool
        Whether to average over all draws. If not, every draw has a log-probability of its own.

    Returns
    -------
    xarray.DataArray, shape (row,) or (chain, draw, row)

    Raises
    ------
    ValueError
        If the draws are of another model, or rows have other categories.

    Warns
    -----
    UserWarning
        If draws had more clusters than were kept of them (``n_components=``): the weights of the
        others go to clusters without rows, which predict less well.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import mixture_log_predictive
    >>> draws = {
    ...     "weights": np.full((1, 2, 2), 0.5),
    ...     "topics": np.tile([[0.5, 0.5], [0.1, 0.9]], (1, 2, 1, 1)),
    ... }
    >>> idata = az.from_dict({"posterior": draws})
    >>> np.exp(mixture_log_predictive(idata, [[1, 0], [1, 1]]).values)
    array([0.3 , 0.17])
    """
    takes = "mixture_log_predictive takes the draws of mixtures.dp_categorical_gibbs or its like"
    posterior = group_with(idata, ("weights", "topics"), takes)
    weights, topics = posterior["weights"].values, posterior["topics"].values
    _check_weights(weights, topics, takes)
    rows = _rows(counts, topics.shape[-1])
    rest = np.clip(1.0 - weights.sum(axis=-1), 0.0, 1.0)
    log_prior = np.full(rows.shape[0], -np.inf)
    if np.any(rest > 1e-9):
        if "constant_data" not in idata.children or "beta" not in idata["constant_data"].data_vars:
            raise ValueError(
                "weights do not sum to one, and `constant_data` holds no 'beta', the prior of the "
                "components that have the rest"
            )
        log_prior = _log_prior(rows, idata["constant_data"].to_dataset()["beta"].values)
    _warn_of_dropped_clusters(posterior, weights.shape[-1])
    shape = weights.shape[:2]
    found = np.full(rows.shape[0], -np.inf) if average else np.empty((*shape, rows.shape[0]))
    for place in np.ndindex(*shape):
        with np.errstate(divide="ignore"):
            parts = np.log(weights[place]) + rows @ np.log(topics[place]).T
            value = np.logaddexp(logsumexp(parts, axis=1), np.log(rest[place]) + log_prior)
        if average:
            found = np.logaddexp(found, value - np.log(rest.size))
        else:
            found[place] = value
    dims = ("row",) if average else ("chain", "draw", "row")
    return xr.DataArray(found, dims=dims, name="log_predictive")


def mixture_perplexity(idata: xr.DataTree, counts: Any) -> float:
    r"""Perplexity of the tokens of new rows, under a mixture of categoricals.

    .. math:: \exp\Bigl(-\frac{\sum_i \log p(c_i)}{\sum_{iw} c_{iw}}\Bigr)

    with `mixture_log_predictive` as log p. Smaller is better: a model that knows nothing has the
    number of categories.

    Parameters
    ----------
    idata, counts
        See `mixture_log_predictive`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As `mixture_log_predictive`, and if the rows are empty.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import mixture_perplexity
    >>> draws = {"weights": np.ones((1, 1, 1)), "topics": np.full((1, 1, 1, 4), 0.25)}
    >>> round(mixture_perplexity(az.from_dict({"posterior": draws}), [[1, 0, 2, 0]]), 6)
    4.0
    """
    total = float(np.sum(counts))
    if not total > 0:
        raise ValueError("counts holds no token to predict")
    return float(np.exp(-mixture_log_predictive(idata, counts).sum() / total))


def _check_weights(weights: np.ndarray, topics: np.ndarray, takes: str) -> None:
    """Refuse what has the names of a mixture and is none."""
    if weights.shape != topics.shape[:-1]:
        raise ValueError(
            f"{takes}, but 'weights' of shape {weights.shape} are not those of 'topics' of shape "
            f"{topics.shape}"
        )
    if np.any(weights < 0.0) or np.any(weights.sum(axis=-1) > 1.0 + 1e-6):
        raise ValueError(f"{takes}, but 'weights' are negative, or sum to more than one")


def _warn_of_dropped_clusters(posterior: xr.Dataset, n_kept: int) -> None:
    """Warn where clusters with rows were left out of the draws."""
    most = int(posterior["n_clusters"].max()) if "n_clusters" in posterior.data_vars else 0
    if most > n_kept:
        warnings.warn(
            f"draws had up to {most} clusters, of which the {n_kept} largest were kept: what the "
            "others weigh is taken for clusters without rows, so that rows are predicted less well "
            "than by the model. Sample with a larger n_components=, or None for all.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )


def _rows(counts: Any, n_categories: int) -> sparse.csr_array:
    """Take counts as a sparse matrix."""
    refuse_missing("counts", counts)
    rows = sparse.csr_array(counts if sparse.issparse(counts) else np.atleast_2d(counts))
    if rows.ndim != 2 or rows.shape[1] != n_categories:
        raise ValueError(
            f"counts need the shape (rows, {n_categories}) of the draws' categories, got "
            f"{rows.shape}"
        )
    rows = rows.astype(np.float64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    if np.any(~(rows.data > 0) | (rows.data != np.floor(rows.data))):
        raise ValueError("counts must hold whole numbers of at least 0")
    return rows


def _log_prior(rows: sparse.csr_array, beta: np.ndarray) -> np.ndarray:
    """Log-probability of rows of a component that holds no other row, shape (n,)."""
    beta = np.broadcast_to(beta, (rows.shape[1],))
    gained = rows.copy()
    gained.data = gammaln(beta[rows.indices] + rows.data) - gammaln(beta[rows.indices])
    lengths = rows.sum(axis=1)
    return gained.sum(axis=1) + gammaln(beta.sum()) - gammaln(beta.sum() + lengths)
