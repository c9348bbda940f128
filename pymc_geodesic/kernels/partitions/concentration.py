r"""The concentration α of a Dirichlet process with a gamma prior, drawn given the clusters.

With K clusters of n rows, p(K | α) ∝ αᴷ Γ(α) / Γ(α + n). The ratio of gamma functions is in
proportion to the integral over η ∈ (0, 1) of (α + n) / α · η^α (1 − η)^{n−1}: given η, the law of α
is a mixture of two gamma laws.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.log_gamma import log_gamma
from pymc_geodesic.runtime.streams import uniform

__all__ = ["draw_concentration", "draw_concentration_of_sticks", "log_beta"]


@compiled
def log_beta(stream: np.ndarray, first: float, second: float) -> tuple[float, float]:
    """Draw log V and log(1 − V) of a Beta(first, second) variate V; advances the stream.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
    first, second : float
        Positive.

    Returns
    -------
    tuple of float
    """
    x, y = log_gamma(stream, first), log_gamma(stream, second)
    top = max(x, y)
    total = top + math.log1p(math.exp(min(x, y) - top))
    return x - total, y - total


@compiled
def draw_concentration(
    stream: np.ndarray, alpha: float, n_clusters: int, n_rows: int, shape: float, rate: float
) -> float:
    r"""Draw α given the number of clusters, from the conditional law of one Gibbs step.

    .. math::

        \eta \mid \alpha \sim \text{Beta}(\alpha + 1, n), \qquad
        \alpha \mid \eta \sim \pi\, \text{Gamma}(a + K, b - \log\eta)
        + (1 - \pi)\, \text{Gamma}(a + K - 1, b - \log\eta), \qquad
        \frac{\pi}{1 - \pi} = \frac{a + K - 1}{n (b - \log\eta)}.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    alpha : float
        The present value.
    n_clusters, n_rows : int
        K and n, at least one.
    shape, rate : float
        a and b of the prior Gamma(a, rate b).

    Returns
    -------
    float

    References
    ----------
    Escobar, West (1995), Bayesian Density Estimation and Inference Using Mixtures, eqs. 13, 14.
    """
    log_eta = log_beta(stream, alpha + 1.0, float(n_rows))[0]
    rate_now = rate - log_eta
    odds = (shape + n_clusters - 1.0) / (n_rows * rate_now)
    shape_now = shape + n_clusters
    if uniform(stream) * (1.0 + odds) > odds:
        shape_now -= 1.0
    return math.exp(log_gamma(stream, shape_now)) / rate_now


@compiled
def draw_concentration_of_sticks(
    stream: np.ndarray, alpha: float, sizes: np.ndarray, shape: float, rate: float
) -> float:
    r"""Draw α given the rows of components that are sticks in a given order.

    .. math::

        V_k \mid \alpha \sim \text{Beta}\bigl(1 + n_k,\; \alpha + \textstyle\sum_{l>k} n_l\bigr),
        \qquad
        \alpha \mid V \sim \text{Gamma}\bigl(a + K,\; b - \textstyle\sum_k \log(1 - V_k)\bigr).

    The shares V are drawn for this alone, as η is by Escobar and West: what order the components
    have tells of α too.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    alpha : float
        The present value.
    sizes : ndarray, shape (K,)
        Rows of each component, of the last one at least one.
    shape, rate : float
        a and b of the prior Gamma(a, rate b).

    Returns
    -------
    float

    References
    ----------
    Ishwaran, James (2001), Gibbs Sampling Methods for Stick-Breaking Priors, section 5.1.
    """
    after = sizes.sum()
    rate_now = rate
    for k in range(sizes.size):
        after -= sizes[k]
        rate_now -= log_beta(stream, 1.0 + sizes[k], alpha + after)[1]
    return math.exp(log_gamma(stream, shape + sizes.size)) / rate_now
