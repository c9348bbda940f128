r"""Dirichlet-process mixture of categoricals by slice sampling.

Slice sampling of the clusters of rows given an infinite mixture, of which few weights matter.

With a slice :math:`u_i \sim U(0, w_{z_i})` for each row, the joint density of :math:`u_i` and
:math:`z_i` is :math:`1(u_i < w_{z_i})\, p(x_i \mid \theta_{z_i})`. So a row can only be in the
components of weights above its slice, and these are finitely many: sticks are broken until what is
left of the unit interval is shorter than the smallest slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.kernels.stick_breaking import log_pieces
from pymc_geodesic.kernels.topic_assignments import SMALLEST_TOTAL
from pymc_geodesic.mixtures.collapsed_gibbs import log_beta, move_row
from pymc_geodesic.mixtures.dp_categorical import (
    Counts,
    Draw,
    Mixture,
    RowBatches,
    draw_dirichlet,
    draw_given_clusters,
    sample_chains,
)
from pymc_geodesic.mixtures.dp_categorical_gibbs import Start, first_clusters
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import new_stream, pick, uniform


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
        See `pymc_geodesic.mixtures.collapsed_gibbs.count_clusters`; the counts are kept
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


FROM_ONE_ROW = Start()


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

    The posterior of `dp_categorical_gibbs`, with weights and probabilities as variables, so that
    rows do not depend on each other given them. An iteration draws α given the number of clusters,

    .. math::

        (w_1, …, w_K, r) \mid z, \alpha &\sim \text{Dirichlet}(n_1, …, n_K, \alpha), \qquad
        \theta_k \mid z \sim \text{Dirichlet}(\beta + n_{k\cdot}), \\
        u_i \mid w, z &\sim U(0, w_{z_i}),

    breaks Beta(1, α) shares off r until what is left is shorter than the smallest slice, with
    probabilities from the prior, and then :math:`P(z_i = k) \propto 1(w_k > u_i) \prod_w
    \theta_{kw}^{c_{iw}}`. Nothing is truncated: it is exact in the limit of many iterations. The
    weights of clusters that hold rows are drawn in no order, and not stick by stick as in Walker's
    sampler, so that clusters need not trade places.

    Parameters
    ----------
    counts, alpha, beta, draws, tune, thin, chains, n_components, keep_assignments, rows, categories
        See `dp_categorical_gibbs`.
    batch_size : int, optional
        Rows whose cluster an iteration draws, all others keeping theirs; all by default. Any number
        is exact, since the counts are those of all rows.
    start_rows, start_sweeps, start_split_merge : int
        The clusters that a chain begins with are those of so many rows, after so many collapsed
        sweeps over them, each with so many proposals to split or merge clusters; all other rows are
        then put into them one by one.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        As `dp_categorical_gibbs`; ``sample_stats`` has ``n_instantiated`` too, the components that
        the last iteration looked at.

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
    mixture = Mixture.of(counts, beta, alpha, rows, categories)
    start = Start(start_rows, start_sweeps, start_split_merge)
    return sample_chains(
        mixture,
        lambda rng: SliceChain(mixture, rng, batch_size, start),
        draws=draws,
        tune=tune,
        thin=thin,
        chains=chains,
        n_components=n_components,
        keep_assignments=keep_assignments,
        random_seed=random_seed,
        progressbar=progressbar,
    )


class SliceChain:
    """A run of the slice sampler, from clusters that collapsed sweeps find."""

    def __init__(
        self,
        mixture: Mixture,
        rng: np.random.Generator,
        batch_size: int | None = None,
        start: Start = FROM_ONE_ROW,
    ) -> None:
        self._mixture = mixture
        self._batches = RowBatches(mixture.rows.n_rows, batch_size, rng)
        self._stream = new_stream(rng)
        first = first_clusters(mixture, rng, start)
        self.alpha, self.assignments = first.alpha, first.assignments
        self._counts = Counts.of(mixture.rows, self.assignments, mixture.beta.size)
        self._n_instantiated = 0

    def advance(self) -> None:
        """Draw α, the components, slices, and the clusters of a batch of rows."""
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
        broken = np.exp(log_rest + log_pieces(*shares.T)[:-1])
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
        """Draw weights and probabilities given the clusters."""
        draw = draw_given_clusters(
            self._mixture, self._stream, self._counts, self.alpha, self.assignments
        )
        draw.stats["n_instantiated"] = self._n_instantiated
        return draw
