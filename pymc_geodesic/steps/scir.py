"""Stochastic Cox–Ingersoll–Ross process (SCIR) as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.arguments import check_choice, check_integers, check_positive
from pymc_geodesic.counts.count_estimator import CountEstimator
from pymc_geodesic.counts.priors import variables_of_families
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.samplers.cir import CIRSampler
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.count_composition import COUNT_PROGRESS, compose_count_sampler
from pymc_geodesic.steps.pymc_interface import (
    Model,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
)
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import check_defaults


class SCIR(GeodesicStep):
    r"""Stochastic Cox–Ingersoll–Ross process for Dirichlet, Gamma and LogNormal variables.

    A Dirichlet variable is ω = θ / Σθ with independent gamma variables θ, and each of these, as
    every Gamma variable, follows

    .. math::

        d\theta = (\hat a - \hat b\theta)\,dt + \sqrt{2\theta}\,dW, \qquad
        \hat a = \alpha + \frac{N}{n}\,\omega \odot \partial_\omega \log p(\text{batch} \mid \omega)

    whose stationary distribution is Gamma(a, b). It is simulated by its exact transition, a
    non-central χ² draw, without discretization error, however small θ is; the only error is the
    noise of the estimate â from n of N rows. b is 1 for a Dirichlet variable, and the rate β of the
    prior plus the exposure c of a likelihood θⁿ exp(−cθ) for a Gamma variable. A LogNormal variable
    follows mean-reverting geometric Brownian motion, d log θ = (Â − B̂ log θ) dt + √2 dW, which is
    also simulated exactly.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All Dirichlet, Gamma and LogNormal variables by
        default.
    step_size : float or callable, optional
        Step size h, a time in units of the relaxation time 1/b: each step reduces the weight of the
        past by the factor e^{−h}. A schedule is a function of the draw, such as `PolynomialDecay`.
        Adapted during tuning by default.
    n_steps : int
        Number of steps per draw, each with the next minibatch.
    batch_size : int, optional
        Number of rows per minibatch. All rows by default, except with ``pm.Minibatch``.
    minibatch : str, variable or sequence of them, optional
        Data whose rows form the minibatches: an observed variable or its dimension, or the names of
        all ``pm.Data`` containers with a row per observation. By default all observed variables,
        with every container, constant and index array of the same length; ``step.rows`` shows what
        was found. A model with ``pm.Minibatch`` and ``total_size`` needs neither ``minibatch`` nor
        ``batch_size``.
    batches : iterable, optional
        Yields blocks of rows of the data in ``minibatch``, for data larger than memory: arrays, or
        `scipy.sparse` matrices where the container is a `SparseData`. With ``batch_size``,
        minibatches are drawn from one block while the next is loaded. Without it, a minibatch has
        ``batches.batch_size`` rows, or as many as the first block, and the rows of about 16
        minibatches are shuffled together.
    total_size : int, optional
        Number of rows N of the full data, if it differs from the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        Order of the minibatches. ``"shuffled"``: the rows are shuffled once and divided into
        minibatches, each of which is used once per epoch. ``"independent"``: the same, but each
        minibatch starts at an independent random row. ``"random"``: rows are drawn with
        replacement.
    local : variable, name or sequence of them, optional
        Topic proportions of the documents of a minibatch, ``["theta"]`` in a model such as
        `pymc_geodesic.topics.lda`. The counts of words in topics are then averages over collapsed
        Gibbs sweeps over the words of the documents of each minibatch; see the notes of `SCIR`.
    local_draws : int
        Number of Gibbs sweeps over a document to average over.
    local_tune : int
        Number of Gibbs sweeps over a document to discard before those.
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
        For a variable with another distribution, a prior that depends on another variable of the
        step or on rows of a minibatch, or a likelihood with negative counts (see Notes), and for
        contradictory arguments or arguments without effect.

    Notes
    -----
    **Likelihoods.** ω ∂ log p / ∂ω must not be negative, as for Categorical and Multinomial data
    with the variable as probabilities, mixtures of them, and discrete variables of other steps with
    these probabilities. By Fisher's identity it is the conditional expectation of the counts where
    categories are latent. A Gamma variable may be the rate of Poisson, Exponential and Gamma data
    or the precision of Normal data, and a LogNormal variable the median of LogNormal data. Other
    models raise an error that names the variable, at construction or while sampling.

    **Step size.** The stationary variance of θ is a + tanh(h/2) Var[â] (corollary 3.2). The default
    step size is the longest, up to 5, that adds at most 5 % to the variance of ω for each variable;
    the default minibatches add less, since their deviations sum to zero over an epoch. In the first
    70 % of the tuning phase larger steps are allowed, so that a chain that starts far from the
    posterior converges. Counts that depend on ω, as in mixtures, change during a step; another
    tanh(h/2) is allowed for that. The sample stat ``variance_inflation`` is the relative variance
    that the noise adds.

    **Counts with a sum that depends on ω**, as in mixtures and in factors such as
    ``pm.Potential("t", 5 * w[0])``: the drift has the additional term ωⱼ(M − Σn̂), with M the mean
    of Σn over the tuning phase. Then the stationary distribution of ω is the posterior in the limit
    h → 0. For the factor above, the exact mean and standard deviation are 0.8068 and 0.1821; those
    of the draws are 0.8074 and 0.1799 at h = 0.05, and 0.8245 and 0.1662 without the term.

    **With** ``local=["theta"]`` **the term is missing, and the draws are biased at every step
    size**: they follow approximately the posterior times Π(Σα + Σn) over the topics, which favors
    topics with similar numbers of words. The bias is small if these numbers are well determined.
    The standard deviations of the probabilities of the words, for two topics of three words with
    α = 0.3, at h = 0.05 with all documents, are:

    ==============================  ====================  ====================  ==============
    Documents                       exact                 SCIR                  largest error
    ==============================  ====================  ====================  ==============
    one, words (5, 5, 2)            0.303, 0.303, 0.243   0.286, 0.285, 0.221   −9 %
    twelve, of 9 to 12 words        0.361, 0.143, 0.284   0.351, 0.133, 0.286   −7 %
    ==============================  ====================  ====================  ==============

    For the one document, h = 0.01 instead of 0.05 gives 0.292, 0.292 and 0.220.

    With ``local=["theta"]`` the model must have the likelihood
    `pymc_geodesic.sparse.admixture_log_likelihood` of the counts that ``minibatch=`` names, and the
    step samples the topics and theta. For each document of a minibatch, the topics of its words are
    drawn given θ, then by ``local_tune + local_draws`` sweeps with θ integrated out, then θ given
    the topics; the next visit of the document starts from this θ. Documents are sampled in
    parallel; draws do not depend on the number of cores. With ``batches=`` (blocks of sparse
    counts, such as ``[counts[i : i + 50] for i in range(0, n, 50)]``) θ has the rows of the largest
    block and belongs to the current block. The adapted step size bounds the error of posterior
    variances. For predictions from minibatches of 50 of 10⁵ documents, a schedule such as
    ``PolynomialDecay(0.1, b=10, gamma=0.6)`` converges faster.

    Components are stored as logarithms. The trace contains no number below 10⁻³⁰⁷.

    Sample stats: ``step_size``, ``variance_inflation``, ``count_clips``, ``diverging``, ``n_grad``.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1, eq. 2.3 and corollary 3.2.

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
    >>> bool(idata.posterior["w"].min() > 0)  # components of 1e-20 are common
    True
    """

    name = "scir"
    stats_dtypes_shapes = {
        "step_size": (np.float64, []),
        "variance_inflation": (np.float64, []),
        "count_clips": (np.int64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        "warning": (SamplerWarning, None),
    }
    _progress_stats = COUNT_PROGRESS
    estimator: CountEstimator
    sampler: CIRSampler

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        n_steps: int = 10,
        batch_size: int | None = None,
        minibatch: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
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
        check_integers(
            n_steps=(n_steps, 1), local_draws=(local_draws, 1), local_tune=(local_tune, 0)
        )
        if local is None:
            check_defaults(
                type(self), "without local=", local_draws=local_draws, local_tune=local_tune
            )
        check_choice("control_variates", control_variates, (True, False))
        minibatches = MinibatchArguments(
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
        )
        sampled, manifolds = variables_of_families(
            type(self).__name__, model, vars, local, families=("Dirichlet", "Gamma", "LogNormal")
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
        compose_count_sampler(
            self,
            is_exact=True,  # runs kernels/scir.py
            step_size=step_size,
            n_steps=n_steps,
            local_draws=local_draws,
            local_tune=local_tune,
            control_variates=control_variates,
            compile_kwargs=compile_kwargs,
        )
