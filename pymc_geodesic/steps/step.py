"""Base class of the step methods, which connects a PyMC model to a sampler on a vector."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from pytensor.graph import Variable

from pymc_geodesic.adaptation.eligibility import minibatch_remedy
from pymc_geodesic.arguments import check_compile_kwargs
from pymc_geodesic.counts.count_estimator import LikelihoodError
from pymc_geodesic.densities.centered_effects import with_centered_effects
from pymc_geodesic.densities.cholesky_factors import with_correlations
from pymc_geodesic.densities.model_terms import LogTerms
from pymc_geodesic.densities.named_axes import without_named_axes
from pymc_geodesic.densities.variables import manifold_variables, product_of
from pymc_geodesic.gradients.estimator import Estimator, GradientEstimator
from pymc_geodesic.manifolds import Manifold, Product
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, rows_as_containers
from pymc_geodesic.minibatches.row_inputs import check_observed_minibatches
from pymc_geodesic.monitoring.diagnosis import Diagnose, Diagnosis, DrawMonitor
from pymc_geodesic.runtime.gradient_functions import NotFiniteError
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.threads import limit_blas_threads
from pymc_geodesic.samplers.sampler import Sampler
from pymc_geodesic.steps.checks import (
    UNTUNED,
    StepsOfChain,
    check_burn_in,
    check_log_density,
    check_no_masked_data,
    check_smoothness,
    data_values,
    divergence_error,
    draws_minibatches,
    global_variables,
    invalid_start_error,
    untuned_error,
    warn_about_backend,
    warn_about_changed_data,
    warn_about_memory,
    warn_about_short_warm_up,
    warn_about_square_frames,
    wrong_model_error,
)
from pymc_geodesic.steps.jitter import max_jitters, with_jitter
from pymc_geodesic.steps.packing import CenteredPacking, ManifoldPacking, Packing, StartError
from pymc_geodesic.steps.progress import Progress, progress_columns
from pymc_geodesic.steps.pymc_interface import (
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
    arguments_of_sample,
    dataclass_state,
    get_random_generator,
    modelcontext,
)

_log = logging.getLogger("pymc")

LOCAL_TUNE_STEPS = 2000
"""Default number of tuning draws with local variables, which need slow temperature annealing."""

_STEPS_OF_CHAIN = StepsOfChain()
"""Steps that are set up for the current chain."""


@dataclass_state
class GeodesicStepState(StepMethodState):
    """State of a step method between two draws, which determines all further draws.

    PyMC reads and writes the fields as attributes of the step; the nested states are properties of
    `GeodesicStep`. The numbers of tuning and posterior draws are not fields:
    `GeodesicStep.setup_chain` sets them, and pickles contain them.

    Attributes
    ----------
    manifold_names : list of str
        Manifold of each variable; a state can only be restored if they agree.
    draw : int
        Number of draws so far, including the warm-up.
    tune : bool
        Whether the step is in the warm-up.
    sampler_state : dict
        State of the chain, including that of the adaptation.
    monitor_states : list of dict
        Running sums of the monitors.
    estimate_state : dict
        State of the minibatch order, and of adapted parts of the estimator.
    """

    manifold_names: list[str] = field(metadata={"frozen": True})
    draw: int
    tune: bool
    sampler_state: dict
    monitor_states: list
    estimate_state: dict


class GeodesicStep(BlockedStep):
    """Abstract base class of the step methods.

    A subclass sets ``estimator``, ``adaptation``, ``sampler``, ``monitors`` and
    ``diagnose_functions`` in its constructor and overrides no method. `pymc.sample` calls

    - `vars`, before any chain;
    - ``__getstate__`` and ``__setstate__``, to send the step to the worker process of each chain,
      or in one process `sampling_state`, to begin each chain with the same state;
    - `setup_chain`, once for each chain;
    - `step`, once for each draw;
    - ``stop_tuning`` of PyMC's base after the warm-up, which sets ``tune`` to False.

    PyMC's ``__new__`` reads the argument ``blocked`` of subclasses: with ``blocked=False`` it
    constructs one step for each variable.

    Parameters
    ----------
    vars, model, rng, compile_kwargs
        See `pymc_geodesic.SGGMC`.
    minibatches : MinibatchArguments
    local : variables or names, optional
        Variables with one value for each row of the minibatch.
    manifolds : mapping of str to Manifold class, optional
        Manifold by variable name.
    manifold : Manifold class, optional
        Manifold of all variables, instead of those that their transforms imply.
    may_reparametrize : bool
        Whether group effects scale × offset may be sampled in centered form, and Cholesky factors
        as standard deviations and correlations; see `with_centered_effects`, `with_correlations`.
    is_corrected : bool
        Whether a Metropolis correction rejects proposals outside the support of the density.
    starts_at_edges : bool
        Whether a chain may start where the density of a variable is zero or infinite.

    Attributes
    ----------
    model : pymc.Model
        The user's model, or a copy without named axes, with the rows of minibatches in data
        containers and with effects in centered form. `variables` belong to it.
    vars : list of TensorVariable
        Value variables of the user's model that the step samples.
    streamed : tuple of str
        Names of the data whose rows come from ``batches=`` and not from the model.
    manifold_names : list of str
        Manifold of each variable, a field of the state.
    variables, local : list of ManifoldVariable
        Variables that the sampler moves, Euclidean ones first, and variables of the rows.
    product : Product
        Product of their manifolds.
    packing : Packing
        Map between their values and one vector.
    centered : list of str
        Names of the offsets that are replaced by effects; see `with_centered_effects`.
    minibatches : MinibatchArguments
        The argument, with the names of the data whose rows are found in the model.
    rows : ModelRows or None
        The data whose rows are found in the model; None if all rows are used, or if data
        containers are named.
    estimator : Estimator
        Gradient or counts, estimated from minibatches.
    adaptation
        Adaptation of the sampler; its ``repr`` shows what is adapted.
    sampler : Sampler
        A Markov chain on a vector.
    monitors : sequence of DrawMonitor
        Monitors of the draws after the warm-up.
    diagnose_functions : sequence of callable
        Functions of the coordinate names that return a diagnosis or None. The first diagnosis that
        is not None is the warning of a chain.
    """

    default_blocked = True
    stats_dtypes_shapes: dict = {}
    _state_class = GeodesicStepState
    _progress_stats: ClassVar[Progress] = ()
    __signature__: ClassVar[inspect.Signature]

    estimator: Estimator
    adaptation: Any
    sampler: Sampler
    monitors: Sequence[DrawMonitor]
    diagnose_functions: Sequence[Diagnose]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Set the signature to that of the constructor, which PyMC's ``__new__`` would hide."""
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
        manifold: type[Manifold] | None = None,
        may_reparametrize: bool = False,
        is_corrected: bool = False,
        starts_at_edges: bool = False,
        model: Model | None,
        rng: RandomGenerator,
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        check_compile_kwargs(compile_kwargs)
        name = type(self).__name__
        self._user_model = modelcontext(model)  # that of `pymc.sample`
        check_no_masked_data(self._user_model)
        self.model, self.minibatches, self.rows = rows_as_containers(
            without_named_axes(self._user_model), minibatches, has_local=local is not None
        )
        if self.rows is not None:
            size = self.minibatches.batch_size
            _log.info(f"{name}: {f'minibatches of {int(size)} of ' if size else ''}{self.rows!r}")
        sampled = manifold_variables(
            self.model, self._names_in_copy(vars), manifolds, manifold=manifold
        )
        if isinstance(local, str) and local in self.model.dim_lengths:
            dims = self.model.named_vars_to_dims
            local = [v.name for v in self.model.free_RVs if dims.get(v.name, ())[:1] == (local,)]
        local_names = self._names_in_copy(local)
        self.local = (
            [] if local is None else manifold_variables(self.model, local_names, by_row=True)
        )
        if chosen := [each.name for each in self.local if each.name in (manifolds or {})]:
            raise ValueError(
                f"manifolds= has no effect on {chosen}, which local= names. Remove them from "
                "manifolds="
            )
        self._mode = dict(compile_kwargs or {}).get("mode")
        self._checked_compile_kwargs: Mapping[str, Any] | None = None
        self.variables = global_variables(name, self.model, sampled, self.local)
        if not is_corrected or self.local:
            warn_about_square_frames(name, (*self.variables, *self.local))
        check_observed_minibatches(self.model)
        if not is_corrected:
            check_smoothness(name, self.model, self.variables, self.minibatches)
        values = {value.name: value for value in self._user_model.value_vars}
        self.vars = [values[each.value_name] for each in (*self.variables, *self.local)]
        self.manifold_names = [str(variable.manifold) for variable in self.variables]
        self.product: Product = product_of(self.variables)
        self.packing: Packing = ManifoldPacking(self.variables, self.product)
        # with the variables of the points of `pymc.sample`
        self._model_of_points = self.model
        self.centered: list[str] = []
        draws_rows = draws_minibatches(self.model)
        if may_reparametrize:
            has_minibatches = bool(self.minibatches.names or draws_rows)
            self._reparametrize(centers_effects=self.samples_all and has_minibatches)
        self.streamed = self.minibatches.streamed
        self._has_partial_data = bool(self.streamed) or draws_rows
        has_rows = any(rv.type.ndim > 0 for rv in self.model.observed_RVs)
        uses_all = not (self.minibatches.names or self._has_partial_data)
        if has_rows and uses_all and not is_corrected:
            _log.info(f"{name}: gradients of all rows, since batch_size= is not set")
        self._starts_at_edges = starts_at_edges
        self.rng = get_random_generator(rng)
        self.draw, self.tune = 0, True
        self._n_tune = self._n_draws = self._max_jitters = 0
        self._has_started = self._has_local_values = False
        self._data_of_warm_up: dict[str, list[np.ndarray]] = {}
        # values of the last draw, for `_changed_by_other_step`
        self._last_values: dict[str, np.ndarray] = {}

    def _reparametrize(self, *, centers_effects: bool) -> None:
        """Sample Cholesky factors as correlations, and effects scale × offset in centered form."""
        effects = None
        if centers_effects:
            self.model, effects = with_centered_effects(self.model, self.minibatches.n_rows)
        self.model, self.variables = with_correlations(
            self.model, [variable.in_model(self.model) for variable in self.variables]
        )
        self.packing = ManifoldPacking(self.variables, self.product)
        if effects is not None:
            self.packing, self.centered = CenteredPacking(self.packing, effects), effects.names
            names = ", ".join(map(repr, effects.names))
            _log.info(f"{type(self).__name__}: group effects scale × {names} are in centered form")

    @property
    def vars(self) -> list[TensorVariable]:
        """Value variables that the step samples.

        `pymc.sample` reads them in the main process before any chain begins and calls no method of
        the step at that time. Therefore this property compares model and backend of `pymc.sample`
        with those of the step.

        Raises
        ------
        ValueError
            In the context of another model, which does not contain the variables, or if data have
            missing values.
        """
        model = Model.get_context(error_if_none=False, allow_block_model_access=True)
        if isinstance(model, Model) and not set(self._vars) <= set(model.value_vars):
            raise wrong_model_error(type(self).__name__, self._user_model, model)
        check_no_masked_data(self._user_model)
        self._check_arguments_of_sample()
        return self._vars

    @vars.setter
    def vars(self, values: list[TensorVariable]) -> None:
        self._vars = values

    def _names_in_copy(self, given: Any) -> Any:
        """Replace variables of the user's model by their names, which the copy has too."""
        model = self._user_model
        if isinstance(given, Variable) and self.model is not model:
            rv = model.values_to_rvs.get(given, given)
            return rv.name if model.named_vars.get(rv.name) is rv else given
        is_several = isinstance(given, Iterable) and not isinstance(given, str)
        if self.model is model or not is_several:
            return given
        return [self._names_in_copy(each) for each in given]

    def _check_arguments_of_sample(self) -> None:
        """Read jitter; warn once of another backend, of much memory, and of a short warm-up."""
        arguments = arguments_of_sample()
        if arguments is None:
            return
        self._max_jitters = max_jitters(arguments)
        given = arguments["compile_kwargs"]
        if given is self._checked_compile_kwargs:
            return
        self._checked_compile_kwargs = given
        if given:
            warn_about_backend(type(self).__name__, given.get("mode", self._mode), self._mode)
        if self.adaptation.needs_warm_up:
            warn_about_short_warm_up(type(self).__name__, arguments["tune"])
        if arguments["trace"] is None:
            n_draws = arguments["chains"] * arguments["draws"]
            warn_about_memory(self._user_model, n_draws, arguments["var_names"])

    @property
    def samples_all(self) -> bool:
        """Whether the step samples all free variables of the model."""
        return len(self.model.free_RVs) == len(self.variables) + len(self.local)

    def remedy_of_slow_mixing(self, remedy: str) -> str:
        """Precede a remedy by that of a step that does not sample all variables."""
        if self.samples_all:
            return remedy
        return f"Let one step sample all variables, if it can. {remedy}"

    def _set_up_local_stats(self) -> None:
        """Add the acceptance rate of local variables to the stats; increase the default tune."""
        self.default_tune_steps = LOCAL_TUNE_STEPS
        self.stats_dtypes_shapes = {**self.stats_dtypes_shapes, "acceptance_rate": (np.float64, [])}
        self.stats_dtypes = [{k: dtype for k, (dtype, _) in self.stats_dtypes_shapes.items()}]

    # --- a chain -------------------------------------------------------------------------------

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Prepare for one chain; see `pymc.step_methods.compound.BlockedStep.setup_chain`."""
        super().setup_chain(rng, tune, draws)
        if self._has_partial_data:
            _STEPS_OF_CHAIN.add(self._user_model, self)
        stream = new_stream(self.rng)
        limit_blas_threads(os.getpid())
        self.estimator.source.refresh()
        self.estimator.refresh_data()
        self.estimator.reset(int(self.rng.integers(2**63)))
        self._n_tune, self._n_draws = tune, draws
        self.draw, self.tune = 0, tune > 0
        if tune:
            self._data_of_warm_up = data_values(self._user_model)
        self.sampler.initialize(stream, tune, draws)
        self._reset_point()
        for monitor in self.monitors:
            monitor.initialize(draws)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Generate one draw.

        Parameters
        ----------
        point : dict
            Values of all free variables of the model.

        Returns
        -------
        point : dict
            The point with new values of the variables of the step.
        stats : list of one dict
            Sample stats; those of the last draw contain the first diagnosis as ``warning``.
        """
        if self.draw == 0:
            self._check_start(point)
        try:
            self.estimator.set_others(point)
            if not self._has_started or self._changed_by_other_step(point):
                self._start(point)
            if not self._has_local_values:
                self.estimator.read_local(point)
                self._has_local_values = True
            self.sampler.set_others(point)
            with self.estimator.draw_context():
                stats = self.sampler.draw(tune=self.tune)
        except NotFiniteError as error:
            raise self._divergence_error(error, point) from error
        except LikelihoodError as error:
            raise SamplingError(f"at draw {self.draw} {error}") from error
        position = self.sampler.position
        stats["warning"] = self._monitor(position, stats)
        self.draw += 1
        kept = {name: stats[name] for name in self.stats_dtypes_shapes}
        return self._unpacked(position, point), [kept]

    def _start(self, point: PointType) -> None:
        """Set the position of the sampler, with jitter at the start of a warm-up; see `jitter`."""
        has_jitter = self.draw == 0 and self._n_tune and self.sampler.adaptation.whitens
        if has_jitter and self._max_jitters:
            point = with_jitter(
                point,
                self.variables,
                self.rng,
                self._max_jitters,
                self._gradient_of_points(),
                self._log_terms,
            )
        self.sampler.start(self._packed(point))
        self._has_started = True

    def _gradient_of_points(self) -> Callable[[PointType], np.ndarray]:
        """Gradient of the next minibatch, or of all rows, as a function of points."""
        estimator = self.estimator
        assert isinstance(estimator, GradientEstimator)
        (minibatch,) = estimator.next_minibatches(1)
        return lambda point: estimator.gradient_at(self._packed(point), int(minibatch))

    def _check_start(self, point: PointType) -> None:
        """Check the first point of a chain, and that a chain without warm-up has been tuned."""
        name, adaptation = type(self).__name__, self.sampler.adaptation
        check_log_density(name, self.variables, self._log_terms, point)
        if self._has_partial_data:
            _STEPS_OF_CHAIN.check(self._user_model, self)
        if self._n_tune or not adaptation.needs_warm_up:
            return
        if adaptation.is_tuned:
            check_burn_in(name, self._model_of_points, self.variables, point)
            warn_about_changed_data(name, self._user_model, self._data_of_warm_up)
        elif adaptation.whitens:
            raise untuned_error(name)

    def _monitor(self, position: np.ndarray, stats: dict[str, Any]) -> SamplerWarning | None:
        """Pass a draw after the warm-up to the monitors, and return a warning or None.

        The last draw returns the first diagnosis as a warning; the first draw returns `UNTUNED` if
        there was no warm-up. PyMC logs a warning when a draw returns it.
        """
        if self.tune:
            return None
        for monitor in self.monitors:
            monitor.observe(position, stats)
        if self.draw >= self._n_tune + self._n_draws - 1:
            names = [name for variable in self.variables for name in variable.coordinate_names]
            for diagnose in self.diagnose_functions:
                diagnosis = diagnose(names)
                if diagnosis is not None:
                    return self._warning(diagnosis)
        if self.draw > 0 or self._n_tune:
            return None
        adaptation = self.sampler.adaptation
        is_untuned = adaptation.needs_warm_up and not adaptation.is_tuned
        return self._warning(UNTUNED) if is_untuned else None

    def _warning(self, diagnosis: Diagnosis) -> SamplerWarning:
        sampled = ", ".join(variable.name for variable in self.variables)
        source = f"{type(self).__name__}[{sampled}]"
        message = diagnosis.message(source, minibatch_remedy(self.sampler.ineligibility))
        return SamplerWarning(WarningType.BAD_PARAMS, message, "warn")

    def _divergence_error(self, error: NotFiniteError, point: PointType) -> SamplingError:
        name = type(self).__name__
        if error.at_start and error.what == "log-density":
            check_log_density(name, self.variables, self._log_terms, point, thoroughly=True)
        where = ", ".join(
            repr(variable)
            for variable, part in self.product.slices.items()
            if error.vector.size and not np.all(np.isfinite(error.vector[part]))
        )
        return divergence_error(name, self.variables, error, where, self.draw)

    @functools.cached_property
    def _log_terms(self) -> LogTerms:
        """Log-density of each term of the model."""
        source = self.estimator.source
        return LogTerms(
            self._model_of_points,
            {*source.arrays, *source.whole} if source.replaces_arrays else (),
            [variable.name for variable in self.variables] if self._starts_at_edges else [],
        )

    # --- points and vectors ----------------------------------------------------------------------

    def _changed_by_other_step(self, point: PointType) -> bool:
        """Whether another step has changed the values since the last draw."""
        for name, last in self._last_values.items():
            value = point[name]
            if value is not last and not np.array_equal(value, last):
                return True
        return False

    def _packed(self, point: PointType) -> np.ndarray:
        """Coordinates of the variables at a point, shape (size,)."""
        try:
            return self.packing.pack(point)
        except StartError as error:
            raise invalid_start_error(type(self).__name__, error) from error

    def _unpacked(self, position: np.ndarray, point: PointType) -> PointType:
        """Point with new values of the variables, and of the local variables."""
        values = self.packing.unpack(position)
        self._last_values.update(values)
        point = {**point, **values}
        self.estimator.write_local(point)
        return point

    def _reset_point(self) -> None:
        """Discard the values of the last draw, which may belong to another chain."""
        self._last_values = {}
        self._has_local_values = False
        self._has_started = self.sampler.position.size > 0

    def restart_local(self, point: PointType) -> PointType:
        """Initialize the local variables, which may have values of an earlier chain.

        Parameters
        ----------
        point : dict
            Values of the other variables.

        Returns
        -------
        dict
            The point with initial values of the local variables, which are not draws.
        """
        point = dict(point)
        self.estimator.forget_local()
        self.estimator.write_local(point)
        self._has_local_values = True
        return point

    # --- state and processes -----------------------------------------------------------------

    @property
    def sampler_state(self) -> dict[str, Any]:
        """State of the chain, including that of the adaptation."""
        return self.sampler.state

    @sampler_state.setter
    def sampler_state(self, state: dict[str, Any]) -> None:
        self.sampler.state = state

    @property
    def monitor_states(self) -> list[dict[str, Any]]:
        """Running sums of the monitors."""
        return [monitor.state for monitor in self.monitors]

    @monitor_states.setter
    def monitor_states(self, states: list[dict[str, Any]]) -> None:
        for monitor, state in zip(self.monitors, states, strict=True):
            monitor.state = state

    @property
    def estimate_state(self) -> dict[str, Any]:
        """State of the minibatch order, and of adapted parts of the estimator."""
        return self.estimator.state

    @estimate_state.setter
    def estimate_state(self, state: dict[str, Any]) -> None:
        self.estimator.state = state

    def _set_sampling_state(self, state: DataClassState) -> None:
        WithSamplingState.sampling_state.fset(self, state)
        self._reset_point()

    sampling_state = property(WithSamplingState.sampling_state.fget, _set_sampling_state)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without compiled functions, which are compiled again."""
        numbers = self._n_tune, self._n_draws, self._max_jitters
        return {"sampling_state": self.sampling_state, "numbers": numbers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # the arguments of the constructor, which PyMC's ``__new__`` keeps and passes to `pickle`
        (names, *others), named = self.__getnewargs_ex__()
        type(self).__init__(self, None if names == [None] else names, *others, **named)
        self._n_tune, self._n_draws, self._max_jitters = state["numbers"]
        for monitor in self.monitors:
            monitor.initialize(self._n_draws)
        self.sampling_state = state["sampling_state"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an independent copy in the same model, which PyMC would clone."""
        return copy.copy(self)  # by `__getstate__` and `__setstate__`: constructs the step again

    # --- progress bar ----------------------------------------------------------------------------

    @classmethod
    def _progressbar_config(cls, n_chains: int = 1) -> tuple[list, dict[str, list]]:
        return progress_columns(cls._progress_stats, n_chains)

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[dict], dict]]:
        names = [stat for stat, _, _ in cls._progress_stats]
        return (lambda stats: {name: stats[name] for name in names},)
