"""Log-density of a model as a graph of manifold coordinates and rows of data.

The terms that depend on rows of a minibatch are separate from the others. They are not scaled:
`pymc_geodesic.gradients.minibatch_gradient` multiplies them by N/n. Data, observed values and the
variables of other steps are explicit inputs; the graphs have no shared variables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched

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
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.block_errors import ModelError, explain_block_errors
from pymc_geodesic.densities.graphs import MAX_CONSTANT_SIZE, rebuild_graphs
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.row_inputs import RowInput, RowInputs, check_not_imputed


@dataclass(eq=False)
class Term:
    """A term of the log-density.

    Attributes
    ----------
    name : str
        Name of its random variable or potential.
    graph : TensorVariable
        Elementwise log-density.
    rv : TensorVariable or None
        The random variable; None for a potential.
    is_scaled : bool
        Whether PyMC multiplies it by N/n, because the variable has a ``total_size``.
    """

    name: str
    graph: TensorVariable
    rv: TensorVariable | None = None
    is_scaled: bool = False

    @classmethod
    def of_variable(cls, rv: TensorVariable, graph: TensorVariable) -> Term:
        """Create the term of a random variable."""
        op = rv.owner.op if rv.owner else None
        return cls(rv.name, graph, rv, isinstance(op, MinibatchRandomVariable))

    def depends_on(self, variables: set[Variable]) -> bool:
        """Whether the term depends on any of some variables."""
        return not variables.isdisjoint(ancestors([self.graph]))

    def remove_scale(self, value: TensorVariable) -> None:
        """Divide by the factor of ``total_size``, given the value of the random variable."""
        if self.is_scaled:
            assert self.rv is not None
            self.graph = self.graph / get_scaling(self.rv.owner.inputs[1:], value.shape)
            self.is_scaled = False


@dataclass(eq=False)
class NormalTerm:
    """Normally distributed observations.

    Attributes
    ----------
    name : str
        Name of the random variable.
    position : int
        Position of the log-density in `Density.graphs`.
    value, mean, sd : TensorVariable
        Observations, and the parameters of their distribution.
    """

    name: str
    position: int
    value: TensorVariable
    mean: TensorVariable
    sd: TensorVariable


@dataclass
class Density:
    """Terms of the log-density and the inputs that they depend on.

    Attributes
    ----------
    coordinates : list of TensorVariable
        Kernel coordinates of each variable, in the shape of the variable.
    row_terms : list of Term
        Terms that depend on rows of a minibatch.
    other_terms : list of TensorVariable
        Elementwise log-densities that do not depend on rows.
    rows : list of RowInput
        Data with rows; see `RowInputs`.
    arrays : dict
        Other data: value or shared variable by graph input.
    others : dict
        Variables that other steps sample: graph input by name of the value variable.
    normal_terms : list of NormalTerm
        Terms of observed normal variables; empty if there are local variables.
    """

    coordinates: list[TensorVariable]
    row_terms: list[Term]
    other_terms: list[TensorVariable]
    rows: list[RowInput]
    arrays: dict[TensorVariable, np.ndarray | SharedVariable] = field(default_factory=dict)
    others: dict[str, TensorVariable] = field(default_factory=dict)
    normal_terms: list[NormalTerm] = field(default_factory=list)

    @property
    def row_graphs(self) -> list[TensorVariable]:
        """Graphs of the terms that depend on rows."""
        return [term.graph for term in self.row_terms]

    @property
    def graphs(self) -> list[TensorVariable]:
        """Graphs of all terms, those that depend on rows first."""
        return [*self.row_graphs, *self.other_terms]

    @property
    def inputs(self) -> list[TensorVariable]:
        """All inputs except the coordinates."""
        return [*self.others.values(), *self.arrays, *(row.block for row in self.rows)]


def build_density(
    model: Model,
    variables: Sequence[ManifoldVariable],
    inputs: RowInputs | None = None,
    *,
    local: Sequence[ManifoldVariable] = (),
    without: Sequence[TensorVariable] = (),
) -> Density:
    """Build the log-density of a model in manifold coordinates.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of the gradient.
    inputs : RowInputs, optional
        Data that are replaced by blocks of rows; none by default.
    local : list of ManifoldVariable
        Variables with one point per row. Their coordinates follow those of ``variables``, with as
        many rows as a block. Factors of ``total_size`` are removed.
    without : list of TensorVariable
        Random variables whose own terms are omitted, such as the priors of ``variables``.

    Raises
    ------
    ValueError
        If a block of rows does not fit the model, or a likelihood of rows has no total size.
    """
    inputs = inputs or RowInputs()
    parametrization = _Parametrization(dict(model.rvs_to_values), dict(model.rvs_to_transforms))
    for variable in variables:
        parametrization.add(variable)
    for variable in local:
        parametrization.add_local(variable, inputs.n_rows)
    terms = _terms(model, parametrization, local, without)
    # find the inputs with rows, and the terms that depend on them
    blocks = inputs.blocks(model, [term.graph for term in terms])
    _fix_widths(terms, blocks)
    with_rows: set[Variable] = {*blocks, *(parametrization.values[v.rv] for v in local)}
    row_terms = [term for term in terms if term.depends_on(with_rows)]
    if local:
        for term in row_terms:
            if term.rv is not None:
                term.remove_scale(parametrization.values[term.rv])
    check_not_imputed(model, [term.name for term in row_terms])
    replacements = parametrization.replacements | _dim_lengths(model, blocks, inputs)
    replacements |= {data: row.block for data, row in blocks.items()}
    normal = [term for term in terms if not local and _is_observed_normal(term, model)]
    parameters = _normal_parameters(normal, parametrization)
    with explain_block_errors(model, inputs):
        graphs = rebuild_graphs([*(term.graph for term in terms), *parameters], replacements)
    for term in terms:
        _check_drawn_together(term, blocks)
    for term, graph in zip(terms, graphs[: len(terms)], strict=True):
        term.graph = graph
    if not inputs.arrays:
        _check_total_sizes(row_terms)
    others = [term for term in terms if term not in row_terms]
    with_volumes = [*row_terms, *parametrization.volumes, *others]
    density = Density(
        parametrization.coordinates,
        row_terms,
        [*parametrization.volumes, *(term.graph for term in others)],
        list(dict.fromkeys(blocks.values())),
        normal_terms=[
            NormalTerm(term.name, with_volumes.index(term), *of_term)
            for term, of_term in zip(normal, batched(graphs[len(terms) :], 3), strict=True)
        ],
    )
    density.row_terms += [
        Term("the volume of local variables", volume) for volume in parametrization.local_volumes
    ]
    with explain_block_errors(model, inputs):
        _make_inputs_explicit(density, model, inputs.whole)
    return density


# --- terms in manifold coordinates --------------------------------------------------------------


@dataclass
class _Parametrization:
    """Value variables of a model as functions of manifold coordinates.

    Attributes
    ----------
    values, transforms : dict
        Value variable and transform by random variable; a point on a manifold has no transform.
    coordinates : list of TensorVariable
        Coordinates of each variable, local variables last.
    replacements : dict
        Function of the coordinates by value variable.
    volumes, local_volumes : list of TensorVariable
        Logarithms of volume elements of variables, and of variables with one point per row.
    """

    values: dict[TensorVariable, TensorVariable]
    transforms: dict[TensorVariable, Transform | None]
    coordinates: list[TensorVariable] = field(default_factory=list)
    replacements: dict[Variable, Variable] = field(default_factory=dict)
    volumes: list[TensorVariable] = field(default_factory=list)
    local_volumes: list[TensorVariable] = field(default_factory=list)

    def add(self, variable: ManifoldVariable) -> None:
        """Parametrize a variable by its coordinates."""
        value = variable.value
        if variable.on_manifold:
            value = self._new_value(variable, variable.rv.type.shape)
        self._replace(variable, value, variable.shape, self.volumes)

    def add_local(self, variable: ManifoldVariable, n_rows: int | None) -> None:
        """Parametrize some rows of a variable with one point per row."""
        value = self._new_value(variable, (None, *variable.rv.type.shape[1:]))
        self._replace(variable, value, (n_rows, *variable.shape[1:]), self.local_volumes)

    def _new_value(
        self, variable: ManifoldVariable, shape: tuple[int | None, ...]
    ) -> TensorVariable:
        value = pt.TensorType(variable.value.type.dtype, shape)(f"{variable.name}_value")
        self.values[variable.rv] = value
        if variable.on_manifold:
            self.transforms[variable.rv] = None
        return value

    def _replace(
        self,
        variable: ManifoldVariable,
        value: TensorVariable,
        shape: tuple[int | None, ...],
        volumes: list[TensorVariable],
    ) -> None:
        coordinate = pt.TensorType("float64", shape)(f"{variable.name}_coordinates")
        self.coordinates.append(coordinate)
        point = variable.manifold.from_coordinates(coordinate, xp=pt)
        self.replacements[value] = point.astype(value.dtype)
        if variable.on_manifold and type(variable.manifold).log_volume is not Manifold.log_volume:
            volume = variable.manifold.log_volume(coordinate, xp=pt)
            if isinstance(volume, TensorVariable):
                volumes.append(volume)


def _terms(
    model: Model,
    parametrization: _Parametrization,
    local: Sequence[ManifoldVariable] = (),
    without: Sequence[TensorVariable] = (),
) -> list[Term]:
    """Build the terms of the random variables and potentials of a model.

    Parameters
    ----------
    model : pymc.Model
    parametrization : _Parametrization
    local : list of ManifoldVariable
        Variables with one point per row.
    without : list of TensorVariable
        Random variables whose own terms are omitted.
    """
    rvs = model.free_RVs + model.observed_RVs
    graphs = _conditional_graphs(rvs, parametrization.values, parametrization.transforms)
    if local:
        graphs |= _local_graphs(model, parametrization, local)
    terms = [Term.of_variable(rv, graphs[rv]) for rv in rvs if rv not in without]
    if model.potentials:
        replaced = replace_rvs_by_values(
            model.potentials,
            rvs_to_values=parametrization.values,
            rvs_to_transforms=parametrization.transforms,
        )
        terms += [
            Term(potential.name, graph)
            for potential, graph in zip(model.potentials, replaced, strict=True)
        ]
    return terms


def _is_observed_normal(term: Term, model: Model) -> bool:
    """Whether a term is that of an observed normal variable without a transform."""
    rv = term.rv
    if rv is None or rv not in model.observed_RVs or model.rvs_to_transforms[rv] is not None:
        return False
    return isinstance(rv.owner.op, NormalRV)


def _normal_parameters(
    terms: Sequence[Term], parametrization: _Parametrization
) -> list[TensorVariable]:
    """Value, mean and standard deviation of each normal variable."""
    graphs: list[TensorVariable] = []
    for term in terms:
        assert term.rv is not None
        mean, sd = term.rv.owner.op.dist_params(term.rv.owner)
        graphs += [parametrization.values[term.rv], mean, sd]
    if not graphs:
        return []
    return replace_rvs_by_values(
        graphs,
        rvs_to_values=parametrization.values,
        rvs_to_transforms=parametrization.transforms,
    )


def _conditional_graphs(
    rvs: Sequence[TensorVariable],
    values: Mapping[TensorVariable, TensorVariable],
    transforms: Mapping[TensorVariable, Transform | None],
) -> dict[TensorVariable, TensorVariable]:
    graphs = transformed_conditional_logp(
        rvs=rvs, rvs_to_values=values, rvs_to_transforms=transforms, jacobian=True
    )
    return dict(zip(rvs, graphs, strict=True))


def _local_graphs(
    model: Model, parametrization: _Parametrization, local: Sequence[ManifoldVariable]
) -> dict[TensorVariable, TensorVariable]:
    """Build the log-densities of local variables with as many rows as a block."""
    values, transforms = parametrization.values, parametrization.transforms
    resized = {v.rv: _with_rows_of(v.rv, values[v.rv]) for v in local}
    parents = {resized.get(rv, rv): rv for rv in model.free_RVs}
    graphs = _conditional_graphs(
        list(resized.values()),
        {rv: values[original] for rv, original in parents.items()},
        {rv: transforms[original] for rv, original in parents.items()},
    )
    return {rv: graphs[new] for rv, new in resized.items()}


def _with_rows_of(rv: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Resize a random variable to as many rows as ``value``."""
    batch_ndim = rv.type.ndim - rv.owner.op.ndim_supp
    resized = change_dist_size(rv, [value.shape[axis] for axis in range(batch_ndim)])
    resized.name = rv.name
    return resized


