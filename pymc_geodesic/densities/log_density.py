"""The log-density of a model as a graph over manifold coordinates and rows of data.

The log-density is split into the terms that depend on rows of the minibatch, which are
scaled by N/n, and the others. Data, observed values and variables that other steps sample become
explicit inputs, so that nothing is hidden in shared variables or generators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.shape_utils import change_dist_size
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import Transform
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.compile.builders import SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, graph_inputs, io_toposort
from pytensor.tensor.basic import Alloc
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.row_inputs import RowInput, SeenRows

ALL_ROWS = SeenRows()
"""No block stands for any data."""

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

    def add_row_term(self, name: str, term: TensorVariable, *, is_scaled: bool = False) -> None:
        """Add a term that depends on blocks of rows."""
        self.row_names.append(name)
        self.row_terms.append(term)
        self.row_scaled.append(is_scaled)

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
        elif isinstance(node.op, SymbolicOp):  # has a graph for inputs of these shapes alone
            memo.update(zip(node.outputs, node.op(*inputs, return_list=True), strict=True))
        else:
            remade = node.clone_with_new_inputs(inputs, strict=False)
            memo.update(zip(node.outputs, remade.outputs, strict=True))
    return [memo.get(output, output) for output in outputs]


def density_of(
    model: Model,
    variables: Sequence[ManifoldVariable],
    seen: SeenRows = ALL_ROWS,
    *,
    scale: float = 1.0,
    local: Sequence[ManifoldVariable] = (),
    without: Sequence[TensorVariable] = (),
) -> Density:
    """Build the log-density of a model in manifold coordinates.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        The variables to differentiate by.
    seen : SeenRows
        The data that are replaced by blocks of rows: none by default.
    scale : float
        N / n, by which the log-density of the rows is multiplied, except where ``total_size``
        already does. With ``local`` it takes the place of ``total_size``.
    local : list of ManifoldVariable
        Variables with one point per row; they are coordinates too, after ``variables``, with as
        many rows as a block.
    without : list of TensorVariable
        Random variables whose own terms are left out, such as the priors of ``variables``.

    Raises
    ------
    ValueError
        If a likelihood of minibatched data has the wrong length or no total size.
    """
    places = Places.of(model)
    for variable in variables:
        places.add(variable)
    for variable in local:
        places.add_local(variable, seen.n_rows)
    terms = terms_of(model, places, local, without)
    blocks = seen.blocks(model, [term.graph for term in terms])
    _fix_widths(terms, blocks)
    markers: set[Variable] = {*blocks, *(places.values[v.rv] for v in local)}
    of_rows = [term for term in terms if term.sees(markers)]
    if local:  # one factor for everything that belongs to a row, none in its conditional law
        for term in of_rows:
            term.drop_scale(places)
    _refuse_imputed(model, [term.name for term in of_rows])
    replacements = places.placed | _lengths(model, blocks, seen)
    replacements |= {old: row.block for old, row in blocks.items()}
    with _naming_containers(model, seen):
        graphs = rebuilt([term.graph for term in terms], replacements)
    for term in terms:
        _refuse_rows_drawn_apart(term, blocks)
    density = Density(
        places.coordinates, [], list(places.volumes), list(dict.fromkeys(blocks.values()))
    )
    for term, graph in zip(terms, graphs, strict=True):
        if term in of_rows:
            density.add_row_term(
                term.name, _scaled(term, graph, scale, seen), is_scaled=term.is_scaled
            )
        else:
            density.other_terms.append(graph)
    for volume in places.local_volumes:
        density.add_row_term(
            "the volume of local variables", volume * scale if scale != 1.0 else volume
        )
    with _naming_containers(model, seen):
        _make_inputs_explicit(density, model, seen.whole)
    return density


def _fix_widths(terms: Sequence[Term], blocks: Mapping[Variable, RowInput]) -> None:
    """Make numbers of the lengths of data along other axes than the rows, as in ``X.shape[1]``.

    A prior of so many coefficients does not depend on the rows.
    """
    graphs = [term.graph for term in terms]
    widths: dict[Variable, Variable] = {}
    for node in io_toposort([], graphs):
        data, axis = _length_of(node)
        if data is not None and data in blocks and axis % data.type.ndim > 0:
            width = blocks[data].data.shape[axis]
            widths[node.outputs[0]] = pt.constant(width, dtype=node.outputs[0].type.dtype)
    if widths:
        for term, graph in zip(terms, rebuilt(graphs, widths), strict=True):
            term.graph = graph


def _length_of(node: Apply) -> tuple[Variable | None, int]:
    """Return of what a node is the length, and along which axis; None if it is no length."""
    if isinstance(node.op, Shape_i):
        return node.inputs[0], node.op.i
    shape = node.inputs[0].owner if isinstance(node.op, Subtensor) else None
    if shape is not None and isinstance(shape.op, Shape):
        (index,) = indices_from_subtensor(node.inputs[1:], node.op.idx_list)
        if isinstance(index, Constant):
            return shape.inputs[0], int(index.data)
    return None, 0


def _lengths(
    model: Model, blocks: Mapping[Variable, RowInput], seen: SeenRows
) -> dict[Variable, Variable]:
    """Lengths of blocks, in the place of those of the dims that their containers have."""
    lengths: dict[Variable, Variable] = {}
    for container, row in blocks.items():
        dims = model.named_vars_to_dims.get(container.name, (None,)) if seen.arrays else (None,)
        length = model.dim_lengths.get(dims[0])
        if isinstance(length, SharedVariable):
            lengths[length] = row.block.shape[0].astype(length.type.dtype)
    return lengths


def _scaled(term: Term, graph: TensorVariable, scale: float, seen: SeenRows) -> TensorVariable:
    """Multiply a term of rows, if ``total_size`` does not."""
    if term.is_scaled:
        return graph
    if not seen.arrays:
        message = (
            f"{term.name!r} sees a pm.Minibatch but not how many rows there are: "
            "pass total_size= to it"
        )
        raise ValueError(see(message, "minibatch"))
    return graph * scale if scale != 1.0 else graph


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


def _refuse_rows_drawn_apart(term: Term, blocks: Mapping[Variable, RowInput]) -> None:
    """Refuse a term that joins rows of several `pymc.Minibatch`, each of which draws other ones."""
    found = [blocks[variable] for variable in ancestors([term.graph]) if variable in blocks]
    if len({row.group for row in found}) > 1:
        message = (
            f"{term.name!r} joins rows that different pm.Minibatch draw, each others than the "
            "next, so that they do not belong together: draw them by one, "
            "X_rows, y_rows = pm.Minibatch(X, y, batch_size=...)"
        )
        raise ValueError(see(message, "minibatch"))


@contextmanager
def _naming_containers(model: Model, seen: SeenRows) -> Iterator[None]:
    """Say what has rows beside a block of them that does not fit the rest of a model."""
    try:
        yield
    except _ModelError:
        raise
    except (IndexError, TypeError, ValueError) as error:
        if not seen.arrays and not seen.drawn:
            raise
        if seen.drawn:
            message = (
                f"the rows that pm.Minibatch draws do not fit the rest of the model ({error}). "
                "Draw all data with a row per observation by one, "
                "X_rows, y_rows = pm.Minibatch(X, y, batch_size=...), observed values too"
            )
            raise ValueError(see(message, "minibatch")) from error
        others = [data.name for data in model.data_vars if data.name not in seen.arrays]
        beside = f"the model also has {others}" if others else "the model has no others yet"
        message = (
            f"a block of rows of minibatch={list(seen.arrays)} does not fit the rest of the model "
            f"({error}). Name every container with a row per observation, and put observed values "
            f"into containers; {beside}{_per_row(model, seen)}"
        )
        raise ValueError(see(message, "minibatch")) from error


def _per_row(model: Model, seen: SeenRows) -> str:
    """Say which free variables have a value for every row, and what to do with them."""
    lengths = {model[name].get_value(borrow=True).shape[:1] for name in seen.arrays}
    start = model.initial_point(random_seed=0)  # with dims, no static shape is known
    shapes = {rv.name: start[model.rvs_to_values[rv].name].shape for rv in model.free_RVs}
    found = [name for name, shape in shapes.items() if shape[:1] in lengths]
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
                fixed = pt.TensorType(variable.dtype, initial_point[name].shape)(name)
                replacements[variable] = density.others[name] = fixed
        elif isinstance(variable, SharedVariable):
            shape = variable.get_value(borrow=True).shape
            if variable.name in resized:
                shape = (None, *shape[1:])
            copy = pt.TensorType(variable.type.dtype, shape)(variable.name)
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


@dataclass
class Places:
    """Where the coordinates of variables stand in the graphs of a model.

    Attributes
    ----------
    values, transforms : dict
        Value variable and transform by random variable; a point of a manifold has no transform.
    coordinates : list of TensorVariable
        One for each variable, local ones last.
    placed : dict
        What takes the place of a value variable: a function of its coordinates.
    volumes, local_volumes : list of TensorVariable
        Logarithms of volume elements, those of variables with one point for each row apart.
    """

    values: dict[TensorVariable, TensorVariable]
    transforms: dict[TensorVariable, Transform | None]
    coordinates: list[TensorVariable] = field(default_factory=list)
    placed: dict[Variable, Variable] = field(default_factory=dict)
    volumes: list[TensorVariable] = field(default_factory=list)
    local_volumes: list[TensorVariable] = field(default_factory=list)

    @classmethod
    def of(cls, model: Model) -> Places:
        """Make those of a model none of whose variables is replaced yet."""
        return cls(dict(model.rvs_to_values), dict(model.rvs_to_transforms))

    def add(self, variable: ManifoldVariable) -> None:
        """Put the coordinates of a variable in its place."""
        value = variable.value
        if variable.on_manifold:
            value = self._replace_value(variable, variable.rv.type.shape)
        self._put(variable, value, variable.shape, self.volumes)

    def add_local(self, variable: ManifoldVariable, n_rows: int | None) -> None:
        """Put the coordinates of some rows in the place of a variable that has all of them."""
        value = self._replace_value(variable, (None, *variable.rv.type.shape[1:]))
        self._put(variable, value, (n_rows, *variable.shape[1:]), self.local_volumes)

    def _replace_value(
        self, variable: ManifoldVariable, shape: tuple[int | None, ...]
    ) -> TensorVariable:
        value = pt.TensorType(variable.value.type.dtype, shape)(f"{variable.name}_value")
        self.values[variable.rv] = value
        if variable.on_manifold:
            self.transforms[variable.rv] = None
        return value

    def _put(
        self,
        variable: ManifoldVariable,
        value: TensorVariable,
        shape: tuple[int | None, ...],
        volumes: list[TensorVariable],
    ) -> None:
        coordinate = pt.TensorType("float64", shape)(f"{variable.name}_coordinates")
        self.coordinates.append(coordinate)
        point = variable.manifold.from_coordinates(coordinate, xp=pt)
        self.placed[value] = point.astype(value.dtype)
        if variable.on_manifold and type(variable.manifold).log_volume is not Manifold.log_volume:
            volume = variable.manifold.log_volume(coordinate, xp=pt)
            if isinstance(volume, TensorVariable):
                volumes.append(volume)


@dataclass(eq=False)
class Term:
    """A term of the log-density.

    Attributes
    ----------
    name : str
        Of its random variable or potential.
    graph : TensorVariable
        Elementwise log-density.
    rv : TensorVariable or None
        The random variable, if it is not that of a potential.
    is_scaled : bool
        Whether ``total_size`` scales it.
    """

    name: str
    graph: TensorVariable
    rv: TensorVariable | None = None
    is_scaled: bool = False

    @classmethod
    def of(cls, rv: TensorVariable, graph: TensorVariable) -> Term:
        """Make the term of a random variable."""
        op = rv.owner.op if rv.owner else None
        return cls(rv.name, graph, rv, isinstance(op, MinibatchRandomVariable))

    def sees(self, variables: set[Variable]) -> bool:
        """Whether it depends on one of some variables."""
        return not variables.isdisjoint(ancestors([self.graph]))

    def drop_scale(self, places: Places) -> None:
        """Take off the factor of ``total_size``."""
        if self.is_scaled:
            assert self.rv is not None
            shape = places.values[self.rv].shape
            self.graph = self.graph / get_scaling(self.rv.owner.inputs[1:], shape)
            self.is_scaled = False


def terms_of(
    model: Model,
    places: Places,
    local: Sequence[ManifoldVariable] = (),
    without: Sequence[TensorVariable] = (),
) -> list[Term]:
    """Terms of the random variables of a model, and of its potentials.

    Parameters
    ----------
    model : pymc.Model
    places : Places
    local : list of ManifoldVariable
        Variables with one point for each row.
    without : list of TensorVariable
        Random variables whose own terms are left out.
    """
    rvs = model.free_RVs + model.observed_RVs
    graphs = _conditional_graphs(rvs, places.values, places.transforms)
    if local:
        graphs |= _local_graphs(model, places, local)
    terms = [Term.of(rv, graphs[rv]) for rv in rvs if rv not in without]
    if model.potentials:
        replaced = replace_rvs_by_values(
            model.potentials, rvs_to_values=places.values, rvs_to_transforms=places.transforms
        )
        terms += [
            Term(potential.name, graph)
            for potential, graph in zip(model.potentials, replaced, strict=True)
        ]
    return terms


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
    model: Model, places: Places, local: Sequence[ManifoldVariable]
) -> dict[TensorVariable, TensorVariable]:
    """Graphs of local variables with as many rows as a block has."""
    resized = {v.rv: _with_rows_of(v.rv, places.values[v.rv]) for v in local}
    parents = {resized.get(rv, rv): rv for rv in model.free_RVs}
    graphs = _conditional_graphs(
        list(resized.values()),
        {rv: places.values[original] for rv, original in parents.items()},
        {rv: places.transforms[original] for rv, original in parents.items()},
    )
    return {rv: graphs[new] for rv, new in resized.items()}


def _with_rows_of(rv: TensorVariable, value: TensorVariable) -> TensorVariable:
    """Make the same random variable with as many rows as ``value``."""
    batch_ndim = rv.type.ndim - rv.owner.op.ndim_supp
    rows = [value.shape[axis] for axis in range(batch_ndim)]
    resized = change_dist_size(rv, rows)
    resized.name = rv.name
    return resized
