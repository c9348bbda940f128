"""Dirichlet-process mixture of categoricals: data, prior, cluster counts and draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from arviz_base import from_dict
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import gammaln

from pymc_geodesic.arguments import check_batch_size, check_integers
from pymc_geodesic.mixtures.collapsed_gibbs import (
    count_clusters,
    draw_concentration,
    draw_concentration_of_sticks,
)
from pymc_geodesic.runtime.iterations import draw_after, each_chain
from pymc_geodesic.runtime.variates import fill_log_gamma
from pymc_geodesic.sparse.count_matrices import axis_coords, concentration, word_counts

SMALLEST_PROBABILITY = 1e-290
"""Lower bound on the probabilities of categories, whose logarithms must be finite."""


class RowTokens(NamedTuple):
    """Tokens of the rows: offsets ``starts`` (n + 1,) and categories ``tokens``, sorted by row."""

    starts: np.ndarray
    tokens: np.ndarray

    @classmethod
    def from_matrix(cls, matrix: sparse.csr_array) -> RowTokens:
        """Convert a matrix of counts."""
        matrix.sort_indices()
        times = matrix.data.astype(np.int64)
        lengths = np.asarray(matrix.sum(axis=1)).ravel().astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return cls(starts, np.repeat(matrix.indices, times).astype(np.int32))

    def take(self, which: np.ndarray) -> RowTokens:
        """Return some of the rows."""
        lengths = np.diff(self.starts)[which]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        index = np.arange(starts[-1]) + np.repeat(self.starts[which] - starts[:-1], lengths)
        return RowTokens(starts, self.tokens[index])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.starts.size - 1


@dataclass(frozen=True)
class Mixture:
    """Data and prior of a Dirichlet-process mixture of categoricals.

    Attributes
    ----------
    rows : RowTokens
    beta : ndarray, shape (V,)
        Concentrations of the probabilities of the categories.
    alpha : float, optional
        Concentration of the Dirichlet process if it is fixed.
    alpha_prior : tuple of float
        Shape and rate of its gamma prior otherwise.
    coords : dict
        Coordinates of the dimensions ``row`` and ``category``.
    """

    rows: RowTokens
    beta: np.ndarray
    alpha: float | None
    alpha_prior: tuple[float, float]
    coords: dict[str, Any]

    @classmethod
    def from_arguments(
        cls,
        counts: Any,
        beta: ArrayLike,
        alpha: ArrayLike,
        rows: Sequence[Any] | None = None,
        categories: Sequence[Any] | None = None,
    ) -> Mixture:
        """Validate the arguments of a sampler; raise ValueError."""
        matrix = word_counts(counts)
        prior = np.asarray(alpha, dtype=float)
        if prior.shape not in ((), (2,)) or not np.all((prior > 0) & np.isfinite(prior)):
            raise ValueError(
                "alpha must be a positive number, or the shape and the rate of its gamma prior, "
                f"got {np.array2string(prior)}"
            )
        return cls(
            RowTokens.from_matrix(matrix),
            concentration("beta", beta, matrix.shape[1]),
            float(prior) if prior.ndim == 0 else None,
            (1.0, 1.0) if prior.ndim == 0 else (float(prior[0]), float(prior[1])),
            axis_coords(
                counts, matrix.shape, row=("rows", rows), category=("categories", categories)
            ),
        )

    @property
    def initial_alpha(self) -> float:
        """Initial value of α: the fixed value or the prior mean."""
        return self.alpha_prior[0] / self.alpha_prior[1] if self.alpha is None else self.alpha

    def draw_alpha(self, stream: np.ndarray, alpha: float, n_clusters: int) -> float:
        """Draw α given the number of clusters, unless it is fixed."""
        if self.alpha is not None:
            return self.alpha
        return draw_concentration(stream, alpha, n_clusters, self.rows.n_rows, *self.alpha_prior)

    def draw_alpha_of_sticks(self, stream: np.ndarray, alpha: float, sizes: np.ndarray) -> float:
        """Draw α given the number of rows of each stick, unless it is fixed."""
        if self.alpha is not None:
            return self.alpha
        return draw_concentration_of_sticks(stream, alpha, sizes, *self.alpha_prior)


class Counts(NamedTuple):
    """Counts of the clusters: rows (K,), tokens by category (V, K) and all tokens (K,)."""

    sizes: np.ndarray
    table: np.ndarray
    totals: np.ndarray

    @classmethod
    def empty(cls, n_categories: int, capacity: int) -> Counts:
        """Return zero counts for ``capacity`` clusters."""
        return cls(np.zeros(capacity), np.zeros((n_categories, capacity)), np.zeros(capacity))

    @classmethod
    def from_assignments(
        cls,
        rows: RowTokens,
        assignments: np.ndarray,
        n_categories: int,
        *,
        which: np.ndarray | None = None,
        capacity: int | None = None,
    ) -> Counts:
        """Count the clusters of all rows, or of the rows ``which``."""
        capacity = int(assignments.max()) + 1 if capacity is None else capacity
        counts = cls.empty(n_categories, capacity)
        which = np.arange(rows.n_rows) if which is None else which
        count_clusters(*rows, which, assignments, *counts)
        return counts

    def enlarged(self) -> Counts:
        """Return the counts with twice the capacity."""
        larger = Counts.empty(len(self.table), 2 * self.sizes.size)
        size = self.sizes.size
        larger.sizes[:size] = self.sizes
        larger.table[:, :size] = self.table
        larger.totals[:size] = self.totals
        return larger

    def log_probability(self, alpha: float, beta: np.ndarray) -> float:
        r"""Log-probability of the partition and the tokens given α.

        .. math::

            K \log\alpha + \log\frac{\Gamma(\alpha)}{\Gamma(\alpha + n)} + \sum_k \Bigl[
            \log\Gamma(n_k) + \log\frac{\Gamma(\sum\beta)}{\Gamma(\sum\beta + n_{k\cdot})} +
            \sum_w \log\frac{\Gamma(\beta_w + n_{kw})}{\Gamma(\beta_w)}\Bigr]
        """
        used = self.sizes > 0
        sizes, totals = self.sizes[used], self.totals[used]
        value = float(used.sum() * np.log(alpha) + gammaln(alpha) - gammaln(alpha + sizes.sum()))
        value += np.sum(gammaln(sizes) + gammaln(beta.sum()) - gammaln(beta.sum() + totals))
        own = self.table[:, used]
        some = own > 0
        priors = np.broadcast_to(beta[:, None], own.shape)[some]
        return float(value + np.sum(gammaln(priors + own[some]) - gammaln(priors)))


class Draw(NamedTuple):
    """One draw: α, weights (K,) and probabilities (K, V) of components, and clusters of rows."""

    alpha: float
    n_clusters: int
    weights: np.ndarray
    topics: np.ndarray
    assignments: np.ndarray
    stats: dict[str, float]


class Chain(Protocol):
    """One chain of a sampler."""

    def advance(self) -> None:
        """Run one iteration."""

    def draw(self) -> Draw:
        """Return the current state."""


def draw_dirichlet(stream: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Draw from Dirichlet distributions, one for each row; components are at least 10⁻²⁹⁰."""
    flat = np.empty(shapes.size)
    fill_log_gamma(stream, np.ascontiguousarray(shapes, dtype=float).ravel(), flat)
    log_draws = flat.reshape(shapes.shape)
    draws = np.exp(log_draws - log_draws.max(axis=-1, keepdims=True))
    return np.maximum(draws / draws.sum(axis=-1, keepdims=True), SMALLEST_PROBABILITY)


