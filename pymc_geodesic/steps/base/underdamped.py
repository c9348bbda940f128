"""Step methods with stochastic gradients, a momentum and no Metropolis correction."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from pymc_geodesic.arguments import plain_number
from pymc_geodesic.densities.variables import angles_of
from pymc_geodesic.integrators import EXACT, Scratch, refresh_velocity
from pymc_geodesic.kernels import gmc, probe, probe_in_turn
from pymc_geodesic.manifolds.blocks import project
from pymc_geodesic.minibatches.orders import RowNoise
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.steps.base.adapted_draw import ADAPTATION_STATS
from pymc_geodesic.steps.base.adapting import AdaptingStep
from pymc_geodesic.steps.base.adaptor import GeodesicStepState
from pymc_geodesic.steps.base.dynamics import Underdamped
from pymc_geodesic.steps.base.known_noise import noise_by_coordinate
from pymc_geodesic.steps.base.langevin_options import SPLITTINGS, LangevinOptions
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.steps.base.pymc_parts import (
    PointType,
    SamplerWarning,
    dataclass_state,
)
from pymc_geodesic.steps.base.told_langevin import ToldLangevin
from pymc_geodesic.tuning.cooling import FIRST_EXCESS
from pymc_geodesic.tuning.effective_size import RunningSize
from pymc_geodesic.tuning.mean_temperature import temperature_complaint, temperature_error
from pymc_geodesic.tuning.temperature import FIRST_EXCESS_WITH_LOCAL, TemperatureTuner

__all__ = ["LangevinState", "LangevinStep"]

KNOWN_NOISE = 0.5
"""Largest part of the noise of the dynamics that gradient noise of known variance may stand for."""

REPORTED_EXCESS = 0.05
"""Excess of the variance by minibatch noise from which steps with local variables warn."""

_NOISE_CHUNK = 512


@dataclass_state
class LangevinState(GeodesicStepState):
    """State of a step with a momentum.

    Attributes
    ----------
    velocity : ndarray
        Velocity in the tangent space; empty before the first draw.
    tuned_step_size : float
        Step size chosen by tuning.
    tuned_friction : ndarray
        Friction of every variable chosen by tuning.
    tuner_state : dict
        What tuning measured.
    """

    velocity: np.ndarray
    tuned_step_size: float
    tuned_friction: np.ndarray
    tuner_state: dict
    temperature_sum: float
    temperature_count: int
    direction: np.ndarray
    last_gradient: np.ndarray
    draw_sums: np.ndarray
    adapted_state: dict
    looks_state: dict


class LangevinStep(AdaptingStep, ToldLangevin):
    """Base of `SGGMC` and `gSGNHT`; see there for the parameters."""

    _state_class = LangevinState
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "temperature": (np.float64, []),
        "friction": (np.float64, []),
        "noise_clips": (np.int64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        **ADAPTATION_STATS,
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (
        ("phase", "6s", "Phase"),
        ("step_size", ".2e", "Step size"),
        ("temperature", ".3f", "Temperature"),
    )
    _compiled_attributes = ("estimator", "_noise_field", "_source", "_adapted")
    _tuned_attributes: tuple[str, ...] = (*ToldLangevin._tuned_attributes, "tuned_friction")
    options: LangevinOptions
    last_excess: float
    _kernels: ClassVar[tuple[Any, ...]]
    """What runs where nothing is adapted."""
    _friction_name = "friction"
    _too_hot = (
        "a smaller step_size, more friction, larger minibatches or a known "
        'gradient_noise ("fisher")'
    )
    _too_cold = "a smaller step_size or less friction"

    def _build(self) -> None:
        super()._build()
        options = self.options
        self.step_size = plain_number(options.step_size)
        self.learning_rate = plain_number(options.learning_rate)
        self.friction = plain_number(options.friction)
        self.momentum_decay = plain_number(options.momentum_decay)
        self.gradient_noise = options.gradient_noise
        self.tune_temperature = options.tune_temperature
        self._splitting = SPLITTINGS[options.splitting]
        self._tuner = self._make_tuner()
        self._ones = np.ones(len(self.variables))
        self._scratch = Scratch(
            np.empty(self.product.size + 1), np.empty(min(_NOISE_CHUNK, self.product.size))
        )
        self._size = RunningSize(self.product, angles_of(self.variables))
        self._looks = self._make_looks()
        self._compile()
        self._reset()

    def _make_tuner(self) -> TemperatureTuner:
        return TemperatureTuner(
            len(self.variables),
            repeats=self.n_steps if self.local else 1,
            first_excess=self._first_excess(
                FIRST_EXCESS_WITH_LOCAL if self.local else FIRST_EXCESS
            ),
            last_excess=self.last_excess if self.gradient_noise is None else KNOWN_NOISE,
            least_curvature=max(
                (
                    0.25 * variable.manifold.dim
                    for variable in self.variables
                    if variable.manifold.is_compact
                ),
                default=0.0,
            ),
        )

    def _first_excess(self, usual: float) -> float:
        return usual if self.tune_temperature is None else self.tune_temperature - 1.0

    @property
    def _leaves_all_to_tuning(self) -> bool:
        """Whether nothing was set that the adapted dynamics would choose."""
        given = (
            self.step_size,
            self.learning_rate,
            self.friction,
            self.momentum_decay,
            self.gradient_noise,
            self.tune_temperature,
        )
        return (
            self.metric is not None
            and not self.local
            and self._splitting == EXACT
            and all(value is None for value in given)
        )

    def _make_dynamics(self) -> Underdamped:
        self._dynamics = Underdamped(
            has_thermostat=self._has_thermostat, largest_noise=self._largest_noise
        )
        return self._dynamics

    _has_thermostat = False
    _largest_noise = math.inf

    def _compile(self) -> None:
        self.estimator = self._make_estimator(
            noise=self._row_noise, with_value=self._searches_on_all_rows
        )
        self._adapted = self._make_adapted()
        if self._adapted is None:
            prepare(*self._kernels, all_finite, evaluate, probe, probe_in_turn, project)
            prepare(refresh_velocity, *((gmc, split_stream) if self.local else ()))
        by_rows = isinstance(self.gradient_noise, str)
        self._noise_field = self.estimator.compile_noise() if by_rows else None

    @property
    def _row_noise(self) -> RowNoise:
        """What the step counts on of the noise of minibatches."""
        if self.local or not self._counts_on_white_noise:
            return RowNoise.ANY
        is_taken_off = self.gradient_noise is not None or self._measures_plain_noise
        return RowNoise.TAKEN_OFF if is_taken_off else RowNoise.WHITE

    @property
    def _counts_on_white_noise(self) -> bool:
        """Whether gradient noise must be independent from one inner step to the next."""
        return self.gradient_noise is not None or self._leaves_all_to_tuning

    @property
    def _measures_plain_noise(self) -> bool:
        """Whether tuning takes all the noise of minibatches off the noise that is injected.

        Control variates leave little of it, but not where other steps move what they refer to.
        """
        is_alone = len(self.model.free_RVs) == len(self.variables) + len(self.local)
        return self._leaves_all_to_tuning and not (is_alone and self.control_variates)

    def _reset(self) -> None:
        self._reset_adapted()
        self._reset_looks()
        self._tuner.reset(self._n_tune)
        self.velocity = np.empty(0)
        self.tuned_step_size = 0.0
        self.tuned_friction = np.zeros(len(self.variables))
        self.temperature_sum, self.temperature_count = 0.0, 0
        self.direction = np.empty(0)
        self.last_gradient = np.empty(0)
        self.draw_sums = self._size.start()
        self._noise_variance = noise_by_coordinate(self.gradient_noise, self.product.size)

    def _read(self, point: PointType) -> None:
        super()._read(point)
        self.velocity = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, self.position, self.velocity, self.stream)
        self.last_gradient = np.empty(0)
        self._start_adapted()

    def _move(self, point: PointType) -> dict[str, Any]:
        return self._move_adapted() if self._adapts else self._move_as_told()

    def _move_adapted(self) -> dict[str, Any]:
        adapted = self._adapted
        assert adapted is not None
        drawn = adapted.advance(self.stream, tune=self.tune)
        self.position = adapted.position
        if drawn.diverging and not self.tune:
            raise self._fail(drawn.step_size, self._failing_names(self.position))
        friction = np.full(len(self.variables), drawn.friction)
        return {
            "step_size": drawn.step_size,
            "temperature": drawn.temperature,
            "friction": drawn.friction,
            "noise_clips": drawn.noise_clips,
            "diverging": drawn.diverging,
            "n_grad": drawn.n_grad,
            **drawn.adaptation_stats,
            "warning": self._warning_of(drawn.temperature, drawn.step_size, friction),
        }

    def _warning_of(
        self, temperature: float, step_size: float, friction: np.ndarray
    ) -> SamplerWarning | None:
        """Take in a draw after tuning; return the warning that the last one deserves."""
        if self.tune:
            return None
        self.temperature_sum += temperature
        self.temperature_count += 1
        self._size.take(
            self.draw_sums, self.position, self.draw - self._n_tune, max(self._n_draws, 1)
        )
        if not self._is_last_draw:
            return None
        funnel = stationarity = None
        if self._adapts:
            assert self._adapted is not None
            funnel = self._funnel_warning(self._adapted.funnel(self._hierarchy))
            stationarity = self._stationarity_warning()
        temperature_warning = self._temperature_warning(step_size, friction)
        first = funnel or temperature_warning or stationarity or self._size_warning()
        first = first or self._repeated_noise_warning(step_size, friction)
        if first is None and not self._adapts:
            return self._warn_of(self._looks_complaint(), "stationarity")
        return first

    def _size_warning(self) -> SamplerWarning | None:
        complaint = self._size.complaint(
            self.draw_sums, self._n_draws, minibatches=self._larger_minibatches
        )
        return self._warn_of(complaint, "few-effective-draws")

    def _repeated_noise_warning(
        self, step_size: float, friction: np.ndarray
    ) -> SamplerWarning | None:
        """Warn where one minibatch in all inner steps makes draws wider than the posterior."""
        if not self.local or self.estimator.is_exact or not self._tuner.has_measured:
            return None
        excess = self._tuner.position_excess(step_size, friction)
        if excess < REPORTED_EXCESS:
            return None
        factor = math.sqrt(0.02 / excess)
        percent = 100.0 * (math.sqrt(1.0 + excess) - 1.0)
        return self._warn(
            f"{type(self).__name__}: sds may be up to {percent:.0f} % too large, which the kinetic "
            f"temperature does not show: with local= all {self.n_steps} inner steps of a draw "
            "see the same minibatch. Use larger minibatches, or "
            f"step_size={factor * step_size:.2g} and friction={friction.max() / factor:.2g}, which "
            "mix more slowly and keep the error below about 1 %.",
            "temperature",
        )

    def _temperature_warning(self, step_size: float, friction: np.ndarray) -> SamplerWarning | None:
        mean = self.temperature_sum / self.temperature_count
        error = temperature_error(
            self.product.dims, step_size * friction, self.n_steps * self.temperature_count
        )
        complaint = temperature_complaint(
            mean,
            error,
            dynamics=f"step size {step_size:.3g}, {self._friction_name} {friction.max():.3g}",
            too_hot=self._too_hot.replace("larger minibatches", self._larger_minibatches),
            too_cold=self._too_cold,
        )
        if complaint is None:
            return None
        names = ", ".join(variable.name for variable in self.variables)
        return self._warn(f"{type(self).__name__}[{names}] {complaint}", "temperature")
