"""Geodesic stochastic gradient Nosé-Hoover thermostats as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.kernels import gsgnht, held_along_geodesics, learn_curvature
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.adaptor import (
    Model,
    RandomGenerator,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.steps.base.thermostat import ThermostatState, ThermostatStep

__all__ = ["gSGNHT"]


MEMORY_IN_TUNING, MEMORY = 0.95, 0.999
"""Part of the sums for the mean curvature that is kept from draw to draw."""


@dataclass_state
class GSGNHTState(ThermostatState):
    """State of gSGNHT.

    Attributes
    ----------
    curvature_sums : ndarray, shape (n_variables, 2)
        Fading sums over draws of v·v, and of v·v times the curvature along v.
    """

    curvature_sums: np.ndarray


class gSGNHT(ThermostatStep):
    r"""Geodesic stochastic gradient Nosé-Hoover thermostats.

    Simulates

    .. math::

        dx = v\,dt, \qquad
        dv = \Lambda(x)\,[\nabla \log \pi(x)\,dt - \xi v\,dt + N(0, 2C\,dt)], \qquad
        Q\,d\xi = (v^\top v / m - 1)\,dt

    on a product of manifolds: `SGGMC` whose friction ξ, one thermostat for each variable of
    dimension m, adapts until the kinetic temperature is 1, whatever the gradient noise. On
    Euclidean variables the method is SGNHT.

    Parameters
    ----------
    vars : list of variables, optional
        All continuous free variables by default.
    step_size : float or callable, optional
        ε, a time, or a schedule: a function of the draw. Tuned by default.
    learning_rate : float, optional
        γ, instead of ``step_size``: ε = sqrt(γ / N).
    friction : float, optional
        C, per unit of time: intensity of the injected noise and first value of the thermostats.
        Tuned for each variable by default.
    momentum_decay : float, optional
        ρ, instead of ``friction``: C = ρ / ε.
    thermostat_inertia : float, optional
        Q, a time squared. The paper has Q = 1, which is slow where C is large: a thermostat then
        needs some C² / ρ steps to move. The default (1 + 20/m) / C² makes it follow within a
        few 1 / ρ steps with fluctuations of at most C / sqrt(m + 20).
    n_steps : int, optional
        L, inner steps of a draw: by default as many as make a draw nearly independent of the last,
        4 to 100, and 10 in the coordinates of the model.
    gradient_noise : None, float, array or "fisher"
        V, the variance of the gradient estimate, which is taken off the injected noise: zero by
        default; one number; one per coordinate; or the empirical Fisher information of the
        minibatch. Where ε²V exceeds the noise there is, the rest is clipped and counted in the
        sample stat ``noise_clips``.
    metric : {"auto", "dense", "diag", None}
        Coordinates in which Euclidean variables move: those that whiten draws and gradients of the
        tuning phase with all correlations, or with scales alone; ``"auto"`` is dense to 500
        coordinates. A variable on a sphere or a Stiefel manifold has one length. None leaves the
        coordinates of the model, and so does whatever is set of the dynamics.
    control_variates : {"auto", 1, False}
        Whether minibatches estimate the difference to an anchor, where the gradient of all rows is
        known, which lowers the noise to what the posterior is wide. ``"auto"`` drops them where
        they do not pay.
    tune_temperature : float, optional
        Kinetic temperature at which tuning begins, to cool from there: hot crosses the posterior
        quickly, and leaves the mode a chain starts in. 1 heats no more than sampling does. By
        default 11 if the gradients at the start say that the posterior is far away, and
        1.5 if they do not; 101 with ``local=``.
    batch_size : int, optional
        Rows of a minibatch, with ``minibatch=``.
    minibatch : list of str, optional
        Names of the ``pm.Data`` containers whose rows are subsampled together. A model with
        ``pm.Minibatch`` and ``total_size`` needs neither.
    batches : iterable, optional
        Yields blocks of rows for the containers of ``minibatch=``, for data larger than memory.
        Each block is a minibatch, or with ``batch_size=`` minibatches are taken from it while the
        next one loads.
    total_size : int, optional
        N, if it is not the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        Consecutive blocks of rows that were shuffled once, all of them once per epoch; such
        blocks at independent random places; or random rows with replacement. A thermostat
        takes gradient noise to be independent from step to step, so that ``"shuffled"`` means
        ``"independent"`` here (except with ``local=``): noise that adds up to zero over an epoch
        would be cooled away though slow positions never felt it. With a known ``gradient_noise``
        and fewer than 1,000 blocks it means ``"random"``, as in `SGGMC`.
    draws_per_block : int, optional
        Draws for which a block of ``batches=`` is subsampled: of the first block, and of others
        in proportion to their rows. As many as make one pass over it by default.
    local : list of variables, optional
        Variables with one point for each row of the minibatch, such as topic proportions of
        documents. Each draw takes one minibatch, runs ``local_tune + local_draws`` GMC
        transitions on its local variables and averages the gradient of the others over the last
        ``local_draws`` (Fisher's identity).
    local_draws, local_tune, local_steps : int
        Transitions that are averaged over, transitions before them, leapfrog steps of each.
        No more than N / n draws are averaged over, n the batch size: the draws stand still during
        the inner steps, which slows the other variables down as friction does, and only their
        scatter keeps the temperature.
    splitting : {"exact", "paper"}
        ``"paper"`` uses the authors' kick, whose positions are hotter than v·v/m by cosh(ρ/2);
        the thermostats allow for it.
    manifolds : mapping, optional
        Manifold class by variable name, to override the choice above.
    model : pymc.Model, optional
    rng : RandomGenerator, optional
    compile_kwargs : dict, optional
        Passed to `pymc.compile`; ``{"mode": "CVM"}`` selects the C backend.

    Raises
    ------
    ValueError
        For contradictory arguments, an unknown variable or container, a batch larger than the
        data or data that hold NaN.

    Notes
    -----
    With nothing set of step, friction and noise, the dynamics are those of `SGGMC` in the
    coordinates of a metric, with one thermostat for all directions, which takes up what was
    measured only roughly. What follows is for dynamics that were set.

    A thermostat holds the temperature at 1 on average over the coordinates of a variable. Where
    gradient noise differs between coordinates some are hotter and others colder, so tuning still
    bounds the excess the noise would cause, at 5 %.

    Steps of length ε have v·v/m larger along geodesics than the temperature of the positions, by
    the factor 1 / (1 − ε²λ/4) for curvature λ. The thermostats hold that multiple, with λ as the
    velocities meet it on the way, so that the positions have their variance at every step size
    (and, with the splitting of the paper, at every friction).

    Sample stats: ``step_size``, ``temperature`` (of the positions: v·v/m between the halves of a
    kick, averaged over inner steps and variables), ``thermostat`` and ``friction`` (ξ and C, means
    over variables), ``noise_clips``, ``diverging``, ``n_grad``.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, algorithm 2.

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
    ...         step=pg.gSGNHT(batch_size=50, minibatch=["x"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(idata.posterior["mu"].mean("draw")[0, 0] > 0.98)
    True
    """

    name = "gsgnht"
    _kernels = (gsgnht, held_along_geodesics, learn_curvature)
    last_excess = 0.05
    _has_thermostat = True
    _state_class = GSGNHTState
    _tuned_attributes = (*ThermostatStep._tuned_attributes, "curvature_sums")

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        step_size: float | Schedule | None = None,
        learning_rate: float | None = None,
        friction: float | None = None,
        momentum_decay: float | None = None,
        thermostat_inertia: float | None = None,
        n_steps: int | None = None,
        gradient_noise: ArrayLike | Literal["fisher"] | None = None,
        metric: Literal["auto", "dense", "diag"] | None = "auto",
        control_variates: Literal["auto", 1] | bool = "auto",
        tune_temperature: float | None = None,
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
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
        self._set_inertia(thermostat_inertia)
        super().__init__(
            vars,
            step_size=step_size,
            learning_rate=learning_rate,
            friction=friction,
            momentum_decay=momentum_decay,
            n_steps=n_steps,
            gradient_noise=gradient_noise,
            metric=metric,
            control_variates=control_variates,
            tune_temperature=tune_temperature,
            splitting=splitting,
            batch_size=batch_size,
            minibatch=minibatch,
            batches=batches,
            total_size=total_size,
            minibatch_order=minibatch_order,
            draws_per_block=draws_per_block,
            local=local,
            local_draws=local_draws,
            local_tune=local_tune,
            local_steps=local_steps,
            manifolds=manifolds,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )

    def _reset(self) -> None:
        self.curvature_sums = np.zeros((len(self.variables), 2))
        self._work, self._held = np.empty((len(self.variables), 2)), np.empty(len(self.variables))
        super()._reset()

    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        self._prepare_thermostat(friction)
        targets = self._targets(step_size, friction)
        held_along_geodesics(
            targets,
            self.curvature_sums,
            self.thermostat,
            friction,
            step_size,
            self._splitting,
            self._held,
        )
        field = self.estimator.field
        information = gsgnht(
            field.address,
            field.context,
            arguments,
            self.product.blocks,
            self.product.dims,
            self.position,
            self.velocity,
            self.thermostat,
            self._inertia(friction, targets),
            self._held,
            step_size,
            friction,
            self._noise_variance,
            self._splitting,
            self.stream,
            self._gradient,
            self._scratch,
            self._work,
        )
        expected = self.n_steps * self.product.dims * targets
        memory = MEMORY_IN_TUNING if self.tune else MEMORY
        learn_curvature(self.curvature_sums, self._work, expected, step_size, memory)
        self._bound_thermostat(friction, targets)
        return information
