"""Rows of a model: the data with one or several values for each observation."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor import shared
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import issparse

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import (
    check_not_imputed,
    drawn_rows,
    evaluate_data,
    model_graphs,
    shape_of,
)
from pymc_geodesic.sparse import sparse_containers

_MAX_AXES = 8
"""Maximum size of an array of integers that is interpreted as a shape."""


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Data of a model whose rows belong to its observations.

    Attributes
    ----------
    n_rows : int
        N, the number of rows.
    observed : tuple of str
        Observed variables or potentials with one or several values for each row.
    dim : str or None
        Name of the dimension of the rows, if they have one in the model.
    data : dict of str to Variable
        Data containers, shared variables and constants of the model whose first axis is that of the
        rows, by name. Observed constants have the name of their variable.
    origins : dict of str to str
        Description of how these data are computed from the columns of a table, if their rows are
        read from one.
    """

    n_rows: int
    observed: tuple[str, ...]
    dim: str | None
    data: Mapping[str, Variable]
    origins: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        """Describe the rows, and the data that have them."""
        dim = f" (dim {self.dim!r})" if self.dim else ""
        if self.origins:
            columns = "; ".join(f"{name} from {origin}" for name, origin in self.origins.items())
            return f"{self.n_rows:,} rows of {', '.join(self.observed)}{dim}: {columns}"
        arrays = ", ".join(
            f"{name} {evaluate_data(each).shape}" for name, each in self.data.items()
        )
        return f"{self.n_rows:,} rows of {', '.join(self.observed)}{dim}: {arrays}"


def find_rows(model: Model, selected: Sequence[str] | None = None) -> ModelRows:
    """Find the data whose rows belong to observations.

    These are the constants, data containers and index arrays on which the observed variables
    depend, other than through the prior of a free variable, and whose first axis has the length of
    the observations. Containers with another dimension of the model are excluded, as are arrays
    from which indices select elements, such as covariates of groups. In a model without observed
    variables, the rows are those of its potentials.

    Parameters
    ----------
    model : pymc.Model
    selected : sequence of str, optional
        Observed variables or potentials, or one of their dimensions. By default all observed
        variables, which must then have the same number of rows.

    Raises
    ------
    ValueError
        If there are no observed variables, they have different rows or missing values, no data have
        these rows, or an array is sparse or has a row and a column for each observation.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.minibatches.model_rows import find_rows
    >>> x, group = np.linspace(-1, 1, 60), np.arange(60) % 4
    >>> with pm.Model() as model:
    ...     slope, level = pm.Normal("slope"), pm.Normal("level", shape=4)
    ...     y = pm.Normal("y", level[group] + slope * x, observed=np.sin(x))
    >>> find_rows(model)
    60 rows of y: y (observed) (60,), constant 1 (60,), constant 2 (60,)
    """
    terms = _observed(model, selected)
    check_not_imputed(model, [term.name for term in terms])
    values = [model.rvs_to_values[rv] for rv in terms if rv in model.rvs_to_values]
    n_rows, dim = _length(model, terms[0]), _first_dim(model, terms[0].name)
    data: dict[str, Variable] = {}
    for rv in terms:
        value = model.rvs_to_values.get(rv)
        if isinstance(value, Constant):
            data[f"{rv.name} (observed)"] = value
    graphs = [*dict.fromkeys([*terms, *values, *model.potentials])]
    tables = _tables(model, graphs)
    for leaf in _leaves(model, graphs):
        if leaf in data.values() or leaf in tables or not _has_rows(model, leaf, n_rows, dim):
            continue
        name = _name(model, leaf, data)
        if issparse(_value(leaf)):
            message = (
                f"{name!r} is a SciPy matrix, whose rows cannot be divided into minibatches. Put "
                "it into pymc_geodesic.SparseData(name, matrix)"
            )
            raise ValueError(see(message, "minibatch"))
        if np.shape(_value(leaf)) == (n_rows, n_rows):
            message = (
                f"{name!r} has shape {(n_rows, n_rows)}, a row and a column for each observation "
                f"of {terms[0].name!r}, like a covariance. Correlated observations cannot be "
                "divided into minibatches: use all rows, without batch_size=. If it is a matrix of "
                "covariates, put the data into pm.Data containers and name them in minibatch=[...]"
            )
            raise ValueError(see(message, "no-sum-over-rows"))
        data[name] = leaf
    if not data:
        name = terms[0].name
        dims = f", dims {model.named_vars_to_dims[name]}" if dim else ""
        message = (
            f"no data have {n_rows:,} rows, the length of the first axis of {name!r}{dims}. Put "
            "rows along the first axis, and use separate data for values that are computed from "
            "other rows, such as y[1:]"
        )
        raise ValueError(see(message, "minibatch"))
    return ModelRows(n_rows, tuple(term.name for term in terms), dim, data)


