"""Stochastic gradient Riemannian Langevin dynamics as a PyMC step method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
from pymc_geodesic.steps.base.positive import PositiveOptions, PositiveState, PositiveStep
from pymc_geodesic.steps.base.pymc_parts import dataclass_state
from pymc_geodesic.steps.base.signature import takes
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


@dataclass(frozen=True, kw_only=True)
class SGRLDOptions(PositiveOptions):
    """Arguments of `SGRLD`.

    Parameters
    ----------
    vars : list of variables or names, optional
        All Dirichlet and Gamma variables by default.
    step_size : float or callable, optional
        h, a time: half of the ε of Patterson and Teh, the same unit as that of `SCIR`. A number, or
        a schedule such as ``PolynomialDecay(h0, b, gamma)``, h0 (1 + t/b)^−γ at draw t. Tuned by
        default.
    local : list of variables or names, optional
        Topic proportions of the documents of a minibatch, ``["theta"]`` in a model such as
        `pymc_geodesic.models.lda`. The counts of words in topics are then averages over
        collapsed Gibbs sweeps over the words of the documents of each minibatch; see
        the notes of `SCIR`.
    """


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

    @takes(SGRLDOptions)
    def __init__(self) -> None:
        self._build()

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
