"""The log-density of a model as a graph over manifold coordinates and rows of data.

The log-density is split into the terms that depend on rows of the minibatch, which are
scaled by N/n, and the others. Data, observed values and variables that other steps sample become
explicit inputs, so that nothing is hidden in shared variables or generators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import change_dist_size
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import Transform
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, graph_inputs, io_toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.row_inputs import DrawnRows, RowInput, named_rows, rows_in

__all__ = ["Density", "density_of", "rebuilt"]

_LARGEST_CONSTANT = 64
"""Longer constant arrays become inputs: compiled in, they make compilation slow."""


class _ModelError(ValueError):
    """An error that says all there is to say."""


@dataclass
class Density:
    """Terms of the log-density and the inputs they depend on.

    Attributes
    ----------
    coordinates : list of TensorVariable
        One per variable, of the variable's own shape, in kernel coordinates.
    row_terms, other_terms : list of TensorVariable
        Elementwise log-densities, already scaled; only the former depend on blocks of rows.
    row_names : list of str
        What each of the row terms belongs to.
    rows : list of RowInput
        Minibatched data.
    row_scaled : list of bool
        Whether it is ``total_size`` that scales a row term.
    arrays : dict
        Fixed data: graph input to its value or the shared variable that holds it.
    others : dict
        Variables sampled elsewhere: key in the point to graph input.
    """

    coordinates: list[TensorVariable]
    row_terms: list[TensorVariable]
    other_terms: list[TensorVariable]
    rows: list[RowInput]
    arrays: dict[TensorVariable, np.ndarray | SharedVariable] = field(default_factory=dict)
    others: dict[str, TensorVariable] = field(default_factory=dict)
    row_names: list[str] = field(default_factory=list)
    row_scaled: list[bool] = field(default_factory=list)

    @property
    def total(self) -> TensorVariable:
        """The log-density estimate, a scalar."""
        return pt.add(*[pt.sum(term) for term in (*self.row_terms, *self.other_terms)])


def _changes_no_shape(node: Apply) -> bool:
    """Whether a node broadcasts a value to the shape that it has already."""
    if not isinstance(node.op, Alloc):
        return False
    shape = node.outputs[0].type.shape
    return None not in shape and node.inputs[0].type.shape == shape


def rebuilt(
    outputs: Sequence[TensorVariable], replacements: Mapping[Variable, Variable]
) -> list[TensorVariable]:
    """Replace variables by others of any number of rows, making the nodes in between anew.

    The static shapes of all data and all local variables are wrong for a block of rows, and with
    them the assertions that PyMC puts where it replaces a random variable by its value, and the
    broadcasting of log-densities to a number of rows that was known.
    """
    memo = dict(replacements)
    for node in io_toposort([], outputs):
        if memo.keys().isdisjoint(node.inputs) or not memo.keys().isdisjoint(node.outputs):
            continue
        inputs = [memo.get(variable, variable) for variable in node.inputs]
        if isinstance(node.op, SpecifyShape) or _changes_no_shape(node):
            memo[node.outputs[0]] = inputs[0]
        else:
            remade = node.clone_with_new_inputs(inputs, strict=False)
            memo.update(zip(node.outputs, remade.outputs, strict=True))
    return [memo.get(output, output) for output in outputs]


def _with_rows_of(rv: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Make the same random variable with as many rows as ``value``."""
    batch_ndim = rv.type.ndim - rv.owner.op.ndim_supp
    rows = [value.shape[axis] for axis in range(batch_ndim)]
    resized = change_dist_size(rv, rows)
    resized.name = rv.name
    return resized


def _conditional_terms(
    rvs: Sequence[TensorVariable],
    rvs_to_values: Mapping[TensorVariable, TensorVariable],
    rvs_to_transforms: Mapping[TensorVariable, Transform | None],
) -> dict[TensorVariable, TensorVariable]:
    terms = transformed_conditional_logp(
        rvs=rvs, rvs_to_values=rvs_to_values, rvs_to_transforms=rvs_to_transforms, jacobian=True
    )
    return dict(zip(rvs, terms, strict=True))