def draw_given_clusters(
    mixture: Mixture, stream: np.ndarray, counts: Counts, alpha: float, assignments: np.ndarray
) -> Draw:
    """Draw the weights and probabilities of the clusters that have rows."""
    used = np.flatnonzero(counts.sizes)
    weights = draw_dirichlet(stream, np.append(counts.sizes[used], alpha))
    topics = draw_dirichlet(stream, counts.table[:, used].T + mixture.beta)
    stats: dict[str, float] = {"lp": counts.log_probability(alpha, mixture.beta)}
    return Draw(alpha, len(used), weights[:-1], topics, assignments.copy(), stats)


class RowBatches:
    """Minibatches of rows in random order, shuffled for each epoch.

    Parameters
    ----------
    n_rows : int
    batch_size : int, optional
        Rows of a minibatch, all by default; the last one of an epoch may be smaller.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        If ``batch_size`` is not an integer or exceeds the number of rows.
    """

    def __init__(self, n_rows: int, batch_size: int | None, rng: np.random.Generator) -> None:
        check_batch_size(batch_size, n_rows)
        self._size = n_rows if batch_size is None else int(batch_size)
        self._rng = rng
        self._order = np.arange(n_rows)
        self._position = n_rows

    def next(self) -> np.ndarray:
        """Return the rows of the next minibatch, shape (m,)."""
        if self._size == self._order.size:
            return self._order
        if self._position >= self._order.size:
            self._order = self._rng.permutation(self._order.size)
            self._position = 0
        batch = self._order[self._position : self._position + self._size]
        self._position += self._size
        return batch


