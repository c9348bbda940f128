"""Dependence of a model on the rows of its data: variables, total sizes, and row indices."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, io_toposort
from pytensor.tensor.subtensor import AdvancedSubtensor, indices_from_subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.log_density import Density
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.minibatches.row_inputs import (
    RowIndex,
    describe_out_of_bounds,
    drawn_rows,
    evaluate_data,
)
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.sparse import get_containers

# --- variables that depend on rows --------------------------------------------------------------


def variables_coupled_to_rows(model: Model, names: Sequence[str]) -> list[TensorVariable]:
    """List value variables whose conditional distribution depends on the rows of containers.

    Parameters
    ----------
    model : pymc.Model
    names : list of str
        Data containers, or sparse matrices.
    """
    rows = {container for name in names for container in get_containers(model, name)}
    coupled = set()
    for term in (*model.basic_RVs, *model.potentials):
        graphs = [term, model.rvs_to_values[term]] if term in model.rvs_to_values else [term]
        above = set(ancestors(graphs, blockers=[rv for rv in model.free_RVs if rv is not term]))
        if above & rows:
            coupled |= above
    return [model.rvs_to_values[rv] for rv in model.free_RVs if rv in coupled]


def _observed_with_total_size(
    model: Model, variables: set[Variable]
) -> Iterator[tuple[TensorVariable, list[int | None]]]:
    """Find observed variables with a ``total_size`` that depend on given variables.

    Yields
    ------
    rv : TensorVariable
    sizes : list of int or None
        ``total_size`` of each axis; None if it is not a constant.
    """
    for rv in model.observed_RVs:
        if not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        if not variables.isdisjoint(ancestors([rv, model.rvs_to_values[rv]])):
            yield rv, _total_sizes(rv)


def _total_sizes(rv: TensorVariable) -> list[int | None]:
    return [
        int(size.data) if isinstance(size, Constant) and size.data is not None else None
        for size in rv.owner.inputs[1:]
    ]


def observed_with_total_size(model: Model, names: Sequence[str]) -> list[str]:
    """List the observed variables with a ``total_size`` that depend on rows of named containers.

    Parameters
    ----------
    model : pymc.Model
    names : sequence of str
        Data containers, or sparse matrices.
    """
    rows: set[Variable] = {c for name in names for c in get_containers(model, name)}
    return [rv.name for rv, _ in _observed_with_total_size(model, rows)]


# --- total number of rows -----------------------------------------------------------------------


def warn_about_wrong_total_size(model: Model, source: RowSource, total_size: int | None) -> None:
    """Warn about a ``total_size`` of an observed variable that is not its number of rows.

    The log-density is multiplied by ``total_size`` / n for a minibatch of n rows. A wrong value
    makes the posterior too narrow or too wide by the square root of the ratio, which the
    temperature does not show.

    Parameters
    ----------
    model : pymc.Model
    source : RowSource
    total_size : int or None
        N as specified in the step.
    """
    named = {model[name] for name in source.names}
    for rv in model.observed_RVs:
        if not isinstance(rv.owner.op, MinibatchRandomVariable):
            continue
        stated = _total_sizes(rv)[0]
        if stated is None:
            continue
        graphs = [rv, model.rvs_to_values[rv]]
        counts = {len(row.data) for row in drawn_rows(graphs).values()}
        if not named.isdisjoint(ancestors(graphs)):
            counts.add(source.n_rows if total_size is None else int(total_size))
        if counts and stated not in counts:
            n_rows = max(counts)
            message = (
                f"total_size={stated} of {rv.name!r} does not match the {n_rows} rows of its data: "
                f"the log-density is scaled to {stated} rows, and the posterior is too "
                f"{'narrow' if stated > n_rows else 'wide'}. Pass "
                f"total_size={n_rows}, the number of all rows and not that of a minibatch"
            )
            warnings.warn(see(message, "total-size"), UserWarning, stacklevel=2)


def local_total_size(
    model: Model, local: Sequence[ManifoldVariable], source: RowSource, total_size: int | None
) -> int:
    """Return the total number N of rows of the local variables.

    It is specified in the step, or as ``total_size`` of observed variables; by default it is the
    number of rows of the data.

    Parameters
    ----------
    model : pymc.Model
    local : list of ManifoldVariable
    source : RowSource
        Minibatches of the data.
    total_size : int or None
        N as specified in the step.

    Raises
    ------
    ValueError
        If these numbers differ, or if a ``total_size`` is that of another axis than the rows.
    """
    with_rows = {*(model[name] for name in source.arrays), *(variable.rv for variable in local)}
    stated = {} if total_size is None else {"the step": int(total_size)}
    for rv, (rows, *others) in _observed_with_total_size(model, with_rows):
        if rows is None or any(size is not None for size in others):
            message = (
                f"total_size= of {rv.name!r} refers to another axis than the first. With local= "
                "pass one number, that of the rows"
            )
            raise ValueError(see(message, "local"))
        stated[repr(rv.name)] = rows
    if len(set(stated.values())) > 1:
        message = (
            f"total_size= is {', '.join(f'{n} for {who}' for who, n in stated.items())}. With "
            "local= pass one number of rows, to the step only"
        )
        raise ValueError(see(message, "local"))
    return next(iter(stated.values()), source.n_rows)


# --- indices in rows ----------------------------------------------------------------------------


class IndexCheck:
    """Bounds check of data that are used as indices into arrays, such as group indices.

    Data in memory are checked by `check`, streamed data when they are read.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of the coordinates of the density.
    density : Density
    source : RowSource
        Source of its rows.
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
        indices = _row_indices(variables, density, only_rows=source.is_streamed)
        if source.is_streamed:
            source.check_indices(indices)
        else:
            self._indices = indices

    def check(self) -> None:
        """Check data in memory, and warn of negative indices next to others.

        Raises
        ------
        ValueError
            If an index is out of bounds; the message names the data, the row and the array.
        """
        if not self._indices:
            return
        data = self._data()
        message = describe_out_of_bounds(self._indices, data)
        if message is not None:
            raise ValueError(see(message, "beyond-array"))
        for index in self._indices:
            row = index.first_negative(data)
            if row is not None:
                message = (
                    f"row {row} of {index.names} is a negative index, which counts from the end "
                    f"of {index.array}. If it is the code -1 of a missing value in pandas, drop "
                    "these rows"
                )
                warnings.warn(see(message, "beyond-array"), UserWarning, stacklevel=2)

    def levels(
        self, rows: Mapping[str, np.ndarray]
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Compute the indices of rows, such as the group of each row.

        Parameters
        ----------
        rows : mapping of str to ndarray, shape (N, ...)
            Rows in memory by container.

        Yields
        ------
        names : tuple of str
            Containers from which the indices are computed.
        levels : ndarray of int, shape (N,) or (N, k)
        """
        n_rows = len(next(iter(rows.values())))
        data = self._arrays() | dict(rows)
        for index in self._indices:
            names = tuple(name for name in index.containers if name in rows)
            if names:
                levels = np.atleast_1d(index.compute(data))
                if len(levels) == n_rows:
                    yield names, levels

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the data without rows, by name."""
        return {
            copy.name: self._source.whole_array(holder)
            for copy, holder in self._density.arrays.items()
        }

    def _data(self) -> dict[str, np.ndarray]:
        """All data in memory, in the original order, by name."""
        data = {
            row.name: row.present if self._source.drawn else evaluate_data(self._model[row.name])
            for row in self._density.rows
        }
        return data | self._arrays()


def _row_indices(
    variables: Sequence[ManifoldVariable], density: Density, *, only_rows: bool
) -> list[RowIndex]:
    """Find indices that are computed from rows only, or from any data."""
    rows = {row.block: row.resized(None, row.name) for row in density.rows}
    data = set(rows.values())
    if not only_rows:
        data |= set(density.arrays)
    names = {c: v.name for c, v in zip(density.coordinates, variables, strict=False)}
    names |= {each: name for name, each in density.others.items()}
    names |= {copy: copy.name for copy in density.arrays}
    found = {}
    for array, axis, index in _indexed_arrays(rebuild_graphs(density.graphs, rows)):
        inputs = list(explicit_graph_inputs([index]))
        length = array.type.shape[axis]
        if inputs and length is not None and data.issuperset(inputs):
            found[index, length] = RowIndex(
                tuple(each.name for each in inputs),
                length,
                _describe_array(array, names),
                _index_function(index, inputs),
            )
    return list(found.values())


def _indexed_arrays(
    graphs: Sequence[TensorVariable],
) -> Iterator[tuple[TensorVariable, int, TensorVariable]]:
    """Find arrays with an axis that is indexed by integers: array, axis and index."""
    for node in io_toposort([], graphs):
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


def _describe_array(array: TensorVariable, names: Mapping[Variable, str]) -> str:
    """Describe an array by the variables that it is computed from."""
    found = sorted({repr(names[each]) for each in ancestors([array]) if each in names})
    if not found:
        return "an array"
    return found[0] if array in names else f"an array that is made of {' and '.join(found)}"


def _index_function(
    index: TensorVariable, inputs: Sequence[TensorVariable]
) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Make a function of data by name that computes indices."""
    if index in inputs:
        return lambda data: data[str(index.name)]
    function = unoptimized_function(inputs, index)
    lock = threading.Lock()  # blocks are read in the background

    def compute(data: Mapping[str, np.ndarray]) -> np.ndarray:
        with lock:
            return function(*(data[str(each.name)].astype(each.type.dtype) for each in inputs))

    return compute