def density_of(
    model: Model,
    variables: Sequence[ManifoldVariable],
    *,
    minibatch: Mapping[str, np.ndarray] | None = None,
    drawn: DrawnRows = MappingProxyType({}),
    batch_size: int | None = None,
    scale: float = 1.0,
    local: Sequence[ManifoldVariable] = (),
    without: Sequence[TensorVariable] = (),
    resized: Collection[str] = (),
) -> Density:
    """Build the log-density of a model in manifold coordinates.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        The variables to differentiate by.
    minibatch : mapping of str to ndarray, optional
        Data containers that are replaced by blocks of rows, with all their rows (or, for data
        that is streamed, any rows of the same type).
    drawn : mapping of (generator, int) to RowInput
        Rows that `pymc.Minibatch` draws in the model; see `pymc_geodesic.minibatches.row_inputs`.
    batch_size : int, optional
        Rows of a block; left open by default, or as `pymc.Minibatch` says.
    scale : float
        N / n, by which the log-density of the rows is multiplied, except where ``total_size``
        already does. With ``local`` it takes the place of ``total_size``.
    local : list of ManifoldVariable
        Variables with one point per row; they are coordinates too, after ``variables``, with
        ``batch_size`` rows.
    without : list of TensorVariable
        Random variables whose own terms are left out, such as the priors of ``variables``.
    resized : collection of str
        Data containers that stand for arrays of any length.

    Raises
    ------
    ValueError
        If a likelihood of minibatched data has the wrong length or no total size.
    """
    every = [*variables, *local]
    coordinates: list[TensorVariable] = []
    rvs_to_values = dict(model.rvs_to_values)
    rvs_to_transforms = dict(model.rvs_to_transforms)
    placed: dict[Variable, Variable] = {}
    volumes: list[TensorVariable] = []
    local_volumes: list[TensorVariable] = []
    for variable in every:
        shape = variable.rv.type.shape
        if variable in local:
            shape = (None, *shape[1:])
        if variable.on_manifold or variable in local:
            dtype = variable.value.type.dtype
            value = pt.tensor(f"{variable.name}_value", dtype=dtype, shape=shape)
            rvs_to_values[variable.rv] = value
            if variable.on_manifold:
                rvs_to_transforms[variable.rv] = None
        else:
            value = variable.value
        shape = variable.shape
        if variable in local:
            shape = (batch_size, *shape[1:])
        coordinate = pt.tensor(f"{variable.name}_coordinates", dtype="float64", shape=shape)
        coordinates.append(coordinate)
        placed[value] = variable.manifold.from_coordinates(coordinate, xp=pt).astype(value.dtype)
        if variable.on_manifold and type(variable.manifold).log_volume is not Manifold.log_volume:
            volume = variable.manifold.log_volume(coordinate, xp=pt)
            if isinstance(volume, TensorVariable):
                (local_volumes if variable in local else volumes).append(volume)

    rvs = model.free_RVs + model.observed_RVs
    rvs_to_terms = _conditional_terms(rvs, rvs_to_values, rvs_to_transforms)
    rvs = [rv for rv in rvs if rv not in without]
    if local:
        resized = {v.rv: _with_rows_of(v.rv, rvs_to_values[v.rv]) for v in local}
        parents = {resized.get(rv, rv): rv for rv in model.free_RVs}
        local_terms = _conditional_terms(
            list(resized.values()),
            {rv: rvs_to_values[original] for rv, original in parents.items()},
            {rv: rvs_to_transforms[original] for rv, original in parents.items()},
        )
        rvs_to_terms |= {rv: local_terms[new] for rv, new in resized.items()}
    terms = [rvs_to_terms[rv] for rv in rvs]
    scaled = [isinstance(rv.owner.op if rv.owner else None, MinibatchRandomVariable) for rv in rvs]
    names = [rv.name for rv in rvs]
    if model.potentials:
        terms += replace_rvs_by_values(
            model.potentials, rvs_to_values=rvs_to_values, rvs_to_transforms=rvs_to_transforms
        )
        scaled += [False] * len(model.potentials)
        names += [potential.name for potential in model.potentials]

    if minibatch:
        blocks = named_rows(model, minibatch, batch_size)
    else:
        blocks = rows_in(terms, drawn, batch_size)

    for container, row in blocks.items():
        dims = model.named_vars_to_dims.get(container.name, (None,)) if minibatch else (None,)
        length = model.dim_lengths.get(dims[0])
        if isinstance(length, SharedVariable):
            placed[length] = row.block.shape[0].astype(length.type.dtype)

    row_markers = {*blocks, *(rvs_to_values[v.rv] for v in local)}
    depends = [not row_markers.isdisjoint(ancestors([term])) for term in terms]
    if local:  # one factor for everything that belongs to a row, none in its conditional law
        for i, rv in enumerate(rvs):
            if scaled[i] and depends[i]:
                terms[i] = terms[i] / get_scaling(rv.owner.inputs[1:], rvs_to_values[rv].shape)
                scaled[i] = False
    _refuse_imputed(model, [name for name, on_rows in zip(names, depends, strict=True) if on_rows])
    graphs = terms
    replacements = {**placed, **{old: row.block for old, row in blocks.items()}}
    with _naming_containers(model, minibatch):
        terms = rebuilt(terms, replacements)

    for name, graph in zip(names, graphs, strict=True):
        _refuse_rows_drawn_apart(name, graph, blocks)
    row_terms, row_names, other_terms = [], [], list(volumes)
    for name, term, on_rows, already in zip(names, terms, depends, scaled, strict=True):
        if not on_rows:
            other_terms.append(term)
            continue
        row_names.append(name)
        if already:
            row_terms.append(term)
        elif not minibatch:
            message = (
                f"{name!r} sees a pm.Minibatch but not how many rows there are: "
                "pass total_size= to it"
            )
            raise ValueError(see(message, "minibatch"))
        else:
            row_terms.append(term * scale if scale != 1.0 else term)
    row_terms += [volume * scale if scale != 1.0 else volume for volume in local_volumes]
    row_names += ["the volume of local variables"] * len(local_volumes)

    row_inputs = list(dict.fromkeys(blocks.values()))
    density = Density(coordinates, row_terms, other_terms, row_inputs, row_names=row_names)
    density.row_scaled = [flag for flag, on_rows in zip(scaled, depends, strict=True) if on_rows]
    density.row_scaled += [False] * len(local_volumes)
    with _naming_containers(model, minibatch):
        _make_inputs_explicit(density, model, resized)
    return density


