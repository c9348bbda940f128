"""Predictions of mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from pymc_geodesic.arguments import check_count
from pymc_geodesic.diagnostics.draws import group_with
from pymc_geodesic.runtime.missing_values import refuse_missing

OF_EXPERTS = ("sizes", "weights", "mean", "lower")

OF_PRIOR = ("strength", "alpha", "prior_mean", "prior_lower")


def _log_density(
    X: np.ndarray, mean: np.ndarray, lower: np.ndarray, kappa: float, nu: float
) -> np.ndarray:
    """Logarithm of the predictive density of a normal law of unknown mean and covariance."""
    p = X.shape[1]
    df = nu - p + 1.0
    scale = (kappa + 1.0) / (kappa * df)
    square = (solve_triangular(lower, (X - mean).T, lower=True, check_finite=False) ** 2).sum(
        axis=0
    )
    return (
        gammaln(0.5 * (df + p)) - gammaln(0.5 * df) - 0.5 * p * np.log(df * np.pi * scale)
        - np.log(np.diag(lower)).sum() - 0.5 * (df + p) * np.log1p(square / (scale * df))
    )  # fmt: skip


def expert_votes(idata: xr.DataTree, X: ArrayLike, *, n_draws: int | None = 50) -> xr.DataArray:
    r"""Share of the votes that each class of a new row gets, over draws and experts.

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_m \frac{\sum_k n_k p_k(x)\,
        [y = \arg\max_{y'} \eta_{k y'} \cdot x] + \alpha\, p_0(x) / L}
        {\sum_k n_k p_k(x) + \alpha\, p_0(x)}

    with the predictive densities of the experts. An expert that is not there yet knows nothing
    of the labels and votes for all of them alike.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.mixtures.infinite_svm`.
    X : array_like, shape (row, feature)
        Features, scaled as those of the model.
    n_draws : int, optional
        Draws to average over, at equal distances in each chain; None for all.

    Returns
    -------
    xarray.DataArray, shape (row, class)
        ``.idxmax("class")`` is the prediction, a label; ``.argmax("class")`` is its number.

    Raises
    ------
    ValueError
        If X has another number of features than the model, or numbers that are not finite,
        ``n_draws`` is not positive, or the draws are of another model.

    References
    ----------
    Hu, Zhu, Zhang (2015), Fast Sampling Methods for Bayesian Max-Margin Models, eq. 41.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import expert_votes
    >>> from pymc_geodesic.mixtures import infinite_svm
    >>> X = np.random.default_rng(1).normal(size=(100, 2))
    >>> idata = infinite_svm(X, X[:, 0] > 0, draws=20, tune=20, random_seed=1, progressbar=False)
    >>> expert_votes(idata, [[2.0, 0.0], [-2.0, 0.0]]).argmax("class").values
    array([1, 0])
    """
    names = ("votes", "expert_votes", "mixtures.infinite_svm")
    return _averaged(idata, X, n_draws, _winner, *names)


def _winner(scores: np.ndarray) -> np.ndarray:
    """One for the class of the largest score, zero for the others."""
    return (scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])).astype(float)


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of a multinomial logit model."""
    return np.exp(scores - logsumexp(scores, axis=1, keepdims=True))


def expert_probabilities(
    idata: xr.DataTree, X: ArrayLike, *, n_draws: int | None = 50
) -> xr.DataArray:
    r"""Probability of each class of a new row, averaged over draws and experts.

    .. math::

        P(y \mid x) = \frac{1}{M} \sum_m \frac{\sum_k n_k p_k(x)\,
        \text{softmax}(\eta_k x)_y + \alpha\, p_0(x) / L}{\sum_k n_k p_k(x) + \alpha\, p_0(x)}

    with the predictive densities of the experts.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws of `pymc_geodesic.mixtures.dp_multinomial_logit`.
    X : array_like, shape (row, feature)
        Features, scaled as those of the model.
    n_draws : int, optional
        Draws to average over, at equal distances in each chain; None for all.

    Returns
    -------
    xarray.DataArray, shape (row, class)

    Raises
    ------
    ValueError
        If X has another number of features than the model, or numbers that are not finite,
        ``n_draws`` is not positive, or the draws are of another model.

    References
    ----------
    Shahbaba, Neal (2009), Nonlinear Models Using Dirichlet Process Mixtures, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import expert_probabilities
    >>> from pymc_geodesic.mixtures import dp_multinomial_logit
    >>> X = np.random.default_rng(1).normal(size=(100, 2))
    >>> idata = dp_multinomial_logit(
    ...     X, X[:, 0] > 0, draws=20, tune=20, random_seed=1, progressbar=False
    ... )
    >>> expert_probabilities(idata, [[2.0, 0.0], [-2.0, 0.0]]).argmax("class").values
    array([1, 0])
    """
    names = ("probabilities", "expert_probabilities", "mixtures.dp_multinomial_logit")
    return _averaged(idata, X, n_draws, _softmax, *names)


def _averaged(
    idata: xr.DataTree,
    X: ArrayLike,
    n_draws: int | None,
    opinion: Callable[[np.ndarray], np.ndarray],
    name: str,
    function: str,
    model: str,
) -> xr.DataArray:
    """Average what experts say of scores, shape (row, class), over draws and experts."""
    check_count("n_draws", n_draws)
    refuse_missing("X", X)
    rows = np.atleast_2d(np.asarray(X, dtype=float))
    takes = f"{function} takes the draws of {model}"
    posterior = group_with(idata, OF_EXPERTS, takes)
    constant = group_with(idata, OF_PRIOR, takes, group="constant_data")
    p, q = posterior.sizes["feature"], posterior.sizes["weight"]
    if rows.shape[1] != p:
        raise ValueError(f"X has {rows.shape[1]} features, but the model has {p}")
    features = np.column_stack([rows, np.ones(len(rows))]) if q > p else rows
    strength, alpha = float(constant["strength"]), float(constant["alpha"])
    base = np.log(alpha) + _log_density(
        rows, constant["prior_mean"].values, constant["prior_lower"].values, strength, p + 2.0
    )
    n_classes = posterior.sizes["class"]
    votes = np.zeros((len(rows), n_classes))
    n_all = posterior.sizes["draw"]
    wanted = n_all if n_draws is None else min(n_draws, n_all)
    chosen = np.linspace(0, n_all - 1, wanted).astype(int)
    for chain in range(posterior.sizes["chain"]):
        for draw in chosen:
            one = posterior.isel(chain=chain, draw=draw)
            sizes = one["sizes"].values
            used = np.flatnonzero(sizes > 0)
            weights, mean, lower = (one[name].values for name in ("weights", "mean", "lower"))
            logp = np.empty((len(rows), len(used) + 1))
            logp[:, -1] = base
            for j, k in enumerate(used):
                logp[:, j] = np.log(sizes[k]) + _log_density(
                    rows, mean[k], lower[k], strength + sizes[k], p + 2.0 + sizes[k]
                )
            share = np.exp(logp - logsumexp(logp, axis=1, keepdims=True))
            for j, k in enumerate(used):
                votes += share[:, [j]] * opinion(features @ weights[k].T)
            votes += share[:, -1:] / n_classes
    votes /= posterior.sizes["chain"] * len(chosen)
    return xr.DataArray(
        votes, dims=("row", "class"), coords={"class": posterior["class"].values}, name=name
    )
