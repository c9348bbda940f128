"""Step methods with stochastic gradients, a momentum and no Metropolis correction."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import (
    check_count,
    check_positive,
    checked_control_variates,
    checked_metric,
    step_size_at,
)
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.gradients.local_gradient import LocalGradientEstimator
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.integrators import EXACT, PAPER, refresh_velocity
from pymc_geodesic.kernels import gmc, probe, probe_in_turn
from pymc_geodesic.manifolds import Euclidean, HalfLine, Manifold
from pymc_geodesic.manifolds.product import project
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
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
from pymc_geodesic.steps.base.coverage import drawn_row_numbers
from pymc_geodesic.steps.base.dynamics import Underdamped
from pymc_geodesic.steps.base.estimates import LocalDraws, Minibatches, make_estimator
from pymc_geodesic.steps.base.measuring import MeasuringStep
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.tuning.cooling import FIRST_EXCESS, FIRST_EXCESS_WITH_LOCAL, TemperatureTuner
from pymc_geodesic.tuning.effective_size import RunningSize

__all__ = ["LangevinState", "LangevinStep"]

TEMPERATURE_TOLERANCE = 0.1
TEMPERATURE_ERRORS = 3.0
"""Standard errors by which a mean temperature must leave the tolerance to be reported."""
FEW_BLOCKS = 1000
"""Blocks of shuffled rows below which rows are drawn at random where their noise must be known."""
KNOWN_NOISE = 0.5
"""Largest part of the noise of the dynamics that gradient noise of known variance may stand for."""

DEFAULT_STEPS = 10
_SPLITTINGS = {"exact": EXACT, "paper": PAPER}
_NOISE_CHUNK = 512
RUNAWAY = 1e9
"""Kinetic temperature in tuning from which a draw counts as diverging.

