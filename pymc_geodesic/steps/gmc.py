"""Geodesic Monte Carlo as a PyMC step method."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pymc_geodesic.arguments import (
    check_count,
    check_fraction,
    check_positive,
    checked_metric,
)
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.local_gradient import LocalGradientEstimator
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import gmc, probe
from pymc_geodesic.manifolds import Euclidean, HalfLine, Manifold
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.steps.base.adapted_trajectories import AdaptedTrajectories, compact_parts
from pymc_geodesic.steps.base.adaptor import (
    DualAverageAdaptation,
    GeodesicStep,
    GeodesicStepState,
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    StepSizeState,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.steps.base.estimates import LocalDraws, Minibatches, make_estimator
from pymc_geodesic.tuning.effective_size import RunningSize
from pymc_geodesic.tuning.metric import LARGEST_DENSE

__all__ = ["GMC"]

DEFAULT_STEPS = 10
JITTER = 0.2
_POWER_ITERATIONS = 10


def longest_step(variables: Sequence[ManifoldVariable]) -> float:
    """Step with which a free particle goes half around the smallest compact manifold."""
    dims = [v.manifold.dim for v in variables if not isinstance(v.manifold, Euclidean | HalfLine)]
    return math.pi / math.sqrt(max(dims)) if dims else math.inf


@dataclass_state
class GMCState(GeodesicStepState):
    """State of GMC.

    Attributes
    ----------
    adaptation : StepSizeState
        Dual averaging of the step size.
    acceptance_sum : float
        Sum of the acceptance rates after tuning.
    """

    adaptation: StepSizeState
    acceptance_sum: float
    metric_state: dict
    draw_sums: np.ndarray


class GMC(GeodesicStep):
    r"""Geodesic Monte Carlo: Hamiltonian Monte Carlo on a product of manifolds.

    Each draw takes a velocity v ~ N(0, I) in the tangent space, follows ``n_steps`` steps

    .. math::

        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x), \quad
        (x, v) \leftarrow \text{geodesic}(x, v, \varepsilon), \quad
        v \leftarrow v + \tfrac{\varepsilon}{2} \Lambda(x) \nabla \log \pi(x)

    and accepts with probability min(1, exp(−ΔH)), H = −log π(x) + v·v/2, so that the posterior
    is exact. On Euclidean variables this is Hamiltonian Monte Carlo, in coordinates that are found
    in the tuning phase.

    Parameters
    ----------
    vars : list of variables, optional
        All continuous free variables by default.
    step_size : float, optional
        ε, a time; tuned by dual averaging by default, then in posterior standard deviations.
    n_steps : int, optional
        L, leapfrog steps of a draw; by default as many as go a quarter of a period, of random
        length within 40 % of it, and 10 in the coordinates of the model.
    target_accept : float
        Acceptance probability that tuning aims at.
    metric : {"auto", "dense", "diag", None}
        Coordinates in which Euclidean variables move: those that whiten draws and gradients of the
        tuning phase with all correlations, or with scales alone; ``"auto"`` is dense to 500
        coordinates. A variable on a sphere or a Stiefel manifold has one length. None leaves the
        coordinates of the model, and so does whatever is set of the dynamics.
    batch_size, minibatch, total_size, minibatch_order
        Only with ``local=``; see `SGGMC`. A Metropolis correction needs all rows, which is the
        default, so that there is no choice but to leave all but ``minibatch`` out.
    local : list of variables, optional
        Variables with one point for each row of the ``minibatch=`` containers. Each draw first runs
        ``local_tune + local_draws`` GMC transitions on them, in which every row accepts by
        itself, and then moves the other variables on the log-density averaged over the last
        ``local_draws``. With ``local_draws=1`` this is blocked Gibbs sampling, which is exact
        (GMC-bGibbs of Liu et al. 2016); with more it is their GMC-apprMH, which is not.
    local_draws, local_tune, local_steps : int
        Transitions that are averaged over, transitions before them, leapfrog steps of each.
    manifolds : mapping, optional
        Manifold class by variable name, instead of the one its transform implies.
    model : pymc.Model, optional
    rng : RandomGenerator, optional
    compile_kwargs : dict, optional
        Passed to `pymc.compile`; ``{"mode": "CVM"}`` selects the C backend.

    Raises
    ------
    ValueError
        For an unknown, discrete or observed variable, a ``target_accept`` outside (0, 1) or a
        model with `pymc.Minibatch`.

    Notes
    -----
    Every draw uses ε(1 + 0.2 U(−1, 1)), or half of that spread where the length is random
    too, which breaks periodic orbits.

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
    _corrects = True
    _state_class = GMCState
    _compiled_attributes = ("estimator", "_adapted")
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "acceptance_rate": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        "lp": (np.float64, []),
        "energy": (np.float64, []),
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (
        ("step_size", ".2e", "Step size"),
        ("acceptance_rate", ".2f", "Acceptance"),
    )

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        step_size: float | None = None,
        n_steps: int | None = None,
        target_accept: float = 0.8,
        metric: Literal["auto", "dense", "diag"] | None = "auto",
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "random"] = "shuffled",
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
        super().__init__(
            vars,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
            manifolds=manifolds,
            local=local,
        )
        if local is None and (minibatch is not None or batch_size is not None):
            raise ValueError(
                f"{type(self).__name__} corrects with the log-density of all the data and takes "
                "minibatch= only with local=; use SGGMC or gSGNHT for minibatches"
            )
        check_positive("step_size", step_size)
        if callable(step_size):
            raise ValueError(f"{type(self).__name__} takes a number for step_size=, no schedule")
        check_count("n_steps", n_steps)
        check_fraction("target_accept", target_accept)
        self.step_size = step_size
        self.metric = checked_metric(metric)
        self._wanted_steps = n_steps
        self.n_steps = DEFAULT_STEPS if n_steps is None else int(n_steps)
        self.target_accept = target_accept
        self._local_draws = LocalDraws(local_draws, local_tune, local_steps)
        self._minibatches = Minibatches(
            batch_size, minibatch, total_size=total_size, order=minibatch_order
        )
        self._longest_step = longest_step(self.variables)
        self._kept = np.empty((0, self.product.size))
        self._acceptance = np.empty(1)
        self._energies = np.empty((2, 1))
        self._size = RunningSize(self.product)
        self._handed_on: DualAverageAdaptation | None = None
        self._compile()
        self._reset()

    def _compile(self) -> None:
        self.estimator = make_estimator(
            self.model,
            self.variables,
            self._minibatches,
            local=self.local,
            local_draws=self._local_draws,
            with_value=True,
            compile_kwargs=self.compile_kwargs,
        )
        source = self.estimator.source
        if isinstance(self.estimator, LocalGradientEstimator):
            total_size = self.estimator.total_size
            if total_size != source.batch_size or source.with_replacement:
                raise ValueError(
                    f"{type(self).__name__} corrects with the log-density of all rows, once each, "
                    f"but batch_size={source.batch_size}, total_size={total_size} and "
                    f"minibatch_order={self._minibatches.order!r} ask for others; leave them out, "
                    "or use SGGMC or gSGNHT"
                )
        if not self.local and not isinstance(source, AllRows):
            raise ValueError(
                f"the model sees a pm.Minibatch, but {type(self).__name__} corrects with the "
                "log-density of all the data; give the model all rows, or use SGGMC or gSGNHT"
            )

        self._adapted = self._make_adapted()

    def _make_adapted(self) -> AdaptedTrajectories | None:
        """Trajectories that find their own coordinates, unless the step size was given."""
        if self.metric is None or self.step_size is not None:
            return None
        if isinstance(self.estimator, LocalGradientEstimator):
            return None
        widths = [part.stop - part.start for part, _ in compact_parts(self.product)]
        d = self.product.size - sum(widths)
        return AdaptedTrajectories(
            AdaptedGradient(self.product.size, widths, self.estimator.field),
            self.product,
            target_accept=self.target_accept,
            dense=self.metric == "dense" or (self.metric == "auto" and d <= LARGEST_DENSE),
            n_steps=self._wanted_steps,
            is_fixed=not self.estimator.depends_on_others,
        )

    @property
    def metric_state(self) -> dict:
        """State of the coordinates and of all that is tuned with them."""
        return {} if self._adapted is None else self._adapted.state

    @metric_state.setter
    def metric_state(self, state: dict) -> None:
        if self._adapted is not None and state:
            self._adapted.state = state

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"metric_state": self.metric_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        metric_state = state.pop("metric_state")
        super().__setstate__(state)
        self.metric_state = metric_state

    @property
    def _adapts(self) -> bool:
        """Whether metric and trajectories are tuned together, now or in the chain before."""
        return self._adapted is not None and (self._n_tune > 0 or self._adapted.has_tuned)

    def _read(self, point: PointType) -> None:
        super()._read(point)
        if self._adapts:
            assert self._adapted is not None
            gradient = self._adapted.start(self.position)
            if not np.isfinite(gradient).all():
                raise self._fail_at_start(gradient)

    def _reset(self) -> None:
        if self._adapted is not None:
            self._adapted.reset(self._n_tune)
        first = 1.0 if self.step_size is None else self.step_size
        self.adaptation = DualAverageAdaptation(first, self.target_accept, 0.05, 0.75, 10)
        self.acceptance_sum = 0.0
        self.draw_sums = self._size.start()
        if self._n_tune == 0 and self._handed_on is not None:
            self.adaptation = copy.deepcopy(self._handed_on)

    def stop_tuning(self) -> None:
        """End the tuning phase, and keep what it chose for chains that have none."""
        super().stop_tuning()
        if self._n_tune and self.draw:
            self._handed_on = copy.deepcopy(self.adaptation)

    def _first_step_size(self) -> tuple[float, int]:
        """Choose a step that resolves the largest curvature at the starting point.

        Return it and the number of gradient evaluations.
        """
        direction = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, self.position, direction, self.stream)
        field = self.estimator.field
        curvature = np.nan
        for _ in range(_POWER_ITERATIONS):
            curvature = probe(
                field.address,
                field.context,
                0,
                self.product.blocks,
                self.product.dims,
                self.position,
                direction,
                1e-6,
                np.empty(0),
                np.empty(len(self.variables)),
                1,
            )
            field.raise_error()
        if not math.isfinite(curvature):
            raise self._fail(1e-6, self._failing_names(direction))
        return 0.1 / math.sqrt(max(abs(curvature), 1e-2)), 2 * _POWER_ITERATIONS

    def _check_start(self, point: PointType) -> None:
        """Refuse a start where the log-density is not finite, which no proposal would leave.

        Raises
        ------
        SamplingError
            It says what to look at.
        """
        output = np.empty(self.product.size + 1)
        field = self.estimator.field
        evaluate(field.address, self.position, 0, field.context, output)
        if not math.isfinite(output[-1]):
            self._check_terms(point, thoroughly=True)
            raise self._fail(self.step_size or 0.0, "log-density")

    def _move(self, point: PointType) -> dict[str, Any]:
        return self._move_adapted(point) if self._adapts else self._move_as_told(point)

    def _move_adapted(self, point: PointType) -> dict[str, Any]:
        adapted = self._adapted
        assert adapted is not None
        drawn = adapted.advance(self.stream, tune=self.tune)
        self.position = adapted.position
        if drawn.diverging and self.draw == 0:
            self._check_start(point)
        return {
            "step_size": drawn.step_size,
            "acceptance_rate": drawn.acceptance_rate,
            "diverging": drawn.diverging,
            "n_grad": drawn.n_grad,
            "lp": drawn.lp,
            "energy": drawn.energy,
            "warning": self._count(drawn.acceptance_rate),
        }

    def _count(self, acceptance_rate: float) -> SamplerWarning | None:
        """Take in a draw after tuning; return the warning that the last one deserves."""
        if self.tune:
            return None
        self.acceptance_sum += acceptance_rate
        draw, n_draws = self.draw - self._n_tune, max(self._n_draws, 1)
        self._size.take(self.draw_sums, self.position, draw, n_draws)
        if not self._is_last_draw:
            return None
        return self._acceptance_warning() or self._size_warning()

    def _move_as_told(self, point: PointType) -> dict[str, Any]:
        more_grad = self._sample_local(point) if self.local else 0
        unknown = self._n_tune > 0 or self._handed_on is None
        if self.step_size is None and self.draw == 0 and unknown:
            first, n_grad = self._first_step_size()
            self.adaptation = DualAverageAdaptation(first, self.target_accept, 0.05, 0.75, 10)
            more_grad += n_grad
        if self.step_size is None:
            step_size = min(float(self.adaptation.current(self.tune)), self._longest_step)
        else:
            step_size = self.step_size
        field = self.estimator.field
        divergences, n_grad = gmc(
            field.address,
            field.context,
            0,
            self.product.blocks,
            self.product.scales,
            1,
            self.position,
            1,
            self._kept,
            step_size,
            self.n_steps,
            JITTER,
            self.stream,
            self._acceptance,
            self._energies,
            np.full(self.product.size + 1, math.nan),
        )
        field.raise_error()
        if divergences and self.draw == 0:
            self._check_start(point)
        acceptance_rate = float(self._acceptance[0])
        if self.step_size is None and self.tune:
            self.adaptation.update(acceptance_rate, True)
        return {
            "step_size": step_size,
            "acceptance_rate": acceptance_rate,
            "diverging": divergences > 0,
            "n_grad": n_grad + more_grad,
            "lp": float(self._energies[0, 0]),
            "energy": float(self._energies[1, 0]),
            "warning": self._count(acceptance_rate),
        }

    def _size_warning(self) -> SamplerWarning | None:
        complaint = self._size.complaint(self.draw_sums, self._n_draws)
        return None if complaint is None else self._warn(f"{type(self).__name__}: {complaint}")

    def _acceptance_warning(self) -> SamplerWarning | None:
        mean = self.acceptance_sum / self._n_draws
        largest_error = 0.5 / math.sqrt(self._n_draws)
        if mean + 2.0 * largest_error >= 0.5 * self.target_accept:
            return None
        return self._warn(
            f"{type(self).__name__} accepted {mean:.2f} of its proposals where "
            f"{self.target_accept:.2f} were wanted. Give it more tuning draws or a smaller "
            "step_size."
        )
