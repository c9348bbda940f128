"""Stochastic (sub)gradient Langevin dynamics as PyMC step methods."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.arguments import (
    check_count,
    check_positive,
    checked_control_variates,
    checked_metric,
    step_size_at,
)
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.kernels import sgld
from pymc_geodesic.kernels.sgld import adagrad_metric
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.shuffled_rows import ShuffledRows
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.adapting import AdaptingStep
from pymc_geodesic.steps.base.adaptor import (
    GeodesicStepState,
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.steps.base.dynamics import Overdamped
from pymc_geodesic.steps.base.estimates import LocalDraws, Minibatches, make_estimator
from pymc_geodesic.tuning.cooling import DiffusionTuner
from pymc_geodesic.tuning.effective_size import RunningSize

__all__ = ["SGLD", "SSGLD"]

FIRST_MEASUREMENTS = 20
LONGEST_PROBE = 0.1
"""Length over which curvature is measured at first, where the density is flat."""

RUNAWAY = 1e6
"""Distance in units of that of free noise, from which a draw in tuning counts as diverging.

Steps that are too long for the curvature grow without bound, but take a long time to overflow.
"""

DEFAULT_STEPS = 10
_NOISE_CHUNK = 512


@dataclass_state
class SGLDState(GeodesicStepState):
    """State of SGLD.

    Attributes
    ----------
    squares : ndarray
        Sums of squared gradients; empty without AdaGrad.
    tuned_step_size : float
        Step size chosen by tuning.
    tuner_state : dict
        What tuning measured.
    direction, last_gradient, last_difference : ndarray
        What the next measurement goes on from.
    adaptation : dict
        State of the adapted dynamics.
    """

    squares: np.ndarray
    tuned_step_size: float
    tuner_state: dict
    direction: np.ndarray
    last_gradient: np.ndarray
    last_difference: np.ndarray
    draw_sums: np.ndarray
    adaptation: dict


class SGLD(AdaptingStep):
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

    Parameters
    ----------
    vars : list of variables, optional
        All continuous free variables by default.
    step_size : float or callable, optional
        h, the standard deviation of the noise of one step (a time: one step advances the
        Langevin equation by h²), or a schedule: a function of the draw, such as
        `PolynomialDecay`, h0 · (1 + t/b)^−γ. The step size ε of Welling and Teh is h², so that
        their rate is 2γ. Tuned by default; then in posterior standard deviations.
    preconditioner : {None, "adagrad"}
        ``"adagrad"`` scales drift and noise of each coordinate by Pᵢ = 1 / (1 + sqrt(Gᵢ)),
        where Gᵢ is the sum of the squares of all its gradient estimates so far: steps differ
        between coordinates and shrink by themselves, h √P as t^−1/4.
    n_steps : int, optional
        Inner steps of a draw; by default as many as a draw takes to be worth having, 100 at most,
        and 10 where the step size is not chosen in the coordinates of a metric.
    metric : {"auto", "dense", "diag", None}
        Coordinates of the default dynamics: with all correlations, with scales only, or whichever
        of them the dimension allows. None moves all coordinates alike.
    control_variates : {"auto", 1, False}
        Whether the tuned dynamics estimate differences to the gradient of all rows at one place,
        which lowers the noise to what the posterior is wide. ``"auto"`` drops them where they do
        not pay.
    batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        Minibatches; see `SGGMC`. All rows by default. Gradient noise that is taken off must be
        independent from step to step, so that with rows in memory ``"shuffled"`` means
        ``"independent"`` unless the first equation is run as it stands.
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
    ...         draws=1000, tune=500, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SGLD(batch_size=50, minibatch=["x"]), compute_convergence_checks=False,
    ...     )
    >>> bool(abs(idata.posterior["mean"].mean() - data.mean()) < 0.03)
    True
    """

    name = "sgld"
    _everywhere = Euclidean
    _state_class = SGLDState
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        "phase": (np.dtype("<U6"), []),
        "configurational_temperature": (np.float64, []),
        "whitened_gradient": (np.float64, []),
        "noise_ratio": (np.float64, []),
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (("phase", "6s", "Phase"), ("step_size", ".2e", "Step size"))
    _compiled_attributes = ("estimator", "_adapted")

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        step_size: float | Schedule | None = None,
        preconditioner: Literal["adagrad"] | None = None,
        n_steps: int | None = None,
        metric: Literal["auto", "dense", "diag"] | None = "auto",
        control_variates: Literal["auto", 1] | bool = "auto",
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
        batches: Iterable[Any] | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled",
        draws_per_block: int | None = None,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        super().__init__(
            vars,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
            manifolds=None,
            local=None,
        )
        check_positive("step_size", step_size)
        check_count("n_steps", n_steps)
        if preconditioner not in (None, "adagrad"):
            raise ValueError(
                f"preconditioner={preconditioner!r} is unknown; choose None or 'adagrad'"
            )
        self.step_size = step_size
        self.preconditioner = preconditioner
        self.metric = checked_metric(metric)
        self.control_variates = checked_control_variates(control_variates)
        self._wanted_steps = n_steps
        self.n_steps = DEFAULT_STEPS if n_steps is None else int(n_steps)
        if self._leaves_all_to_tuning and minibatch_order == "shuffled" and batches is None:
            minibatch_order = "independent"  # noise that adds up to zero cannot be taken off
        self._minibatches = Minibatches(
            batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        )
        self._gradient = np.empty(self.product.size + 1)
        self._scratch = np.empty(min(_NOISE_CHUNK, self.product.size))
        self._compile()
        source = self.estimator.source
        shuffled = type(source) is ShuffledRows
        self._tuner = DiffusionTuner(epoch=source.n_rows // source.batch_size if shuffled else None)
        self._size = RunningSize(self.product)
        self._handed_on: dict[str, Any] = {}
        self._reset()

    def _compile(self) -> None:
        self.estimator = make_estimator(
            self.model,
            self.variables,
            self._minibatches,
            local_draws=LocalDraws(1, 0, 1),
            with_value=self._searches_on_all_rows,
            compile_kwargs=self.compile_kwargs,
        )
        self._adapted = self._make_adapted()

    @property
    def _leaves_all_to_tuning(self) -> bool:
        return self.metric is not None and self.step_size is None and self.preconditioner is None

    def _make_dynamics(self) -> Overdamped:
        return Overdamped()

    @property
    def tuner_state(self) -> dict:
        """What tuning measured."""
        return self._tuner.state

    @tuner_state.setter
    def tuner_state(self, state: dict) -> None:
        self._tuner.state = state

    def _reset(self) -> None:
        self._reset_adapted()
        self._tuner.reset(self._n_tune)
        self.squares = np.zeros(self.product.size if self.preconditioner else 0)
        self.tuned_step_size = 0.0
        self.direction = np.empty(0)
        self.last_gradient = np.empty(0)
        self.last_difference = np.empty(0)
        self.draw_sums = self._size.start()
        if self._n_tune == 0 and self._handed_on:
            self.tuned_step_size = self._handed_on["tuned_step_size"]
            self.tuner_state = copy.deepcopy(self._handed_on["tuner_state"])

    def stop_tuning(self) -> None:
        """End the tuning phase, and keep what it chose for chains that have none."""
        super().stop_tuning()
        if self._tuner.has_measured and self._n_tune:
            self._handed_on = {
                "tuned_step_size": self.tuned_step_size,
                "tuner_state": copy.deepcopy(self.tuner_state),
            }

    def _read(self, point: PointType) -> None:
        super()._read(point)
        self.last_gradient = np.empty(0)
        self._start_adapted()

    def _observe(self, argument: int, counts: bool = True) -> bool:
        """Measure curvature and gradient noise here, in the coordinates θ/√P.

        The square of the product of two differences of gradients tells tr S² if the differences
        are independent: no minibatch may enter both. Return whether this one entered one.
        """
        gradient = self._gradient_at(self.position, argument)
        root: np.ndarray | float = 1.0
        if self.squares.size:
            root = np.sqrt([adagrad_metric(square) for square in self.squares + gradient**2])
        if self.direction.size == 0:
            self.direction = np.empty(self.product.size)
            fill_normal(self.stream, self.direction)
        direction = self.direction / math.sqrt(self.direction @ self.direction)
        length = self.tuned_step_size
        if not length:
            # over this length the density changes by a factor e, and some kinks are likely crossed
            size = root * gradient
            length = 1.0 / max(math.sqrt(size @ size), 1.0 / LONGEST_PROBE)
        moved = self._gradient_at(self.position + length * root * direction, argument)
        change = root * (gradient - moved) / length
        curvature = float(direction @ change)
        noise = None
        paired = self.last_gradient.size > 0
        if paired:
            difference = root * (gradient - self.last_gradient)
            if self.last_difference.size:
                noise = np.array(
                    [0.5 * difference @ difference, 0.25 * (difference @ self.last_difference) ** 2]
                )
            self.last_difference = difference
            self.last_gradient = np.empty(0)
        self._tuner.observe(curvature, noise, counts)
        if math.isfinite(curvature):
            # the small part of the old direction keeps the power iteration alive between kinks
            self.direction = change + 1e-3 * max(abs(curvature), 1e-12) * direction
        else:
            self.direction, self.last_difference = np.empty(0), np.empty(0)
        return paired

    def _remember_gradient(self, argument: int) -> int:
        """Keep the gradient of a minibatch, to compare with that of the next one.

        Return the number of gradient evaluations.
        """
        if isinstance(self.estimator.source, AllRows):
            return 0
        self.last_gradient = self._gradient_at(self.position, argument)
        return 1

    def _tune_step_size(self, arguments: np.ndarray) -> tuple[int, bool]:
        """Choose h for this draw.

        Return the number of gradient evaluations, and whether the noise of the first minibatch
        was measured.
        """
        n_grad = 2
        if not self._tuner.has_measured:
            for i in range(FIRST_MEASUREMENTS):
                paired = self._observe(arguments[i % arguments.size], counts=False)
                if not paired and i + 1 < arguments.size:
                    n_grad += self._remember_gradient(arguments[i])
            self.last_difference = np.empty(0)
            n_grad += 2 * FIRST_MEASUREMENTS
            if not isinstance(self.estimator.source, AllRows):
                # with few inner steps there is no noise to go by yet: all of it may be noise
                gradient = self._gradient_at(self.position, arguments[0])
                square = float(gradient @ gradient)
                self._tuner.suppose_noise(np.array([square, square**2]))
                n_grad += 1
        paired = self._observe(arguments[0])
        self.tuned_step_size = self._tuner.step_size()
        return n_grad, paired

    def _move(self, point: PointType) -> dict[str, Any]:
        return self._move_adapted() if self._adapts else self._move_as_told()

    def _move_adapted(self) -> dict[str, Any]:
        assert self._adapted is not None
        drawn = self._adapted.advance(self.stream, tune=self.tune)
        self.position = self._adapted.position
        if drawn.diverging and not self.tune:
            raise self._fail(drawn.step_size, self._failing_names(self.position))
        warning = None if self.tune else self._size_warning()
        if self._is_last_draw:
            warning = self._stationarity_warning() or warning
        return {
            "step_size": drawn.step_size,
            "diverging": drawn.diverging,
            "n_grad": drawn.n_grad,
            "phase": drawn.phase,
            "configurational_temperature": drawn.configurational_temperature,
            "whitened_gradient": drawn.whitened_gradient,
            "noise_ratio": drawn.noise_ratio,
            "warning": warning,
        }

    def _move_as_told(self) -> dict[str, Any]:
        assert isinstance(self.estimator, GradientEstimator)
        arguments = self.estimator.next_arguments(self.n_steps)
        n_grad = self.n_steps
        tuning = self.step_size is None and (self.tune or not self._tuner.has_measured)
        paired = False
        if tuning:
            more, paired = self._tune_step_size(arguments)
            n_grad += more
        if callable(self.step_size):
            step_size = step_size_at(self.step_size, self.draw)
        else:
            step_size = self.tuned_step_size if self.step_size is None else self.step_size
        before = self.position.copy(), self.squares.copy()
        field = self.estimator.field
        sgld(
            field.address,
            field.context,
            arguments,
            self.position,
            step_size,
            self.squares,
            self.stream,
            self._gradient,
            self._scratch,
        )
        diverging = not all_finite(self.position)
        if self.tune and not diverging:
            moved = float(np.abs(self.position - before[0]).max())
            diverging = moved > RUNAWAY * step_size * math.sqrt(self.n_steps)
        if diverging:
            field.raise_error()
            if self.draw == 0:
                self._check_gradients(before[0], arguments)
            if not self.tune:
                raise self._fail(step_size, self._failing_names(self.position))
            self._tuner.shrink()
            self.position, self.squares = before
            self.last_gradient = np.empty(0)
        elif tuning and not (paired and arguments.size == 1):
            n_grad += self._remember_gradient(arguments[-1])
        return {
            "step_size": step_size,
            "diverging": diverging,
            "n_grad": n_grad,
            "phase": "tune" if self.tune else "sample",
            "configurational_temperature": math.nan,
            "whitened_gradient": math.nan,
            "noise_ratio": 1.0,
            "warning": None if self.tune else self._size_warning(),
        }

    def _size_warning(self) -> SamplerWarning | None:
        """Count this draw, and complain at the last one if they are too few."""
        draw, n_draws = self.draw - self._n_tune, max(self._n_draws, 1)
        self._size.take(self.draw_sums, self.position, draw, n_draws)
        complaint = self._size.complaint(self.draw_sums, n_draws) if self._is_last_draw else None
        return None if complaint is None else self._warn(f"{type(self).__name__}: {complaint}")


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

    Parameters
    ----------
    vars, step_size, preconditioner, n_steps, metric, control_variates
        See `SGLD`; ``step_size`` is h of eq. 26, a number or a schedule h0 · (1 + t/b)^−γ.
    batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        Minibatches; see `SGGMC`. All rows by default.
    model, rng, compile_kwargs
        See `SGLD`.

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
    ...         draws=500, tune=500, chains=1, progressbar=False, random_seed=1,
    ...         step=pg.SSGLD(batch_size=50, minibatch=["X", "y"]),
    ...         compute_convergence_checks=False,
    ...     )
    >>> bool((idata.posterior["weights"].mean("draw").values[0] @ [1.0, -1.0]) > 1.0)
    True
    """

    name = "ssgld"
