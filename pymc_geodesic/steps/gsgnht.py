"""Geodesic stochastic gradient Nosé-Hoover thermostats as a PyMC step method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_geodesic.arguments import plain_number
from pymc_geodesic.integrators import State, Thermostat
from pymc_geodesic.kernels import gsgnht, thermostat_targets, update_curvature
from pymc_geodesic.samplers.dynamics import CURVATURE_MEMORY
from pymc_geodesic.steps.base.langevin_options import LangevinOptions, ThermostatOptions
from pymc_geodesic.steps.base.pymc_parts import dataclass_state
from pymc_geodesic.steps.base.signature import takes
from pymc_geodesic.steps.base.thermostat import ThermostatState, ThermostatStep

__all__ = ["gSGNHT"]


@dataclass_state
class GSGNHTState(ThermostatState):
    """State of gSGNHT.

    Attributes
    ----------
    curvature_sums : ndarray, shape (n_variables, 2)
        Fading sums over draws of v·v, and of v·v times the curvature along v.
    """

    curvature_sums: np.ndarray


@dataclass(frozen=True, kw_only=True)
class GSGNHTOptions(LangevinOptions, ThermostatOptions):
    """Arguments of `gSGNHT`.

    Parameters
    ----------
    friction : float, optional
        C, per unit of time: intensity of the injected noise and first value of the thermostats.
        Tuned for each variable by default.
    thermostat_inertia : float, optional
        Q, a time squared. The paper has Q = 1, which is slow where C is large: a thermostat then
        needs some C² / ρ steps to move. The default (1 + 20/m) / C² makes it follow within a
        few 1 / ρ steps with fluctuations of at most C / sqrt(m + 20).
    minibatch_order : {"shuffled", "independent", "random"}
        Consecutive blocks of rows that were shuffled once, all of them once per epoch; such
        blocks at independent random places; or random rows with replacement. A thermostat
        takes gradient noise to be independent from step to step, so that ``"shuffled"`` means
        ``"independent"`` here (except with ``local=``): noise that adds up to zero over an epoch
        would be cooled away though slow positions never felt it. With a known ``gradient_noise``
        and fewer than 1,000 blocks it means ``"random"``, as in `SGGMC`.
    splitting : {"exact", "paper"}
        ``"paper"`` uses the authors' kick, whose positions are hotter than v·v/m by cosh(ρ/2);
        the thermostats allow for it.
    """


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
    _kernels = (gsgnht, thermostat_targets, update_curvature)
    last_excess = 0.05
    _has_thermostat = True
    _state_class = GSGNHTState
    _tuned_attributes = (*ThermostatStep._tuned_attributes, "curvature_sums")

    options: GSGNHTOptions

    @takes(GSGNHTOptions)
    def __init__(self) -> None:
        self._build()

    def _build(self) -> None:
        self.thermostat_inertia = plain_number(self.options.thermostat_inertia)
        super()._build()

    def _reset(self) -> None:
        self.curvature_sums = np.zeros((len(self.variables), 2))
        self._work, self._held = np.empty((len(self.variables), 2)), np.empty(len(self.variables))
        super()._reset()

    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        self._prepare_thermostat(friction)
        targets = self._targets(step_size, friction)
        thermostat_targets(
            targets,
            self.curvature_sums,
            self.thermostat,
            step_size,
            self._splitting,
            self._held,
        )
        extra, temperatures = self.thermostat - friction, np.empty(len(friction))
        clips = gsgnht.call(
            self.estimator.field.callback,
            arguments,
            self.product.space,
            State(self.position, self.velocity),
            Thermostat(extra, self._inertia(friction, targets), self._held),
            step_size,
            self._friction_and_noise(friction),
            self.stream,
            self._scratch,
            temperatures,
            self._work,
        )
        self.thermostat[:] = friction + extra
        expected = self.n_steps * self.product.dims * targets
        update_curvature(self.curvature_sums, self._work, expected, step_size, CURVATURE_MEMORY)
        self._bound_thermostat(friction, targets)
        return float(temperatures.mean()), clips
