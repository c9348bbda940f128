"""Stochastic gradient Riemannian Langevin dynamics as a PyMC step method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.kernels.positive_numbers import (
    SIMPLEX,
    Prior,
    expand_values,
    lift_small_values,
)
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.kernels.topics.moves import sgrld_words
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.positive import PositiveState, PositiveStep
from pymc_geodesic.steps.pymc_parts import (
    Model,
    RandomGenerator,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.tuning.inflation import independent_inflation

__all__ = ["SGRLD"]

LONGEST_STEP = 0.1
"""Bound of the tuned step size where no likelihood asks for a shorter one."""

RESOLUTION = 0.1
"""Longest tuned step in units of the shortest relaxation time τ.

Euler steps of h widen the variance there by 1 / (1 − h/2τ), 5 %.
"""

FIRST_ITERATIONS = 5
RELATIVE_STEP = 1e-3
"""Largest change of a component, relative to it, of the differences of the drift."""


@dataclass_state
class SGRLDState(PositiveState):
    """State of SGRLD.

    Attributes
    ----------
    direction : ndarray, shape (size,) or (0,)
        Where the drift brings variables back fastest, as far as is known.
    fastest : float
        How fast, for a step of one unit of time.
    """

    direction: np.ndarray
    fastest: float


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
    Where a component has α < 1 the posterior may have an infinite density at zero; the error in ω
    then falls slowly with h, about as h^α, and no practical step size removes it. Use `SCIR` there.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All Dirichlet and Gamma variables by default.
    step_size : float or callable, optional
        Step size h, a time: half of the ε of Patterson and Teh, in the unit of `SCIR`. Or a
        schedule: a function of the draw, such as `PolynomialDecay`. Adapted during tuning by
        default.
    n_steps : int
        Number of steps per draw, each with the next minibatch.
    batch_size : int, optional
        Number of rows per minibatch of the data in ``minibatch``.
    minibatch : str or sequence of str, optional
        Names of the ``pm.Data`` containers whose rows are subsampled together. All rows by default.
        A model with ``pm.Minibatch`` and ``total_size`` needs neither ``minibatch`` nor
        ``batch_size``.
    batches : iterable, optional
        Yields blocks of rows of the data in ``minibatch``, for data larger than memory: arrays, or
        `scipy.sparse` matrices where the container is a `SparseData`. With ``batch_size``,
        minibatches are drawn from one block while the next is loaded. Without it, rows are used in
        the order in which they arrive, ``batches.batch_size`` at a time, or as many as the first
        block has.
    total_size : int, optional
        Number of rows N of the full data, if it differs from the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        Order of the minibatches. ``"shuffled"``: consecutive blocks of rows that are shuffled once,
        each block once per epoch. ``"independent"``: such blocks at independent random positions.
        ``"random"``: random rows with replacement.
    local : variable, name or sequence of them, optional
        Topic proportions of the documents of a minibatch, ``["theta"]`` in a model such as
        `pymc_geodesic.models.lda`. The counts of words in topics are then averages over collapsed
        Gibbs sweeps over the words of the documents of each minibatch; see the notes of `SCIR`.
    local_draws : int
        Number of Gibbs sweeps over a document to average over.
    local_tune : int
        Number of Gibbs sweeps over a document before those.
    model : pymc.Model, optional
        The model of the context by default.
    rng : RandomGenerator, optional
        Seed or generator, as in PyMC; `pymc.sample` passes its own to each chain.
    compile_kwargs : dict, optional
        Passed to `pymc.compile`; ``{"mode": "CVM"}`` selects the C backend.
    blocked : bool
        Whether one step moves all variables jointly; False creates one step for each variable.

    Raises
    ------
    ValueError
        For a variable that is neither Dirichlet nor Gamma or whose prior depends on another
        variable of the step, and for contradictory minibatch arguments.

    Notes
    -----
    θ has the sum of the prior, Σα on average, and not that of prior and counts, Σα + Σn; so the
    likelihood brings ω back within the time Σα / (Σα + Σn) if it is of counts, and in another one
    if not: tuning measures it, from differences of the drift. A step size of None is at most a
    tenth of that, which widens the variance by 5 %, at most 0.1, and such that the noise of the
    minibatches, h Var[n̂] / 2θ, adds at most another 5 %. The sample stat ``variance_inflation`` is
    the share that the noise adds.

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
    _state_class = SGRLDState
    totals_hold_counts = False
    _kernels = (sgrld, sgrld_words)

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        n_steps: int = 10,
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
        batches: Iterable[Any] | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled",
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local_draws: int = 5,
        local_tune: int = 5,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        super().__init__(
            vars,
            step_size=step_size,
            n_steps=n_steps,
            minibatches=MinibatchArguments(
                batch_size=batch_size,
                minibatch=minibatch,
                batches=batches,
                total_size=total_size,
                minibatch_order=minibatch_order,
            ),
            local=local,
            local_draws=local_draws,
            local_tune=local_tune,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )

    def _reset(self) -> None:
        super()._reset()
        self.direction = np.empty(0)
        self.fastest = 0.0

    def _estimate(self, values: np.ndarray, argument: int) -> int:
        """Write the estimates; any that are finite will do."""
        super()._estimate(values, argument)
        bad = ~(np.isfinite(self._counts) & np.isfinite(self._exposures))
        return int(np.argmax(bad)) if bad.any() else -1

    def _measure(self, arguments: np.ndarray) -> int:
        n_grad = super()._measure(arguments)
        if self.estimator.repeats:
            if self._noise.count <= 1:
                self.fastest = 0.0
            for _ in range(1 if self.direction.size else FIRST_ITERATIONS):
                n_grad += self._follow_fastest(int(arguments[0]))
        return n_grad

    def _follow_fastest(self, argument: int) -> int:
        """Do an iteration of the power method with the drift; return gradient evaluations."""
        expand_values(self.blocks, self.position, self._values)
        lift_small_values(self.blocks, self._prior_rate, self._values)
        here = self._values.copy()
        if not self.direction.size:
            self.direction = here * np.random.default_rng(1).standard_normal(here.size)
        on_simplex = self._by_number(SIMPLEX)
        along = self.direction - np.where(on_simplex, here * self._row_sums(self.direction), 0.0)
        largest = np.max(np.abs(along) / here)
        if not (largest > 0.0 and math.isfinite(largest)):
            self.direction = np.empty(0)
            return 0
        along *= RELATIVE_STEP / largest
        difference = np.zeros(here.size)
        for sign in (1.0, -1.0):
            self._values[:] = here + sign * along
            if self._estimate(self._values, argument) >= 0:
                return 2 * self._evaluations
            push = self._push(argument, self._counts.copy(), self._exposures.copy())
            difference -= 0.5 * sign * push
        # The sum of θ is that of the prior; it stands for its rate of one.
        totals = self._row_sums(self._prior_shape)
        difference += np.where(on_simplex, totals, self._prior_rate) * along
        back = difference / np.where(on_simplex, totals, self._prior_rate + self._noise.exposures)
        rate = math.sqrt(np.sum(back**2 / here) / np.sum(along**2 / here))
        if math.isfinite(rate):
            self.fastest = max(self.fastest, rate)
            self.direction = back
        return 2 * self._evaluations

    def _spread(self, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        theta = np.exp(self.position) * (1.0 - self._values)
        return np.where(
            self._by_number(SIMPLEX), theta, self._prior_shape + np.maximum(counts, 0.0)
        )

    def _inflation(self, time: float) -> float:
        return self._noise.largest * independent_inflation(time)

    @property
    def _longest_step(self) -> float:
        """A tenth of the time in which the likelihood brings variables back."""
        if self.estimator.repeats:
            return min(LONGEST_STEP, RESOLUTION / max(self.fastest, 1.0))
        prior = self._row_sums(self._prior_shape)
        counts = self._row_sums(np.abs(self._counts))
        return min(LONGEST_STEP, RESOLUTION * float(np.min(prior / (prior + counts))))

    def follow_field(
        self, field: CompiledField, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that calls a field of counts; see `CountSampler`."""
        failed = sgrld.call(
            field.callback,
            arguments,
            self.blocks,
            self.position,
            Prior(self._prior_shape, self._prior_rate),
            step_size,
            self.unit,
            self.stream,
            self._values,
        )
        field.raise_error()
        return failed, {}

    @staticmethod
    def _move_words(
        log_state: np.ndarray,
        shape: np.ndarray,
        log_totals: np.ndarray,
        found: TopicCounts,
        step_size: float,
        stream: np.ndarray,
    ) -> None:
        sgrld_words(log_state, shape, log_totals, found.totals, step_size, stream)
