"""Rows of a model: the data that hold one value, or several, for each observation."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pymc.model import Model
from pytensor import shared
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import drawn_rows, evaluate_data, model_graphs
from pymc_geodesic.sparse import sparse_containers


@dataclass(frozen=True, eq=False)
class ModelRows:
    """Data of a model whose rows belong to its observations.

    Attributes
    ----------
    n_rows : int
        N, the number of rows.
    observed : tuple of str
        Observed variables with one value, or several, for each row.
    dim : str or None
        Dimension of the rows, if they have one in the model.
    data : dict of str to Variable
        Data containers and constants of the model whose first axis counts the rows. A container has
        its name, a constant that is observed that of its variable.
    """

    n_rows: int
    observed: tuple[str, ...]
    dim: str | None
    data: Mapping[str, Variable]

    def __repr__(self) -> str:
        """Describe the rows, and the data that move with them."""
        dim = f" (dim {self.dim!r})" if self.dim else ""
        arrays = ", ".join(
            f"{name} {evaluate_data(each).shape}" for name, each in self.data.items()
        )
        return f"{self.n_rows:,} rows of {', '.join(self.observed)}{dim}: {arrays}"

    @property
    def constants(self) -> dict[str, Constant]:
        """Data that are constants in the graph of the model, and no containers."""
        return {name: each for name, each in self.data.items() if isinstance(each, Constant)}


def find_rows(model: Model, selected: Sequence[str] | None = None) -> ModelRows:
    """Find the data whose rows belong to observations.

    These are the constants, data containers and arrays of indices that the observed variables
    depend on, other than through the prior of a free variable, and whose first axis is as long as
    that of the observations. A container with another dimension of the model is not among them.

    Parameters
    ----------
    model : pymc.Model
    selected : sequence of str, optional
        Observed variables, or a dimension of observed variables, whose rows are meant. By default
        all observed variables, which must then have the same number of rows.

    Raises
    ------
    ValueError
        If no variable is observed, the observed variables have different rows, no data have these
        rows, or an array has a row and a column for each observation.

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
    observed = _observed(model, selected)
    values = [model.rvs_to_values[rv] for rv in observed]
    n_rows, dim = _length(model, observed[0]), _first_dim(model, observed[0].name)
    data: dict[str, Variable] = {}
    for rv, value in zip(observed, values, strict=True):
        if isinstance(value, Constant):
            data[f"{rv.name} (observed)"] = value
    for leaf in _leaves(model, [*observed, *values, *model.potentials]):
        if leaf in data.values() or not _has_rows(model, leaf, n_rows, dim):
            continue
        number = sum(each.startswith("constant ") for each in data) + 1
        name = _name(model, leaf) if isinstance(leaf, SharedVariable) else f"constant {number}"
        if np.shape(_value(leaf)) == (n_rows, n_rows):
            message = (
                f"{name!r} has the shape {(n_rows, n_rows)}, a row and a column for each of the "
                f"observations of {observed[0].name!r}, as a covariance has: observations that "
                "depend on each other cannot be divided into minibatches; use all rows, without "
                "batch_size=. If it is a matrix of covariates, put the data into pm.Data "
                "containers and name these, minibatch=[...]"
            )
            raise ValueError(see(message, "no-sum-over-rows"))
        data[name] = leaf
    if not data:
        name = observed[0].name
        dims = f", dims {model.named_vars_to_dims[name]}" if dim else ""
        message = (
            f"no data have {n_rows:,} rows, the length of the first axis of {name!r}{dims}. Rows "
            "are along the first axis, and values that are computed from other rows, such as "
            "y[1:], need data of their own"
        )
        raise ValueError(see(message, "minibatch"))
    return ModelRows(n_rows, tuple(rv.name for rv in observed), dim, data)


def _observed(model: Model, selected: Sequence[str] | None) -> list[TensorVariable]:
    """Observed variables with rows that are selected, all of which have the same rows."""
    known = [rv for rv in model.observed_RVs if rv.type.ndim > 0]
    if not known:
        message = (
            "batch_size= selects rows of the observations, and this model has no observed variable "
            "with more than one value: a likelihood in a pm.Potential needs minibatch=[...], the "
            "names of the pm.Data containers whose rows it adds up"
        )
        raise ValueError(see(message, "minibatch"))
    if selected is None:
        found = known
    else:
        found = [rv for name in selected for rv in known if _is_named(model, rv, name)]
    rows = {rv.name: (_length(model, rv), _first_dim(model, rv.name)) for rv in found}
    if len(set(rows.values())) > 1:
        listed = ", ".join(
            f"{name!r} has {n:,}" + (f" ({dim})" if dim else "") for name, (n, dim) in rows.items()
        )
        message = (
            f"the observed variables have different rows: {listed}. Name the ones to divide into "
            f"minibatches, minibatch={next(iter(rows))!r} for example; the others are seen whole"
        )
        raise ValueError(see(message, "minibatch"))
    return found


