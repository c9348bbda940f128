r"""Dirichlet-process mixture of categoricals by collapsed Gibbs sampling.

Optional split-merge proposals move whole clusters, since updates of one row at a time cross
partitions of low probability. Two rows are drawn. If they are in the same cluster, a split is
proposed that assigns them to different parts; otherwise a merge of their clusters. The split is
drawn by *restricted* Gibbs sweeps, in which each other row of the cluster is assigned to one of two
parts, sequentially in the first sweep and then given all others, with the probabilities of the
categories integrated out,

.. math::

    \frac{P(\text{part } 1)}{P(\text{part } 0)} = \frac{n_1}{n_0} \prod_t
    \frac{\beta_{w_t} + n_{1 w_t} + \#\{s < t : w_s = w_t\}}
    {\beta_{w_t} + n_{0 w_t} + \#\{s < t : w_s = w_t\}}
    \cdot \frac{\sum\beta + n_{0\cdot} + t - 1}{\sum\beta + n_{1\cdot} + t - 1}.

The proposal probability q is that of the last sweep given the parts before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain as one_after_another
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.mixtures.collapsed_gibbs import collapsed_rows, move_row
from pymc_geodesic.mixtures.dp_categorical import (
    Counts,
    Draw,
    Mixture,
    SamplingOptions,
    draw_given_clusters,
    sample_chains,
)
from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.streams import new_stream, uniform

LARGEST_PRODUCT = 1e100
"""Product of ratios above which (or below its inverse) its logarithm is taken."""


@compiled
def _choose_pair(
    stream: np.ndarray, split: bool, assignments: np.ndarray, sizes: np.ndarray
) -> tuple[int, int]:
    """Draw a row and another one inside or outside its cluster; −1 if there is none."""
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
    """Return the log marginal likelihood of a cluster, or of the union of two."""
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
    """Log-ratio of the posteriors of two clusters and their union, with the choice of the rows."""
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
    """Return the log-odds of part 1 for a row, without the factor of the sizes."""
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
    """Draw the part of each member, or use the given one; return the log-probability."""
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
    """Return all other rows of the clusters of two rows, in random order."""
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
    r"""Propose a split of a cluster or a merge of two, with probability 1/2 each, in place.

    A row i is drawn, and j inside or outside its cluster. A split is accepted with probability

    .. math::

        \min\Bigl(1, \frac{p(z')}{p(z)}\, \frac{1}{q(z')}\, \frac{n_k - 1}{n - n'_i}\Bigr),

    where :math:`n_k` is the size of the cluster and :math:`n'_i` that of the part of i, and a merge
    with the inverse ratio. Since q ≤ 1, most merges are rejected before q is computed.

    Parameters
    ----------
    starts, tokens, assignments, sizes, table, totals
        See `pymc_geodesic.mixtures.collapsed_gibbs.count_clusters`; the counts are updated. Each
        row has a cluster, and at least one cluster is empty.
    beta : ndarray, shape (V,)
    alpha : float
        See `pymc_geodesic.mixtures.collapsed_gibbs.collapsed_rows`.
    n_sweeps : int
        Restricted sweeps before the one that defines q, at least one.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    Returns
    -------
    int
        1 after a split, −1 after a merge, 0 after a rejection.

    References
    ----------
    Jain, Neal (2004), A Split-Merge Markov Chain Monte Carlo Procedure for the Dirichlet Process
    Mixture Model, sections 4.2 and 4.3; the two rows are drawn differently here, which gives the
    last factor.
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


INITIAL_CAPACITY = 16
"""Initial number of clusters in the arrays, doubled when all have rows."""

RESTRICTED_SWEEPS = 3
"""Restricted Gibbs sweeps before the proposal; compared with 1 and 6 in docs/dp_mixture.md."""


def dp_categorical_gibbs(
    counts: ArrayLike | sparse.csr_array,
    alpha: ArrayLike = (1.0, 1.0),
    beta: ArrayLike = 0.1,
    *,
    split_merge: int | tuple[int, int] = 0,
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
    r"""Sample a Dirichlet-process mixture of categoricals by collapsed Gibbs sweeps.

    .. math::

        G \sim \text{DP}(\alpha, \text{Dirichlet}(\beta)), \qquad \theta_i \sim G, \qquad
        \log p(c_i \mid \theta_i) = \sum_w c_{iw} \log \theta_{iw}

    Each sweep draws the cluster of each row given those of all others, with the weights and
    probabilities of the clusters integrated out. They are drawn afterwards from

    .. math::

        (w_1, …, w_K, w_0) \mid z \sim \text{Dirichlet}(n_1, …, n_K, \alpha), \qquad
        \theta_k \mid z \sim \text{Dirichlet}(\beta + n_{k\cdot}),

    with :math:`w_0` the total weight of the clusters without rows. The posterior is the stationary
    distribution.

    Parameters
    ----------
    counts : array_like, data frame or scipy.sparse matrix, shape (row, category)
        Number of occurrences of each category in each row, such as pages visited by users.
    alpha : float or tuple of float
        The concentration of the Dirichlet process, or shape and rate of its gamma prior.
    beta : float or array_like, shape (category,)
        Concentration of the probabilities of the categories in a cluster.
    split_merge : int or tuple of int
        Number of split-merge proposals after each sweep; a pair is the number during warm-up and
        after it. Updates of one row at a time rarely split a cluster; ``(20, 1)`` with
        ``tune=10`` finds better partitions than many sweeps.
    draws, tune : int
        Draws that are kept, and warm-up sweeps that are discarded.
    thin : int
        Sweeps between draws.
    chains : int
        Number of chains, which run one after the other; the first sweep assigns the rows
        sequentially.
    n_components : int, optional
        Number of clusters to keep of each draw, the largest ones; all by default.
    keep_assignments : bool
        Whether to keep the cluster of each row.
    rows, categories : sequence, optional
        Coordinates of the dimensions; index and columns of a data frame by default.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``alpha``, ``n_clusters``, ``weights`` (component) and ``topics``
        (component, category), sorted by weight in decreasing order and padded with weight 0, and
        with ``keep_assignments=True`` ``assignments`` (row), whose labels differ between draws. The
        weights sum to one minus :math:`w_0` and the weights that were not kept. ``sample_stats``
        with ``lp``, the log-probability of the partition and the tokens given α, and
        ``constant_data`` with ``beta``.

    Raises
    ------
    ValueError
        If counts are not nonnegative integers, an argument is out of range, or the number of names
        differs from the number of rows or categories.

    References
    ----------
    Neal (2000), Markov Chain Sampling Methods for Dirichlet Process Mixture Models, algorithm 3.
    Jain, Neal (2004), A Split-Merge Markov Chain Monte Carlo Procedure for the Dirichlet Process
    Mixture Model.
    Escobar, West (1995), Bayesian Density Estimation and Inference Using Mixtures, section 6.
    Dunson, Xing (2009), Nonparametric Bayes Modeling of Multivariate Categorical Data.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import dp_categorical_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0]])
    >>> idata = dp_categorical_gibbs(counts, draws=200, random_seed=1, progressbar=False)
    >>> int(idata.posterior["n_clusters"].median())
    2
    """
    mixture = Mixture.from_arguments(counts, beta, alpha, rows, categories)
    proposals = _proposals(split_merge)
    options = SamplingOptions(
        draws, tune, thin, chains, n_components, keep_assignments, random_seed, progressbar
    )
    return sample_chains(
        mixture,
        options,
        lambda rng: CollapsedChain(
            mixture, rng, one_after_another(repeat(proposals[0], int(tune)), repeat(proposals[1]))
        ),
    )


def _proposals(split_merge: int | tuple[int, int]) -> tuple[int, int]:
    """Return the number of proposals during warm-up and after it."""
    numbers = split_merge if isinstance(split_merge, Sequence) else (split_merge, split_merge)
    if len(numbers) != 2:
        raise ValueError(f"split_merge must be an integer or a pair of them, got {split_merge!r}")
    for number in numbers:
        check_integers(split_merge=(number, 0))
    return int(numbers[0]), int(numbers[1])


class Start(NamedTuple):
    """Initialization by collapsed Gibbs: number of rows, sweeps, and proposals after each."""

    rows: int = 1
    sweeps: int = 0
    split_merge: int = 0


def initialize_clusters(mixture: Mixture, rng: np.random.Generator, start: Start) -> CollapsedChain:
    """Return initial clusters: by sweeps over some rows, and one over all rows.

    Raises
    ------
    ValueError
        If an argument is not an integer in range.
    """
    rows = mixture.rows
    check_integers(
        start_sweeps=(start.sweeps, 0),
        start_rows=(start.rows, 1),
        start_split_merge=(start.split_merge, 0),
    )
    n_start = min(int(start.rows), rows.n_rows)
    some = np.sort(rng.choice(rows.n_rows, n_start, replace=False))
    chain = CollapsedChain(mixture, rng)
    if start.sweeps:
        proposals = repeat(int(start.split_merge))
        few = CollapsedChain(replace(mixture, rows=rows.take(some)), rng, proposals)
        for _ in range(start.sweeps):
            few.advance()
        chain.begin(some, few.assignments)
    chain.advance()
    return chain


class CollapsedChain:
    """One chain of the collapsed Gibbs sampler; the first sweep assigns rows sequentially.

    Parameters
    ----------
    mixture : Mixture
    rng : numpy.random.Generator
    proposals : iterator of int, optional
        Number of split-merge proposals after each sweep; none by default.
    """

    def __init__(
        self, mixture: Mixture, rng: np.random.Generator, proposals: Iterator[int] | None = None
    ) -> None:
        self._mixture = mixture
        self._proposals = repeat(0) if proposals is None else proposals
        self._stream = new_stream(rng)
        self.alpha = mixture.initial_alpha
        self._counts = Counts.empty(mixture.beta.size, INITIAL_CAPACITY)
        self.assignments = np.full(mixture.rows.n_rows, -1, dtype=np.int32)

    def begin(self, which: np.ndarray, assignments: np.ndarray) -> None:
        """Assign some rows before the first sweep."""
        self.assignments[which] = assignments
        self._counts = Counts.from_assignments(
            self._mixture.rows, self.assignments, self._mixture.beta.size, which=which
        )

    def advance(self) -> None:
        """Draw the cluster of each row, and α."""
        rows, beta = self._mixture.rows, self._mixture.beta
        row = 0
        while True:
            row = collapsed_rows(
                *rows, row, beta, self.alpha, self._stream, self.assignments, *self._counts
            )
            if row == rows.n_rows:
                break
            self._counts = self._counts.enlarged()
        for _ in range(next(self._proposals)):
            self.split_or_merge()
        n_clusters = int(np.count_nonzero(self._counts.sizes))
        self.alpha = self._mixture.draw_alpha(self._stream, self.alpha, n_clusters)

    def split_or_merge(self) -> int:
        """Propose a split or a merge; return the change of the number of clusters."""
        if self._counts.sizes.all():
            self._counts = self._counts.enlarged()
        return split_or_merge(
            *self._mixture.rows,
            self._mixture.beta,
            self.alpha,
            RESTRICTED_SWEEPS,
            self._stream,
            self.assignments,
            *self._counts,
        )

    def draw(self) -> Draw:
        """Draw the weights and probabilities given the clusters."""
        return draw_given_clusters(
            self._mixture, self._stream, self._counts, self.alpha, self.assignments
        )
