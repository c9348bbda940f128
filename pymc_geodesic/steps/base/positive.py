"""What samplers of simplices and positive numbers share: logarithms, priors, noise of counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pymc import modelcontext

from pymc_geodesic.arguments import check_count, check_positive, step_size_at
from pymc_geodesic.counts.gradient_counts import CountEstimator, count_blocks
from pymc_geodesic.counts.logarithms import log_of_value, value_of_log
from pymc_geodesic.counts.model_check import CountProbe, refusal
from pymc_geodesic.counts.priors import family_of, variables_of_families
from pymc_geodesic.counts.probed_points import probed_points
from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.counts.topic_run import MoveWords, run_topics
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.kernels.scir import LOG_NORMAL, SIMPLEX, expand_values, lift_small_values
from pymc_geodesic.manifolds import FlatSimplex, HalfLine, Manifold
from pymc_geodesic.minibatches.shuffled_rows import ShuffledRows
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.variates import log_gamma
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.adaptor import (
    GeodesicStep,
    GeodesicStepState,
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.steps.base.estimates import LocalDraws, Minibatches, make_count_estimator
from pymc_geodesic.tuning.count_noise import CountNoise
from pymc_geodesic.tuning.inflation import (
    allowed_inflation,
    independent_inflation,
    longest_time,
    shuffled_inflation,
)

__all__ = ["PositiveState", "PositiveStep"]

REPORTED_INFLATION = 0.1
"""Excess of the variance from which there is a warning."""

LONGEST_STEP = 5.0
"""Step after which the past is forgotten to within e⁻⁵."""

MEASURED_DRAWS = 20
"""Draws of each half of the tuning phase whose noise is measured if the step size is given."""

LOCAL_SWEEPS = 5
"""Default sweeps over the words of a document, kept and not."""


@dataclass_state
class PositiveState(GeodesicStepState):
    """State of a sampler of positive numbers; ``position`` holds log θ.

    Attributes
    ----------
    lacks_totals : bool
        Whether Σθ of the simplex rows is still to be drawn.
    tuned_step_size : float
        Step size chosen by tuning.
    shrinkage : float
        Factor by which failed draws have made the step shorter.
    noise_state : dict
        What tuning measured of the estimates.
    """

    lacks_totals: bool
    tuned_step_size: float
    shrinkage: float
    noise_state: dict


class PositiveStep(GeodesicStep):
    """Base of `SCIR` and `SGRLD`; see there for the parameters."""

    _state_class = PositiveState
    stats_dtypes_shapes: dict = {
        "step_size": (np.float64, []),
        "variance_inflation": (np.float64, []),
        "diverging": (bool, []),
        "n_grad": (np.int64, []),
        "warning": (SamplerWarning, None),
    }
    _progress_stats = (
        ("step_size", ".2e", "Step size"),
        ("variance_inflation", ".3f", "Inflation"),
    )
    _compiled_attributes: tuple[str, ...] = ("estimator", "priors")
    _families: tuple[str, ...] = ("Dirichlet", "Gamma")
    _needs_counts: bool
    """Whether counts must not be negative."""
    estimator: CountEstimator | TopicCountEstimator  # type: ignore[assignment]  # counts instead

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None = None,
        *,
        step_size: float | Schedule | None = None,
        n_steps: int = 10,
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
        batches: Iterable[Any] | None = None,
        total_size: int | None = None,
        minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled",
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        local_draws: int = LOCAL_SWEEPS,
        local_tune: int = LOCAL_SWEEPS,
        model: Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        model = modelcontext(model)
        name = type(self).__name__
        rvs = variables_of_families(model, vars, self._families, name)
        by_row = [] if local is None else manifold_variables(model, local, by_row=True)
        rvs = [rv for rv in rvs if rv not in [variable.rv for variable in by_row]]
        self._local_draws = LocalDraws(local_draws, local_tune, 1)
        manifolds: dict[str, type[Manifold]] = {
            rv.name: FlatSimplex if family_of(rv) == "Dirichlet" else HalfLine for rv in rvs
        }
        super().__init__(
            rvs,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
            manifolds=manifolds,
            local=None,
        )
        self.local = by_row
        self.vars = [variable.value for variable in (*self.variables, *self.local)]
        check_positive("step_size", step_size)
        check_count("n_steps", n_steps)
        self.step_size = step_size
        self.n_steps = int(n_steps)
        self._minibatches = Minibatches(batch_size, minibatch, batches, total_size, minibatch_order)
        self.blocks = count_blocks(self.variables)
        self._is_log_normal = self._by_number(LOG_NORMAL)
        self._values = np.empty(self.product.size)
        self._counts = np.empty(self.product.size)
        self._exposures = np.empty(self.product.size)
        self.unit = np.ones(self.product.size)
        self._noise = CountNoise(len(self.variables), self.product.size)
        self._compile()
        self._reset()
        self._probe()

    def _by_number(self, kind: int) -> np.ndarray:
        """Say of every number whether it belongs to a block of some kind."""
        return np.repeat(self.blocks[:, 0] == kind, self.blocks[:, 2] * self.blocks[:, 3])

    def _compile(self) -> None:
        self.estimator, self.priors = make_count_estimator(
            self.model,
            self.variables,
            self._minibatches,
            local=self.local,
            local_draws=self._local_draws,
            compile_kwargs=self.compile_kwargs,
        )

    def _reset(self) -> None:
        self._prior_shape, self._prior_rate = np.empty((2, 0))
        self.lacks_totals = True
        self.tuned_step_size = 0.0
        self.shrinkage = 1.0
        self._noise.reset()

    @property
    def noise_state(self) -> dict[str, Any]:
        """What tuning measured of the estimates."""
        return self._noise.state

    @noise_state.setter
    def noise_state(self, state: dict[str, Any]) -> None:
        self._noise.state = state

    @property
    def _has_noise(self) -> bool:
        return not isinstance(self.estimator.source, AllRows)

    def _name_at(self, index: int) -> str:
        return next(n for n, part in self.product.slices.items() if part.start <= index < part.stop)

    def _estimate(self, values: np.ndarray, argument: int) -> int:
        """Write counts and exposures; return the index of a bad one or −1."""
        return self.estimator.estimate(values, argument, self.stream, self._counts, self._exposures)

    def _probe(self) -> None:
        """Find out whether counts change with the point, and refuse a model that has none."""
        self._depends = True
        if isinstance(self.estimator, CountEstimator):
            points = probed_points(self.model, self.variables)
            arguments = self.estimator.next_arguments(len(points))
            depends = []
            for argument, point in zip(arguments, points, strict=True):
                self.estimator.set_others(point)
                probe = self._probe_of(int(argument))
                depends.append(probe.depends(needs_counts=self._needs_counts))
            self._depends = any(depends)
            self.estimator.source.reset(0)

    def _probe_of(self, argument: int) -> CountProbe:
        assert isinstance(self.estimator, CountEstimator)
        return CountProbe(type(self).__name__, self.variables, self.estimator, argument)

    def _edges_of(self) -> list[str]:
        return [variable.name for variable in self.variables]

    def _refusal(self, index: int) -> str:
        return refusal(
            type(self).__name__,
            self.variables,
            self.blocks,
            index,
            self._counts[index],
            self._exposures[index],
        )

    def _read(self, point: PointType) -> None:
        self.position = np.empty(self.product.size)
        for variable in self.variables:
            logarithm = log_of_value(variable, self.model, np.asarray(point[variable.value_name]))
            self.position[self.product.slices[variable.name]] = logarithm.ravel()
        self.lacks_totals = True

    def _write(self, point: PointType) -> PointType:
        point = dict(point)
        for variable in self.variables:
            logarithm = self.position[self.product.slices[variable.name]].reshape(variable.shape)
            value = value_of_log(variable, self.model, logarithm)
            point[variable.value_name] = self._written[variable.value_name] = value
        if isinstance(self.estimator, TopicCountEstimator):
            self.estimator.write_local(point)
        return point

    def _draw_totals(self, argument: int) -> None:
        """Give every simplex row a sum Σθ from the gamma law that it has under the process."""
        expand_values(self.blocks, self.position, self._values)
        self._estimate(self._values, argument)
        for kind, start, rows, width in self.blocks:
            if kind != SIMPLEX:
                continue
            part = slice(start, start + rows * width)
            shapes = self._prior_shape[part]
            if self._needs_counts:  # without, the likelihood moves ω alone
                shapes = shapes + np.maximum(self._counts[part], 0.0)
            totals = shapes.reshape(rows, width).sum(axis=1)
            state = self.position[part].reshape(rows, width)
            top = state.max(axis=1, keepdims=True)
            state -= top + np.log(np.exp(state - top).sum(axis=1, keepdims=True))
            for row, total in enumerate(totals):
                state[row] += log_gamma(self.stream, total if math.isfinite(total) else 1.0)
        self.lacks_totals = False

    def _measure(self, arguments: np.ndarray) -> int:
        """Measure the noise of the estimates of two minibatches at the present position.

        Return the number of gradient evaluations.
        """
        expand_values(self.blocks, self.position, self._values)
        lift_small_values(self.blocks, self._prior_rate, self._values)
        if self._estimate(self._values, arguments[0]) >= 0:
            return 1
        counts, exposures = self._counts.copy(), self._exposures.copy()
        push = self._push(arguments[0], counts, exposures)
        spread = self._spread(counts, exposures)
        evaluations = self._evaluations
        noise = np.zeros(len(self.variables))
        if self._has_noise:
            if self._estimate(self._values, arguments[1]) >= 0:
                return 2
            other = self._push(arguments[1], self._counts.copy(), self._exposures.copy())
            evaluations *= 2
            # Estimates that are followed for parts s of a step add s² of their variance.
            one, two = (self.estimator.share(int(argument)) for argument in arguments[:2])
            weight = 2.0 * (one * two / (one + two)) ** 2
            for i, part in enumerate(self.product.slices.values()):
                deviation = np.sum((push[part] - other[part]) ** 2)
                noise[i] = weight * deviation / np.sum(spread[part])
        self._noise.observe(noise, exposures)
        return evaluations

    def _spread(self, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """Variance of each number that the noise is compared with; at given ω on a simplex."""
        spread = np.where(
            self._is_log_normal, self._prior_rate + exposures, self._prior_shape + counts
        )
        share = np.where(self._by_number(SIMPLEX), self._values, 0.0)
        return np.maximum(spread * (1.0 - share), 0.0)

    def _push(self, argument: int, counts: np.ndarray, exposures: np.ndarray) -> np.ndarray:
        """Drift that one minibatch estimates, without the prior.

        On a simplex only what moves ω, and not the sum of θ, counts.
        """
        place = np.where(self._is_log_normal, self.position, self._values)
        push = counts - exposures * place
        for kind, start, rows, width in self.blocks:
            if kind == SIMPLEX:
                part = slice(start, start + rows * width)
                totals = push[part].reshape(rows, width).sum(axis=1)
                push[part] -= (self._values[part].reshape(rows, width) * totals[:, None]).ravel()
        return push

    @property
    def _evaluations(self) -> int:
        """Gradient evaluations of one step."""
        return self.estimator.evaluations

    @property
    def _longest_step(self) -> float:
        """Bound of the step size that tuning chooses."""
        return LONGEST_STEP

    def _inflation(self, time: float) -> float:
        """Relative variance that the noise of the minibatches adds."""
        source = self.estimator.source
        if type(source) is ShuffledRows:
            return self._noise.largest * shuffled_inflation(
                time, source.n_rows // source.batch_size
            )
        return self._noise.largest * independent_inflation(time)

    def _tune_step_size(self) -> float:
        lag = 1.0 if self._depends else 0.0
        return longest_time(
            lambda time: self._inflation(time) + lag * independent_inflation(time),
            allowed_inflation(self.draw, self._n_tune),
            self._longest_step,
        )

    @abstractmethod
    def _run(self, arguments: np.ndarray, step_size: float) -> tuple[int, dict[str, Any]]:
        """Run the kernel; return the index of a failure or −1, and further stats."""

    def _run_topics(self, arguments: np.ndarray, step_size: float, move: MoveWords) -> int:
        """Run the inner steps with local variables; return the index of a failure or −1."""
        assert isinstance(self.estimator, TopicCountEstimator)
        shape = self.variables[0].shape
        run_topics(
            self.estimator,
            move,
            self.position.reshape(shape),
            self._prior_shape.reshape(shape),
            arguments,
            step_size,
            self.stream,
        )
        finite = np.isfinite(self.position)
        return -1 if finite.all() else int(np.argmin(finite))

    def _before_moving(self) -> int:
        """Prepare the draw; return gradient evaluations."""
        return 0

    def _move(self, point: PointType) -> dict[str, Any]:
        if isinstance(self.estimator, TopicCountEstimator) and not self._has_local_values:
            self.estimator.read_local(point)
            self._has_local_values = True
        half = self._n_tune // 2
        if self.tune and self.draw == half:  # what was measured on the way says less
            self._noise.reset()
        if self.priors.changes or not self._prior_shape.size:
            self._prior_shape, self._prior_rate = self.priors(point)
        n_grad = self._before_moving()
        first = self._noise.count == 0
        wanted = self.step_size is None or (self.draw % max(half, 1)) < MEASURED_DRAWS
        measures = first or (self.tune and wanted)
        arguments = self.estimator.next_arguments(max(self.n_steps, 2 if measures else 1))
        if self.lacks_totals:
            self._draw_totals(arguments[0])
            n_grad += self._evaluations
        if measures:
            n_grad += self._measure(arguments)
            if self.tune or first:
                self.tuned_step_size = self._tune_step_size()
        rate = self._prior_rate + self._noise.exposures
        self.unit = np.where(self._by_number(SIMPLEX), 1.0, rate)
        if callable(self.step_size):
            step_size = step_size_at(self.step_size, self.draw)
        else:
            step_size = self.tuned_step_size if self.step_size is None else self.step_size
        step_size *= self.shrinkage
        before = self.position.copy()
        failed, more = self._run(arguments[: self.n_steps], step_size)
        diverging = failed >= 0
        if diverging:
            self._handle_failure(failed, step_size)
            self.position[:] = before
        inflation = self._inflation(step_size)
        warning = self._inflation_warning(inflation, step_size) if self._is_last_draw else None
        return {
            "step_size": step_size,
            "variance_inflation": inflation,
            "diverging": diverging,
            "n_grad": n_grad + self.n_steps * self._evaluations,
            "warning": warning,
            **more,
        }

    def _handle_failure(self, failed: int, step_size: float) -> None:
        if not self.tune:
            raise self._fail(step_size, f"gradient in {self._name_at(failed)!r}")
        self.shrinkage *= 0.5

    def _inflation_warning(self, inflation: float, step_size: float) -> SamplerWarning | None:
        if inflation <= REPORTED_INFLATION:
            return None
        names = ", ".join(variable.name for variable in self.variables)
        return self._warn(
            f"{type(self).__name__}[{names}] ran with step size {step_size:.3g}, at which the "
            f"noise of the minibatches widens the variance by {100 * inflation:.0f} %. Use a "
            "smaller step_size or larger minibatches, or let tuning choose."
        )
