"""Variables that `pymc.sample` leaves to step methods which see only part of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from pymc import Model
from pytensor.tensor import TensorVariable

from pymc_geodesic.densities.row_dependence import variables_coupled_to_rows
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import drawn_rows, model_graphs


def draws_minibatches(model: Model) -> bool:
    """Whether the log-density of a model is random, that of the rows of a `pymc.Minibatch`."""
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

    `pymc.sample` assigns a variable without a step to a step of its own choice, and no step sees
    the others. But it sets up all steps before the first of them draws.
    """

    def __init__(self) -> None:
        self._steps: WeakKeyDictionary[Model, list[ref[_Step]]] = WeakKeyDictionary()
        self._has_begun: WeakKeyDictionary[Model, bool] = WeakKeyDictionary()

    def add(self, model: Model, step: _Step) -> None:
        """Add a step that is set up for a chain."""
        steps = self._steps.setdefault(model, [])
        if self._has_begun.get(model, True) or any(each() is step for each in steps):
            steps.clear()
        self._has_begun[model] = False
        steps.append(ref(step))

    def check(self, model: Model, step: _Step) -> None:
        """Validate at the first draw that no other step samples a density of part of the data.

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
        All of the chain that are known.

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
