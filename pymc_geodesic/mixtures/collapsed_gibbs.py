r"""Collapsed Gibbs sampling of a Dirichlet-process mixture of categoricals.

The probabilities of the categories in each cluster are integrated out. A row x of tokens
:math:`w_1, …, w_m` belongs to cluster k with probability

.. math::

    P(z_i = k \mid z_{-i}, x) \propto n_k^{-i} \prod_{t=1}^m
    \frac{\beta_{w_t} + n_{k w_t}^{-i} + \#\{s < t : w_s = w_t\}}
    {\sum_w \beta_w + n_{k \cdot}^{-i} + t - 1},

and to a new cluster with the same expression for a cluster without tokens, with α in place of
:math:`n_k`.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.topic_assignments import SMALLEST_TOTAL
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import pick, uniform
from pymc_geodesic.runtime.variates import log_gamma


@compiled
def move_row(
    tokens: np.ndarray,
    cluster: int,
    sign: float,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Add a row to the counts of a cluster (``sign=1``) or remove it (``sign=-1``)."""
    sizes[cluster] += sign
    totals[cluster] += sign * tokens.size
    for token in tokens:
        table[token, cluster] += sign


@compiled
def count_clusters(
    starts: np.ndarray,
    tokens: np.ndarray,
    which: np.ndarray,
    assignments: np.ndarray,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Count the rows, the tokens of each category and all tokens of each cluster.

    Parameters
    ----------
    starts : ndarray of int64, shape (n + 1,)
        Offsets of the tokens of each row; the last entry is the number of tokens.
    tokens : ndarray of int32, shape (n_tokens,)
        Category of each token, sorted within a row.
    which : ndarray of int64, shape (m,)
        The rows to count.
    assignments : ndarray of int32, shape (n,)
        Cluster of each row.
    sizes : ndarray, shape (K,)
    table : ndarray, shape (V, K)
    totals : ndarray, shape (K,)
        Overwritten with the counts.
    """
    sizes[:] = 0.0
    table[:] = 0.0
    totals[:] = 0.0
    for row in which:
        own = tokens[starts[row] : starts[row + 1]]
        move_row(own, assignments[row], 1.0, sizes, table, totals)


@compiled
def _cluster_weights(
    tokens: np.ndarray,
    beta: np.ndarray,
    beta_sum: float,
    sizes: np.ndarray,
    fresh: int,
    alpha: float,
    table: np.ndarray,
    totals: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Compute the unnormalized probabilities of the clusters for a row; return their sum."""
    weights[:] = sizes[: weights.size]
    weights[fresh] = alpha
    repeats = 0
    for t in range(tokens.size):
        repeats = repeats + 1 if t > 0 and tokens[t] == tokens[t - 1] else 0
        own, all_of = beta[tokens[t]] + repeats, beta_sum + t
        in_category = table[tokens[t]]
        for k in range(weights.size):
            weights[k] *= (in_category[k] + own) / (totals[k] + all_of)
    return weights.sum()


@compiled
def _cluster_weights_by_logarithms(
    tokens: np.ndarray,
    beta: np.ndarray,
    beta_sum: float,
    sizes: np.ndarray,
    fresh: int,
    alpha: float,
    table: np.ndarray,
    totals: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Compute the probabilities of `_cluster_weights` by logarithms, which do not underflow."""
    top = -np.inf
    for k in range(weights.size):
        weight = alpha if k == fresh else sizes[k]
        value = math.log(weight) if weight > 0.0 else -np.inf
        repeats = 0
        for t in range(tokens.size):
            repeats = repeats + 1 if t > 0 and tokens[t] == tokens[t - 1] else 0
            value += math.log(table[tokens[t], k] + beta[tokens[t]] + repeats)
            value -= math.log(totals[k] + beta_sum + t)
        weights[k] = value
        top = max(top, value)
    total = 0.0
    for k in range(weights.size):
        weights[k] = math.exp(weights[k] - top)
        total += weights[k]
    return total


@compiled
def collapsed_rows(
    starts: np.ndarray,
    tokens: np.ndarray,
    first: int,
    beta: np.ndarray,
    alpha: float,
    stream: np.ndarray,
    assignments: np.ndarray,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> int:
    """Draw the cluster of one row after another given those of all others, in place.

    Parameters
    ----------
    starts, tokens, assignments, sizes, table, totals
        See `count_clusters`; the counts are updated. Clusters may be empty, and a row without a
        cluster has the assignment −1.
    first : int
        First row of the sweep.
    beta : ndarray, shape (V,)
        Concentrations of the probabilities of the categories in a cluster.
    alpha : float
        Concentration of the Dirichlet process.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    Returns
    -------
    int
        The number of rows after a complete sweep; otherwise the row at which the sweep stopped
        since all clusters have rows, to be resumed with larger arrays.

    References
    ----------
    Neal (2000), Markov Chain Sampling Methods for Dirichlet Process Mixture Models, algorithm 3.
    """
    starts, beta, assignments = borrow(starts), borrow(beta), borrow(assignments)
    n_rows, capacity = starts.size - 1, sizes.size
    beta_sum = beta.sum()
    buffer = np.empty(capacity)
    width = 0
    for k in range(capacity):
        if sizes[k] > 0.0:
            width = k + 1
    fresh = -1
    for row in range(first, n_rows):
        # The first empty cluster becomes the new one, which keeps `width` small.
        if fresh < 0:
            fresh = 0
            while fresh < capacity and sizes[fresh] > 0.0:
                fresh += 1
            if fresh == capacity:
                return row
            width = max(width, fresh + 1)
        own = tokens[starts[row] : starts[row + 1]]
        if assignments[row] >= 0:
            move_row(own, assignments[row], -1.0, sizes, table, totals)
        weights = buffer[:width]
        total = _cluster_weights(own, beta, beta_sum, sizes, fresh, alpha, table, totals, weights)
        if total < SMALLEST_TOTAL:
            total = _cluster_weights_by_logarithms(
                own, beta, beta_sum, sizes, fresh, alpha, table, totals, weights
            )
        cluster = pick(weights, uniform(stream) * total)
        assignments[row] = cluster
        move_row(own, cluster, 1.0, sizes, table, totals)
        if cluster == fresh:
            fresh = -1
    return n_rows


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
    r"""Draw α given the number of clusters, by one Gibbs step with an auxiliary variable η.

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
        Current value.
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
    r"""Draw α given the numbers of rows of ordered stick-breaking components.

    .. math::

        V_k \mid \alpha \sim \text{Beta}\bigl(1 + n_k,\; \alpha + \textstyle\sum_{l>k} n_l\bigr),
        \qquad
        \alpha \mid V \sim \text{Gamma}\bigl(a + K,\; b - \textstyle\sum_k \log(1 - V_k)\bigr).

    The stick-breaking proportions V are auxiliary variables. In contrast to `draw_concentration`,
    the order of the components is informative about α.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    alpha : float
        Current value.
    sizes : ndarray, shape (K,)
        Number of rows of each component, positive for the last one.
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
