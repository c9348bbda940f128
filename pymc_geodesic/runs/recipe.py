"""Arguments of step methods, written down so that a run can make them again."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pymc as pm
from pytensor.graph import Variable

from pymc_geodesic.failure_modes import see
from pymc_geodesic.runs.encoding import class_name, encode, named_class
from pymc_geodesic.runs.pymc_parts import CompoundStep

AUTOMATIC = "automatic"
_NOT_KEPT = ("model", "rng", "blocked")
"""Arguments that the run itself supplies."""


def _plain(value: Any) -> Any:
    """Write variables by name, in whatever they stand."""
    if isinstance(value, Variable):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    return value


def recipe_of(step: Any) -> dict[str, Any]:
    """Describe a step: its class, variables and arguments, and which of them cannot be written."""
    if isinstance(step, CompoundStep):
        return {"class": "compound", "methods": [recipe_of(method) for method in step.methods]}
    (_, *positional), named = step.__getnewargs_ex__()
    variables = getattr(step, "variables", None)
    kept, lost = {}, {}
    for name, value in named.items():
        value = _plain(value)
        if name in _NOT_KEPT:
            continue
        try:
            encode(value, {}, name)
        except TypeError as error:
            lost[name] = str(error)
        else:
            kept[name] = value
    if positional:
        lost["positional arguments"] = "arguments without names"
    names = [v.name for v in (step.vars if variables is None else variables)]
    return {
        "class": class_name(type(step)),
        "vars": names,
        "kept": kept,
        "lost": lost,
        # NUTS that PyMC has chosen for all variables has a metric that PyMC has made for it.
        AUTOMATIC: "potential" in lost and isinstance(step, pm.NUTS),
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def same_steps(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Say how two recipes differ; an empty text if they do not."""
    if one["class"] != other["class"]:
        return f"{_title(one)} in the run, {_title(other)} now"
    if one["class"] == "compound":
        if len(one["methods"]) != len(other["methods"]):
            return f"{_title(one)} in the run, {_title(other)} now"
        return "; ".join(filter(None, map(same_steps, one["methods"], other["methods"])))
    if one["vars"] != other["vars"]:
        return f"variables {one['vars']} in the run, {other['vars']} now"
    names = [*one["kept"], *(set(other["kept"]) - set(one["kept"]))]
    return "; ".join(
        f"{name}={one['kept'].get(name)!r} in the run, {other['kept'].get(name)!r} now"
        for name in names
        if not _same(one["kept"].get(name), other["kept"].get(name))
    )


def _title(recipe: dict[str, Any]) -> str:
    if recipe["class"] == "compound":
        return "[" + ", ".join(map(_title, recipe["methods"])) + "]"
    return cast(str, recipe["class"]).rpartition(":")[2]


def make_step(recipe: dict[str, Any], model: pm.Model) -> Any:
    """Make the step method, or list of step methods, of a recipe.

    Raises
    ------
    ValueError
        If an argument could not be written down; it names the argument.
    """
    if recipe["class"] == "compound":
        return [make_step(method, model) for method in recipe["methods"]]
    if recipe["lost"]:
        message = (
            f"the run does not hold {', '.join(recipe['lost'])} of {_title(recipe)}: "
            f"{'; '.join(recipe['lost'].values())}. Pass the step that the run began with as step="
        )
        raise ValueError(see(message, "stopped-run"))
    cls = named_class(recipe["class"])
    by_name = {value.name: value for value in model.value_vars} | model.named_vars
    return cls([by_name[name] for name in recipe["vars"]], model=model, **recipe["kept"])