def _refuse_imputed(model: Model, names: Sequence[str]) -> None:
    """Refuse minibatches of observed values of which PyMC imputes some, by their positions."""
    for name in names:
        variable = name.removesuffix("_observed")
        if variable != name and {variable, f"{variable}_unobserved"} <= model.named_vars.keys():
            message = (
                f"the observed values of {variable!r} hold NaN or are masked, and PyMC imputes "
                f"them as {variable}_unobserved: rows of missing values cannot be subsampled. "
                "Drop those rows, impute them before, or use all the data, without minibatches"
            )
            raise ValueError(see(message, "missing-values"))


def _refuse_rows_drawn_apart(
    name: str, term: TensorVariable, blocks: Mapping[Variable, RowInput]
) -> None:
    """Refuse a term that joins rows of several `pymc.Minibatch`, each of which draws other ones."""
    found = [blocks[variable] for variable in ancestors([term]) if variable in blocks]
    if len({row.group for row in found}) > 1:
        message = (
            f"{name!r} joins rows that different pm.Minibatch draw, each others than the next, so "
            "that they do not belong together: draw them by one, "
            "X_rows, y_rows = pm.Minibatch(X, y, batch_size=...)"
        )
        raise ValueError(see(message, "minibatch"))


@contextmanager
def _naming_containers(model: Model, minibatch: Mapping[str, np.ndarray] | None) -> Iterator[None]:
    """Say which containers there are when a block of rows does not fit the rest of a model."""
    try:
        yield
    except _ModelError:
        raise
    except (ValueError, TypeError) as error:
        if not minibatch:
            raise
        others = [data.name for data in model.data_vars if data.name not in minibatch]
        beside = f"the model also has {others}" if others else "the model has no others yet"
        message = (
            f"a block of rows of minibatch={list(minibatch)} does not fit the rest of the model "
            f"({error}). Name every container with a row per observation, and put observed values "
            f"into containers; {beside}{_per_row(model, minibatch)}"
        )
        raise ValueError(see(message, "minibatch")) from error


def _per_row(model: Model, minibatch: Mapping[str, np.ndarray]) -> str:
    """Say which free variables have a value for every row, and what to do with them."""
    lengths = {model[name].get_value(borrow=True).shape[:1] for name in minibatch}
    found = [rv.name for rv in model.free_RVs if rv.type.shape[:1] in lengths]
    if not found:
        return ""
    return f". {found} may have a value for each row: then name them in local="


def _make_inputs_explicit(density: Density, model: Model, resized: Collection[str]) -> None:
    """Turn shared data, long constants and foreign value variables into inputs."""
    terms = [*density.row_terms, *density.other_terms]
    replacements: dict[Variable, Variable] = {}
    value_names = {value: value.name for value in model.value_vars}
    initial_point: dict[str, np.ndarray] | None = None
    known = {*density.coordinates, *(row.block for row in density.rows)}
    for variable in graph_inputs(terms):
        if isinstance(variable.type, RandomType):
            continue
        if variable in value_names:
            name = value_names[variable]
            density.others[name] = variable
            if None in variable.type.shape:  # as with dims, whose length may change
                if initial_point is None:
                    initial_point = model.initial_point(random_seed=0)
                fixed = pt.tensor(name, dtype=variable.dtype, shape=initial_point[name].shape)
                replacements[variable] = density.others[name] = fixed
        elif isinstance(variable, SharedVariable):
            shape = variable.get_value(borrow=True).shape
            if variable.name in resized:
                shape = (None, *shape[1:])
            copy = pt.tensor(variable.name, dtype=variable.type.dtype, shape=shape)
            replacements[variable] = copy
            density.arrays[copy] = variable
        elif isinstance(variable, Constant) and np.size(variable.data) > _LARGEST_CONSTANT:
            data = np.asarray(variable.data)
            copy = pt.tensor(dtype=variable.type.dtype, shape=data.shape)
            replacements[variable] = copy
            density.arrays[copy] = data
        elif not isinstance(variable, Constant) and variable not in known:
            raise _ModelError(
                see(f"The log-density depends on {variable}, which has no value", "minibatch")
            )
    if replacements:
        terms = rebuilt(terms, replacements)
        n = len(density.row_terms)
        density.row_terms, density.other_terms = terms[:n], terms[n:]
    unused = [row for row in density.rows if row.block not in set(explicit_graph_inputs(terms))]
    if unused:
        message = f"minibatch= names {unused[0].name!r}, which the log-density does not depend on"
        raise _ModelError(see(message, "minibatch"))
