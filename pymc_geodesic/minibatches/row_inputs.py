"""Inputs of a model that have rows: data containers, outputs of `pymc.Minibatch`, and indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.failure_modes import see


@dataclass(frozen=True, eq=False)
class RowInput:
    """Data of which every gradient sees a block of consecutive rows.

    Attributes
    ----------
    name : str
        Name of the data container.
    data : ndarray, shape (n_rows, ...)
        All rows.
    block : TensorVariable, shape (batch_size, ...)
        Stands for the block in the graph.
    container : Variable or None
        Where `pymc.Minibatch` has the rows from, a data container or what is computed from some, if
        they can be exchanged.
    group : int
        Inputs of the same group see the same rows; those of different groups are drawn apart.
    """

    name: str
    data: np.ndarray
    block: TensorVariable
    container: Variable | None = None
    group: int = 0

    @property
    def present(self) -> np.ndarray:
        """All rows, with the values that their data containers have now."""
        return self.data if self.container is None else evaluated(self.container)


type DrawnRows = Mapping[tuple[Variable, int], RowInput]
"""Rows that `pymc.Minibatch` draws, by its generator and the place of the data in its arguments."""


@dataclass(frozen=True)
class _Drawn:
    """What an output of `pymc.Minibatch` is.

    Two nodes that share one generator draw the same rows, so outputs are told apart by the
    generator and their place among its outputs, and not by the node.
    """

    generator: Variable
    place: int
    data: Variable


def _drawn_variables(graphs: Sequence[Variable]) -> dict[Variable, _Drawn]:
    """Find the outputs of `pymc.Minibatch` in graphs."""
    found: dict[Variable, _Drawn] = {}
    for variable in ancestors(graphs):
        node = variable.owner
        if node is not None and isinstance(node.op, MinibatchOp):
            *data, generator = node.inputs
            for place, (output, full) in enumerate(zip(node.outputs[:-1], data, strict=True)):
                found[output] = _Drawn(generator, place, full)
    return found


def values_behind(variable: Variable) -> list[np.ndarray]:
    """Values of all data containers that a variable depends on, not copied."""
    shared = [each for each in graph_inputs([variable]) if isinstance(each, SharedVariable)]
    return [each.get_value(borrow=True) for each in shared]


def evaluated(variable: Variable) -> np.ndarray:
    """Value of data, of which nothing is random."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.eval())


def graphs_of(model: Model) -> list[Variable]:
    """All that the log-density of a model is made of, in the order of its terms."""
    graphs: list[Variable] = []
    for rv in (*model.free_RVs, *model.observed_RVs):
        graphs += [rv, model.rvs_to_values[rv]]
    return [*graphs, *model.potentials]


def drawn_rows(graphs: Sequence[Variable]) -> DrawnRows:
    """Rows that `pymc.Minibatch` draws in graphs, as many in a block as it says.

    Returns
    -------
    dict of (generator, int) to RowInput
        By the generator of a `pymc.Minibatch`, and the place of the data among its arguments.
    """
    rows: dict[tuple[Variable, int], RowInput] = {}
    inputs: dict[tuple[Variable, Variable], RowInput] = {}
    groups: dict[Variable, int] = {}
    names: set[str] = set()
    for i, (output, drawn) in enumerate(_drawn_variables(graphs).items()):
        group = groups.setdefault(drawn.generator, len(groups))
        known = drawn.data, drawn.generator
        if known not in inputs:
            data = evaluated(drawn.data)
            name = getattr(drawn.data, "name", None) or f"minibatch_{i}"
            if name in names:
                name = f"{name} ({i})"
            names.add(name)
            seen = SeenRows(n_rows=output.type.shape[0])
            inputs[known] = RowInput(
                name,
                data,
                seen.block(f"minibatch_{i}_block", data, output),
                drawn.data if values_behind(drawn.data) else None,
                group,
            )
        rows[drawn.generator, drawn.place] = inputs[known]
    return rows


@dataclass(frozen=True)
class SeenRows:
    """Which rows a log-density sees, and how many of them at once.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Rows of data containers by name: all of them or, for data that are streamed, any of the same
        type.
    drawn : mapping of (generator, int) to RowInput
        Where there are none of a name: rows that `pymc.Minibatch` draws; see `drawn_rows`.
    n_rows : int or None
        Rows of a block. With None the number is left open, and is what `pymc.Minibatch` says.
    whole : tuple of str
        Data containers that stand for arrays of any length, which the rows point into.
    """

    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
    drawn: DrawnRows = MappingProxyType({})
    n_rows: int | None = None
    whole: tuple[str, ...] = ()

    def block(self, name: str, data: np.ndarray, like: Variable) -> TensorVariable:
        """Make what stands for rows of an array, of the type of another variable."""
        return pt.TensorType(like.type.dtype, (self.n_rows, *data.shape[1:]))(name)

    def blocks(self, model: Model, graphs: Sequence[Variable]) -> dict[Variable, RowInput]:
        """Blocks that stand for the data of a model, by what they stand for in its graphs."""
        return self._of_containers(model) if self.arrays else self._of_outputs(graphs)

    def _of_containers(self, model: Model) -> dict[Variable, RowInput]:
        rows: dict[Variable, RowInput] = {}
        for name, array in self.arrays.items():
            container = model[name]
            block = self.block(f"{name}_block", array, container)
            rows[container] = RowInput(name, array, block)
        return rows

    def _of_outputs(self, graphs: Sequence[Variable]) -> dict[Variable, RowInput]:
        """Blocks by the outputs of `pymc.Minibatch`, each group of as many rows as it says."""
        found = {
            output: self.drawn[each.generator, each.place]
            for output, each in _drawn_variables(graphs).items()
        }
        if self.n_rows is None:
            return found
        resized = {
            row: replace(row, block=self.block(row.block.name, row.data, row.block))
            for row in found.values()
        }
        return {output: resized[row] for output, row in found.items()}


