"""Checks of models, variables, starting points and combinations of steps, with error messages.

Each message names the step and the variables, and states the remedy.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import numpy as np
import pymc

from pymc_geodesic.densities.model_terms import LogTerms, logp_terms
from pymc_geodesic.densities.row_dependence import variables_coupled_to_rows
from pymc_geodesic.densities.smoothness import edge_message, find_edges, find_jumps, jump_message
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments
from pymc_geodesic.minibatches.row_inputs import (
    container_values,
    drawn_rows,
    model_graphs,
    shape_of,
)
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.runtime.gradient_functions import NotFiniteError
from pymc_geodesic.runtime.missing_values import missing_message
from pymc_geodesic.steps.packing import StartError
from pymc_geodesic.steps.pymc_interface import (
    Model,
    PointType,
    SamplingError,
    TensorVariable,
    backend_of,
)

_PACKAGE = str(Path(__file__).parents[1])

_log = logging.getLogger("pymc")

MIN_TUNE = 100
"""Number of tuning draws below which a warning is logged. Heuristic."""

MAX_DRAW_BYTES = 1e9
"""Memory of all draws of `pymc.sample`, in bytes, above which a warning is logged."""

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
"""Warning for a chain without a warm-up if some parameters are adapted."""


def global_variables(
    name: str,
    model: Model,
    every: Sequence[ManifoldVariable],
    local: Sequence[ManifoldVariable],
) -> list[ManifoldVariable]:
    """Select the variables that are not local, Euclidean ones first, as a metric requires.

    Parameters
    ----------
    name : str
        Name of the step.
    model : pymc.Model
    every, local : sequence of ManifoldVariable
        All variables to sample, and those with one value for each row.

    Raises
    ------
    ValueError
        If there are none.
    """
    local_values = [variable.value for variable in local]
    found = sorted(
        (variable for variable in every if variable.value not in local_values),
        key=lambda variable: not variable.manifold.is_flat,
    )
    if not every:
        free = [rv.name for rv in model.free_RVs]
        raise ValueError(
            f"{name} samples continuous variables, and none of the free variables {free} is "
            "continuous. Leave them to PyMC's step methods, pm.sample()"
        )
    if not found:
        raise ValueError("local= names every variable. Leave at least one global variable")
    return found


def check_smoothness(
    name: str,
    model: Model,
    variables: Sequence[ManifoldVariable],
    minibatches: MinibatchArguments,
) -> None:
    """Check that the log-density has no jumps and no moving boundary, which gradients miss.

    Parameters
    ----------
    name : str
        Name of the step, which has no Metropolis correction.
    model : pymc.Model
    variables : sequence of ManifoldVariable
    minibatches : MinibatchArguments

    Raises
    ------
    ValueError
        If a term has a jump, or a boundary that depends on variables.
    """
    terms = logp_terms(model)
    for term, names in find_edges(model, variables, terms):
        raise ValueError(edge_message(name, term, names))
    for term, names in find_jumps(model, variables, terms, minibatches.minibatch):
        raise ValueError(jump_message(name, term, names))


def warn_about_square_frames(name: str, variables: Sequence[ManifoldVariable]) -> None:
    """Warn about orthogonal matrices, whose determinant keeps its sign along a chain."""
    for variable in variables:
        if variable.manifold.is_connected:
            continue
        message = (
            f"{variable.name!r} is an orthogonal matrix of shape {variable.shape}, and {name} "
            "never changes the sign of its determinant: each chain samples the component of its "
            "initial value. Use GMC, which proposes the other sign, or, if all of the posterior "
            "is in one component, set initvals= to values of that component"
        )
        warnings.warn(
            see(message, "square-frames"),
            UserWarning,
            skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
        )


def warn_about_backend(name: str, mode: Any, own_mode: Any) -> None:
    """Warn if the backend of `pymc.sample` differs from that of the step.

    Parameters
    ----------
    name : str
        Name of the step method.
    mode, own_mode : Mode, str or None
        Modes of `pymc.sample` and of the step.
    """
    wanted, own = backend_of(mode), backend_of(own_mode)
    if wanted == own:
        return
    message = (
        f"pm.sample(backend=...) has no effect on {name}, which has already been created and "
        f'compiles its gradients in mode "{own}", not "{wanted}". Set '
        f'compile_kwargs={{"mode": "{wanted}"}} in {name}(...)'
    )
    warnings.warn(
        see(message, "backend"),
        UserWarning,
        skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
    )


def warn_about_memory(model: Model, n_draws: int, var_names: Collection[str] | None) -> None:
    """Warn if the draws need more than `MAX_DRAW_BYTES`, often for deterministics of each row.

    Parameters
    ----------
    model : pymc.Model
    n_draws : int
        Number of draws of all chains.
    var_names : collection of str or None
        Names of the variables to store; all if None.
    """
    stored = [each for each in model.unobserved_RVs if var_names is None or each.name in var_names]
    sizes = {}
    for each in stored:
        size = math.prod(length or 0 for length in shape_of(each))  # 0 for unknown lengths
        sizes[each.name] = size * n_draws * np.dtype(each.type.dtype).itemsize
    total = sum(sizes.values())
    if total <= MAX_DRAW_BYTES:
        return
    largest = [name for name, size in sizes.items() if size > 0.1 * total]
    message = (
        f"{n_draws:,} draws of {largest} need {total / 1e9:.1f} GB of memory. Name the variables "
        "to store, pm.sample(var_names=[...]), and compute the others afterwards with "
        "pm.compute_deterministics"
    )
    _log.warning(see(message, "memory"))


def warn_about_short_warm_up(name: str, tune: int | None) -> None:
    """Warn if ``tune=`` of `pymc.sample` is positive, and too short to adapt a step."""
    if tune is not None and 0 < tune < MIN_TUNE:
        message = (
            f"tune={tune} is too short for the warm-up of {name}. Use at least {MIN_TUNE} tuning "
            "draws, or the default"
        )
        _log.warning(see(message, "tune-0"))


def wrong_model_error(name: str, own: Model, other: Model) -> ValueError:
    """Error for a step that was created in one model and is used in another."""
    made, used = (_describe(each) for each in (own, other))
    again = "; the model was built again after the step was created" if made == used else ""
    message = (
        f"{name} was created in {made} but is used in {used}{again}. Create the "
        f"step in the model that is sampled: with model: step = {name}(...)"
    )
    return ValueError(see(message, "another-model"))


def _describe(model: Model) -> str:
    """Describe a model by its name, if it has one, and its free variables."""
    named = f"model {model.name!r}" if model.name else "a model"
    return f"{named} with the free variables {[rv.name for rv in model.free_RVs]}"


def untuned_error(name: str) -> SamplingError:
    """Error for a step that needs a warm-up and has had none."""
    message = (
        f"{name} has not been tuned in this process, and tune=0 skips the warm-up. "
        "Sample with tune > 0, or specify the dynamics, such as step_size=. Settings "
        "tuned with cores > 1 stay in the processes of the chains; to use them again "
        "with tune=0, tune with cores=1."
    )
    return SamplingError(see(message, "tune-0"))


def check_burn_in(
    name: str, model: Model, variables: Sequence[ManifoldVariable], point: PointType
) -> None:
    """Check that a chain without warm-up does not start at the model's initial point.

    Parameters
    ----------
    name : str
        Name of the step, which has been tuned before.
    model : pymc.Model
    variables : sequence of ManifoldVariable
    point : dict
        Starting point of the chain.

    Raises
    ------
    SamplingError
        If a variable has its initial value, since there is no burn-in.
    """
    initial = model.initial_point()
    names = [
        variable.name
        for variable in variables
        if np.allclose(point[variable.value_name], initial[variable.value_name])
    ]
    if not names:
        return
    every = [rv.name for rv in model.free_RVs]
    values = ", ".join(f'"{each}": posterior["{each}"].values[c, -1]' for each in every)
    message = (
        f"tune=0 reuses the settings that {name} has tuned, but "
        f"{', '.join(map(repr, names))} would start at the initial point of the model "
        "without burn-in, and the first draws would bias the result. Pass the last draws "
        f"of the tuned chains as starting points, initvals=[{{{values}}} for c in "
        "range(chains)], or sample with tune > 0."
    )
    raise SamplingError(see(message, "tune-0"))


def data_values(model: Model) -> dict[str, list[np.ndarray]]:
    """Return the present values of the data containers of a model, without copies."""
    return {each.name: container_values(each) for each in model.data_vars}


def check_no_masked_data(model: Model) -> None:
    """Check that `pymc.set_data` has not set missing values.

    Raises
    ------
    ValueError
    """
    for name, values in data_values(model).items():
        if any(map(np.ma.is_masked, values)):
            raise ValueError(missing_message(f"data container {name!r} has"))


def warn_about_changed_data(name: str, model: Model, tuned: Mapping[str, list[np.ndarray]]) -> None:
    """Warn if data containers have other values than when a step was tuned.

    Parameters
    ----------
    name : str
        Name of the step, which is used without warm-up.
    model : pymc.Model
    tuned : mapping of str to list of ndarray
        `data_values` of the model at that time.
    """
    changed = [
        each
        for each, values in data_values(model).items()
        if not all(map(is_, values, tuned.get(each, values)))
    ]
    if changed:
        message = (
            f"tune=0 keeps metric and step size that {name} has tuned with other data: "
            f"{', '.join(map(repr, changed))} changed since then. Draws can be slow to mix, and "
            "those of samplers without Metropolis correction wrong. Sample with tune > 0"
        )
        _log.warning(see(message, "tune-0"))


def check_log_density(
    name: str,
    variables: Sequence[ManifoldVariable],
    log_terms: LogTerms,
    point: PointType,
    *,
    thoroughly: bool = False,
) -> None:
    """Check that the log-density of each term is finite at the starting point of a chain.

    Parameters
    ----------
    name : str
        Name of the step.
    variables : sequence of ManifoldVariable
    log_terms : LogTerms
    point : dict
    thoroughly : bool
        Whether to evaluate terms of large data too.

    Raises
    ------
    SamplingError
        If a term is not finite: no proposal would be accepted.
    """
    if not (thoroughly or log_terms.fails(point)):
        return
    report = log_terms.report(point)
    if report is not None:
        message = (
            f"the log-density is not finite at the starting point of {name} for "
            f"{_names(variables)}, at any step size. {report}."
        )
        raise SamplingError(see(message, "start"))


def invalid_start_error(name: str, error: StartError) -> ValueError:
    """Error for an initial value that has no coordinates on its manifold."""
    message = (
        f"{name} cannot start from the value of {error.name!r}: "
        f"{error.reason} Give {error.name!r} another initial value (initval= or initvals=)."
    )
    return ValueError(see(message, "start"))


def divergence_error(
    name: str, variables: Sequence[ManifoldVariable], error: NotFiniteError, where: str, draw: int
) -> SamplingError:
    """Error for a position, velocity, gradient or log-density that is not finite.

    Parameters
    ----------
    name : str
        Name of the step.
    variables : sequence of ManifoldVariable
    error : NotFiniteError
        Error of the sampler.
    where : str
        Names of the variables whose coordinates are not finite; empty if unknown.
    draw : int
    """
    sampled = _names(variables)
    if error.at_start:
        message = (
            f"the {error.what} in {where or sampled} is not finite at the starting point of "
            f"{name}, at any step size. Check the data for NaN and use other initial values "
            "(initval=); model.debug() shows which term is not finite."
        )
        return SamplingError(see(message, "start"))
    if error.step_size is None:
        message = (
            f"the {error.what} in {where or sampled} is not finite near the draws of the first "
            f"phase of the warm-up of {name}, which ended at draw {draw}. Check the data for NaN "
            "and for values at which the log-density is not differentiable, or use all rows: omit "
            "batch_size=."
        )
        return SamplingError(see(message, "not-finite"))
    message = (
        f"{name} diverged at draw {draw}: {where or error.what} is not finite while sampling "
        f"{sampled} with step size {error.step_size:.3g}. Use a smaller step_size or more tuning "
        f"draws{'' if name == 'GMC' else ', or GMC'}; model.debug() at the starting point shows "
        "terms that are not finite."
    )
    return SamplingError(see(message, "not-finite"))


def _names(variables: Sequence[ManifoldVariable]) -> str:
    return ", ".join(repr(variable.name) for variable in variables)


def draws_minibatches(model: Model) -> bool:
    """Whether the log-density of a model is random, because it contains a `pymc.Minibatch`."""
    return bool(drawn_rows(model_graphs(model)))


class _Step(Protocol):
    """A step method.

    Attributes
    ----------
    model : pymc.Model
        Model in which the rows that the step divides into minibatches are data containers.
    vars : list of TensorVariable
        Value variables that it samples.
    streamed : tuple of str
        Names of the data whose rows come from ``batches=`` and not from the model.
    """

    model: Model
    vars: list[TensorVariable]
    streamed: tuple[str, ...]


@dataclass
class _ModelSteps:
    """Step methods of a model.

    Attributes
    ----------
    steps : list of weak references to step methods
        Those that are set up for the last chain.
    has_begun : bool
        Whether one of them has begun its first draw.
    """

    steps: list[ref[_Step]] = field(default_factory=list)
    has_begun: bool = False


class StepsOfChain:
    """Step methods of this package that are set up for the same chain.

    `pymc.sample` assigns a step to each variable without one, and steps have no access to each
    other. All steps are set up before the first draw, so that they can be registered here.
    """

    def __init__(self) -> None:
        self._by_model: WeakKeyDictionary[Model, _ModelSteps] = WeakKeyDictionary()

    def add(self, model: Model, step: _Step) -> None:
        """Register a step that is set up for a chain."""
        own = self._by_model.setdefault(model, _ModelSteps())
        if own.has_begun or any(each() is step for each in own.steps):
            own.steps, own.has_begun = [], False
        own.steps.append(ref(step))

    def check(self, model: Model, step: _Step) -> None:
        """Check at the first draw that no other step samples from the density of partial data.

        Raises
        ------
        ValueError
            If another step samples a variable of a model with a `pymc.Minibatch`, or a variable
            that depends on streamed data, of which the model contains one block only.
        """
        own = self._by_model.setdefault(model, _ModelSteps())
        own.has_begun = True
        found = [each() for each in own.steps]
        steps = [step, *(each for each in found if each is not None)]
        if step.streamed:
            check_streams(step.model, step, steps)
        if not draws_minibatches(model):
            return
        sampled = {value for each in steps for value in each.vars}
        left = [model.values_to_rvs[v].name for v in model.value_vars if v not in sampled]
        if left:
            message = (
                f"{left} would be sampled by another step method, whose log-density would use new "
                "random rows at each evaluation, since the model has a pm.Minibatch. Sample them "
                "with a step method of pymc_geodesic that takes minibatches, or write the model "
                f"with pm.Data containers and all rows, and set minibatch=[...] and batch_size= in "
                f"{type(step).__name__}(...)"
            )
            raise ValueError(see(message, "left-to-other-steps"))


def check_streams(model: Model, step: _Step, steps: Sequence[_Step]) -> None:
    """Check that no other step samples a variable from one block of a stream.

    Parameters
    ----------
    model : pymc.Model
    step : step method
        Step whose rows come from ``batches=``.
    steps : sequence of step methods
        All registered steps of the chain.

    Raises
    ------
    ValueError
        If a variable that depends on the rows is left to another step.
    """
    streamed = set(step.streamed)
    same = [each for each in steps if streamed <= set(each.streamed)]
    sampled = {value.name for each in same for value in each.vars}
    dependent = variables_coupled_to_rows(model, step.streamed)
    left = [model.values_to_rvs[value].name for value in dependent if value.name not in sampled]
    if left:
        message = (
            f"{left} would be sampled by another step method from the values of "
            f"{list(step.streamed)} in the model, and not from the rows of batches=. Add them to "
            f"the vars of {type(step).__name__}, or use another step method with the same batches="
        )
        raise ValueError(see(message, "left-to-other-steps"))
