"""The blocks of rows that stand for the data of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
