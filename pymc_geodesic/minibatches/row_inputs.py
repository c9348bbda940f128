"""Model inputs with rows: data containers, and the outputs of `pymc.Minibatch`.

`RowInputs` are the inputs of a log-density that are replaced by blocks of rows, and `RowIndex`
describes rows that are indices into arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytensor.tensor as pt
from pymc.data import MinibatchOp
from pymc.model import Model
from pymc.pytensorf import constant_fold
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.failure_modes import see

# --- inputs with rows ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowInput:
    """Data that a gradient uses by blocks of consecutive rows.

    Attributes
    ----------
    name : str
        Name of the data container.
    data : ndarray, shape (n_rows, ...)
        All rows.
    block : TensorVariable, shape (batch_size, ...)
        Input of the graph for the block.
    container : Variable or None
        Argument of `pymc.Minibatch`, if it is or depends on data containers, whose values may
        change.
    group : int
        Group of inputs with the same rows; rows of different groups are drawn independently.
    """

    name: str
    data: np.ndarray
    block: TensorVariable
    container: Variable | None = None
    group: int = 0

    @property
    def present(self) -> np.ndarray:
        """All rows, with the current values of their data containers."""
        return self.data if self.container is None else evaluate_data(self.container)

    def resized(self, n_rows: int | None, name: str | None = None) -> TensorVariable:
        """Create a block with another number of rows (None: any number), and optionally a name."""
        kind = self.block.type
        return pt.TensorType(kind.dtype, (n_rows, *kind.shape[1:]))(name or self.block.name)


type DrawnRows = Mapping[tuple[Variable, int], RowInput]
"""Inputs drawn by `pymc.Minibatch`, by its generator and the position of the data among its
arguments."""


@dataclass(frozen=True)
class RowInputs:
    """Inputs of a log-density that are replaced by blocks of rows.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Rows of data containers by name: all rows or, for streamed data, any rows of the same type.
    drawn : mapping of (generator, int) to RowInput
        Without ``arrays``: rows drawn by `pymc.Minibatch`; see `drawn_rows`.
    n_rows : int or None
        Number of rows of a block. None for any number, or for the batch size of `pymc.Minibatch`.
    whole : tuple of str
        Data containers of any length that are the same for all blocks, since the rows index them.
    """

    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
    drawn: DrawnRows = MappingProxyType({})
    n_rows: int | None = None
    whole: tuple[str, ...] = ()

    def blocks(self, model: Model, graphs: Sequence[Variable]) -> dict[Variable, RowInput]:
        """Return the inputs with rows, by the variable that they replace in the graphs.

        Parameters
        ----------
        model : pymc.Model
        graphs : list of Variable
            Terms of its log-density.
        """
        return self._of_containers(model) if self.arrays else self._of_outputs(graphs)

    def _of_containers(self, model: Model) -> dict[Variable, RowInput]:
        rows: dict[Variable, RowInput] = {}
        for name, array in self.arrays.items():
            container = model[name]
            block = _block(f"{name}_block", self.n_rows, array, container)
            rows[container] = RowInput(name, array, block)
        return rows

    def _of_outputs(self, graphs: Sequence[Variable]) -> dict[Variable, RowInput]:
        found = {
            output: self.drawn[each.generator, each.position]
            for output, each in _minibatch_outputs(graphs).items()
        }
        if self.n_rows is None:
            return found
        resized = {row: replace(row, block=row.resized(self.n_rows)) for row in found.values()}
        return {output: resized[row] for output, row in found.items()}


def _block(name: str, n_rows: int | None, data: np.ndarray, like: Variable) -> TensorVariable:
    """Create the input for a block of rows of an array, with the data type of a variable."""
    return pt.TensorType(like.type.dtype, (n_rows, *data.shape[1:]))(name)


# --- pm.Minibatch -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MinibatchOutput:
    """An output of `pymc.Minibatch`.

    Two nodes that share a generator draw the same rows. Therefore outputs are identified by
    generator and position, and not by node.
    """

    generator: Variable
    position: int
    data: Variable


def _minibatch_outputs(graphs: Sequence[Variable]) -> dict[Variable, _MinibatchOutput]:
    """Find the outputs of `pymc.Minibatch` in graphs."""
    found: dict[Variable, _MinibatchOutput] = {}
    for variable in ancestors(graphs):
        node = variable.owner
        if node is not None and isinstance(node.op, MinibatchOp):
            *data, generator = node.inputs
            for position, (output, full) in enumerate(zip(node.outputs[:-1], data, strict=True)):
                found[output] = _MinibatchOutput(generator, position, full)
    return found


def model_graphs(model: Model) -> list[Variable]:
    """List the graphs of the log-density of a model, in the order of its terms."""
    graphs: list[Variable] = []
    for rv in (*model.free_RVs, *model.observed_RVs):
        graphs += [rv, model.rvs_to_values[rv]]
    return [*graphs, *model.potentials]


def drawn_rows(graphs: Sequence[Variable]) -> DrawnRows:
    """Find the rows drawn by `pymc.Minibatch` in graphs.

    Returns
    -------
    dict of (generator, int) to RowInput
        Rows by the generator of a `pymc.Minibatch` and the position of the data in its arguments.
    """
    rows: dict[tuple[Variable, int], RowInput] = {}
    inputs: dict[tuple[Variable, Variable], RowInput] = {}
    groups: dict[Variable, int] = {}
    names: set[str] = set()
    for i, (output, drawn) in enumerate(_minibatch_outputs(graphs).items()):
        group = groups.setdefault(drawn.generator, len(groups))
        key = drawn.data, drawn.generator
        if key not in inputs:
            data = evaluate_data(drawn.data)
            name = getattr(drawn.data, "name", None) or f"minibatch_{i}"
            if name in names:
                name = f"{name} ({i})"
            names.add(name)
            inputs[key] = RowInput(
                name,
                data,
                _block(f"minibatch_{i}_block", output.type.shape[0], data, output),
                drawn.data if container_values(drawn.data) else None,
                group,
            )
        rows[drawn.generator, drawn.position] = inputs[key]
    return rows


def check_observed_minibatches(model: Model) -> None:
    """Check that observed data are drawn by `pymc.Minibatch` together with the other data.

    PyTensor only raises errors for different numbers of rows, and not even these if a minibatch has
    one row or as many rows as the data.

    Raises
    ------
    ValueError
        If observed data have all rows; the message names the observed variable and the data.
    """
    graphs = model_graphs(model)
    drawn = RowInputs(drawn=drawn_rows(graphs)).blocks(model, graphs)
    if not drawn:
        return
    for rv in model.observed_RVs:
        observed = model.rvs_to_values[rv]
        if not drawn.keys().isdisjoint(ancestors([observed])):
            continue
        for variable in ancestors([rv]):
            row = drawn.get(variable)
            if row is not None and len(row.data) == _n_rows(observed):
                raise ValueError(see(_describe_all_observed(rv.name, row), "minibatch"))


def check_not_imputed(model: Model, terms: Sequence[str]) -> None:
    """Check that PyMC imputes no values of observed variables, which it does by row index.

    Parameters
    ----------
    model : pymc.Model
    terms : sequence of str
        Names of its terms that depend on rows.

    Raises
    ------
    ValueError
        If values are imputed; the message names the variable.
    """
    for name in terms:
        variable = name.removesuffix("_observed")
        parts = {variable, f"{variable}_unobserved"}
        if variable != name and parts <= model.named_vars.keys():
            message = (
                f"the observed values of {variable!r} contain NaN or are masked, and PyMC imputes "
                f"them as {variable}_unobserved, so that rows cannot be subsampled. "
                "Drop these rows, impute them first, or use all data, without minibatches"
            )
            raise ValueError(see(message, "missing-values"))


def _n_rows(observed: Variable) -> int | None:
    """Return the length of the first axis, if it is known."""
    if isinstance(observed, SharedVariable):
        shape: tuple[int | None, ...] = observed.get_value(borrow=True).shape
    else:
        shape = observed.type.shape
    return shape[0] if shape else None


def _describe_all_observed(observed: str, row: RowInput) -> str:
    is_named = row.block.name != f"{row.name}_block"
    X = row.name if is_named else "X"
    n, batch_size = len(row.data), row.block.type.shape[0]
    return (
        f"{observed!r} has all {n} observed values, but pm.Minibatch draws {batch_size} of the {n} "
        f"rows of {repr(X) if is_named else 'its data'}. Draw them together, {X}_rows, "
        f"{observed}_rows = pm.Minibatch({X}, {observed}, batch_size={batch_size}), and pass "
        f"observed={observed}_rows"
    )


# --- values -------------------------------------------------------------------------------------


def container_values(variable: Variable) -> list[np.ndarray]:
    """Return the values of all data containers of a variable, without copies."""
    shared = [each for each in graph_inputs([variable]) if isinstance(each, SharedVariable)]
    return [each.get_value(borrow=True) for each in shared]


def evaluate_data(variable: Variable) -> np.ndarray:
    """Evaluate data that do not depend on random variables."""
    if isinstance(variable, Constant):
        return np.asarray(variable.data)
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.eval())


def shape_of(variable: Variable) -> tuple[int | None, ...]:
    """Return the shape of a model variable for the current data; None for unknown lengths.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_geodesic.minibatches.row_inputs import shape_of
    >>> with pm.Model():
    ...     x = pm.Data("x", np.zeros((5, 2)))
    ...     mean = pm.Deterministic("mean", x @ pm.Normal("slope", shape=2))
    >>> shape_of(mean)
    (5,)
    """
    known = variable.type.shape
    if None not in known:
        return known
    shape = [variable.shape[axis] for axis in range(len(known))]
    data = {
        each: pt.constant(each.get_value(borrow=True), dtype=each.type.dtype)
        for each in ancestors(shape)
        if isinstance(each, SharedVariable) and isinstance(each.type, TensorType)
    }
    folded = constant_fold(graph_replace(shape, data, strict=False), raise_not_constant=False)
    return tuple(None if isinstance(each, Variable) else int(each) for each in folded)


# --- indices ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OutOfBounds:
    """An index that is out of bounds.

    Attributes
    ----------
    row : int or None
        Row of the index, if it belongs to one.
    description : str
    """

    row: int | None
    description: str


@dataclass(frozen=True)
class RowIndex:
    """Indices that a log-density computes from rows, such as the group of each row.

    Compiled code does not check bounds: the index 57 of an array of 50 elements reads the memory
    after the array.

    Parameters
    ----------
    containers : tuple of str
        Data from which the indices are computed.
    length : int
        Number of elements of the array.
    array : str
        Description of the array.
    compute : callable
        Function of the data by name that returns the indices, an array of int.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_inputs import RowIndex
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> groups.first_out_of_bounds({"group": np.array([0, 2, -1])}) is None
    True
    >>> groups.first_out_of_bounds({"group": np.array([0, 3])}).description
    "the index 3 into 'effect', which has the 3 entries 0 to 2"
    """

    containers: tuple[str, ...]
    length: int
    array: str
    compute: Callable[[Mapping[str, np.ndarray]], np.ndarray]

    def first_out_of_bounds(self, data: Mapping[str, np.ndarray]) -> OutOfBounds | None:
        """Find the first index that is out of bounds; negative indices count from the end."""
        found = np.atleast_1d(self.compute(data))
        if not found.size or (found.max() < self.length and found.min() >= -self.length):
            return None
        first = np.argwhere((found >= self.length) | (found < -self.length))[0]
        row = int(first[0]) if len(found) == len(data[self.containers[0]]) else None
        entries = f"the {self.length} entries 0 to {self.length - 1}"
        return OutOfBounds(
            row, f"the index {found[tuple(first)]} into {self.array}, which has {entries}"
        )

    def first_negative(self, data: Mapping[str, np.ndarray]) -> int | None:
        """Find the row of the first negative index, unless all indices are negative."""
        found = np.atleast_1d(self.compute(data))
        is_by_row = len(found) == len(data[self.containers[0]])
        if not is_by_row or not found.size or found.min() >= 0 or found.max() < 0:
            return None
        return int(np.argwhere(found < 0)[0, 0])

    @property
    def names(self) -> str:
        """Names of the data, for messages."""
        return " and ".join(map(repr, self.containers))


REMEDY = (
    "number the groups from 0 without gaps, as pandas.factorize does, or extend the array to the "
    "largest index"
)
"""Remedy for indices that are out of bounds, in error messages."""


def describe_out_of_bounds(
    indices: Sequence[RowIndex], data: Mapping[str, np.ndarray]
) -> str | None:
    """Describe the first index of data in memory that is out of bounds; None if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.minibatches.row_inputs import RowIndex, describe_out_of_bounds
    >>> groups = RowIndex(("group",), 3, "'effect'", lambda rows: rows["group"])
    >>> describe_out_of_bounds([groups], {"group": np.array([0, 3])})
    "row 1 of 'group' gives the index 3 into 'effect', which has the 3 entries 0 to 2; number..."
    """
    for index in indices:
        found = index.first_out_of_bounds(data)
        if found is not None:
            where = "" if found.row is None else f"row {found.row} of "
            return f"{where}{index.names} gives {found.description}; {REMEDY}"
    return None
