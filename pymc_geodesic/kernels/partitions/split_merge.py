r"""Splits and merges of whole clusters, where moves of one row at a time pass through bad ones.

Two rows are chosen. If they share a cluster, a split is proposed that puts each into its own part;
if not, a merge of their two clusters. The split is drawn by *restricted* Gibbs sweeps: all other
rows of the cluster choose between two parts, one after the other at first, then given those of all
others, with the probabilities of the categories integrated out,

.. math::

    \frac{P(\text{part } 1)}{P(\text{part } 0)} = \frac{n_1}{n_0} \prod_t
    \frac{\beta_{w_t} + n_{1 w_t} + \#\{s < t : w_s = w_t\}}
    {\beta_{w_t} + n_{0 w_t} + \#\{s < t : w_s = w_t\}}
    \cdot \frac{\sum\beta + n_{0\cdot} + t - 1}{\sum\beta + n_{1\cdot} + t - 1}.

The last sweep alone has a probability q that counts: that of the parts given those before it.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.partitions.collapsed_gibbs import move_row
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import uniform

__all__ = ["split_or_merge"]

LARGEST_PRODUCT = 1e100
"""Where a product of ratios is taken to its logarithm, well before it leaves the numbers."""


@compiled
def _choose_pair(
    stream: np.ndarray, split: bool, assignments: np.ndarray, sizes: np.ndarray
) -> tuple[int, int]:
    """Choose a row, and another in its cluster or outside: −1 if there is none."""
    n = assignments.size
    first = int(uniform(stream) * n)
    cluster = assignments[first]
    if sizes[cluster] == (1.0 if split else n):
        return first, -1
    while True:
        second = int(uniform(stream) * n)
        if second != first and (assignments[second] == cluster) == split:
            return first, second


@compiled
def _log_marginal(
    table: np.ndarray, total: float, first: int, second: int, beta: np.ndarray, beta_sum: float
) -> float:
    """Log-probability of the tokens of one cluster, or of two taken as one."""
    value = math.lgamma(beta_sum) - math.lgamma(beta_sum + total)
    for category in range(beta.size):
        count = table[category, first]
        if second != first:
            count += table[category, second]
        if count > 0.0:
            value += math.lgamma(beta[category] + count) - math.lgamma(beta[category])
    return value


@compiled
def _log_split_ratio(
    first: int,
    second: int,
    beta: np.ndarray,
    alpha: float,
    n_rows: int,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> float:
    """Log-ratio of the laws of two clusters and of their union, and of choosing the two rows."""
    beta_sum = beta.sum()
    both = sizes[first] + sizes[second]
    value = math.log(alpha) + math.lgamma(sizes[first]) + math.lgamma(sizes[second])
    value += _log_marginal(table, totals[first], first, first, beta, beta_sum)
    value += _log_marginal(table, totals[second], second, second, beta, beta_sum)
    value -= _log_marginal(table, totals[first] + totals[second], first, second, beta, beta_sum)
    value -= math.lgamma(both)
    return value + math.log(both - 1.0) - math.log(n_rows - sizes[first])


@compiled
def _log_odds(
    tokens: np.ndarray, beta: np.ndarray, beta_sum: float, table: np.ndarray, totals: np.ndarray
) -> float:
    """Log-odds of a row in part 1 of two, sizes aside."""
    value, product = 0.0, 1.0
    repeats = 0
    for t in range(tokens.size):
        token = tokens[t]
        repeats = repeats + 1 if t > 0 and token == tokens[t - 1] else 0
        own, all_of = beta[token] + repeats, beta_sum + t
        product *= (table[token, 1] + own) * (totals[0] + all_of)
        product /= (table[token, 0] + own) * (totals[1] + all_of)
        if not 1.0 / LARGEST_PRODUCT < product < LARGEST_PRODUCT:
            value += math.log(product)
            product = 1.0
    return value + math.log(product)


@compiled
def _restricted_sweep(
    starts: np.ndarray,
    tokens: np.ndarray,
    members: np.ndarray,
    beta: np.ndarray,
    stream: np.ndarray,
    given: np.ndarray,
    parts: np.ndarray,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> float:
    """Draw the part of every member, or take the given one; return the log-probability of that."""
    beta_sum = beta.sum()
    log_q = 0.0
    for i in range(members.size):
        own = tokens[starts[members[i]] : starts[members[i] + 1]]
        if parts[i] >= 0:
            move_row(own, parts[i], -1.0, sizes, table, totals)
        log_odds = math.log(sizes[1] / sizes[0]) + _log_odds(own, beta, beta_sum, table, totals)
        if given.size:
            parts[i] = given[i]
        else:
            parts[i] = 1 if uniform(stream) * (1.0 + math.exp(-log_odds)) < 1.0 else 0
        log_q -= math.log1p(math.exp(-log_odds if parts[i] == 1 else log_odds))
        move_row(own, parts[i], 1.0, sizes, table, totals)
    return log_q


@compiled
def _shuffled_members(
    stream: np.ndarray, first: int, second: int, assignments: np.ndarray, n_members: int
) -> np.ndarray:
    """All rows of the clusters of two but these two, in random order."""
    members = np.empty(n_members, dtype=np.int64)
    n = 0
    for row in range(assignments.size):
        inside = assignments[row] == assignments[first] or assignments[row] == assignments[second]
        if inside and row != first and row != second:
            members[n] = row
            n += 1
    for last in range(n - 1, 0, -1):
        other = int(uniform(stream) * (last + 1))
        members[last], members[other] = members[other], members[last]
    return members


@compiled
def split_or_merge(
    starts: np.ndarray,
    tokens: np.ndarray,
    beta: np.ndarray,
    alpha: float,
    n_sweeps: int,
    stream: np.ndarray,
    assignments: np.ndarray,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> int:
    r"""Propose to split a cluster or to merge two, half of the time each, in place.

    A row i is chosen, and j inside its cluster or outside. A split is accepted with probability

    .. math::

        \min\Bigl(1, \frac{p(z')}{p(z)}\, \frac{1}{q(z')}\, \frac{n_k - 1}{n - n'_i}\Bigr),

    where :math:`n_k` is the size of the cluster and :math:`n'_i` of the part that i would be in,
    and a merge with the inverse. As q is at most 1, most merges are refused before it is computed.

    Parameters
    ----------
    starts, tokens, assignments, sizes, table, totals
        See `pymc_geodesic.kernels.partitions.collapsed_gibbs.count_clusters`; the counts are kept
        up to date. Every row is in a cluster, and at least one cluster is empty.
    beta : ndarray, shape (V,)
    alpha : float
        See `pymc_geodesic.kernels.partitions.collapsed_gibbs.collapsed_rows`.
    n_sweeps : int
        Restricted sweeps before the one that counts, at least one: the first puts rows into parts.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    Returns
    -------
    int
        1 if a cluster was split, −1 if two were merged, 0 if all is as before.

    References
    ----------
    Jain, Neal (2004), A Split-Merge Markov Chain Monte Carlo Procedure for the Dirichlet Process
    Mixture Model, sections 4.2 and 4.3. Rows are not chosen alike here, hence the last factor.
    """
    starts, tokens, beta = borrow(starts), borrow(tokens), borrow(beta)
    n_rows = assignments.size
    split = uniform(stream) < 0.5
    first, second = _choose_pair(stream, split, assignments, sizes)
    if second < 0:
        return 0
    old, other = assignments[first], assignments[second]
    log_uniform = math.log(uniform(stream))
    log_ratio = 0.0
    if not split:
        log_ratio = _log_split_ratio(old, other, beta, alpha, n_rows, sizes, table, totals)
        if log_uniform >= -log_ratio:
            return 0
    n_members = int(sizes[old] + (0.0 if split else sizes[other])) - 2
    members = _shuffled_members(stream, first, second, assignments, n_members)
    parts = np.full(n_members, -1, dtype=np.int64)
    halves = np.zeros(2), np.zeros((beta.size, 2)), np.zeros(2)
    move_row(tokens[starts[first] : starts[first + 1]], 0, 1.0, *halves)
    move_row(tokens[starts[second] : starts[second + 1]], 1, 1.0, *halves)
    free = np.empty(0, dtype=np.int64)
    given = free if split else (assignments[members] == other).astype(np.int64)
    for _ in range(n_sweeps):
        _restricted_sweep(starts, tokens, members, beta, stream, free, parts, *halves)
    log_q = _restricted_sweep(starts, tokens, members, beta, stream, given, parts, *halves)
    if split:
        log_ratio = _log_split_ratio(0, 1, beta, alpha, n_rows, *halves)
    log_ratio -= log_q
    if log_uniform >= (log_ratio if split else -log_ratio):
        return 0
    source, target = (old, old) if split else (other, old)
    if split:
        while sizes[target] > 0.0:
            target = (target + 1) % sizes.size
    for i in range(-1, n_members):
        row, part = (second, 1) if i < 0 else (members[i], parts[i])
        if part == 1:
            own = tokens[starts[row] : starts[row + 1]]
            move_row(own, source, -1.0, sizes, table, totals)
            move_row(own, target, 1.0, sizes, table, totals)
            assignments[row] = target
    return 1 if split else -1
