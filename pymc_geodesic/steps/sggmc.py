"""Stochastic gradient geodesic Monte Carlo as a PyMC step method."""

from __future__ import annotations

import numpy as np

from pymc_geodesic.integrators import State
from pymc_geodesic.kernels.sggmc import HeatBath, sggmc
from pymc_geodesic.steps.base.langevin_options import LangevinOptions
from pymc_geodesic.steps.base.signature import takes
from pymc_geodesic.steps.base.underdamped import LangevinStep

__all__ = ["SGGMC"]


class SGGMC(LangevinStep):
    r"""Stochastic gradient geodesic Monte Carlo.

    Simulates the Langevin dynamics

    .. math::

        dx = v\,dt, \qquad
        dv = \Lambda(x)\,[\nabla \log \pi(x)\,dt - C v\,dt + N(0, 2C\,dt)]

    on a product of manifolds, Λ(x) being the projection onto the tangent space, with gradients
    estimated from minibatches and no Metropolis correction. A unit-vector variable moves on the
    sphere, a simplex on the positive part of a sphere (θ = q²), an orthonormal frame on the
    Stiefel manifold, and any other variable in PyMC's unconstrained space, where the method is
    stochastic gradient Hamiltonian Monte Carlo (SGHMC).

    Raises
    ------
    ValueError
        For contradictory arguments, an unknown variable or container, a batch larger than the
        data or data that hold NaN.

    Notes
    -----
    With nothing set of step, friction and noise, the tuning phase first looks for the posterior by
    `GMC` on a sample of the rows and finds the metric, then an anchor, then the variance b_j of the
    gradient estimate along every coordinate. There h = min(½, b^(−½)) in posterior standard
    deviations, the friction is 1 + h b_j / 2, and the noise that the gradient brings along is taken
    off the injected noise. Simplices and ``local=`` variables are not among these dynamics.

    Otherwise gradient noise heats: the kinetic temperature exceeds 1 by about εV/(2C), and the
    posterior is wider by as much. What is left as None is chosen so that the excess is 2 %. The
    sample stat ``temperature`` shows what became of it.

    Sample stats: ``step_size``, ``temperature`` (v·v/dim between the halves of a kick, averaged
    over inner steps and variables), ``friction`` (mean over variables), ``noise_clips``,
    ``diverging``, ``n_grad``.

    A step that was tuned with ``cores=1`` keeps what it chose: sampling again with ``tune=0`` in
    the same process uses that step size and friction, and starts at the last draws if they are
    passed as ``initvals=``. The initial point of the model is rejected, as there is no burn-in.

    References
    ----------
    Liu, Zhu, Song (2016), Stochastic Gradient Geodesic MCMC Methods, algorithm 1.

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
    ...         step=pg.SGGMC(batch_size=50, minibatch=["x"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(idata.posterior["mu"].mean("draw")[0, 0] > 0.98)
    True
    """

    name = "sggmc"
    _kernels = (sggmc,)
    last_excess = 0.02

    @takes(LangevinOptions)
    def __init__(self) -> None:
        self._build()

    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        return sggmc.call(
            self.estimator.field.callback,
            arguments,
            self.product.space,
            State(self.position, self.velocity),
            step_size,
            HeatBath(friction, self._noise_variance, self._splitting),
            self.stream,
            self._scratch,
        )
