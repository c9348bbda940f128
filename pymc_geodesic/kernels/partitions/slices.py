r"""Slice sampling of the clusters of rows given an infinite mixture, of which few weights matter.

With a slice :math:`u_i \sim U(0, w_{z_i})` for each row, the joint density of :math:`u_i` and
:math:`z_i` is :math:`1(u_i < w_{z_i})\, p(x_i \mid \theta_{z_i})`. So a row can only be in the
components of weights above its slice, and these are finitely many: sticks are broken until what is
left of the unit interval is shorter than the smallest slice.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.kernels.partitions.collapsed_gibbs import move_row
from pymc_geodesic.kernels.partitions.concentration import log_beta
from pymc_geodesic.kernels.topics.assignments import SMALLEST_TOTAL, pick
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import uniform

__all__ = ["break_sticks", "draw_slices", "slice_rows"]


@compiled
def break_sticks(stream: np.ndarray, alpha: float, log_rest: float, smallest: float) -> np.ndarray:
    """Break pieces off a stick until the rest is shorter than the smallest slice.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    alpha : float
        Each piece is a Beta(1, α) share of what is left.
    log_rest : float
        Logarithm of the length of the stick.
    smallest : float
        The smallest slice, positive.

    Returns
    -------
    ndarray, shape (n, 2)
        log V and log(1 − V), the shares of what was left that each piece takes and leaves.

    References
    ----------
    Kalli, Griffin, Walker (2011), Slice sampling mixture models, section 2.
    """
    shares = np.empty((16, 2))
    n = 0
    log_smallest = math.log(smallest)
    while log_rest >= log_smallest:
        if n == len(shares):
            longer = np.empty((2 * n, 2))
            longer[:n] = shares
            shares = longer
        shares[n] = log_beta(stream, 1.0, alpha)
        log_rest += shares[n, 1]
        n += 1
    return shares[:n].copy()


@compiled
def draw_slices(
    stream: np.ndarray,
    which: np.ndarray,
    assignments: np.ndarray,
    weights: np.ndarray,
    slices: np.ndarray,
) -> float:
    """Draw a slice for each of some rows, uniform below the weight of its component.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    which : ndarray of int64, shape (m,)
        The rows.
    assignments : ndarray of int32, shape (n,)
        Component of every row.
    weights : ndarray, shape (K,)
    slices : ndarray, shape (m,)
        Receives the slices.

    Returns
    -------
    float
        The smallest.
    """
    smallest = 1.0
    for i in range(which.size):
        slices[i] = weights[assignments[which[i]]] * uniform(stream)
        smallest = min(smallest, slices[i])
    return smallest


@compiled
def slice_rows(
    starts: np.ndarray,
    tokens: np.ndarray,
    which: np.ndarray,
    slices: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    topics: np.ndarray,
    stream: np.ndarray,
    assignments: np.ndarray,
    sizes: np.ndarray,
    table: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Draw the component of some rows given slices and components, in place.

    Parameters
    ----------
    starts, tokens, assignments, sizes, table, totals
        See `pymc_geodesic.kernels.partitions.collapsed_gibbs.count_clusters`; the counts are kept
        up to date.
    which, slices
        See `draw_slices`.
    slots : ndarray of int32, shape (K,)
        Which of the counts, and of the numbers in ``assignments``, belong to each component.
    weights : ndarray, shape (K,)
        Weights of the components, the largest first.
    topics : ndarray, shape (V, K)
        Probabilities of the categories in the components, positive.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Walker (2007), Sampling the Dirichlet Mixture Model with Slices, section 3.
    """
    starts, weights, topics = borrow(starts), borrow(weights), borrow(topics)
    buffer = np.empty(weights.size)
    for i in range(which.size):
        row = which[i]
        own = tokens[starts[row] : starts[row + 1]]
        # As many components as lie above the slice, by bisection.
        n, end = 0, weights.size
        while n < end:
            middle = (n + end) // 2
            if weights[middle] >= slices[i]:
                n = middle + 1
            else:
                end = middle
        chances = buffer[:n]
        chances[:] = 1.0
        for token in own:
            of_token = topics[token]
            for k in range(n):
                chances[k] *= of_token[k]
        total = float(chances.sum())
        if total < SMALLEST_TOTAL:
            total = _chances_by_logarithms(own, topics, chances)
        slot = slots[pick(chances, uniform(stream) * total)]
        if slot != assignments[row]:
            move_row(own, assignments[row], -1.0, sizes, table, totals)
            move_row(own, slot, 1.0, sizes, table, totals)
            assignments[row] = slot


@compiled
def _chances_by_logarithms(tokens: np.ndarray, topics: np.ndarray, chances: np.ndarray) -> float:
    """Write the likelihoods of components in units of the largest, and return their sum."""
    top = -np.inf
    for k in range(chances.size):
        chances[k] = 0.0
        for token in tokens:
            chances[k] += math.log(topics[token, k])
        top = max(top, chances[k])
    total = 0.0
    for k in range(chances.size):
        chances[k] = math.exp(chances[k] - top)
        total += chances[k]
    return total
