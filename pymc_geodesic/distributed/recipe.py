"""What every worker makes its step method from: class and arguments, and the model without rows."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm

from pymc_geodesic.densities.total_sizes import stating_totals
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.runs.recipe import recipe_of
from pymc_geodesic.steps.base.adaptor import GeodesicStep

__all__ = ["StepRecipe", "recipe_for"]


@dataclass(frozen=True)
class StepRecipe:
    """A step method to be made on another machine.

    Attributes
    ----------
    kind : type
        Class of the step.
    arguments : dict
        What it is called with, beside the model and the number of rows that it is to count.
    """

    kind: type[GeodesicStep]
    arguments: dict[str, Any]

    def variables(self, model: pm.Model) -> list[ManifoldVariable]:
        """Variables in the order of the coordinates of the step."""
        found = manifold_variables(
            model,
            self.arguments.get("vars"),
            self.arguments.get("manifolds"),
            everywhere=self.kind._everywhere,
        )
        return sorted(found, key=lambda variable: not variable.manifold.is_flat)

    @property
    def row_names(self) -> list[str]:
        """Data containers whose rows the shards hold."""
        named = self.arguments["minibatch"]
        return [named] if isinstance(named, str) else list(named)

    def make(self, model: pm.Model, total_size: int) -> GeodesicStep:
        """Make the step, whose rows stand for so many."""
        kind: Any = self.kind
        with warnings.catch_warnings():
            # rows of a shard stand for those of the others, which are not like them
            warnings.filterwarnings("ignore", message="total_size=", category=UserWarning)
            return kind(model=model, total_size=total_size, **self.arguments)


def recipe_for(step: Any, model: pm.Model) -> StepRecipe:
    """Describe a step method of the package, or the `functools.partial` that makes one.

    Raises
    ------
    ValueError
        If it is another step, or it does not sample all free variables from named rows.
    """
    if isinstance(step, functools.partial):
        kind, arguments = step.func, dict(step.keywords)
        if step.args:
            raise ValueError("give the arguments of step= by name, as in partial(SGGMC, vars=[x])")
    elif isinstance(step, type):
        kind, arguments = step, {}
    else:
        kind = type(step)
        if issubclass(kind, GeodesicStep):
            recipe = recipe_of(step)
            if recipe["lost"]:
                raise ValueError(f"step= cannot be sent to workers: {recipe['lost']}")
            arguments = {"vars": recipe["vars"], **recipe["kept"]}
    if not (isinstance(kind, type) and issubclass(kind, GeodesicStep)):
        raise ValueError(
            f"step={step!r} is no step method of pymc_geodesic; pass one that takes minibatches, "
            "such as SGGMC(batch_size=100, minibatch=[...])"
        )
    if not arguments.get("minibatch") or arguments.get("batches") is not None:
        raise ValueError(
            f"{kind.__name__} needs minibatch=[...], the names of the data containers whose rows "
            "the shards hold, and batch_size="
        )
    for left_out in ("total_size", "model", "rng"):
        arguments.pop(left_out, None)
    made = StepRecipe(kind, arguments)
    sampled = {variable.name for variable in made.variables(model)}
    left = [rv.name for rv in model.free_RVs if rv.name not in sampled]
    if arguments.get("local"):
        raise ValueError(
            f"local={arguments['local']} has values for each row, which do not go from shard to "
            f"shard; sample in one process, {kind.__name__}(batches=) with the shards as blocks"
        )
    if left:
        raise ValueError(
            f"one step method moves all variables from shard to shard, but {left} is left to "
            "another; leave out vars="
        )
    _refuse_total_sizes(model, made.row_names)
    return made


def _refuse_total_sizes(model: pm.Model, row_names: Sequence[str]) -> None:
    """Refuse a number of rows that the model states: it would count in every shard."""
    if stated := stating_totals(model, row_names):
        raise ValueError(
            f"{stated[0]!r} has a total_size=, but its rows are counted in the shards: leave "
            "total_size= out of the model"
        )
