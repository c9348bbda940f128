"""Stochastic gradient Langevin dynamics as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.adaptation import LangevinAdaptation
from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.adaptation.langevin_parameters import OverdampedRule
from pymc_geodesic.adaptation.overdamped_annealing import OverdampedAnnealing
from pymc_geodesic.arguments import (
    DEFAULT_STEPS,
    METRICS,
    check_choice,
    check_count,
    check_positive,
    checked_control_variates,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.samplers.dynamics import OverdampedLangevin
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.estimators import gradient_estimator
from pymc_geodesic.steps.langevin_composition import (
    ADAPTATION_STATS,
    LangevinArguments,
    langevin_monitors,
    minibatch_noise,
    report_adaptation,
    stationarity_monitor,
    whitened_adaptation,
)
from pymc_geodesic.steps.pymc_interface import (
    Model,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
)
from pymc_geodesic.steps.sparse_coordinates import find_group_effects
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import specified_arguments


class SGLD(GeodesicStep):
    r"""Stochastic gradient Langevin dynamics.

    Each inner step moves all variables by

    .. math::

        \theta \leftarrow \theta + \tfrac{h^2}{2} P\, \nabla \log \tilde\pi(\theta)
            + h \sqrt{P}\, \nu, \qquad \nu \sim N(0, I),

    with the gradient of a minibatch, scaled by N/n, and no Metropolis correction. P is the
    identity, or the diagonal preconditioner of AdaGrad. Every variable, including unit vectors and
    simplices, is moved in PyMC's unconstrained space, with the Jacobian of its transform.

    By default θ are coordinates in which the posterior has unit covariance, gradients have control
    variates, and the measured variance of the gradient estimate is subtracted from the injected
    noise. In these coordinates ν is the mean of two normal variates, (ν′ + ν″)/2, the second of
    which is used again in the next step (Leimkuhler and Matthews): a second-order scheme for the
    same equation, with the exact variance of a normal posterior at every stable step size. With
    ``step_size``, ``preconditioner`` or ``metric=None`` the equation above is simulated in the
    coordinates of the model.

    `SSGLD`, stochastic subgradient Langevin dynamics (Hu, Zhu and Zhang, eq. 26, who recommend
    ``preconditioner="adagrad"``), is an alias of this class, which messages call SGLD: at a kink
    PyTensor's gradient is an element of the subdifferential.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All continuous free variables by default.
    step_size : float or callable, optional
        Step size h, the standard deviation of the noise of one step. Its unit is that of a time,
        but one step advances the Langevin equation by h². A schedule is a function of the draw,
        such as `PolynomialDecay`, h0 (1 + t/b)^−γ. The step size ε of Welling and Teh is h², so
        that their rate is 2γ. By default adapted during tuning, in units of posterior standard
        deviations.
    preconditioner : {None, "adagrad"}
        ``"adagrad"`` scales drift and noise of each coordinate by Pᵢ = 1 / (1 + sqrt(Gᵢ)), where Gᵢ
        is the sum of the squares of all its gradient estimates so far: step sizes differ between
        coordinates and decrease over time; h √P decreases as t^−1/4.
    n_steps : int, optional
        Number of integration steps per draw. Adapted by default, at most 100; 10 if
        coordinates are not adapted.
    metric : {"auto", "sparse", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move. ``"sparse"``, for gradients over all rows of
        a hierarchical model, partially centers its group effects (see `GMC`). ``"dense"`` whitens
        the draws and gradients of the tuning phase with all correlations, ``"diag"`` with scales
        alone. ``"auto"`` is sparse for such models and gradients, otherwise dense up to 500
        coordinates, and beyond that diagonal plus low rank, at most ten directions. An array is the
        covariance of the posterior in PyMC's unconstrained coordinates, shape (d, d), or the d
        variances; it is used as given, with the variables in the order of ``vars``. A variable that
        moves on a sphere or a Stiefel manifold has one scale, which is adapted. None keeps the
        coordinates of the model (PyMC's unconstrained ones, without whitening), as does any
        user-specified parameter of the dynamics except ``n_steps``.
    control_variates : {"auto", 1, 2, False}
        Order of the control variates for minibatch gradients. With 1, minibatches estimate the
        difference from the gradient at a centering point, where that over all rows is known, so
        that the gradient noise decreases with the width of the posterior. With 2 they estimate the
        remainder of the first-order expansion, with the Hessian of the terms of all rows.
        With False, or if an order does not halve the variance of the gradient noise, minibatch
        gradients are used alone. ``"auto"`` starts with 1, and chooses 2 or none where that reduces
        the cost of an independent draw; 2 only if at most 64 passes over all rows determine the
        Hessian: one for each coordinate, or for each vector or column of effects of one factor.
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
        replacement. If gradient noise is subtracted, as by default, or compensated by a thermostat,
        ``"shuffled"`` is replaced, because noise that sums to zero over an epoch lowers the
        temperature: by ``"random"`` if noise is subtracted without control variates and an epoch
        has fewer than 1,000 minibatches, otherwise by ``"independent"``. With local variables it is
        not replaced.
    draws_per_block : int, optional
        Number of draws with minibatches from the first block of ``batches``; for other blocks in
        proportion to their numbers of rows. One pass over each block by default.
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
        For contradictory arguments, arguments without effect, an unknown variable or container, a
        batch larger than the data or data that contain NaN.

    Notes
    -----
    For a normal posterior of curvature λ and a gradient estimate of variance V, the first equation
    inflates the variance by the factor (1 + h²V/4) / (1 − h²λ/4) if the noise is independent from
    step to step. In shuffled order the noise sums to zero over an epoch, and the factor is smaller.
    An independent draw takes about 2/(h²λ) inner steps. With ``metric=None`` the step size is
    adapted so that the variance is 5 % too large along the worst direction. In whitened coordinates
    h is at most 0.5, with h²V ≤ 0.5: then at most about 13 % of the variance comes from gradient
    noise of measured variance.

    Sample stats: ``step_size`` (h, in posterior standard deviations if coordinates are adapted),
    ``diverging`` (draw that was undone, because it left the posterior or, in the warm-up, because
    it was not finite), ``n_grad`` (gradient evaluations), ``phase`` (``"explore"``, ``"tune"`` or
    ``"sample"``), ``configurational_temperature`` and ``whitened_gradient`` (of the stationarity
    monitor), ``noise_ratio`` (variance of the gradient with control variates over that without).
    SGLD has no velocity and no kinetic temperature.

    References
    ----------
    Welling, Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics, eq. 4;
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 26;
    Duchi, Hazan, Singer (2011), Adaptive Subgradient Methods, figure 1;
    Leimkuhler, Matthews (2013), Rational Construction of Stochastic Numerical Methods for Molecular
    Sampling, eq. 1.5.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> data = np.random.default_rng(1).normal(2.0, 1.0, size=500)
    >>> with pm.Model():
    ...     x = pm.Data("x", data)
    ...     mean = pm.Normal("mean")
    ...     y = pm.Normal("y", mean, 1.0, observed=x)
    ...     idata = pm.sample(
    ...         draws=600, tune=200, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SGLD(batch_size=50), compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["mean"].mean() - data.mean()) < 0.03)
    True
    """

    name = "sgld"
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        **ADAPTATION_STATS,
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (("step_size", ".1e", "Step size"),)

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        preconditioner: Literal["adagrad"] | None = None,
        n_steps: int | None = None,
        metric: Literal["auto", "dense", "diag", "sparse"] | ArrayLike | None = "auto",
        control_variates: Literal["auto", 1, 2] | bool = "auto",
        batch_size: int | None = None,
        minibatch: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        batches: Iterable[Any] | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled",
        draws_per_block: int | None = None,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        check_positive("step_size", step_size)
        check_choice("preconditioner", preconditioner, (None, "adagrad"))
        check_count("n_steps", n_steps)
        metric = checked_metric_or_covariance(metric, (*METRICS, "sparse"))
        order = checked_control_variates(control_variates)
        arguments = LangevinArguments(
            specified_arguments(step_size=step_size, preconditioner=preconditioner),
            metric=metric,
            control_variates=order,
            n_steps=n_steps,
        )
        minibatches = MinibatchArguments(
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
            draws_per_block=draws_per_block,
        )
        super().__init__(
            vars,
            minibatches=minibatches,
            manifold=Euclidean,
            may_reparametrize=arguments.may_reparametrize,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.estimator = gradient_estimator(
            self.model,
            self.variables,
            self.minibatches,
            noise=minibatch_noise(self, arguments),
            with_value=arguments.whitens and self.minibatches.minibatch is None,
            compile_kwargs=compile_kwargs,
        )
        whitened = whitened_adaptation(
            self.estimator,
            self.product,
            arguments,
            angles=angles_of(self.variables),
            rule=OverdampedRule(),
            effects=find_group_effects(self, self.estimator, metric, compile_kwargs)
            if arguments.whitens
            else None,
        )
        self.adaptation: LangevinAdaptation
        if isinstance(whitened, Ineligibility):
            self.adaptation = OverdampedAnnealing(
                self.estimator,
                self.product,
                step_size=plain_number(step_size),
                n_steps=n_steps or DEFAULT_STEPS,
                ineligibility=whitened,
            )
        else:
            self.adaptation = whitened
        self.sampler = LangevinSampler(
            OverdampedLangevin(  # runs kernels/sgld.py
                averaged=self.adaptation.whitens, adagrad=preconditioner is not None
            ),
            self.estimator,
            self.adaptation,
            stationarity_monitor(self.estimator, self.product, self.adaptation, arguments),
        )
        self.monitors, self.diagnose_functions = langevin_monitors(self, self.sampler)
        report_adaptation(self, self.adaptation)


SSGLD = SGLD
"""Stochastic subgradient Langevin dynamics: an alias of `SGLD`."""
