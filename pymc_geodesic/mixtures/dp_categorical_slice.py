r"""Dirichlet-process mixture of categoricals by slice sampling.

With a slice :math:`u_i \sim U(0, w_{z_i})` for each row, the joint density of :math:`u_i` and
:math:`z_i` is :math:`1(u_i < w_{z_i})\, p(x_i \mid \theta_{z_i})`. A row can only be in the
finitely many components whose weights exceed its slice: sticks are broken until the rest is shorter
than the smallest slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.kernels.stick_breaking import log_stick_breaking_weights
from pymc_geodesic.kernels.topic_assignments import SMALLEST_TOTAL
from pymc_geodesic.mixtures.collapsed_gibbs import log_beta, move_row
from pymc_geodesic.mixtures.dp_categorical import (
    Counts,
    Draw,
    Mixture,
    RowBatches,
    SamplingOptions,
    draw_dirichlet,
    draw_given_clusters,
    sample_chains,
)
from pymc_geodesic.mixtures.dp_categorical_gibbs import Start, initialize_clusters
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import new_stream, pick, uniform


@compiled
def break_sticks(stream: np.ndarray, alpha: float, log_rest: float, smallest: float) -> np.ndarray:
    """Break a stick until the rest is shorter than the smallest slice.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    alpha : float
        Each piece is a Beta(1, α) proportion of the rest.
    log_rest : float
        Logarithm of the length of the stick.
    smallest : float
        The smallest slice, positive.

    Returns
    -------
    ndarray, shape (n, 2)
        log V and log(1 − V) of the stick-breaking proportions V.

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
    """Draw the slices of some rows, uniform below the weight of their components.

    Parameters
    ----------
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.
    which : ndarray of int64, shape (m,)
        The rows.
    assignments : ndarray of int32, shape (n,)
        Component of each row.
    weights : ndarray, shape (K,)
    slices : ndarray, shape (m,)
        Overwritten with the slices.

    Returns
    -------
    float
        The smallest slice.
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
    """Draw the components of some rows given slices, weights and probabilities, in place.

    Parameters
    ----------
    starts, tokens, assignments, sizes, table, totals
        See `pymc_geodesic.mixtures.collapsed_gibbs.count_clusters`; the counts are updated.
    which, slices
        See `draw_slices`.
    slots : ndarray of int32, shape (K,)
        Index of each component in the counts and in ``assignments``.
    weights : ndarray, shape (K,)
        Weights of the components in decreasing order.
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
        # Number of components with weights above the slice, by bisection.
        n, end = 0, weights.size
        while n < end:
            middle = (n + end) // 2
            if weights[middle] >= slices[i]:
                n = middle + 1
            else:
                end = middle
        likelihoods = buffer[:n]
        likelihoods[:] = 1.0
        for token in own:
            of_token = topics[token]
            for k in range(n):
                likelihoods[k] *= of_token[k]
        total = float(likelihoods.sum())
        if total < SMALLEST_TOTAL:
            total = _likelihoods_by_logarithms(own, topics, likelihoods)
        slot = slots[pick(likelihoods, uniform(stream) * total)]
        if slot != assignments[row]:
            move_row(own, assignments[row], -1.0, sizes, table, totals)
            move_row(own, slot, 1.0, sizes, table, totals)
            assignments[row] = slot


@compiled
def _likelihoods_by_logarithms(
    tokens: np.ndarray, topics: np.ndarray, likelihoods: np.ndarray
) -> float:
    """Compute the likelihoods of components relative to the largest; return their sum."""
    top = -np.inf
    for k in range(likelihoods.size):
        likelihoods[k] = 0.0
        for token in tokens:
            likelihoods[k] += math.log(topics[token, k])
        top = max(top, likelihoods[k])
    total = 0.0
    for k in range(likelihoods.size):
        likelihoods[k] = math.exp(likelihoods[k] - top)
        total += likelihoods[k]
    return total


DEFAULT_START = Start()


