"""Langevin dynamics without a momentum: the step and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import check_choice, check_positive, plain_number
from pymc_geodesic.integrators import Scratch
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.adapted_draw import ADAPTATION_STATS
from pymc_geodesic.steps.base.adapting import AdaptingStep
from pymc_geodesic.steps.base.adaptor import GeodesicStepState
from pymc_geodesic.samplers.dynamics import Overdamped
from pymc_geodesic.steps.base.pymc_parts import (
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.steps.base.told_diffusion import ToldDiffusion
from pymc_geodesic.tuning.diffusion import DiffusionTuner
from pymc_geodesic.tuning.effective_size import RunningSize

__all__ = ["DiffusionState", "DiffusionStep"]

_NOISE_CHUNK = 512


@dataclass_state
class DiffusionState(GeodesicStepState):
    """State of `SGLD`.

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
    looks_state : dict
        What was seen of the draws where nothing is adapted.
    """

    squares: np.ndarray
    tuned_step_size: float
    tuner_state: dict
    direction: np.ndarray
    last_gradient: np.ndarray
    last_difference: np.ndarray
    draw_sums: np.ndarray
    adaptation: dict
    looks_state: dict


class DiffusionStep(AdaptingStep, ToldDiffusion):
    """Base of `SGLD`; see there for the parameters."""

    _everywhere = Euclidean
    _state_class = DiffusionState
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        **ADAPTATION_STATS,
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (("phase", "6s", "Phase"), ("step_size", ".2e", "Step size"))
    _compiled_attributes = ("estimator", "_adapted")

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None,
        *,
        step_size: float | Schedule | None,
        preconditioner: Literal["adagrad"] | None,
        n_steps: int | None,
        metric: Literal["auto", "dense", "diag"] | ArrayLike | None,
        control_variates: Literal["auto", 1, 2] | bool,
        minibatches: MinibatchArguments,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        check_positive("step_size", step_size)
        check_choice("preconditioner", preconditioner, (None, "adagrad"))
        self._set_adaptation(n_steps=n_steps, metric=metric, control_variates=control_variates)
        super().__init__(
            vars, minibatches=minibatches, model=model, rng=rng, compile_kwargs=compile_kwargs
        )
        self.step_size = plain_number(step_size)
        self.preconditioner = preconditioner
        self._scratch = Scratch(
            np.empty(self.product.size + 1), np.empty(min(_NOISE_CHUNK, self.product.size))
        )
        self._compile()
        self._tuner = DiffusionTuner(epoch=self.estimator.source.epoch)
        self._size = RunningSize(self.product)
        self._looks = self._make_looks()
        self._reset()

    def _compile(self) -> None:
        self.estimator = self._make_estimator(
            noise=RowNoise.WHITE if self._leaves_all_to_tuning else RowNoise.ANY,
            with_value=self._searches_on_all_rows,
        )
        self._adapted = self._make_adapted()

    @property
    def _leaves_all_to_tuning(self) -> bool:
        return self.metric is not None and self.step_size is None and self.preconditioner is None

    def _make_dynamics(self) -> Overdamped:
        return Overdamped()

    def _reset(self) -> None:
        self._reset_adapted()
        self._reset_looks()
        self._tuner.reset(self._n_tune)
        self.squares = np.zeros(self.product.size if self.preconditioner else 0)
        self.tuned_step_size = 0.0
        self.direction = np.empty(0)
        self.last_gradient = np.empty(0)
        self.last_difference = np.empty(0)
        self.draw_sums = self._size.start()
        self._take_over()

    def _read(self, point: PointType) -> None:
        super()._read(point)
        self.last_gradient = np.empty(0)
        self._start_adapted()

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
            funnel = self._funnel_warning(self._adapted.funnel())
            warning = funnel or self._stationarity_warning() or warning
        return {
            "step_size": drawn.step_size,
            "diverging": drawn.diverging,
            "n_grad": drawn.n_grad,
            **drawn.adaptation_stats,
            "warning": warning,
        }

    def _size_warning(self) -> SamplerWarning | None:
        """Count this draw, and complain at the last one if they are too few."""
        draw, n_draws = self.draw - self._n_tune, max(self._n_draws, 1)
        self._size.take(self.draw_sums, self.position, draw, n_draws)
        if not self._is_last_draw:
            return None
        complaint = self._size.complaint(self.draw_sums, n_draws)
        if complaint is None and not self._adapts:
            return self._warn_of(self._looks_complaint(), "stationarity")
        return self._warn_of(complaint, "few-effective-draws")
