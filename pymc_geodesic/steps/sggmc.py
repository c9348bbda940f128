"""Stochastic gradient geodesic Monte Carlo as a PyMC step method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.kernels import sggmc
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.adaptor import Model, RandomGenerator, TensorVariable
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

    Parameters
    ----------
    vars : list of variables, optional
        All continuous free variables by default.
    step_size : float or callable, optional
        ε, a time, or a schedule: a function of the draw. Tuned by default.
    learning_rate : float, optional
        γ, instead of ``step_size``: ε = sqrt(γ / N).
    friction : float, optional
        C, per unit of time. Tuned for each variable by default.
    momentum_decay : float, optional
        ρ, instead of ``friction``: C = ρ / ε.
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
        Yields blocks of rows for the containers of ``minibatch=``, for data larger than memory:
        arrays, or matrices of `scipy.sparse` where the container is a `SparseData`. With
        ``batch_size=`` minibatches are taken from a block while the next one loads. Without it
        rows are taken as they come, as many as ``batches.batch_size`` says or the first block has.
    total_size : int, optional
        N, if it is not the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        Consecutive blocks of rows that were shuffled once, all of them once per epoch; such
        blocks at independent random places; or random rows with replacement. Where the noise is
        known, because all is left to tuning or with ``gradient_noise``, ``"shuffled"`` means
        ``"independent"``: the noise of a whole epoch adds up to zero, and to subtract what slow
        positions never felt would leave them too cold. With ``gradient_noise`` it means
        ``"random"``, which reads memory more slowly, where the data have fewer than 1,000
        blocks: over K blocks the noise differs by some sqrt(2/K) from what is known.
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
        ``"paper"`` uses the authors' kick, whose kinetic temperature is ρ / sinh(ρ).
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

    A step whose tuning phase is over keeps what it chose: sampling again with ``tune=0`` in the
    same process goes on with that step size and friction.

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

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        step_size: float | Schedule | None = None,
        learning_rate: float | None = None,
        friction: float | None = None,
        momentum_decay: float | None = None,
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

    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        field = self.estimator.field
        return sggmc(
            field.address,
            field.context,
            arguments,
            self.product.blocks,
            self.product.dims,
            self.position,
            self.velocity,
            step_size,
            friction,
            self._noise_variance,
            self._splitting,
            self.stream,
            self._gradient,
            self._scratch,
        )
