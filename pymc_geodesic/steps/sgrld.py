"""Stochastic gradient Riemannian Langevin dynamics (SGRLD) as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.arguments import check_integers, check_positive
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


class SGRLD(GeodesicStep):
    r"""Stochastic gradient Riemannian Langevin dynamics for Dirichlet and Gamma variables.

    A baseline for `SCIR`: Euler steps in the expanded mean ω = θ / Σθ, reflected at zero,

    .. math::

        \theta_j \leftarrow \Bigl|\theta_j + h\,\bigl(\alpha_j + \hat n_j - \omega_j
        \textstyle\sum_i \hat n_i - \theta_j\bigr) + \sqrt{2h\theta_j}\,\eta_j\Bigr|, \qquad
        \hat n = \frac{N}{n}\,\omega \odot \partial_\omega \log p(\text{batch} \mid \omega).

    The discretization error is of order h in θ itself, which is negligible for a large component
    and dominates near zero. SGRLD samples every Dirichlet and Gamma variable with a differentiable
    likelihood, including those with negative counts, for which `SCIR` raises an error.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All Dirichlet and Gamma variables by default.
    step_size : float or callable, optional
        Step size h, a time: half of the ε of Patterson and Teh, in the unit of `SCIR`. A schedule
        is a function of the draw, such as `PolynomialDecay`. Adapted during tuning by default.
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
        For a variable that is neither Dirichlet nor Gamma, a prior that depends on another
        variable of the step or on rows of a minibatch, and for contradictory arguments or arguments
        without effect.

    Notes
    -----
    **Step size.** Σθ has the distribution of the prior, with mean Σα. With a likelihood of counts
    the relaxation time of ω is Σα / (Σα + Σn); for other likelihoods it is measured during tuning,
    from differences of the drift. The default step size is at most 0.1 of the relaxation time,
    which increases the variance by 5 %, at most 0.1, and such that the noise of the minibatches,
    h Var[n̂] / 2θ, adds at most another 5 %. The sample stat ``variance_inflation`` is the relative
    variance that the noise adds.

    **Draws are biased if Σn depends on ω, and if α < 1 and a component is near zero**, even with
    the adapted step size. In the latter case the posterior density may be infinite at zero, and the
    error in ω decreases only as about h^α, so that no practical step size removes it. Tuning
    detects neither. Use `SCIR` for such models. With all data:

    - ``pm.Potential("t", 5 * w[0])`` with α = 1, mean and sd of ``w[0]``: 0.790 and 0.190 at the
      adapted h = 0.029, 0.799 and 0.186 at h = 0.01; exact 0.807 and 0.182.
    - Two topics in equal parts in one document with words (5, 5, 2), α = 0.3, sd of ``w[0, 0]``:
      0.302 at the adapted h = 0.002, 0.289 at h = 0.01; exact 0.326.
    - The same document with ``local=["theta"]`` and proportions from Dirichlet(1, 1), sd of
      ``w[0, 0]``: 0.272 at h = 0.01; exact 0.303.

    Sample stats: ``step_size``, ``variance_inflation``, ``diverging``, ``n_grad``.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.

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
    stats_dtypes_shapes = {
        "step_size": (np.float64, []),
        "variance_inflation": (np.float64, []),
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
        minibatches = MinibatchArguments(
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
        )
        sampled, manifolds = variables_of_families(
            type(self).__name__, model, vars, local, families=("Dirichlet", "Gamma")
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
            is_exact=False,  # runs kernels/sgrld.py
            step_size=step_size,
            n_steps=n_steps,
            local_draws=local_draws,
            local_tune=local_tune,
            compile_kwargs=compile_kwargs,
        )