def _is_named(model: Model, rv: TensorVariable, name: str) -> bool:
    return name in (rv.name, _first_dim(model, rv.name))


def _first_dim(model: Model, name: str) -> str | None:
    dims = model.named_vars_to_dims.get(name) or (None,)
    return dims[0]


def _length(model: Model, rv: TensorVariable) -> int:
    return len(evaluate_data(model.rvs_to_values[rv]))


def _leaves(model: Model, graphs: Sequence[Variable]) -> Iterator[Variable]:
    """Constants and containers of graphs, without those of the priors of free variables."""
    for variable in ancestors(graphs, blockers=model.free_RVs):
        is_data = isinstance(variable, Constant | SharedVariable) and variable.owner is None
        if is_data and isinstance(variable.type, TensorType) and variable.type.ndim > 0:
            yield variable


def _has_rows(model: Model, leaf: Variable, n_rows: int, dim: str | None) -> bool:
    own = _first_dim(model, leaf.name) if isinstance(leaf, SharedVariable) else None
    if dim and own and own != dim:
        return False
    return np.shape(_value(leaf))[:1] == (n_rows,)


def _name(model: Model, container: SharedVariable) -> str:
    """Name of a container, or of the sparse matrix whose rows it holds."""
    name = str(container.name)
    sparse = sparse_containers(model, name.removesuffix("_rows"))
    return name if sparse is None else name.removesuffix("_rows")


def _value(leaf: Variable) -> np.ndarray:
    return leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)


def selected_rows(model: Model, names: Sequence[str], batch_size: int | None) -> ModelRows | None:
    """Rows that a step finds in its model; None where it uses all rows or the user names data.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
        Data containers, or observed variables or their dimension, whose data are found.
    batch_size : int, optional

    Raises
    ------
    ValueError
        If containers and observed variables are mixed, a name is unknown, or rows are ambiguous.
    """
    if not names:
        if batch_size is None or drawn_rows(model_graphs(model)):
            return None
        return find_rows(model)
    known = [rv.name for rv in model.observed_RVs] + [
        dim for rv in model.observed_RVs if (dim := _first_dim(model, rv.name))
    ]
    found = [name for name in names if name in known]
    if not found:
        return None
    if len(found) < len(names):
        others = [name for name in names if name not in known]
        message = (
            f"minibatch= mixes {found}, whose data are found in the model, with {others}: name "
            "observed variables or a dimension, or every data container with a row per observation"
        )
        near = [each for name in others for each in difflib.get_close_matches(name, known, n=1)]
        raise ValueError(
            see(message + (f". Did you mean {near[0]!r}?" if near else ""), "minibatch")
        )
    return find_rows(model, found)


def with_containers(model: Model, rows: ModelRows) -> Model:
    """Make a model of the same variables in which rows that were constants are data containers.

    Free variables keep their value variables, so that points of the one are points of the other.
    The arrays are not copied.

    Parameters
    ----------
    model : pymc.Model
    rows : ModelRows
    """
    containers = {
        constant: shared(constant.data, name=name, borrow=True, shape=constant.type.shape)
        for name, constant in rows.constants.items()
    }
    if not containers:
        return model
    replaced: dict[Variable, Variable] = dict(containers)
    for node in io_toposort([], [*model.basic_RVs, *model.potentials]):
        if not replaced.keys().isdisjoint(node.inputs):
            new_node = node.clone_with_new_inputs([replaced.get(v, v) for v in node.inputs])
            replaced.update(zip(node.outputs, new_node.outputs, strict=True))
    copy = Model(model=None)
    copy.add_coords(model.coords, lengths=model.dim_lengths)
    dims = model.named_vars_to_dims
    for data in (*model.data_vars, *containers.values()):
        copy.data_vars.append(data)
        copy.add_named_variable(data, dims=dims.get(data.name))
    for rv in model.basic_RVs:
        new, value = replaced.get(rv, rv), model.rvs_to_values[rv]
        is_free = rv in model.free_RVs
        (copy.free_RVs if is_free else copy.observed_RVs).append(new)
        copy.create_value_var(
            new,
            transform=model.rvs_to_transforms[rv],
            default_transform=None,
            value_var=containers.get(value, value),
        )
        copy.set_initval(new, model.rvs_to_initial_values.get(rv) if is_free else None)
        new.name = rv.name
        copy.add_named_variable(new, dims=dims.get(rv.name))
    for potential in model.potentials:
        new = replaced.get(potential, potential)
        copy.potentials.append(new)
        new.name = potential.name
        copy.add_named_variable(new, dims=dims.get(potential.name))
    return copy
