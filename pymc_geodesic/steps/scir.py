"""The stochastic Cox–Ingersoll–Ross process as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.adaptation.count_control_variates import CountControlVariates
from pymc_geodesic.adaptation.count_noise import ExactStepSize
from pymc_geodesic.arguments import check_count, check_integers, check_positive, plain_number
from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.counts.gradient_counts import count_blocks
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.counts.model_check import CountProbe
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.monitoring.variance_inflation import InflationMonitor
from pymc_geodesic.samplers.cir import ExactCIR
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.cir import (
    COUNT_PROGRESS,
    COUNT_STATS,
    measure_dependence,
    variables_with_counts,
)
from pymc_geodesic.steps.estimates import count_estimate
from pymc_geodesic.steps.packing import LogPacking
from pymc_geodesic.steps.pymc_parts import Model, RandomGenerator, TensorVariable
from pymc_geodesic.steps.step import GeodesicStep

__all__ = ["SCIR"]


class SCIR(GeodesicStep):
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
        `pymc_geodesic.topics.lda`. The counts of words in topics are then averages over collapsed
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
    the term it is not. With ``local=`` the term is left out, and the draws are biased at every step
    size, the more the fewer words a topic has: for two topics of one text of 12 words the sd would
    be .3179 instead of .3262. See the page on simplex samplers.

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
    stats_dtypes_shapes: dict = {**COUNT_STATS, "count_clips": (np.int64, [])}
    _progress_stats = COUNT_PROGRESS
    estimator: CountEstimate
    sampler: ExactCIR

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
        check_positive("step_size", step_size)
        check_count("n_steps", n_steps)
        check_integers(local_draws=(local_draws, 1), local_tune=(local_tune, 0))
        minibatches = MinibatchArguments(
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
        )
        name = type(self).__name__
        sampled, manifolds = variables_with_counts(
            name, model, vars, local, families=("Dirichlet", "Gamma", "LogNormal")
        )
        super().__init__(
            sampled,
            minibatches=minibatches,
            local=local,
            manifolds=manifolds,
            starts_at_edges=True,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.packing = LogPacking(self.model, self.variables, self.product)
        self.estimator, priors = count_estimate(
            self.model,
            self.variables,
            minibatches,
            local=self.local,
            local_draws=local_draws,
            local_tune=local_tune,
            compile_kwargs=compile_kwargs,
        )
        layout = CountLayout(count_blocks(self.variables))
        probe = CountProbe(name, self.variables, self.estimator)
        variates = (
            CountControlVariates(self.estimator, layout, probe.describe_negative)
            if control_variates
            else None
        )
        depends = measure_dependence(
            self.model, self.variables, self.estimator, probe, needs_counts=True
        )
        self.adaptation = ExactStepSize(
            self.estimator,
            layout,
            step_size=plain_number(step_size),
            counts_depend=depends.counts,
            sums_depend=layout.by_coordinate(depends.sums),
            control_variates=variates,
            check_form=probe.check_form if self.estimator.repeats else None,
        )
        self.sampler = ExactCIR(
            self.estimator,
            priors,
            layout,
            self.adaptation,
            n_steps=int(n_steps),
            control_variates=variates,
            describe_negative=probe.describe_negative,
        )
        inflation = InflationMonitor()
        self.monitors, self.diagnoses = [inflation], [inflation.diagnosis]
