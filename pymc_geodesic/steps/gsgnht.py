"""Geodesic stochastic gradient Nosé-Hoover thermostats as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import (
    METRICS,
    check_choice,
    check_count,
    check_gradient_noise,
    check_positive_number,
    check_tune_temperature,
    checked_control_variates,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.samplers.dynamics import GeodesicNoseHoover
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.estimators import LocalArguments
from pymc_geodesic.steps.langevin_composition import (
    ADAPTATION_STATS,
    SPLITTINGS,
    LangevinArguments,
    compose_geodesic_langevin,
    user_parameters,
)
from pymc_geodesic.steps.progress import LANGEVIN_PROGRESS
from pymc_geodesic.steps.pymc_interface import (
    Model,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
)
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import specified_arguments


class gSGNHT(GeodesicStep):
    r"""Geodesic stochastic gradient Nosé-Hoover thermostats.

    Simulates

    .. math::

        dx = v\,dt, \qquad
        \Lambda(x)\,dv = \Lambda(x)\,[\nabla \log \pi(x)\,dt - \xi v\,dt + N(0, 2C\,dt)], \qquad
        Q\,d\xi = (v^\top v / m - 1)\,dt

    on a product of manifolds: `SGGMC`, with its notation and its gradient estimate, whose friction
    ξ, one thermostat for each variable of dimension m, adapts until the kinetic temperature is 1
    for any variance of the gradient noise. On Euclidean variables the method is SGNHT.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All continuous free variables by default.
    step_size : float or callable, optional
        Step size ε, or a schedule: a function of the index of the draw, such as `PolynomialDecay`.
        Adapted by default; if it is specified, coordinates are not adapted (see Notes).
    learning_rate : float, optional
        γ, an alternative to ``step_size``: ε = sqrt(γ / N), N the number of rows of the data.
    friction : float, optional
        Friction C, per unit of time: the intensity of the injected noise and the initial value of
        the thermostats. Adapted for each variable during tuning by default.
    momentum_decay : float, optional
        ρ, an alternative to ``friction``: C = ρ / ε.
    thermostat_inertia : float, optional
        Inertia Q of the thermostats, a time squared. The default (1 + 20/m) / C² adapts a
        thermostat within a few 1 / ρ steps, with fluctuations of at most C / sqrt(m + 20). The
        paper uses Q = 1, which is slow where C is large: a thermostat then needs about C² / ρ
        steps.
    n_steps : int, optional
        Number of integration steps per draw. Adapted by default, at most 100; 10 if
        coordinates are not adapted.
    gradient_noise : float, array or "fisher", optional
        Variance V of the gradient estimate, which is subtracted from the injected noise: one
        number, one number per coordinate, or ``"fisher"`` for the empirical Fisher information of
        the first minibatch of each draw, at the position where the draw starts. By default the
        variance is measured and subtracted if coordinates are adapted, and nothing is subtracted
        otherwise. If ε²V exceeds the noise 2Cε of the dynamics, the injected noise is clipped at
        zero and the coordinate is counted in the sample stat ``noise_clips``.
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
    tune_temperature : float, optional
        Initial kinetic temperature of tuning if coordinates are not adapted, which is annealed to
        that of sampling; if it is specified, they are not. At a high temperature a chain usually
        leaves the mode in which it starts, at 1 it usually stays. By default 11 if the gradients at
        the starting point show that it is far from the posterior, and 1.5 otherwise; 101 with
        ``local``.
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
    local : variable, name or sequence of them, optional
        Variables with one value for each row of the minibatch, such as topic proportions of
        documents, or the dimension of the rows, for all variables that have it. Each draw takes one
        minibatch, runs ``local_tune + local_draws`` GMC transitions of its local variables and
        averages the gradient of the other variables over the last ``local_draws`` (Fisher's
        identity).
    local_draws : int
        Number of transitions of the local variables to average over. At most N / n are used, n the
        batch size.
    local_tune : int
        Number of transitions of the local variables to discard before those.
    local_steps : int
        Number of leapfrog steps of a transition of the local variables.
    splitting : {"exact", "paper"}
        ``"exact"`` integrates friction and noise exactly; ``"paper"`` uses the authors' kick, with
        which the temperature of the positions exceeds v·v/m by the factor cosh(ρ/2), ρ = ξε; the
        thermostats correct for it.
    manifolds : mapping of str to Manifold class, optional
        Manifold by variable name, instead of the one that the transform of the variable implies.
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
    By default the warm-up is that of `SGGMC`, with one thermostat for all Euclidean coordinates,
    which compensates the error of the measured noise.

    *Coordinates are adapted* means that the warm-up determines a metric and, with minibatches,
    control variates and the variance of the gradient noise. All three are turned off if a parameter
    of the dynamics except ``n_steps`` is specified, and in the other cases of `SGGMC`;
    ``step.adaptation`` shows what is adapted. Then a thermostat keeps the mean temperature over the
    coordinates of a variable at 1; coordinates with more gradient noise than the mean have a higher
    temperature. The parameters that are not specified are adapted so that the temperature bias
    without a thermostat would be 5 %.

    With steps of length ε the mean of v·v/m along geodesics exceeds the temperature of the
    positions by the factor 1 / (1 − ε²λ/4), λ the mean curvature along the velocities. The
    thermostats keep v·v/m at this multiple, with λ estimated from draw to draw, so that the
    positions have the right variance at every step size and, with ``splitting="paper"``, at every
    friction.

    Sample stats: ``step_size`` (ε, in posterior standard deviations if coordinates are adapted),
    ``temperature`` (kinetic temperature, corrected for the step size as in `SGGMC`: (v·v + (ε/2)
    v·∇log π) / m before a kick, averaged over inner steps and variables), ``thermostat`` and
    ``friction`` (means of ξ and C), ``noise_clips`` (coordinates whose known noise exceeds the
    noise of the dynamics), ``diverging`` (draw that was undone, because it left the posterior or,
    in the warm-up, is not finite), ``n_grad`` (gradient evaluations), ``phase`` (``"explore"``,
    ``"tune"`` or ``"sample"``), ``configurational_temperature`` and ``whitened_gradient`` (of the
    stationarity monitor), ``noise_ratio`` (variance of the gradient with control variates over that
    without); with ``local`` also ``acceptance_rate`` (of the local variables).

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, eq. 6 and 8, algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> data = np.random.default_rng(1).normal(size=(500, 3)) + [2, 0, 0]
    >>> data /= np.linalg.norm(data, axis=1, keepdims=True)
    >>> with pm.Model():
    ...     x = pm.Data("x", data)
    ...     mu = pg.UniformSphere("mu", shape=3)
    ...     y = pg.VonMisesFisher("y", mu, 4.0, observed=x)
    ...     idata = pm.sample(
    ...         draws=300, tune=300, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.gSGNHT(batch_size=50),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(idata.posterior["mu"].mean("draw")[0, 0] > 0.98)
    True
    """

    name = "gsgnht"
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "temperature": (np.float64, []),
        "friction": (np.float64, []),
        "noise_clips": (np.int64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        **ADAPTATION_STATS,
        "warning": (SamplerWarning, None),
        "thermostat": (np.float64, []),
    }
    _progress_stats = LANGEVIN_PROGRESS

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        learning_rate: float | None = None,
        friction: float | None = None,
        momentum_decay: float | None = None,
        thermostat_inertia: float | None = None,
        n_steps: int | None = None,
        gradient_noise: ArrayLike | Literal["fisher"] | None = None,
        metric: Literal["auto", "dense", "diag", "sparse"] | ArrayLike | None = "auto",
        control_variates: Literal["auto", 1, 2] | bool = "auto",
        tune_temperature: float | None = None,
        batch_size: int | None = None,
        minibatch: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        batches: Iterable[Any] | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled",
        draws_per_block: int | None = None,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local_draws: int = 20,
        local_tune: int = 40,
        local_steps: int = 10,
        splitting: Literal["exact", "paper"] = "exact",
        manifolds: Mapping[str, type[Manifold]] | None = None,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        check_choice("splitting", splitting, SPLITTINGS)
        check_gradient_noise(gradient_noise)
        check_tune_temperature(tune_temperature)
        check_positive_number("thermostat_inertia", thermostat_inertia)
        check_count("n_steps", n_steps)
        metric = checked_metric_or_covariance(metric, (*METRICS, "sparse"))
        order = checked_control_variates(control_variates)
        parameters = user_parameters(
            step_size=step_size,
            learning_rate=learning_rate,
            friction=friction,
            momentum_decay=momentum_decay,
        )
        arguments = LangevinArguments(
            specified_arguments(
                step_size=step_size,
                learning_rate=learning_rate,
                friction=friction,
                momentum_decay=momentum_decay,
                thermostat_inertia=thermostat_inertia,
                gradient_noise=gradient_noise,
                tune_temperature=tune_temperature,
                splitting=None if splitting == "exact" else splitting,
                local=local,
            ),
            metric=metric,
            control_variates=order,
            n_steps=n_steps,
            gradient_noise=gradient_noise,
            tune_temperature=tune_temperature,
        )
        minibatches = MinibatchArguments(
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
            draws_per_block=draws_per_block,
        )
        local_arguments = LocalArguments.of_step(
            self, local, draws=local_draws, tune=local_tune, steps=local_steps
        )
        super().__init__(
            vars,
            minibatches=minibatches,
            local=local,
            manifolds=manifolds,
            may_reparametrize=arguments.may_reparametrize,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        compose_geodesic_langevin(
            self,
            # runs kernels/gsgnht.py
            GeodesicNoseHoover(SPLITTINGS[splitting], plain_number(thermostat_inertia)),
            parameters,
            arguments,
            has_thermostats=True,
            local_arguments=local_arguments,
            compile_kwargs=compile_kwargs,
        )
        if self.local:
            self._set_up_local_stats()
