"""Conversion of models of `pymc.dims`, whose arrays have named axes, to models of plain arrays.

`pymc.dims` and the module of PyTensor behind it change how all models are compiled when they are
imported, so that they are imported here only where a model has imported them already.
"""

from __future__ import annotations

from pymc.distributions import transforms as plain
from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.compile.mode import optdb
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.tensor import constant
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.minibatches.model_rows import model_with

_ELEMENTWISE = {
    "LogTransform": plain.log,
    "LogOddsTransform": plain.logodds,
    "CircularTransform": plain.circular,  # not in PyMC 6.3
}
"""Transforms of plain arrays, by the names of those of `pymc.dims`."""


def has_named_axes(model: Model) -> bool:
    """Whether a model has variables, data or potentials of `pymc.dims`."""
    terms = (*model.basic_RVs, *model.data_vars, *model.potentials)
    return any(_has_names(each) for each in terms)


def _has_names(variable: Variable) -> bool:
    return not isinstance(variable.type, TensorType) and hasattr(variable.type, "dims")


def without_named_axes(model: Model) -> Model:
    """Convert a model of `pymc.dims` to a model of plain arrays, by PyTensor's lowering.

    Variables, data and values keep their names and the order of their axes, so that points of one
    model are points of the other. Data containers share their values.

    Parameters
    ----------
    model : pymc.Model
        Returned unchanged if no axis has a name.

    Raises
    ------
    ValueError
        For a transform without a counterpart for plain arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc.dims as pmd
    >>> from pymc_geodesic.densities.named_axes import without_named_axes
    >>> with pm.Model(coords={"row": range(3)}) as model:
    ...     y = pmd.Data("y", np.zeros(3), dims="row")
    ...     x = pmd.Normal("x", pmd.Normal("mean", 0.0, 1.0), 1.0, observed=y, dims="row")
    >>> [rv.type.ndim for rv in without_named_axes(model).basic_RVs]
    [0, 1]
    """
    if not has_named_axes(model):
        return model
    observed = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    variables = [*model.basic_RVs, *model.potentials, *observed, *model.data_vars]
    lowered = dict(zip(variables, _lowered(variables), strict=True))
    of_free = dict.fromkeys(model.rvs_to_values[rv] for rv in model.free_RVs)
    transforms = {rv: _plain_transform(rv, t) for rv, t in model.rvs_to_transforms.items()}
    return model_with(
        model, lowered | of_free, [lowered[each] for each in model.data_vars], transforms
    )


def _lowered(variables: list[Variable]) -> list[TensorVariable]:
    """Lower graphs to plain arrays, and remove the conversions at their inputs."""
    from pytensor.xtensor.basic import TensorFromXTensor

    plain_ones = [each.values if _has_names(each) else each for each in variables]
    graph = FunctionGraph(outputs=plain_ones, clone=True, copy_inputs=False, copy_orphans=False)
    optdb.query(RewriteDatabaseQuery(include=["lower_xtensor"])).rewrite(graph)
    leaves: dict[Variable, Variable] = {}
    for node in graph.toposort():
        leaf = node.inputs[0] if isinstance(node.op, TensorFromXTensor) else None
        if leaf is None or leaf.owner is not None:
            continue
        if leaf not in leaves:
            leaves[leaf] = _plain_leaf(leaf)
        graph.replace(node.outputs[0], leaves[leaf], import_missing=True)
    return list(graph.outputs)


def _plain_leaf(leaf: Variable) -> Variable:
    kind = TensorType(leaf.type.dtype, leaf.type.shape)
    if isinstance(leaf, Constant):
        return constant(leaf.data, dtype=leaf.type.dtype)
    assert isinstance(leaf, SharedVariable)
    return TensorSharedVariable(
        type=kind, value=None, strict=None, container=leaf.container, name=leaf.name
    )


def _plain_transform(rv: Variable, transform: Transform | None) -> Transform | None:
    """Find the counterpart of a transform for plain arrays."""
    from pymc.dims.distributions import transforms as named

    if transform is None or not isinstance(transform, named.DimTransform):
        return transform
    dims = getattr(rv.type, "dims", ())
    name = type(transform).__name__
    if name in _ELEMENTWISE:
        return _ELEMENTWISE[name]
    if isinstance(transform, named.IntervalTransform):
        return plain.Interval(transform.lower.data, transform.upper.data)
    if isinstance(transform, named.SimplexTransform) and dims[-1:] == (transform.core_dim,):
        return plain.simplex
    if isinstance(transform, named.ZeroSumTransform) and dims[-len(transform.dims) :] == tuple(
        transform.dims
    ):
        return plain.ZeroSumTransform(tuple(range(-len(transform.dims), 0)))
    raise ValueError(
        f"{rv.name!r} has the transform {type(transform).__name__} of pymc.dims along an axis that "
        f"is not the last of {dims}. Put that dim last in dims=, or define the variable with pymc "
        "instead of pymc.dims"
    )