def _observed(model: Model, selected: Sequence[str] | None) -> list[TensorVariable]:
    """Find the selected terms, and check that they have the same rows."""
    known = [rv for rv in model.observed_RVs if rv.type.ndim > 0] or _potentials_with_rows(model)
    if not known:
        message = (
            "batch_size= selects rows of the observations, but this model has no observed variable "
            "with more than one value and no potential with rows. Write a likelihood in a "
            "pm.Potential with one value for each row, without .sum(), or set minibatch=[...] to "
            "the names of the pm.Data containers whose rows it sums over"
        )
        raise ValueError(see(message, "minibatch"))
    if selected is None:
        found = known
    else:
        candidates = [*known, *(each for each in model.potentials if each not in known)]
        found = [rv for name in selected for rv in candidates if _is_named(model, rv, name)]
    rows = {rv.name: (_length(model, rv), _first_dim(model, rv.name)) for rv in found}
    if len(set(rows.values())) > 1:
        listed = ", ".join(
            f"{name!r} has {n:,}" + (f" ({dim})" if dim else "") for name, (n, dim) in rows.items()
        )
        kind = "observed variables" if model.observed_RVs else "potentials"
        largest = max(rows, key=lambda name: rows[name][0])
        message = (
            f"the {kind} have different rows: {listed}. Name those to divide into minibatches, for "
            f"example minibatch={largest!r}; the others are used completely in each minibatch"
        )
        raise ValueError(see(message, "minibatch"))
    return found


def _potentials_with_rows(model: Model) -> list[TensorVariable]:
    """Find potentials with a value for each row of some data."""
    return [
        potential
        for potential in model.potentials
        if potential.type.ndim > 0
        and (n := _length(model, potential)) > 1
        and any(np.shape(_value(leaf))[:1] == (n,) for leaf in _leaves(model, [potential]))
    ]


def _is_named(model: Model, rv: TensorVariable, name: str) -> bool:
    return name in (rv.name, _first_dim(model, rv.name))


def _first_dim(model: Model, name: str) -> str | None:
    dims = model.named_vars_to_dims.get(name) or (None,)
    return dims[0]


def _length(model: Model, term: TensorVariable) -> int:
    """Return the number of rows of an observed variable or a potential; 0 if unknown."""
    if term in model.rvs_to_values:
        return len(evaluate_data(model.rvs_to_values[term]))
    return (shape_of(term)[0] or 0) if term.type.ndim else 0


def _leaves(model: Model, graphs: Sequence[Variable]) -> Iterator[Variable]:
    """Find constants and containers of graphs, without those of priors of free variables."""
    for variable in ancestors(graphs, blockers=model.free_RVs):
        is_data = isinstance(variable, Constant | SharedVariable) and variable.owner is None
        if is_data and isinstance(variable.type, TensorType) and variable.type.ndim > 0:
            yield variable


def _tables(model: Model, graphs: Sequence[Variable]) -> set[Variable]:
    """Find arrays that are only used through integer indices along the first axis."""
    selected: set[Variable] = set()
    used = set(graphs)
    for node in io_toposort(model.free_RVs, graphs):
        first, others = node.inputs[:1], node.inputs[1:]
        is_selection = isinstance(node.op, AdvancedSubtensor) and _is_integer(
            indices_from_subtensor(others, node.op.idx_list)[0]
        )
        (selected if is_selection else used).update(first)
        used.update(others)
    return selected - used