# --- lengths of data ----------------------------------------------------------------------------


def _fix_widths(terms: Sequence[Term], blocks: Mapping[Variable, RowInput]) -> None:
    """Replace lengths of data along other axes than the rows, such as ``X.shape[1]``, by constants.

    Then the prior of ``X.shape[1]`` coefficients does not depend on rows.
    """
    graphs = [term.graph for term in terms]
    widths: dict[Variable, Variable] = {}
    for node in io_toposort([], graphs):
        data, axis = _measured_axis(node)
        if data is not None and data in blocks and axis % data.type.ndim > 0:
            width = blocks[data].data.shape[axis]
            widths[node.outputs[0]] = pt.constant(width, dtype=node.outputs[0].type.dtype)
    if widths:
        for term, graph in zip(terms, rebuild_graphs(graphs, widths), strict=True):
            term.graph = graph


def _measured_axis(node: Apply) -> tuple[Variable | None, int]:
    """Variable and axis whose length a node returns; None for other nodes."""
    if isinstance(node.op, Shape_i):
        return node.inputs[0], node.op.i
    shape = node.inputs[0].owner if isinstance(node.op, Subtensor) else None
    if shape is not None and isinstance(shape.op, Shape):
        (index,) = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if isinstance(index, Constant):
            return shape.inputs[0], int(index.data)
    return None, 0


