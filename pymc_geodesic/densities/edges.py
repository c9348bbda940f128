"""Edges of a log-density, where it falls to minus infinity and no gradient says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import ParameterValueError
from pymc.model import Model
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Switch
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.inequalities import (
    compares,
    is_minus_infinity,
    scalar_op,
    what_moves,
)
from pymc_geodesic.densities.interpreted import function_as_written
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see

_SCALES = np.logspace(-1.0, 1.0, 10)
"""Distances from the initial point, in PyMC's values, at which an edge is looked for."""


def _conditions(graph: Variable, moving: set[Variable]) -> list[Variable]:
    """Where a term is not minus infinity, for each place where moving may make it so."""
    found = []
    for node in io_toposort([], [graph]):
        if not isinstance(scalar_op(node.outputs[0]), Switch):
            continue
        condition, if_true, if_false = node.inputs
        if not compares(condition, moving):
            continue
        if is_minus_infinity(if_false):
            found.append(pt.all(condition))
        elif is_minus_infinity(if_true):
            found.append(pt.all(~condition))
    return found


def edges(
    model: Model,
    variables: Sequence[ManifoldVariable],
    terms: Mapping[TensorVariable, TensorVariable],
) -> list[tuple[str, list[str]]]:
    """Find the terms of a model whose support depends on sampled variables.

    A uniform likelihood between 0 and s has an edge: where s falls below an observation, the
    density is zero, and the gradient there, as on the other side, points to smaller s. Variables
    with a transform have none, since their values move with their bounds.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        What a step moves together.
    terms : mapping of TensorVariable to TensorVariable
        See `pymc_geodesic.densities.written_terms.terms_as_written`.

    Returns
    -------
    list of (str, list of str)
        Names of a term and of the sampled variables that its support depends on.
    """
    sampled = {variable.value: variable.name for variable in variables}
    found = []
    for term, graph in terms.items():
        if model.rvs_to_values.get(term) in sampled or model.rvs_to_transforms.get(term):
            continue
        conditions = _conditions(graph, what_moves([graph], set(sampled)))
        if not conditions:
            continue
        inside = function_as_written(model.value_vars, pt.all(pt.stack(conditions)))
        start = model.initial_point(random_seed=0)
        rng = np.random.default_rng(0)
        crossed = []
        for value, name in sampled.items():
            for scale in _SCALES:
                step = scale * rng.choice([-1.0, 1.0], size=np.shape(start[value.name]))
                point = start | {value.name: start[value.name] + step}
                back = start | {value.name: start[value.name] - step}
                if _crosses(inside, model, point) or _crosses(inside, model, back):
                    crossed.append(name)
                    break
        if crossed:
            found.append((term.name, crossed))
    return found


def _crosses(inside: pytensor.compile.Function, model: Model, point: dict[str, np.ndarray]) -> bool:
    """Whether a point lies beyond an edge; one with other parameters that are wrong does not."""
    values = [np.asarray(point[value.name], dtype=value.type.dtype) for value in model.value_vars]
    try:
        return not inside(*values)
    except ParameterValueError:
        return False


def support_message(sampler: str, term: str, names: Sequence[str]) -> str:
    """Error message for a term whose support depends on variables of an uncorrected sampler.

    Parameters
    ----------
    sampler, term : str
        Names of the step method, and of the random variable or potential.
    names : sequence of str
        Variables that the support depends on.
    """
    sampled = ", ".join(repr(name) for name in names)
    return see(
        f"the support of {term!r} depends on {sampled}: its log-density ends at an edge, which "
        f"gradients do not show, and {sampler} has no Metropolis correction that rejects points "
        f"beyond the edge. Sample {sampled} with GMC or NUTS, and pass the other variables to "
        f"{sampler} by name",
        "edge",
    )
