"""What every geodesic step method shares: variables by name, state, processes, progress."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import warnings
from abc import abstractmethod
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pymc
from threadpoolctl import threadpool_limits

from pymc_geodesic.counts.refusals import moving_level, moving_support
from pymc_geodesic.densities.edges import edges
from pymc_geodesic.densities.jumps import jumps
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables, product_of
from pymc_geodesic.densities.written_terms import terms_as_written
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.rows_beside import refuse_rows_beside
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.steps.base.coverage import StepsOfChain, draws_minibatches
from pymc_geodesic.steps.base.estimates import EstimatingStep
from pymc_geodesic.steps.base.options import LocalDraws, LocalOptions, ManifoldOptions
from pymc_geodesic.steps.base.progress import ProgressColumns
from pymc_geodesic.steps.base.pymc_parts import (
    BlockedStep,
    DataClassState,
    Model,
    PointType,
    RandomGenerator,
    StatsType,
    StepMethodState,
    TensorVariable,
    WithSamplingState,
    dataclass_state,
    get_random_generator,
    modelcontext,
)
from pymc_geodesic.steps.base.signature import explain
from pymc_geodesic.steps.base.starting import StartingStep

__all__ = ["GeodesicStep", "GeodesicStepState"]

_PACKAGE = str(Path(__file__).parents[2])

_STEPS_OF_CHAIN = StepsOfChain()

LOCAL_TUNE_STEPS = 2000
"""Default length of the tuning phase with local variables, whose posterior is cooled slowly."""


@dataclass_state
class GeodesicStepState(StepMethodState):
    """State of a geodesic step method between two draws.

    Attributes
    ----------
    position : ndarray
        Kernel coordinates; empty before the first draw.
    stream : ndarray of uint64
        Random stream of the kernel.
    draw : int
        Draws so far, with tuning.
    tune : bool
        Whether the step is still tuning.
    estimate_state : dict
        Place in the walk over the minibatches, and what the estimate adapts.
    """

    manifold_names: list[str] = field(metadata={"frozen": True})
    position: np.ndarray
    stream: np.ndarray
    draw: int
    tune: bool
    estimate_state: dict


def _of_another_model(step: GeodesicStep, model: Model) -> str:
    own, other = (_described(each) for each in (step.model, model))
    again = ""
    if own == other:
        again = "; the model was built again after the step was made"
    return see(
        f"{type(step).__name__} was made in {own} and is used in another model, {other}{again}. "
        "Make the step in the model that is sampled: with model: "
        f"step = {type(step).__name__}(...)",
        "another-model",
    )


def _described(model: Model) -> str:
    """Describe a model by its name, if it has one, and its free variables."""
    called = f"model {model.name!r}" if model.name else "a model"
    return f"{called} with the free variables {[rv.name for rv in model.free_RVs]}"


class GeodesicStep(EstimatingStep, StartingStep, ProgressColumns, BlockedStep):
    """Base of the geodesic step methods, whose constructors keep options, by `takes`, and build."""

    default_blocked = True
    stats_dtypes_shapes: dict = {}
    _state_class = GeodesicStepState
    _everywhere: ClassVar[type[Manifold] | None] = None
    """Manifold of all variables, for a step that knows one only."""
    _corrects: ClassVar[bool] = False
    """Whether a Metropolis correction rejects what lies beyond an edge of the density."""
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the arguments of the constructor, which those of PyMC's ``__new__`` would hide."""
        super().__init_subclass__(**kwargs)
        signature = inspect.signature(cls.__init__)
        cls.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
        options = getattr(cls.__init__, "options", None)
        if options is not None and cls.__dict__.get("__doc__"):
            cls.__doc__ = explain(cls.__dict__["__doc__"], options)

    def _build(self) -> None:
        """Make what the options ask for."""
        options = self.options
        self.model = modelcontext(options.model)
        local = options.local if isinstance(options, LocalDraws) else None
        self.local = [] if local is None else manifold_variables(self.model, local, by_row=True)
        local_values = [variable.value for variable in self.local]
        every = self._find_variables()
        # Euclidean variables come first: a metric joins them
        self.variables = sorted(
            (v for v in every if v.value not in local_values),
            key=lambda variable: not variable.manifold.is_flat,
        )
        if not every:
            free = [rv.name for rv in self.model.free_RVs]
            raise ValueError(
                f"{type(self).__name__} samples continuous variables, and none of the free "
                f"variables {free} is one; leave them to PyMC's steps, pm.sample()"
            )
        if not self.variables:
            raise ValueError("local= names every variable; leave at least one global variable")
        if not self._reaches_both_determinants:
            self._warn_of_square_frames()
        refuse_rows_beside(self.model)
        if not self._corrects:
            terms = terms_as_written(self.model)
            for term, names in edges(self.model, self.variables, terms):
                raise ValueError(moving_support(type(self).__name__, term, names))
            for term, names in jumps(self.model, self.variables, terms, options.minibatch):
                raise ValueError(moving_level(type(self).__name__, term, names))
        self.vars = [variable.value for variable in (*self.variables, *self.local)]
        if self.local and isinstance(options, LocalOptions):
            self.default_tune_steps = LOCAL_TUNE_STEPS
            self.stats_dtypes_shapes = {
                **self.stats_dtypes_shapes,
                "acceptance_rate": (np.float64, []),
            }
            self.stats_dtypes = [{k: dtype for k, (dtype, _) in self.stats_dtypes_shapes.items()}]
        self.manifold_names = [str(variable.manifold) for variable in self.variables]
        self.product = product_of(self.variables)
        self._shares_no_density = draws_minibatches(self.model)
        self.rng = get_random_generator(options.rng)
        self.stream = new_stream(self.rng)
        self.position = np.empty(0)
        self.draw = 0
        self.tune = True
        self._n_tune, self._n_draws = 0, 0
        self._process: int | None = None
        self._has_local_values = False
        self._written: dict[str, np.ndarray] = {}
        self._log_terms = None

    @property
    def vars(self) -> list[TensorVariable]:
        """Value variables that the step samples.

        Raises
        ------
        ValueError
            Within the context of another model, which has no such variables.
        """
        model = Model.get_context(error_if_none=False, allow_block_model_access=True)
        if isinstance(model, Model) and not set(self._vars) <= set(model.value_vars):
            raise ValueError(_of_another_model(self, model))
        return self._vars

    @vars.setter
    def vars(self, values: list[TensorVariable]) -> None:
        self._vars = values

    def _find_variables(self) -> list[ManifoldVariable]:
        """Find the variables to move, local ones too, and where they live."""
        options = self.options
        manifolds = options.manifolds if isinstance(options, ManifoldOptions) else None
        return manifold_variables(self.model, options.vars, manifolds, everywhere=self._everywhere)

    @property
    def _reaches_both_determinants(self) -> bool:
        """Whether the step changes the sign of the determinant of orthogonal matrices."""
        return False

    def _warn_of_square_frames(self) -> None:
        """Warn of orthogonal matrices, whose determinant keeps its sign along a chain."""
        square = [
            variable
            for variable in (*self.variables, *self.local)
            if not variable.manifold.is_connected
        ]
        for variable in square:
            message = (
                f"{variable.name!r} is an orthogonal matrix of shape {variable.shape}, and "
                f"{type(self).__name__} never changes the sign of its determinant: each chain "
                "samples the component of its initial value. Use GMC, which proposes the other "
                "sign, or set initvals= of one component if it holds all of the posterior"
            )
            warnings.warn(
                see(message, "square-frames"),
                UserWarning,
                skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
            )

    @abstractmethod
    def _compile(self) -> None:
        """Compile everything that cannot be sent to another process."""

    @abstractmethod
    def _move(self, point: PointType) -> dict[str, Any]:
        """Advance ``self.position`` by one draw and return the sample stats."""

    @abstractmethod
    def _reset(self) -> None:
        """Forget the previous chain."""

    _compiled_attributes: tuple[str, ...] = ("estimator",)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in self._compiled_attributes:
            state.pop(name, None)
        return state | {"_log_terms": None, "_has_local_values": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._compile()

    @property
    def streamed(self) -> tuple[str, ...]:
        """Data whose rows come from ``batches=``, and not from the model."""
        return self.options.streamed

    @property
    def estimate_state(self) -> dict[str, Any]:
        """Place in the walk over the minibatches, and what the estimate adapts."""
        return self.estimator.state

    @estimate_state.setter
    def estimate_state(self, state: dict[str, Any]) -> None:
        self.estimator.state = state

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare for one chain; see `pymc.step_methods.compound.BlockedStep.setup_chain`."""
        super().setup_chain(rng, tune, draws)
        if self._shares_no_density or self.streamed:
            _STEPS_OF_CHAIN.set_up(self.model, self)
        self.stream = new_stream(self.rng)
        self._limit_threads()
        self.estimator.source.refresh()
        self.estimator.refresh_data()
        self.estimator.reset(int(self.rng.integers(2**63)))
        self._n_tune, self._n_draws = tune, draws
        self.draw = 0
        self.tune = tune > 0
        self.position = np.empty(0)
        self._forget_point()
        self._reset()

    def _forget_point(self) -> None:
        self._written = {}
        self._has_local_values = False

    def _set_sampling_state(self, state: DataClassState) -> None:
        WithSamplingState.sampling_state.fset(self, state)
        self._forget_point()

    sampling_state = property(WithSamplingState.sampling_state.fget, _set_sampling_state)

    def _limit_threads(self) -> None:
        """Leave every worker process its share of the cores."""
        if multiprocessing.parent_process() is None or self._process == os.getpid():
            return
        self._process = os.getpid()
        cores = os.cpu_count() or 1
        threadpool_limits(limits=max(1, cores // min(4, cores)), user_api="blas")

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Draw once."""
        if self.draw == 0:
            self._check_terms(point)
        if (self._shares_no_density or self.streamed) and self.draw == 0:
            _STEPS_OF_CHAIN.check(self.model, self)
        if self.position.size == 0 or self._moved_elsewhere(point):
            self._read(point)
        if not self._has_local_values:
            self.estimator.read_local(point)
            self._has_local_values = True
        self.estimator.set_others(point)
        with self.estimator.at_work():
            stats = self._move(point)
        self.draw += 1
        return self._write(point), [stats]

    def _moved_elsewhere(self, point: PointType) -> bool:
        for name, written in self._written.items():
            value = point[name]
            if value is not written and not np.array_equal(value, written):
                return True
        return False

    def _read(self, point: PointType) -> None:
        self.position = np.empty(self.product.size)
        for variable in self.variables:
            part = self.product.slices[variable.name]
            try:
                coordinates = variable.coordinates(point[variable.value_name])
            except ValueError as error:
                message = (
                    f"{type(self).__name__} cannot start from the value of {variable.name!r}: "
                    f"{error} Give {variable.name!r} another initial value (initval= or initvals=)."
                )
                raise ValueError(see(message, "start")) from error
            self.position[part] = coordinates.ravel()

    def _write(self, point: PointType) -> PointType:
        point = dict(point)
        for variable in self.variables:
            part = self.position[self.product.slices[variable.name]]
            value = variable.values(part).reshape(variable.value_shape)
            point[variable.value_name] = self._written[variable.value_name] = value
        self.estimator.write_local(point)
        return point

    @property
    def _is_last_draw(self) -> bool:
        return not self.tune and self.draw == self._n_tune + self._n_draws - 1
