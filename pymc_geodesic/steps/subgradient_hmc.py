"""Subgradient Hamiltonian Monte Carlo as a PyMC step method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.kernels import gmc
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.steps.base.metropolis import MetropolisStep
from pymc_geodesic.steps.base.pymc_parts import Model, RandomGenerator, TensorVariable

__all__ = ["SubgradientHMC"]

FIRST_TRIAL = 0.1
MOST_TRIALS = 60
"""Halvings or doublings of the step, enough for a posterior of any width."""


class SubgradientHMC(MetropolisStep):
    r"""Hamiltonian Monte Carlo on a subgradient, for posteriors that are not smooth.

    Each draw takes a velocity v ~ N(0, I), follows ``n_steps`` leapfrog steps

    .. math::

        v \leftarrow v - \tfrac{h}{2}\, \partial U(\theta), \quad
        \theta \leftarrow \theta + h v, \quad
        v \leftarrow v - \tfrac{h}{2}\, \partial U(\theta), \qquad U = -\log \pi,

    and accepts with probability min(1, exp(−ΔH)), H = U(θ) + v·v/2. ∂U is any element of the
    subdifferential, as PyTensor's gradient of ``abs``, ``maximum`` or ``switch`` is; where the
    posterior is smooth it is the gradient and the method is `GMC` on Euclidean variables. Every
    variable, also a unit vector or a simplex, is moved in PyMC's unconstrained space, with the
    Jacobian of its transform.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All continuous free variables by default.
    step_size : float, optional
        Step size of the leapfrog integrator, a time. Adapted by dual averaging by default, then in
        posterior standard deviations.
    n_steps : int, optional
        Number of leapfrog steps per draw. By default adapted to a trajectory of a quarter of a
        period, of random length within 40 % of it, and 10 in the coordinates of the model.
    target_accept : float
        Target acceptance probability of the adaptation, between 0 and 1.
    metric : {"auto", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move. ``"dense"`` whitens the draws and gradients
        of the tuning phase with all correlations, ``"diag"`` with scales alone; ``"auto"`` is dense
        up to 500 coordinates and beyond that uses scales and up to ten directions. An array is the
        covariance of the posterior in PyMC's unconstrained coordinates, shape (d, d), or the d
        variances; it is used as given, with the variables in the order of ``vars``. A variable that
        moves on a sphere or a Stiefel manifold has one scale, which is adapted. None keeps the
        coordinates of the model, as does any user-specified parameter of the dynamics, such as
        ``step_size``.
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
        For an unknown, discrete or observed variable or a ``target_accept`` outside (0, 1).

    Notes
    -----
    The draws are exact although U has kinks: between kinks a leapfrog step preserves volume, it is
    its own inverse after a change of sign of v whatever function of θ stands for ∂U, and
    Metropolis corrects the rest. A kink costs accuracy, though: the energy error of a step that
    crosses one is of order h and not h³, so that the step must be shorter than for a smooth
    posterior of the same width.

    Every draw uses h(1 + 0.2 U(−1, 1)), so that the length of its path is random, which breaks
    periodic orbits.

    Sample stats: ``step_size``, ``acceptance_rate``, ``diverging`` (ΔH > 1000 or not finite),
    ``n_grad``, and as PyMC's HMC has them ``lp`` (log π at the draw, with the Jacobians of the
    transforms) and ``energy`` (H of the draw and its velocity).

    References
    ----------
    Hu, Zhu, Zhang, Fast Sampling Methods for Bayesian Max-Margin Models, eq. 18.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_geodesic as pg
    >>> with pm.Model():
    ...     slope = pm.Laplace("slope", 0.0, 1.0)
    ...     idata = pm.sample(
    ...         draws=2000, tune=300, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SubgradientHMC(), compute_convergence_checks=False,
    ...     )
    >>> bool(abs(abs(idata.posterior["slope"]).mean() - 1.0) < 0.15)
    True
    """

    name = "subgradient_hmc"
    _everywhere = Euclidean

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | None = None,
        n_steps: int | None = None,
        target_accept: float = 0.8,
        metric: Literal["auto", "dense", "diag"] | ArrayLike | None = "auto",
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        super().__init__(
            vars,
            step_size=step_size,
            n_steps=n_steps,
            target_accept=target_accept,
            metric=metric,
            minibatches=MinibatchArguments(),
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )

    def _first_step_size(self) -> tuple[float, int]:
        """Double or halve the step until the acceptance of a single leapfrog step crosses ½.

        A finite difference of gradients would say nothing here: it is zero between kinks.
        """
        field = self.estimator.field
        output = np.empty(self.product.size + 1)
        evaluate(field.address, self.position, 0, field.context, output)
        field.raise_error()
        if not np.isfinite(output).all():
            raise self._fail(FIRST_TRIAL, self._failing_names(output[:-1]) or "log-density")
        n_grad, step_size, factor = 1, FIRST_TRIAL, 0.0
        for _ in range(MOST_TRIALS):
            acceptance, more = self._acceptance_of_one_step(step_size)
            n_grad += more
            wanted = 2.0 if acceptance > 0.5 else 0.5
            if factor not in (0.0, wanted):
                break
            factor = wanted
            step_size *= factor
        return step_size, n_grad

    def _acceptance_of_one_step(self, step_size: float) -> tuple[float, int]:
        field = self.estimator.field
        acceptance = np.empty(1)
        _, n_grad = gmc.call(
            field.callback,
            0,
            self.product.space,
            Chains(1, self.position.copy(), np.full(self.product.size + 1, np.nan)),
            Leapfrog(step_size, 1, 0.0),
            self.stream,
            Record(1, self._record.positions, acceptance, np.empty((2, 0))),
        )
        field.raise_error()
        return float(acceptance[0]), n_grad
