"""The terms of the log-density of a model, with manifold coordinates in the place of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytensor.tensor as pt
from pymc.distributions.shape_utils import change_dist_size
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.transforms import Transform
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.manifolds import Manifold


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