def _dim_lengths(
    model: Model, blocks: Mapping[Variable, RowInput], inputs: RowInputs
) -> dict[Variable, Variable]:
    """Map the lengths of the dims of rows to the lengths of blocks."""
    lengths: dict[Variable, Variable] = {}
    for container, row in blocks.items():
        dims = model.named_vars_to_dims.get(container.name, (None,)) if inputs.arrays else (None,)
        length = model.dim_lengths.get(dims[0])
        if isinstance(length, SharedVariable):
            lengths[length] = row.block.shape[0].astype(length.type.dtype)
    return lengths


# --- checks of pm.Minibatch ---------------------------------------------------------------------


def _check_drawn_together(term: Term, blocks: Mapping[Variable, RowInput]) -> None:
    """Raise ValueError for a term with independently drawn rows of several `pymc.Minibatch`."""
    found = [blocks[variable] for variable in ancestors([term.graph]) if variable in blocks]
    if len({row.group for row in found}) > 1:
        message = (
            f"{term.name!r} combines rows of different pm.Minibatch, which are drawn "
            "independently. Draw them together: "
            "X_rows, y_rows = pm.Minibatch(X, y, batch_size=...)"
        )
        raise ValueError(see(message, "minibatch"))


def _check_total_sizes(row_terms: Sequence[Term]) -> None:
    """Raise ValueError for a term of `pymc.Minibatch` rows without a ``total_size``."""
    for term in row_terms:
        if not term.is_scaled:
            message = (
                f"{term.name!r} depends on a pm.Minibatch but has no total_size. Set total_size= "
                "to the number of all rows"
            )
            raise ValueError(see(message, "minibatch"))


