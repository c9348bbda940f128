"""Dirichlet-process mixture of categoricals by collapsed Gibbs sampling."""

from __future__ import annotations

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
from pymc_geodesic.kernels.partitions.collapsed_gibbs import collapsed_rows
from pymc_geodesic.kernels.partitions.split_merge import split_or_merge
from pymc_geodesic.models.dp_categorical import (
    Counts,
    Draw,
    Mixture,
    draw_given_clusters,
    sample_chains,
)
from pymc_geodesic.runtime.streams import new_stream

__all__ = ["CollapsedChain", "Start", "dp_categorical_gibbs", "first_clusters"]

FIRST_ROOM = 16

RESTRICTED_SWEEPS = 3
"""Before a split is proposed: with one, clusters found are worse; with six, no better."""


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

    Weights and probabilities of the clusters are integrated out of the sweeps, each of which draws
    the cluster of every row given those of all others, and drawn from their conditional laws
    afterwards:

    .. math::

        (w_1, …, w_K, w_0) \mid z \sim \text{Dirichlet}(n_1, …, n_K, \alpha), \qquad
        \theta_k \mid z \sim \text{Dirichlet}(\beta + n_{k\cdot}),

    with :math:`w_0` the weight of all clusters that hold no row. Exact in the limit of many sweeps.

    Parameters
    ----------
    counts : array_like, data frame or scipy.sparse matrix, shape (row, category)
        How often every category occurs in every row, such as the pages that users visit.
    alpha : float or tuple of float
        The concentration of the Dirichlet process, or shape and rate of its gamma prior.
    beta : float or array_like, shape (category,)
        Concentration of the probabilities of the categories in a cluster.
    split_merge : int or tuple of int
        Proposals to split a cluster or to merge two after each sweep; two numbers are those of the
        sweeps before the first draw and of the others. One row at a time, clusters hardly divide:
        twenty in each of the first ten sweeps do more than many sweeps, as ``(20, 1)`` with
        ``tune=10``.
    draws, tune : int
        Draws that are kept, and sweeps before the first.
    thin : int
        Sweeps of each draw.
    chains : int
        Independent runs, one after the other, each from clusters that are drawn row by row.
    n_components : int, optional
        How many clusters to keep of each draw, the largest; all by default.
    keep_assignments : bool
        Whether to keep the cluster of every row.
    rows, categories : sequence, optional
        Coordinates of the dimensions; index and columns of a data frame by default.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        ``posterior`` with ``alpha``, ``n_clusters``, ``weights`` (component) and ``topics``
        (component, category), the largest component first and weight 0 where a draw has fewer, and
        ``assignments`` (row) if wanted, numbers without meaning from draw to draw. The weights sum
        to one less :math:`w_0` and what was not kept. ``sample_stats`` with ``lp``, the
        log-probability of partition and tokens given α, and ``constant_data`` with ``beta``.

    Raises
    ------
    ValueError
        If counts are negative, broken or not finite, a number is out of range, or names are too
        few or too many.

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
    >>> from pymc_geodesic.models import dp_categorical_gibbs
    >>> counts = np.array([[5, 5, 0, 0], [0, 0, 5, 5], [4, 6, 0, 0]])
    >>> idata = dp_categorical_gibbs(counts, draws=200, random_seed=1, progressbar=False)
    >>> int(idata.posterior["n_clusters"].median())
    2
    """
    mixture = Mixture.of(counts, beta, alpha, rows, categories)
    proposals = _proposals(split_merge)
    return sample_chains(
        mixture,
        lambda rng: CollapsedChain(
            mixture, rng, one_after_another(repeat(proposals[0], int(tune)), repeat(proposals[1]))
        ),
        draws=draws,
        tune=tune,
        thin=thin,
        chains=chains,
        n_components=n_components,
        keep_assignments=keep_assignments,
        random_seed=random_seed,
        progressbar=progressbar,
    )


def _proposals(split_merge: int | tuple[int, int]) -> tuple[int, int]:
    """How many to make after each sweep before the first draw, and after the others."""
    numbers = split_merge if isinstance(split_merge, Sequence) else (split_merge, split_merge)
    if len(numbers) != 2:
        raise ValueError(f"split_merge must be a number or two, got {split_merge!r}")
    for number in numbers:
        check_integers(split_merge=(number, 0))
    return int(numbers[0]), int(numbers[1])


class Start(NamedTuple):
    """Rows among which clusters to begin with are found, by how many sweeps, splits and merges."""

    rows: int = 1
    sweeps: int = 0
    split_merge: int = 0


def first_clusters(mixture: Mixture, rng: np.random.Generator, start: Start) -> CollapsedChain:
    """Find clusters to begin with: by sweeps over some rows, and one over all.

    Raises
    ------
    ValueError
        If there are not as many rows, or a number is no integer.
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
    """A run of the collapsed sampler; the first sweep puts one row after another into a cluster.

    Parameters
    ----------
    mixture : Mixture
    rng : numpy.random.Generator
    proposals : iterator of int, optional
        Splits or merges that each sweep proposes afterwards; none by default.
    """

    def __init__(
        self, mixture: Mixture, rng: np.random.Generator, proposals: Iterator[int] | None = None
    ) -> None:
        self._mixture = mixture
        self._proposals = repeat(0) if proposals is None else proposals
        self._stream = new_stream(rng)
        self.alpha = mixture.first_alpha
        self._counts = Counts.empty(mixture.beta.size, FIRST_ROOM)
        self.assignments = np.full(mixture.rows.n_rows, -1, dtype=np.int32)

    def begin(self, which: np.ndarray, assignments: np.ndarray) -> None:
        """Put some rows into clusters before the first sweep."""
        self.assignments[which] = assignments
        self._counts = Counts.of(
            self._mixture.rows, self.assignments, self._mixture.beta.size, which=which
        )

    def advance(self) -> None:
        """Draw the cluster of every row, and α."""
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
        """Propose to split a cluster or to merge two; return by how many there are more."""
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
        """Draw weights and probabilities given the clusters."""
        return draw_given_clusters(
            self._mixture, self._stream, self._counts, self.alpha, self.assignments
        )
