"""Steps with a Metropolis correction: trajectories as tuning finds them, or as users set them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.arguments import (
    check_fraction,
    check_positive,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import ManifoldVariable, angles_of
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record, gmc
from pymc_geodesic.manifolds import Product
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.streams import uniform
from pymc_geodesic.steps.base.adapted_trajectories import (
    AdaptedTrajectories,
    compact_parts,
    flat_names,
)
from pymc_geodesic.steps.base.adaptor import GeodesicStepState
from pymc_geodesic.steps.base.handing_on import HandingOnStep
from pymc_geodesic.steps.base.options import (
    LocalOptions,
    ManifoldOptions,
    MetricOptions,
    RowOptions,
    StepOptions,
)
from pymc_geodesic.steps.base.pymc_parts import (
    DualAverageAdaptation,
    PointType,
    SamplerWarning,
    StepSizeState,
    dataclass_state,
)
from pymc_geodesic.steps.base.signature import after, by_rule
from pymc_geodesic.tuning.effective_size import RunningSize
from pymc_geodesic.tuning.factor_rule import factor_rule

__all__ = ["GMCOptions", "MetropolisOptions", "MetropolisState", "MetropolisStep"]

JITTER = 0.2


def longest_step(variables: Sequence[ManifoldVariable]) -> float:
    """Step with which a free particle goes half around the smallest compact manifold."""
    dims = [v.manifold.dim for v in variables if v.manifold.is_compact]
    return math.pi / math.sqrt(max(dims)) if dims else math.inf


def square_frames(
    variables: Sequence[ManifoldVariable], product: Product
) -> list[tuple[slice, int]]:
    """Return where each orthogonal n×n matrix stands among the coordinates, and its n."""
    frames = []
    for variable in variables:
        manifold = variable.manifold
        if not manifold.is_connected:
            start = product.slices[variable.name].start
            for row in range(variable.rows):
                first = start + row * manifold.size
                frames.append((slice(first, first + manifold.size), manifold.shape[0]))
    return frames


@dataclass(frozen=True, kw_only=True)
class MetropolisOptions(StepOptions, MetricOptions):
    """Arguments of `SubgradientHMC`, and some of those of `GMC`.

    Parameters
    ----------
    step_size : float, optional
        ε, a time; tuned by dual averaging by default, then in posterior standard deviations.
    n_steps : int, optional
        L, leapfrog steps of a draw; by default as many as go a quarter of a period, of random
        length within 40 % of it, and 10 in the coordinates of the model.
    target_accept : float
        Acceptance probability that tuning aims at.
    """

    step_size: float | None = field(default=None, metadata=after("vars") | by_rule(check_positive))
    target_accept: float = field(default=0.8, metadata=after("n_steps") | by_rule(check_fraction))


@dataclass(frozen=True, kw_only=True)
class GMCOptions(MetropolisOptions, RowOptions, LocalOptions, ManifoldOptions):
    """Arguments of `GMC`.

    Parameters
    ----------
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
    """

    local_draws: int = 1


@dataclass_state
class MetropolisState(GeodesicStepState):
    """State of a step with a Metropolis correction.

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


