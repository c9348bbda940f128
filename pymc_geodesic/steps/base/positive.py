"""What samplers of simplices and positive numbers share: logarithms, priors, moves."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.arguments import check_count, check_positive, plain_number, step_size_at
from pymc_geodesic.counts.estimate import AssignsTopics
from pymc_geodesic.counts.gradient_counts import count_blocks
from pymc_geodesic.counts.logarithms import log_of_value, value_of_log
from pymc_geodesic.counts.model_check import CountProbe, refusal
from pymc_geodesic.counts.priors import family_of, variables_of_families
from pymc_geodesic.counts.probed_points import probed_points
from pymc_geodesic.counts.topic_run import MoveWords, run_topics
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.positive_numbers import (
    LOG_NORMAL,
    SIMPLEX,
    expand_values,
    lift_small_values,
)
from pymc_geodesic.kernels.topics.assignments import sample_documents
from pymc_geodesic.kernels.topics.moves import add_counts, read_words, sum_words
from pymc_geodesic.kernels.topics.words import collect_words
from pymc_geodesic.manifolds import FlatSimplex, HalfLine, Manifold
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.runtime.log_gamma import log_gamma
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.count_step import GeodesicStepState
from pymc_geodesic.steps.base.measuring_counts import CountMeasuringStep
from pymc_geodesic.steps.pymc_parts import (
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    TensorVariable,
    dataclass_state,
)
from pymc_geodesic.tuning.count_noise import CountNoise

__all__ = ["PositiveState", "PositiveStep"]

MEASURED_DRAWS = 20
"""Draws of each half of the tuning phase whose noise is measured if the step size is given."""

_OF_TOPICS = (collect_words, read_words, split_stream, sample_documents, sum_words, add_counts)
"""What every minibatch of documents runs, whichever way their words move."""


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


class PositiveStep(CountMeasuringStep):
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
    _tuned_attributes: tuple[str, ...] = ("tuned_step_size", "shrinkage", "noise_state")
    _families: tuple[str, ...] = ("Dirichlet", "Gamma")
    totals_hold_counts: bool
    """Whether Σθ has the gamma law of prior and counts, which must not be negative then."""
    _move_words: MoveWords
    _kernels: tuple[Any, Any]
    """What calls a field of counts, and what moves the words of topics."""

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None,
        *,
        step_size: float | Schedule | None,
        n_steps: int,
        minibatches: MinibatchArguments,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None,
        local_draws: int,
        local_tune: int,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        check_positive("step_size", step_size)
        check_count("n_steps", n_steps)
        super().__init__(
            vars,
            minibatches=minibatches,
            local=local,
            local_draws=local_draws,
            local_tune=local_tune,
            model=model,
            rng=rng,
            compile_kwargs=compile_kwargs,
        )
        self.step_size = plain_number(step_size)
        self.n_steps = int(n_steps)
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

    def _find_variables(
        self,
        vars: Sequence[TensorVariable | str] | None,
        manifolds: Mapping[str, type[Manifold]] | None,
    ) -> list[ManifoldVariable]:
        name, local = type(self).__name__, [variable.rv for variable in self.local]
        rvs = variables_of_families(self.model, vars, self._families, name)
        manifolds = {
            rv.name: FlatSimplex if family_of(rv) == "Dirichlet" else HalfLine
            for rv in rvs
            if rv not in local
        }
        return manifold_variables(self.model, [rv for rv in rvs if rv not in local], manifolds)

    def _compile(self) -> None:
        self.estimator, self.priors = self._make_counts()
        prepare(lift_small_values, log_gamma)
        of_field, of_words = self._kernels
        prepare(*((*_OF_TOPICS, of_words) if self.local else (of_field,)))

    def _reset(self) -> None:
        self._prior_shape, self._prior_rate = np.empty((2, 0))
        self.lacks_totals = True
        self.tuned_step_size = 0.0
        self.shrinkage = 1.0
        self._noise.reset()

    @property
    def _tunes_itself(self) -> bool:
        return self.step_size is None

    @property
    def _has_tuned(self) -> bool:
        return self._noise.count > 0

    def _name_at(self, index: int) -> str:
        return next(n for n, part in self.product.slices.items() if part.start <= index < part.stop)

    def _probe(self) -> None:
        """Find out whether counts change with the point, and refuse a model that has none."""
        self._depends = True
        self._sums_depend = np.zeros(self.product.size, dtype=bool)
        if self.estimator.repeats:
            points = probed_points(self.model, self.variables)
            arguments = self.estimator.next_arguments(len(points))
            found = []
            for argument, point in zip(arguments, points, strict=True):
                self.estimator.set_others(point)
                probe = self._probe_of(int(argument))
                found.append(probe.dependence(needs_counts=self.totals_hold_counts))
            self._depends = any(each.counts for each in found)
            if self.totals_hold_counts:
                depend = np.any([each.sums for each in found], axis=0)
                self._sums_depend = np.repeat(depend, self.blocks[:, 2] * self.blocks[:, 3])
            self.estimator.reset(0)

    def _probe_of(self, argument: int) -> CountProbe:
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
        self.estimator.write_local(point)
        return point

    def begin_local_anew(self, point: PointType) -> PointType:
        """Let the local variables begin anew, whatever a chain was here before.

        Parameters
        ----------
        point : dict
            Of a chain that has no values of them.

        Returns
        -------
        dict
            With values of the local variables, which stand for no draw.
        """
        point = dict(point)
        self.estimator.forget_local()
        self.estimator.write_local(point)
        self._has_local_values = True
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
            if self.totals_hold_counts:
                shapes = shapes + np.maximum(self._counts[part], 0.0)
            if self._sums_depend[start] and self._noise.count:
                shapes = self._prior_shape[part] + self._noise.totals[part] / width
            totals = shapes.reshape(rows, width).sum(axis=1)
            state = self.position[part].reshape(rows, width)
            top = state.max(axis=1, keepdims=True)
            state -= top + np.log(np.exp(state - top).sum(axis=1, keepdims=True))
            for row, total in enumerate(totals):
                state[row] += log_gamma(self.stream, total if math.isfinite(total) else 1.0)
        self.lacks_totals = False

    @abstractmethod
    def follow_field(
        self, field: CompiledField, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that calls a field of counts; see `CountSampler`."""

    def follow_topics(
        self, topics: AssignsTopics, arguments: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that moves topics; see `CountSampler`."""
        shape = self.variables[0].shape
        run_topics(
            topics,
            type(self)._move_words,
            self.position.reshape(shape),
            self._prior_shape.reshape(shape),
            arguments,
            step_size,
            self.stream,
        )
        finite = np.isfinite(self.position)
        return -1 if finite.all() else int(np.argmin(finite)), {}

    def _before_moving(self) -> int:
        """Prepare the draw; return gradient evaluations."""
        return 0

    def _move(self, point: PointType) -> dict[str, Any]:
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
        failed, more = self.estimator.advance(self, arguments[: self.n_steps], step_size)
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
