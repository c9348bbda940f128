"""Stochastic subgradient Langevin dynamics as a PyMC step method."""

from __future__ import annotations

from pymc_geodesic.steps.sgld import SGLD

__all__ = ["SSGLD"]


class SSGLD(SGLD):
    r"""Stochastic subgradient Langevin dynamics: `SGLD` for posteriors that are not smooth.

    Each inner step moves all variables by

    .. math::

        \theta \leftarrow \theta - \tfrac{h^2}{2} P\, \partial \tilde U(\theta) + h \sqrt{P}\, \nu,
        \qquad \nu \sim N(0, I),

    where ∂Ũ is an element of the subdifferential of −log π, estimated from a minibatch: that of
    the prior plus N/n times that of the rows. The subgradient is what PyTensor's gradient gives at
    a kink, so that the kernels are those of `SGLD`, also by default; the name is that of the paper,
    which prefers ``preconditioner="adagrad"``.

    Raises
    ------
    ValueError
        For contradictory arguments, an unknown variable or container, a batch larger than the
        data or data that hold NaN.

    Notes
    -----
    Sample stats: ``step_size``, ``diverging``, ``n_grad``.

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 26 and figure 7.

    Examples
    --------
    A classifier with hinge loss, from minibatches of 50 of its 500 rows:

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
    ...         draws=200, tune=200, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SSGLD(batch_size=50, minibatch=["X", "y"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool((idata.posterior["weights"].mean("draw").values[0] @ [1.0, -1.0]) > 1.0)
    True
    """

    name = "ssgld"