class MetropolisStep(HandingOnStep):
    """Base of `GMC` and `SubgradientHMC`; see there for the parameters."""

    _corrects = True
    _state_class = MetropolisState
    _compiled_attributes = ("estimator", "_adapted")
    _tuned_attributes = ("adaptation",)
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

    options: GMCOptions

    def _build(self) -> None:
        options = self.options
        if options.local is None and (
            options.minibatch is not None or options.batch_size is not None
        ):
            message = (
                f"{type(self).__name__} corrects with the log-density of all the data and takes "
                "minibatch= only with local=; use SGGMC or gSGNHT for minibatches"
            )
            raise ValueError(see(message, "exact"))
        if callable(options.step_size):
            raise ValueError(f"{type(self).__name__} takes a number for step_size=, no schedule")
        super()._build()
        self.step_size = plain_number(options.step_size)
        self.metric = checked_metric_or_covariance(options.metric)
        self._wanted_steps = options.wanted_steps
        self.n_steps = options.told_steps
        self.target_accept = options.target_accept
        self._longest_step = longest_step(self.variables)
        none_kept = np.empty((0, self.product.size))
        self._record = Record(1, none_kept, np.empty(1), np.empty((2, 1)))
        self._size = RunningSize(self.product, angles_of(self.variables))
        self._square_frames = [] if self.local else square_frames(self.variables, self.product)
        self._compile()
        self._reset()

    def _compile(self) -> None:
        self.estimator = self._make_estimator(with_value=True)
        if not self.estimator.is_exact:
            raise ValueError(self._what_is_not_exact())
        self._adapted = self._make_adapted()

    def _what_is_not_exact(self) -> str:
        name = type(self).__name__
        if not self.local:
            return see(
                f"the model sees a pm.Minibatch, but {name} corrects with the log-density of all "
                "the data; give the model all rows, or use SGGMC or gSGNHT",
                "exact",
            )
        return see(
            f"{name} corrects with the log-density of all rows, once each, but "
            f"batch_size={self.estimator.source.batch_size}, "
            f"total_size={self.estimator.total_size} and "
            f"minibatch_order={self.options.minibatch_order!r} ask for others; leave them "
            "out, or use SGGMC or gSGNHT",
            "exact",
        )

    def _make_adapted(self) -> AdaptedTrajectories | None:
        """Trajectories that find their own coordinates, unless the step size was given."""
        if self.metric is None or self.step_size is not None or self.local:
            return None
        widths = [part.stop - part.start for part, _ in compact_parts(self.product)]
        return AdaptedTrajectories(
            AdaptedGradient(self.product.size, widths, self.estimator.field),
            self.product,
            target_accept=self.target_accept,
            rule=factor_rule(self.metric, flat_names(self.product), angles_of(self.variables)),
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

    @property
    def _tunes_itself(self) -> bool:
        return self.step_size is None

    @property
    def _has_tuned(self) -> bool:
        return self.draw > 0

    @abstractmethod
    def _first_step_size(self) -> tuple[float, int]:
        """Choose the step that dual averaging begins at.

        Return it and the number of gradient evaluations.
        """

    def _check_start(self, point: PointType) -> None:
        """Refuse a start where the log-density is not finite, which no proposal would leave.

        Raises
        ------
        SamplingError
            It says what to look at.
        """
        if not math.isfinite(self._log_density_at(self.position)):
            self._check_terms(point, thoroughly=True)
            raise self._fail(self.step_size or 0.0, "log-density")

    @property
    def _reaches_both_determinants(self) -> bool:
        return not self.local

    def _move(self, point: PointType) -> dict[str, Any]:
        n_grad = self._flip_columns()
        stats = self._move_adapted(point) if self._adapts else self._move_as_told(point)
        stats["n_grad"] += n_grad
        return stats

    def _flip_columns(self) -> int:
        """Propose the other sign of a random column of every square frame, in place.

        Orthogonal matrices of determinant +1 and −1 are two components, and no trajectory leads
        from one to the other. The proposal is its own inverse and preserves the surface measure,
        so that it is accepted with probability min(1, π(proposal) / π(frame)).

        Returns
        -------
        int
            Gradient evaluations.
        """
        if not self._square_frames:
            return 0
        log_density = self._log_density_at(self.position)
        accepted = False
        for part, n in self._square_frames:
            proposal = self.position.copy()
            proposal[part].reshape(n, n)[:, int(n * uniform(self.stream))] *= -1.0
            proposed = self._log_density_at(proposal)
            if math.log(uniform(self.stream)) < proposed - log_density:
                self.position, log_density, accepted = proposal, proposed, True
        if accepted and self._adapts:
            assert self._adapted is not None
            self._adapted.start(self.position)
        return 1 + len(self._square_frames)

    def _log_density_at(self, position: np.ndarray) -> float:
        output = np.empty(self.product.size + 1)
        field = self.estimator.field
        evaluate(field.address, position, 0, field.context, output)
        return float(output[-1])

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
        funnel = self._adapted.funnel() if self._adapts and self._adapted is not None else None
        return self._acceptance_warning() or self._funnel_warning(funnel) or self._size_warning()

    def _move_as_told(self, point: PointType) -> dict[str, Any]:
        arguments, more_grad = self.estimator.prepare(self.position, 1, self.stream, tune=self.tune)
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
        divergences, n_grad = gmc.call(
            field.callback,
            int(arguments[0]),
            self.product.space,
            Chains(1, self.position, np.full(self.product.size + 1, math.nan)),
            Leapfrog(step_size, self.n_steps, JITTER),
            self.stream,
            self._record,
        )
        field.raise_error()
        if divergences and self.draw == 0:
            self._check_start(point)
        acceptance_rate = float(self._record.acceptance[0])
        if self.step_size is None and self.tune:
            self.adaptation.update(acceptance_rate, True)
        return {
            "step_size": step_size,
            "acceptance_rate": acceptance_rate,
            "diverging": divergences > 0,
            "n_grad": n_grad + more_grad,
            "lp": float(self._record.energies[0, 0]),
            "energy": float(self._record.energies[1, 0]),
            "warning": self._count(acceptance_rate),
        }

    def _size_warning(self) -> SamplerWarning | None:
        complaint = self._size.complaint(self.draw_sums, self._n_draws)
        return self._warn_of(complaint, "few-effective-draws")

    def _acceptance_warning(self) -> SamplerWarning | None:
        mean = self.acceptance_sum / self._n_draws
        largest_error = 0.5 / math.sqrt(self._n_draws)
        if mean + 2.0 * largest_error >= 0.5 * self.target_accept:
            return None
        return self._warn(
            f"{type(self).__name__} accepted {mean:.2f} of its proposals where "
            f"{self.target_accept:.2f} were wanted. Give it more tuning draws or a smaller "
            "step_size.",
            "acceptance",
        )
