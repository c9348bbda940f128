"""What every worker makes its step method from: class and arguments, and the model without rows."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm

from pymc_geodesic.densities.row_dependence import observed_with_total_size
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.manifolds import Euclidean
from pymc_geodesic.runs.recipe import recipe_of
from pymc_geodesic.steps.scir import SCIR
from pymc_geodesic.steps.sgld import SGLD
from pymc_geodesic.steps.sgrld import SGRLD
from pymc_geodesic.steps.ssgnht import SSGNHT
from pymc_geodesic.steps.step import GeodesicStep


@dataclass(frozen=True)
class StepRecipe:
    """A step method to be made on another machine.

    Attributes
    ----------
    kind : type
        Class of the step.
    arguments : dict
        What it is called with, beside the model and the number of rows that it is to count; the
        local variables by name.
    """

    kind: type[GeodesicStep]
    arguments: dict[str, Any]

    def variables(self, model: pm.Model) -> list[ManifoldVariable]:
        """Variables that travel, in the order of the coordinates of the step."""
        found = manifold_variables(
            model,
            self.arguments.get("vars"),
            self.arguments.get("manifolds"),
            everywhere=Euclidean if issubclass(self.kind, SGLD | SSGNHT) else None,
        )
        travelling = [variable for variable in found if variable.name not in self.local_names]
        return sorted(travelling, key=lambda variable: not variable.manifold.is_flat)

    @property
    def local_names(self) -> list[str]:
        """Variables with a value for each row, which stay where the rows are."""
        return list(self.arguments.get("local") or ())

    @property
    def row_names(self) -> list[str]:
        """Data containers whose rows the shards hold."""
        named = self.arguments["minibatch"]
        return [named] if isinstance(named, str) else list(named)

    @property
    def walks_on(self) -> bool:
        """Whether walks over the rows go on from visit to visit.

        Visits to documents are shorter than an epoch. Walks that began anew in each would leave out
        some documents for long, and the noise of an epoch would not add up to zero.
        """
        return bool(self.local_names)

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
    if arguments.get("local") is not None:
        local = manifold_variables(model, arguments["local"], by_row=True)
        arguments["local"] = [variable.name for variable in local]
    made = StepRecipe(kind, arguments)
    _check_local(made)
    sampled = [variable.name for variable in made.variables(model)] + made.local_names
    left = [rv.name for rv in model.free_RVs if rv.name not in sampled]
    if left:
        raise ValueError(
            f"one step method moves all variables from shard to shard, but {left} is left to "
            "another; leave out vars="
        )
    _refuse_total_sizes(model, made.row_names)
    return made


def _check_local(recipe: StepRecipe) -> None:
    """Refuse local variables that cannot begin anew in every visit, and control variates of them.

    Words are assigned to topics anew whatever is known of their document; draws of a Markov chain
    with a step size of its own are not.
    """
    if not recipe.local_names:
        return
    if not issubclass(recipe.kind, SCIR | SGRLD):
        raise ValueError(
            f"local={recipe.local_names} has values for each row, which do not go from shard to "
            f"shard with {recipe.kind.__name__}; counts of words do with SCIR or SGRLD "
            "(topics.lda), and others are sampled in one process"
        )
    if recipe.arguments.get("control_variates"):
        raise ValueError(
            f"control_variates= is not available with local={recipe.local_names}: how words are "
            "assigned to topics is random, and changes with the topics; leave it out, and pass "
            "conducive=False"
        )


def _refuse_total_sizes(model: pm.Model, row_names: Sequence[str]) -> None:
    """Refuse a number of rows that the model states: it would count in every shard."""
    if stated := observed_with_total_size(model, row_names):
        raise ValueError(
            f"{stated[0]!r} has a total_size=, but its rows are counted in the shards: leave "
            "total_size= out of the model"
        )
