"""Langevin dynamics without a momentum: the step, its arguments and its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pymc_geodesic.arguments import plain_number
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.integrators import Scratch
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.steps.base.adapted_draw import ADAPTATION_STATS
from pymc_geodesic.steps.base.adapting import AdaptingStep
from pymc_geodesic.steps.base.adaptor import GeodesicStepState
from pymc_geodesic.steps.base.dynamics import Overdamped
from pymc_geodesic.steps.base.options import (
    AdaptationOptions,
    MinibatchOptions,
    StepOptions,
    StepSizeOptions,
)
from pymc_geodesic.steps.base.pymc_parts import (
    PointType,
    SamplerWarning,
    dataclass_state,
)
from pymc_geodesic.steps.base.signature import after
from pymc_geodesic.steps.base.told_diffusion import ToldDiffusion
from pymc_geodesic.tuning.diffusion import DiffusionTuner
from pymc_geodesic.tuning.effective_size import RunningSize

__all__ = ["DiffusionOptions", "DiffusionState", "DiffusionStep"]

_NOISE_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class DiffusionOptions(StepOptions, StepSizeOptions, AdaptationOptions, MinibatchOptions):
    """Arguments of `SGLD` and `SSGLD`.

    Parameters
    ----------
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
    metric : {"auto", "dense", "diag", None} or array
        Coordinates of the default dynamics: with all correlations, with scales only, or whichever
        of them the dimension allows; or a covariance of the posterior, see `SGGMC`. None moves all
        coordinates alike.
    control_variates : {"auto", 1, 2, False}
        Whether the tuned dynamics estimate differences to the gradient of all rows at one place,
        which lowers the noise to what the posterior is wide, to first or second order; see
        `SGGMC`. ``"auto"`` goes by what pays.
    batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        Minibatches; see `SGGMC`. All rows by default. Gradient noise that is taken off must be
        independent from step to step, so that ``"shuffled"`` means ``"independent"`` unless
        the first equation is run as it stands.
    """

    preconditioner: Literal["adagrad"] | None = field(default=None, metadata=after("step_size"))

    def __post_init__(self) -> None:
        """Check the preconditioner."""
        super().__post_init__()
        if self.preconditioner not in (None, "adagrad"):
            raise ValueError(
                f"preconditioner={self.preconditioner!r} is unknown; choose None or 'adagrad'"
            )


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
    adapted_state : dict
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
    adapted_state: dict
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

    options: DiffusionOptions

    def _build(self) -> None:
        super()._build()
        self.step_size = plain_number(self.options.step_size)
        self.preconditioner = self.options.preconditioner
        self._scratch = Scratch(
            np.empty(self.product.size + 1), np.empty(min(_NOISE_CHUNK, self.product.size))
        )
        self._compile()
        self._tuner = DiffusionTuner(epoch=self.estimator.source.epoch)
        self._size = RunningSize(self.product, angles_of(self.variables))
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
            funnel = self._funnel_warning(self._adapted.funnel(self._hierarchy))
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
        complaint = self._size.complaint(
            self.draw_sums, n_draws, minibatches=self._larger_minibatches
        )
        if complaint is None and not self._adapts:
            return self._warn_of(self._looks_complaint(), "stationarity")
        return self._warn_of(complaint, "few-effective-draws")