def _is_integer(index: object) -> bool:
    return isinstance(index, Variable) and getattr(index.type, "dtype", "bool") != "bool"


def _has_rows(model: Model, leaf: Variable, n_rows: int, dim: str | None) -> bool:
    own = _first_dim(model, leaf.name) if isinstance(leaf, SharedVariable) else None
    if dim and own and own != dim:
        return False
    return np.shape(_value(leaf))[:1] == (n_rows,)


def _name(model: Model, leaf: Variable, data: Mapping[str, Variable]) -> str:
    """Name of a container, or of its sparse matrix; for other data kind and number."""
    if leaf not in model.data_vars:
        kind = "constant" if isinstance(leaf, Constant) else "shared variable"
        return f"{kind} {1 + sum(name.startswith(f'{kind} ') for name in data)}"
    name = str(leaf.name)
    sparse = sparse_containers(model, name.removesuffix("_rows"))
    return name if sparse is None else name.removesuffix("_rows")


def _value(leaf: Variable) -> np.ndarray:
    return leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)


def censoring_bounds(model: Model) -> set[str]:
    """Names of data containers that are bounds of observed censored variables."""
    censored = [rv.owner for rv in model.observed_RVs if isinstance(rv.owner.op, CensoredRV)]
    data = set(ancestors([bound for node in censored for bound in node.inputs[1:]]))
    return {str(each.name) for each in model.data_vars if each in data}


def selected_rows(
    model: Model, names: Sequence[str], batch_size: int | None, *, has_local: bool = False
) -> ModelRows | None:
    """Find the rows for a step; None if it uses all rows or data containers are named.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
        Names of data containers, or of observed variables or their dimension.
    batch_size : int, optional
    has_local : bool
        Whether the step has variables with a value for each row.

    Raises
    ------
    ValueError
        If containers and observed variables are mixed, a name is unknown, or rows are ambiguous.
    """
    if not names:
        is_observed = any(rv.type.ndim > 0 for rv in model.observed_RVs)
        if batch_size is None and not (has_local and is_observed):
            return None
        if drawn_rows(model_graphs(model)):
            return None
        return find_rows(model)
    terms = (*model.observed_RVs, *model.potentials)
    known = [term.name for term in terms] + [
        dim for term in terms if (dim := _first_dim(model, term.name))
    ]
    found = [name for name in names if name in known]
    if not found:
        return None
    if len(found) < len(names):
        others = [name for name in names if name not in known]
        message = (
            f"minibatch= mixes {found}, observed variables or dimensions, with {others}. Name "
            "observed variables or a dimension, or every data container with a row per observation"
        )
        near = [each for name in others for each in difflib.get_close_matches(name, known, n=1)]
        raise ValueError(
            see(message + (f". Did you mean {near[0]!r}?" if near else ""), "minibatch")
        )
    return find_rows(model, found)


def with_containers(model: Model, rows: ModelRows) -> Model:
    """Create a model of the same variables in which all rows are in data containers.

    Constant numbers of rows in shapes, as in ``pt.zeros(n)``, become lengths of the data. Free
    variables keep their value variables, so that points of one model are points of the other. The
    arrays are not copied.

    Parameters
    ----------
    model : pymc.Model
    rows : ModelRows
    """
    nodes = list(io_toposort(model.free_RVs, [*model.observed_RVs, *model.potentials]))
    # PyMC inlines the inner graphs of some variables, which are specific to the input shapes
    has_shape = any(getattr(node.op, "inline_logprob", False) for node in nodes)
    containers = {
        each: _container(each, name, has_shape=has_shape)
        for name, each in rows.data.items()
        if each not in model.data_vars
    }
    replaced: dict[Variable, Variable] = dict(containers)
    first = next(iter(rows.data.values()))
    n_rows = replaced.get(first, first).shape[0]
    for node in nodes:
        inputs = [replaced.get(each, each) for each in node.inputs]
        for position in () if has_shape else _shape_inputs(node):
            inputs[position] = _with_length(inputs[position], rows.n_rows, n_rows)
        if inputs != node.inputs:
            replaced.update(zip(node.outputs, _outputs(node, inputs), strict=True))
    if not replaced:
        return model
    return model_with(model, replaced, [*model.data_vars, *containers.values()])


