"""Validation of models, variables, starting points and combinations of steps; errors of steps.

Each message names the step and the variables, and what to do.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Collection, Sequence
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
from pymc_geodesic.minibatches.row_inputs import drawn_rows, model_graphs, shape_of
from pymc_geodesic.samplers.sampler import NotFiniteError
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

MOST_MEMORY = 1e9
"""Bytes of all draws of `pymc.sample` above which a warning is logged."""


def global_variables(
    name: str,
    model: Model,
    every: Sequence[ManifoldVariable],
    local: Sequence[ManifoldVariable],
) -> list[ManifoldVariable]:
    """Variables that are not local, Euclidean ones first: a metric joins these.

    Parameters
    ----------
    name : str
        Of the step.
    model : pymc.Model
    every, local : sequence of ManifoldVariable
        All variables to sample, and those with one value for each row.

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


def check_smoothness(
    name: str,
    model: Model,
    variables: Sequence[ManifoldVariable],
    minibatches: MinibatchArguments,
) -> None:
    """Validate that gradients see all that the log-density does where variables move.

    Parameters
    ----------
    name : str
        Of the step, which has no Metropolis correction.
    model : pymc.Model
    variables : sequence of ManifoldVariable
    minibatches : MinibatchArguments

    Raises
    ------
    ValueError
        If a term has a moving edge, beyond which the density is zero, or a jump.
    """
    terms = logp_terms(model)
    for term, names in find_edges(model, variables, terms):
        raise ValueError(edge_message(name, term, names))
    for term, names in find_jumps(model, variables, terms, minibatches.minibatch):
        raise ValueError(jump_message(name, term, names))


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


def warn_of_backend(name: str, mode: Any, own_mode: Any) -> None:
    """Warn of a mode of `pymc.sample` that has another backend than the step.

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
        f"pm.sample(backend=...) has no effect on {name}, which was made before and compiles its "
        f'gradients in mode "{own}", not "{wanted}". Set compile_kwargs={{"mode": "{wanted}"}} in '
        f"{name}(...)"
    )
    warnings.warn(
        see(message, "backend"),
        UserWarning,
        skip_file_prefixes=(_PACKAGE, os.path.dirname(pymc.__file__)),
    )


def warn_of_memory(model: Model, n_draws: int, var_names: Collection[str] | None) -> None:
    """Warn of draws that need more than `MOST_MEMORY`, as deterministics with a value per row do.

    Parameters
    ----------
    model : pymc.Model
    n_draws : int
        Of all chains.
    var_names : collection of str or None
        Variables that are stored; all of them if it is None.
    """
    stored = [each for each in model.unobserved_RVs if var_names is None or each.name in var_names]
    sizes = {}
    for each in stored:
        size = math.prod(length or 0 for length in shape_of(each))  # unknown ones do not count
        sizes[each.name] = size * n_draws * np.dtype(each.type.dtype).itemsize
    total = sum(sizes.values())
    if total <= MOST_MEMORY:
        return
    largest = [name for name, size in sizes.items() if size > 0.1 * total]
    message = (
        f"{n_draws:,} draws of {largest} need {total / 1e9:.1f} GB of memory. Name the variables "
        "to store, pm.sample(var_names=[...]); pm.compute_deterministics gives the others later"
    )
    _log.warning(see(message, "memory"))


def another_model(name: str, own: Model, other: Model) -> ValueError:
    """Error of a step that was made in one model and is used in another."""
    made, used = (_described(each) for each in (own, other))
    again = "; the model was built again after the step was made" if made == used else ""
    message = (
        f"{name} was made in {made} and is used in another model, {used}{again}. Make the step in "
        f"the model that is sampled: with model: step = {name}(...)"
    )
    return ValueError(see(message, "another-model"))


def _described(model: Model) -> str:
    """Name of a model, if it has one, and its free variables."""
    named = f"model {model.name!r}" if model.name else "a model"
    return f"{named} with the free variables {[rv.name for rv in model.free_RVs]}"


def not_tuned(name: str) -> SamplingError:
    """Error of a step that needs a warm-up and has had none."""
    message = (
        f"{name} has not been tuned in this process, and tune=0 leaves no warm-up. "
        "Sample with tune > 0, or specify the dynamics, such as step_size=. Settings "
        "tuned with cores > 1 stay in the processes of the chains; to use them again "
        "with tune=0, tune with cores=1."
    )
    return SamplingError(see(message, "tune-0"))


def check_burn_in(
    name: str, model: Model, variables: Sequence[ManifoldVariable], point: PointType
) -> None:
    """Validate that a chain of a tuned step does not start at the model's initial point.

    Parameters
    ----------
    name : str
        Of the step.
    model : pymc.Model
    variables : sequence of ManifoldVariable
    point : dict
        Where a chain without warm-up starts.

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
        f"tune=0 continues with the settings that {name} tuned before, but "
        f"{', '.join(map(repr, names))} would start at the initial point of the model "
        "without burn-in, and the first draws would enter the result. Pass the last draws "
        f"of the tuned chains as starting points, initvals=[{{{values}}} for c in "
        "range(chains)], or sample with tune > 0."
    )
    raise SamplingError(see(message, "tune-0"))


