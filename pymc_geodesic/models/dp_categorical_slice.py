"""Dirichlet-process mixture of categoricals by slice sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.kernels.partitions.slices import break_sticks, draw_slices, slice_rows
from pymc_geodesic.kernels.partitions.sticks import log_pieces
from pymc_geodesic.models.dp_categorical import (
    Counts,
    Draw,
    Mixture,
    RowBatches,
    draw_dirichlet,
    draw_given_clusters,
    sample_chains,
)
from pymc_geodesic.models.dp_categorical_gibbs import Start, first_clusters
from pymc_geodesic.runtime.streams import new_stream

__all__ = ["SliceChain", "dp_categorical_slice"]

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
    >>> from pymc_geodesic.models import dp_categorical_slice
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
