"""Steps with a Metropolis correction: trajectories as tuning finds them, or as users set them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import (
    check_count,
    check_fraction,
    check_integers,
    check_positive,
    checked_metric_or_covariance,
    plain_number,
)
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record, gmc
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.samplers.hmc import (
    AdaptedTrajectories,
    compact_parts,
    flat_names,
)
from pymc_geodesic.steps.base.adaptor import DEFAULT_STEPS, GeodesicStepState
from pymc_geodesic.steps.base.handing_on import HandingOnStep
from pymc_geodesic.steps.base.pymc_parts import (
    DualAverageAdaptation,
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    StepSizeState,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.tuning.effective_size import RunningSize
from pymc_geodesic.tuning.factor_rule import factor_rule

__all__ = ["MetropolisState", "MetropolisStep"]

JITTER = 0.2


def longest_step(variables: Sequence[ManifoldVariable]) -> float:
    """Step with which a free particle goes half around the smallest compact manifold."""
    dims = [v.manifold.dim for v in variables if v.manifold.is_compact]
    return math.pi / math.sqrt(max(dims)) if dims else math.inf


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

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None,
        *,
        step_size: float | None,
        n_steps: int | None,
        target_accept: float,
        metric: Literal["auto", "dense", "diag"] | ArrayLike | None,
        minibatches: MinibatchArguments,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local_draws: int = 1,
        local_tune: int = 0,
        local_steps: int = 1,
        manifolds: Mapping[str, type[Manifold]] | None = None,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        check_positive("step_size", step_size)
        check_count("n_steps", n_steps)
        check_fraction("target_accept", target_accept)
        check_integers(local_steps=(local_steps, 1))
        self.metric = checked_metric_or_covariance(metric)
        if local is None and (
            minibatches.minibatch is not None or minibatches.batch_size is not None
        ):
            message = (
                f"{type(self).__name__} corrects with the log-density of all the data and takes "
                "minibatch= only with local=; use SGGMC or gSGNHT for minibatches"
            )
            raise ValueError(see(message, "exact"))
        if callable(step_size):
            raise ValueError(f"{type(self).__name__} takes a number for step_size=, no schedule")
        super().__init__(
            vars,
            minibatches=minibatches,
            local=local,
            local_draws=local_draws,
            local_tune=local_tune,
            local_steps=local_steps,
            manifolds=manifolds,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.step_size = plain_number(step_size)
        self._wanted_steps = None if n_steps is None else int(n_steps)
        self.n_steps = self._wanted_steps or DEFAULT_STEPS
        self.target_accept = target_accept
        self._longest_step = longest_step(self.variables)
        none_kept = np.empty((0, self.product.size))
        self._record = Record(1, none_kept, np.empty(1), np.empty((2, 1)))
        self._size = RunningSize(self.product)
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
            f"minibatch_order={self.minibatch_arguments.minibatch_order!r} ask for others; "
            "leave them out, or use SGGMC or gSGNHT",
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
            rule=factor_rule(self.metric, flat_names(self.product)),
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
        self._take_over()

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