def model_with(
    model: Model,
    replaced: Mapping[Variable, Any],
    data: Iterable[Variable],
    transforms: Mapping[Variable, Transform | None] = MappingProxyType({}),
) -> Model:
    """Create a model with the same names in which some variables are replaced.

    Parameters
    ----------
    model : pymc.Model
    replaced : mapping
        Replacements of random variables, potentials and values. If a value is replaced by None, the
        new model creates a new value variable.
    data : iterable of Variable
        Data containers of the new model.
    transforms : mapping
        Replacements of transforms, by random variable.
    """
    copy, dims = Model(model=None), model.named_vars_to_dims
    copy.add_coords(model.coords, lengths=model.dim_lengths)

    def add(new: Variable, kind: list[Any], name: str) -> None:
        new.name = name
        kind.append(new)
        copy.add_named_variable(new, dims=dims.get(name))

    for each in data:
        add(each, copy.data_vars, each.name)
    for rv in model.basic_RVs:
        new, value = replaced.get(rv, rv), model.rvs_to_values[rv]
        is_free = rv in model.free_RVs
        add(new, copy.free_RVs if is_free else copy.observed_RVs, rv.name)
        copy.create_value_var(
            new,
            transform=transforms.get(rv, model.rvs_to_transforms[rv]),
            default_transform=None,
            value_var=replaced.get(value, value),
        )
        copy.set_initval(new, model.rvs_to_initial_values.get(rv) if is_free else None)
    for potential in model.potentials:
        add(replaced.get(potential, potential), copy.potentials, potential.name)
    return copy


def _container(data: Variable, name: str, *, has_shape: bool) -> SharedVariable:
    """Create a container of the values of a constant, or of those of a shared variable.

    Parameters
    ----------
    data : Constant or SharedVariable
    name : str
    has_shape : bool
        Whether its type has a static number of rows, which would be a constant in shapes.
    """
    if isinstance(data, Constant):
        shape = data.type.shape if has_shape else (None, *data.type.shape[1:])
        return shared(data.data, name=name, borrow=True, shape=shape)
    assert isinstance(data, SharedVariable)
    return TensorSharedVariable(
        type=data.type, value=None, strict=None, container=data.container, name=name
    )


def _outputs(node: Apply, inputs: list[Variable]) -> list[Variable]:
    """Apply the operation of a node to inputs whose numbers of rows may be unknown."""
    if isinstance(node.op, SymbolicOp):  # its inner graph is specific to the input types
        return node.op(*inputs, return_list=True)
    if isinstance(node.op, OpFromGraph):  # it would check the shapes of random variables
        return Apply(node.op, inputs, [each.clone() for each in node.outputs]).outputs
    return node.clone_with_new_inputs(inputs, strict=False).outputs


def _shape_inputs(node: Apply) -> range:
    """Positions of the inputs of a node that are lengths of axes, or vectors of such lengths."""
    if isinstance(node.op, Alloc):
        return range(1, len(node.inputs))
    if isinstance(node.op, Reshape):
        return range(1, 2)
    if isinstance(node.op, RandomVariable):
        return range(1, 2)  # size
    is_length = node.outputs and getattr(node.outputs[0].type, "dtype", "") == "int64"
    if is_length and isinstance(node.op, MakeVector):
        return range(len(node.inputs))
    if is_length and isinstance(node.op, Subtensor) and node.outputs[0].type.ndim == 0:
        return range(1)  # one length of a constant shape
    return range(0)


def _with_length(lengths: Variable, n_rows: int, new: TensorVariable) -> Variable:
    """Replace the number of rows in lengths of axes."""
    if not isinstance(lengths, Constant) or not isinstance(lengths.type, TensorType):
        return lengths
    values = np.asarray(lengths.data)
    if values.dtype.kind not in "iu" or values.size > _MAX_AXES or n_rows not in values:
        return lengths
    if values.ndim == 0:
        return new.astype(lengths.type.dtype)
    return pt.stack([new if value == n_rows else pt.constant(value) for value in values])
