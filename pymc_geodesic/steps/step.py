"""Base of all step methods: from the variables of a PyMC model to a vector, and back."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pymc
from rich.progress import TextColumn
from rich.table import Column
from threadpoolctl import threadpool_limits

from pymc_geodesic.arguments import check_compile_kwargs
from pymc_geodesic.counts.estimate import LikelihoodError
from pymc_geodesic.counts.refusals import moving_level, moving_support
from pymc_geodesic.densities.edges import edges
from pymc_geodesic.densities.hierarchy import hierarchical_pairs
from pymc_geodesic.densities.jumps import jumps
from pymc_geodesic.densities.log_terms import LogTerms
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables, product_of
from pymc_geodesic.densities.written_terms import terms_as_written
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimate import Estimate
from pymc_geodesic.manifolds import Manifold, Product
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.minibatches.rows_beside import refuse_rows_beside
from pymc_geodesic.monitoring.diagnosis import Diagnose, Diagnosis, DrawMonitor
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.samplers.sampler import NotFiniteError, Sampler
from pymc_geodesic.steps.coverage import StepsOfChain, draws_minibatches
from pymc_geodesic.steps.packing import ManifoldPacking, Packing, StartError
from pymc_geodesic.steps.pymc_parts import (
    BlockedStep,
    DataClassState,
    Model,
    PointType,
    RandomGenerator,
    SamplerWarning,
    SamplingError,
    StatsType,
    StepMethodState,
    TensorVariable,
    WarningType,
    WithSamplingState,
    backend_of,
    compile_kwargs_of_sample,
    dataclass_state,
    get_random_generator,
    modelcontext,
)

__all__ = ["DEFAULT_STEPS", "LOCAL_TUNE_STEPS", "GeodesicStep", "GeodesicStepState"]

_PACKAGE = str(Path(__file__).parents[1])

_STEPS_OF_CHAIN = StepsOfChain()

DEFAULT_STEPS = 10
"""Inner steps of a draw in the coordinates of the model."""

LOCAL_TUNE_STEPS = 2000
"""Default length of the warm-up with local variables, whose temperature is annealed slowly."""


@dataclass_state
class GeodesicStepState(StepMethodState):
    """State of a geodesic step method between two draws.

    Attributes
    ----------
    manifold_names : list of str
        Manifold of each variable, which two states must have in common.
    draw : int
        Draws so far, warm-up included.
    tune : bool
        Whether the step is in the warm-up.
    sampler_state : dict
        State of the chain, and nested in it that of the adaptation.
    monitor_states : list of dict
        What the monitors have observed.
    estimate_state : dict
        Order of the minibatches, and what the estimate adapts.
    """

    manifold_names: list[str] = field(metadata={"frozen": True})
    draw: int
    tune: bool
    sampler_state: dict
    monitor_states: list
    estimate_state: dict


class GeodesicStep(BlockedStep):
    """Base of the geodesic step methods.

    A subclass composes its ``estimator``, ``sampler``, ``monitors`` and ``diagnoses`` in its
    constructor and overrides nothing.

    Parameters
    ----------
    vars, model, rng, compile_kwargs
        See `pymc_geodesic.SGGMC`.
    minibatches : MinibatchArguments
    local : variables or names, optional
        Variables with one value for each row of the minibatch.
    manifolds : mapping of str to Manifold class, optional
        Manifold by variable name.
    everywhere : Manifold class, optional
        Manifold of all variables.
    is_corrected : bool
        Whether a Metropolis correction rejects what lies beyond an edge of the density.
    starts_at_edges : bool
        Whether a chain may start where the density of a variable is zero or has a pole.

    Attributes
    ----------
    variables, local : list of ManifoldVariable
        Variables that the sampler moves, Euclidean ones first, and variables of the rows.
    product : Product
        Their manifolds.
    packing : Packing
        Their values as one vector.
    estimator : Estimate
        Gradient or counts, estimated from minibatches.
    sampler : Sampler
        A Markov chain on a vector.
    monitors : sequence of DrawMonitor
        They observe the draws after the warm-up.
    diagnoses : sequence of callable
        Coordinate names → diagnosis. The first one that is not None is the warning of a chain.
    """

    default_blocked = True
    stats_dtypes_shapes: dict = {}
    _state_class = GeodesicStepState
    _progress_stats: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """(stat, format, column title) of the progress bar."""
    __signature__: ClassVar[inspect.Signature]

    estimator: Estimate
    sampler: Sampler
    monitors: Sequence[DrawMonitor]
    diagnoses: Sequence[Diagnose]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the arguments of the constructor, which those of PyMC's ``__new__`` would hide."""
        super().__init_subclass__(**kwargs)
        signature = inspect.signature(cls.__init__)
        cls.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])

    def __init__(
        self,
        vars: Sequence[TensorVariable | str] | None,
        *,
        minibatches: MinibatchArguments,
        local: Sequence[TensorVariable | str] | TensorVariable | str | None = None,
        manifolds: Mapping[str, type[Manifold]] | None = None,
        everywhere: type[Manifold] | None = None,
        is_corrected: bool = False,
        starts_at_edges: bool = False,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        check_compile_kwargs(compile_kwargs)
        name = type(self).__name__
        self.model = modelcontext(model)
        self._mode = dict(compile_kwargs or {}).get("mode")
        self._ignored: Mapping[str, Any] | None = None
        self.local = [] if local is None else manifold_variables(self.model, local, by_row=True)
        every = manifold_variables(self.model, vars, manifolds, everywhere=everywhere)
        self.variables = global_variables(name, self.model, every, self.local)
        if not is_corrected or self.local:
            warn_of_square_frames(name, (*self.variables, *self.local))
        refuse_rows_beside(self.model)
        if not is_corrected:
            terms = terms_as_written(self.model)
            for term, names in edges(self.model, self.variables, terms):
                raise ValueError(moving_support(name, term, names))
            for term, names in jumps(self.model, self.variables, terms, minibatches.minibatch):
                raise ValueError(moving_level(name, term, names))
        self.streamed = minibatches.streamed
        self.vars = [variable.value for variable in (*self.variables, *self.local)]
        self.manifold_names = [str(variable.manifold) for variable in self.variables]
        self.product: Product = product_of(self.variables)
        self.packing: Packing = ManifoldPacking(self.variables, self.product)
        self._edge_names = [v.name for v in self.variables] if starts_at_edges else []
        self._shares_no_density = draws_minibatches(self.model)
        self.rng = get_random_generator(rng)
        self.draw, self.tune = 0, True
        self._n_tune = self._n_draws = 0
        self._process: int | None = None
        self._has_local_values = self._has_started = self._lacks_warm_up = False
        self._written: dict[str, np.ndarray] = {}
        self._log_terms: LogTerms | None = None

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
            raise ValueError(another_model(type(self).__name__, self.model, model))
        self._warn_of_ignored_backend()
        return self._vars

    @vars.setter
    def vars(self, values: list[TensorVariable]) -> None:
        self._vars = values

    def _warn_of_ignored_backend(self) -> None:
        """Warn once of a `pymc.sample` whose backend is not that of the step."""
        given = compile_kwargs_of_sample()
        if not given or given is self._ignored:
            return
        self._ignored = given
        wanted, own = backend_of(given.get("mode", self._mode)), backend_of(self._mode)
        if wanted == own:
            return
        name = type(self).__name__
        message = (
            f"pm.sample(backend=...) has no effect on {name}, which was made before and compiles "
            f'its gradients in mode "{own}", not "{wanted}". Set compile_kwargs={{"mode": '
            f'"{wanted}"}} in {name}(...)'
        )
        warnings.warn(
            see(message, "backend"),
            UserWarning,
            skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
        )

    @property
    def samples_all(self) -> bool:
        """Whether no variable of the model is left to other step methods."""
        return len(self.model.free_RVs) == len(self.variables) + len(self.local)

    def report_local_acceptance(self) -> None:
        """Add the acceptance rate of local variables to the sample stats, and tune longer."""
        self.default_tune_steps = LOCAL_TUNE_STEPS
        self.stats_dtypes_shapes = {**self.stats_dtypes_shapes, "acceptance_rate": (np.float64, [])}
        self.stats_dtypes = [{k: dtype for k, (dtype, _) in self.stats_dtypes_shapes.items()}]

    # --- processes and state -----------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """State from which a step is constructed again: what is compiled stays behind."""
        return {"sampling_state": self.sampling_state, "n": (self._n_tune, self._n_draws)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with a state of its own in the same model, which PyMC would clone."""
        return copy.copy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        (names, *others), named = self.__getnewargs_ex__()
        type(self).__init__(self, None if names == [None] else names, *others, **named)
        self._n_tune, self._n_draws = state["n"]
        for monitor in self.monitors:
            monitor.initialize(self._n_draws)
        self.sampling_state = state["sampling_state"]

    @property
    def sampler_state(self) -> dict[str, Any]:
        """State of the chain, and nested in it that of the adaptation."""
        return self.sampler.state

    @sampler_state.setter
    def sampler_state(self, state: dict[str, Any]) -> None:
        self.sampler.state = state

    @property
    def monitor_states(self) -> list[dict[str, Any]]:
        """What the monitors have observed."""
        return [monitor.state for monitor in self.monitors]

    @monitor_states.setter
    def monitor_states(self, states: list[dict[str, Any]]) -> None:
        for monitor, state in zip(self.monitors, states, strict=True):
            monitor.state = state

    @property
    def estimate_state(self) -> dict[str, Any]:
        """Order of the minibatches, and what the estimate adapts."""
        return self.estimator.state

    @estimate_state.setter
    def estimate_state(self, state: dict[str, Any]) -> None:
        self.estimator.state = state

    def _set_sampling_state(self, state: DataClassState) -> None:
        WithSamplingState.sampling_state.fset(self, state)
        self._forget_point()

    sampling_state = property(WithSamplingState.sampling_state.fget, _set_sampling_state)

    def _forget_point(self) -> None:
        self._written = {}
        self._has_local_values = False
        self._has_started = self.sampler.position.size > 0

    # --- sampling ------------------------------------------------------------------------------

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare for one chain; see `pymc.step_methods.compound.BlockedStep.setup_chain`."""
        super().setup_chain(rng, tune, draws)
        if self._shares_no_density or self.streamed:
            _STEPS_OF_CHAIN.set_up(self.model, self)
        stream = new_stream(self.rng)
        self._limit_threads()
        self.estimator.source.refresh()
        self.estimator.refresh_data()
        self.estimator.reset(int(self.rng.integers(2**63)))
        self._n_tune, self._n_draws = tune, draws
        self.draw, self.tune = 0, tune > 0
        self.sampler.initialize(stream, tune, draws)
        self._forget_point()
        for monitor in self.monitors:
            monitor.initialize(draws)

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
            if self._shares_no_density or self.streamed:
                _STEPS_OF_CHAIN.check(self.model, self)
            self._check_burn_in(point)
        try:
            if not self._has_started or self._moved_elsewhere(point):
                self.sampler.start(self._packed(point))
                self._has_started = True
            if not self._has_local_values:
                self.estimator.read_local(point)
                self._has_local_values = True
            self.estimator.set_others(point)
            self.sampler.set_others(point)
            with self.estimator.at_work():
                stats = self.sampler.draw(tune=self.tune)
        except NotFiniteError as error:
            raise self._failure(error, point) from error
        except LikelihoodError as error:
            raise SamplingError(f"at draw {self.draw} {error}") from error
        position = self.sampler.position
        stats["warning"] = None if self.tune else self._observe(position, stats)
        if self.draw == 0 and self._lacks_warm_up and stats["warning"] is None:
            stats["warning"] = self._warning(UNTUNED)
        self.draw += 1
        kept = {name: stats[name] for name in self.stats_dtypes_shapes}
        return self._unpacked(position, point), [kept]

    def _check_burn_in(self, point: PointType) -> None:
        """Reject the model's initial point as the start of a chain that has no burn-in.

        Raises
        ------
        SamplingError
            If a tuned step starts at the initial value of a variable, or the step needs a warm-up
            and has had none.
        """
        adaptation = self.sampler.adaptation
        self._lacks_warm_up = (
            self._n_tune == 0 and adaptation.needs_warm_up and not adaptation.is_tuned
        )
        if self._n_tune or not adaptation.needs_warm_up:
            return
        name = type(self).__name__
        if self._lacks_warm_up:
            if adaptation.is_whitened:
                message = (
                    f"{name} has not been tuned in this process, and tune=0 leaves no warm-up. "
                    "Sample with tune > 0, or specify the dynamics, such as step_size=. Settings "
                    "tuned with cores > 1 stay in the processes of the chains; to use them again "
                    "with tune=0, tune with cores=1."
                )
                raise SamplingError(see(message, "tune-0"))
            return
        initial = self.model.initial_point()
        names = [
            variable.name
            for variable in self.variables
            if np.allclose(point[variable.value_name], initial[variable.value_name])
        ]
        if names:
            every = [rv.name for rv in self.model.free_RVs]
            values = ", ".join(f'"{each}": posterior["{each}"].values[c, -1]' for each in every)
            message = (
                f"tune=0 continues with the settings that {name} tuned before, but "
                f"{', '.join(map(repr, names))} would start at the initial point of the model "
                "without burn-in, and the first draws would enter the result. Pass the last draws "
                f"of the tuned chains as starting points, initvals=[{{{values}}} for c in "
                "range(chains)], or sample with tune > 0."
            )
            raise SamplingError(see(message, "tune-0"))

    def _observe(self, position: np.ndarray, stats: dict[str, Any]) -> SamplerWarning | None:
        """Let the monitors observe a draw; return the first diagnosis after the last one."""
        for monitor in self.monitors:
            monitor.observe(position, stats)
        if self.draw < self._n_tune + self._n_draws - 1:
            return None
        names = [name for variable in self.variables for name in variable.number_names]
        for diagnose in self.diagnoses:
            diagnosis = diagnose(names)
            if diagnosis is not None:
                return self._warning(diagnosis)
        return None

    # --- points and vectors ----------------------------------------------------------------------

    def _moved_elsewhere(self, point: PointType) -> bool:
        """Whether another step has changed the values of a point."""
        for name, written in self._written.items():
            value = point[name]
            if value is not written and not np.array_equal(value, written):
                return True
        return False

    def _packed(self, point: PointType) -> np.ndarray:
        """Coordinates of the variables at a point, shape (size,)."""
        try:
            return self.packing.pack(point)
        except StartError as error:
            message = (
                f"{type(self).__name__} cannot start from the value of {error.name!r}: "
                f"{error.reason} Give {error.name!r} another initial value (initval= or initvals=)."
            )
            raise ValueError(see(message, "start")) from error

    def _unpacked(self, position: np.ndarray, point: PointType) -> PointType:
        """Point with the values of the variables at coordinates, and those of local variables."""
        written = self.packing.unpack(position)
        self._written.update(written)
        point = {**point, **written}
        self.estimator.write_local(point)
        return point

    def begin_local_anew(self, point: PointType) -> PointType:
        """Begin the local variables anew, whatever an earlier chain has left.

        Parameters
        ----------
        point : dict
            Of a chain that has no values of them.

        Returns
        -------
        dict
            With values of the local variables, which are no draws.
        """
        point = dict(point)
        self.estimator.forget_local()
        self.estimator.write_local(point)
        self._has_local_values = True
        return point

    def funnel_diagnosis(
        self, find: Callable[[Collection[tuple[str, str]]], Funnel | None]
    ) -> Diagnosis | None:
        """Diagnose a variable that sets the scale of another.

        Parameters
        ----------
        find : callable
            Pairs (scale, dependent variable) of the model → funnel or None.
        """
        pairs = hierarchical_pairs(self.model, [each.name for each in self.variables])
        funnel = find(pairs)
        return None if funnel is None else funnel.diagnosis(pairs)

    # --- errors and warnings ---------------------------------------------------------------------

    @property
    def _names(self) -> str:
        return ", ".join(repr(variable.name) for variable in self.variables)

    def _names_of(self, vector: np.ndarray) -> str:
        """Variables whose part of a vector is not finite."""
        return ", ".join(
            repr(name)
            for name, part in self.product.slices.items()
            if vector.size and not np.all(np.isfinite(vector[part]))
        )

    def _warning(self, diagnosis: Diagnosis) -> SamplerWarning:
        sampled = ", ".join(variable.name for variable in self.variables)
        source = f"{type(self).__name__}[{sampled}]"
        message = diagnosis.message(source, self.sampler.adaptation.minibatch_remedy)
        return SamplerWarning(WarningType.BAD_PARAMS, message, "warn")

    def _check_terms(self, point: PointType, *, thoroughly: bool = False) -> None:
        """Raise an error where the log-density is not finite, which no proposal would leave."""
        if self._log_terms is None:
            source = self.estimator.source
            placeholders = {*source.arrays, *source.whole} if source.moves else ()
            self._log_terms = LogTerms(self.model, placeholders, self._edge_names)
        if not (thoroughly or self._log_terms.fails(point)):
            return
        report = self._log_terms.report(point)
        if report is not None:
            message = (
                f"the log-density is not finite where {type(self).__name__} starts to sample "
                f"{self._names}, and no step size helps. {report}."
            )
            raise SamplingError(see(message, "start"))

    def _failure(self, error: NotFiniteError, point: PointType) -> SamplingError:
        """Name the variables, and the remedy."""
        name = type(self).__name__
        if error.at_start:
            if error.what == "log-density":
                self._check_terms(point, thoroughly=True)
            message = (
                f"the {error.what} in {self._names_of(error.vector) or self._names} is not finite "
                f"where {name} starts: no step size helps. Look for NaN in the data and give other "
                "initial values (initval=); model.debug() shows which term is to blame."
            )
            return SamplingError(see(message, "start"))
        message = (
            f"{name} met a {self._names_of(error.vector) or error.what} that is not finite while "
            f"sampling {self._names} with step size {error.step_size:.3g} at draw {self.draw}. Try "
            "a smaller step_size, more tuning draws, or model.debug() at the starting point."
        )
        return SamplingError(see(message, "not-finite"))

    # --- progress bar ----------------------------------------------------------------------------

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list, dict[str, list]]:
        columns = [
            TextColumn(
                "{task.fields[" + name + "]:" + template + "}",
                table_column=Column(title, ratio=1),
            )
            for name, template, title in cls._progress_stats
        ]
        first = {
            name: "" if template.endswith("s") else 0.0 for name, template, _ in cls._progress_stats
        }
        return columns, {name: [value] * n_chains for name, value in first.items()}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[dict], dict]]:
        names = [name for name, _, _ in cls._progress_stats]

        def update_stats(stats: dict) -> dict:
            return {name: stats[name] for name in names}

        return (update_stats,)