Steps that are too long for the curvature grow without bound, but where the density has tails like a
normal law they take a long time to overflow, and what is finite so far away is no good state.
"""


def temperature_error(dims: np.ndarray, decay: np.ndarray, n_steps: int) -> float:
    """Return the standard error of a mean kinetic temperature whose expectation is 1.

    A component v² has variance 2 and forgets e^(−2Cε) of itself in a step.

    Parameters
    ----------
    dims : ndarray, shape (n_variables,)
        Dimension of every variable; the temperature is the mean over the variables.
    decay : ndarray, shape (n_variables,)
        Cε, the friction of one step.
    n_steps : int
        Inner steps that the mean is over.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.steps.base.underdamped import temperature_error
    >>> temperature_error(np.array([50]), np.array([0.1]), 100_000)
    0.002
    """
    dependence = np.minimum(1.0 / (np.tanh(decay) * n_steps), 1.0)
    return float(np.sqrt(np.sum(2.0 / dims * dependence)) / len(dims))


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
    adaptation: dict


class LangevinStep(AdaptingStep, MeasuringStep):
    """Base of `SGGMC` and `gSGNHT`; see there for the parameters."""

    _state_class = LangevinState
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "temperature": (np.float64, []),
        "friction": (np.float64, []),
        "noise_clips": (np.int64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        "phase": (np.dtype("<U6"), []),
        "configurational_temperature": (np.float64, []),
        "whitened_gradient": (np.float64, []),
        "noise_ratio": (np.float64, []),
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (
        ("phase", "6s", "Phase"),
        ("step_size", ".2e", "Step size"),
        ("temperature", ".3f", "Temperature"),
    )
    _compiled_attributes = ("estimator", "_noise_field", "_source", "_adapted")
    last_excess: float
    _kernels: ClassVar[tuple[Any, ...]]
    """What runs where nothing is adapted."""
    _friction_name = "friction"
    _too_hot = (
        "a smaller step_size, more friction, larger minibatches or a known "
        'gradient_noise ("fisher")'
    )
    _too_cold = "a smaller step_size or less friction"

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None,
        *,
        step_size: float | Schedule | None,
        learning_rate: float | None,
        friction: float | None,
        momentum_decay: float | None,
        n_steps: int | None,
        gradient_noise: ArrayLike | Literal["fisher"] | None,
        metric: Literal["auto", "dense", "diag"] | None = None,
        control_variates: Literal["auto", 1] | bool = False,
        tune_temperature: float | None,
        splitting: Literal["exact", "paper"],
        batch_size: int | None,
        minibatch: Sequence[str] | str | None,
        batches: Iterable[Any] | None,
        total_size: int | None,
        minibatch_order: Literal["shuffled", "independent", "random"],
        draws_per_block: int | None,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None,
        local_draws: int,
        local_tune: int,
        local_steps: int,
        manifolds: Mapping[str, type[Manifold]] | None,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(
            vars,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
            manifolds=manifolds,
            local=local,
        )
        if step_size is not None and learning_rate is not None:
            raise ValueError("step_size= and learning_rate= say the same thing; give one of them")
        if friction is not None and momentum_decay is not None:
            raise ValueError("friction= and momentum_decay= say the same thing; give one of them")
        for name, value in (
            ("step_size", step_size),
            ("learning_rate", learning_rate),
            ("friction", friction),
            ("momentum_decay", momentum_decay),
        ):
            check_positive(name, value)
            if callable(value) and name != "step_size":
                raise ValueError(f"{name} must be a number; only step_size= takes a schedule")
        check_count("n_steps", n_steps)
        if tune_temperature is not None and not 1.0 <= tune_temperature < math.inf:
            raise ValueError(
                "tune_temperature is the kinetic temperature that tuning begins at and must be at "
                f"least 1, got {tune_temperature}"
            )
        self.tune_temperature = tune_temperature
        if splitting not in _SPLITTINGS:
            raise ValueError(f"splitting={splitting!r} is unknown; choose from {list(_SPLITTINGS)}")
        self.step_size = step_size
        self.learning_rate = learning_rate
        self.friction = friction
        self.momentum_decay = momentum_decay
        self.gradient_noise = gradient_noise
        self.metric = checked_metric(metric)
        self.control_variates = checked_control_variates(control_variates)
        self._wanted_steps = n_steps
        self.n_steps = DEFAULT_STEPS if n_steps is None else int(n_steps)
        self._splitting = _SPLITTINGS[splitting]
        self._local_draws = LocalDraws(local_draws, local_tune, local_steps)
        if minibatch_order == "shuffled" and self._counts_on_white_noise and not self.local:
            minibatch_order = (
                "random" if self._has_few_blocks(minibatch, batch_size) else "independent"
            )
        self._minibatches = Minibatches(
            batch_size, minibatch, batches, total_size, minibatch_order, draws_per_block
        )
        self._tuner = self._make_tuner()
        self._ones = np.ones(len(self.variables))
        self._gradient = np.empty(self.product.size + 1)
        self._scratch = np.empty(min(_NOISE_CHUNK, self.product.size))
        self._size = RunningSize(self.product)
        self._handed_on: dict[str, Any] = {}
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
                    if not isinstance(variable.manifold, Euclidean | HalfLine)
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
        self.estimator = make_estimator(
            self.model,
            self.variables,
            self._minibatches,
            local=self.local,
            local_draws=self._local_draws,
            with_value=self._searches_on_all_rows,
            compile_kwargs=self.compile_kwargs,
        )
        self._adapted = self._make_adapted()
        if self._adapted is None:
            prepare(*self._kernels, all_finite, evaluate, probe, project, refresh_velocity)
            prepare(gmc if self.local else probe_in_turn)
        self._noise_field: CompiledField | None = None
        if isinstance(self.gradient_noise, str):
            if self.gradient_noise != "fisher":
                raise ValueError(
                    f"gradient_noise={self.gradient_noise!r} is unknown; give None, a variance, "
                    'an array of variances or "fisher"'
                )
            if not isinstance(self.estimator, GradientEstimator):
                raise ValueError(
                    'gradient_noise="fisher" is not available with local=; leave it to tuning'
                )
            self._noise_field = self.estimator.compile_noise()

    def _has_few_blocks(
        self, minibatch: Sequence[str] | str | None, batch_size: int | None
    ) -> bool:
        """Whether gradient noise of known variance has another variance over the blocks there are.

        Over K blocks of rows shuffled once, the variance in a direction is off by about
        sqrt(2 / K) of itself.
        """
        if self.gradient_noise is None and not self._measures_plain_noise:
            return False
        if minibatch is None:
            return any(rows < FEW_BLOCKS * drawn for rows, drawn in drawn_row_numbers(self.model))
        if not batch_size:
            return False
        first = minibatch if isinstance(minibatch, str) else next(iter(minibatch), "")
        rows = self.model.named_vars.get(first)
        if not hasattr(rows, "get_value"):
            return False
        return len(rows.get_value(borrow=True)) < FEW_BLOCKS * batch_size

    def _known_noise(self) -> np.ndarray:
        if self.gradient_noise is None:
            return np.empty(0)
        if self._noise_field is not None:
            return np.zeros(self.product.size)
        noise = np.asarray(self.gradient_noise, dtype=float)
        if not np.all(noise >= 0):
            raise ValueError("gradient_noise= is a variance and must not be negative")
        if noise.size not in (1, self.product.size):
            raise ValueError(
                f"gradient_noise= has {noise.size} elements; give one or {self.product.size}, "
                "one per coordinate of the sampled variables"
            )
        return np.broadcast_to(noise.ravel(), (self.product.size,)).copy()

    @property
    def tuner_state(self) -> dict:
        """What tuning measured."""
        return self._tuner.state

    @tuner_state.setter
    def tuner_state(self, state: dict) -> None:
        self._tuner.state = state

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

    @property
    def _tunes_itself(self) -> bool:
        step_is_set = self.step_size is not None or self.learning_rate is not None
        friction_is_set = self.friction is not None or self.momentum_decay is not None
        return not (step_is_set and friction_is_set)

    def _reset(self) -> None:
        self._reset_adapted()
        self._tuner.reset(self._n_tune)
        self.velocity = np.empty(0)
        self.tuned_step_size = 0.0
        self.tuned_friction = np.zeros(len(self.variables))
        self.temperature_sum, self.temperature_count = 0.0, 0
        self.direction = np.empty(0)
        self.last_gradient = np.empty(0)
        self.draw_sums = self._size.start()
        self._noise_variance = self._known_noise()
        if self._n_tune == 0:
            for name, value in self._handed_on.items():
                setattr(self, name, copy.deepcopy(value))

    _tuned_attributes: tuple[str, ...] = ("tuned_step_size", "tuned_friction", "tuner_state")

    def stop_tuning(self) -> None:
        """End the tuning phase, and keep what it chose for chains that have none."""
        super().stop_tuning()
        if self._tuner.has_measured and self._n_tune:
            self._handed_on = {
                name: copy.deepcopy(getattr(self, name)) for name in self._tuned_attributes
            }

    def _read(self, point: PointType) -> None:
        super()._read(point)
        self.velocity = np.empty(self.product.size)
        refresh_velocity(self.product.blocks, self.position, self.velocity, self.stream)
        self.last_gradient = np.empty(0)
        self._start_adapted()

    def _step_and_friction(self) -> tuple[float, np.ndarray]:
        if callable(self.step_size):
            step_size = step_size_at(self.step_size, self.draw)
        elif self.step_size is not None:
            step_size = self.step_size
        elif self.learning_rate is not None:
            n_rows = self._minibatches.total_size or self.estimator.source.n_rows
            step_size = math.sqrt(self.learning_rate / n_rows)
        else:
            step_size = self.tuned_step_size
        if self.friction is not None:
            friction = self.friction * self._ones
        elif self.momentum_decay is not None:
            friction = self.momentum_decay / step_size * self._ones
        elif self.tune or not self.tuned_friction[0]:
            friction = self._tuner.friction(step_size)
            self.tuned_friction = friction
        else:
            friction = self.tuned_friction
        return step_size, friction

    @abstractmethod
    def _run(
        self, arguments: np.ndarray, step_size: float, friction: np.ndarray
    ) -> tuple[float, int]:
        """Run the kernel; return temperature and clips."""

    def _prepare(self, point: PointType) -> tuple[np.ndarray, int]:
        """Arguments of the field for the inner steps, and gradient evaluations so far."""
        if isinstance(self.estimator, GradientEstimator):
            return self.estimator.next_arguments(self.n_steps), 0
        n_grad = self._sample_local(point)
        return np.zeros(self.n_steps, dtype=np.int64), n_grad

    def _move(self, point: PointType) -> dict[str, Any]:
        return self._move_adapted() if self._adapts else self._move_as_told(point)

    def _move_adapted(self) -> dict[str, Any]:
        adapted = self._adapted
        assert adapted is not None
        drawn = adapted.advance(self.stream, tune=self.tune)
        self.position = adapted.position
        if drawn.diverging and not self.tune:
            raise self._fail(drawn.step_size, self._failing_names(self.position))
        warning = None
        if not self.tune:
            self._count(drawn.temperature)
            if self._is_last_draw:
                friction = np.full(len(self.variables), drawn.friction)
                warning = (
                    self._temperature_warning(drawn.step_size, friction)
                    or self._stationarity_warning()
                    or self._size_warning()
                )
        return {
            "step_size": drawn.step_size,
            "temperature": drawn.temperature,
            "friction": drawn.friction,
            "noise_clips": drawn.noise_clips,
            "diverging": drawn.diverging,
            "n_grad": drawn.n_grad,
            "phase": drawn.phase,
            "configurational_temperature": drawn.configurational_temperature,
            "whitened_gradient": drawn.whitened_gradient,
            "noise_ratio": drawn.noise_ratio,
            "warning": warning,
        }

    def _count(self, temperature: float) -> None:
        """Take in a draw after tuning."""
        self.temperature_sum += temperature
        self.temperature_count += 1
        self._size.take(
            self.draw_sums, self.position, self.draw - self._n_tune, max(self._n_draws, 1)
        )

    def _move_as_told(self, point: PointType) -> dict[str, Any]:
        arguments, n_grad = self._prepare(point)
        n_grad += self.n_steps
        if self._noise_field is not None:
            evaluate(
                self._noise_field.address,
                self.position,
                arguments[0],
                self._noise_field.context,
                self._noise_variance,
            )
        tuning = self._tunes_itself and (self.tune or not self._tuner.has_measured)
        if tuning:
            if not self._tuner.has_measured:
                n_grad += self._measure_before_moving(arguments)
                self.tuned_step_size = self._tuner.step_size()
            self._measure(arguments[0], self.tuned_step_size)
            self.tuned_step_size = self._tuner.step_size()
            n_grad += 2
        step_size, friction = self._step_and_friction()
        if self.tune or self.draw == 0:
            position, velocity = self.position.copy(), self.velocity.copy()
        temperature, clips = self._run(arguments, step_size, friction)
        diverging = not (math.isfinite(temperature) and all_finite(self.position))
        diverging = diverging or (self.tune and temperature > RUNAWAY)
        if diverging:
            self.estimator.field.raise_error()
            if self.draw == 0:
                self._check_gradients(position, arguments)
            if not self.tune:
                raise self._fail(step_size, self._failing_names(self.velocity + self.position))
            self._tuner.shrink()
            self.position[:], self.velocity[:] = position, velocity
            refresh_velocity(self.product.blocks, self.position, self.velocity, self.stream)
            self.last_gradient = np.empty(0)
            temperature = np.nan
        elif tuning:
            n_grad += self._remember_gradient(arguments[-1])
        warning = None
        if not self.tune:
            self._count(temperature)
            if self._is_last_draw:
                warning = self._temperature_warning(step_size, friction) or self._size_warning()
        stats = {
            "phase": "tune" if self.tune else "sample",
            "configurational_temperature": math.nan,
            "whitened_gradient": math.nan,
            "noise_ratio": 1.0,
            "step_size": step_size,
            "temperature": temperature,
            "friction": math.fsum(friction) / friction.size,
            "noise_clips": clips,
            "diverging": diverging,
            "n_grad": n_grad,
            "warning": warning,
        }
        if isinstance(self.estimator, LocalGradientEstimator):
            stats["acceptance_rate"] = self.estimator.acceptance_rate
        return stats

    def _size_warning(self) -> SamplerWarning | None:
        complaint = self._size.complaint(self.draw_sums, self._n_draws)
        return None if complaint is None else self._warn(f"{type(self).__name__}: {complaint}")

    def _temperature_warning(self, step_size: float, friction: np.ndarray) -> SamplerWarning | None:
        mean = self.temperature_sum / self.temperature_count
        error = temperature_error(
            self.product.dims, step_size * friction, self.n_steps * self.temperature_count
        )
        if abs(mean - 1.0) <= TEMPERATURE_TOLERANCE + TEMPERATURE_ERRORS * error:
            return None
        names = ", ".join(variable.name for variable in self.variables)
        problem = "wider" if mean > 1.0 else "narrower"
        remedy = self._too_hot if mean > 1.0 else self._too_cold
        return self._warn(
            f"{type(self).__name__}[{names}] ran at a kinetic temperature of {mean:.3g} instead "
            f"of 1 (step size {step_size:.3g}, {self._friction_name} {friction.max():.3g}): the "
            f"draws are {problem} than the posterior. Use {remedy}, or let tuning choose."
        )
