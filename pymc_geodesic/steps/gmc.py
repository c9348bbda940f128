"""Geodesic Monte Carlo as a PyMC step method."""

from __future__ import annotations

import math

import numpy as np

from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels.probe import Line, probe
from pymc_geodesic.steps.base.metropolis import GMCOptions, MetropolisStep
from pymc_geodesic.steps.base.signature import takes

__all__ = ["GMC"]

POWER_ITERATIONS = 10


class GMC(MetropolisStep):
    r"""Geodesic Monte Carlo: Hamiltonian Monte Carlo on a product of manifolds.

    Each draw takes a velocity v ~ N(0, I) in the tangent space, follows ``n_steps`` steps

    .. math::

        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x), \quad
        (x, v) \leftarrow \text{geodesic}(x, v, \varepsilon), \quad
        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x)

    and accepts with probability min(1, exp(−ΔH)), H = −log π(x) + v·v/2, so that the posterior
    is exact. On Euclidean variables this is Hamiltonian Monte Carlo, in coordinates that are found
    in the tuning phase.

    Raises
    ------
    ValueError
        For an unknown, discrete or observed variable, a ``target_accept`` outside (0, 1) or a
        model with `pymc.Minibatch`.

    Notes
    -----
    Every draw uses ε(1 + 0.2 U(−1, 1)), or half of that spread where the length is random
    too, which breaks periodic orbits.

    Orthogonal matrices, frames of n columns in n dimensions, have determinant +1 or −1, and no
    trajectory leads from one to the other. Before each draw the opposite sign of a random column
    is proposed, and accepted with the probability min(1, π(proposal) / π(x)).

    Sample stats: ``step_size``, ``acceptance_rate``, ``diverging`` (ΔH > 1000 or not finite),
    ``n_grad``, and as PyMC's HMC has them ``lp`` (log π at the draw, in the coordinates that the
    step moves) and ``energy`` (H of the draw and its velocity).

    References
    ----------
    Byrne, Girolami (2013), Geodesic Monte Carlo on Embedded Manifolds, algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> with pm.Model():
    ...     mu = pg.VonMisesFisher("mu", mu=[1.0, 0.0, 0.0], kappa=50.0)
    ...     idata = pm.sample(
    ...         draws=300, tune=300, chains=1, progressbar=False, random_seed=1, step=pg.GMC(),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["mu"].mean("draw")[0, 0] - 0.98) < 0.01)
    True
    """

    name = "gmc"

    @takes(GMCOptions)
    def __init__(self) -> None:
        self._build()

    def _first_step_size(self) -> tuple[float, int]:
        """Choose a step that resolves the largest curvature at the starting point.

        Return it and the number of gradient evaluations.
        """
        direction = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, self.position, direction, self.stream)
        field = self.estimator.field
        curvature = np.nan
        for _ in range(POWER_ITERATIONS):
            curvature = probe.call(
                field.callback,
                0,
                self.product.space,
                Line(self.position, direction, 1e-6),
                np.empty(0),
                np.empty(len(self.variables)),
                1,
            )
            field.raise_error()
        if not math.isfinite(curvature):
            raise self._fail(1e-6, self._failing_names(direction))
        return 0.1 / math.sqrt(max(abs(curvature), 1e-2)), 2 * POWER_ITERATIONS
