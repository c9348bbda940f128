"""Dirichlet-process mixture of categoricals by a stochastic slice sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import sparse

from pymc_geodesic.kernels.scir import cir_transition
from pymc_geodesic.kernels.stick_breaking import log_stick_breaking_weights
from pymc_geodesic.mixtures.dp_categorical import (
    SMALLEST_PROBABILITY,
    Counts,
    Draw,
    Mixture,
    RowBatches,
    SamplingOptions,
    sample_chains,
)
from pymc_geodesic.mixtures.dp_categorical_gibbs import Start, initialize_clusters
from pymc_geodesic.mixtures.dp_categorical_slice import break_sticks, draw_slices, slice_rows
from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from pymc_geodesic.runtime.variates import fill_log_gamma

SMALLEST_STATE = 1e-290
"""Lower bound on the expanded mean, whose logarithm is stored."""


@compiled
def expanded_mean_step(
    log_state: np.ndarray,
    prior: np.ndarray,
    counts: np.ndarray,
    step_size: float,
    stream: np.ndarray,
) -> None:
    r"""Take an Euler step of the expanded mean, reflected at zero, in place.

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(a_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \omega = \theta / \textstyle\sum_i \theta_i, \qquad \eta_j \sim N(0, 1).

    Parameters
    ----------
    log_state : ndarray, shape (n, d)
        log θ of n simplices.
    prior, counts : ndarray, shape (n, d)
        a and n̂.
    step_size : float
        h, half of ε in the reference.
    stream : ndarray of uint64, shape (2,)
        Random stream, advanced.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """
    noise = np.empty(log_state.shape[1])
    for row in range(log_state.shape[0]):
        fill_normal(stream, noise)
        total = seen = 0.0
        for j in range(noise.size):
            total += math.exp(log_state[row, j])
            seen += counts[row, j]
        for j in range(noise.size):
            state = math.exp(log_state[row, j])
            drift = prior[row, j] + counts[row, j] - state * seen / total - state
            state += step_size * drift + math.sqrt(2.0 * step_size * state) * noise[j]
            log_state[row, j] = math.log(max(abs(state), SMALLEST_STATE))


DEFAULT_BATCH_SIZE = 1000
"""Rows of a minibatch with ``batch_size="auto"``, at most."""

STEP_SIZES = {"scir": 0.01, "sgrld": 1e-3}
"""Default step sizes h, dimensionless for SCIR and per count for SGRLD (docs/dp_mixture.md)."""


def dp_categorical_stochastic_slice(
    counts: ArrayLike | sparse.csr_array,
    alpha: ArrayLike = (1.0, 1.0),
    beta: ArrayLike = 0.1,
    *,
    method: str = "scir",
    batch_size: int | Literal["auto"] | None = "auto",
    step_size: float | None = None,
    start_rows: int = 5000,
    start_sweeps: int = 200,
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
    r"""Sample a Dirichlet-process mixture of categoricals by the stochastic slice sampler.

    The model of `dp_categorical_gibbs` with stick-breaking weights
    :math:`w_k = V_k \prod_{l<k} (1 - V_l)` with :math:`V_k \sim \text{Beta}(1, \alpha)`. For a
    minibatch S of n of the N rows, an iteration

    1. draws slices :math:`u_i \sim U(0, w_{z_i})`, i ∈ S, and adds components from the prior until
       the rest of the stick is shorter than the smallest slice;
    2. draws :math:`P(z_i = k) \propto 1(w_k > u_i) \prod_w \theta_{kw}^{c_{iw}}`, i ∈ S, with all
       other assignments fixed, and removes the components after the last one that has rows;
    3. estimates the counts of all rows, :math:`\hat n_{kw} = \tfrac{N}{n} \sum_{i \in S, z_i = k}
       c_{iw}` and :math:`\hat m_k = \tfrac{N}{n} \#\{i \in S : z_i = k\}`, and takes a step of SCIR
       (algorithm 1, eq. 2.3) or SGRLD with the stationary distributions
       :math:`\text{Dirichlet}(\beta + \hat n_k)` of :math:`\theta_k` and
       :math:`\text{Beta}(1 + \hat m_k, \alpha + \sum_{l>k} \hat m_l)` of :math:`V_k`, as normalized
       gamma variables;
    4. draws α given the latest assignments of all rows.

    The draws are biased: the noise of the estimated counts inflates their variance, and SGRLD does
    not reach probabilities near zero. If all rows fit into memory, `dp_categorical_gibbs` is exact
    and faster.

    Parameters
    ----------
    counts, alpha, beta, draws, tune, thin, chains, n_components, keep_assignments, rows, categories
        See `dp_categorical_gibbs`.
    method : {"scir", "sgrld"}
        Dynamics of the probabilities and stick-breaking proportions.
    batch_size : int, "auto" or None
        n; ``"auto"`` is the smaller of 1000 and the number of rows, None is all rows. The rows are
        shuffled for each epoch, in which each row is used once.
    step_size : float, optional
        h; by default 0.01 for SCIR and 10⁻³ for SGRLD.
    start_rows, start_sweeps, start_split_merge : int
        Initial clusters: ``start_sweeps`` collapsed Gibbs sweeps over ``start_rows`` random rows,
        with ``start_split_merge`` split-merge proposals after each; then one sweep over all rows.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool

    Returns
    -------
    xarray.DataTree
        As `dp_categorical_gibbs`, with the weights and probabilities of the state of the chain.
        ``n_clusters`` is the number of components that have rows, by the latest assignment of each
        row. ``sample_stats`` has ``n_sticks``, the number of stored components, and
        ``n_instantiated``, the number of components available to the last minibatch.

    Raises
    ------
    ValueError
        As `dp_categorical_gibbs`, and if the method is unknown, the step size is not positive, or
        ``batch_size`` exceeds the number of rows.

    Notes
    -----
    The paper specifies the minibatch update of the components but not that of the stick-breaking
    proportions and α, which is an extension.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, section 4.2 and algorithm 1.
    Walker (2007), Sampling the Dirichlet Mixture Model with Slices.
    Papaspiliopoulos (2008), A note on posterior sampling from Dirichlet mixture models.
    Kalli, Griffin, Walker (2011), Slice sampling mixture models.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.mixtures import dp_categorical_stochastic_slice
    >>> counts = np.repeat([[3, 3, 0, 0], [0, 0, 3, 3]], 200, axis=0)
    >>> idata = dp_categorical_stochastic_slice(
    ...     counts, batch_size=50, random_seed=1, progressbar=False
    ... )
    >>> idata.posterior["weights"].mean(("chain", "draw")).values[:2].round(1)
    array([0.5, 0.5])
    """
    if method not in STEP_SIZES:
        raise ValueError(f"method must be one of {list(STEP_SIZES)}, got {method!r}")
    step = STEP_SIZES[method] if step_size is None else float(step_size)
    if not 0 < step < np.inf:
        raise ValueError(f"step_size must be a positive number, got {step_size}")
    mixture = Mixture.from_arguments(counts, beta, alpha, rows, categories)
    start = Start(start_rows, start_sweeps, start_split_merge)
    if batch_size == "auto":
        batch_size = min(DEFAULT_BATCH_SIZE, mixture.rows.n_rows)
    options = SamplingOptions(
        draws, tune, thin, chains, n_components, keep_assignments, random_seed, progressbar
    )
    return sample_chains(
        mixture,
        options,
        lambda rng: StochasticSliceChain(mixture, rng, method, batch_size, step, start),
    )


class StochasticSliceChain:
    """One chain of the stochastic slice sampler, initialized by collapsed Gibbs sweeps."""

    def __init__(
        self,
        mixture: Mixture,
        rng: np.random.Generator,
        method: str,
        batch_size: int | None,
        step_size: float,
        start: Start,
    ) -> None:
        self._mixture, self._method, self._step_size = mixture, method, step_size
        self._batches = RowBatches(mixture.rows.n_rows, batch_size, rng)
        self._stream = new_stream(rng)
        first = initialize_clusters(mixture, rng, start)
        self.alpha, self.assignments = first.alpha, first.assignments
        self._counts = Counts.from_assignments(mixture.rows, self.assignments, mixture.beta.size)
        after = _sums_of_later(self._counts.sizes)
        self._log_sticks = self._log_gammas(
            np.column_stack([1.0 + self._counts.sizes, self.alpha + after]), 1.0 + self.alpha
        )
        self._log_topics = self._log_gammas(self._counts.table.T + mixture.beta, mixture.beta.sum())
        self._n_instantiated = len(self._log_sticks)

    def advance(self) -> None:
        """Draw the slices and clusters of a minibatch, the components, and α."""
        mixture, which = self._mixture, self._batches.next()
        self._assign(which)
        # Components after the last one with rows have their prior, and are dropped.
        n_sticks = int(np.flatnonzero(self._counts.sizes)[-1]) + 1
        self._log_sticks = self._log_sticks[:n_sticks]
        self._log_topics = self._log_topics[:n_sticks]
        batch = Counts.from_assignments(
            mixture.rows, self.assignments, mixture.beta.size, which=which,
            capacity=self._counts.sizes.size,
        )  # fmt: skip
        scale = mixture.rows.n_rows / which.size
        sizes = scale * batch.sizes[:n_sticks]
        found = np.column_stack([sizes, _sums_of_later(sizes)])
        self._move(self._log_sticks, np.tile([1.0, self.alpha], (n_sticks, 1)), found)
        found = scale * batch.table[:, :n_sticks].T
        self._move(self._log_topics, np.broadcast_to(mixture.beta, found.shape), found)
        self.alpha = mixture.draw_alpha_of_sticks(
            self._stream, self.alpha, self._counts.sizes[:n_sticks]
        )

    def draw(self) -> Draw:
        """Return the current state."""
        weights = np.exp(self._log_weights()[:-1])
        stats: dict[str, float] = {"n_sticks": len(weights), "n_instantiated": self._n_instantiated}
        return Draw(
            self.alpha,
            int(np.count_nonzero(self._counts.sizes)),
            weights,
            self._topics(),
            self.assignments.copy(),
            stats,
        )

    def _assign(self, which: np.ndarray) -> None:
        """Draw the component of some rows, after adding the components that their slices need."""
        mixture, stream = self._mixture, self._stream
        *log_weights, log_rest = self._log_weights()
        slices = np.empty(which.size)
        smallest = draw_slices(stream, which, self.assignments, np.exp(log_weights), slices)
        log_shares = break_sticks(stream, self.alpha, log_rest, smallest)
        n_new = len(log_shares)
        if n_new:
            # A beta variate times an independent gamma sum gives two gamma variates.
            sums = np.empty(n_new)
            fill_log_gamma(stream, np.full(n_new, 1.0 + self.alpha), sums)
            self._log_sticks = np.vstack([self._log_sticks, log_shares + sums[:, None]])
            new = self._log_gammas(np.tile(mixture.beta, (n_new, 1)), None)
            self._log_topics = np.vstack([self._log_topics, new])
        self._n_instantiated = len(self._log_sticks)
        while self._counts.sizes.size < self._n_instantiated:
            self._counts = self._counts.enlarged()
        every = np.exp(self._log_weights()[:-1])
        order = np.argsort(-every, kind="stable")
        slice_rows(
            *mixture.rows,
            which,
            slices,
            order.astype(np.int32),
            every[order],
            np.ascontiguousarray(self._topics()[order].T),
            stream,
            self.assignments,
            *self._counts,
        )

    def _log_weights(self) -> np.ndarray:
        """Logarithms of the weights and of the rest of the stick, shape (K + 1,)."""
        return log_stick_breaking_weights(*_log_normalized(self._log_sticks).T)

    def _topics(self) -> np.ndarray:
        """Probabilities of the categories, shape (K, V)."""
        return np.maximum(np.exp(_log_normalized(self._log_topics)), SMALLEST_PROBABILITY)

    def _log_gammas(self, shapes: np.ndarray, total: float | None) -> np.ndarray:
        """Draw log-gamma variates; for SGRLD with the sums of rows set to the prior mean."""
        log_draws = np.empty(shapes.size)
        fill_log_gamma(self._stream, np.ascontiguousarray(shapes, dtype=float).ravel(), log_draws)
        found = log_draws.reshape(shapes.shape)
        if self._method == "sgrld" and total is not None:
            found = _log_normalized(found) + np.log(total)
        return found

    def _move(self, log_state: np.ndarray, prior: np.ndarray, counts: np.ndarray) -> None:
        """Take one step of SCIR or SGRLD, in place."""
        if self._method == "sgrld":
            expanded_mean_step(log_state, prior.copy(), counts, self._step_size, self._stream)
            return
        flat = log_state.ravel()
        cir_transition(
            flat,
            np.ravel(prior + counts),
            np.zeros(1),
            np.full(1, self._step_size),
            self._stream,
        )
        log_state[:] = flat.reshape(log_state.shape)


def _sums_of_later(sizes: np.ndarray) -> np.ndarray:
    """Return the number of rows of all later components, shape (K,)."""
    return sizes.sum() - np.cumsum(sizes)


def _log_normalized(log_state: np.ndarray) -> np.ndarray:
    """Subtract from rows the logarithm of the sum of their exponentials."""
    top = log_state.max(axis=-1, keepdims=True)
    return log_state - top - np.log(np.exp(log_state - top).sum(axis=-1, keepdims=True))
