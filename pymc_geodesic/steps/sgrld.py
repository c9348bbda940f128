"""Stochastic gradient Riemannian Langevin dynamics as a PyMC step method."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_geodesic.gradients.counts import CountEstimator
from pymc_geodesic.gradients.topic_counts import TopicCounts
from pymc_geodesic.kernels.scir import SIMPLEX
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.kernels.topic_moves import sgrld_words
from pymc_geodesic.steps.inflation import independent_inflation
from pymc_geodesic.steps.positive import PositiveStep

__all__ = ["SGRLD"]

LONGEST_STEP = 0.1
"""Bound of the tuned step size where no likelihood asks for a shorter one."""


class SGRLD(PositiveStep):
    r"""Stochastic gradient Riemannian Langevin dynamics for Dirichlet and Gamma variables.

    The baseline of `SCIR`: Euler steps of the same process in the expanded mean ω = θ / Σθ,
    reflected at zero,

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(\alpha_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \hat n = \frac{N}{n}\,\omega \odot \partial_\omega \log p(\text{batch} \mid \omega).

    Its error of discretisation is of the order of h in θ itself, which is nothing for a large
    component and everything for one near zero. It samples every Dirichlet and Gamma
    variable with a differentiable likelihood, also where counts are negative and `SCIR` declines.

    Parameters
    ----------
    vars : list of variables or names, optional
        All Dirichlet and Gamma variables by default.
    step_size : float or callable, optional
        h, a time: half of the ε of Patterson and Teh, the same unit as that of `SCIR`. A number, or
        a schedule such as ``PolynomialDecay(h0, b, gamma)``, h0 (1 + t/b)^−γ at draw t. Tuned by
        default.
    n_steps : int
        Inner steps of a draw, each with the next minibatch.
    batch_size : int, optional
        Rows of a minibatch, with ``minibatch=``.
    minibatch : list of str, optional
        Names of the ``pm.Data`` containers whose rows are subsampled together. A model with
        ``pm.Minibatch`` and ``total_size`` needs neither. All rows by default.
    batches : iterable, optional
        Yields blocks of rows for the containers of ``minibatch=``, for data larger than memory.
    total_size : int, optional
        N, if it is not the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        See `SGGMC`.
    local : list of variables or names, optional
        Topic proportions of the documents of a minibatch, ``["theta"]`` in a model such as
        `pymc_geodesic.models.lda`. The counts of words in topics are then averages over
        collapsed Gibbs sweeps over the words of the documents of each minibatch; see
        the notes of `SCIR`.
    local_draws, local_tune : int
        Sweeps over a document that are averaged over, and sweeps before them.
    model : pymc.Model, optional
    rng : RandomGenerator, optional
    compile_kwargs : dict, optional
        Passed to `pymc.compile`; ``{"mode": "CVM"}`` selects the C backend.

    Raises
    ------
    ValueError
        For a variable that is neither Dirichlet nor Gamma or whose prior depends on another
        variable of the step, and for contradictory minibatch arguments.

    Notes
    -----
    θ has the sum of the prior, Σα on average, and not that of prior and counts, Σα + Σn; so the
    likelihood brings ω back within the time Σα / (Σα + Σn). A step size of None is at most half of
    that, at most 0.1, and such that the noise of the minibatches, h Var[n̂] / 2θ, adds at most 5 %
    to the variance. The sample stat ``variance_inflation`` is that share.

    Sample stats: ``step_size``, ``variance_inflation``, ``diverging``, ``n_grad``.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> labels = np.repeat([0, 1, 2], [500, 300, 200])
    >>> with pm.Model():
    ...     z = pm.Data("z", labels)
    ...     w = pm.Dirichlet("w", np.ones(3))
    ...     y = pm.Categorical("y", w, observed=z)
    ...     idata = pm.sample(
    ...         draws=300, tune=300, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SGRLD(
    ...             batch_size=100, minibatch=["z"],
    ...             step_size=pg.PolynomialDecay(0.05, b=1000, gamma=0.6),
    ...         ),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["w"].mean("draw")[0, 0] - 0.5) < 0.05)
    True
    """

    name = "sgrld"
    _needs_counts = False

    def _spread(self, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        theta = np.exp(self.position) * (1.0 - self._values)
        return np.where(
            self._by_number(SIMPLEX), theta, self._prior_shape + np.maximum(counts, 0.0)
        )

    def _inflation(self, time: float) -> float:
        return self._noise.largest * independent_inflation(time)

    @property
    def _longest_step(self) -> float:
        """Half the time in which the likelihood brings ω back, Σα / (Σα + Σn)."""
        longest = LONGEST_STEP
        for kind, start, rows, width in self.blocks:
            if kind == SIMPLEX:
                part = slice(start, start + rows * width)
                prior = self._prior_shape[part].reshape(rows, width).sum(axis=1)
                counts = np.abs(self._counts[part]).reshape(rows, width).sum(axis=1)
                longest = min(longest, 0.5 * float(np.min(prior / (prior + counts))))
        return longest

    def _run(self, arguments: np.ndarray, step_size: float) -> tuple[int, dict[str, Any]]:
        if self.local:
            return self._run_topics(arguments, step_size, _move_words), {}
        assert isinstance(self.estimator, CountEstimator)
        field = self.estimator.field
        failed = sgrld(
            field.address,
            field.context,
            arguments,
            self.blocks,
            self.position,
            self._prior_shape,
            self._prior_rate,
            self.unit,
            step_size,
            self.stream,
            self._values,
        )
        field.raise_error()
        return failed, {}


def _move_words(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_totals: np.ndarray,
    found: TopicCounts,
    step_size: float,
    stream: np.ndarray,
) -> None:
    sgrld_words(log_state, shape, log_totals, found.totals, step_size, stream)
