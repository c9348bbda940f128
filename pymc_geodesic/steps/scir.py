"""The stochastic Cox–Ingersoll–Ross process as a PyMC step method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.counts.estimate import AssignsTopics
from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.kernels.expected_counts import CountsAt
from pymc_geodesic.kernels.positive_numbers import Prior, expand_values
from pymc_geodesic.kernels.scir import scir
from pymc_geodesic.kernels.topics.moves import scir_words
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.positive import PositiveState, PositiveStep
from pymc_geodesic.steps.pymc_parts import (
    Model,
    RandomGenerator,
    TensorVariable,
    dataclass_state,
)

__all__ = ["SCIR"]

REFRESHES = (0.25, 0.5, 0.75, 1.0)
"""Parts of the tuning phase after which control variates are centred anew."""


@dataclass_state
class SCIRState(PositiveState):
    """State of SCIR.

    Attributes
    ----------
    reference : ndarray
        Where control variates are evaluated; empty without, and before the first draw.
    reference_counts, reference_exposures : ndarray
        Counts and exposures of all data there.
    value_sum : ndarray, shape (size,) or (0,)
        Sum of the variables since the reference was last chosen; empty without control variates.
    value_count : int
        Over how many draws.
    """

    reference: np.ndarray
    reference_counts: np.ndarray
    reference_exposures: np.ndarray
    value_sum: np.ndarray
    value_count: int


class SCIR(PositiveStep):
    r"""Stochastic Cox–Ingersoll–Ross process for Dirichlet, Gamma and LogNormal variables.

    A Dirichlet variable is ω = θ / Σθ with independent gamma variables θ, and each of these, as
    every Gamma variable, follows

    .. math::

        d\theta = (\hat a - \hat b\theta)\,dt + \sqrt{2\theta}\,dW, \qquad
        \hat a = \alpha + \frac{N}{n}\,\omega \odot \partial_\omega \log p(\text{batch} \mid \omega)

    whose stationary law is Gamma(a, b), by its exact transition, a non-central χ² draw. There is no
    error of discretisation, however small θ is; what is left is the noise of the estimate â from
    n of N rows. b is 1 for a Dirichlet variable, and the rate β of the prior plus the exposure c of
    a likelihood θⁿ exp(−cθ) for a Gamma variable. A LogNormal variable follows geometric Brownian
    motion that reverts to its mean, d log θ = (Â − B̂ log θ) dt + √2 dW, likewise exactly.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All Dirichlet, Gamma and LogNormal variables by
        default.
    step_size : float or callable, optional
        Step size h, a time in units of the relaxation time 1/b: each step reduces the weight of the
        past by the factor e^{−h}. Or a schedule: a function of the draw, such as `PolynomialDecay`.
        Adapted during tuning by default.
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
    control_variates : bool
        Whether to estimate the counts as n(ω*) + n̂(ω) − n̂(ω*), with the counts n(ω*) over all
        rows at a centering point ω*, the mean over the last quarter of the tuning phase. Each step
        then takes two gradients instead of one. An estimate below zero is set to zero and counted
        in the sample stat ``count_clips``.
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
        For a variable of another distribution, or whose prior depends on another variable
        of the step or on rows of a minibatch, or whose likelihood has counts that can be
        negative (see Notes), and for contradictory minibatch arguments.

    Notes
    -----
    After many steps the variance is that of the posterior plus tanh(h/2) Var[â] (corollary 3.2).
    A step size of None is the longest at which this adds at most 5 % to the variance of any
    variable (of ω, which the noise of Σn̂ leaves alone; and less is added by the default
    minibatches, whose noise adds up to zero over an epoch). During the first 70 % of the tuning
    phase more is allowed, so that a chain that starts far away arrives. If the counts change with
    ω (because something latent is summed over, as in a mixture), they are out of date by the end
    of a step, which costs another tanh(h/2) at most, and the rule counts it as noise. The sample
    stat ``variance_inflation`` is the share that the noise adds.

    Where the sum of the counts changes with ω, as in mixtures and topics that share words, the
    drift of a Dirichlet variable has the further term ωⱼ(M − Σn̂), with the mean M of Σn over the
    tuning phase. The law of θ under which ω has the posterior is then invariant for h → 0; without
    the term it is not. With ``local=`` the term is left out. See the page on simplex samplers.

    It applies to likelihoods with non-negative ω ∂ log p / ∂ω: Categorical and Multinomial data
    with the variable as probabilities, mixtures of them, discrete variables of other steps
    whose probabilities it is; for Gamma variables Poisson, exponential and gamma rates and normal
    precisions; for LogNormal variables log-normal data in their logarithm. Other models are
    refused by name when the step is made, or with an error while sampling.

    With ``local=["theta"]`` the model must have the likelihood
    `pymc_geodesic.sparse.admixture_log_likelihood` of counts, ``minibatch=`` names them, and this
    step samples the topics and theta. For each document of a minibatch the topics of its words
    are drawn given θ, then by ``local_tune + local_draws`` sweeps with θ integrated out, then θ
    given them; in memory θ is where the next visit starts. Documents run side by side over the
    cores, with the same numbers on any number of them. With ``batches=`` (blocks of sparse
    counts, such as ``[counts[i : i + 50] for i in range(0, n, 50)]``) documents pass by: θ then
    has the rows of the largest block and belongs to the present one. The topics are known only as
    well as the step size allows: with minibatches of 50 of 10⁵ documents a schedule such as
    ``PolynomialDecay(0.1, b=10, gamma=0.6)`` is of more use than the tuned step, which is for
    posteriors that are to be right in their variance.

    Components are kept as logarithms. The trace holds no number below 10⁻³⁰⁷.

    Sample stats: ``step_size``, ``variance_inflation``, ``count_clips``, ``diverging``, ``n_grad``.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1, eq. 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> labels = np.repeat([0, 1, 2], [800, 150, 50])
    >>> with pm.Model():
    ...     z = pm.Data("z", labels)
    ...     w = pm.Dirichlet("w", np.full(5, 0.1))
    ...     y = pm.Categorical("y", w, observed=z)
    ...     idata = pm.sample(
    ...         draws=300, tune=300, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SCIR(batch_size=100, minibatch=["z"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["w"].mean("draw")[0, 0] - 0.8) < 0.02)
    True
    >>> bool(idata.posterior["w"].min() > 0)  # a component of 1e-20 is nothing unusual
    True
    """

    name = "scir"
    _state_class = SCIRState
    stats_dtypes_shapes: dict = {
        **PositiveStep.stats_dtypes_shapes,
        "count_clips": (np.int64, []),
    }
    _families = ("Dirichlet", "Gamma", "LogNormal")
    totals_hold_counts = True
    _kernels = (scir, scir_words)
    _compiled_attributes = (*PositiveStep._compiled_attributes, "_estimate_all_rows")
    _tuned_attributes = (
        *PositiveStep._tuned_attributes,
        "reference",
        "reference_counts",
        "reference_exposures",
    )
    _given: CountsAt | None = None
    """Counts of more rows than the step has, which chains keep as those of all data."""

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
        control_variates: bool = False,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        self.control_variates = bool(control_variates)
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

    def _compile(self) -> None:
        super()._compile()
        if self.control_variates:
            self._estimate_all_rows = self.estimator.compile_all_rows()

    def _reset(self) -> None:
        super()._reset()
        given = self._given or CountsAt(np.empty(0), np.empty(0), np.empty(0))
        self.reference, self.reference_counts, self.reference_exposures = given
        self.value_sum = np.zeros(self.product.size if self.control_variates else 0)
        self.value_count = 0

    def keep_reference(self, reference: CountsAt) -> None:
        """Centre the control variates of all chains here, and take these counts for all data.

        Parameters
        ----------
        reference : CountsAt
            ω*, and counts and exposures there of all rows, those elsewhere too.
        """
        self._given = reference

    def _before_moving(self) -> int:
        """Choose the reference of the control variates, at times."""
        if not self.control_variates or self._given is not None:
            return 0
        expand_values(self.blocks, self.position, self._values)
        self.value_sum += self._values
        self.value_count += 1
        times = [math.ceil(part * self._n_tune) - 1 for part in REFRESHES]
        if self.reference.size and self.draw not in times:
            return 0
        self.reference = self.value_sum / self.value_count
        self.value_sum = np.zeros(self.product.size)
        self.value_count = 0
        self._centre()
        self._noise.reset()
        return self._evaluations

    def _centre(self) -> None:
        """Count all rows at the reference."""
        counts, exposures = np.empty(self.product.size), np.empty(self.product.size)
        failed = self._estimate_all_rows(self.reference, counts, exposures)
        if failed >= 0:
            self._counts, self._exposures = counts, exposures
            raise self._negative(failed, self.tuned_step_size)
        self.reference_counts, self.reference_exposures = counts, exposures

    def _measure(self, arguments: np.ndarray) -> int:
        n_grad = super()._measure(arguments)
        if self.tune and self.estimator.repeats:
            n_grad += self._probe_of(int(arguments[0])).check_form(self._values)
        return n_grad

    @property
    def _evaluations(self) -> int:
        return super()._evaluations * (2 if self.control_variates else 1)

    def _push(self, argument: int, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        if self.reference.size and self._estimate(self.reference, argument) < 0:
            counts = counts + self.reference_counts - self._counts
            exposures = exposures + self.reference_exposures - self._exposures
        return super()._push(argument, counts, exposures)

    @property
    def _count_totals(self) -> np.ndarray:
        """M of every number, near the mean of Σn; see `pymc_geodesic.kernels.scir.scir`."""
        if not self._sums_depend.any():
            return np.empty(0)
        if self.reference.size:
            totals = self._row_sums(self.reference_counts)
        else:
            totals = self._noise.totals
        return np.where(self._sums_depend, totals, np.nan)

    def follow_topics(
        self, topics: AssignsTopics, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that moves topics, whose counts are never below zero."""
        failed, more = super().follow_topics(topics, arguments, step_size)
        return failed, more | {"count_clips": 0}

    def follow_field(
        self, field: CompiledField, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that calls a field of counts; see `CountSampler`."""
        failed, clips = scir.call(
            field.callback,
            arguments,
            self.blocks,
            self.position,
            Prior(self._prior_shape, self._prior_rate),
            step_size,
            self.unit,
            self._count_totals,
            CountsAt(self.reference, self.reference_counts, self.reference_exposures),
            self.stream,
            CountsAt(self._values, self._counts, self._exposures),
        )
        field.raise_error()
        if failed < 0 and not np.all(np.isfinite(self.position)):
            failed = int(np.argmin(np.isfinite(self.position)))
        return failed, {"count_clips": clips}

    def _handle_failure(self, failed: int, step_size: float) -> None:
        negative_count = self._counts[failed] < 0.0 and not self._is_log_normal[failed]
        if negative_count or self._exposures[failed] < 0.0:
            raise self._negative(failed, step_size)
        super()._handle_failure(failed, step_size)

    def _negative(self, failed: int, step_size: float) -> Exception:
        error = self._fail(step_size, "count")
        return type(error)(f"at draw {self.draw} {self._refusal(failed)}")

    @staticmethod
    def _move_words(
        log_state: np.ndarray,
        shape: np.ndarray,
        log_totals: np.ndarray,
        found: TopicCounts,
        step_size: float,
        stream: np.ndarray,
    ) -> None:
        scir_words(log_state, shape, step_size, stream)