# --- explicit inputs ----------------------------------------------------------------------------


def _make_inputs_explicit(density: Density, model: Model, resized: Collection[str]) -> None:
    """Replace shared data, large constants and variables of other steps by inputs.

    Parameters
    ----------
    density : Density
        Modified in place.
    model : pymc.Model
    resized : collection of str
        Names of data containers whose length may change.
    """
    parameters = [
        each for term in density.normal_terms for each in (term.value, term.mean, term.sd)
    ]
    graphs = [*density.graphs, *parameters]
    replacements: dict[Variable, Variable] = {}
    value_names = {value: value.name for value in model.value_vars}
    initial_point: dict[str, np.ndarray] | None = None
    known = {*density.coordinates, *(row.block for row in density.rows)}
    for variable in graph_inputs(graphs):
        if isinstance(variable.type, RandomType):
            continue
        if variable in value_names:
            name = value_names[variable]
            density.others[name] = variable
            if None in variable.type.shape:  # for example with dims of mutable length
                if initial_point is None:
                    initial_point = model.initial_point(random_seed=0)
                fixed = pt.TensorType(variable.dtype, initial_point[name].shape)(name)
                replacements[variable] = density.others[name] = fixed
        elif isinstance(variable, SharedVariable):
            shape = variable.get_value(borrow=True).shape
            if variable.name in resized:
                shape = (None, *shape[1:])
            copy = pt.TensorType(variable.type.dtype, shape)(variable.name)
            replacements[variable] = copy
            density.arrays[copy] = variable
        elif isinstance(variable, Constant) and np.size(variable.data) > MAX_CONSTANT_SIZE:
            data = np.asarray(variable.data)
            n_arrays = sum(isinstance(each, np.ndarray) for each in density.arrays.values())
            name = f"array {n_arrays + 1}"
            copy = pt.tensor(name, dtype=variable.type.dtype, shape=data.shape)
            replacements[variable] = copy
            density.arrays[copy] = data
        elif not isinstance(variable, Constant) and variable not in known:
            raise ModelError(
                see(f"The log-density depends on {variable}, which has no value", "minibatch")
            )
    if replacements:
        graphs = rebuild_graphs(graphs, replacements)
        n, n_terms = len(density.row_terms), len(density.graphs)
        for term, graph in zip(density.row_terms, graphs[:n], strict=True):
            term.graph = graph
        density.other_terms = graphs[n:n_terms]
        for normal, of_term in zip(density.normal_terms, batched(graphs[n_terms:], 3), strict=True):
            normal.value, normal.mean, normal.sd = of_term
    unused = [row for row in density.rows if row.block not in set(explicit_graph_inputs(graphs))]
    if unused:
        message = (
            f"{unused[0].name!r} has a row per observation, but the log-density does not depend on "
            "it. Remove it from minibatch=, or from the model"
        )
        raise ModelError(see(message, "minibatch"))