@dataclass(frozen=True)
class SamplingOptions:
    """Numbers of draws and chains, what is stored of a draw, seed and progress bar."""

    draws: int
    tune: int
    thin: int
    chains: int
    n_components: int | None
    keep_assignments: bool
    random_seed: int | np.random.Generator | None
    progressbar: bool

    def __post_init__(self) -> None:
        """Validate the numbers."""
        check_integers(
            draws=(self.draws, 1),
            tune=(self.tune, 0),
            thin=(self.thin, 1),
            chains=(self.chains, 1),
            n_components=(1 if self.n_components is None else self.n_components, 1),
        )


def sample_chains(
    mixture: Mixture,
    options: SamplingOptions,
    new_chain: Callable[[np.random.Generator], Chain],
) -> xr.DataTree:
    """Run chains one after the other; return their draws, components sorted by weight."""
    found: list[list[Draw]] = []
    all_iterations = options.tune + options.draws * options.thin
    for _, rng, iterations in each_chain(
        options.random_seed, options.chains, all_iterations, progressbar=options.progressbar
    ):
        chain = new_chain(rng)
        kept = []
        for iteration in iterations:
            chain.advance()
            if draw_after(iteration, options.tune, options.thin) is not None:
                draw = chain.draw()
                if not options.keep_assignments:
                    draw = draw._replace(assignments=_NONE)
                kept.append(draw)
        found.append(kept)
    return _tree(mixture, found, options.n_components, keep_assignments=options.keep_assignments)


_NONE = np.empty(0, dtype=np.int32)


def _tree(
    mixture: Mixture,
    found: list[list[Draw]],
    n_components: int | None,
    *,
    keep_assignments: bool,
) -> xr.DataTree:
    """Return the draws, padded with weight 0 to the largest number of components."""
    most = max(draw.weights.size for kept in found for draw in kept)
    size = most if n_components is None else min(int(n_components), most)
    shape = (len(found), len(found[0]))
    beta = mixture.beta
    weights = np.zeros((*shape, size))
    topics = np.empty((*shape, size, beta.size))
    topics[:] = beta / beta.sum()
    posterior: dict[str, np.ndarray] = {
        "alpha": np.array([[draw.alpha for draw in kept] for kept in found]),
        "n_clusters": np.array([[draw.n_clusters for draw in kept] for kept in found]),
    }
    for chain, kept in enumerate(found):
        for i, draw in enumerate(kept):
            order = np.argsort(-draw.weights, kind="stable")[:size]
            weights[chain, i, : order.size] = draw.weights[order]
            topics[chain, i, : order.size] = draw.topics[order]
    posterior |= {"weights": weights, "topics": topics}
    if keep_assignments:
        posterior["assignments"] = np.array([[d.assignments for d in kept] for kept in found])
    stats = {
        name: np.array([[draw.stats[name] for draw in kept] for kept in found])
        for name in found[0][0].stats
    }
    return from_dict(
        {"posterior": posterior, "sample_stats": stats, "constant_data": {"beta": beta}},
        dims={
            "weights": ["component"],
            "topics": ["component", "category"],
            "assignments": ["row"],
            "beta": ["category"],
        },
        coords=mixture.coords | {"component": np.arange(size)},
    )