UNTUNED = Diagnosis(
    quantity="number of tuning draws",
    value=0.0,
    expected=1.0,
    limit="at least ",
    consequence=(
        "the step has not been tuned in this process, its step size comes from a few gradients at "
        "the starting point, and there is no burn-in"
    ),
    remedy=(
        "Sample with tune > 0. Settings tuned with cores > 1 stay in the processes of the chains; "
        "to use them again with tune=0, tune with cores=1."
    ),
    anchor="tune-0",
)


def another_model(name: str, own: Model, other: Model) -> str:
    """Describe that a step was made in one model and is used in another."""
    made, used = (_described(each) for each in (own, other))
    again = "; the model was built again after the step was made" if made == used else ""
    return see(
        f"{name} was made in {made} and is used in another model, {used}{again}. Make the step in "
        f"the model that is sampled: with model: step = {name}(...)",
        "another-model",
    )


def _described(model: Model) -> str:
    """Describe a model by its name, if it has one, and its free variables."""
    called = f"model {model.name!r}" if model.name else "a model"
    return f"{called} with the free variables {[rv.name for rv in model.free_RVs]}"


def warn_of_square_frames(name: str, variables: Sequence[ManifoldVariable]) -> None:
    """Warn of orthogonal matrices, whose determinant keeps its sign along a chain."""
    for variable in variables:
        if variable.manifold.is_connected:
            continue
        message = (
            f"{variable.name!r} is an orthogonal matrix of shape {variable.shape}, and {name} "
            "never changes the sign of its determinant: each chain samples the component of its "
            "initial value. Use GMC, which proposes the other sign, or set initvals= of one "
            "component if it holds all of the posterior"
        )
        warnings.warn(
            see(message, "square-frames"),
            UserWarning,
            skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
        )


def global_variables(
    name: str,
    model: Model,
    every: Sequence[ManifoldVariable],
    local: Sequence[ManifoldVariable],
) -> list[ManifoldVariable]:
    """Variables that are not local, Euclidean ones first: a metric joins these.

    Raises
    ------
    ValueError
        If there is none.
    """
    local_values = [variable.value for variable in local]
    found = sorted(
        (variable for variable in every if variable.value not in local_values),
        key=lambda variable: not variable.manifold.is_flat,
    )
    if not every:
        free = [rv.name for rv in model.free_RVs]
        raise ValueError(
            f"{name} samples continuous variables, and none of the free variables {free} is one; "
            "leave them to PyMC's steps, pm.sample()"
        )
    if not found:
        raise ValueError("local= names every variable; leave at least one global variable")
    return found
