"""Predictions of Dirichlet-process mixtures of classifiers for new rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_t

from pymc_geodesic.diagnostics.posterior_draws import evenly_spaced, group_with
from pymc_geodesic.distributions.labels import label_probabilities
from pymc_geodesic.runtime.missing_values import check_missing

EXPERT_NAMES = ("sizes", "weights", "mean", "lower")
PRIOR_NAMES = ("strength", "alpha", "prior_mean", "prior_lower")
MODELS = (
    "the draws of mixtures.infinite_svm or mixtures.dp_multinomial_logit_sgnht "
    "(component_probabilities takes those of mixtures.vmf_mixture)"
)


def predict(idata: xr.DataTree, X: ArrayLike, *, n_draws: int | None = None) -> xr.DataArray:
    r"""Predict the label of new rows by a mixture of classifiers.

    The label with the largest probability: for draws of
    `pymc_geodesic.mixtures.infinite_svm` by the votes of the experts (eq. 41 of the paper), for
    those of `pymc_geodesic.mixtures.dp_multinomial_logit_sgnht` by their likelihoods.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of one of these two.
    X : array_like, shape (row, feature)
        Features, scaled as those of the model.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.

    Returns
    -------
    xarray.DataArray, shape (row,)
        Entries of the coordinate ``class`` of the draws.

    Raises
    ------
    ValueError
        If X does not have the features of the model or contains numbers that are not finite,
        ``n_draws`` exceeds the number of draws, or the draws are from another model.

    See Also
    --------
    pymc_geodesic.mixtures.predict_proba : probabilities of the labels.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eq. 41.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import infinite_svm, predict
    >>> X = np.random.default_rng(1).normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> idata = infinite_svm(X, y, draws=20, tune=20, random_seed=1, progressbar=False)
    >>> predict(idata, [[2.0, 0.0], [-2.0, 0.0]]).values
    array([ 1, -1])
    """
    probabilities = _average(idata, X, n_draws, None, "predict")
    chosen = probabilities["class"].values[probabilities.values.argmax(axis=1)]
    return xr.DataArray(chosen, dims="row", name="label")


def predict_proba(
    idata: xr.DataTree,
    X: ArrayLike,
    *,
    kind: Literal["label", "votes"] = "label",
    n_draws: int | None = None,
) -> xr.DataArray:
    r"""Probability of each label of new rows by a mixture of classifiers.

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_{m=1}^M
        \frac{\sum_k n_k\, p_k(x)\, P(y \mid x, \eta_k) + \alpha\, p_0(x) / L}
        {\sum_k n_k\, p_k(x) + \alpha\, p_0(x)}

    with the predictive densities :math:`p_k` of the features of the experts. A new expert predicts
    all L labels with the same probability.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.mixtures.infinite_svm` or
        `pymc_geodesic.mixtures.dp_multinomial_logit_sgnht`.
    X : array_like, shape (row, feature)
        Features, scaled as those of the model.
    kind : {"label", "votes"}
        :math:`P(y \mid x, \eta_k)`: the probability of the label, which is the likelihood of the
        multinomial logit or the hinge pseudo-likelihood normalized over the labels; or 1 for the
        label with the largest score and 0 for the others.
    n_draws : int, optional
        Number of posterior draws to use, evenly spaced over all chains; all by default.

    Returns
    -------
    xarray.DataArray, shape (row, class)

    Raises
    ------
    ValueError
        As `predict`, and if ``kind`` is unknown.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eq. 41 (votes);
    Shahbaba, Neal (2009), Nonlinear Models Using Dirichlet Process Mixtures, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import infinite_svm, predict_proba
    >>> X = np.random.default_rng(1).normal(size=(100, 2))
    >>> idata = infinite_svm(X, X[:, 0] > 0, draws=20, tune=20, random_seed=1, progressbar=False)
    >>> predict_proba(idata, [[2.0, 0.0], [-2.0, 0.0]], kind="votes").argmax("class").values
    array([1, 0])
    """
    if kind not in ("label", "votes"):
        raise ValueError(f'kind={kind!r} is unknown; choose "label" or "votes"')
    return _average(idata, X, n_draws, kind, "predict_proba")


def _average(
    idata: xr.DataTree,
    X: ArrayLike,
    n_draws: int | None,
    kind: Literal["label", "votes"] | None,
    function: str,
) -> xr.DataArray:
    """Average the predictions over draws and experts, shape (row, class).

    By default by votes for the hinge loss, and by probabilities for the logit.
    """
    check_missing("X", X)
    rows = np.atleast_2d(np.asarray(X, dtype=float))
    posterior = group_with(idata, EXPERT_NAMES, f"{function} takes {MODELS}")
    prior = group_with(idata, PRIOR_NAMES, f"{function} takes {MODELS}", group="constant_data")
    p, q = posterior.sizes["feature"], posterior.sizes["weight"]
    if rows.shape[1] != p:
        raise ValueError(f"X has {rows.shape[1]} features, but the model has {p}")
    features = np.column_stack([rows, np.ones(len(rows))]) if q > p else rows
    if kind is None:
        kind = "votes" if "cost" in prior else "label"
    predict_expert = _prediction(kind, prior)
    strength, alpha = float(prior["strength"]), float(prior["alpha"])
    log_new = np.log(alpha) + _log_predictive(
        rows, prior["prior_mean"].values, prior["prior_lower"].values, strength, p + 2.0
    )
    n_classes = posterior.sizes["class"]
    total = np.zeros((len(rows), n_classes))
    samples = posterior.stack(sample=("chain", "draw"))
    chosen = evenly_spaced(n_draws, samples.sizes["sample"])
    for draw in chosen:
        one = samples.isel(sample=draw)
        sizes = one["sizes"].values
        used = np.flatnonzero(sizes > 0)
        weights, mean, lower = (one[name].values for name in ("weights", "mean", "lower"))
        logp = np.empty((len(rows), len(used) + 1))
        logp[:, -1] = log_new
        for j, k in enumerate(used):
            logp[:, j] = np.log(sizes[k]) + _log_predictive(
                rows, mean[k], lower[k], strength + sizes[k], p + 2.0 + sizes[k]
            )
        share = np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
        for j, k in enumerate(used):
            total += share[:, [j]] * predict_expert(features @ weights[k].T)
        total += share[:, -1:] / n_classes
    total /= len(chosen)
    return xr.DataArray(
        total,
        dims=("row", "class"),
        coords={"class": posterior["class"].values},
        name="votes" if kind == "votes" else "probability",
    )


def _prediction(
    kind: Literal["label", "votes"], prior: xr.Dataset
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function from scores, shape (row, class), to probabilities of an expert."""
    if kind == "votes":
        return lambda scores: np.eye(scores.shape[1])[scores.argmax(axis=1)]
    if "cost" in prior:
        cost, margin = float(prior["cost"]), float(prior["margin"])
        return lambda scores: label_probabilities(scores, cost, margin)
    return lambda scores: softmax(scores, axis=1)


def _log_predictive(
    X: np.ndarray, mean: np.ndarray, lower: np.ndarray, kappa: float, nu: float
) -> np.ndarray:
    """Log predictive density of rows under the posterior NIW(mean, κ, ν, lower lowerᵀ)."""
    df = nu - X.shape[1] + 1.0
    scale = (kappa + 1.0) / (kappa * df) * np.tril(lower) @ np.tril(lower).T
    return np.atleast_1d(multivariate_t.logpdf(X, mean, scale, df))
