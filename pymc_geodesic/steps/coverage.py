"""Which variables are left to steps that need all the data, where the model does not hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from pymc import Model
from pytensor.tensor import TensorVariable

from pymc_geodesic.densities.beside_rows import variables_beside_rows
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import drawn_rows, graphs_of

__all__ = ["StepsOfChain", "draws_minibatches"]


def draws_minibatches(model: Model) -> bool:
    """Whether the log-density of a model is a random one, that of a `pymc.Minibatch`."""
    return bool(drawn_rows(graphs_of(model)))


class _Step(Protocol):
    """A step method, as far as it matters here.

    Attributes
    ----------
    vars : list of TensorVariable
        Value variables that it samples.
    streamed : tuple of str
        Data whose rows it takes from ``batches=`` and not from the model.
    """

    vars: list[TensorVariable]
    streamed: tuple[str, ...]


class StepsOfChain:
    """The step methods of this package that sample the chain which begins.

    `pymc.sample` gives a variable that no step is given to a step of its own choice, which no step
    is told of. But it sets all steps up before the first of them draws.
    """

    def __init__(self) -> None:
        self._steps: WeakKeyDictionary[Model, list[ref[_Step]]] = WeakKeyDictionary()
        self._begun: WeakKeyDictionary[Model, bool] = WeakKeyDictionary()

    def set_up(self, model: Model, step: _Step) -> None:
        """Take note of a step that is set up for a chain."""
        steps = self._steps.setdefault(model, [])
        if self._begun.get(model, True) or any(each() is step for each in steps):
            steps.clear()
        self._begun[model] = False
        steps.append(ref(step))

    def check(self, model: Model, step: _Step) -> None:
        """Refuse that other steps see random log-densities, or rows that stand for those streamed.

        This is done at the first draw of a chain.

        Raises
        ------
        ValueError
            The message names the variables.
        """
        self._begun[model] = True
        found = [each() for each in self._steps.get(model, [])]
        known = [step, *(each for each in found if each is not None)]
        if step.streamed:
            self._check_streams(model, step, known)
        if not draws_minibatches(model):
            return
        sampled = {value for each in known for value in each.vars}
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

    @staticmethod
    def _check_streams(model: Model, step: _Step, known: Sequence[_Step]) -> None:
        needed = set(step.streamed)
        seeing = {value for each in known if needed <= set(each.streamed) for value in each.vars}
        beside = variables_beside_rows(model, step.streamed)
        left = [model.values_to_rvs[value].name for value in beside if value not in seeing]
        if left:
            message = (
                f"{left} would be sampled by another step method from what the model holds of "
                f"{list(step.streamed)}, and not from the rows of batches=. Give them to "
                f"{type(step).__name__} too, or to another step method with the same batches="
            )
            raise ValueError(see(message, "left-to-other-steps"))