def check_log_density(
    name: str,
    variables: Sequence[ManifoldVariable],
    log_terms: LogTerms,
    point: PointType,
    *,
    thoroughly: bool = False,
) -> None:
    """Validate the log-density of each term where a chain starts.

    Parameters
    ----------
    name : str
        Of the step.
    variables : sequence of ManifoldVariable
    log_terms : LogTerms
    point : dict
    thoroughly : bool
        Whether terms of much data are evaluated too.

    Raises
    ------
    SamplingError
        If a term is not finite, which no proposal would leave.
    """
    if not (thoroughly or log_terms.fails(point)):
        return
    report = log_terms.report(point)
    if report is not None:
        message = (
            f"the log-density is not finite where {name} starts to sample "
            f"{_names(variables)}, and no step size helps. {report}."
        )
        raise SamplingError(see(message, "start"))


def invalid_start(name: str, error: StartError) -> ValueError:
    """Error of an initial value that has no coordinates on its manifold."""
    message = (
        f"{name} cannot start from the value of {error.name!r}: "
        f"{error.reason} Give {error.name!r} another initial value (initval= or initvals=)."
    )
    return ValueError(see(message, "start"))


def not_finite(
    name: str, variables: Sequence[ManifoldVariable], error: NotFiniteError, where: str, draw: int
) -> SamplingError:
    """Error of a position, velocity, gradient or log-density that is not finite.

    Parameters
    ----------
    name : str
        Of the step.
    variables : sequence of ManifoldVariable
    error : NotFiniteError
        From the sampler.
    where : str
        Variables whose coordinates are not finite; empty if that is unknown.
    draw : int
    """
    sampled = _names(variables)
    if error.at_start:
        message = (
            f"the {error.what} in {where or sampled} is not finite "
            f"where {name} starts: no step size helps. Check the data for NaN and use other "
            "initial values (initval=); model.debug() shows which term is not finite."
        )
        return SamplingError(see(message, "start"))
    message = (
        f"{name} diverged at draw {draw}: {where or error.what} is not finite while sampling "
        f"{sampled} with step size {error.step_size:.3g}. Use a smaller step_size or more tuning "
        "draws; model.debug() at the starting point shows terms that are not finite."
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
        Has the rows that the step divides in data containers.
    vars : list of TensorVariable
        Value variables that it samples.
    streamed : tuple of str
        Data whose rows it takes from ``batches=`` and not from the model.
    """

    model: Model
    vars: list[TensorVariable]
    streamed: tuple[str, ...]


class StepsOfChain:
    """Step methods of this package that are set up for the same chain.

    `pymc.sample` assigns a step to each variable without one, and steps have no access to each
    other. All steps are set up before the first draw, so that they can be registered here.
    """

    def __init__(self) -> None:
        self._steps: WeakKeyDictionary[Model, list[ref[_Step]]] = WeakKeyDictionary()
        self._has_begun: WeakKeyDictionary[Model, bool] = WeakKeyDictionary()

    def add(self, model: Model, step: _Step) -> None:
        """Register a step that is set up for a chain."""
        steps = self._steps.setdefault(model, [])
        if self._has_begun.get(model, True) or any(each() is step for each in steps):
            steps.clear()
        self._has_begun[model] = False
        steps.append(ref(step))

    def check(self, model: Model, step: _Step) -> None:
        """Validate at the first draw that no other step samples from the density of partial data.

        Raises
        ------
        ValueError
            If another step samples variables of a model with a `pymc.Minibatch`, or of streamed
            data of which the model holds one block.
        """
        self._has_begun[model] = True
        found = [each() for each in self._steps.get(model, [])]
        steps = [step, *(each for each in found if each is not None)]
        if step.streamed:
            check_streams(step.model, step, steps)
        if not draws_minibatches(model):
            return
        sampled = {value for each in steps for value in each.vars}
        left = [model.values_to_rvs[v].name for v in model.value_vars if v not in sampled]
        if left:
            message = (
                f"{left} would be sampled by another step method, from the log-density of other "
                "random rows at each evaluation: the model has a pm.Minibatch. Sample them with "
                "a step method of pymc_geodesic that takes minibatches, or write the model with "
                f"pm.Data containers and all rows, and give {type(step).__name__} minibatch=[...] "
                "and batch_size="
            )
            raise ValueError(see(message, "left-to-other-steps"))


def check_streams(model: Model, step: _Step, steps: Sequence[_Step]) -> None:
    """Validate that no other step samples a variable from one block of a stream.

    Parameters
    ----------
    model : pymc.Model
    step : step method
        Takes rows from ``batches=``.
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
            f"{list(step.streamed)} in the model, and not from the rows of batches=. Give them to "
            f"{type(step).__name__} too, or to another step method with the same batches="
        )
        raise ValueError(see(message, "left-to-other-steps"))
