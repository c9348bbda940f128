"""Stochastic subgradient Nosé-Hoover thermostats as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.annealed_parameters import SETTINGS as ANNEALING
from pymc_geodesic.adaptation.annealed_parameters import AnnealedMeasurements, EulerAnnealing
from pymc_geodesic.adaptation.langevin_parameters import UnderdampedRule
from pymc_geodesic.arguments import (
    check_count,
    check_positive_number,
    check_tune_temperature,
    checked_control_variates,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.integrators import EXACT
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.monitoring.kinetic_temperature import TemperatureMonitor
from pymc_geodesic.samplers.dynamics import Dynamics, EulerNoseHoover, GeodesicNoseHoover
from pymc_geodesic.samplers.langevin import LangevinSampler
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.estimators import gradient_estimator
from pymc_geodesic.steps.langevin_composition import (
    ADAPTATION_STATS,
    LangevinArguments,
    langevin_adaptation,
    langevin_monitors,
    minibatch_noise,
    report_adaptation,
    stationarity_monitor,
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

MAX_NOISE = 0.5
"""Upper bound on h² b, half of that of gSGNHT: near kinks the measured noise is less accurate, and
with a bound of 1 a standard deviation was 8 % too large."""

MAX_ANNEALED_THERMOSTAT = 1.0
"""Upper bound on (A + ξ)/A during annealing: more friction would slow convergence."""


class SSGNHT(GeodesicStep):
    r"""Stochastic subgradient Nosé-Hoover thermostats, by Euler's method.

    Each inner step moves all variables by

    .. math::

        v' = v - h \xi v - h\, \partial \tilde U(\theta) + \sqrt{2 A h}\, \nu, \qquad
        \theta' = \theta + h v', \qquad
        \xi' = \xi + \tfrac{h}{Q} \left(\tfrac{v^\top v}{m} - 1\right),
        \qquad \nu \sim N(0, I),

    with one thermostat ξ, which starts at A, for each variable of dimension m. ∂Ũ is an element of
    the subdifferential of −log π, estimated from a minibatch: that of the prior plus N/n times
    that of the rows. Every variable, including unit vectors and simplices, is moved in PyMC's
    unconstrained space, with the Jacobian of its transform.

    By default the same dynamics are integrated by a symmetric splitting, as in `gSGNHT`, since
    Euler's method needs a step size twelve times smaller for the same error of the variance. They
    are simulated in coordinates in which the posterior has unit covariance, with control variates,
    and the measured variance of the gradient estimate is subtracted from the injected noise. With
    any of ``step_size``, ``diffusion``, ``thermostat_inertia`` and ``tune_temperature``, or
    ``metric=None``, the equations above are used in the coordinates of the model.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All continuous free variables by default.
    step_size : float or callable, optional
        Step size h, a time, or a schedule: a function of the draw, such as `PolynomialDecay`.
        Adapted during tuning by default.
    diffusion : float, optional
        Diffusion A, per unit of time: the intensity of the injected noise and the initial value of
        the thermostats. Adapted for each variable during tuning by default.
    thermostat_inertia : float, optional
        Inertia Q of the thermostats, a time squared. By default 1, as in the paper, if
        ``diffusion`` is given, and otherwise (1 + 20/m) / A², so that ξ equilibrates within the
        time 1/A.
    n_steps : int, optional
        Number of integration steps per draw. Adapted by default, at most 100; 10 if
        coordinates are not adapted.
    metric : {"auto", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move. ``"dense"`` whitens the draws and gradients
        of the tuning phase with all correlations, ``"diag"`` with scales alone; ``"auto"`` is dense
        up to 500 coordinates, and beyond that diagonal plus low rank, at most ten directions. An
        array is the covariance of the posterior in PyMC's unconstrained coordinates, shape (d, d),
        or the d variances; it is used as given, with the variables in the order of ``vars``. A
        variable that moves on a sphere or a Stiefel manifold has one scale, which is adapted. None
        keeps the coordinates of the model (PyMC's unconstrained ones, without whitening), as does
        any user-specified parameter of the dynamics except ``n_steps``.
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
        leaves the mode in which it starts, at 1 it usually stays. By default 151 if the gradients
        at the starting point show that it is far from the posterior, and 1.5 otherwise.
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
    The thermostat keeps the kinetic temperature v·v/m at 1, but with Euler's method the variance of
    the positions is 1 − ξh/2 times that of the posterior. A warning is issued if this error exceeds
    10 %; the adapted parameters have Ah = 0.05. The splitting has no such error, and its sample
    stat ``temperature`` is that of `gSGNHT`.

    Gradient noise of variance V raises ξ by hV/2. Along coordinates where V differs from the mean,
    Euler's method has a temperature bias of h(V − mean)/(2A); the adapted parameters keep it below
    5 %.

    With Euler's method ξ is bounded by 1/h, where friction removes all of a velocity. With
    h²V > 1, ξ reaches this bound, for Q = 1 after many draws, and the temperature exceeds 1; a
    warning is issued.

    Sample stats: ``step_size`` (h, in posterior standard deviations if coordinates are adapted),
    ``temperature`` (kinetic temperature; with Euler's method v·v/m, averaged over inner steps and
    variables), ``thermostat`` and ``diffusion`` (means of ξ and A), ``diverging`` (draw that was
    undone, because it left the posterior or, in the warm-up, is not finite), ``n_grad`` (gradient
    evaluations), ``phase`` (``"explore"``, ``"tune"`` or ``"sample"``),
    ``configurational_temperature`` and ``whitened_gradient`` (of the stationarity monitor),
    ``noise_ratio`` (variance of the gradient with control variates over that without).

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 30;
    Ding et al. (2014), Bayesian Sampling Using Stochastic Gradient Thermostats, algorithm 2.

    Examples
    --------
    A classifier with hinge loss, with minibatches of 50 of its 500 rows:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> rng = np.random.default_rng(1)
    >>> features = rng.normal(size=(500, 2))
    >>> labels = np.sign(features @ [1.0, -1.0] + 0.5 * rng.normal(size=500))
    >>> with pm.Model():
    ...     X, y = pm.Data("X", features), pm.Data("y", labels)
    ...     weights = pm.Normal("weights", shape=2)
    ...     label = pg.Hinge("label", X @ weights, observed=y)
    ...     idata = pm.sample(
    ...         draws=300, tune=300, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SSGNHT(batch_size=50, minibatch=["X", "y"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.sample_stats["temperature"].mean() - 1.0) < 0.1)
    True
    """

    name = "ssgnht"
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "temperature": (np.float64, []),
        "thermostat": (np.float64, []),
        "diffusion": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        **ADAPTATION_STATS,
        "warning": (SamplerWarning, None),
    }
    _progress_stats = LANGEVIN_PROGRESS

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        diffusion: float | None = None,
        thermostat_inertia: float | None = None,
        n_steps: int | None = None,
        metric: Literal["auto", "dense", "diag"] | ArrayLike | None = "auto",
        control_variates: Literal["auto", 1, 2] | bool = "auto",
        tune_temperature: float | None = None,
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
        check_positive_number("diffusion", diffusion)
        check_positive_number("thermostat_inertia", thermostat_inertia)
        check_tune_temperature(tune_temperature)
        check_count("n_steps", n_steps)
        metric = checked_metric_or_covariance(metric)
        order = checked_control_variates(control_variates)
        parameters = user_parameters(step_size=step_size, friction=diffusion)
        inertia = plain_number(thermostat_inertia)
        arguments = LangevinArguments(
            specified_arguments(
                step_size=step_size,
                diffusion=diffusion,
                thermostat_inertia=thermostat_inertia,
                tune_temperature=tune_temperature,
            ),
            metric=metric,
            control_variates=order,
            n_steps=n_steps,
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
            noise=minibatch_noise(self, arguments, has_thermostats=True),
            with_value=arguments.whitens and self.minibatches.minibatch is None,
            compile_kwargs=compile_kwargs,
        )
        self.adaptation = langevin_adaptation(
            self.estimator,
            self.product,
            parameters,
            arguments,
            angles=angles_of(self.variables),
            rule=UnderdampedRule(MAX_NOISE),
            annealing=(
                EulerAnnealing(),
                AnnealedMeasurements(
                    len(self.variables),
                    initial_bias=(
                        ANNEALING.initial_euler_bias
                        if tune_temperature is None
                        else tune_temperature - 1.0
                    ),
                    final_bias=ANNEALING.final_bias_with_thermostats,
                ),
            ),
            max_annealed_thermostat=MAX_ANNEALED_THERMOSTAT,
        )
        dynamics: Dynamics
        if self.adaptation.whitens:
            dynamics = GeodesicNoseHoover(EXACT)  # runs kernels/gsgnht.py
        else:
            dynamics = EulerNoseHoover(  # runs kernels/ssgnht.py
                1.0 if inertia is None and diffusion is not None else inertia
            )
        self.sampler = LangevinSampler(
            dynamics,
            self.estimator,
            self.adaptation,
            stationarity_monitor(self.estimator, self.product, self.adaptation, arguments),
        )
        temperature = TemperatureMonitor(
            self.adaptation.product.dims,
            arguments="step_size and diffusion",
            friction_name="diffusion",
            by_euler=not self.adaptation.whitens,
        )
        self.monitors, self.diagnose_functions = langevin_monitors(self, self.sampler, temperature)
        report_adaptation(self, self.adaptation)
