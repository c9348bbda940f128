"""Dependence of a model on the rows of its data: terms, variables, total sizes and indices."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, io_toposort
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import function_as_written
from pymc_geodesic.densities.log_density import Density, rebuilt
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import RowIndex, beyond_in_memory, drawn_rows, evaluated
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.sparse import containers_of


def stating_totals(model: Model, names: Sequence[str]) -> list[str]:
    """Names of observed variables with a ``total_size=`` that see rows of named containers.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
        Data containers, or matrices in several of them.
    """
    rows = {container for name in names for container in containers_of(model, name)}
    return [
        rv.name
        for rv in model.observed_RVs
        if isinstance(rv.owner.op, MinibatchRandomVariable)
        and not rows.isdisjoint(ancestors([rv, model.rvs_to_values[rv]]))
    ]


def warn_of_other_totals(model: Model, source: RowSource, total_size: int | None = None) -> None:
    """Warn where ``total_size=`` of an observed variable is not the number of rows it sees.

    Its log-density is multiplied by that number over the rows of a minibatch, so that a wrong one
    makes the posterior too narrow or too wide by the root of their quotient, at a temperature of 1.

    Parameters
    ----------
    model : pymc.Model
    source : RowSource
    total_size : int, optional
        N, where the step was told.
    """
    named = {model[name] for name in source.names}
    for rv in model.observed_RVs:
        if not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        stated = rv.owner.inputs[1]
        if not isinstance(stated, Constant) or stated.data is None:
            continue
        graphs = [rv, model.rvs_to_values[rv]]
        counts = {len(row.data) for row in drawn_rows(graphs).values()}
        if not named.isdisjoint(ancestors(graphs)):
            counts.add(source.n_rows if total_size is None else int(total_size))
        if counts and int(stated.data) not in counts:
            n_rows = max(counts)
            message = (
                f"total_size={int(stated.data)} of {rv.name!r} is not the {n_rows} rows of its "
                "data: its log-density counts as that many rows, and the posterior is "
                f"{'narrower' if stated.data > n_rows else 'wider'} than that of the data. Pass "
                f"total_size={n_rows}, the number of all rows and not that of a minibatch"
            )
            warnings.warn(see(message, "total-size"), UserWarning, stacklevel=2)


def variables_coupled_to_rows(model: Model, names: Sequence[str]) -> list[TensorVariable]:
    """Value variables whose conditional distribution depends on the rows of data containers.

    Parameters
    ----------
    model : pymc.Model
    names : list of str
        Data containers, or sparse matrices.
    """
    parts = [f"{name}{part}" for name in names for part in ("", "_values", "_columns", "_rows")]
    rows = {
        found for name in parts if isinstance(found := model.named_vars.get(name), SharedVariable)
    }
    coupled = set()
    for term in (*model.basic_RVs, *model.potentials):
        graphs = [term, model.rvs_to_values[term]] if term in model.rvs_to_values else [term]
        above = set(ancestors(graphs, blockers=[rv for rv in model.free_RVs if rv is not term]))
        if above & rows:
            coupled |= above
    return [model.rvs_to_values[rv] for rv in model.free_RVs if rv in coupled]


class IndexCheck:
    """A look at the data that a log-density takes as indices.

    Data in memory are looked at by `check`, and those of a stream when they are read.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Those of the coordinates of the density.
    density : Density
    source : RowSource
        Where its rows come from.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        density: Density,
        source: RowSource,
    ) -> None:
        self._model, self._density, self._source = model, density, source
        self._indices: list[RowIndex] = []
        indices = _row_indices(variables, density, only_rows=source.passes_by)
        if source.passes_by:
            source.check_indices(indices)
        else:
            self._indices = indices

    def check(self) -> None:
        """Refuse data in memory that point beyond an array.

        Raises
        ------
        ValueError
            The message names the data, the row and the array.
        """
        if not self._indices:
            return
        message = beyond_in_memory(self._indices, self._data())
        if message is not None:
            raise ValueError(see(message, "beyond-array"))

    def levels(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Compute the indices of rows into arrays, such as numbers of groups.

        Parameters
        ----------
        rows : mapping of str to ndarray, shape (N, ...)
            Containers of rows in memory.

        Yields
        ------
        names : tuple of str
            Containers of the rows that the indices are computed from.
        levels : ndarray of int, shape (N,) or (N, k)
        """
        n_rows = len(next(iter(rows.values())))
        data = self._whole() | dict(rows)
        for index in self._indices:
            names = tuple(name for name in index.containers if name in rows)
            if names:
                levels = np.atleast_1d(index.of_rows(data))
                if len(levels) == n_rows:
                    yield names, levels

    def _whole(self) -> dict[str, np.ndarray]:
        """Arrays that are not divided into rows, by their names."""
        return {
            copy.name: self._source.whole_array(holder)
            for copy, holder in self._density.arrays.items()
            if copy.name is not None
        }

    def _data(self) -> dict[str, np.ndarray]:
        """All that is in memory, in its own order, by its names."""
        data = {
            row.name: row.present if self._source.drawn else evaluated(self._model[row.name])
            for row in self._density.rows
        }
        return data | self._whole()


def _row_indices(
    variables: Sequence[ManifoldVariable], density: Density, *, only_rows: bool
) -> list[RowIndex]:
    """Find what points into arrays, of rows alone or of other data too."""
    rows = {
        row.block: pt.TensorType(row.block.type.dtype, (None, *row.block.type.shape[1:]))(row.name)
        for row in density.rows
    }
    data = set(rows.values())
    if not only_rows:
        data |= {copy for copy, holder in density.arrays.items() if copy.name is not None}
    named = {c: v.name for c, v in zip(density.coordinates, variables, strict=False)}
    named |= {each: name for name, each in density.others.items()}
    named |= {copy: copy.name for copy in density.arrays if copy.name is not None}
    terms = rebuilt([*density.row_terms, *density.other_terms], rows)
    found = {}
    for table, axis, index in _indexings(terms):
        inputs = list(explicit_graph_inputs([index]))
        length = table.type.shape[axis]
        if inputs and length is not None and data.issuperset(inputs):
            found[index, length] = RowIndex(
                tuple(each.name for each in inputs),
                length,
                _called(table, named),
                _of_rows(index, inputs),
            )
    return list(found.values())


def _indexings(
    terms: Sequence[TensorVariable],
) -> Iterator[tuple[TensorVariable, int, TensorVariable]]:
    """Find arrays, axes of them, and the integers that point into those."""
    for node in io_toposort([], terms):
        if not isinstance(node.op, AdvancedSubtensor):
            continue
        axis = 0
        for index in indices_from_subtensor(node.inputs[1:], node.op.idx_list):
            if not isinstance(index, Variable) or not hasattr(index.type, "dtype"):
                axis += 1
            elif index.type.dtype == "bool":
                axis += index.type.ndim
            else:
                yield node.inputs[0], axis, index
                axis += 1


def _called(table: TensorVariable, named: Mapping[Variable, str]) -> str:
    """Name an array by the variables that it is or is made of."""
    names = [repr(named[each]) for each in ancestors([table]) if each in named]
    names = sorted(set(names))
    if not names:
        return "an array"
    return names[0] if table in named else f"an array that is made of {' and '.join(names)}"


def _of_rows(
    index: TensorVariable, inputs: Sequence[TensorVariable]
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Compute indices from data by their names."""
    if index in inputs:
        return lambda data: data[str(index.name)]
    function = function_as_written(inputs, index)
    one_at_a_time = threading.Lock()  # blocks are read in the background

    def of_rows(data: Mapping[str, np.ndarray]) -> np.ndarray:
        with one_at_a_time:
            return function(*(data[str(each.name)].astype(each.type.dtype) for each in inputs))

    return of_rows