def dp_categorical_slice(
    counts: ArrayLike | sparse.csr_array,
    alpha: ArrayLike = (1.0, 1.0),
    beta: ArrayLike = 0.1,
    *,
    batch_size: int | None = None,
    start_rows: int = 5000,
    start_sweeps: int = 0,
    start_split_merge: int = 0,
    draws: int = 100,
    tune: int = 100,
    thin: int = 1,
    chains: int = 1,
    n_components: int | None = None,
    keep_assignments: bool = False,
    rows: Sequence[Any] | None = None,
    categories: Sequence[Any] | None = None,
    random_seed: int | np.random.Generator | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Sample a Dirichlet-process mixture of categoricals by slice sampling.

    The posterior of `dp_categorical_gibbs`, with weights and probabilities as variables, given
    which the rows are independent. An iteration draws α given the number of clusters,

    .. math::

        (w_1, …, w_K, r) \mid z, \alpha &\sim \text{Dirichlet}(n_1, …, n_K, \alpha), \qquad
        \theta_k \mid z \sim \text{Dirichlet}(\beta + n_{k\cdot}), \\
        u_i \mid w, z &\sim U(0, w_{z_i}),

    breaks r into new components by Beta(1, α) proportions until the rest is shorter than the
    smallest slice, with probabilities from the prior, and draws :math:`P(z_i = k) \propto
    1(w_k > u_i) \prod_w \theta_{kw}^{c_{iw}}`. There is no truncation error. In contrast to
    Walker's sampler, the weights of the clusters with rows are not ordered, which avoids moves that
    only relabel clusters.

    Parameters
    ----------
    counts, alpha, beta, draws, tune, thin, chains, n_components, keep_assignments, rows, categories
        See `dp_categorical_gibbs`.
    batch_size : int, optional
        Number of rows whose cluster is updated in an iteration; all by default. The sampler is
        exact for any number, since the counts are those of all rows.
    start_rows, start_sweeps, start_split_merge : int
        Initial clusters: ``start_sweeps`` collapsed Gibbs sweeps over ``start_rows`` random rows,
        with ``start_split_merge`` split-merge proposals after each; then one sweep over all rows.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        As `dp_categorical_gibbs`; ``sample_stats`` also has ``n_instantiated``, the number of
        components in the last iteration.

    Raises
    ------
    ValueError
        As `dp_categorical_gibbs`.

    References
    ----------
    Walker (2007), Sampling the Dirichlet Mixture Model with Slices.
    Papaspiliopoulos (2008), A note on posterior sampling from Dirichlet mixture models.
    Kalli, Griffin, Walker (2011), Slice sampling mixture models.
    Pitman (1996), Some developments of the Blackwell–MacQueen urn scheme, corollary 20 (weights).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import dp_categorical_slice
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0]])
    >>> idata = dp_categorical_slice(counts, draws=200, random_seed=1, progressbar=False)
    >>> int(idata.posterior["n_clusters"].median())
    2
    """
    mixture = Mixture.from_arguments(counts, beta, alpha, rows, categories)
    start = Start(start_rows, start_sweeps, start_split_merge)
    options = SamplingOptions(
        draws, tune, thin, chains, n_components, keep_assignments, random_seed, progressbar
    )
    return sample_chains(mixture, options, lambda rng: SliceChain(mixture, rng, batch_size, start))


class SliceChain:
    """One chain of the slice sampler, initialized by collapsed Gibbs sweeps."""

    def __init__(
        self,
        mixture: Mixture,
        rng: np.random.Generator,
        batch_size: int | None = None,
        start: Start = DEFAULT_START,
    ) -> None:
        self._mixture = mixture
        self._batches = RowBatches(mixture.rows.n_rows, batch_size, rng)
        self._stream = new_stream(rng)
        first = initialize_clusters(mixture, rng, start)
        self.alpha, self.assignments = first.alpha, first.assignments
        self._counts = Counts.from_assignments(mixture.rows, self.assignments, mixture.beta.size)
        self._n_instantiated = 0

    def advance(self) -> None:
        """Draw α, the components, the slices, and the clusters of a minibatch of rows."""
        mixture, stream, which = self._mixture, self._stream, self._batches.next()
        used = np.flatnonzero(self._counts.sizes)
        self.alpha = mixture.draw_alpha(stream, self.alpha, used.size)
        weights = draw_dirichlet(stream, np.append(self._counts.sizes[used], self.alpha))
        by_slot = np.zeros(self._counts.sizes.size)
        by_slot[used] = weights[:-1]
        slices = np.empty(which.size)
        smallest = draw_slices(stream, which, self.assignments, by_slot, slices)
        log_rest = float(np.log(weights[-1]))
        shares = break_sticks(stream, self.alpha, log_rest, smallest)
        broken = np.exp(log_rest + log_stick_breaking_weights(*shares.T)[:-1])
        while self._counts.sizes.size < used.size + broken.size:
            self._counts = self._counts.enlarged()
        empty = np.flatnonzero(self._counts.sizes == 0)[: broken.size]
        slots, weights = np.append(used, empty), np.append(weights[:-1], broken)
        order = np.argsort(-weights, kind="stable")
        slots = slots[order]
        topics = draw_dirichlet(stream, self._counts.table[:, slots].T + mixture.beta)
        slice_rows(
            *mixture.rows,
            which,
            slices,
            slots.astype(np.int32),
            weights[order],
            np.ascontiguousarray(topics.T),
            stream,
            self.assignments,
            *self._counts,
        )
        self._n_instantiated = slots.size

    def draw(self) -> Draw:
        """Draw the weights and probabilities given the clusters."""
        draw = draw_given_clusters(
            self._mixture, self._stream, self._counts, self.alpha, self.assignments
        )
        draw.stats["n_instantiated"] = self._n_instantiated
        return draw
