"""Subgradient Hamiltonian Monte Carlo as a PyMC step method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.step_size import step_size_by_acceptance
from pymc_geodesic.arguments import (
    check_trajectories,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.samplers.hmc import HMCSampler
from pymc_geodesic.steps.estimators import gradient_estimator
from pymc_geodesic.steps.hmc_composition import (
    TRAJECTORY_STATS,
    check_exact,
    trajectory_adaptation,
    trajectory_monitors,
)
from pymc_geodesic.steps.progress import TRAJECTORY_PROGRESS
from pymc_geodesic.steps.pymc_interface import Model, RandomGenerator, TensorVariable
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import (
    check_adaptation_arguments,
    specified_arguments,
)


class SubgradientHMC(GeodesicStep):
    r"""Hamiltonian Monte Carlo on a subgradient, for posteriors that are not smooth.

    Each draw takes a velocity v ~ N(0, I), follows ``n_steps`` leapfrog steps

    .. math::

        v \leftarrow v - \tfrac{h}{2}\, \partial U(\theta), \quad
        \theta \leftarrow \theta + h v, \quad
        v \leftarrow v - \tfrac{h}{2}\, \partial U(\theta), \qquad U = -\log \pi,

    and accepts with probability min(1, exp(−ΔH)), H = U(θ) + v·v/2. ∂U is any element of the
    subdifferential, such as PyTensor's gradient of ``abs``, ``maximum`` or ``switch``; for a smooth
    posterior it is the gradient, and the method is `GMC` on Euclidean variables. Every variable,
    including unit vectors and simplices, is moved in PyMC's unconstrained space, with the Jacobian
    of its transform.

    Parameters
    ----------
    vars : sequence of variables or names, optional
        Variables to sample, or their names. All continuous free variables by default.
    step_size : float, optional
        Step size of the leapfrog integrator, a time. By default it is adapted by dual averaging in
        whitened coordinates, where 1 is one posterior standard deviation. A specified step size is
        used as given, without whitening.
    n_steps : int, optional
        Number of leapfrog steps per draw. By default the length of a trajectory is uniform within
        30 % of 1.8, a little more than π/2, the quarter period of a standard normal posterior; 10
        steps if coordinates are not adapted.
    target_accept : float
        Target acceptance probability of the adaptation, between 0 and 1. A warning is issued for a
        chain whose acceptance rate is less than half of that.
    metric : {"auto", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move. ``"dense"`` whitens the draws and gradients
        of the tuning phase with all correlations, ``"diag"`` with scales alone; ``"auto"`` is dense
        up to 500 coordinates, and beyond that diagonal plus low rank, at most ten directions. An
        array is the covariance of the posterior in PyMC's unconstrained coordinates, shape (d, d),
        or the d variances; it is used as given, with the variables in the order of ``vars``. A
        variable that moves on a sphere or a Stiefel manifold has one scale, which is adapted. None
        keeps the coordinates of the model (PyMC's unconstrained ones, without whitening), as does
        any user-specified parameter of the dynamics except ``n_steps``.
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
        For arguments without effect, an unknown, discrete or observed variable or a
        ``target_accept`` outside (0, 1).

    Notes
    -----
    The draws are exact although U has kinks: between kinks a leapfrog step preserves volume, it is
    reversible for any function ∂U of θ, and the Metropolis correction accounts for the energy
    error. This error is of order h, and not h³, in a step that crosses a kink, so that step sizes
    are smaller than for a smooth posterior of the same width.

    Every draw uses the step size h(1 + 0.1 U(−1, 1)) in adapted coordinates and h(1 + 0.2 U(−1, 1))
    in those of the model, which avoids periodic orbits. If only ``n_steps`` is specified,
    coordinates and step size are still adapted.

    Sample stats: ``step_size`` (h, in posterior standard deviations if coordinates are adapted),
    ``acceptance_rate``, ``diverging`` (ΔH > 1000 or not finite), ``n_grad`` (gradient evaluations),
    ``lp`` (log π at the draw, with the Jacobians of the transforms) and ``energy`` (H of the draw
    and its velocity), as in PyMC's HMC.

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
    stats_dtypes_shapes: dict = TRAJECTORY_STATS
    _progress_stats = TRAJECTORY_PROGRESS

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
        check_trajectories("SubgradientHMC", step_size, n_steps, target_accept)
        metric = checked_metric_or_covariance(metric)
        check_adaptation_arguments(specified_arguments(step_size=step_size), metric=metric)
        minibatches = MinibatchArguments()
        super().__init__(
            vars,
            minibatches=minibatches,
            manifold=Euclidean,
            is_corrected=True,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.estimator = gradient_estimator(
            self.model, self.variables, minibatches, with_value=True, compile_kwargs=compile_kwargs
        )
        check_exact("SubgradientHMC", self.estimator)
        self.adaptation = trajectory_adaptation(
            self.estimator,
            self.product,
            step_size=plain_number(step_size),
            n_steps=n_steps,
            target_accept=target_accept,
            metric=metric,
            angles=angles_of(self.variables),
            initial_step_size=step_size_by_acceptance,
            may_split=False,
        )
        self.sampler = HMCSampler(self.adaptation, self.estimator)
        self.monitors, self.diagnose_functions = trajectory_monitors(
            self, self.sampler, target_accept
        )
