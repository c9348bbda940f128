"""Stochastic gradient Langevin dynamics as a PyMC step method."""

from __future__ import annotations

from pymc_geodesic.steps.base.diffusion import DiffusionOptions, DiffusionStep
from pymc_geodesic.steps.base.signature import takes

__all__ = ["SGLD"]


class SGLD(DiffusionStep):
    r"""Stochastic gradient Langevin dynamics.

    Each inner step moves all variables by

    .. math::

        \theta \leftarrow \theta + \tfrac{h^2}{2} P\, \nabla \log \tilde\pi(\theta)
            + h \sqrt{P}\, \nu, \qquad \nu \sim N(0, I),

    with the gradient of a minibatch, scaled by N/n, and no Metropolis correction. P is the
    identity, or the diagonal preconditioner of AdaGrad. Every variable, also a unit vector or a
    simplex, is moved in PyMC's unconstrained space, with the Jacobian of its transform.

    By default θ are coordinates in which the posterior has unit covariance. The tuning phase finds
    them, a place to which gradients are estimated as differences (control variates), and the
    variance of the estimate in every direction, which is taken off the noise. There ν is the mean
    of two normal numbers, (ν′ + ν″)/2, of which the next step uses one again (Leimkuhler and
    Matthews): the same dynamics, but a scheme of second order, whose variance is right for a normal
    posterior at every step. What is set by hand, ``step_size`` or ``preconditioner``, or
    ``metric=None`` runs the first equation as it stands.

    Raises
    ------
    ValueError
        For contradictory arguments, an unknown variable or container, a batch larger than the
        data or data that hold NaN.

    Notes
    -----
    Along a direction in which −log π has the curvature λ and the gradient estimate the variance V,
    the variance of a normal posterior comes out too large by the factor
    (1 + h²V/4) / (1 − h²λ/4) by the first equation if the noise is independent from step to step,
    and by less in shuffled order, in which it adds up to zero over an epoch. An independent draw
    takes about 2/(h²λ) inner steps. With ``metric=None`` the step size is chosen in tuning so
    that the excess is 5 % where it is largest. In the coordinates of a metric it is the longest,
    up to 0.5, with h²V ≤ 0.5: then about an eighth of the variance comes from gradient noise, whose
    V was measured.

    Sample stats: ``step_size`` (h), ``diverging``, ``n_grad``, ``phase``. There is no velocity and
    so no kinetic temperature; the default dynamics also report ``configurational_temperature``,
    ``whitened_gradient`` and ``noise_ratio``, see `SGGMC`.

    References
    ----------
    Welling, Teh (2011), Bayesian Learning via Stochastic Gradient Langevin Dynamics, eq. 4;
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 26;
    Leimkuhler, Matthews (2013), Rational Construction of Stochastic Numerical Methods for Molecular
    Sampling.

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
    ...         step=pg.SGLD(batch_size=50, minibatch=["x"]), compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["mean"].mean() - data.mean()) < 0.03)
    True
    """

    name = "sgld"

    @takes(DiffusionOptions)
    def __init__(self) -> None:
        self._build()