def check_observed_minibatches(model: Model) -> None:
    """Check that observed data are those of the rows that `pymc.Minibatch` draws.

    PyTensor reports no more than different numbers of rows, and not even that where a minibatch has
    one row or as many rows as the data.

    Raises
    ------
    ValueError
        The message names the observed variable and the data.
    """
    graphs = graphs_of(model)
    drawn = SeenRows(drawn=drawn_rows(graphs)).blocks(model, graphs)
    if not drawn:
        return
    for rv in model.observed_RVs:
        observed = model.rvs_to_values[rv]
        if not drawn.keys().isdisjoint(ancestors([observed])):
            continue
        for variable in ancestors([rv]):
            row = drawn.get(variable)
            if row is not None and len(row.data) == _n_rows(observed):
                raise ValueError(see(_refusal(rv.name, row), "minibatch"))


def _n_rows(observed: Variable) -> int | None:
    """Length of the first axis, if it is known."""
    if isinstance(observed, SharedVariable):
        shape: tuple[int | None, ...] = observed.get_value(borrow=True).shape
    else:
        shape = observed.type.shape
    return shape[0] if shape else None


def _refusal(observed: str, row: RowInput) -> str:
    is_named = row.block.name != f"{row.name}_block"
    X = row.name if is_named else "X"
    n, batch_size = len(row.data), row.block.type.shape[0]
    return (
        f"{observed!r} has all {n} observed values, but pm.Minibatch draws {batch_size} of the {n} "
        f"rows of {repr(X) if is_named else 'its data'}: draw both by one, {X}_rows, "
        f"{observed}_rows = pm.Minibatch({X}, {observed}, batch_size={batch_size}), and pass "
        f"observed={observed}_rows"
    )


# --- indices -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Beyond:
    """An index that an array does not have.

    Attributes
    ----------
    row : int or None
        Where it stands, if it belongs to a row.
    said : str
        What it is.
    """

    row: int | None
    said: str


@dataclass(frozen=True)
class RowIndex:
    """Indices that a log-density computes from rows, such as numbers of groups.

    Compiled code does not look whether an index is one: a number of 57 reads what lies in memory
    behind a table of 50 entries.

    Parameters
    ----------
    containers : tuple of str
        Data that the indices are, or are computed from.
    length : int
        Entries of the array that they point into.
    table : str
        What the array is.
    of_rows : callable
        Takes the data by their names and returns the indices, an array of int.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_inputs import RowIndex
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> groups.first_beyond({"group": np.array([0, 2, -1])}) is None
    True
    >>> groups.first_beyond({"group": np.array([0, 3])})
    Beyond(row=1, said="the index 3 into 'effect', which has the 3 entries 0 to 2")
    """

    containers: tuple[str, ...]
    length: int
    table: str
    of_rows: Callable[[Mapping[str, np.ndarray]], np.ndarray]

    def first_beyond(self, arrays: Mapping[str, np.ndarray]) -> Beyond | None:
        """Find the first index that is none; negative ones count from the end, as in NumPy."""
        found = np.atleast_1d(self.of_rows(arrays))
        if not found.size or (found.max() < self.length and found.min() >= -self.length):
            return None
        place = np.argwhere((found >= self.length) | (found < -self.length))[0]
        row = int(place[0]) if len(found) == len(arrays[self.containers[0]]) else None
        entries = f"the {self.length} entries 0 to {self.length - 1}"
        said = f"the index {found[tuple(place)]} into {self.table}, which has {entries}"
        return Beyond(row, said)

    @property
    def of(self) -> str:
        """The data, as messages name them."""
        return " and ".join(map(repr, self.containers))


REMEDY = (
    "number what the rows belong to from 0 without gaps, as pandas.factorize does, or give the "
    "array an entry for each number"
)


def beyond_in_memory(indices: Sequence[RowIndex], arrays: Mapping[str, np.ndarray]) -> str | None:
    """Say where data in memory point beyond an array, and what to do; None if nowhere.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_inputs import RowIndex, beyond_in_memory
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> beyond_in_memory([groups], {"group": np.array([0, 3])})
    "row 1 of 'group' gives the index 3 into 'effect', which has the 3 entries 0 to 2; number..."
    """
    for index in indices:
        beyond = index.first_beyond(arrays)
        if beyond is not None:
            where = "" if beyond.row is None else f"row {beyond.row} of "
            return f"{where}{index.of} gives {beyond.said}; {REMEDY}"
    return None
