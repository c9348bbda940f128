"""Geodesic Monte Carlo as a PyMC step method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from pymc_geodesic.adaptation.step_size import step_size_by_curvature
from pymc_geodesic.arguments import (
    METRICS,
    check_trajectories,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.samplers.hmc import HMCSampler
from pymc_geodesic.steps.estimators import LocalArguments, gradient_estimator
from pymc_geodesic.steps.hmc_composition import (
    TRAJECTORY_STATS,
    check_exact,
    square_frames,
    trajectory_adaptation,
    trajectory_monitors,
)
from pymc_geodesic.steps.progress import TRAJECTORY_PROGRESS
from pymc_geodesic.steps.pymc_interface import Model, RandomGenerator, TensorVariable
from pymc_geodesic.steps.sparse_coordinates import find_group_effects
from pymc_geodesic.steps.step import GeodesicStep
from pymc_geodesic.steps.unused_arguments import (
    check_adaptation_arguments,
    specified_arguments,
)


class GMC(GeodesicStep):
    r"""Geodesic Monte Carlo: Hamiltonian Monte Carlo on a product of manifolds.

    Each transition draws a velocity v ~ N(0, I) in the tangent space, follows ``n_steps`` steps

    .. math::

        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x), \quad
        (x, v) \leftarrow \text{geodesic}(x, v, \varepsilon), \quad
        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x)

    where Λ(x) is the orthogonal projection onto the tangent space at x and π the posterior density
    with respect to the surface measure of the manifold, and accepts with probability
    min(1, exp(−ΔH)), H = −log π(x) + v·v/2, so that the posterior is the stationary distribution.
    On Euclidean variables this is Hamiltonian Monte Carlo, without U-turn criterion, in coordinates
    z adapted during tuning, x = c + L z. If the posterior is nearly N(0, I) in z, the Hamiltonian
    is split: the flow of N(0, I) is exact, and kicks are by the residual r(z) = ∇log π(z) + z,

    .. math::

        v \leftarrow v + \tfrac{\varepsilon}{2} r(z), \quad
        (z, v) \leftarrow (z \cos\varepsilon + v \sin\varepsilon,
        v \cos\varepsilon - z \sin\varepsilon), \quad
        v \leftarrow v + \tfrac{\varepsilon}{2} r(z) ,

    so that a normal posterior needs one gradient per draw.

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
    metric : {"auto", "sparse", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move. ``"sparse"`` is for hierarchical models: it
        factors the sparse precision matrix of group effects, and partially centers each effect by
        the information of its rows relative to its prior, in centered and non-centered models.
        Other vectors with a normal prior of unknown scale, such as coefficients, are partially
        centered too.
        ``"dense"`` whitens the draws and gradients of the tuning phase with all correlations,
        ``"diag"`` with scales alone. ``"auto"`` is sparse where rows use effects by an index
        (``effect[group]``, ``effect[group, item]``) whose normal prior depends on other variables,
        or with such vectors, unless vectors with a multivariate prior, such as `pymc.ICAR`, have at
        least as many coordinates; otherwise dense up to 500 coordinates, and beyond that diagonal
        plus low rank, at most ten directions. An array is the covariance of the posterior in PyMC's
        unconstrained coordinates, shape (d, d), or the d variances; it is used as given, with the
        variables in the order of ``vars``. A variable that moves on a sphere or a Stiefel manifold
        has one scale, which is adapted. None uses PyMC's unconstrained coordinates without
        whitening, as does a user-specified ``step_size``.
    minibatch : str, variable or sequence of them, optional
        Observed variable, or all ``pm.Data`` containers, whose rows the variables in ``local``
        belong to; by default the observed variables. Only with ``local``, and not for minibatches:
        `GMC` uses all rows.
    local : variable, name or sequence of them, optional
        Variables with one value for each row of the observations, or of the data in ``minibatch``,
        or the dimension of the rows, for all variables that have it. Each draw first runs
        ``local_tune + local_draws`` GMC transitions of these variables, accepted or rejected for
        each row separately, and then moves the other variables on the log-density averaged over the
        last ``local_draws``. With ``local_draws=1`` this is blocked Gibbs sampling, which is exact
        (GMC-bGibbs of Liu et al. 2016); with more it is their GMC-apprMH, which is approximate.
    local_draws : int
        Number of transitions of the local variables to average over.
    local_tune : int
        Number of transitions of the local variables to discard before those.
    local_steps : int
        Number of leapfrog steps of a transition of the local variables.
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
        For arguments without effect, an unknown, discrete or observed variable, a
        ``target_accept`` outside (0, 1) or a model with `pymc.Minibatch`.

    Notes
    -----
    Every draw uses ε(1 + 0.1 U(−1, 1)) in whitened coordinates and ε(1 + 0.2 U(−1, 1)) otherwise,
    which breaks periodic orbits. With ``n_steps`` alone coordinates and step size are
    adapted, and the number of steps is not.

    The Hamiltonian is split if, at the end of a window of the tuning phase, the mean square of each
    coordinate of r is at most 0.25; that of ∇log N(0, I) is 1. If it is at most 0.1 for 95 % of the
    coordinates, the others move by leapfrog steps, and three or more steps have the times and
    weights of Gauss-Lobatto quadrature. It is not split with ``n_steps`` or circular variables.
    With a split Hamiltonian the target rejection probability is half that of
    ``target_accept`` (acceptance 0.9 instead of 0.8), because with long steps the energy errors
    are largest in the tails.

    If the metric is adapted, the coordinates of `pymc.LKJCholeskyCov` variables are log standard
    deviations, and Fisher's transformation of partial correlations.

    With the sparse metric the first 300 tuning draws are the warm-up, or the first 30 % of them if
    these are more. It ends after half of these, or later, if the mean square of r is at most 0.1
    for 95 % of the coordinates and 0.25 for those that are not effects. If the Hamiltonian is split
    then, the other tuning draws repeat the last one, with ``n_grad`` 0 and without
    ``acceptance_rate`` and ``energy``.

    For at least 2,000 observations with the distribution N(o + A u, σ²), with data o and A, one σ
    for all rows, and any functions u of the variables, such as coefficients and group effects,
    sufficient statistics replace the rows: AᵀA, Aᵀr and rᵀr, with the residuals r near a
    least-squares solution. Log-density and gradient are the same up to rounding. Their time depends
    on the number of coefficients, of groups, and of pairs of groups that occur together, and no
    longer on the number of rows; with many such pairs the rows are used if they take less time.

    Orthogonal matrices, frames of n columns in n dimensions, have determinant +1 or −1, and no
    trajectory leads from one to the other. Before each draw the opposite sign of a random column is
    proposed, and accepted with probability min(1, π(proposal) / π(x)).

    Sample stats: ``step_size`` (ε, in posterior standard deviations if coordinates are adapted),
    ``acceptance_rate`` (with ``local`` that of the local variables), ``diverging`` (ΔH > 1000 or
    not finite), ``n_grad`` (gradient evaluations), ``lp`` (log π at the draw in the coordinates
    that the step moves, which may differ from those of NUTS) and ``energy`` (H of the draw and its
    velocity).

    References
    ----------
    Byrne, Girolami (2013), Geodesic Monte Carlo on Embedded Manifolds, algorithm 1.

    Shahbaba, Lan, Johnson, Neal (2014), Split Hamiltonian Monte Carlo, section 3.1.

    Laskar, Robutel (2001), High order symplectic integrators for perturbed Hamiltonian systems.

    Examples
    --------
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
    stats_dtypes_shapes: dict = TRAJECTORY_STATS
    _progress_stats = TRAJECTORY_PROGRESS

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | None = None,
        n_steps: int | None = None,
        target_accept: float = 0.8,
        metric: Literal["auto", "dense", "diag", "sparse"] | ArrayLike | None = "auto",
        minibatch: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local_draws: int = 1,
        local_tune: int = 40,
        local_steps: int = 10,
        manifolds: Mapping[str, type[Manifold]] | None = None,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        check_trajectories("GMC", step_size, n_steps, target_accept)
        metric = checked_metric_or_covariance(metric, (*METRICS, "sparse"))
        check_adaptation_arguments(
            specified_arguments(step_size=step_size, local=local), metric=metric
        )
        minibatches = MinibatchArguments(minibatch=minibatch)
        local_arguments = LocalArguments.of_step(
            self, local, draws=local_draws, tune=local_tune, steps=local_steps
        )
        if local is None and minibatch is not None:
            message = (
                "minibatch= of GMC needs local=: its Metropolis correction uses the log-density of "
                "all rows. Omit it, or use SGGMC or gSGNHT for minibatches"
            )
            raise ValueError(see(message, "exact"))
        super().__init__(
            vars,
            minibatches=minibatches,
            local=local,
            manifolds=manifolds,
            may_reparametrize=step_size is None and local is None and isinstance(metric, str),
            is_corrected=True,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.estimator = gradient_estimator(
            self.model,
            self.variables,
            self.minibatches,
            local=self.local,
            local_arguments=local_arguments,
            with_value=True,
            compile_kwargs=compile_kwargs,
        )
        check_exact("GMC", self.estimator)
        effects = None
        if not self.local and step_size is None:
            effects = find_group_effects(self, self.estimator, metric, compile_kwargs)
        self.adaptation = trajectory_adaptation(
            self.estimator,
            self.product,
            step_size=plain_number(step_size),
            n_steps=n_steps,
            target_accept=target_accept,
            metric=metric,
            angles=angles_of(self.variables),
            initial_step_size=step_size_by_curvature,
            effects=effects,
        )
        self.sampler = HMCSampler(
            self.adaptation,
            self.estimator,
            square_frames=[] if self.local else square_frames(self.variables, self.product),
        )
        self.monitors, self.diagnose_functions = trajectory_monitors(
            self, self.sampler, target_accept
        )
        if self.local:
            self._set_up_local_stats()
